"""Asking for a transfer: what can fail about one, what tools ask for, and slots that never leak."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_and_streamed import both
from scripted_agents import HI, TO_B, agent, answers_of, pair, requests, shown

from routelock import Agent, HandoffRequest, RunConfig, Runner, function_tool, handoff
from routelock.errors import ConfigError, HandoffError, HandoffFilterError, RoutelockError
from routelock.handlers.events import TextDelta
from routelock.handoff_request import HandoffResponse, HandoffStatus
from routelock.handoffs.capabilities import Capacity
from routelock.handoffs.metrics import HandoffMetrics
from routelock.history.messages import Message
from routelock.run.events import HandoffFailed, HandoffOccurred
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio

Status = HandoffStatus


def asking(
    request: Callable[[], HandoffRequest], *targets: Any, first: Any = None, more: Any = "Mine."
) -> Agent[Any]:
    """A, whose tool asks for a transfer."""

    @function_tool
    def hand_over() -> HandoffRequest:
        """Hand over."""
        return request()

    return agent("A", first or call("hand_over", id="t"), more, tools=[hand_over], handoffs=list(targets))


# -- requests of tools --


async def test_a_tool_can_ask_for_a_transfer() -> None:
    """The request is typed, and the record says who wanted it and why."""
    played = await both(lambda: asking(lambda: HandoffRequest("B", reason="money"), agent("B", "B here.")))
    (record,) = played.result.handoffs
    assert played.result.final_output == "B here."
    assert (record.requested_by, record.reason, record.tool_name) == ("tool", "money", "hand_over")


async def test_a_tool_can_ask_for_the_newest_message_only() -> None:
    """The wish of the request counts, although the declared handoff keeps the context."""
    b = agent("B", "B here.")
    history: list[Message] = [
        HI,
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Help"},
    ]
    await Runner.run(asking(lambda: HandoffRequest("B", preserve_context=False), b), history)
    assert shown(b) == [{"role": "user", "content": "Help"}]


async def test_filter_of_a_request_precedes_that_of_the_declaration() -> None:
    """The two cannot both hold, and the one asking now knows more."""
    called: list[Any] = []

    def shape(data: Any) -> Any:
        called.append(data)
        return data

    b = agent("B", "B here.")
    declared = handoff(b, input_filter=shape)
    await Runner.run(asking(lambda: HandoffRequest("B", preserve_context=False), declared), "Hi")
    assert called == []
    assert shown(b) == [HI]


async def test_named_target_uses_its_declared_handoff() -> None:
    """Its filter and its scope hold for each target of a handoff, not for the first alone."""
    c = agent("C", "C here.")
    several = handoff([agent("B"), c], preserve_context=False)
    history: list[Message] = [
        HI,
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "C?"},
    ]
    await Runner.run(asking(lambda: HandoffRequest("C"), several), history)
    assert shown(c) == [{"role": "user", "content": "C?"}]
    closed = asking(lambda: HandoffRequest("C"), handoff([agent("B"), agent("C")], scope="admin"))
    result = await Runner.run(closed, "Hi")
    assert (result.final_output, result.handoffs[0].target) == ("Mine.", "C")


async def test_only_the_named_target_is_requested() -> None:
    b = agent("B")
    c = agent("C", on_handoff_request=lambda request: HandoffResponse.reject("Not now."))
    result = await Runner.run(asking(lambda: HandoffRequest(c), handoff([b, c])), "Hi")
    assert (result.final_output, result.handoffs[0].error) == ("Mine.", "Not now.")


@pytest.mark.virtual_time
async def test_a_tool_can_say_how_long_the_target_has() -> None:
    async def slow(request: HandoffRequest) -> None:
        await anyio.sleep_forever()

    played = await both(
        lambda: asking(lambda: HandoffRequest("B", timeout=0.01), agent("B", on_handoff_request=slow))
    )
    assert played.result.handoffs[0].status is Status.EXPIRED
    assert played.result.final_output == "Mine."


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), "5"])
async def test_a_time_that_is_none_is_answered(timeout: Any) -> None:
    played = await both(lambda: asking(lambda: HandoffRequest("B", timeout=timeout), agent("B")))
    assert "timeout of a HandoffRequest must be seconds, more than 0, or None" in played.answers[0]
    assert played.result.final_output == "Mine."


async def test_tool_can_require_capabilities() -> None:
    played = await both(
        lambda: asking(lambda: HandoffRequest("B", capabilities_required=["sql"]), agent("B"))
    )
    assert played.result.handoffs[0].error == "Missing capability: sql"


async def test_a_tool_cannot_ask_for_less_than_was_declared() -> None:
    """What the declared handoff requires stays required."""

    def make() -> Agent[Any]:
        declared = handoff(agent("B", capabilities=["pdf"]), capabilities_required=["sql"])
        return asking(lambda: HandoffRequest("B", capabilities_required=["pdf"]), declared)

    assert (await both(make)).result.handoffs[0].error == "Missing capability: sql"


def test_one_text_is_no_list_of_capabilities() -> None:
    with pytest.raises(ConfigError, match="as a list of names"):
        HandoffRequest("B", capabilities_required="sql")


async def test_a_target_sees_what_a_tool_adds() -> None:
    """Priority and metadata are for the app's own policy."""
    asked: list[HandoffRequest] = []
    b = agent("B", "B here.", on_handoff_request=asked.append)
    await Runner.run(asking(lambda: HandoffRequest("B", priority=3, metadata={"by": "me"}), b), "Hi")
    assert (asked[0].priority, dict(asked[0].metadata), asked[0].from_agent) == (3, {"by": "me"}, "A")


