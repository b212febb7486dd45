"""Who takes over: targets are asked in order what they can do, whether there is a place, and if they will."""

from __future__ import annotations

import itertools
import logging
import time
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from declining_targets import declined, listed, no, team
from plain_and_streamed import both
from scripted_agents import TO_B, agent, shown

from routelock import Agent, HandoffRequest, RunConfig, RunHooks, Runner, function_tool, handoff
from routelock.errors import HandoffStateError, ModelBehaviorError
from routelock.handoff_request import HandoffResponse, HandoffStatus
from routelock.handoffs.context import HandoffContext
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio

Status = HandoffStatus


# -- the states --


LEGAL = {
    (Status.PENDING, Status.ACCEPTED),
    (Status.PENDING, Status.REJECTED),
    (Status.PENDING, Status.EXPIRED),
    (Status.PENDING, Status.FAILED),
    (Status.ACCEPTED, Status.COMPLETED),
    (Status.ACCEPTED, Status.FAILED),
}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(Status, Status)))
def test_the_state_machine_over_all_pairs(old: HandoffStatus, new: HandoffStatus) -> None:
    """Of the 36 steps, six are legal."""
    if (old, new) in LEGAL:
        assert old.to(new) is new
        return
    with pytest.raises(HandoffStateError) as raised:
        old.to(new, "h-r-1")
    needed = "ACCEPTED" if new is Status.COMPLETED else "PENDING"
    assert str(raised.value) == f"Handoff h-r-1 is not in {needed} status (current: {old.value})"
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("status", list(Status))
def test_a_response_is_accepted_by_its_status_alone(status: HandoffStatus) -> None:
    """There is one source of truth."""
    response = HandoffResponse(status=status)
    assert response.accepted is (status in (Status.ACCEPTED, Status.COMPLETED))


def test_the_names_of_the_states_are_their_values() -> None:
    assert [status.name for status in Status] == [status.value for status in Status]
    assert {"EXPIRED", "FAILED"} <= set(Status)


def test_a_rejection_says_why() -> None:
    response = HandoffResponse.reject("why", "h-1")
    assert (response.accepted, response.status, response.rejection_reason) == (False, Status.REJECTED, "why")
    assert response.handoff_id == "h-1"


# -- asking the target --


@pytest.mark.parametrize(
    "on_request",
    [
        lambda request: None,
        lambda request: HandoffResponse.accept(),
        lambda request: HandoffResponse(status=Status.COMPLETED),
    ],
    ids=["nothing", "accept", "completed"],
)
async def test_a_target_that_agrees_takes_over(on_request: Any) -> None:
    """None accepts, too."""
    played = await both(lambda: team(on_request))
    assert played.result.final_output == "Done."
    assert played.result.handoffs[0].status is Status.COMPLETED


async def test_a_target_may_be_asked_asynchronously() -> None:
    async def ask(request: HandoffRequest) -> HandoffResponse:
        await anyio.lowlevel.checkpoint()
        return HandoffResponse.reject("not today")

    assert (await declined(ask)).handoffs[0].error == "not today"


async def test_a_target_that_declines_is_not_switched_to() -> None:
    """The record says so, and the target is not called."""
    result = await declined(no("I am full"))
    (record,) = result.handoffs
    assert (record.status, record.error, record.taken) == (Status.REJECTED, "I am full", False)
    assert [made.agent for made in result.calls] == ["A", "A"]


async def test_the_source_is_told_why() -> None:
    """The reason is the answer to the model's own call."""
    a = team(no("I am full"), "Then I do it.")
    await Runner.run(a, "Hi")
    assert shown(a, 1)[-1] == {
        "role": "tool",
        "tool_call_id": "t",
        "content": "The transfer to 'B' was not made: I am full",
    }


async def test_refusal_is_a_problem_of_the_result() -> None:
    """Nothing goes into thin air."""
    (problem,) = (await declined(no("I am full"))).errors
    assert (problem.kind, problem.call_id) == ("handoff", "t")
    assert "I am full" in problem.message


