"""Whether a target takes over: declared handoffs, availability and consent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from plain_and_streamed import both
from scripted_agents import TO_B, agent, pair

from routelock import (
    Agent,
    HandoffRecord,
    HandoffRequest,
    RunConfig,
    Runner,
    RunStream,
    function_tool,
    handoff,
)
from routelock.errors import RoutelockError
from routelock.handoff_request import HandoffResponse, HandoffStatus
from routelock.handoffs.capabilities import NONE_AVAILABLE, Capacity
from routelock.handoffs.metrics import HandoffMetrics
from routelock.history.filters import HandoffInputData
from routelock.run.events import HandoffRequested, ToolCalled, ToolOutput
from routelock.run.start import start
from routelock.testing import assert_valid, call

pytestmark = pytest.mark.anyio


Status = HandoffStatus
Says = Callable[[HandoffRequest], Any]


def saying(response: Any) -> Says:
    def answer(request: HandoffRequest) -> Any:
        if isinstance(response, Exception):
            raise response
        return response

    return answer


async def record_of(*, b: Says | None = None, **options: Any) -> HandoffRecord:
    """The first record of a run in which A asks to hand over to B, which says this."""

    def make() -> Agent[Any]:
        target = agent("B", "Done.", on_handoff_request=b)
        return agent("A", TO_B, "Mine.", handoffs=[handoff(target, **options)])

    return (await both(make)).result.handoffs[0]


# -- what was answered --


async def test_accepted_handoff_has_a_response_of_its_target() -> None:
    response = (await record_of(b=saying(HandoffResponse.accept()))).response
    assert response == HandoffResponse(status=Status.ACCEPTED, handoff_id="h-r-1", from_agent="B")
    assert response is not None
    assert response.accepted


async def test_saying_nothing_is_an_answer_too() -> None:
    """None accepts."""
    response = (await record_of(b=saying(None))).response
    assert response is not None
    assert (response.accepted, response.from_agent) == (True, "B")


async def test_target_that_was_not_requested_has_no_response() -> None:
    """Accepted all the same."""
    response = (await record_of()).response
    assert response is not None
    assert (response.accepted, response.from_agent) == (True, "")


@pytest.mark.parametrize(
    ("said", "status", "why"),
    [
        (HandoffResponse.reject("busy"), Status.REJECTED, "busy"),
        (HandoffResponse(), Status.REJECTED, "'B' declined"),
        (HandoffResponse(status=Status.EXPIRED, rejection_reason="late"), Status.EXPIRED, "late"),
        (ValueError("no"), Status.REJECTED, "ValueError: no"),
    ],
    ids=["rejected", "pending", "expired", "raised"],
)
async def test_response_names_the_refusing_target_and_reason(
    said: Any, status: HandoffStatus, why: str
) -> None:
    record = await record_of(b=saying(said))
    assert record.response == HandoffResponse(
        status=status, handoff_id=record.id, rejection_reason=why, from_agent="B"
    )
    assert record.response is not None
    assert not record.response.accepted


@pytest.mark.virtual_time
async def test_missing_response_names_no_target() -> None:
    async def slow(request: HandoffRequest) -> None:
        await anyio.sleep_forever()

    record = await record_of(b=slow, timeout=0.01)
    assert record.response is not None
    assert (record.response.status, record.response.from_agent) == (Status.EXPIRED, "")
    assert record.response.rejection_reason == "'B' did not accept within 0.01 s"


async def test_what_the_run_refuses_the_target_has_not_declined() -> None:
    record = await record_of(b=saying(None), capabilities_required=["sql"])
    assert record.response is not None
    assert (record.response.accepted, record.response.from_agent) == (False, "")
    assert record.response.rejection_reason == "Missing capability: sql"


async def test_of_several_the_one_that_takes_over_has_answered() -> None:
    def make() -> Agent[Any]:
        b = agent("B", on_handoff_request=saying(HandoffResponse.reject("no", metadata={"queue": 9})))
        c = agent("C", "C here.", on_handoff_request=saying(HandoffResponse.accept(metadata={"queue": 1})))
        return agent("A", TO_B, handoffs=[handoff([b, c])])

    (record,) = (await both(make)).result.handoffs
    assert record.response is not None
    assert (record.response.from_agent, record.response.metadata) == ("C", {"queue": 1})
    assert record.passed_over == (("B", "no"),)


async def test_refusal_of_all_targets_names_no_target() -> None:
    """Each of theirs is in passed_over."""

    def make() -> Agent[Any]:
        no = saying(HandoffResponse.reject("no"))
        targets = [agent("B", on_handoff_request=no), agent("C", on_handoff_request=no)]
        return agent("A", TO_B, "Mine.", handoffs=[handoff(targets)])

    (record,) = (await both(make)).result.handoffs
    assert record.response is not None
    assert (record.response.from_agent, record.response.rejection_reason) == ("", NONE_AVAILABLE)


async def test_untried_handoff_is_refused_by_the_run() -> None:
    a = agent("A", [TO_B, call("transfer_to_c", id="u")], handoffs=[agent("B", "B."), agent("C")])
    second = (await Runner.run(a, "Hi")).handoffs[1]
    assert second.response is not None
    assert (second.response.status, second.response.from_agent) == (Status.REJECTED, "")


async def test_metadata_of_a_response_is_copied() -> None:
    """HandoffResponse.metadata: what an auditor may want to know."""
    said = {"on_duty": ["Ada"]}
    record = await record_of(b=saying(HandoffResponse.accept(metadata=said)))
    said["on_duty"].append("Eve")
    assert record.response is not None
    assert record.response.metadata == {"on_duty": ["Ada"]}


async def test_an_answer_that_is_filed_elsewhere_keeps_its_number() -> None:
    """HandoffResponse.handoff_id: as of a store."""
    record = await record_of(b=saying(HandoffResponse.accept("ticket-7")))
    assert record.response is not None
    assert (record.id, record.response.handoff_id) == ("h-r-1", "ticket-7")


async def test_response_is_unchanged_when_the_work_fails() -> None:
    a = agent("A", TO_B, handoffs=[agent("B", ValueError("no"), on_handoff_request=saying(None))])
    with pytest.raises(RoutelockError) as raised:
        await Runner.run(a, "Hi")
    assert raised.value.result is not None
    (record,) = raised.value.result.handoffs
    assert record.response is not None
    assert (record.status, record.response.status) == (Status.FAILED, Status.ACCEPTED)


# -- what was asked --


async def test_metadata_of_a_tool_reaches_policies_and_record() -> None:
    """HandoffRequest.priority, metadata and context_snapshot."""
    seen: list[HandoffRequest] = []

    @function_tool
    def escalate() -> HandoffRequest:
        """Escalate."""
        return HandoffRequest("B", priority=-3, metadata={"vip": True}, context_snapshot=b"\x1f\x8b\xff")

    b = agent("B", "Done.", on_handoff_request=seen.append)
    result = await Runner.run(agent("A", call("escalate"), tools=[escalate], handoffs=[b]), "Hi")
    (record,) = result.handoffs
    assert record.request is not None
    for each in (*seen, record.request):
        assert (each.priority, each.metadata) == (-3, {"vip": True})
        assert each.context_snapshot == b"\x1f\x8b\xff"


def test_a_snapshot_survives_the_journal() -> None:
    """A step that is replayed asks for the same."""
    request = HandoffRequest("B", context_snapshot=b"\x00\xff", priority=2)
    again = HandoffRequest.from_envelope(request.envelope())
    assert (again.context_snapshot, again.priority) == (b"\x00\xff", 2)


def test_a_snapshot_is_bytes() -> None:
    with pytest.raises(RoutelockError, match="The context_snapshot of a HandoffRequest must be bytes"):
        HandoffRequest("B", context_snapshot="text")  # type: ignore[arg-type]


# -- what was not decided --

UNDECIDED = "it was cancelled before it was decided"


class Undecided:
    """A target that never decides; its event is set when it is requested."""

    def __init__(self) -> None:
        self.asked = anyio.Event()

    async def __call__(self, request: HandoffRequest) -> None:
        self.asked.set()
        await anyio.sleep_forever()


async def cut(a: Agent[Any], reached: anyio.Event, *, stream: bool, **settings: Any) -> RunStream:
    """Begin a run and cancel it as soon as this point is reached."""
    running = RunStream(start(a, "Hi", None, 10, None, RunConfig(run_id="r", **settings), stream=stream))
    async with anyio.create_task_group() as group:
        group.start_soon(running.drain)
        await reached.wait()
        group.cancel_scope.cancel()
    return running


@pytest.mark.parametrize("stream", [True, False])
async def test_handoff_cancelled_during_decision_is_recorded(stream: bool) -> None:
    b = Undecided()
    target = agent("B", on_handoff_request=b)
    a = agent("A", TO_B, handoffs=[handoff(target, reason="Billing")])
    result = (await cut(a, b.asked, stream=stream)).result
    (record,) = result.handoffs
    assert (record.id, record.status, record.error) == ("h-r-1", Status.FAILED, UNDECIDED)
    assert (record.tried, record.taken, record.reason) == (True, False, "Billing")
    assert record.response is not None
    assert (record.response.accepted, record.response.from_agent) == (False, "")
    assert None not in (record.started, record.ended)
    assert_valid(result.to_input_list())


async def test_it_holds_no_place_any_more() -> None:
    b, places = Undecided(), Capacity({"B": 1})
    await cut(
        agent("A", TO_B, handoffs=[agent("B", on_handoff_request=b)]), b.asked, stream=False, capacity=places
    )
    assert places.free("B") == 1


async def test_the_metrics_count_it() -> None:
    b = Undecided()
    stream = await cut(agent("A", TO_B, handoffs=[agent("B", on_handoff_request=b)]), b.asked, stream=False)
    assert HandoffMetrics.of(stream.result.handoffs).totals().by_status == {"FAILED": 1}


async def test_those_beside_it_are_on_record_as_ever() -> None:
    b = Undecided()
    targets = [agent("B", on_handoff_request=b), agent("C")]
    a = agent("A", [TO_B, call("transfer_to_c", id="u")], handoffs=targets)
    result = (await cut(a, b.asked, stream=True)).result
    told = [(each.id, each.target, each.status, each.tried) for each in result.handoffs]
    assert told == [("h-r-1", "B", Status.FAILED, True), ("h-r-2", "C", Status.REJECTED, False)]


@pytest.mark.parametrize("last", [HandoffRequested, ToolOutput, ToolCalled])
async def test_handoff_of_a_closed_stream_is_recorded(last: type[Any]) -> None:
    """The model asked for it; whether the run had come to it or not."""

    @function_tool
    def look() -> str:
        """Look."""
        return "seen"

    a = agent("A", [call("look"), TO_B], tools=[look], handoffs=[agent("B")])
    async with Runner.run_streamed(a, "Hi") as stream:
        async for event in stream:
            if isinstance(event, last):
                break
    (record,) = stream.result.handoffs
    assert (record.status, record.error, record.tried) == (Status.FAILED, UNDECIDED, False)


@pytest.mark.parametrize("last", [HandoffRequested, ToolOutput])
async def test_those_that_a_tool_asked_for_are_there_once(last: type[Any]) -> None:
    """Also when the turn had come so far as to choose among them."""

    @function_tool
    def escalate() -> HandoffRequest:
        """Escalate."""
        return HandoffRequest("B")

    @function_tool
    def look() -> str:
        """Look."""
        return "seen"

    calls = [call("look"), call("escalate", id="t"), call("transfer_to_c", id="u")]
    a = agent("A", calls, tools=[escalate, look], handoffs=[agent("B"), agent("C")])
    async with Runner.run_streamed(a, "Hi") as stream:
        async for event in stream:
            if isinstance(event, last):
                break
    told = [(each.call_id, each.requested_by, each.status) for each in stream.result.handoffs]
    assert told == [("t", "tool", Status.FAILED), ("u", "model", Status.REJECTED)]


async def test_request_beside_a_running_tool_is_recorded() -> None:
    asked = anyio.Event()

    @function_tool
    async def escalate() -> HandoffRequest:
        """Escalate."""
        return HandoffRequest("B", reason="angry")

    @function_tool
    async def wait() -> str:
        """Wait."""
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        asked.set()
        await anyio.sleep_forever()
        return ""

    calls = [call("escalate", id="t"), call("wait"), call("transfer_to_c", id="u")]
    a = agent("A", calls, tools=[escalate, wait], handoffs=[agent("B"), agent("C")])
    records = (await cut(a, asked, stream=False)).result.handoffs
    told = {(each.requested_by, each.call_id, each.target, each.reason) for each in records}
    assert told == {("model", "u", "C", None), ("tool", "t", "B", "angry")}
    assert {(each.status, each.error) for each in records} == {(Status.FAILED, UNDECIDED)}


@pytest.mark.virtual_time
async def test_handoff_at_the_run_timeout_is_recorded() -> None:
    a = agent("A", TO_B, handoffs=[agent("B", on_handoff_request=Undecided())])
    with pytest.raises(RoutelockError) as raised:
        await Runner.run(a, "Hi", run_config=RunConfig(timeout=0.05))
    assert raised.value.result is not None
    assert [each.error for each in raised.value.result.handoffs] == [UNDECIDED]


@pytest.mark.virtual_time
async def test_request_at_a_tool_timeout_is_recorded() -> None:
    """In the nested run; the outer one goes on."""
    helper = agent("helper", TO_B, handoffs=[agent("B", on_handoff_request=Undecided())])
    a = agent("A", call("helper", {"input": "?"}, id="n"), "Mine.", tools=[helper.as_tool(timeout=0.05)])
    result = await Runner.run(a, "Hi")
    assert result.final_output == "Mine."
    assert [each.error for each in result.nested["n"].handoffs] == [UNDECIDED]


async def test_handoff_skipped_by_an_error_names_it() -> None:
    class Engine:
        """It loses its disk before the tools have run."""

        def stream(self, call: Any, body: Any) -> AsyncGenerator[Any]:
            return body(call)

        async def gather(self, calls: Any, body: Any) -> Any:
            raise OSError("disk full")

    @function_tool
    def look() -> str:
        """Look."""
        return "seen"

    a = agent("A", [call("look"), TO_B], tools=[look], handoffs=[agent("B")])
    with pytest.raises(RoutelockError) as raised:
        await Runner.run(a, "Hi", run_config=RunConfig(executor=Engine(), run_id="r"))
    assert raised.value.result is not None
    (record,) = raised.value.result.handoffs
    assert (record.status, record.error) == (Status.FAILED, "the turn ended before: OSError: disk full")


async def test_handoff_cancelled_in_its_filter_was_not_taken() -> None:
    filtering = anyio.Event()

    async def slow(data: HandoffInputData) -> HandoffInputData:
        filtering.set()
        await anyio.sleep_forever()
        return data

    stream = await cut(pair(input_filter=slow)[0], filtering, stream=False)
    (record,) = stream.result.handoffs
    assert (record.status, record.taken, record.usage) == (Status.FAILED, False, None)
    assert record.error == "it was cancelled before the target took over"


async def test_being_capable_opens_no_way_that_is_closed() -> None:
    """An agent that may not hand over to B may not find it by capability either."""

    def make() -> Agent[Any]:
        b, c = agent("B", capabilities=["sql"]), agent("C", "C here.", capabilities=["sql"])
        first = call("transfer_to_agent_with_sql", id="t")
        handoffs = [handoff(b, scope="admin"), handoff(capabilities_required=["sql"]), c]
        return agent("A", first, "Mine.", handoffs=handoffs)

    played = await both(make)
    assert played.result.final_output == "C here."
    assert played.result.handoffs[0].passed_over[0][0] == "B"


async def test_closed_handoff_closes_its_other_targets_too() -> None:
    """Who stands second in the list of a handoff is as much behind its scope as the first."""

    def make() -> Agent[Any]:
        b = agent("B", capabilities=["sql"])
        handoffs = [handoff([agent("X"), b], scope="admin"), handoff(capabilities_required=["sql"])]
        return agent("A", call("transfer_to_agent_with_sql", id="t"), "Mine.", handoffs=handoffs)

    assert (await both(make)).result.final_output == "Mine."


async def test_scope_of_a_search_holds_for_tools_too() -> None:
    def make() -> Agent[Any]:
        b = agent("B", capabilities=["sql"])
        search = handoff(capabilities_required=["sql"], scope="admin")

        @function_tool
        def hand_over() -> HandoffRequest:
            """Hand over."""
            return HandoffRequest("agent with sql")

        return agent(
            "A", call("hand_over"), "Mine.", tools=[hand_over], handoffs=[search, handoff(b, scope="admin")]
        )

    assert (await both(make)).result.final_output == "Mine."