def test_what_a_tool_adds_survives_a_journal() -> None:
    request = HandoffRequest(
        "B", priority=3, metadata={"by": "me"}, timeout=1.5, capabilities_required=("sql",)
    )
    assert HandoffRequest.from_envelope(request.envelope()) == request


async def test_source_of_a_request_cannot_be_forged() -> None:
    """The run fills in who asks and the id."""
    asked: list[HandoffRequest] = []
    b = agent("B", "B here.", on_handoff_request=asked.append)
    forged = HandoffRequest("B", from_agent="boss", request_id="h-1")
    await Runner.run(asking(lambda: forged, b), "Hi", run_config=RunConfig(run_id="r"))
    assert (asked[0].from_agent, asked[0].request_id) == ("A", "h-r-1")


async def test_refused_request_is_reported_in_the_tool_result() -> None:
    played = await both(
        lambda: asking(
            lambda: HandoffRequest("B"),
            agent("B", on_handoff_request=lambda request: HandoffResponse.reject("full")),
        )
    )
    assert played.answers == ["The transfer to 'B' was not made: full"]
    assert played.result.final_output == "Mine."


async def test_unknown_target_error_lists_known_targets() -> None:
    played = await both(lambda: asking(lambda: HandoffRequest("nobody"), agent("B")))
    why = "Handoff target 'nobody' was not found. There are: B."
    assert played.answers == [f"The transfer to 'nobody' was not made: {why}"]


async def test_a_made_up_target_is_on_record() -> None:
    played = await both(lambda: asking(lambda: HandoffRequest("nobody", reason="bored"), agent("B")))
    (record,) = played.result.handoffs
    assert (record.source, record.target, record.status, record.tried) == ("A", "nobody", "REJECTED", True)
    assert record.error == "Handoff target 'nobody' was not found. There are: B."
    assert (record.reason, record.requested_by, record.taken) == ("bored", "tool", False)
    assert record.response is not None
    assert record.response.rejection_reason == record.error


async def test_a_made_up_target_has_events() -> None:
    played = await both(lambda: asking(lambda: HandoffRequest("nobody"), agent("B")))
    kinds = ["tool_output", "handoff_requested", "handoff_failed"]
    shown_of = [(each.type, each) for each in played.events if each.type in kinds]
    assert [kind for kind, _ in shown_of] == ["handoff_requested", "tool_output", "handoff_failed"]
    failed = shown_of[-1][1]
    assert isinstance(failed, HandoffFailed)
    assert failed.target == "nobody"
    assert failed.reason == "Handoff target 'nobody' was not found. There are: B."


async def test_a_made_up_target_is_counted() -> None:
    played = await both(lambda: asking(lambda: HandoffRequest("nobody"), agent("B")))
    metrics = HandoffMetrics()
    for record in played.result.handoffs:
        metrics.add(record)
    assert metrics.totals().total == 1