async def test_a_rejection_is_an_event() -> None:
    played = await both(lambda: team(no("I am full"), "Then I do it."))
    assert "handoff_failed" in played.kinds
    assert "handoff_occurred" not in played.kinds


async def test_a_target_that_raises_has_declined(caplog: pytest.LogCaptureFixture) -> None:
    """Rejected with the reason, on the record, among the errors, and in the log."""

    def broken(request: HandoffRequest) -> None:
        raise LookupError("no calendar")

    result = await declined(broken)
    assert result.handoffs[0].status is Status.REJECTED
    assert result.handoffs[0].error == "LookupError: no calendar"
    assert isinstance(result.errors[0].error, LookupError)
    assert "on_handoff_request of agent 'B' raised" in caplog.text


async def test_a_rejection_can_end_the_run() -> None:
    """The app says so with `raise_on`."""
    played = await both(lambda: team(no("I am full"), "?"), raise_on=["failed_handoff"])
    assert "I am full" in str(played.error)
    assert played.result.handoffs[0].status is Status.REJECTED


@pytest.mark.parametrize("answer", [True, False, "yes", {"accepted": True}, HandoffStatus.ACCEPTED])
async def test_what_is_no_response_is_no_consent(answer: Any) -> None:
    """A bool would be read one way by some and the other way by others."""
    result = await declined(lambda request: answer)
    assert "on_handoff_request must return a HandoffResponse or None" in (result.handoffs[0].error or "")


async def test_a_response_that_is_still_open_is_no_consent() -> None:
    """In sw4rm a response was accepted and pending at once."""
    result = await declined(lambda request: HandoffResponse())
    assert result.handoffs[0].error == "'B' declined"


async def test_a_target_may_say_that_it_is_too_late() -> None:
    result = await declined(lambda request: HandoffResponse(status=Status.EXPIRED, rejection_reason="late"))
    assert (result.handoffs[0].status, result.handoffs[0].error) == (Status.EXPIRED, "late")


async def test_target_sees_source_and_reason() -> None:
    """An in-process transfer makes a request, too."""
    asked: list[HandoffRequest] = []
    a = team(
        asked.append,
        first=call("transfer_to_b", {"reason": "It is about money."}, id="t"),
        options={"ask_reason": True, "timeout": 5.0, "capabilities_required": ["sql"]},
        capabilities=["sql"],
    )
    await Runner.run(a, "Hi", run_config=RunConfig(run_id="r"))
    (request,) = asked
    assert (request.from_agent, request.to_agent) == ("A", "B")
    assert request.reason == "It is about money."
    assert (request.request_id, request.timeout) == ("h-r-1", 5.0)
    assert list(request.capabilities_required) == ["sql"]


async def test_the_record_keeps_the_request() -> None:
    """It is the audit trail."""
    record = (await declined(no("no"))).handoffs[0]
    assert record.request is not None
    assert record.request.request_id == record.id


async def test_a_handler_is_not_asked() -> None:
    """It has no hook; it takes over."""
    voice = ScriptedHandler(["Hello."], name="voice")
    result = await Runner.run(agent("A", call("transfer_to_voice"), handoffs=[voice]), "Hi")
    assert result.handoffs[0].status is Status.COMPLETED


# -- in time --


async def test_a_target_that_takes_too_long_has_not_accepted() -> None:
    """Expired, the source is told, and the run goes on."""

    async def slow(request: HandoffRequest) -> None:
        await anyio.sleep_forever()

    played = await both(lambda: team(slow, "Then I do it.", options={"timeout": 0.01}))
    assert played.result.final_output == "Then I do it."
    assert played.result.handoffs[0].status is Status.EXPIRED
    assert played.answers == ["The transfer to 'B' was not made: 'B' did not accept within 0.01 s"]


async def test_acceptance_before_the_deadline_counts() -> None:
    async def quick(request: HandoffRequest) -> None:
        await anyio.lowlevel.checkpoint()

    played = await both(lambda: team(quick, options={"timeout": 60.0}))
    assert played.result.final_output == "Done."


