"""What became of the transfers of a run: how each ended, while it goes on, and what each cost."""

from __future__ import annotations

import itertools
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_and_streamed import QUICK
from scripted_agents import TO_B, agent, pair

from routelock import Agent, RunConfig, Runner, function_handler, function_tool, handoff
from routelock.errors import ConnectionFailed, RoutelockError, RunTimeout
from routelock.handoff_request import HandoffStatus
from routelock.run.events import (
    HandoffCompleted,
    HandoffFailed,
    HandoffOccurred,
    HandoffRequested,
    HandoffReturned,
    NestedEvent,
    RunDone,
)
from routelock.run.start import start
from routelock.run.stream import RunStream
from routelock.testing import ScriptedHandler, call, reply
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

HANDOFFS = (HandoffRequested, HandoffOccurred, HandoffCompleted, HandoffReturned, HandoffFailed)
C = call("transfer_to_c", id="u")


async def told(a: Agent[Any], kinds: tuple[Any, ...] = HANDOFFS, **settings: Any) -> list[Any]:
    """What a stream says of transfers, and what it ends with; the same of a plain run."""
    events: list[Any] = []
    run = start(a, "Hi", None, settings.pop("max_turns", 10), None, RunConfig(**settings), stream=True)
    try:
        async for event in RunStream(run):
            events.append(event)
    except RoutelockError as error:
        events.append(error)
    return [event for event in events if isinstance(event, (*kinds, RunDone, RoutelockError))]


def done(source: str, target: str, call_id: str = "t", **fields: Any) -> HandoffCompleted:
    fields = {"status": HandoffStatus.COMPLETED, **fields}
    return HandoffCompleted(source=source, target=target, call_id=call_id, **fields)


# -- the event when the work is done --


async def test_the_final_output_completes_the_work() -> None:
    events = await told(pair()[0])
    assert events[2:-1] == [done("A", "B")]
    assert events[2].success


async def test_the_start_says_what_the_target_is_shown() -> None:
    """With target, reason and preserve_context."""
    occurred = (await told(pair(preserve_context=False, reason="Billing")[0]))[1]
    assert (occurred.target, occurred.reason, occurred.preserve_context) == ("B", "Billing", False)
    assert (await told(pair()[0]))[1].preserve_context


async def test_handing_on_completes_the_work() -> None:
    """B is done before C begins."""
    c = agent("C", "C here.")
    a = agent("A", TO_B, handoffs=[agent("B", C, handoffs=[c])])
    kinds = [(event.type, getattr(event, "target", "")) for event in await told(a)]
    assert kinds == [
        ("handoff_requested", "B"),
        ("handoff_occurred", "B"),
        ("handoff_requested", "C"),
        ("handoff_completed", "B"),
        ("handoff_occurred", "C"),
        ("handoff_completed", "C"),
        ("run_done", ""),
    ]


async def test_return_completes_the_handoff_first() -> None:
    """The one says how the work ended, the other what the caller's call is answered."""
    events = await told(pair("Ok.", return_to_caller=True)[0])
    assert events[2:-1] == [
        done("A", "B"),
        HandoffReturned(source="B", target="A", call_id="t", output="Done."),
    ]


@pytest.mark.virtual_time
async def test_handoffs_after_a_timeout_have_failed() -> None:
    async def forever(request: Any) -> str:
        await anyio.sleep_forever()
        return ""

    slow = Agent("C", model=function_handler(forever))
    b = agent("B", C, handoffs=[handoff(slow, return_to_caller=True)])
    a = agent("A", TO_B, "Never mind.", handoffs=[handoff(b, return_to_caller=True, run_timeout=0.01)])
    events = await told(a)
    why = "'C' timed out: there was no answer within 0.01 s"
    failed: dict[str, Any] = {"status": HandoffStatus.FAILED, "error": why}
    assert events[4:6] == [done("B", "C", "u", **failed), done("A", "B", **failed)]
    assert isinstance(events[6], HandoffFailed)
    assert not events[4].success


