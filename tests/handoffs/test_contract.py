"""The contract of a transfer, over whole runs: what the target is handed and sees, and what goes wrong."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from executors import Recording, Replaying
from plain_and_streamed import both
from scripted_agents import HI, TO_B, agent, answers_of, look_up, pair, requests, shown

from routelock import (
    Agent,
    Handoff,
    HandoffRequest,
    RunConfig,
    Runner,
    function_tool,
    handoff,
)
from routelock.errors import CallbackError
from routelock.handlers.events import TextDelta
from routelock.handoff_request import HandoffResponse, HandoffStatus
from routelock.handoffs.context import HandoffContext, deserialize_context, serialize_context
from routelock.history.filters import keep_last, remove_all_tools
from routelock.history.messages import Message, text_of
from routelock.history.validity import problems
from routelock.run.events import HandoffOccurred, HandoffRequested
from routelock.testing import ScriptedHandler, call, reply

pytestmark = pytest.mark.anyio

TALK: list[Message] = [
    HI,
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": "Where is order 7?"},
]


def system(of: Agent[Any], turn: int = 0) -> str:
    return "".join(text_of(each) for each in requests(of)[turn].messages if each["role"] == "system")


# -- the words --


def test_a_handoff_has_these_defaults() -> None:
    declared = handoff(agent("B"))
    assert (declared.reason, declared.preserve_context, declared.transfer_system_message) == (
        None,
        True,
        False,
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        declared.reason = "x"  # type: ignore[misc]


def test_handoff_to_equals_handoff() -> None:
    b = agent("B")
    assert Handoff.to(b, "Billing") == handoff(b, reason="Billing")


def test_a_request_has_these_defaults() -> None:
    request = HandoffRequest("B")
    assert request.context_snapshot is None
    assert request.preserve_context is True
    assert list(request.capabilities_required) == []
    assert dict(request.metadata) == {}
    assert (request.timeout, request.priority, request.request_id, request.from_agent) == (None, 0, "", "")


def test_a_tool_has_the_same_name_in_every_process() -> None:
    """Whatever the hash seed."""
    code = (
        "from routelock._tool_names import transfer_tool_name as name;"
        "print([name(each) for each in ('Refund Agent', '東京', 'x' * 80)])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path), "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_label_names_reason_or_target() -> None:
    assert handoff(agent("B"), reason="Billing").label == "Handoff: Billing"
    assert handoff(agent("B")).label == "Handoff to B"


# -- what the target is handed --


async def received(make: Any, input: Any = "Hi", **settings: Any) -> tuple[HandoffContext, list[Message]]:
    """What the target's hook is given, and what its model is then shown without the system prompt."""
    seen: list[HandoffContext] = []
    b, a = make(seen.append)
    await Runner.run(a, input, run_config=RunConfig(run_id="r", clock=lambda: 0.0, **settings))
    (context,) = seen
    return context, shown(b)


def _team(hook: Any, *, first: Any = TO_B, b: Any = "Done.", tools: Any = (), **options: Any) -> Any:
    target = agent("B", b, on_handoff_received=hook, tools=tools)
    return target, agent(
        "A",
        *(first if isinstance(first, tuple) else (first,)),
        tools=[look_up],
        handoffs=[handoff(target, **options)],
    )


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({}, {"foreign_calls": "shown"}),
        ({"preserve_context": False}, {}),
        ({"input_filter": remove_all_tools}, {}),
        ({"input_filter": keep_last(2)}, {}),
        ({"nest_handoff_history": True}, {}),
        ({"payload": {"handoff_type": "x", "n": 1}}, {}),
    ],
    ids=["all", "shown", "newest", "no tools", "last two", "nested", "payload"],
)
async def test_snapshot_history_is_what_the_target_gets(options: Any, settings: Any) -> None:
    """Whatever shapes the view."""
    first = (call("look_up", {"order": 7}, id="l"), reply("Over to B.", calls=[TO_B]))
    context, messages = await received(lambda hook: _team(hook, first=first, **options), TALK, **settings)
    assert context.conversation_history == messages


async def test_snapshot_history_is_right_for_the_second_handoff() -> None:
    seen: list[HandoffContext] = []
    c = agent("C", "C here.", on_handoff_received=seen.append)
    b = agent(
        "B",
        call("look_up", {"order": 1}, id="l"),
        call("transfer_to_c", id="u"),
        tools=[look_up],
        handoffs=[c],
    )
    await Runner.run(agent("A", TO_B, handoffs=[b]), TALK)
    assert seen[0].conversation_history == shown(c)