@pytest.mark.virtual_time
async def test_after_one_that_is_late_the_next_is_asked() -> None:
    async def slow(request: HandoffRequest) -> None:
        await anyio.sleep_forever()

    def make() -> Agent[Any]:
        b, c = agent("B", on_handoff_request=slow), agent("C", "C here.")
        return agent("A", TO_B, handoffs=[handoff([b, c], timeout=0.01)])

    played = await both(make)
    assert played.result.final_output == "C here."
    assert played.result.handoffs[0].passed_over == (("B", "'B' did not accept within 0.01 s"),)


async def test_target_that_blocks_is_late() -> None:
    """Nothing can stop a function that blocks, but it has not accepted in time."""

    def blocks(request: HandoffRequest) -> HandoffResponse:
        time.sleep(0.05)
        return HandoffResponse.accept()

    played = await both(lambda: team(blocks, "Then I do it.", options={"timeout": 0.01}))
    assert played.result.final_output == "Then I do it."
    assert played.result.handoffs[0].status is Status.EXPIRED


@pytest.mark.virtual_time
async def test_shielded_target_is_late() -> None:
    async def stubborn(request: HandoffRequest) -> HandoffResponse:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.05)
        return HandoffResponse.accept()

    played = await both(lambda: team(stubborn, "Then I do it.", options={"timeout": 0.01}))
    assert played.result.handoffs[0].status is Status.EXPIRED


# -- what it can do --


async def test_a_target_that_lacks_something_is_rejected() -> None:
    played = await both(lambda: team(None, "Then I do it.", options={"capabilities_required": ["sql"]}))
    assert played.result.handoffs[0].status is Status.REJECTED
    assert played.result.handoffs[0].error == "Missing capability: sql"
    assert played.result.final_output == "Then I do it."


async def test_a_target_that_has_all_takes_over() -> None:
    options = {"capabilities_required": ["sql"]}
    played = await both(lambda: team(None, options=options, capabilities=["pdf", "sql"]))
    assert played.result.final_output == "Done."


async def test_target_without_a_capability_is_not_requested() -> None:
    """The order is capability, availability, policy."""
    asked: list[Any] = []
    await Runner.run(team(asked.append, "Mine.", options={"capabilities_required": ["sql"]}), "Hi")
    assert asked == []


def capable(*names: str, needs: Any = ("sql",), **hooks: Any) -> Agent[Any]:
    """A requests any capable agent; the agents of these names are capable."""
    others = [agent(name, f"{name} here.", capabilities=["sql"], **hooks) for name in names]
    first = call(f"transfer_to_agent_with_{needs[0]}", id="t")
    return agent("A", first, "Mine.", handoffs=[handoff(capabilities_required=needs), *others])


async def test_the_first_capable_agent_is_found() -> None:
    """In the order in which the run knows them."""
    played = await both(lambda: capable("C", "B"))
    assert played.result.final_output == "C here."
    assert played.result.handoffs[0].target == "C"


async def test_handoff_fails_without_a_capable_target() -> None:
    played = await both(lambda: capable("B", needs=("cobol",)))
    record = played.result.handoffs[0]
    assert (record.status, record.error) == (Status.REJECTED, "No capable agent available")
    assert record.passed_over == (("B", "Missing capability: cobol"),)
    assert played.answers == [
        "The transfer to 'agent with cobol' was not made: "
        "No capable agent available (B: Missing capability: cobol)"
    ]


async def test_the_source_does_not_find_itself() -> None:
    def make() -> Agent[Any]:
        first = call("transfer_to_agent_with_sql", id="t")
        handoffs = [handoff(capabilities_required=["sql"])]
        return agent("A", first, "Mine.", capabilities=["sql"], handoffs=handoffs)

    assert (await both(make)).result.handoffs[0].error == "No capable agent available"


async def test_a_capable_agent_that_the_run_adds_is_found() -> None:
    extra = agent("X", "X here.", capabilities=["sql"])
    result = await Runner.run(capable(), "Hi", run_config=RunConfig(agents=[extra]))
    assert result.final_output == "X here."