async def test_unknown_target_can_end_the_run() -> None:
    first = [call("hand_over", id="a"), call("transfer_to_b", id="b")]
    made = lambda: asking(lambda: HandoffRequest("nobody"), agent("B"), first=first)  # noqa: E731
    played = await both(made, raise_on=["failed_handoff"])
    assert isinstance(played.error, HandoffError)
    assert [(each.target, each.tried) for each in played.result.handoffs] == [("nobody", True), ("B", False)]


# -- by what the target can do --


def capable(*names: str) -> Agent[Any]:
    return agent("C", "C here.", capabilities=names)


async def test_a_tool_may_ask_for_an_agent_that_can() -> None:
    made = lambda: asking(lambda: HandoffRequest(capabilities_required=["sql"]), agent("B"), capable("sql"))  # noqa: E731
    played = await both(made)
    (record,) = played.result.handoffs
    assert played.result.final_output == "C here."
    assert (record.target, record.requested_by, record.taken) == ("C", "tool", True)
    assert record.passed_over == (("B", "Missing capability: sql"),)


async def test_a_tool_is_told_when_no_agent_can() -> None:
    played = await both(lambda: asking(lambda: HandoffRequest(capabilities_required=["sql"]), agent("B")))
    why = "No capable agent available (B: Missing capability: sql)"
    assert played.answers == [f"The transfer to 'agent with sql' was not made: {why}"]
    assert played.result.handoffs[0].target == "agent with sql"


async def test_what_is_declared_for_those_that_can_holds() -> None:
    """A handoff by the same capabilities is the way: with its filter, its callback and its scope."""
    called: list[str] = []

    def made(**options: Any) -> Agent[Any]:
        way = handoff(
            capabilities_required=["sql", "pdf"], on_handoff=lambda context: called.append("on"), **options
        )
        return asking(lambda: HandoffRequest(capabilities_required=["pdf", "sql"]), way)

    config = RunConfig(agents=[capable("sql", "pdf")])
    result = await Runner.run(made(), "Hi", run_config=config)
    assert (result.final_output, called) == ("C here.", ["on"])
    result = await Runner.run(made(scope="owner"), "Hi", run_config=config)
    assert (result.handoffs[0].taken, called) == (False, ["on"])


async def test_a_request_by_capability_survives_a_journal() -> None:
    request = HandoffRequest(capabilities_required=["sql"], reason="why")
    assert HandoffRequest.from_envelope(request.envelope()) == request


def test_a_request_by_capability_does_not_leave_the_process() -> None:
    with pytest.raises(ValueError, match=r"it has capabilities_required and no to_agent\. Name the target"):
        HandoffRequest(capabilities_required=["sql"], from_agent="a").to_dict()


def test_a_request_needs_a_target() -> None:
    with pytest.raises(ConfigError, match=r"needs to_agent .* or capabilities_required"):
        HandoffRequest()


# -- what a declaration adds --


async def test_a_handoff_may_say_how_urgent_it_is() -> None:
    asked: list[HandoffRequest] = []
    b = agent("B", "B here.", on_handoff_request=asked.append)
    await Runner.run(agent("A", TO_B, handoffs=[handoff(b, priority=3, metadata={"queue": "night"})]), "Hi")
    assert (asked[0].priority, asked[0].metadata) == (3, {"queue": "night"})


async def test_what_a_tool_says_of_its_request_wins() -> None:
    asked: list[HandoffRequest] = []
    b = agent("B", "B here.", on_handoff_request=asked.append)
    way = handoff(b, priority=3, metadata={"queue": "night", "kind": "x"})
    request = HandoffRequest("B", priority=1, metadata={"queue": "day"})
    result = await Runner.run(asking(lambda: request, way), "Hi")
    assert (asked[0].priority, asked[0].metadata) == (1, {"queue": "day", "kind": "x"})
    assert result.handoffs[0].request is not None
    assert result.handoffs[0].request.metadata == {"queue": "day", "kind": "x"}


