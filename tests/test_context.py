"""What the app's code is given: one moment of a run, and the one bag that can be changed."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from routelock import (
    Agent,
    RunConfig,
    RunContext,
    RunHooks,
    Runner,
    ToolContext,
    Usage,
    function_tool,
    handoff,
)
from routelock.handoffs.payload import HandoffPayload
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("make", [RunContext, ToolContext])
def test_a_context_cannot_be_changed(make: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        make(context=1).turn = 2


def test_context_needs_only_the_apps_object() -> None:
    context = RunContext(context={"name": "Ada"})
    assert (context.agent, context.turn, context.usage, context.shared_memory) == ("", 0, Usage(), {})


def test_each_context_has_a_memory_of_its_own() -> None:
    assert RunContext(context=1).shared_memory is not RunContext(context=1).shared_memory


@pytest.mark.parametrize("memory", [{}, {"handoff_context": None}, {"handoff_context": {"topic": "moss"}}])
def test_handoff_payload_is_none_if_missing_or_unreadable(memory: dict[str, Any]) -> None:
    """And nothing raises."""
    assert RunContext(context=None, shared_memory=memory).handoff_payload is None


async def test_the_payload_of_a_transfer_is_there_for_the_target() -> None:
    """It is typed, in tools and in instructions, and None without a payload."""
    seen: list[tuple[str, HandoffPayload | None]] = []

    def instructions(context: RunContext[Any]) -> str:
        seen.append((context.agent, context.handoff_payload))
        return ""

    @function_tool
    def look(context: ToolContext[Any]) -> str:
        """Look."""
        assert context.handoff_payload is not None
        return str(context.handoff_payload.context_data["topic"])

    b = Agent("B", instructions, model=ScriptedHandler([call("look"), "Done."]), tools=[look])
    to_b = handoff(b, payload={"handoff_type": "quick_lookup", "topic": "moss"})
    a = Agent("A", instructions, model=ScriptedHandler([call("transfer_to_b")]), handoffs=[to_b])
    result = await Runner.run(a, "Hi")
    assert result.messages[-2].get("content") == "moss"
    (_, before), (_, given), _ = seen
    assert (before, given and given.source_agent) == (None, "A")
    assert result.context.handoff_payload is None


def test_the_idempotency_key_names_run_turn_and_call() -> None:
    """The same on retries, different for another call."""
    context = ToolContext(context=None, run_id="r", turn=3, tool_call_id="c")
    assert context.idempotency_key == "r:3:c"


class Moments(RunHooks):
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int, int]] = []

    def note(self, where: str, context: RunContext[Any]) -> None:
        self.seen.append((where, context.agent, context.turn, context.usage.requests))

    async def on_llm_start(self, context: RunContext[Any], agent: Any, request: Any) -> None:
        self.note("start", context)

    async def on_llm_end(self, context: RunContext[Any], agent: Any, reply: Any) -> None:
        self.note("end", context)

    async def on_tool_start(self, context: ToolContext[Any], agent: Any, tool: Any) -> None:
        self.note(context.tool_name, context)


@function_tool
async def look(context: ToolContext[Any], at: int) -> str:
    """Look, and write down what the context says."""
    context.shared_memory[str(at)] = [
        context.agent,
        context.turn,
        context.usage.requests,
        context.tool_name,
        context.tool_call_id,
        dict(context.arguments),
        context.idempotency_key,
    ]
    return "seen"


async def test_context_has_the_current_agent_and_turn() -> None:
    hooks = Moments()
    last = Agent("B", model=ScriptedHandler(["Done."]))
    script = ScriptedHandler([call("look", {"at": 1}), call("transfer_to_b")])
    await Runner.run(Agent("A", model=script, tools=[look], handoffs=[last]), "Hi", hooks=hooks)
    assert hooks.seen == [
        ("start", "A", 1, 0),
        ("end", "A", 1, 1),
        ("look", "A", 1, 1),
        ("start", "A", 2, 1),
        ("end", "A", 2, 2),
        ("start", "B", 3, 2),
        ("end", "B", 3, 3),
    ]


async def test_a_tool_knows_its_call_and_its_validated_arguments() -> None:
    script = ScriptedHandler([[call("look", {"at": 1}, id="a"), call("look", {"at": 2}, id="b")], "Done."])
    config = RunConfig(run_id="r")
    result = await Runner.run(Agent("A", model=script, tools=[look]), "Hi", run_config=config)
    assert result.context.shared_memory == {
        "1": ["A", 1, 1, "look", "a", {"at": 1}, "r:1:a"],
        "2": ["A", 1, 1, "look", "b", {"at": 2}, "r:1:b"],
    }


async def test_all_parts_of_a_run_share_one_memory() -> None:
    """Tools, instructions, callbacks, filters and ``is_enabled`` share it; the next run has a new one."""
    seen: list[Any] = []

    def instructions(context: RunContext[Any]) -> str:
        return json.dumps(sorted(context.shared_memory))

    def on_handoff(context: RunContext[Any]) -> None:
        context.shared_memory["on_handoff"] = 1

    def shape(data: Any) -> Any:
        data.run_context.shared_memory["filter"] = 1
        return data

    def enabled(context: RunContext[Any], agent: Any) -> bool:
        seen.append(dict(context.shared_memory))
        return True

    model = ScriptedHandler(["Done.", "Done."])
    target = Agent("B", instructions, model=model)
    edge = handoff(target, on_handoff=on_handoff, input_filter=shape, is_enabled=enabled)
    script = ScriptedHandler([call("look", {"at": 1}), call("transfer_to_b"), "Hello."])
    agent = Agent("A", model=script, tools=[look], handoffs=[edge])
    await Runner.run(agent, "Hi")
    assert model.requests[0].messages[0].get("content") == '["1", "filter", "on_handoff"]'
    assert [sorted(each) for each in seen] == [[], ["1"], ["1"]]  # two offers, and the call
    second = await Runner.run(agent, "Hi")
    assert second.context.shared_memory == {}


async def test_context_is_the_object_that_was_passed() -> None:
    mine = object()

    @function_tool
    async def same(context: RunContext[Any]) -> bool:
        """Compare."""
        return context.context is mine

    agent = Agent("A", model=ScriptedHandler([call("same"), "Done."]), tools=[same])
    result = await Runner.run(agent, "Hi", context=mine)
    assert result.messages[2].get("content") == "true"
    assert result.context.context is mine


async def test_context_has_user_and_conversation() -> None:
    """In instructions, tools and hooks alike; no model is told."""
    seen: list[tuple[str | None, str | None]] = []

    @function_tool
    def look(context: ToolContext[Any]) -> str:
        """Look."""
        seen.append((context.user_id, context.conversation_id))
        return "ok"

    def instructions(context: RunContext[Any]) -> str:
        seen.append((context.user_id, context.conversation_id))
        return ""

    model = ScriptedHandler([call("look"), "Done."])
    agent = Agent("A", instructions, model=model, tools=[look])
    result = await Runner.run(agent, "Hi", run_config=RunConfig(user_id="ada", conversation_id="c-7"))
    assert set(seen) == {("ada", "c-7")}
    assert "ada" not in json.dumps([list(made.messages) for made in result.calls])