async def test_next_target_is_requested_after_a_refusal() -> None:
    def decide(request: HandoffRequest) -> HandoffResponse | None:
        return HandoffResponse.reject("busy") if request.to_agent == "C" else None

    played = await both(lambda: capable("C", "B", on_handoff_request=decide))
    assert played.result.final_output == "B here."
    assert played.result.handoffs[0].passed_over == (("C", "busy"),)


# -- lists of targets --


async def test_the_second_takes_what_the_first_declines() -> None:
    """The record says who was passed over and why."""
    played = await both(lambda: listed(agent("B", on_handoff_request=no("full")), agent("C", "C here.")))
    (record,) = played.result.handoffs
    assert played.result.final_output == "C here."
    assert (record.target, record.status) == ("C", Status.COMPLETED)
    assert record.passed_over == (("B", "full"),)


async def test_the_first_that_accepts_ends_the_asking() -> None:
    asked: list[Any] = []
    await Runner.run(listed(agent("B", "B here."), agent("C", on_handoff_request=asked.append)), "Hi")
    assert asked == []


async def test_when_all_decline_the_source_goes_on() -> None:
    """The text of the record is exact, and the model is told the reasons."""
    played = await both(
        lambda: listed(agent("B", on_handoff_request=no("full")), agent("C", on_handoff_request=no("closed")))
    )
    (record,) = played.result.handoffs
    assert played.result.final_output == "Mine."
    assert (record.status, record.error) == (Status.REJECTED, "All preferred agents unavailable")
    assert record.passed_over == (("B", "full"), ("C", "closed"))
    assert played.answers == [
        "The transfer to 'B' was not made: All preferred agents unavailable (B: full; C: closed)"
    ]


async def test_a_list_may_name_agents_handlers_and_names() -> None:
    """Whatever can be a target can be the next one."""
    played = await both(
        lambda: listed(
            agent("B", on_handoff_request=no("full")), "D", ScriptedHandler(["Beep."], name="voice")
        ),
        agents=[agent("D", on_handoff_request=no("closed"))],
    )
    assert played.result.final_output == "Beep."
    assert played.result.handoffs[0].target == "voice"
    assert [name for name, _ in played.result.handoffs[0].passed_over] == ["B", "D"]


async def test_unreachable_target_does_not_block_the_next() -> None:
    """Each is looked at in its turn: a handler that is closed to this caller is passed over."""

    class Closed(ScriptedHandler):
        scope = "admin"

    def make() -> Agent[Any]:
        closed = Closed([], name="closed")
        handoffs = [handoff([agent("B", on_handoff_request=no("full")), closed, agent("C", "C here.")])]
        return agent("A", TO_B, handoffs=handoffs, handlers=[closed])

    played = await both(make)
    assert played.result.final_output == "C here."
    assert [name for name, _ in played.result.handoffs[0].passed_over] == ["B", "closed"]


async def test_next_target_with_the_capability_takes_over() -> None:
    played = await both(
        lambda: listed(agent("B"), agent("C", "C here.", capabilities=["sql"]), capabilities_required=["sql"])
    )
    assert played.result.handoffs[0].passed_over == (("B", "Missing capability: sql"),)
    assert played.result.final_output == "C here."


# -- available now --


async def test_availability_is_asked_at_the_time_of_the_transfer() -> None:
    """What was true when the run began does not count."""
    open_now = [True]

    def available(target: Any) -> bool | str:
        return True if open_now[0] else "Agent busy: DEPLOYING"

    def answer(request: Any) -> Any:
        open_now[0] = False
        return TO_B

    played = await both(lambda: team(None, "Mine.", first=answer), available=available)
    assert played.result.handoffs[0].error == "Agent busy: DEPLOYING"
    assert played.result.final_output == "Mine."


async def test_no_is_an_answer_without_a_reason() -> None:
    played = await both(lambda: team(None, "Mine."), available=lambda target: False)
    assert played.result.handoffs[0].error == "Agent unavailable: B"