async def test_what_a_target_changes_of_it_is_its_own() -> None:
    metadata = {"tags": ["a"]}

    def change(request: HandoffRequest) -> None:
        request.metadata["tags"].append("b")

    b = agent("B", "B here.", on_handoff_request=change)
    way = handoff(b, metadata=metadata)
    await Runner.run(agent("A", TO_B, handoffs=[way]), "Hi")
    assert (metadata, way.metadata) == ({"tags": ["a"]}, {"tags": ["a"]})


@pytest.mark.parametrize(
    ("option", "wrong"), [({"metadata": 5}, "metadata"), ({"priority": "high"}, "priority")]
)
def test_what_is_of_another_kind_is_refused(option: Any, wrong: str) -> None:
    with pytest.raises(ConfigError, match=f"Handoff to 'B': {wrong} must be"):
        handoff(agent("B"), **option)


# -- ids --


async def test_ids_are_the_same_whenever_the_run_is_repeated() -> None:
    """They come from the run and the order of its transfers."""
    first = agent("A", [TO_B, call("transfer_to_c", id="u")], handoffs=[agent("B", "B."), agent("C")])
    result = await Runner.run(first, "Hi", run_config=RunConfig(run_id="r"))
    assert [record.id for record in result.handoffs] == ["h-r-1", "h-r-2"]


async def test_every_handoff_record_has_a_unique_id() -> None:
    def make() -> Agent[Any]:
        no = agent("N", on_handoff_request=lambda request: HandoffResponse.reject("no"))
        b = agent("B", [call("transfer_to_c"), call("transfer_to_n")], handoffs=[agent("C", "C."), no])
        return agent("A", call("transfer_to_n"), [TO_B, call("transfer_to_n")], handoffs=[b, no])

    ids = [record.id for record in (await both(make)).result.handoffs]
    assert ids == [f"h-r-{n}" for n in range(1, 6)]


# -- slots --


def one_slot() -> Capacity:
    return Capacity({"B": 1})


def crowd(answer: Any = "Done.", **options: Any) -> Agent[Any]:
    return agent("A", TO_B, "Mine.", handoffs=[handoff(agent("B", answer), **options)])


async def test_two_concurrent_runs_do_not_get_the_same_slot() -> None:
    """The second is declined, word for word, and goes on."""
    capacity, inside, leave = one_slot(), anyio.Event(), anyio.Event()

    async def wait(_: Any) -> str:
        inside.set()
        await leave.wait()
        return "Done."

    config = RunConfig(capacity=capacity)
    results: list[Any] = []

    async def first() -> None:
        results.append(await Runner.run(crowd(wait), "Hi", run_config=config))

    async with anyio.create_task_group() as group:
        group.start_soon(first)
        await inside.wait()
        second = await Runner.run(crowd(), "Hi", run_config=config)
        leave.set()
    assert second.final_output == "Mine."
    assert second.handoffs[0].error == "At maximum capacity"
    assert results[0].final_output == "Done."
    assert capacity.free("B") == 1


async def test_a_place_is_free_after_the_answer() -> None:
    """It is taken while the target works."""
    capacity, seen = one_slot(), list[Any]()

    def look(_: Any) -> str:
        seen.append(capacity.free("B"))
        return "Done."

    await Runner.run(crowd(look), "Hi", run_config=RunConfig(capacity=capacity))
    assert seen == [0]
    assert capacity.free("B") == 1


async def test_a_place_is_free_after_an_error() -> None:
    capacity = one_slot()
    with pytest.raises(RoutelockError):
        await Runner.run(crowd(ValueError("no")), "Hi", run_config=RunConfig(capacity=capacity))
    assert capacity.free("B") == 1


async def test_a_place_is_free_after_a_filter_that_broke() -> None:
    capacity = one_slot()

    def broken(data: Any) -> Any:
        raise ValueError("no")

    with pytest.raises(HandoffFilterError):
        await Runner.run(crowd(input_filter=broken), "Hi", run_config=RunConfig(capacity=capacity))
    assert capacity.free("B") == 1


