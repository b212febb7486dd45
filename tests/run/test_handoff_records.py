"""What is on record of a transfer: when, by whom, how deep, what it cost, and how it ended."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_and_streamed import both
from scripted_agents import TO_B, agent, answers_of, pair

from routelock import (
    Agent,
    GuardrailResult,
    HandoffRecord,
    HandoffRequest,
    RunConfig,
    Runner,
    RunResult,
    function_tool,
    handoff,
)
from routelock.errors import HandoffFilterError, MaxTurnsExceeded, RoutelockError
from routelock.handoff_request import HandoffResponse, HandoffStatus
from routelock.handoffs.metrics import HandoffMetrics
from routelock.testing import ScriptedHandler, call, reply
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

Status = HandoffStatus


def ticking() -> Callable[[], float]:
    """A clock that is a second later each time."""
    times = itertools.count(1_000)
    return lambda: float(next(times))


def chain(*, last: Any = "C here.", before: Any = ()) -> Agent[Any]:
    """A hands over to B, which hands over to C, which gives the last reply."""
    c = agent("C", *(last if isinstance(last, list) else [last]))
    b = agent("B", *before, call("transfer_to_c", id="u"), handoffs=[c])
    return agent("A", TO_B, handoffs=[b])


async def failed(
    a: Agent[Any], kind: type[RoutelockError] = RoutelockError, **settings: Any
) -> RunResult[Any]:
    """The partial result of a run that fails."""
    with pytest.raises(kind) as raised:
        await Runner.run(a, "Hi", run_config=RunConfig(run_id="r", **settings))
    result: RunResult[Any] = raised.value.result
    return result


# -- all hops --


async def test_every_hop_is_there_in_order() -> None:
    played = await both(chain)
    assert [(one.source, one.target) for one in played.result.handoffs] == [("A", "B"), ("B", "C")]


async def test_records_have_parent_and_depth() -> None:
    first, second = (await both(chain)).result.handoffs
    assert (first.parent_id, first.depth) == (None, 1)
    assert (second.parent_id, second.depth) == (first.id, 2)


async def test_refused_handoff_has_the_sources_handoff_as_parent() -> None:
    def make() -> Agent[Any]:
        no = agent("N", on_handoff_request=lambda request: HandoffResponse.reject("no"))
        b = agent("B", call("transfer_to_n", id="u"), "B here.", handoffs=[no])
        return agent("A", TO_B, handoffs=[b])

    first, second = (await both(make)).result.handoffs
    assert (second.parent_id, second.depth) == (first.id, 2)


async def test_those_of_one_reply_are_equally_deep() -> None:
    """The one that is made does not make the one beside it deeper."""

    def make() -> Agent[Any]:
        return agent("A", [TO_B, call("transfer_to_c", id="u")], handoffs=[agent("B", "B."), agent("C")])

    assert [one.depth for one in (await both(make)).result.handoffs] == [1, 1]


async def test_there_and_back_and_there_again() -> None:
    """A cycle within the limit; each hop hangs on the one before."""

    def make() -> Agent[Any]:
        @function_tool
        def look(n: int) -> int:
            """Look."""
            return n

        b = agent(
            "B",
            [call("look", {"n": 1}), call("transfer_to_a", id="u")],
            "B here.",
            handoffs=["A"],
            tools=[look],
        )
        return agent("A", TO_B, [call("transfer_to_b", id="v")], handoffs=[b])

    records = (await both(make, detect_loops=False)).result.handoffs
    assert [one.depth for one in records] == [1, 2, 3]
    assert [one.parent_id for one in records] == [None, records[0].id, records[1].id]


# -- when --


async def test_times_are_those_of_the_runs_clock() -> None:
    """Begun when it was asked for, ended when the target's work was done."""
    config = RunConfig(clock=ticking())
    first, second = (await Runner.run(chain(), "Hi", run_config=config)).handoffs
    assert (first.started, first.ended) == (1_000.0, 1_002.0)
    assert (second.started, second.ended) == (1_001.0, 1_003.0)


