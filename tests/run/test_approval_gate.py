"""Handoffs that wait for an approval, as tool calls do."""

from __future__ import annotations

import pytest
from payments import PAY, WATCHED, Till, pay, run
from scripted_agents import agent, answers_of, requests

from routelock import (
    HandoffRequest,
    function_tool,
    handoff,
    tool,
)
from routelock.errors import LoopDetected
from routelock.testing import call

pytestmark = pytest.mark.anyio


@WATCHED
async def test_a_transfer_waits_and_is_made(watched: bool) -> None:
    b = agent("B", "Done.")
    a = agent(
        "A",
        call("transfer_to_b", {"reason": "hard"}, id="t"),
        handoffs=[handoff(b, ask_reason=True, needs_approval=True)],
    )
    first = await run(a, "Hi", watched)
    assert [one.name for one in first.interruptions] == ["transfer_to_b"]
    assert (first.handoffs, first.last_agent.name) == ((), "A")
    assert (first.state().status, first.state().requested_handoff) == ("HandoffRequested", "transfer_to_b")
    second = await run(a, first.state().approve(first.interruptions[0]), watched)
    assert (second.final_output, second.last_agent.name) == ("Done.", "B")
    assert [record.reason for record in second.handoffs] == ["hard"]


@WATCHED
async def test_a_transfer_is_declined_and_the_source_goes_on(watched: bool) -> None:
    b = agent("B")
    a = agent("A", call("transfer_to_b", id="t"), "Mine.", handoffs=[handoff(b, needs_approval=True)])
    first = await run(a, "Hi", watched)
    second = await run(a, first.state().reject(first.interruptions[0], message="Not B."), watched)
    assert (second.final_output, second.last_agent.name) == ("Mine.", "A")
    assert [(one.status, one.tried) for one in second.handoffs] == [("REJECTED", False)]
    assert answers_of(second) == ["This call was not approved: Not B."]


async def test_denied_handoffs_are_not_mistakes_of_the_model() -> None:
    b = agent("B")
    asks = [call("transfer_to_b", id=f"t{n}") for n in range(4)]
    a = agent("A", *asks, "Mine.", handoffs=[handoff(b, needs_approval=True)])
    result = await run(a, "Hi")
    for _ in asks:
        result = await run(a, result.state().reject(result.interruptions[0]))
    assert result.final_output == "Mine."


@pytest.mark.parametrize("what", ["tool", "transfer"])
async def test_repeated_denied_calls_are_nudged_and_stopped(what: str) -> None:
    asked = [call("pay" if what == "tool" else "transfer_to_target", {}, id=f"c{n}") for n in range(20)]
    target = agent("target")
    source = agent(
        "source",
        *asked,
        tools=[tool(needs_approval=True)(pay)],
        handoffs=[handoff(target, needs_approval=True)],
    )
    first = await run(source, "Hi", max_turns=None)
    state = first.state().reject(first.interruptions[0], always=True)
    with pytest.raises(LoopDetected) as caught:
        await run(source, state, max_turns=None)
    assert caught.value.result is not None
    assert [one.kind for one in caught.value.result.errors] == ["loop"]
    assert len(requests(source)) == 6


async def test_handoff_beside_a_waiting_call_is_not_carried_out() -> None:
    till = Till()
    b = agent("B")
    a = agent("A", [PAY, call("transfer_to_b", id="t")], "Mine.", tools=[till.tool()], handoffs=[b])
    first = await run(a, "Hi")
    assert answers_of(first)[0].startswith("A call beside it waits for approval, so nothing was handed over")
    second = await run(a, first.state().approve(first.interruptions[0]))
    assert (till.paid, second.final_output) == ([5], "Mine.")


async def test_code_cannot_get_round_the_approval() -> None:
    """A tool that returns a request cannot wait, so it is told."""

    @function_tool
    def escalate() -> HandoffRequest:
        """Escalate."""
        return HandoffRequest("B")

    b = agent("B")
    a = agent(
        "A", call("escalate", id="e"), "Mine.", tools=[escalate], handoffs=[handoff(b, needs_approval=True)]
    )
    result = await run(a, "Hi")
    assert result.final_output == "Mine."
    assert "needs an approval" in answers_of(result)[0]


async def test_handoff_by_capability_needs_the_declared_approval() -> None:
    target = agent("target", "Mine.", capabilities=["sql"])
    ways = [handoff(target, needs_approval=True), handoff(capabilities_required=["sql"])]
    source = agent("source", call("transfer_to_agent_with_sql", id="t"), "No.", handoffs=ways)
    result = await run(source, "Hi")
    assert result.final_output == "No."
    assert "call transfer_to_target" in str(result.handoffs[0].passed_over)


async def test_an_approved_transfer_that_returns_answers_its_call() -> None:
    till = Till()
    b = agent("B", PAY, "It is 5.", tools=[till.tool()])
    declared = handoff(b, needs_approval=True, return_to_caller=True)
    a = agent("A", call("transfer_to_b", id="t"), "So it is 5.", handoffs=[declared])
    result = await run(a, "Hi")
    result = await run(a, result.state().approve(result.interruptions[0]))
    assert (result.interruptions[0].agent, till.paid) == ("B", [])
    result = await run(a, result.state().approve(result.interruptions[0]))
    assert (result.final_output, till.paid) == ("So it is 5.", [5])