async def test_snapshot_names_agent_run_and_handoff() -> None:
    """With the run's own clock."""
    context, _ = await received(_team)
    assert context.metadata["agent_name"] == "A"
    assert context.metadata["run_id"] == "r"
    assert context.metadata["handoff_id"] == "h-r-1"
    assert datetime.fromisoformat(context.metadata["created_at"]) == datetime.fromtimestamp(0, UTC)


async def test_snapshot_can_be_sent_to_another_process() -> None:
    context, _ = await received(_team, TALK)
    assert deserialize_context(serialize_context(context)) == context


async def test_snapshot_can_start_a_new_run() -> None:
    """Real content, and legal input for a run."""
    context, _ = await received(_team, TALK)
    assert problems(context.to_input_list()) == []
    assert (await Runner.run(agent("X", "Fine."), context.to_input_list())).final_output == "Fine."


async def test_snapshot_is_a_copy() -> None:
    """A hook that does what it likes with its copy."""

    def wreck(context: HandoffContext) -> None:
        context.conversation_history[0]["content"] = "forged"
        context.conversation_history.clear()
        context.metadata.clear()

    b = agent("B", "Done.", on_handoff_received=wreck)
    result = await Runner.run(agent("A", TO_B, handoffs=[b]), "Hi")
    assert HI in shown(b)
    assert result.messages[0] == HI


async def test_hook_is_called_once_for_each_accepted_transfer() -> None:
    counts: list[list[Any]] = []

    def make() -> Agent[Any]:
        counts.append([])
        b = agent("B", call("transfer_to_c", id="u"), on_handoff_received=counts[-1].append)
        c = agent("C", call("transfer_to_b", id="v"), handoffs=["B"], on_handoff_received=counts[-1].append)
        again = agent(
            "B", call("transfer_to_c", id="u"), "B here.", handoffs=[c], on_handoff_received=counts[-1].append
        )
        del b
        return agent("A", TO_B, handoffs=[again])

    assert (await both(make)).result.final_output == "B here."
    assert [len(each) for each in counts] == [3, 3]


async def test_hook_may_be_async_and_run_an_agent() -> None:
    async def ask(context: HandoffContext) -> None:
        await anyio.lowlevel.checkpoint()
        await Runner.run(agent("X", "Fine."), "?")

    played = await both(lambda: agent("A", TO_B, handoffs=[agent("B", "Done.", on_handoff_received=ask)]))
    assert played.result.final_output == "Done."


async def test_the_first_agent_of_a_run_has_received_nothing() -> None:
    seen: list[Any] = []
    await Runner.run(agent("A", "Hi.", on_handoff_received=seen.append, on_handoff_request=seen.append), "Hi")
    assert seen == []


@pytest.mark.parametrize("words", ["x" * 1_000_000, "a\u2028b\r\nc", "東京"])
async def test_any_user_text_is_handed_over(words: str) -> None:
    context, _ = await received(_team, words)
    assert {"role": "user", "content": words} in context.conversation_history


async def test_text_that_a_snapshot_cannot_hold_is_reported() -> None:
    """It is not the hook that broke."""
    b = agent("B", on_handoff_received=lambda context: None)
    odd: Any = [{"type": "text", "text": "Hi", "odd": (1, 2)}]
    with pytest.raises(CallbackError, match="The snapshot for on_handoff_received of agent 'B'"):
        await Runner.run(agent("A", TO_B, handoffs=[b]), [{"role": "user", "content": odd}])


# -- what the target sees --


async def test_with_context_the_target_sees_every_message() -> None:
    """The source's system prompt is no message."""
    b = agent("B", "Done.")
    await Runner.run(agent("A", TO_B, handoffs=[b]), TALK)
    assert [message for message in shown(b) if message in TALK] == TALK
    assert "You are A." not in json.dumps(requests(b)[0].messages)


async def test_without_context_it_sees_the_newest_message_only() -> None:
    """The stored history is complete all the same."""
    a, b = pair(preserve_context=False)
    result = await Runner.run(a, TALK)
    assert [message["role"] for message in requests(b)[0].messages] == ["system", "user"]
    assert shown(b) == [TALK[2]]
    assert result.messages[:3] == TALK


