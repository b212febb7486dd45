"""Guardrails stop a run: an agent's own when it is active, the run's around it (rows 1-44, 2-20)."""

from __future__ import annotations

import functools
from typing import Any

import anyio.lowlevel
import pytest
from teams import outcome

from interlock import Agent, GuardrailResult, RunConfig, Runner
from interlock.errors import CallbackError, GuardrailTripped, InputGuardrailTripped, OutputGuardrailTripped
from interlock.guardrails import Guardrail
from interlock.repair import problems
from interlock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio


class Watch:
    """A guardrail that writes down what it was shown, and trips on a word."""

    def __init__(self, trip_on: str = "") -> None:
        self.seen: list[Any] = []
        self.trip_on = trip_on

    def __call__(self, context: Any, agent: Any, value: Any) -> GuardrailResult:
        self.seen.append((agent.name, context.turn, value))
        found = bool(self.trip_on) and self.trip_on in str(value)
        return GuardrailResult(found, f"found {self.trip_on!r}")


def two(source: dict[str, Any], target: dict[str, Any]) -> Agent[Any]:
    last = Agent("B", model=ScriptedHandler(["B here."]), **target)
    return Agent("A", model=ScriptedHandler([call("transfer_to_b")]), handoffs=[last], **source)


async def test_input_guardrails_run_when_their_agent_becomes_active() -> None:
    """Row 2-20: the specialist's do not run before the transfer, and see what the specialist sees."""
    a, b = Watch(), Watch()
    await Runner.run(two({"input_guardrails": [a]}, {"input_guardrails": [b]}), "Hi")
    assert [(name, turn) for name, turn, _ in a.seen + b.seen] == [("A", 1), ("B", 2)]
    assert a.seen[0][2] == [{"role": "user", "content": "Hi"}]
    assert [message["role"] for message in b.seen[0][2]] == ["user", "assistant", "tool"]


async def test_output_guardrails_are_those_of_the_agent_that_answers() -> None:
    """Row 2-20: they are not inherited over a handoff."""
    a, b = Watch(), Watch()
    await Runner.run(two({"output_guardrails": [a]}, {"output_guardrails": [b]}), "Hi")
    assert a.seen == []
    assert b.seen == [("B", 2, "B here.")]


async def test_the_runs_guardrails_hold_for_the_whole_run() -> None:
    first, last = Watch(), Watch()
    config = RunConfig(input_guardrails=[first], output_guardrails=[last])
    await Runner.run(two({}, {}), "Hi", run_config=config)
    assert [(name, value) for name, _, value in first.seen] == [("A", [{"role": "user", "content": "Hi"}])]
    assert last.seen == [("B", 2, "B here.")]


async def test_a_tripped_input_guardrail_stops_before_the_model() -> None:
    script = ScriptedHandler([])
    agent = Agent("A", model=script, input_guardrails=[Watch(), Watch("secret")])
    with pytest.raises(InputGuardrailTripped, match=r"'Watch' stopped agent 'A'.*found 'secret'") as caught:
        await Runner.run(agent, "the secret")
    assert script.requests == []
    assert (caught.value.guardrail, caught.value.info) == ("Watch", "found 'secret'")
    assert caught.value.result.stop_reason == "error"


async def test_a_tripped_guardrail_of_the_run_stops_before_anything() -> None:
    script, own = ScriptedHandler([]), Watch()
    agent = Agent("A", model=script, input_guardrails=[own])
    with pytest.raises(InputGuardrailTripped):
        await Runner.run(agent, "secret", run_config=RunConfig(input_guardrails=[Watch("secret")]))
    assert (script.requests, own.seen) == ([], [])


async def test_a_target_can_refuse_what_it_is_handed() -> None:
    with pytest.raises(InputGuardrailTripped, match="stopped agent 'B'") as caught:
        await Runner.run(two({}, {"input_guardrails": [Watch("transfer_to_b")]}), "Hi")
    result = caught.value.result
    assert (result.last_agent.name, outcome(result.handoffs[0])) == ("B", "taken")
    assert problems(result.to_input_list()) == []


@pytest.mark.parametrize("where", ["agent", "run"])
async def test_a_tripped_output_guardrail_keeps_the_answer_back(where: str) -> None:
    watch = Watch("5")
    own, others = ([watch], []) if where == "agent" else ([], [watch])
    agent = Agent("A", model=ScriptedHandler(["It is 5."]), output_guardrails=own)
    config = RunConfig(output_guardrails=others)
    with pytest.raises(OutputGuardrailTripped) as caught:
        await Runner.run(agent, "Hi", run_config=config)
    assert caught.value.result.final_output is None
    assert caught.value.result.messages[-1].get("content") == "It is 5."


async def check_async(context: Any, agent: Any, value: Any) -> GuardrailResult:
    await anyio.lowlevel.checkpoint()
    return GuardrailResult(True, "async")


def check_with(limit: int, context: Any, agent: Any, value: Any) -> GuardrailResult:
    return GuardrailResult(len(value) > limit, limit)


@pytest.mark.parametrize(
    ("guardrail", "name"), [(check_async, "check_async"), (functools.partial(check_with, 1), "check_with")]
)
async def test_guardrails_may_be_async_and_partial(guardrail: Guardrail, name: str) -> None:
    agent = Agent("A", model=ScriptedHandler(["Hello."]), output_guardrails=[guardrail])
    with pytest.raises(GuardrailTripped) as caught:
        await Runner.run(agent, "Hi")
    assert caught.value.guardrail == name


def broken(context: Any, agent: Any, value: Any) -> GuardrailResult:
    raise KeyError("mine")


def wrong(context: Any, agent: Any, value: Any) -> Any:
    return True


@pytest.mark.parametrize("guardrail", [broken, wrong])
@pytest.mark.parametrize("kind", ["input_guardrails", "output_guardrails"])
@pytest.mark.parametrize("whose", ["agent", "run"])
async def test_a_guardrail_that_fails_stops_the_run(guardrail: Any, kind: str, whose: str) -> None:
    """A check that could not be made must not count as passed."""
    own: dict[str, Any] = {kind: [guardrail]}
    agent = Agent("A", model=ScriptedHandler(["Hello."]), **(own if whose == "agent" else {}))
    config = RunConfig(**(own if whose == "run" else {}))
    with pytest.raises(CallbackError, match=r"An (in|out)put guardrail of"):
        await Runner.run(agent, "Hi", run_config=config)


async def test_a_guardrail_that_gives_something_else_is_told_what_to_give() -> None:
    agent = Agent("A", model=ScriptedHandler(["Hello."]), output_guardrails=[wrong])
    with pytest.raises(CallbackError, match=r"guardrail 'wrong' must return a GuardrailResult, not True"):
        await Runner.run(agent, "Hi")
