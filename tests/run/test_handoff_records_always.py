"""Whatever a team does, however its run ends: the books of the transfers are complete and consistent."""

from __future__ import annotations

from typing import Any

import anyio
from hypothesis import given
from random_teams import NAMES, scripts, team
from scenes import facts

from routelock import RunConfig, Runner, RunResult, RunStream
from routelock.errors import RoutelockError
from routelock.handoff_request import HandoffStatus
from routelock.handoffs.capabilities import Capacity
from routelock.run.events import HandoffCompleted, HandoffOccurred, RunEvent
from routelock.usage import Usage


async def _play(
    scripts: list[list[Any]], *, stream: bool, capacity: Capacity, events: list[RunEvent]
) -> tuple[RunResult[Any], str]:
    first, *others = team(scripts)
    memory = {"looks": 0, "other": 1}
    config = RunConfig(run_id="r", agents=others, capacity=capacity, shared_memory=memory)
    try:
        if not stream:
            return await Runner.run(first, "Hi", max_turns=12, run_config=config), ""
        run: RunStream = Runner.run_streamed(first, "Hi", max_turns=12, run_config=config)
        async for event in run:
            events.append(event)
    except RoutelockError as error:
        return error.result, f"{type(error).__name__}: {error}"
    return run.result, ""


def _check(result: RunResult[Any]) -> None:
    records = result.handoffs
    assert [one.id for one in records] == [f"h-r-{n + 1}" for n in range(len(records))]
    known: set[str | None] = {None}
    for one in records:
        assert one.status is not HandoffStatus.PENDING
        assert one.started is not None
        assert one.ended is not None
        assert one.parent_id in known
        assert (one.usage is not None) == one.taken
        assert bool(one.error) == (one.status in ("REJECTED", "FAILED", "EXPIRED"))
        assert one.response is not None
        assert one.response.accepted or not one.taken
        assert one.response.rejection_reason is None or one.response.rejection_reason == one.error
        known.add(one.id)
    if result.stop_reason == "done":
        told = {each.call_id for each in result.errors if each.kind == "handoff"}  # a caller that waited
        assert all(one.status in ("COMPLETED", "FAILED") for one in records if one.taken)
        assert told or all(one.status is HandoffStatus.COMPLETED for one in records if one.taken)
    hops = sum((one.usage or Usage() for one in records), Usage())
    replies = sum((each.reply.usage or Usage() for each in result.calls if each.reply), Usage())
    before = hops.total_tokens
    assert before <= replies.total_tokens
    if not any(one.taken for one in records):
        assert before == 0
    looks = sum(str(message.get("content")).startswith("seen ") for message in result.messages)
    assert result.context.shared_memory == {"looks": looks, "other": 1}


def _check_events(events: list[RunEvent], result: RunResult[Any]) -> None:
    """Each transfer that was agreed to is told to begin and to end, and how."""
    made = [one for one in result.handoffs if one.response is not None and one.response.accepted]
    ended = {event.call_id: event for event in events if isinstance(event, HandoffCompleted)}
    assert {one.call_id: (one.status, one.error) for one in made} == {
        call_id: (event.status, event.error) for call_id, event in ended.items()
    }
    told = [event.call_id for event in events if isinstance(event, HandoffOccurred | HandoffCompleted)]
    begun = [one.call_id for one in made if one.taken]
    assert sorted(told) == sorted([*begun, *(one.call_id for one in made)])
    assert all(told.index(call_id) < len(told) - told[::-1].index(call_id) - 1 for call_id in begun)


@given(scripts=scripts)
def test_the_books_of_any_run_are_in_order(scripts: list[list[Any]]) -> None:
    """Streamed and plain alike."""

    async def play() -> None:
        capacity = Capacity(dict.fromkeys(NAMES, 1))
        events: list[RunEvent] = []
        plain, why = await _play(scripts, stream=False, capacity=capacity, events=events)
        streamed, streamed_why = await _play(scripts, stream=True, capacity=capacity, events=events)
        assert facts(plain) == facts(streamed)
        assert why == streamed_why
        _check(plain)
        _check_events(events, streamed)
        assert all(capacity.free(name) == 1 for name in NAMES)

    anyio.run(play)