async def test_a_declined_one_has_ended_at_once() -> None:
    def no(request: Any) -> HandoffResponse:
        return HandoffResponse.reject("no")

    a = agent("A", TO_B, "Mine.", handoffs=[agent("B", on_handoff_request=no)])
    (record,) = (await Runner.run(a, "Hi", run_config=RunConfig(clock=ticking()))).handoffs
    assert (record.started, record.ended) == (1_000.0, 1_001.0)


async def test_one_that_was_not_tried_has_its_times_too() -> None:
    a = agent("A", [TO_B, call("transfer_to_c", id="u")], handoffs=[agent("B", "B."), agent("C")])
    result = await Runner.run(a, "Hi", run_config=RunConfig(clock=ticking()))
    assert all(one.started is not None and one.ended is not None for one in result.handoffs)


async def test_one_whose_filter_broke_has_ended() -> None:
    def broken(data: Any) -> Any:
        raise ValueError("no")

    result = await failed(pair(input_filter=broken)[0], HandoffFilterError, clock=ticking())
    (record,) = result.handoffs
    assert (record.status, record.taken) == (Status.FAILED, False)
    assert record.started is not None
    assert record.ended is not None
    assert record.ended > record.started


async def test_record_is_open_while_the_target_is_active() -> None:
    seen: list[Any] = []
    a, _ = pair()
    run = Runner.run_streamed(a, "Hi")
    async for event in run:
        if event.type == "handoff_occurred":
            seen.append(run.result.handoffs[0])
    (record,) = seen
    assert (record.status, record.ended, record.tokens) == (Status.ACCEPTED, None, None)


# -- how it ended --


async def test_after_the_answer_all_hops_are_completed() -> None:
    assert [one.status for one in (await both(chain)).result.handoffs] == [Status.COMPLETED] * 2


async def test_handoff_stays_accepted_after_a_limit() -> None:
    result = await failed(chain(last=[call("nothing", id="n")] * 9), MaxTurnsExceeded, max_mistakes=99)
    assert [one.status for one in result.handoffs] == [Status.COMPLETED, Status.ACCEPTED]


async def test_after_a_limit_that_is_a_result() -> None:
    played = await both(
        lambda: chain(last=[call("nothing", id="n")] * 9), max_turns=3, max_mistakes=99, on_limit="return"
    )
    assert played.result.stop_reason == "limit"
    assert played.result.handoffs[-1].status is Status.ACCEPTED
    assert played.result.handoffs[-1].ended is not None


async def test_handoff_has_failed_after_an_error() -> None:
    """Otherwise it would be stuck in ACCEPTED."""
    played = await both(lambda: chain(last=ValueError("broken")))
    first, second = played.result.handoffs
    assert (first.status, second.status) == (Status.COMPLETED, Status.FAILED)
    assert "broken" in (second.error or "")
    assert second.taken


async def test_after_a_guardrail_the_hop_has_failed() -> None:
    def stop(context: Any, me: Any, output: Any) -> GuardrailResult:
        return GuardrailResult(tripwire_triggered=True)

    def make() -> Agent[Any]:
        b = Agent("B", model=ScriptedHandler(["Done."]), output_guardrails=[stop])
        return agent("A", TO_B, handoffs=[b])

    assert (await both(make)).result.handoffs[0].status is Status.FAILED


async def test_handoff_has_failed_after_a_failing_target_hook() -> None:
    def broken(context: Any) -> None:
        raise LookupError("no state")

    played = await both(lambda: agent("A", TO_B, handoffs=[agent("B", on_handoff_received=broken)]))
    (record,) = played.result.handoffs
    assert record.status is Status.FAILED
    assert "no state" in (record.error or "")
    assert "on_handoff_received of agent 'B'" in str(played.error)