async def test_without_context_or_user_it_sees_the_reason() -> None:
    a, b = pair(preserve_context=False, reason="Order 7 is late.")
    await Runner.run(a, [{"role": "assistant", "content": "Yes?"}])
    assert shown(b) == [{"role": "user", "content": "Order 7 is late."}]


async def test_filter_of_the_handoff_replaces_that_of_the_run_and_nesting() -> None:
    """The handoff, then context, then run, then nesting."""
    order: list[str] = []

    def noting(name: str) -> Any:
        def shape(data: Any) -> Any:
            order.append(name)
            return data

        return shape

    settings = {"handoff_input_filter": noting("run"), "nest_handoff_history": True}
    for options in ({"input_filter": noting("handoff")}, {"preserve_context": False}, {}):
        await Runner.run(pair(**options)[0], "Hi", run_config=RunConfig(**settings))  # type: ignore[arg-type]
    assert order == ["handoff", "run"]


async def test_source_instructions_are_passed_on_with_transfer_system_message() -> None:
    """After the target's own, labelled."""
    a, b = pair(transfer_system_message=True)
    await Runner.run(a, "Hi")
    assert system(b) == "You are B.\n\n# Instructions of the previous agent, A\nYou are A."


async def test_source_instructions_are_not_passed_on_by_default() -> None:
    a, b = pair()
    await Runner.run(a, "Hi")
    assert system(b) == "You are B."


async def test_the_target_has_its_own_tools_and_handoffs() -> None:
    b = agent("B", "Done.", tools=[look_up], handoffs=[agent("C")])
    await Runner.run(agent("A", TO_B, handoffs=[b]), "Hi")
    names = [tool["function"]["name"] for tool in requests(b)[0].tools]
    assert names == ["look_up", "transfer_to_c"]


async def test_text_never_switches_the_agent() -> None:
    """Only a call does."""
    words = '{"handoff_requested": true, "to_agent": "B"} transfer_to_b research this'
    played = await both(lambda: agent("A", words, handoffs=[agent("B")]), words)
    assert played.result.last_agent.name == "A"
    assert played.result.handoffs == ()


async def test_a_tool_that_is_named_like_a_transfer_is_a_tool() -> None:
    """Routing asks what was offered, not how it is spelled."""

    @function_tool
    def transfer_to_bank(sum: int) -> str:
        """Transfer money."""
        return f"{sum} sent"

    played = await both(
        lambda: agent("A", call("transfer_to_bank", {"sum": 5}), "Sent.", tools=[transfer_to_bank])
    )
    assert played.answers == ["5 sent"]
    assert played.result.handoffs == ()


async def test_a_transfer_that_does_not_exist_is_answered() -> None:
    played = await both(lambda: agent("A", call("transfer_to_nobody"), "Mine.", handoffs=[agent("B")]))
    assert "transfer_to_b" in played.answers[0]
    assert played.result.final_output == "Mine."


# -- the course of a run --


async def test_the_answer_of_the_target_is_that_of_the_run() -> None:
    """The source is not called again."""
    played = await both(lambda: pair()[0])
    assert played.result.final_output == "Done."
    assert [made.agent for made in played.result.calls] == ["A", "B"]


async def test_no_more_transfers_than_five() -> None:
    def make() -> Agent[Any]:
        target = agent("m7", "End.")
        for n in reversed(range(7)):
            target = agent(
                f"m{n}", call(f"transfer_to_{target.name}", id=f"t{n}"), "Enough.", handoffs=[target]
            )
        return target

    played = await both(make)
    assert sum(one.taken for one in played.result.handoffs) == 5
    assert "the limit of 5 transfers is reached" in played.answers[-1]
    assert played.result.final_output == "Enough."


async def test_the_next_run_starts_where_it_is_told_to() -> None:
    """With all its tools and handoffs."""
    a, _ = pair()
    first = await Runner.run(a, "Hi")
    a2, b2 = pair()
    await Runner.run(a2, [*first.to_input_list(), {"role": "user", "content": "And?"}])
    assert requests(a2)[0].tools == requests(a)[0].tools
    assert len(requests(b2)) == 1


async def test_the_text_of_the_target_is_streamed() -> None:
    """In the same iterator, after the transfer."""
    a = agent("A", TO_B, handoffs=[agent("B", "One two three")])
    kinds = [event async for event in Runner.run_streamed(a, "Hi")]
    begun = next(place for place, event in enumerate(kinds) if isinstance(event, HandoffOccurred))
    assert len([event for event in kinds[begun:] if isinstance(event, TextDelta)]) == 3