async def test_an_error_is_told_before_it_is_raised() -> None:
    """The event comes also on failure."""

    async def broken(request: Any) -> str:
        raise ValueError("no")

    events = await told(agent("A", TO_B, handoffs=[Agent("B", model=function_handler(broken, name="b"))]))
    assert events[2:-1] == [done("A", "B", status=HandoffStatus.FAILED, error="ValueError: no")]
    assert isinstance(events[-1], RoutelockError)


async def test_handoff_with_a_broken_filter_has_failed() -> None:
    def broken(data: Any) -> Any:
        raise ValueError("no")

    events = await told(pair(input_filter=broken)[0])
    assert [event.type for event in events[:-1]] == ["handoff_requested", "handoff_completed"]
    assert events[1].status is HandoffStatus.FAILED


async def test_one_that_is_declined_has_no_work_to_complete() -> None:
    def no(request: Any) -> Any:
        raise ValueError("no")

    a = agent("A", TO_B, "Mine.", handoffs=[agent("B", on_handoff_request=no)])
    assert [event.type for event in await told(a)] == ["handoff_requested", "handoff_failed", "run_done"]


def to_itself_and_back(*, turns: int) -> Agent[Any]:
    @function_tool
    def look(n: int) -> int:
        """Look."""
        return n

    looks = [call("look", {"n": n}) for n in range(turns)]
    return agent("A", TO_B, handoffs=[agent("B", *looks, tools=[look])])


@pytest.mark.parametrize("on_limit", ["raise", "return"])
async def test_handoff_at_a_limit_stays_accepted(on_limit: Any) -> None:
    events = await told(to_itself_and_back(turns=9), max_turns=3, on_limit=on_limit)
    assert events[2:-1] == [done("A", "B", status=HandoffStatus.ACCEPTED)]
    assert not events[2].success
    assert isinstance(events[-1], RunDone) is (on_limit == "return")


@pytest.mark.virtual_time
async def test_a_run_whose_time_is_up_tells_it_too() -> None:
    async def forever(request: Any) -> str:
        await anyio.sleep_forever()
        return ""

    a = agent("A", TO_B, handoffs=[Agent("B", model=function_handler(forever))])
    events = await told(a, timeout=0.05)
    assert events[2:-1] == [done("A", "B", status=HandoffStatus.ACCEPTED)]
    assert isinstance(events[-1], RunTimeout)


async def test_handoff_of_a_waiting_run_stays_accepted() -> None:
    tool = {"type": "function", "function": {"name": "theirs", "parameters": {"type": "object"}}}
    a = agent("A", TO_B, handoffs=[agent("B", call("theirs"))])
    events = await told(a, external_tools=[tool])
    assert events[2:-1] == [done("A", "B", status=HandoffStatus.ACCEPTED)]


async def test_a_nested_run_tells_it_as_its_own() -> None:
    helper = agent("helper", TO_B, handoffs=[agent("B", "Done.")])
    a = agent("A", call("helper", {"input": "?"}), "Ok.", tools=[helper.as_tool()])
    nested = [event.event for event in (await told(a, (NestedEvent,)))[:-1]]
    assert [event for event in nested if isinstance(event, HandoffCompleted)] == [done("helper", "B")]


async def test_a_stream_that_is_left_ends_without() -> None:
    """The stream has no reader any more; the record has the status."""
    async with Runner.run_streamed(pair()[0], "Hi") as stream:
        async for event in stream:
            if isinstance(event, HandoffOccurred):
                break
    assert [one.status for one in stream.result.handoffs] == [HandoffStatus.ACCEPTED]


async def test_the_result_says_the_same_when_it_is_told() -> None:
    seen: list[Any] = []
    async with Runner.run_streamed(pair()[0], "Hi") as stream:
        async for event in stream:
            if isinstance(event, HandoffCompleted):
                seen.append(stream.result.handoffs[0].status)
    assert seen == [HandoffStatus.COMPLETED]


# -- what each cost --


def costing(*tokens: int) -> list[Any]:
    """Replies that cost this much."""
    return [reply("Ok.", usage=Usage(requests=1, input_tokens=each)) for each in tokens]