async def test_availability_that_raises_declines() -> None:
    """As `on_handoff_request` does: what cannot say yes has said no."""

    def available(target: Any) -> bool:
        raise OSError("no network")

    played = await both(lambda: team(None, "Mine."), available=available)
    (record,) = played.result.handoffs
    assert (record.status, record.tried) == (Status.REJECTED, True)
    assert "no network" in (record.error or "")
    assert played.result.final_output == "Mine."
    assert isinstance(played.result.errors[0].error, OSError)


async def test_another_target_is_asked_when_availability_raises() -> None:
    def available(target: Any) -> bool:
        if target.name == "B":
            raise OSError("no network")
        return True

    played = await both(lambda: listed(agent("B"), agent("C", "C here.")), available=available)
    assert played.result.final_output == "C here."


@pytest.mark.parametrize("answer", [True, "Agent busy: DEPLOYING"])
async def test_availability_may_be_a_look_up(answer: Any) -> None:
    async def available(target: Any) -> bool | str:
        await anyio.lowlevel.checkpoint()
        return answer

    played = await both(lambda: team(None, "Mine."), available=available)
    (record,) = played.result.handoffs
    assert (record.taken, record.error) == ((True, None) if answer is True else (False, answer))


async def test_availability_is_checked_for_capable_targets_only() -> None:
    asked: list[str] = []

    async def available(target: Any) -> bool:
        asked.append(target.name)
        return True

    target = agent("C", "C here.", capabilities=["sql"])
    made = lambda: listed(agent("B"), target, capabilities_required=["sql"])  # noqa: E731
    await Runner.run(made(), "Hi", run_config=RunConfig(available=available))
    assert asked == ["C"]


async def test_availability_check_counts_towards_the_timeout() -> None:
    async def available(target: Any) -> bool:
        await anyio.sleep_forever()
        return True

    with anyio.fail_after(60):
        played = await both(lambda: team(None, "Mine.", options={"timeout": 0.01}), available=available)
    (record,) = played.result.handoffs
    assert (record.status, record.error) == (Status.EXPIRED, "'B' did not accept within 0.01 s")


@pytest.mark.virtual_time
async def test_the_look_up_and_the_consent_have_one_time() -> None:
    """Not each its own: the source waits so long for both."""

    async def available(target: Any) -> bool:
        await anyio.sleep(0.3)
        return True

    async def consent(request: HandoffRequest) -> None:
        await anyio.sleep(0.3)

    with anyio.fail_after(60):
        played = await both(lambda: team(consent, "Mine.", options={"timeout": 0.45}), available=available)
    assert played.result.handoffs[0].status is Status.EXPIRED


async def test_unavailable_target_is_skipped() -> None:
    played = await both(
        lambda: listed(agent("B"), agent("C", "C here.")),
        available=lambda target: "out" if target.name == "B" else True,
    )
    assert played.result.handoffs[0].passed_over == (("B", "out"),)


async def test_the_exception_of_available_is_on_the_result_as_it_is() -> None:
    """As that of every other function that decides about a handoff."""
    fault = KeyError()

    def available(target: Agent[Any]) -> bool:
        raise fault

    result = await declined(None, available=available)
    assert result.handoffs[0].error == "KeyError"
    assert [problem.error for problem in result.errors] == [fault]


# -- hostile hooks and texts --


async def test_a_hook_cannot_change_what_was_asked() -> None:
    """What it gets is its own."""

    request = HandoffRequest("B", input={"sum": 1}, metadata={"by": "me"})

    def greedy(given: HandoffRequest) -> None:
        given.input["sum"] = 1_000
        cast("dict[str, Any]", given.metadata)["approved"] = True

    from_tool = asking(request, agent("B", "Done.", on_handoff_request=greedy))
    result = await Runner.run(from_tool, "Hi")
    record = result.handoffs[0]
    assert record.input == {"sum": 1}
    assert record.request is not None
    assert dict(record.request.metadata) == {"by": "me"}