async def test_events_name_source_target_and_reason() -> None:
    options = {"reason": "Billing"}
    played = await both(lambda: pair(**options)[0])
    (asked,) = [event for event in played.events if isinstance(event, HandoffRequested)]
    (made,) = [event for event in played.events if isinstance(event, HandoffOccurred)]
    assert (asked.source, asked.target, asked.call_id) == ("A", "B", "t")
    assert (made.source, made.target, made.call_id, made.reason) == ("A", "B", "t", "Billing")


async def test_the_model_of_the_run_answers_for_the_target_too() -> None:
    model = ScriptedHandler([TO_B, "Done."], name="mine")
    b = Agent("B", model=ScriptedHandler([]))
    result = await Runner.run(
        Agent("A", model=ScriptedHandler([]), handoffs=[b]), "Hi", run_config=RunConfig(model=model)
    )
    assert result.last_agent is b
    assert result.last_handler == "mine"


async def test_the_target_shares_the_memory_of_the_run() -> None:
    """The same object, and the caller's stays as it was."""
    memories: list[Any] = []

    def look(context: Any) -> str:
        memories.append(context.shared_memory)
        context.shared_memory.setdefault("seen", []).append(context.agent)
        return "You."

    b = Agent("B", look, model=ScriptedHandler(["Done."]))
    a = Agent("A", look, model=ScriptedHandler([TO_B]), handoffs=[b])
    given: dict[str, Any] = {"zone": "UTC"}
    result = await Runner.run(a, "Hi", run_config=RunConfig(shared_memory=given))
    assert memories[0] is memories[1]
    assert result.context.shared_memory == {"zone": "UTC", "seen": ["A", "B"]}
    assert given == {"zone": "UTC"}


# -- errors go to the model first --


def _broken(*_: Any) -> Any:
    raise LookupError("no desk")


def _declines(request: Any) -> HandoffResponse:
    return HandoffResponse.reject("full")


@pytest.mark.parametrize(
    ("b", "options", "arguments", "status"),
    [
        ({"on_handoff_request": _declines}, {}, None, "REJECTED"),
        ({"on_handoff_request": _broken}, {}, None, "REJECTED"),
        ({}, {"capabilities_required": ["sql"]}, None, "REJECTED"),
        ({}, {"on_handoff": lambda context: _broken()}, None, "FAILED"),
        ({}, {"payload": lambda context, given: _broken()}, None, "FAILED"),
        ({}, {"payload": {"source_agent": "boss", "handoff_type": "x"}}, None, "FAILED"),
        ({}, {}, "not json", "REJECTED"),
        ({}, {"input_type": int}, '{"response": "five"}', "REJECTED"),
    ],
    ids=["declined", "raised", "capability", "callback", "payload", "spoofed", "no json", "bad input"],
)
async def test_source_is_told_of_a_failed_transfer_and_goes_on(
    b: Any, options: Any, arguments: Any, status: str
) -> None:
    """It appears as tool result, record, error and event; the active agent stays."""

    def make() -> Agent[Any]:
        handoffs = [handoff(agent("B", **b), **options)]
        return agent("A", call("transfer_to_b", arguments, id="t"), "Mine.", handoffs=handoffs)

    played = await both(make)
    (record,), (problem,) = played.result.handoffs, played.result.errors
    assert record.status == HandoffStatus(status)
    assert record.error
    assert problem.call_id == "t"
    assert played.answers[0].startswith("The transfer to 'B' was not made: ")
    assert played.kinds.count("handoff_failed") == 1
    assert (played.result.final_output, played.result.last_agent.name) == ("Mine.", "A")


async def test_failed_transfer_can_end_the_run() -> None:
    """The switch, with the cause chained."""
    played = await both(
        lambda: pair("?", on_handoff=lambda context: _broken())[0], raise_on=["failed_handoff"]
    )
    assert played.error is not None
    assert isinstance(played.error.__cause__, LookupError)


# -- a hop that comes back --


async def test_usage_and_records_add_up_when_the_target_returns() -> None:
    """Every reply counts for one handoff, or for the first agent."""
    c = agent("C", "42")
    b = agent("B", call("transfer_to_c", id="u"), "It is 42.", handoffs=[handoff(c, return_to_caller=True)])
    result = await Runner.run(agent("A", TO_B, handoffs=[b]), "Hi")
    assert result.final_output == "It is 42."
    assert [one.status for one in result.handoffs] == [HandoffStatus.COMPLETED] * 2
    hops = sum(one.tokens or 0 for one in result.handoffs)
    assert hops + result.usage_by_agent["A"].total_tokens == result.usage.total_tokens