async def test_a_place_is_free_after_the_next_transfer() -> None:
    capacity, seen = Capacity({"B": 1, "C": 1}), list[Any]()

    def look(_: Any) -> str:
        seen.append((capacity.free("B"), capacity.free("C")))
        return "C here."

    b = agent("B", call("transfer_to_c"), handoffs=[agent("C", look)])
    await Runner.run(agent("A", TO_B, handoffs=[b]), "Hi", run_config=RunConfig(capacity=capacity))
    assert seen == [(1, 0)]
    assert (capacity.free("B"), capacity.free("C")) == (1, 1)


async def test_closed_stream_releases_its_slot() -> None:
    capacity = one_slot()
    run = Runner.run_streamed(crowd("One two three"), "Hi", run_config=RunConfig(capacity=capacity))
    async with aclosing(run):
        async for event in run:
            if isinstance(event, HandoffOccurred):
                assert capacity.free("B") == 0
            if isinstance(event, TextDelta):
                break
    assert capacity.free("B") == 1


@pytest.mark.parametrize("where", ["consent", "payload", "on_handoff", "filter", "received", "model"])
async def test_a_place_is_free_after_a_cancellation_anywhere(where: str) -> None:
    """Also between the yes of the target and the transfer itself."""
    capacity, there = one_slot(), anyio.Event()

    async def stay(*_: Any) -> Any:
        there.set()
        await anyio.sleep_forever()

    hooks = {"consent": "on_handoff_request", "received": "on_handoff_received"}
    options = {"payload": "payload", "on_handoff": "on_handoff", "filter": "input_filter"}

    async def on_handoff(context: Any) -> None:
        await stay()

    async def payload(context: Any, given: Any) -> Any:
        await stay()

    async def one(_: Any) -> Any:
        await stay()

    given: dict[str, Any] = {"payload": payload, "on_handoff": on_handoff}
    b = agent("B", one, **({hooks[where]: one} if where in hooks else {}))
    declared = handoff(b, **({options[where]: given.get(where, one)} if where in options else {}))
    a = agent("A", TO_B, handoffs=[declared])
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: Runner.run(a, "Hi", run_config=RunConfig(capacity=capacity)))
        await there.wait()
        assert capacity.free("B") == (1 if where == "payload" else 0)  # data is made before B is asked
        group.cancel_scope.cancel()
    assert capacity.free("B") == 1


@pytest.mark.parametrize("broken", ["consent", "late", "payload", "on_handoff", "message", "model"])
async def test_failed_handoff_releases_its_slot(broken: str) -> None:
    capacity = one_slot()

    def fail(*_: Any) -> Any:
        raise ValueError("no")

    def fails(context: Any) -> Any:
        raise ValueError("no")

    def payload_fails(context: Any, given: Any) -> Any:
        raise ValueError("no")

    async def late(request: Any) -> None:
        await anyio.sleep_forever()

    hooks: dict[str, Any] = {"consent": fail, "late": late}
    b = (
        Agent("B")
        if broken == "model"
        else agent("B", **({"on_handoff_request": hooks[broken]} if broken in hooks else {}))
    )
    options: dict[str, Any] = {
        "payload": {"payload": payload_fails},
        "on_handoff": {"on_handoff": fails},
        "late": {"timeout": 0.01},
    }.get(broken, {})
    if broken == "message":
        options = {"payload": {"handoff_type": 5}}
    first = call("transfer_to_decided", id="t") if broken == "model" else TO_B
    declared: Any = handoff(b, **options)
    if broken == "model":
        from_code = HandoffRequest(b)
        a = asking(lambda: from_code)
    else:
        a = agent("A", first, "Mine.", handoffs=[declared])
    result = await Runner.run(a, "Hi", run_config=RunConfig(capacity=capacity))
    assert result.final_output == "Mine."
    assert not result.handoffs[0].taken
    assert capacity.free("B") == 1


STEPS = st.lists(
    st.sampled_from(["answer", "error", "reject", "callback", "filter", "on", "leave"]), max_size=6
)


@given(steps=STEPS)
def test_places_never_leak(steps: list[str]) -> None:
    """However many runs end in whatever way."""
    capacity = Capacity({"B": 1, "C": 1})

    async def play() -> None:
        for step in steps:
            await _play(step, RunConfig(capacity=capacity))
            assert (capacity.free("B"), capacity.free("C")) == (1, 1)

    anyio.run(play)


