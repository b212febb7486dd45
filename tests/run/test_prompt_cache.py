"""What vendors can cache stays the same from turn to turn, and what they did cache is counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from answers import Answers
from servers import HELLO, Reply, said

from routelock import Agent, RunConfig, Runner, function_tool
from routelock.handlers.function_handler import function_handler
from routelock.handlers.port import Request
from routelock.history.messages import Message
from routelock.testing import ScriptedHandler, call
from routelock_providers import OpenAICompatible
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import close_litellm

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("answers_of_respx")]


@function_tool
def look(page: int) -> str:
    """Look at a page."""
    return f"page {page}" if page else "\ud800"


@function_tool
def broken() -> str:
    """Break."""
    raise ValueError("no")


async def spoken(request: Request) -> str:
    """Answer like the other one."""
    return "Hm."


def grows(requests: Sequence[Sequence[Any]]) -> bool:
    return all(list(later[: len(earlier)]) == list(earlier) for earlier, later in pairwise(requests))


SCRIPTS: dict[str, list[Any]] = {
    "tools": [call("look", {"page": 1}), [call("look", {"page": 0}), call("broken")], "Done."],
    "mistakes": [call("nothing"), call("look", "{"), call("look", {"page": "x"}), "Done."],
    "refused transfers": [[call("transfer_to_b"), call("transfer_to_c")], call("look", {"page": 1}), "Done."],
    "nothing said": [call("look", {"page": 1}), "", call("look", {"page": 2}), "", "Done."],
    "going round": [*[call("look", {"page": 1})] * 4, "Done."],
}


@pytest.mark.pairwise
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("output", [None, dict[str, int]])
async def test_each_request_begins_with_the_last_one(script: str, output: Any) -> None:
    """System prompt, tools and history: nothing in front of what is new is ever changed, or moved."""
    model = ScriptedHandler([*SCRIPTS[script], '{"a": 1}', '{"a": 1}'])
    others = [Agent(name, model=ScriptedHandler(["Hi."])) for name in ("b", "c")]
    agent = Agent(
        "A",
        "Be brief.",
        model=model,
        handlers=[function_handler(spoken)],
        tools=[look, broken],
        handoffs=others,
        output_type=output,
        output_mode="prompted",
    )
    config = RunConfig(multiple_handoffs="reject", handoff_prompt=True, max_mistakes=9)
    await Runner.run(agent, "Hi", run_config=config, max_turns=20)
    assert len(model.requests) > 1
    assert grows([request.messages for request in model.requests])
    assert len({json.dumps(request.tools) for request in model.requests}) == 1


async def test_returning_agent_sees_the_same_prefix() -> None:
    model = ScriptedHandler([call("look", {"page": 1}), call("transfer_to_b"), "Done."])
    other = Agent("b", model=ScriptedHandler([call("transfer_to_a")]), handoffs=["a"])
    await Runner.run(Agent("a", "Be brief.", model=model, tools=[look], handoffs=[other]), "Hi")
    assert grows([request.messages for request in model.requests])


@pytest.mark.parametrize("tools", [[], [look]])
async def test_returning_target_sees_the_same_prefix(tools: Any) -> None:
    model = ScriptedHandler([call("transfer_to_a"), call("transfer_to_a"), "Done."])
    other = Agent("b", model=model, handoffs=["a"], tools=tools)
    first = ScriptedHandler([call("look", {"page": 1}), call("transfer_to_b")] * 3)
    result = await Runner.run(
        Agent("a", "Be brief.", model=first, tools=[look], handoffs=[other]),
        "Hi",
        run_config=RunConfig(detect_loops=False),
    )
    assert (result.final_output, len(model.requests)) == ("Done.", 3)
    for each in (first, model):
        assert grows([request.messages for request in each.requests])


USED = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}}


def calling(page: int, call_id: str) -> Reply:
    function = {"name": "look", "arguments": json.dumps({"page": page})}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return said({"content": None, "tool_calls": calls}, finish="tool_calls", usage=USED)


@pytest.mark.asyncio_only
@pytest.mark.parametrize("provider", ["compatible", "openai/gpt-4o", "mistral/mistral-small", "groq/m"])
async def test_so_it_is_on_the_wire(provider: str) -> None:
    """Ids that are made anew for a vendor are the same in each request."""
    replies = (calling(1, "an id of another form"), calling(2, "c2"), said({"content": "Done."}, usage=USED))
    with Answers(*replies) as server:
        model: Any = (
            OpenAICompatible("m", base_url=server.url)
            if provider == "compatible"
            else LiteLLM(provider, api_base=server.url, api_key="test-not-a-key")
        )
        try:
            result = await Runner.run(Agent("A", "Be brief.", model=model, tools=[look]), "Hi")
        finally:
            await close_litellm()
            if isinstance(model, OpenAICompatible):
                await model.aclose()
    bodies = [request.body for request in server.requests]
    assert grows([body["messages"] for body in bodies])
    assert len({json.dumps(body["tools"]) for body in bodies}) == 1
    assert (result.usage.input_tokens, result.usage.cached_tokens) == (27, 24)


SYSTEM: Message = {"role": "system", "content": "Be brief."}
TOOL = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
}


async def sent(model: str, settings: dict[str, Any]) -> dict[str, Any]:
    with Answers(HELLO) as server:
        handler = LiteLLM(model, api_base=server.url, api_key="test-not-a-key")
        asked = Request(messages=[SYSTEM, {"role": "user", "content": "Hi"}], tools=[TOOL], settings=settings)
        try:
            async for _ in handler.stream(asked):
                pass
        except Exception:  # the reply is OpenAI's
            assert server.requests
        finally:
            await close_litellm()
    body: dict[str, Any] = server.requests[0].body
    return body


@pytest.mark.asyncio_only
async def test_claude_is_told_where_to_cache() -> None:
    points = [{"location": "message", "role": "system"}]
    body = await sent("anthropic/claude-haiku-4-5", {"cache_control_injection_points": points})
    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]


@pytest.mark.asyncio_only
@pytest.mark.parametrize(
    ("model", "where", "said"),
    [
        ("openai/gpt-4o", "parallel_tool_calls", False),
        ("mistral/mistral-small-latest", "parallel_tool_calls", False),
        ("anthropic/claude-haiku-4-5", "tool_choice", {"type": "auto", "disable_parallel_tool_use": True}),
        ("gemini/gemini-2.5-flash", "toolConfig", None),
        ("ollama_chat/qwen3", "parallel_tool_calls", None),
    ],
)
async def test_parallel_tool_calls_is_sent_only_where_supported(model: str, where: str, said: Any) -> None:
    body = await sent(model, {"parallel_tool_calls": False})
    assert body.get(where) == said