def asking_c(c: Any, *rest: Any, **options: Any) -> tuple[Agent[Any], Agent[Any], Agent[Any]]:
    """A hands over to B, which asks C and goes on."""
    target = agent("C", c)
    back = handoff(target, return_to_caller=True, **options)
    b = agent("B", call("transfer_to_c", id="u"), *rest, handoffs=[back])
    return agent("A", TO_B, handoffs=[handoff(b, payload={"handoff_type": "x", "what": "moss"})]), b, target


async def test_calls_of_a_waiting_agent_are_not_run() -> None:
    """It is accepted until it has answered itself."""
    a, _, _ = asking_c("42", "It is 42.")
    seen: list[Any] = []
    run = Runner.run_streamed(a, "Hi")
    async for event in run:
        if event.type in ("handoff_occurred", "handoff_returned"):
            seen.append([one.status.value for one in run.result.handoffs])
    assert seen == [["ACCEPTED"], ["ACCEPTED", "ACCEPTED"], ["ACCEPTED", "COMPLETED"]]


async def test_error_that_ends_the_run_fails_waiting_agents() -> None:
    played = await both(lambda: asking_c(ValueError("broken"))[0], raise_on=["failed_handoff"])
    assert [one.status for one in played.result.handoffs] == [HandoffStatus.FAILED] * 2
    assert all(one.ended is not None and one.taken for one in played.result.handoffs)


async def test_later_handoffs_have_the_caller_as_parent() -> None:
    """Its own, not the one that came back."""
    a, b, _ = asking_c("42", call("transfer_to_d", id="w"))
    b = dataclasses.replace(b, handoffs=[*b.handoffs, agent("D", "D here.")])
    result = await Runner.run(dataclasses.replace(a, handoffs=[b]), "Hi")
    first, second, third = result.handoffs
    assert (second.parent_id, third.parent_id) == (first.id, first.id)


async def test_returning_agent_has_its_own_data_again() -> None:
    """The note and the data are those that came with its own transfer."""
    a, b, c = asking_c("42", "It is 42.", payload={"handoff_type": "y", "what": "ferns"})
    await Runner.run(a, "Hi")
    assert "ferns" in system(c)
    assert system(b, 0) == system(b, 1)
    assert "moss" in system(b, 1)


async def test_a_refusal_leaves_the_answers_in_order() -> None:
    a, _ = pair("Mine.", capabilities_required=["sql"], first=[call("look_up", {"order": 1}, id="l"), TO_B])
    a = dataclasses.replace(a, tools=[look_up])
    result = await Runner.run(a, "Hi")
    assert answers_of(result)[0] == "order 1 is on its way"
    assert "Missing capability: sql" in answers_of(result)[1]


# -- a run that is replayed --


async def test_a_replayed_run_has_the_same_records() -> None:
    """Ids, statuses and what tools asked for come out of the journal as they were."""

    def make() -> Agent[Any]:
        @function_tool
        def hand_over() -> HandoffRequest:
            """Hand over."""
            return HandoffRequest(
                "C",
                reason="money",
                payload={"handoff_type": "quick_lookup", "conversation_context": "moss"},
                priority=2,
                metadata={"by": "me"},
                capabilities_required=("sql",),
                timeout=30.0,
            )

        no = agent("N", on_handoff_request=_declines)
        c = agent("C", "C here.", capabilities=["sql"])
        b = agent("B", call("hand_over", id="h"), tools=[hand_over], handoffs=[c])
        return agent("A", call("transfer_to_n", id="n"), TO_B, handoffs=[no, b])

    journal = Recording()
    first = await Runner.run(make(), "Hi", run_config=RunConfig(run_id="r", executor=journal))
    second = await Runner.run(make(), "Hi", run_config=RunConfig(run_id="r", executor=Replaying(journal)))
    assert [one.id for one in first.handoffs] == ["h-r-1", "h-r-2", "h-r-3"]
    assert [one.status.value for one in first.handoffs] == ["REJECTED", "COMPLETED", "COMPLETED"]
    assert first.handoffs == second.handoffs
    assert first.messages == second.messages