async def test_after_a_filter_broke_the_hop_has_failed() -> None:
    def broken(data: Any) -> Any:
        raise ValueError("no filter")

    played = await both(lambda: pair(input_filter=broken)[0])
    (record,) = played.result.handoffs
    assert record.status is Status.FAILED
    assert "no filter" in (record.error or "")


async def test_after_a_cancellation_the_hop_was_accepted() -> None:
    there, holder = anyio.Event(), list[Any]()

    async def stay(_: Any) -> str:
        there.set()
        await anyio.sleep_forever()
        return ""

    run = Runner.run_streamed(chain(last=stay), "Hi")

    async def drain() -> None:
        async for event in run:
            holder.append(event)

    async with anyio.create_task_group() as group:
        group.start_soon(drain)
        await there.wait()
        group.cancel_scope.cancel()
    assert [one.status for one in run.result.handoffs] == [Status.COMPLETED, Status.ACCEPTED]
    assert run.result.handoffs[-1].ended is not None


async def test_after_a_stream_was_left_the_hop_was_accepted() -> None:
    run = Runner.run_streamed(pair()[0], "Hi")
    async for event in run:
        if event.type == "handoff_occurred":
            break
    await run.aclose()
    (record,) = run.result.handoffs
    assert (record.status, record.ended is None) == (Status.ACCEPTED, False)


async def test_handoff_stays_accepted_in_a_waiting_run() -> None:
    tool = {"type": "function", "function": {"name": "ask_user", "parameters": {"type": "object"}}}
    played = await both(
        lambda: agent("A", TO_B, handoffs=[agent("B", call("ask_user", id="q"))]), external_tools=[tool]
    )
    assert played.result.stop_reason == "requires_action"
    assert played.result.handoffs[0].status is Status.ACCEPTED


async def test_error_of_the_first_agent_leaves_no_open_record() -> None:
    played = await both(lambda: agent("A", ValueError("no"), handoffs=[agent("B")]))
    assert played.result.handoffs == ()


# -- what it cost --


def used(tokens: int) -> Usage:
    return Usage(requests=1, input_tokens=tokens, output_tokens=1)


async def test_usage_of_a_handoff_is_that_of_its_target() -> None:
    a = chain(
        before=[reply("", calls=[call("nothing", id="n")], usage=used(100))],
        last=reply("C here.", usage=used(1_000)),
    )
    first, second = (await Runner.run(a, "Hi")).handoffs
    assert first.usage == used(100) + Usage(requests=1, input_tokens=10, output_tokens=5)
    assert second.usage == used(1_000)
    assert second.tokens == 1_001


async def test_usage_of_a_handoff_back_starts_there() -> None:
    b = agent("B", reply("", calls=[call("transfer_to_a", id="u")], usage=used(10)), handoffs=["A"])
    a = agent(
        "A",
        reply("", calls=[TO_B], usage=used(1)),
        reply("", calls=[call("nothing", id="n")], usage=used(100)),
        reply("Done.", usage=used(1_000)),
        handoffs=[b],
    )
    there, back = (await Runner.run(a, "Hi")).handoffs
    assert (there.usage, back.usage) == (used(10), used(100) + used(1_000))


async def test_usage_of_handoffs_and_first_agent_adds_up() -> None:
    """Nothing is counted twice, and nothing is lost."""
    played = await both(chain)
    result = played.result
    hops = sum((one.usage or Usage() for one in result.handoffs), Usage())
    assert hops + result.usage_by_agent["A"] == result.usage