def asking(request: HandoffRequest, *targets: Any) -> Agent[Any]:
    """An agent whose tool asks for the transfer."""

    @function_tool
    def hand_over() -> HandoffRequest:
        """Hand over."""
        return request

    return agent("A", call("hand_over", id="t"), "Mine.", tools=[hand_over], handoffs=list(targets))


async def test_a_hook_may_run_an_agent_of_its_own() -> None:
    """A policy that asks a model: its run is its own, and leaves no trace in this one."""

    def make() -> Agent[Any]:
        judge = agent("judge", "No, thank you.")

        async def ask(request: HandoffRequest) -> HandoffResponse:
            verdict = await Runner.run(judge, f"May {request.from_agent} hand over?")
            return HandoffResponse.reject(str(verdict.final_output))

        return team(ask, "Then I do it.")

    played = await both(make)
    assert played.result.handoffs[0].error == "No, thank you."
    assert [made.agent for made in played.result.calls] == ["A", "A"]
    assert len(played.result.handoffs) == 1


async def test_a_hooks_own_run_that_fails_is_a_rejection() -> None:
    async def ask(request: HandoffRequest) -> None:
        await Runner.run(agent("judge", ValueError("broken")), "?")

    result = await declined(ask)
    assert result.handoffs[0].status is Status.REJECTED


async def test_a_hooks_own_run_is_ended_with_its_time() -> None:
    """The time is that of all that the hook does."""

    async def ask(request: HandoffRequest) -> None:
        async def wait(_: Any) -> str:
            await anyio.sleep_forever()
            return ""

        await Runner.run(agent("judge", wait), "?")

    played = await both(lambda: team(ask, "Mine.", options={"timeout": 0.01}))
    assert played.result.handoffs[0].status is Status.EXPIRED


# -- in which order --


async def test_everybody_is_told_in_order_and_once() -> None:
    """The handoff's callback, the hooks of run and agent, then the target's, before its first model call."""
    order: list[str] = []

    class Watch(RunHooks):
        async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
            order.append("run")

    class Own:
        def on_handoff(self, context: Any, me: Any, source: Any) -> None:
            order.append("agent")

    def received(context: Any) -> None:
        order.append("received")

    def speak(request: Any) -> str:
        order.append("model")
        return "Done."

    def asked(request: Any) -> None:
        order.append("asked")

    b = Agent(
        "B",
        model=ScriptedHandler([speak]),
        hooks=Own(),  # type: ignore[arg-type]
        on_handoff_request=asked,
        on_handoff_received=received,
    )
    declared = handoff(b, on_handoff=lambda context: order.append("handoff"))
    await Runner.run(agent("A", TO_B, handoffs=[declared]), "Hi", hooks=Watch())
    assert order == ["asked", "handoff", "run", "agent", "received", "model"]


async def test_refused_handoff_calls_no_callbacks() -> None:
    told: list[Any] = []
    a = team(no("no"), "Mine.", options={"on_handoff": told.append}, on_handoff_received=told.append)
    await Runner.run(a, "Hi")
    assert told == []


async def test_received_hook_gets_a_surrogate_half_replaced() -> None:
    """Models and tools write such text now and then; the transcript keeps it, and the run goes on."""
    told: list[HandoffContext] = []
    b = agent("B", "Done.", on_handoff_received=told.append)
    result = await Runner.run(agent("A", TO_B, handoffs=[b]), "Hi \ud83d")
    assert {"role": "user", "content": "Hi \ufffd"} in told[0].conversation_history
    assert result.items[0].message.get("content") == "Hi \ud83d"


async def test_target_is_not_requested_in_a_loop() -> None:
    """A target is asked only for what the run would let happen."""
    asked: list[Any] = []
    b = agent("B", call("transfer_to_a"), handoffs=["A"], on_handoff_request=asked.append)
    a = agent("A", call("transfer_to_b"), call("transfer_to_b"), "Mine.", handoffs=[b])
    result = await Runner.run(a, "Hi")
    assert result.final_output == "Mine."
    assert len(asked) == 1