async def test_usage_of_an_agent_tool_counts_for_the_handoff() -> None:
    """A hop is what the run paid because of it."""
    helper = Agent("helper", model=ScriptedHandler(costing(100)))
    asking = reply("", calls=[call("helper", {"input": "?"})], usage=Usage(requests=1, input_tokens=10))
    b = Agent("B", model=ScriptedHandler([asking, *costing(1)]), tools=[helper.as_tool()])
    result = await Runner.run(agent("A", TO_B, handoffs=[b]), "Hi")
    (record,) = result.handoffs
    assert record.usage is not None
    assert (record.usage.requests, record.tokens) == (3, 111)


async def test_what_failed_attempts_cost_is_the_hops() -> None:
    b = Agent("B", model=ScriptedHandler([ConnectionFailed("no", retryable=True), "Done."]))
    result = await Runner.run(agent("A", TO_B, handoffs=[b]), "Hi", run_config=RunConfig(retry=QUICK))
    (record,) = result.handoffs
    assert record.usage is not None
    assert record.usage.requests == 2


async def test_usage_before_an_error_counts_for_the_handoff() -> None:
    b = Agent("B", model=ScriptedHandler([ConnectionFailed("no", retryable=False)]))
    with pytest.raises(RoutelockError) as raised:
        await Runner.run(agent("A", TO_B, handoffs=[b]), "Hi", run_config=RunConfig(retry=QUICK))
    assert raised.value.result is not None
    (record,) = raised.value.result.handoffs
    assert record.usage is not None
    assert record.usage.requests == 1


class Costly:
    """Makes agents that do things. Each reply costs another power of two: a sum says which are in it."""

    def __init__(self, end: str) -> None:
        self.end = end
        self.powers = (2**n for n in itertools.count())

    def says(self, *calls: Any) -> Any:
        return reply("Ok.", calls=calls, usage=Usage(requests=1, input_tokens=next(self.powers)))

    def agent(self, steps: list[str], depth: int = 0) -> Agent[Any]:
        """One that does these things, until it hands over to the next."""
        replies: list[Any] = []
        tools: list[Any] = []
        for place, step in enumerate(steps):
            if step in ("on", "back"):
                return self.handing_on(replies, tools, steps[place:], depth)
            if step == "retry":
                replies.append(ConnectionFailed("no", retryable=True))
                continue
            helper = Agent(f"helper_{depth}_{place}", model=ScriptedHandler([self.says()]))
            tools.append(helper.as_tool())
            replies.append(self.says(call(helper.name if step == "ask" else "unknown", {"input": "?"})))
        replies.append(self.says() if self.end == "done" else ValueError("no"))
        return Agent(f"n{depth}", model=ScriptedHandler(replies), tools=tools)

    def handing_on(self, replies: list[Any], tools: list[Any], steps: list[str], depth: int) -> Agent[Any]:
        to = handoff(self.agent(steps[1:], depth + 1), return_to_caller=steps[0] == "back")
        replies += [self.says(call(f"transfer_to_n{depth + 1}")), self.says()]
        return Agent(f"n{depth}", model=ScriptedHandler(replies), tools=tools, handoffs=[to])


async def costs(steps: list[str], end: str) -> Any:
    config = RunConfig(retry=QUICK, max_handoffs=None, max_mistakes=99, detect_loops=False)
    try:
        return await Runner.run(Costly(end).agent(steps), "Hi", max_turns=None, run_config=config)
    except RoutelockError as error:
        return error.result


@pytest.mark.asyncio_only
@given(
    steps=st.lists(st.sampled_from(["on", "ask", "back", "retry", "unknown"]), max_size=8),
    end=st.sampled_from(["done", "error"]),
)
async def test_usage_of_handoffs_adds_up_to_the_runs(steps: list[str], end: str) -> None:
    """Nothing is counted twice, nothing is left out, however the run goes and ends."""
    result = await costs(steps, end)
    own = [name for name in result.usage_by_agent if name == "n0" or name.startswith("helper_0")]
    before = sum((result.usage_by_agent[name] for name in own), Usage())
    assert sum((record.usage for record in result.handoffs), before) == result.usage
