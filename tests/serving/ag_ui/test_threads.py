"""Runs that wait for their client are found by the right caller, within the bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scripted_agents import agent

from routelock import RunConfig, Runner, tool
from routelock.serving.ag_ui.requests import RunRequest, parse_run_request
from routelock.serving.ag_ui.threads import Threads, WaitingRun, waiting_run, with_memory
from routelock.serving.bounded_store import Bounds, state_size
from routelock.serving.errors import Refusal
from routelock.testing import call, reply

pytestmark = pytest.mark.anyio

DOOR = {"type": "function", "function": {"name": "open_door"}}
MINE = ("me", "A", "t")


@tool(needs_approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


async def waiting(*names: str) -> WaitingRun:
    """A run that waits for calls; the client knows them under other ids."""
    calls = [call(name, id=f"own_{name}") for name in names]
    a = agent("A", reply("", calls=calls), tools=[pay])
    result = await Runner.run(a, "Hi", run_config=RunConfig(external_tools=[DOOR]))
    return waiting_run(result, {f"own_{name}": f"shown_{name}" for name in names})


def asks(*answered: str, resume: Any = (), after: str = "") -> RunRequest:
    """A request with results of the client's calls."""
    messages = [{"id": "u", "role": "user", "content": "Hi"}]
    messages += [
        {"id": name, "role": "tool", "toolCallId": f"shown_{name}", "content": "open"} for name in answered
    ]
    messages += [{"id": "v", "role": "user", "content": after}] if after else []
    entries = [{"interruptId": each, "status": "cancelled"} for each in resume]
    body = {"threadId": "t", "runId": "r", "messages": messages, "resume": entries}
    return parse_run_request(json.dumps(body).encode())


def threads(most: int = 10, size: int = 10**6, ttl: float = 60.0, clock: Any = lambda: 0.0) -> Threads:
    return Threads(Bounds(most=most, size=size, ttl=ttl, clock=clock))


async def test_results_reach_the_state_under_the_ids_of_the_run() -> None:
    state = (await waiting("open_door")).resumed(asks("open_door"))
    assert state is not None
    assert state.items[-1].message.get("tool_call_id") == "own_open_door"
    assert state.pending == ()


@pytest.mark.parametrize("request_", [asks(), asks("open_door", after="Well?")])
async def test_a_request_that_is_not_the_results_alone_does_not_go_on(request_: RunRequest) -> None:
    assert (await waiting("open_door")).resumed(request_) is None


async def test_an_approval_without_an_answer_is_asked_for_again() -> None:
    run = await waiting("pay")
    assert run.asks_again(asks())
    assert not run.asks_again(asks(resume=run.interrupts))


async def test_an_approval_does_not_go_on_without_the_clients_results() -> None:
    run = await waiting("pay", "open_door")
    with pytest.raises(Refusal):
        run.resumed(asks(resume=run.interrupts))


async def test_ids_of_interrupts_do_not_repeat() -> None:
    first, second = await waiting("pay"), await waiting("pay")
    assert not first.interrupts.keys() & second.interrupts.keys()


async def test_a_state_is_given_other_memory() -> None:
    state = with_memory((await waiting("pay")).state, {"ag_ui": {"state": 1}})
    assert state.document.shared_memory == {"ag_ui": {"state": 1}}


@pytest.mark.parametrize("other", [("you", "A", "t"), ("me", "B", "t"), ("me", "A", "u")])
async def test_only_the_thread_of_the_caller_has_the_run(other: tuple[str, str, str]) -> None:
    kept = threads()
    run = await waiting("pay")
    kept.keep(MINE, run)
    assert (kept.waiting(MINE), kept.waiting(other)) == (run, None)


async def test_a_run_goes_on_once() -> None:
    kept = threads()
    kept.keep(MINE, await waiting("pay"))
    kept.take(MINE)
    assert kept.waiting(MINE) is None


async def test_the_bounds_hold() -> None:
    now = [0.0]
    run = await waiting("pay")
    kept = threads(most=2, size=3 * state_size(run.state), ttl=10, clock=lambda: now[0])
    for thread in "abc":
        kept.keep(("me", "A", thread), run)
    assert [kept.waiting(("me", "A", thread)) is not None for thread in "abc"] == [False, True, True]
    assert len(kept) == 2
    now[0] = 10.0
    assert kept.waiting(("me", "A", "c")) is None


async def test_the_next_agent_of_a_thread_is_kept() -> None:
    kept, a = threads(), agent("A")
    kept.keep_agent(MINE, a)
    assert (kept.agent(MINE), kept.agent(("me", "A", "u"))) == (a, None)