async def _play(step: str, config: RunConfig) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("no")

    def callback(context: Any) -> None:
        raise ValueError("no")

    def reject(request: Any) -> HandoffResponse:
        return HandoffResponse.reject("no")

    answer: Any = {"error": ValueError("no"), "on": call("transfer_to_c")}.get(step, "One two")
    c = agent("C", "C here.")
    b = agent("B", answer, handoffs=[c], on_handoff_request=reject if step == "reject" else None)
    declared = handoff(
        b,
        on_handoff=callback if step == "callback" else None,
        input_filter=fail if step == "filter" else None,
    )
    run = Runner.run_streamed(agent("A", TO_B, "Mine.", handoffs=[declared]), "Hi", run_config=config)
    try:
        async with aclosing(run):
            async for event in run:
                if step == "leave" and isinstance(event, HandoffOccurred):
                    break
    except RoutelockError:
        pass


# -- what fails about a transfer --


async def test_a_callback_that_fails_is_told_recorded_and_noted() -> None:
    def broken(context: Any) -> None:
        raise LookupError("no desk")

    played = await both(lambda: pair("Mine.", on_handoff=broken)[0])
    (record,), (problem,) = played.result.handoffs, played.result.errors
    assert (record.status, record.error) == (Status.FAILED, "LookupError: no desk")
    assert isinstance(problem.error, LookupError)
    assert played.answers == ["The transfer to 'B' was not made: LookupError: no desk"]


async def test_run_within_a_callback_is_independent() -> None:
    inner: list[Any] = []

    async def ask(context: Any) -> None:
        inner.append(await Runner.run(agent("X", "Fine."), "May I?"))

    played = await both(lambda: pair(on_handoff=ask)[0])
    assert played.result.final_output == "Done."
    assert {made.agent for made in played.result.calls} == {"A", "B"}
    assert inner[0].final_output == "Fine."


async def test_a_failed_transfer_leaves_the_source_with_its_tools() -> None:
    def broken(context: Any) -> None:
        raise LookupError("no desk")

    a, _ = pair("Mine.", on_handoff=broken)
    await Runner.run(a, "Hi")
    first, second = requests(a)
    assert first.tools == second.tools


async def test_log_names_agents_and_no_content(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "routelock"):
        await Runner.run(pair()[0], "my secret", run_config=RunConfig(run_id="r"))
    assert "A -> B in turn 1 of run r" in caplog.text
    assert "my secret" not in caplog.text


async def test_skipped_handoff_does_not_change_the_view() -> None:
    """The source sees its own call and the reason, and nothing is left out."""
    a, _ = pair("Mine.", capabilities_required=["sql"])
    result = await Runner.run(a, "Hi")
    assert [message["role"] for message in shown(a, 1)] == ["user", "assistant", "tool"]
    assert answers_of(result)[0].startswith("The transfer to 'B' was not made")


async def test_a_handler_can_be_full() -> None:
    capacity = Capacity({"voice": 0})
    voice = ScriptedHandler([], name="voice")
    a = agent("A", call("transfer_to_voice"), "Mine.", handoffs=[voice])
    result = await Runner.run(a, "Hi", run_config=RunConfig(capacity=capacity))
    assert result.handoffs[0].error == "At maximum capacity"


@pytest.mark.asyncio_only
@pytest.mark.parametrize("where", ["on_handoff_request", "on_handoff", "payload"])
async def test_cancelled_await_in_a_callback_does_not_end_the_run(where: str) -> None:
    """The run was not cancelled, so it must not end as if it was."""

    async def wait(*_: Any) -> Any:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async def one(context: Any) -> Any:
        await wait()

    async def two(context: Any, given: Any) -> Any:
        await wait()

    capacity = one_slot()
    hook: dict[str, Any] = {where: one} if where == "on_handoff_request" else {}
    options: dict[str, Any] = {} if hook else {where: two if where == "payload" else one}
    a = agent("A", TO_B, "Mine.", handoffs=[handoff(agent("B", **hook), **options)])
    result = await Runner.run(a, "Hi", run_config=RunConfig(capacity=capacity))
    assert result.final_output == "Mine."
    assert result.handoffs[0].error == "CancelledError"
    assert capacity.free("B") == 1