@given(lengths=st.lists(st.integers(0, 3), min_size=1, max_size=5))
def test_over_any_chain_the_usage_adds_up(lengths: list[int]) -> None:
    """So many turns at each hop."""

    async def play() -> None:
        target: Agent[Any] | None = None
        for place, turns in reversed(list(enumerate(lengths))):
            work: list[Any] = [
                reply("", calls=[call("nothing", id=f"n{place}.{n}")], usage=used(place + n))
                for n in range(turns)
            ]
            end = "Done." if target is None else call(f"transfer_to_{target.name}", id=f"t{place}")
            target = agent(f"m{place}", *work, end, handoffs=[target] if target else [])
        assert target is not None
        config = RunConfig(max_handoffs=None, max_mistakes=99)
        result = await Runner.run(target, "Hi", max_turns=None, run_config=config)
        hops = sum((one.usage or Usage() for one in result.handoffs), Usage())
        assert hops + result.usage_by_agent["m0"] == result.usage
        assert [one.depth for one in result.handoffs] == list(range(1, len(lengths)))

    anyio.run(play)


async def test_a_declined_hop_cost_nothing() -> None:
    a = agent("A", TO_B, "Mine.", handoffs=[handoff(agent("B"), capabilities_required=["sql"])])
    (record,) = (await Runner.run(a, "Hi")).handoffs
    assert (record.usage, record.tokens) == (None, None)


async def test_handoff_to_a_handler_has_its_own_record() -> None:
    """A transfer to a handler: its replies are the hop's, though the agent is the same."""
    voice = ScriptedHandler(["Beep."], name="voice")
    (record,) = (await Runner.run(agent("A", call("transfer_to_voice"), handoffs=[voice]), "Hi")).handoffs
    assert record.usage == Usage(requests=1, input_tokens=10, output_tokens=5)


async def test_metrics_are_fed_by_the_records() -> None:
    """The records are all that they need."""
    result = await Runner.run(chain(), "Hi", run_config=RunConfig(clock=ticking()))
    totals = HandoffMetrics.of(result.handoffs).totals()
    assert (totals.total, totals.succeeded, totals.success_rate) == (2, 2, 1.0)
    assert totals.average_duration == 2.0
    assert totals.tokens == 30
    assert set(totals.edges) == {("A", "B"), ("B", "C")}


async def test_metrics_tell_what_was_declined() -> None:
    a = agent("A", TO_B, "Mine.", handoffs=[handoff(agent("B"), capabilities_required=["sql"])])
    totals = HandoffMetrics.of((await Runner.run(a, "Hi")).handoffs).totals()
    assert totals.success_rate == 0.0
    assert dict(totals.by_status) == {"REJECTED": 1}


# -- what it says --


async def test_a_record_is_a_value_and_cannot_be_changed() -> None:
    (record,) = (await both(lambda: pair()[0])).result.handoffs
    with pytest.raises(AttributeError):
        record.status = Status.REJECTED  # type: ignore[misc]


async def test_two_runs_have_equal_records_whatever_the_time() -> None:
    first = await Runner.run(chain(), "Hi", run_config=RunConfig(run_id="r", clock=lambda: 1.0))
    second = await Runner.run(chain(), "Hi", run_config=RunConfig(run_id="r", clock=lambda: 2.0))
    assert first.handoffs == second.handoffs


async def test_skipped_request_of_a_tool_is_recorded() -> None:
    """Two wishes in one reply; the second is not lost."""

    def make() -> Agent[Any]:
        @function_tool
        def to_c() -> HandoffRequest:
            """Ask for C."""
            return HandoffRequest("C", reason="later")

        return agent("A", [TO_B, call("to_c", id="u")], tools=[to_c], handoffs=[agent("B", "B."), agent("C")])

    played = await both(make)
    assert [(one.target, one.tried) for one in played.result.handoffs] == [("B", True), ("C", False)]
    assert played.result.handoffs[1].reason == "later"
    assert answers_of(played.result)[1].startswith("Multiple handoffs detected")


def test_taken_means_that_the_target_took_over() -> None:
    def record(status: HandoffStatus, usage: Usage | None = None) -> HandoffRecord:
        return HandoffRecord(
            id="h", source="A", target="B", tool_name="t", call_id="c", turn=1, status=status, usage=usage
        )

    assert [record(status).taken for status in Status] == [False, True, False, True, False, False]
    assert record(Status.FAILED, Usage()).taken
