"""Attributes under the names of each release of the conventions."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, cast

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from recorded_spans import Spans, desk, refund, said

from routelock import Agent, Compact, Runner
from routelock.errors import ConfigError
from routelock.testing import ScriptedHandler, call
from routelock.tracing import OpenTelemetry
from routelock.tracing.otel_attributes import Conventions

pytestmark = pytest.mark.anyio

NEW_IN_0_1 = {"gen_ai.request.reasoning.level"}
"""Those on the spans of a plain run that only the first release of the conventions' own repository has."""

needs_1_41 = pytest.mark.skipif(
    not hasattr(gen_ai_attributes, "GEN_AI_WORKFLOW_NAME"), reason="the package has an older release"
)

SETTINGS = {
    "frequency_penalty": 0.1,
    "max_tokens": 9,
    "presence_penalty": 0.1,
    "reasoning_effort": "low",
    "seed": 7,
    "stop": ["END"],
    "temperature": 0.5,
    "top_k": 40.0,
    "top_p": 0.9,
}


async def written(spans: Spans, conventions: Conventions) -> set[str]:
    """Return the names of the conventions' attributes on the spans of a run that has everything."""
    config = spans.config(
        content=True, conventions=conventions, conversation_id="c1", model_settings=SETTINGS
    )
    await Runner.run_streamed(desk(), "Hi", run_config=config).drain()
    return {name for span in spans.all for name in said(span) if name.startswith("gen_ai.")}


@needs_1_41
async def test_names_of_the_older_release_are_those_of_its_package(spans: Spans) -> None:
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI")}
    assert await written(spans, "1.41") <= known


@needs_1_41
async def test_names_of_the_newer_release_are_known(spans: Spans) -> None:
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI")}
    assert await written(spans, "0.1") - known == NEW_IN_0_1


@pytest.mark.parametrize(
    ("conventions", "names"),
    [
        ("0.1", {"gen_ai.agent.name"}),
        ("1.41", {"gen_ai.workflow.name"}),
        ("both", {"gen_ai.agent.name", "gen_ai.workflow.name"}),
    ],
)
async def test_run_is_named_as_the_release_wants_it(
    conventions: Conventions, names: set[str], spans: Spans
) -> None:
    await Runner.run(desk(), "Hi", run_config=spans.config(conventions=conventions))
    [run] = spans.named("invoke_workflow triage")
    named = {name: value for name, value in said(run).items() if name.endswith(".name")}
    assert named == {"gen_ai.operation.name": "invoke_workflow", **dict.fromkeys(names, "triage")}


async def test_calls_with_a_compacted_view_are_marked(spans: Spans) -> None:
    replies = [*(call("refund", {"order": order}) for order in range(6)), "Done."]
    agent = Agent("A", model=ScriptedHandler(replies), tools=[refund])
    compact = Compact(at_messages=8, keep_turns=1, rest="drop")
    await Runner.run(agent, "Hi", run_config=spans.config(compact=compact))
    marked = [said(one).get("gen_ai.conversation.compacted") for one in spans.named("chat scripted")]
    assert (marked[0], marked[-1]) == (None, True)


@pytest.mark.parametrize(("conventions", "kind"), [("0.1", int), ("both", int), ("1.41", float)])
async def test_top_k_has_the_type_of_the_release(
    conventions: Conventions, kind: type[Any], spans: Spans
) -> None:
    agent = Agent("A", model=ScriptedHandler(["Hi."]), model_settings=cast(Any, {"top_k": 40.0}))
    await Runner.run(agent, "Hi", run_config=spans.config(conventions=conventions))
    [chat] = spans.named("chat scripted")
    assert type(said(chat)["gen_ai.request.top_k"]) is kind


@pytest.mark.parametrize(
    ("conventions", "schema"),
    [
        ("0.1", "https://opentelemetry.io/schemas/gen-ai/0.1.0"),
        ("1.41", "https://opentelemetry.io/schemas/1.41.0"),
        ("both", "https://opentelemetry.io/schemas/gen-ai/0.1.0"),
    ],
)
async def test_scope_says_whose_names_they_are(conventions: Conventions, schema: str, spans: Spans) -> None:
    await Runner.run(desk(), "Hi", run_config=spans.config(conventions=conventions))
    scopes = [spans.all[0].instrumentation_scope, spans.metric_scope()]
    assert {(one.name, one.version, one.schema_url) for one in scopes if one} == {
        ("routelock", version("routelock"), schema)
    }


def test_unknown_conventions_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"use one of 'both', '0\.1', '1\.41'"):
        OpenTelemetry(conventions=cast(Any, "1.36"))
