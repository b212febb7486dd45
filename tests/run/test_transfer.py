"""Transfers: what is checked before one is made, who answers then, and what is kept of those that fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from scripted_agents import HI, TO_B, agent, answers_of, look_up, outcome, pair, requests, shown, statuses

from routelock import Agent, Handoff, Message, RunConfig, RunContext, Runner, handoff
from routelock.errors import (
    ConfigError,
    HandoffError,
    LoopDetected,
    MaxHandoffsExceeded,
    ModelBehaviorError,
)
from routelock.handlers.events import MessageDone
from routelock.handlers.port import Request
from routelock.history.messages import calls_of, text_of
from routelock.testing import ScriptedHandler, assert_valid, call, reply

pytestmark = pytest.mark.anyio


class Ticket(BaseModel):
    reason: str
    urgent: bool = False


# -- who answers --


async def test_a_name_leads_to_the_agent_of_that_name() -> None:
    a = agent(
        "A", call("transfer_to_b"), "Bye.", handoffs=[agent("B", call("transfer_to_a"), handoffs=["A"])]
    )
    result = await Runner.run(a, "Hi")
    assert (result.final_output, result.last_agent) == ("Bye.", a)


async def test_target_name_may_be_of_a_config_agent() -> None:
    b = agent("B", "Done.")
    a = agent("A", call("transfer_to_b"), handoffs=["B"])
    result = await Runner.run(a, "Hi", run_config=RunConfig(agents=[b]))
    assert result.last_agent is b
    with pytest.raises(ConfigError, match="'A' hands off to 'B', which is no agent of this run"):
        await Runner.run(a, "Hi")


async def test_agent_stays_active_after_a_handoff_to_a_handler() -> None:
    """A handler as target changes who answers, not which agent is active."""
    remote = ScriptedHandler([call("look_up", {"order": 7}), "From afar."], name="remote")
    a = agent("A", call("transfer_to_remote"), tools=[look_up], handoffs=[remote])
    result = await Runner.run(a, "Hi")
    assert (result.final_output, result.last_agent) == ("From afar.", a)
    assert [spec["function"]["name"] for spec in remote.requests[0].tools] == ["look_up"]
    assert remote.requests[0].messages[0] == {"role": "system", "content": "You are A."}
    assert [used.handler for used in result.calls] == ["A", "remote", "remote"]


async def test_the_next_run_starts_at_the_default_handler_again() -> None:
    remote = ScriptedHandler(["From afar."], name="remote")
    a = agent("A", call("transfer_to_remote"), "At home.", handoffs=[remote])
    first = await Runner.run(a, "Hi")
    second = await Runner.run(a, [*first.to_input_list(), {"role": "user", "content": "And now?"}])
    assert second.final_output == "At home."


# -- callbacks and arguments --


async def test_on_handoff_is_called_with_the_context() -> None:
    """Sync or async, before the target is asked."""
    seen: list[tuple[str, int]] = []

    def note(context: RunContext[Any]) -> None:
        seen.append((context.agent, context.turn))

    async def note_slowly(context: RunContext[Any]) -> None:
        note(context)

    for each in (note, note_slowly):
        a, _ = pair(on_handoff=each)
        await Runner.run(a, "Hi")
    assert seen == [("A", 1), ("A", 1)]


async def test_on_handoff_is_given_the_parsed_input() -> None:
    seen: list[Any] = []

    async def note(context: RunContext[Any], ticket: Ticket) -> None:
        seen.append(ticket)

    a, _ = pair(
        first=call("transfer_to_b", {"reason": "late", "urgent": True}), on_handoff=note, input_type=Ticket
    )
    result = await Runner.run(a, "Hi")
    assert seen == [Ticket(reason="late", urgent=True)]
    assert result.handoffs[0].input == Ticket(reason="late", urgent=True)


async def test_callback_gets_no_input_that_is_not_declared() -> None:
    seen: list[Any] = []

    def note(context: RunContext[Any], extra: Any = "nothing") -> None:
        seen.append(extra)

    a, _ = pair(first=call("transfer_to_b", {"reason": "late"}), on_handoff=note)
    await Runner.run(a, "Hi")
    assert seen == ["nothing"]


async def test_an_input_needs_no_callback_to_be_kept() -> None:
    a, _ = pair(first=call("transfer_to_b", {"reason": "late"}), input_type=Ticket)
    result = await Runner.run(a, "Hi")
    assert result.handoffs[0].input == Ticket(reason="late")


async def test_an_input_that_is_no_object_is_unwrapped() -> None:
    a, _ = pair(first=call("transfer_to_b", {"response": ["x"]}), input_type=list[str])
    result = await Runner.run(a, "Hi")
    assert result.handoffs[0].input == ["x"]


@pytest.mark.parametrize("arguments", ["", "{}", "null", " ", '{"anything": 1}', "{ }\n"])
async def test_without_input_nothing_need_be_passed(arguments: str) -> None:
    """Providers differ in how they say nothing."""
    a, b = pair(first=call("transfer_to_b", arguments, id="t"))
    result = await Runner.run(a, "Hi")
    assert result.last_agent is b


async def test_arguments_that_are_none_are_nothing() -> None:
    first: Any = {"id": "t", "type": "function", "function": {"name": "transfer_to_b", "arguments": None}}
    a, b = pair(first=reply(calls=[first]))
    assert (await Runner.run(a, "Hi")).last_agent is b


JUNK = '{"reason": "' + "x" * 1_000_000
BROKEN = ['{"reason": ', '{"reason": "late",}', "[]", "5", '"late"', "true", "not json", JUNK, "[" * 100_000]


@pytest.mark.pairwise
@pytest.mark.parametrize("options", [{}, {"ask_reason": True}, {"input_type": Ticket}])
@pytest.mark.parametrize("arguments", BROKEN, ids=range(len(BROKEN)))
async def test_broken_arguments_can_be_corrected(arguments: str, options: dict[str, Any]) -> None:
    """The run used to be lost."""
    called: list[Any] = []
    b = agent("B", "Done.")
    declared = handoff(b, on_handoff=lambda *args: called.append(args), **options)
    good = {"reason": "late"} if options else {}
    a = agent(
        "A",
        call("transfer_to_b", arguments, id="t1"),
        call("transfer_to_b", good, id="t2"),
        handoffs=[declared],
    )
    result = await Runner.run(a, "Hi")
    assert result.last_agent is b
    assert len(called) == 1
    answer = text_of(shown(a, 1)[-1])
    assert answer.startswith("The transfer to 'B' was not made: ")
    assert len(answer) <= 800
    assert statuses(result) == [("A", "B", "failed"), ("A", "B", "taken")]
    assert [(problem.kind, problem.call_id) for problem in result.errors] == [("handoff", "t1")]
    assert result.usage.requests == 3


@pytest.mark.parametrize(
    "arguments", ["", "{}", "null", '{"reason": 5}', '{"reason": null}', '{"why": "late"}']
)
async def test_input_of_another_type_is_refused(arguments: str) -> None:
    """No coercion, no ``{}`` in place of what is missing."""
    a, b = pair("I cannot.", first=call("transfer_to_b", arguments), input_type=Ticket)
    result = await Runner.run(a, "Hi")
    assert requests(b) == []
    assert "reason" in text_of(shown(a, 1)[-1])
    assert statuses(result) == [("A", "B", "failed")]


async def test_broken_arguments_can_end_the_run() -> None:
    a, _ = pair(first=call("transfer_to_b", "{"))
    with pytest.raises(HandoffError, match="Agent 'A', turn 1: The transfer to 'B' was not made") as caught:
        await Runner.run(a, "Hi", run_config=RunConfig(raise_on=["failed_handoff"]))
    assert_valid(caught.value.result.messages)
    assert statuses(caught.value.result) == [("A", "B", "failed")]


async def test_a_model_that_only_sends_broken_arguments_is_stopped() -> None:
    a, _ = pair(*[call("transfer_to_b", "{") for _ in range(3)], first=call("transfer_to_b", "{"))
    with pytest.raises(ModelBehaviorError, match="nothing but mistakes in 3 turns in a row") as caught:
        await Runner.run(a, "Hi")
    assert_valid(caught.value.result.messages)
    assert len(requests(a)) == 3


async def test_a_callback_that_raises_keeps_the_source_in_charge() -> None:
    """The transfer is not made, the exception is not lost."""

    def broken(context: RunContext[Any]) -> None:
        raise RuntimeError("ticket system is down")

    a, b = pair("I help you myself.", on_handoff=broken)
    result = await Runner.run(a, "Hi")
    assert (result.final_output, result.last_agent) == ("I help you myself.", a)
    assert requests(b) == []
    assert "RuntimeError: ticket system is down" in text_of(shown(a, 1)[-1])
    (problem,) = result.errors
    assert isinstance(problem.error, RuntimeError)
    (record,) = result.handoffs
    assert (outcome(record), record.error) == ("failed", "RuntimeError: ticket system is down")


async def test_a_callback_that_raises_can_end_the_run() -> None:
    def broken(context: RunContext[Any]) -> None:
        raise RuntimeError("down")

    a, _ = pair(on_handoff=broken)
    with pytest.raises(HandoffError, match="RuntimeError: down") as caught:
        await Runner.run(a, "Hi", run_config=RunConfig(raise_on=["failed_handoff"]))
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [({"reason": "late"}, "late"), ({}, "No reason provided"), ({"reason": ""}, "No reason provided")],
)
async def test_a_reason_is_asked_for_but_not_demanded(arguments: dict[str, Any], reason: str) -> None:
    a, b = pair(first=call("transfer_to_b", arguments), ask_reason=True)
    result = await Runner.run(a, "Hi")
    assert result.last_agent is b
    assert result.handoffs[0].reason == reason


async def test_a_declared_reason_stands_where_the_model_gives_none() -> None:
    a, _ = pair(ask_reason=True, reason="bills")
    assert (await Runner.run(a, "Hi")).handoffs[0].reason == "bills"


async def test_callback_gets_the_models_reason() -> None:
    seen: list[Any] = []

    def note(context: RunContext[Any], reason: str | None) -> None:
        seen.append(reason)

    a, _ = pair(first=call("transfer_to_b", {"reason": "late"}), ask_reason=True, on_handoff=note)
    await Runner.run(a, "Hi")
    assert seen == ["late"]


# -- targets decided in the moment --


def deciding(target: Any, **options: Any) -> Handoff:
    return Handoff(agent_name="B", on_invoke_handoff=lambda context, arguments: target, **options)


async def test_a_function_may_decide_where_to_go() -> None:
    seen: list[str] = []
    c = agent("C", "From C.")

    async def decide(context: RunContext[Any], arguments: str) -> Agent[Any]:
        seen.append(arguments)
        return c

    a = agent(
        "A",
        call("transfer_to_b", '{"x": 1}', id="t"),
        handoffs=[Handoff(target=agent("B"), on_invoke_handoff=decide)],
    )
    result = await Runner.run(a, "Hi")
    assert result.last_agent is c
    assert statuses(result) == [("A", "C", "taken")]
    assert seen == ['{"x": 1}']
    assert answers_of(result) == ['{"assistant": "C"}']


async def test_target_function_may_return_a_handler_or_name() -> None:
    remote = ScriptedHandler(["From afar."], name="remote")
    a = agent("A", call("transfer_to_b"), handoffs=[deciding(remote)])
    assert (await Runner.run(a, "Hi")).final_output == "From afar."
    c = agent("C", "From C.")
    a = agent("A", call("transfer_to_b"), handoffs=[deciding("C")])
    assert (await Runner.run(a, "Hi", run_config=RunConfig(agents=[c]))).last_agent is c


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (5, "on_invoke_handoff must return an Agent or a Handler, not int"),
        (None, "on_invoke_handoff must return an Agent or a Handler, not NoneType"),
        ("unknown", "ConfigError: it is not set up correctly, which you cannot change. Go on without it."),
    ],
)
async def test_target_function_without_a_target_is_answered(target: Any, says: str) -> None:
    a = agent("A", call("transfer_to_b"), "I stay.", handoffs=[deciding(target)])
    result = await Runner.run(a, "Hi")
    assert (result.final_output, statuses(result)) == ("I stay.", [("A", "B", "failed")])
    assert says in text_of(shown(a, 1)[-1])


async def test_result_has_a_handoff_error_if_the_target_function_returns_no_agent() -> None:
    result = await Runner.run(agent("A", call("transfer_to_b"), "I stay.", handoffs=[deciding(5)]), "Hi")
    assert isinstance(result.errors[0].error, HandoffError)


async def test_skipped_handoff_calls_no_callback() -> None:
    """The callback books, mails or logs: it comes last, when nothing else can fail."""
    called: list[Any] = []
    declared = deciding(None, on_handoff=called.append)
    await Runner.run(agent("A", call("transfer_to_b"), "I stay.", handoffs=[declared]), "Hi")
    assert called == []


async def test_going_to_and_fro_between_decided_targets_is_noticed() -> None:
    """The loop is judged by where it leads, not by what was declared."""
    b = agent("B", *[call("transfer_to_a")] * 5, handoffs=["A"])
    declared = Handoff(agent_name="chosen", on_invoke_handoff=lambda context, arguments: b)
    a = agent("A", *[call("transfer_to_chosen")] * 5, handoffs=[declared])
    with pytest.raises(LoopDetected) as caught:
        await Runner.run(a, "Hi")
    assert [outcome(record) for record in caught.value.result.handoffs] == [
        "taken",
        "taken",
        "failed",
        "failed",
    ]


async def test_target_function_must_not_return_its_own_agent() -> None:
    handoffs: list[Agent[Any]] = []
    a = agent(
        "A",
        call("transfer_to_b"),
        "I stay.",
        handoffs=[Handoff(agent_name="B", on_invoke_handoff=lambda context, arguments: handoffs[0])],
    )
    handoffs.append(a)
    await Runner.run(a, "Hi")
    assert "cannot hand off to itself" in text_of(shown(a, 1)[-1])


async def test_target_without_a_model_keeps_the_source_active() -> None:
    """Whatever fails about a transfer becomes the answer, before anything changes."""
    a = agent("A", call("transfer_to_b"), "I stay.", handoffs=[deciding(Agent("C"))])
    result = await Runner.run(a, "Hi")
    assert (result.final_output, result.last_agent) == ("I stay.", a)
    assert "Go on without it." in text_of(shown(a, 1)[-1])
    assert "has no model. Give it one" in result.errors[0].message
    assert "has no model. Give it one" in str(result.handoffs[0].error)
    assert statuses(result)[0][2] == "failed"


class Welcome(Handoff):
    def get_transfer_message(self, agent: Any) -> str:
        return f"You are talking to {agent.name} now."


class BrokenWelcome(Handoff):
    def get_transfer_message(self, agent: Any) -> str:
        raise KeyError("welcome")


async def test_a_subclass_may_word_the_answer() -> None:
    b = agent("B", "Done.")
    result = await Runner.run(agent("A", TO_B, handoffs=[Welcome(target=b)]), "Hi")
    assert answers_of(result) == ["You are talking to B now."]


async def test_failing_transfer_message_still_answers_the_call() -> None:
    a = agent("A", TO_B, "I stay.", handoffs=[BrokenWelcome(target=agent("B"))])
    result = await Runner.run(a, "Hi")
    assert result.final_output == "I stay."
    assert "KeyError" in text_of(shown(a, 1)[-1])


# -- limits --


def circle(count: int, **options: Any) -> Agent[Any]:
    """A and B, who send the user to and fro and would do so for ever."""
    b = agent("B", *[call("transfer_to_a")] * count, handoffs=["A"])
    return agent("A", *[call("transfer_to_b")] * count, handoffs=[b], **options)


async def test_ping_pong_is_stopped_long_before_the_last_turn() -> None:
    """First told, then stopped, with the partial result."""
    a = circle(9)
    with pytest.raises(
        LoopDetected, match="requested the handoff again in turn 4, after it was told"
    ) as caught:
        await Runner.run(a, "Hi", max_turns=100)
    result = caught.value.result
    assert [outcome(record) for record in result.handoffs] == ["taken", "taken", "failed", "failed"]
    assert "nothing new has come up" in text_of(shown(a, 2)[-1])
    assert_valid(result.messages)


async def test_source_that_follows_the_warning_goes_on() -> None:
    b = agent("B", call("transfer_to_a"), handoffs=["A"])
    a = agent("A", call("transfer_to_b"), call("transfer_to_b"), "I answer.", handoffs=[b])
    assert (await Runner.run(a, "Hi")).final_output == "I answer."


async def test_going_there_and_back_and_on_is_no_loop() -> None:
    """A, B, A, C is a legitimate path."""
    b = agent("B", call("transfer_to_a"), handoffs=["A"])
    c = agent("C", "Done.")
    a = agent("A", call("transfer_to_b"), call("transfer_to_c"), handoffs=[b, c])
    result = await Runner.run(a, "Hi")
    assert statuses(result) == [("A", "B", "taken"), ("B", "A", "taken"), ("A", "C", "taken")]


async def test_new_tool_result_allows_the_same_handoff_again() -> None:
    b = agent("B", call("transfer_to_a"), "Done.", handoffs=["A"])
    a = agent(
        "A",
        call("transfer_to_b"),
        call("look_up", {"order": 7}),
        call("transfer_to_b"),
        tools=[look_up],
        handoffs=[b],
    )
    assert (await Runner.run(a, "Hi")).last_agent is b


@pytest.mark.parametrize("limit", [0, 1, 5])
async def test_so_many_transfers_and_no_more(limit: int) -> None:
    """One more is refused, asking again ends the run."""
    a = circle(9)
    config = RunConfig(max_handoffs=limit, detect_loops=False)
    with pytest.raises(MaxHandoffsExceeded, match=f"limit of {limit} transfers is reached") as caught:
        await Runner.run(a, "Hi", max_turns=100, run_config=config)
    taken = [outcome(record) for record in caught.value.result.handoffs]
    assert taken == ["taken"] * limit + ["failed", "failed"]
    assert_valid(caught.value.result.messages)


async def test_without_a_limit_only_the_turns_are_counted() -> None:
    a = circle(20)
    config = RunConfig(max_handoffs=None, detect_loops=False, on_limit="return")
    result = await Runner.run(a, "Hi", max_turns=25, run_config=config)
    assert [outcome(record) for record in result.handoffs] == ["taken"] * 25
    assert result.stop_reason == "limit"


async def test_a_limit_can_be_a_result() -> None:
    result = await Runner.run(circle(9), "Hi", run_config=RunConfig(max_handoffs=1, on_limit="return"))
    assert result.stop_reason == "limit"
    assert_valid(result.to_input_list())


# -- records --


async def test_all_hops_are_on_the_result_in_order() -> None:
    c = agent("C", "Done.")
    b = agent("B", call("transfer_to_c", id="t2"), handoffs=[handoff(c, reason="details")])
    a = agent("A", call("transfer_to_b", id="t1"), handoffs=[handoff(b, tool_name_override="transfer_to_b")])
    result = await Runner.run(a, "Hi", run_config=RunConfig(run_id="r"))
    assert [
        (
            record.id,
            record.source,
            record.target,
            record.tool_name,
            record.call_id,
            record.turn,
            record.reason,
        )
        for record in result.handoffs
    ] == [
        ("h-r-1", "A", "B", "transfer_to_b", "t1", 1, None),
        ("h-r-2", "B", "C", "transfer_to_c", "t2", 2, "details"),
    ]


async def test_what_a_run_leaves_is_input_for_the_next() -> None:
    a, b = pair("Back at the desk.")
    first = await Runner.run(a, "Hi")
    more: list[Message] = [*first.to_input_list(), {"role": "user", "content": "And now?"}]
    second = await Runner.run(a, more)
    assert second.final_output == "Back at the desk."
    assert shown(a, 1) == [*first.messages, more[-1]]
    assert first.last_agent is b


@pytest.mark.parametrize("call_id", ["", "call_1_0", "same"])
async def test_second_run_repeats_no_call_id(call_id: str) -> None:
    """Some providers send no ids, others begin anew in every request."""
    asks = reply(calls=[call("look_up", {"order": 7}, id=call_id)])
    model = ScriptedHandler([_as_sent(asks), "One.", _as_sent(asks), "Two."])
    a = Agent("A", model=model, tools=[look_up])
    first = await Runner.run(a, "Hi")
    second = await Runner.run(a, [*first.to_input_list(), HI])
    for request in model.requests:
        assert_valid(request.messages)
    ids = [made["id"] for message in second.messages for made in calls_of(message)]
    assert len(set(ids)) == 2
    assert len(second.repairs) == (1 if call_id else 0)


def _as_sent(scripted: Any) -> Callable[[Request], Any]:
    """The reply as a provider sent it: `ScriptedHandler` would fill in ids that are new."""
    return lambda request: MessageDone(message=scripted.message)


async def test_orphan_result_is_not_given_to_a_later_call() -> None:
    model = ScriptedHandler([call("look_up", {"order": 7}, id="x"), "Done."])
    a = Agent("A", model=model, tools=[look_up])
    await Runner.run(a, [HI, {"role": "tool", "tool_call_id": "x", "content": "old"}])
    answers = [text_of(message) for message in model.requests[1].messages if message["role"] == "tool"]
    assert answers == ["old", "order 7 is on its way"]


async def test_handoff_works_with_input_calls_without_ids() -> None:
    """Leaving out what was not taken must not trip over what others recorded."""
    bare: Any = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "f", "arguments": ""}}],
    }
    b, c = agent("B", "Done."), agent("C")
    a = agent("A", [TO_B, call("transfer_to_c")], handoffs=[b, c])
    assert (await Runner.run(a, [HI, bare])).last_agent is b
    assert "transfer_to_c" not in json.dumps(shown(b))


# -- what else can be wrong with a target --


async def test_active_handler_is_no_handoff_target() -> None:
    """It is not even offered; a handoff that decides late may still name it."""
    voice = ScriptedHandler([call("transfer_to_someone"), "I am here."], name="voice")
    late = Handoff(agent_name="someone", on_invoke_handoff=lambda context, arguments: voice)
    a = Agent("A", model=ScriptedHandler([call("transfer_to_someone")]), handoffs=[late])
    result = await Runner.run(a, "Hi")
    assert ([outcome(each) for each in result.handoffs], result.final_output) == (
        ["taken", "failed"],
        "I am here.",
    )
    assert "it is active already" in str(result.handoffs[1].error)


async def test_target_given_by_name_has_its_description() -> None:
    model = ScriptedHandler([call("transfer_to_b"), call("transfer_to_c"), "Hi."])
    c = Agent("C", model=model, handoff_description="Knows C.")
    b = Agent("B", model=model, handoffs=["C"])
    await Runner.run(Agent("A", model=model, handoffs=[b, c]), "Hi")
    (spec,) = model.requests[1].tools
    assert spec["function"]["description"] == "Handoff to the C agent to handle the request. Knows C."


async def test_target_of_a_function_adds_its_graph() -> None:
    model = ScriptedHandler([call("transfer_to_b"), call("transfer_to_d"), call("transfer_to_c"), "Done."])
    c = Agent("C", model=model, handoffs=[Agent("D", model=model, handoffs=["C"])])
    declared = Handoff(agent_name="B", on_invoke_handoff=lambda context, arguments: c)
    result = await Runner.run(Agent("A", model=model, handoffs=[declared]), "Hi")
    assert ([outcome(each) for each in result.handoffs], result.last_agent) == (["taken"] * 3, c)


async def test_second_agent_of_a_name_is_refused() -> None:
    model = ScriptedHandler([call("transfer_to_b"), "I stay."])
    declared = Handoff(agent_name="B", on_invoke_handoff=lambda context, arguments: Agent("A", model=model))
    result = await Runner.run(Agent("A", model=model, handoffs=[declared]), "Hi")
    assert "another agent of this run is named 'A'" in str(result.handoffs[0].error)


async def test_what_a_callback_says_reaches_the_model_in_bounds() -> None:
    def loud(context: RunContext[Any]) -> None:
        raise ValueError("x" * 1_000_000)

    model = ScriptedHandler([call("transfer_to_b"), "I stay."])
    await Runner.run(Agent("A", model=model, handoffs=[handoff(agent("B"), on_handoff=loud)]), "Hi")
    assert len(text_of(model.requests[1].messages[-1])) < 800


async def test_transfer_message_must_be_text() -> None:
    class Odd(Handoff):
        def get_transfer_message(self, agent: Any) -> Any:
            return {"assistant": agent.name}

    model = ScriptedHandler([call("transfer_to_b"), "I stay."])
    result = await Runner.run(Agent("A", model=model, handoffs=[Odd(target=agent("B"))]), "Hi")
    assert "must return text" in str(result.handoffs[0].error)


async def test_callback_and_record_have_the_same_reason() -> None:
    heard: list[Any] = []
    declared = handoff(agent("B", "Hi."), ask_reason=True, on_handoff=lambda context, why: heard.append(why))
    result = await Runner.run(agent("A", call("transfer_to_b"), handoffs=[declared]), "Hi")
    assert heard == [result.handoffs[0].reason] == ["No reason provided"]
    assert result.handoffs[0].input is None


def test_own_schema_is_strict_where_possible() -> None:
    free = {"type": "object", "additionalProperties": {"type": "string"}}
    loose = Handoff(target=agent("B"), input_json_schema=free)
    assert "strict" not in loose.spec["function"]
    needed = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    closed = Handoff(target=agent("B"), input_json_schema=needed)
    assert closed.spec["function"]["parameters"] == {**needed, "additionalProperties": False}
    assert closed.spec["function"]["strict"] is True


def test_plain_type_is_refused_as_input_type() -> None:
    wrong: Any = Ticket
    with pytest.raises(ConfigError, match="input_type must be a JsonType; write JsonType"):
        Handoff(target=agent("B"), input_type=wrong)
