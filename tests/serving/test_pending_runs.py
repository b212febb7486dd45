"""Runs that wait for their client are found by the right client, within the bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from routelock import Agent, RunConfig, Runner, RunResult
from routelock.history.messages import Message, ToolCall
from routelock.serving.bounded_store import Bounds
from routelock.serving.pending_runs import HeldRun, PendingRuns, held
from routelock.testing import ScriptedHandler, call

TOOL = {"type": "function", "function": {"name": "open_door"}}


async def waiting(text: str = "Hi", calls: int = 1) -> RunResult[Any]:
    """A run that waits for the answers to its calls."""
    model = ScriptedHandler([[call("open_door", {"n": n}, id=f"call_{n}") for n in range(calls)]])
    return await Runner.run(Agent("A", model=model), text, run_config=RunConfig(external_tools=[TOOL]))


def sent(calls: Any, *, answered: int | None = None) -> list[Message]:
    """Return the messages of a client with results of its first calls."""
    head: list[Message] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": list(calls)},
    ]
    tail: list[Message] = [
        {"role": "tool", "tool_call_id": each["id"], "content": "open"} for each in calls[:answered]
    ]
    return [*head, *tail]


def kept(runs: PendingRuns, result: RunResult[Any]) -> Sequence[ToolCall]:
    """Keep a run of mine, and return its calls as the client sees them."""
    run = held(result)
    runs.keep("me", "A", run)
    return run.calls


def store(most: int = 10, size: int = 10**6, ttl: float = 60.0, clock: Any = lambda: 0.0) -> PendingRuns:
    return PendingRuns(Bounds(most=most, size=size, ttl=ttl, clock=clock))


@pytest.mark.anyio
async def test_the_answers_find_their_run_with_its_own_ids() -> None:
    runs, result = store(), await waiting(calls=2)
    calls = kept(runs, result)
    found = runs.find("me", "A", sent(calls))
    assert found is not None
    assert found.agent is result.last_agent
    assert found.handler == result.last_handler
    assert found.messages[: len(result.to_input_list())] == result.to_input_list()
    assert [message.get("tool_call_id") for message in found.messages[-2:]] == ["call_0", "call_1"]


@pytest.mark.anyio
async def test_answers_in_another_order_are_answers() -> None:
    runs = store()
    messages = sent(kept(runs, await waiting(calls=2)))
    assert runs.find("me", "A", [*messages[:2], messages[3], messages[2]]) is not None


@pytest.mark.parametrize(("principal", "model"), [("you", "A"), ("me", "B"), ("", "A")])
@pytest.mark.anyio
async def test_others_find_nothing(principal: str, model: str) -> None:
    runs = store()
    calls = kept(runs, await waiting())
    assert runs.find(principal, model, sent(calls)) is None


@pytest.mark.anyio
async def test_partial_tool_results_find_nothing() -> None:
    runs = store()
    calls = kept(runs, await waiting(calls=2))
    assert runs.find("me", "A", sent(calls, answered=1)) is None
    assert runs.find("me", "A", sent(calls[:1])) is None
    assert runs.find("me", "A", sent(calls)[:1]) is None
    assert runs.find("me", "A", []) is None


@pytest.mark.anyio
async def test_a_later_reply_finds_nothing() -> None:
    runs = store()
    calls = kept(runs, await waiting())
    later: Message = {"role": "assistant", "content": "It is open."}
    assert runs.find("me", "A", [*sent(calls), later, {"role": "user", "content": "Thanks"}]) is None


@pytest.mark.anyio
async def test_too_old_is_gone() -> None:
    now = [0.0]
    runs = store(ttl=60, clock=lambda: now[0])
    calls = kept(runs, await waiting())
    now[0] = 59.9
    assert runs.find("me", "A", sent(calls)) is not None
    now[0] = 60.0
    assert runs.find("me", "A", sent(calls)) is None
    assert len(runs) == 0


@pytest.mark.anyio
async def test_the_least_recently_used_run_is_dropped() -> None:
    runs, result = store(most=2), await waiting()
    first, second = kept(runs, result), kept(runs, result)
    runs.find("me", "A", sent(first))
    third = kept(runs, result)
    found = [runs.find("me", "A", sent(calls)) is not None for calls in (first, second, third)]
    assert found == [True, False, True]


@pytest.mark.anyio
async def test_long_conversations_count_for_more() -> None:
    runs = store(size=100_000)
    small = kept(runs, await waiting())
    for _ in range(3):
        kept(runs, await waiting("x" * 40_000))
    assert len(runs) == 2
    assert runs.find("me", "A", sent(small)) is None


@pytest.mark.anyio
async def test_a_run_larger_than_the_bound_is_not_kept() -> None:
    runs = store(size=1000)
    calls = kept(runs, await waiting("x" * 2000))
    assert len(runs) == 0
    assert runs.find("me", "A", sent(calls)) is None


@pytest.mark.parametrize(("first", "left"), [("Be short.", 1), ("Be long.", 2)])
def test_a_run_is_kept_without_what_was_for_one_request(first: str, left: int) -> None:
    be_short: Message = {"role": "system", "content": "Be short."}
    asked: list[Message] = [{"role": "system", "content": first}, {"role": "user", "content": "Hi"}]
    run = HeldRun(agent=Agent("A", model=ScriptedHandler(["Hi."])), handler="", messages=asked)
    assert run.without([be_short]).messages == asked[-left:]
