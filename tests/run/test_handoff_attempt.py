"""One handoff from its call to its record: the order of the checks, and what is kept of them."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_agents import agent

from routelock import Agent, HandoffRequest, RunConfig, Runner, handoff
from routelock.handoff_request import HandoffResponse, HandoffStatus
from routelock.handoffs.capabilities import Capacity
from routelock.handoffs.handoff import Handoff
from routelock.run.handoff_attempt import HandoffAttempt
from routelock.run.handoff_refused import HandoffRefused
from routelock.testing import call

pytestmark = pytest.mark.anyio

OBSTACLES = ("arguments", "limit", "payload", "capability", "availability", "capacity", "consent")
"""In the order of the checks."""

REASONS = (
    "n",
    "limit of 0",
    "no payload",
    "Missing capability: sql",
    "busy",
    "maximum capacity",
    "not today",
)


def _no_payload(context: Any, value: Any) -> None:
    raise RuntimeError("no payload")


async def _error_with(obstacles: tuple[str, ...]) -> str:
    """Return why the handoff of a run with these obstacles is not made; empty if it is."""
    refuse = HandoffResponse.reject("not today") if "consent" in obstacles else HandoffResponse.accept()
    target = agent("B", "Done.", on_handoff_request=lambda request: refuse)
    declared = handoff(
        target,
        input_type=dict[str, int],
        payload=_no_payload if "payload" in obstacles else None,
        capabilities_required=["sql"] if "capability" in obstacles else [],
    )
    given = {"n": "one" if "arguments" in obstacles else 1}
    source = agent("A", call("transfer_to_b", given), "I do it myself.", handoffs=[declared])
    config = RunConfig(
        max_handoffs=0 if "limit" in obstacles else None,
        available=lambda target: "busy" if "availability" in obstacles else True,
        capacity=Capacity({"B": 0} if "capacity" in obstacles else {}),
    )
    result = await Runner.run(source, "Hi", run_config=config)
    return result.handoffs[0].error or ""


@pytest.mark.parametrize("place", range(len(OBSTACLES)))
async def test_first_failing_check_decides(place: int) -> None:
    assert REASONS[place] in await _error_with(OBSTACLES[place:])


async def test_handoff_that_passes_all_checks_is_made() -> None:
    assert await _error_with(()) == ""


def _attempt(tool_request: HandoffRequest | None = None) -> HandoffAttempt:
    attempt = HandoffAttempt(call("transfer_to_b", id="c1"), Handoff(target=Agent("B")), tool_request)
    attempt.begin("h-r-1", "A", 2.0)
    return attempt


def test_skipped_handoff_is_recorded_as_not_tried() -> None:
    attempt = _attempt()
    attempt.skip("another came first")
    record = attempt.record(turn=1, parent_id=None, depth=1, ended=3.0)
    assert (record.tried, record.status, record.error) == (
        False,
        HandoffStatus.REJECTED,
        "another came first",
    )


def test_record_names_the_tool_that_asked() -> None:
    record = _attempt(HandoffRequest("B")).record(turn=1, parent_id=None, depth=1, ended=None)
    assert record.requested_by == "tool"


@pytest.mark.parametrize("error", [HandoffRefused("no"), RuntimeError("no"), KeyboardInterrupt()])
def test_failed_handoff_gives_back_its_slot(error: BaseException) -> None:
    capacity = Capacity({"B": 1})
    attempt = _attempt()
    attempt.slot = capacity.take("B")
    attempt.fail(error)
    assert capacity.free("B") == 1


def test_passed_over_candidate_gives_back_its_slot() -> None:
    capacity = Capacity({"B": 1})
    attempt = _attempt()
    attempt.slot = capacity.take("B")
    attempt.pass_over(Agent("B"), "not today")
    assert capacity.free("B") == 1


def test_response_of_a_passed_over_candidate_is_not_recorded() -> None:
    attempt = _attempt()
    attempt.response = HandoffResponse.reject("not today")
    attempt.pass_over(Agent("B"), "not today")
    assert attempt.response is None


def test_refusals_of_all_candidates_are_told_to_the_model() -> None:
    attempt = _attempt()
    attempt.pass_over(Agent("B"), "not today")
    attempt.pass_over("C", "unknown")
    attempt.fail(HandoffRefused("All are busy"))
    assert attempt.result_text == "The transfer to 'B' was not made: All are busy (B: not today; C: unknown)"
