"""Responses are kept within bounds, each for its own caller."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import Agent, RunConfig
from routelock.history.messages import Message
from routelock.serving.bounded_store import Bounds
from routelock.serving.catalog import Catalog
from routelock.serving.errors import Refusal
from routelock.serving.pending_runs import HeldRun
from routelock.serving.responses.kept_responses import KeptResponses
from routelock.sessions import InMemorySessions
from routelock.testing import ScriptedHandler

pytestmark = pytest.mark.anyio

AGENT, OTHER = (Agent(name, model=ScriptedHandler(["Hi."])) for name in ("A", "B"))
CATALOG = Catalog([AGENT, OTHER], RunConfig())
A, B = CATALOG.find("A"), CATALOG.find("B")
ROOM = Bounds(most=10, size=10**6, ttl=60.0)
HI: Message = {"role": "user", "content": "Hi"}


def body(name: str = "resp_1", instructions: str | None = None) -> dict[str, Any]:
    return {"id": name, "model": "A", "instructions": instructions}


def run(*messages: Message) -> HeldRun:
    return HeldRun(agent=AGENT, handler="", messages=list(messages))


def waiting() -> HeldRun:
    return HeldRun(agent=AGENT, handler="", messages=[HI], own_ids={"call_x": "call_0", "call_y": "call_1"})


@pytest.fixture(params=["in memory", "in a store"])
def kept(request: pytest.FixtureRequest) -> KeptResponses:
    """No responses yet, in either place."""
    sessions = InMemorySessions() if request.param == "in a store" else None
    return KeptResponses(sessions, ROOM)


def in_memory(most: int = 10, size: int = 10**6, clock: Any = lambda: 0.0) -> KeptResponses:
    return KeptResponses(None, Bounds(most=most, size=size, ttl=60.0, clock=clock))


async def is_kept(responses: KeptResponses, name: str = "resp_1", principal: str = "me") -> bool:
    try:
        await responses.find(principal, name)
    except Refusal:
        return False
    return True


async def test_a_response_is_found_by_its_caller_only(kept: KeptResponses) -> None:
    responses = kept
    await responses.keep("me", body(), run(HI))
    assert await is_kept(responses)
    assert not await is_kept(responses, principal="you")


async def test_a_response_is_continued_by_its_caller_only(kept: KeptResponses) -> None:
    responses = kept
    await responses.keep("me", body(), run(HI))
    with pytest.raises(Refusal) as caught:
        await responses.previous("you", "resp_1", A)
    assert (caught.value.status, caught.value.param) == (400, "previous_response_id")


async def test_a_response_is_continued_by_its_model_only(kept: KeptResponses) -> None:
    responses = kept
    await responses.keep("me", body(), run(HI))
    with pytest.raises(Refusal, match="'A' made that response"):
        await responses.previous("me", "resp_1", B)


async def test_a_removed_response_is_gone(kept: KeptResponses) -> None:
    responses = kept
    await responses.keep("me", body(), run(HI))
    await responses.remove("me", "resp_1")
    assert not await is_kept(responses)


async def test_another_caller_removes_nothing(kept: KeptResponses) -> None:
    responses = kept
    await responses.keep("me", body(), run(HI))
    with pytest.raises(Refusal):
        await responses.remove("you", "resp_1")
    assert await is_kept(responses)


@pytest.mark.parametrize("bounds", [{"most": 1}, {"size": 300}])
async def test_the_oldest_response_goes_first(bounds: dict[str, Any]) -> None:
    responses = in_memory(**bounds)
    for name in ("resp_1", "resp_2"):
        await responses.keep("me", body(name), run({"role": "user", "content": "x" * 100}))
    assert [await is_kept(responses, name) for name in ("resp_1", "resp_2")] == [False, True]


async def test_a_response_is_kept_for_some_time() -> None:
    now = [0.0]
    responses = in_memory(clock=lambda: now[0])
    await responses.keep("me", body(), run(HI))
    now[0] = 61.0
    assert not await is_kept(responses)


def results(*ids: str) -> list[Message]:
    return [{"role": "tool", "tool_call_id": each, "content": "done"} for each in ids]


async def test_results_have_the_ids_of_the_run(kept: KeptResponses) -> None:
    responses = kept
    await responses.keep("me", body(), waiting())
    found = (await responses.previous("me", "resp_1", A)).continued(results("call_y", "call_x"))
    assert [message.get("tool_call_id") for message in found.messages[1:]] == ["call_1", "call_0"]


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (["call_x"], "for the call 'call_y'"),
        ([], "no function_call_output"),
        (["call_x", "call_y", "z"], "answers no call"),
    ],
)
async def test_each_call_needs_its_result(ids: list[str], said: str, kept: KeptResponses) -> None:
    responses = kept
    await responses.keep("me", body(), waiting())
    with pytest.raises(Refusal, match=said) as caught:
        (await responses.previous("me", "resp_1", A)).continued(results(*ids))
    assert (caught.value.status, caught.value.param) == (400, "input")


async def test_another_process_goes_on_from_a_store() -> None:
    store = InMemorySessions()
    first, second = (KeptResponses(store, ROOM) for _ in range(2))
    await first.keep("me", body(), waiting())
    assert await second.find("me", "resp_1") == body()
    assert (await second.previous("me", "resp_1", A)).run == waiting()


async def test_an_agent_that_is_gone_gives_way_to_the_one_asked_for() -> None:
    responses = KeptResponses(InMemorySessions(), ROOM)
    await responses.keep("me", body(), HeldRun(agent=OTHER, handler="", messages=[HI]))
    assert (await responses.previous("me", "resp_1", A)).run.agent is AGENT
