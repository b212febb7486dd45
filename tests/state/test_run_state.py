"""The state of a run as a value and as JSON: where it stands, what is in it, and what it must not hold."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from scripted_agents import TO_B, agent, look_up, pair

from routelock import (
    Agent,
    RunConfig,
    Runner,
    RunResult,
    RunState,
    handoff,
)
from routelock.context import RunContext
from routelock.handlers.events import MessageDone
from routelock.state.run_state import RunStatus
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio

WHERE = {"type": "function", "function": {"name": "where"}}


async def stopped(of: Agent[Any], input: Any = "Hi", *, after: int = 1, **settings: Any) -> RunResult[Any]:
    """The result of a run that a limit of turns ended."""
    config = RunConfig(**{"run_id": "r", "on_limit": "return", **settings})
    return await Runner.run(of, input, max_turns=after, run_config=config)


async def left_at(of: Agent[Any], kind: type, **settings: Any) -> RunState:
    """The state of a run whose reader left at an event."""
    async with Runner.run_streamed(of, "Hi", run_config=RunConfig(**settings)) as stream:
        async for event in stream:
            if isinstance(event, kind):
                break
    return stream.result.state()


# -- where it stands --


def test_there_are_the_five_states() -> None:
    assert {status.value for status in RunStatus} == {
        "InProgress",
        "WaitingForTools",
        "HandoffRequested",
        "Complete",
        "Failed",
    }


async def test_complete() -> None:
    state = (await Runner.run(agent("A", "Hello."), "Hi")).state()
    assert (state.status, state.error, state.turn) == (RunStatus.COMPLETE, None, 1)


async def test_failed_says_why() -> None:
    state = (await stopped(agent("A", call("look_up", {"order": 1}), tools=[look_up]))).state()
    assert state.status is RunStatus.FAILED
    assert str(state.error).startswith("MaxTurnsExceeded: Max turns (1) exceeded")


async def test_in_progress_between_two_turns() -> None:
    a, _ = pair()
    config = RunConfig()
    async with Runner.run_streamed(a, "Hi", run_config=config) as stream:
        async for event in stream:
            if event.type == "handoff_occurred":
                break
    assert (stream.result.state().status, stream.result.state().agent) == (RunStatus.IN_PROGRESS, "B")


async def test_waiting_for_tools_that_did_not_begin() -> None:
    a = agent("A", [call("look_up", {"order": 1}), TO_B], tools=[look_up], handoffs=[agent("B")])
    state = await left_at(a, MessageDone)
    assert (state.status, state.requested_handoff, state.pending) == (
        RunStatus.WAITING_FOR_TOOLS,
        "transfer_to_b",
        (),
    )


async def test_waiting_for_the_callers_tools() -> None:
    result = await Runner.run(
        agent("A", call("where", id="w")), "Hi", run_config=RunConfig(external_tools=[WHERE])
    )
    state = result.state()
    assert (state.status, [each["id"] for each in state.pending]) == (RunStatus.WAITING_FOR_TOOLS, ["w"])
    answered = state.with_answers([{"role": "tool", "tool_call_id": "w", "content": "Rome"}])
    assert (answered.status, answered.items[-1].message["role"]) == (RunStatus.IN_PROGRESS, "tool")
    assert (state.pending, len(state.items)) == (result.pending, 2)


async def test_a_requested_handoff_comes_back_by_its_name() -> None:
    """What it was taken from could not read this very state back."""
    a, _ = pair(reason="B knows")
    state = await left_at(a, MessageDone)
    again = RunState.from_json(state.to_json(), agents=[a])
    assert (again.status, again.requested_handoff, again.reason) == (
        RunStatus.HANDOFF_REQUESTED,
        "transfer_to_b",
        "B knows",
    )


async def test_what_waits_for_an_agent_that_was_asked_is_no_open_call() -> None:
    a, _ = pair(return_to_caller=True)
    state = (await stopped(a)).state()
    assert (state.requested_handoff, state.pending, state.reason) == (None, (), None)


async def test_waiting_for_ever_can_be_written() -> None:
    """JSON has no infinity, and a state that cannot be written is none."""
    a, _ = pair(return_to_caller=True, timeout=math.inf, run_timeout=math.inf)
    state = (await stopped(a)).state()
    assert RunState.from_json(state.to_json(), agents=[a]).status is state.status


# -- what would be offered --


@pytest.mark.parametrize("hops", [0, 1, 2])
async def test_the_available_handoffs_are_the_transfers_that_are_offered_next(hops: int) -> None:
    def in_turn_three(context: RunContext[Any], of: Any) -> bool:
        return context.turn == 3 and context.context == "c" and context.shared_memory == {"m": 1}

    async def never(context: RunContext[Any], of: Any) -> bool:
        return False

    d, e = agent("D"), agent("E")
    c = agent("C", "Done.", handoffs=[handoff(d, is_enabled=in_turn_three), handoff(e, scope="admin"), "A"])
    b = agent("B", call("transfer_to_c"), "Done.", handoffs=[c, handoff(d, is_enabled=never)])
    a = agent("A", TO_B, "Done.", handoffs=[b, "C"])
    config = RunConfig(on_limit="return", shared_memory={"m": 1}, external_tools=[WHERE])
    result = await Runner.run(a, "Hi", context="c", max_turns=max(hops, 1), run_config=config)
    state = RunState.from_json(result.state().to_json(), agents=[a])
    available = await state.available_handoffs(context="c", run_config=config)
    after = await Runner.run(a, state, context="c", run_config=config)
    offered = [spec["function"]["name"] for spec in after.calls[0].tools]
    assert list(available) == [name for name in offered if name.startswith("transfer_to_")]
    assert [edge.tool_name for edge in available.values()] == list(available)


async def test_a_handler_in_charge_is_not_available() -> None:
    voice = ScriptedHandler([call("look_up", {"order": 1})], name="voice")
    a = agent("A", call("transfer_to_voice"), handoffs=[voice, agent("B")], tools=[look_up])
    state = (await stopped(a, after=2)).state()
    assert list(await state.available_handoffs()) == ["transfer_to_b"]


# -- as a value --


async def test_nothing_can_change_it() -> None:
    result = await stopped(
        agent("A", call("look_up", {"order": 1}), tools=[look_up]), shared_memory={"m": [1]}
    )
    state = result.state()
    text = state.to_json()
    result.context.shared_memory["m"].append(2)
    result.messages[0]["content"] = "changed"
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.agents = {}  # type: ignore[misc]
    assert state.to_json() == text
    assert repr(state) == "RunState(Failed, run_id='r', agent='A', turn=1)"


async def test_it_says_what_there_is() -> None:
    a, _ = pair("Done.")
    result = await stopped(a)
    state = RunState.from_json(result.state().to_json(), agents=[a])
    assert state.items == result.items
    assert (state.run_id, state.agent, state.handler, state.turn, state.usage) == (
        "r",
        "B",
        "B",
        1,
        result.usage,
    )


async def test_the_same_state_is_the_same_text() -> None:
    a, _ = pair()
    result = await stopped(a)
    state = result.state()
    assert state == result.state() == RunState.from_json(state.to_json(), agents=[a])
    assert state.to_json() == RunState.from_json(state.to_json().encode(), agents=[a]).to_json()