async def test_a_refusal_is_logged_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    """Who asked whom and what came of it; a reason may hold what the user said."""
    with caplog.at_level(logging.DEBUG, "routelock"):
        await declined(no("the card is 4111"))
    assert "A -> B: REJECTED" in caplog.text
    assert "4111" not in caplog.text


async def test_a_rejected_target_can_still_be_asked_later() -> None:
    """A rejection is no loop: the state of the world may have changed."""
    answers = iter([HandoffResponse.reject("not yet"), None])
    a = team(lambda request: next(answers), TO_B)
    result = await Runner.run(a, "Hi")
    assert [record.status for record in result.handoffs] == [Status.REJECTED, Status.COMPLETED]


async def test_one_that_always_asks_in_vain_is_stopped() -> None:
    played = await both(lambda: team(no("never"), *[TO_B] * 9))
    assert "nothing but mistakes" in str(played.error)
    assert len(played.result.handoffs) == 3


async def test_target_sees_the_payload_before_it_accepts() -> None:
    """And what it does to it stays with it."""
    seen: list[Any] = []

    def look(request: HandoffRequest) -> None:
        seen.append(dict(request.payload.context_data))
        request.payload.context_data["files"].append("forged")

    b = agent("B", "Done.", on_handoff_request=look)
    data = {"handoff_type": "research_delegation", "referenced_files": "none", "files": ["a"]}
    a = agent("A", TO_B, handoffs=[handoff(b, payload=data)])
    await Runner.run(a, "Hi")
    assert seen[0]["referenced_files"] == "none"
    assert data["files"] == ["a"]
    assert isinstance(b.model, ScriptedHandler)
    assert "forged" not in str(b.model.requests[0].messages)


async def test_nearest_capable_agent_is_requested_first() -> None:
    """So a run that is resumed elsewhere asks the same agents in the same order."""
    far = agent("Far", "Far here.", capabilities=["paint"])
    near = agent("Near", "Near here.", capabilities=["paint"])
    anyone = handoff(capabilities_required=["paint"], tool_name_override="transfer_to_painter")
    b = agent("B", call("transfer_to_painter"), handoffs=[near, anyone])
    a = agent("A", TO_B, handoffs=[far, b])
    result = await Runner.run(a, "Hi")
    assert result.last_agent is near


# -- what the model passes along --


@pytest.mark.parametrize(
    "deep", ["[" * 100_000 + "]" * 100_000, '{"reason": ' * 100_000 + "1" + "}" * 100_000]
)
async def test_arguments_that_are_nested_too_deep_are_a_mistake_of_the_model(deep: str) -> None:
    """They are no failure of a callback, and ``raise_on`` covers them."""

    def make() -> Agent[Any]:
        return agent("A", call("transfer_to_b", deep), "Alone.", handoffs=[agent("B")])

    (record,) = (await both(make)).result.handoffs
    assert (record.status, record.error) == (Status.REJECTED, "the arguments are nested too deep")
    with pytest.raises(ModelBehaviorError):
        await Runner.run(make(), "Hi", run_config=RunConfig(raise_on=["bad_arguments"]))


async def test_half_a_character_in_a_reason_does_not_stop_a_handoff() -> None:
    """A store writes the request as JSON, which cannot have such a half."""

    @function_tool
    def ask() -> HandoffRequest:
        """Ask B."""
        return HandoffRequest("B", reason="half \ud83d")

    def writes(request: HandoffRequest) -> None:
        assert HandoffRequest.from_dict(request.to_dict()).reason == "half \ufffd"

    for asks in (call("transfer_to_b", '{"reason": "half \\ud83d"}'), call("ask")):
        b = agent("B", "Here.", on_handoff_request=writes)
        a = agent("A", asks, tools=[ask], handoffs=[handoff(b, ask_reason=True)])
        result = await Runner.run(a, "Hi")
        assert (result.final_output, result.handoffs[0].reason) == ("Here.", "half \ufffd")
