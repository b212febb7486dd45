"""Switching: a tool hands over by returning a typed request, and nothing else does."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from executors import Recording, Replaying
from hypothesis import given
from hypothesis import strategies as st
from plain_and_streamed import QUICK, Played, Voice, both, check
from pydantic import BaseModel
from scenes import facts
from scripted_agents import outcome

from routelock import (
    Agent,
    GuardrailResult,
    Handoff,
    HandoffError,
    HandoffRequest,
    RunConfig,
    RunContext,
    RunHooks,
    Runner,
    Tool,
    function_tool,
    handoff,
)
from routelock.errors import InputGuardrailTripped, LoopDetected, MaxHandoffsExceeded
from routelock.handlers.events import TextDelta
from routelock.handoff_request import HandoffStatus
from routelock.history.filters import remove_all_tools
from routelock.history.messages import text_of
from routelock.run.events import (
    AgentUpdated,
    HandoffFailed,
    HandoffOccurred,
    HandoffRequested,
    ToolCalled,
    ToolOutput,
)
from routelock.run.executor import Call, InProcess, Outcome
from routelock.testing import ScriptedHandler, assert_valid, call, reply
from routelock.tools.outcome import ToolResult
from routelock.usage import Usage

pytestmark = pytest.mark.anyio


def asks(value: Any, name: str = "ask", **options: Any) -> Tool:
    """A tool that returns this."""
    return Tool(name=name, on_invoke_tool=lambda context, arguments: value, **options)


@function_tool
async def add(a: int, b: int) -> int:
    """Add."""
    await anyio.lowlevel.checkpoint()
    return a + b


ADD = call("add", {"a": 1, "b": 2})


def desk(*replies: Any, tools: Sequence[Tool] = (), **options: Any) -> Agent[Any]:
    """An agent with a model, and with the tool ``add`` beside the others."""
    return Agent("A", "Be A.", model=ScriptedHandler(replies, name="model"), tools=[*tools, add], **options)


def to_specialist(*replies: Any, value: Any = None, first: Any = None, **options: Any) -> Agent[Any]:
    """An agent whose tool ``ask`` hands over to a handler that says these replies."""
    request = HandoffRequest("specialist") if value is None else value
    tools = [asks(request)]
    specialist = Voice("specialist", *replies)
    return desk(first or call("ask"), "Model again.", tools=tools, handlers=[specialist], **options)


# -- where to --


async def test_a_request_switches_to_a_handler_of_the_agent() -> None:
    played = await both(lambda: to_specialist("From the specialist."))
    assert played.result.final_output == "From the specialist."
    assert (played.result.last_handler, played.result.last_agent.name) == ("specialist", "A")
    assert played.statuses == [("A", "specialist", "taken")]


async def test_specialist_sees_the_call_with_its_result() -> None:
    played = await both(lambda: to_specialist("Done."))
    assert list(played.asked("specialist")[0].messages) == [
        {"role": "system", "content": "Be A."},
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1_0", "type": "function", "function": {"name": "ask", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1_0", "content": '{"assistant": "specialist"}'},
    ]


async def test_the_specialist_has_the_agents_tools() -> None:
    played = await both(lambda: to_specialist(ADD, "3"))
    assert played.answers == ['{"assistant": "specialist"}', "3"]
    assert [spec["function"]["name"] for spec in played.asked("specialist")[0].tools] == ["ask", "add"]


async def test_the_events_of_a_switch_come_in_order() -> None:
    played = await both(lambda: to_specialist("Done."))
    assert played.kinds == [
        "agent_updated",
        "message_done",
        "tool_called",
        "handoff_requested",
        "tool_output",
        "handoff_occurred",
        "message_done",
        "handoff_completed",
        "run_done",
    ]


async def test_the_switch_streams_on_in_the_same_iterator() -> None:
    played = await both(lambda: to_specialist("One two three."))
    place = next(n for n, event in enumerate(played.events) if isinstance(event, HandoffOccurred))
    after = [event.text for event in played.events[place:] if isinstance(event, TextDelta)]
    assert after == ["One", " two", " three."]


async def test_request_may_name_a_handler_object() -> None:
    """It need not be registered anywhere."""
    played = await both(
        lambda: desk(call("ask"), tools=[asks(HandoffRequest(Voice("guest", "Guest here.")))])
    )
    assert (played.result.final_output, played.result.last_handler) == ("Guest here.", "guest")


async def test_a_request_switches_to_an_agent_of_the_graph() -> None:
    """One that this agent declares no handoff to."""

    def make() -> Agent[Any]:
        c = Agent("C", "You are C.", model=Voice("c", "C here."))
        b = Agent("B", model=Voice("b"), handoffs=[c])
        return desk(call("ask"), tools=[asks(HandoffRequest("C"))], handoffs=[b])

    played = await both(make)
    assert (played.result.final_output, played.result.last_agent.name) == ("C here.", "C")
    assert played.statuses == [("A", "C", "taken")]


async def test_request_may_name_an_agent_of_the_config() -> None:
    c = Agent("C", model=ScriptedHandler(["C here."]))
    agent = desk(call("ask"), tools=[asks(HandoffRequest("C"))])
    result = await Runner.run(agent, "Hi", run_config=RunConfig(agents=[c]))
    assert result.last_agent is c


async def test_request_may_name_an_agent_object() -> None:
    """A stranger to the graph, and so are those it knows."""

    def make() -> Agent[Any]:
        d = Agent("D", model=Voice("d", "D here."))
        stranger = Agent("C", model=Voice("c", call("transfer_to_d")), handoffs=[d])
        return desk(call("ask"), tools=[asks(HandoffRequest(stranger))])

    played = await both(make)
    assert played.result.final_output == "D here."
    assert played.statuses == [("A", "C", "taken"), ("C", "D", "taken")]


async def test_an_agent_that_is_switched_to_is_announced() -> None:
    def make() -> Agent[Any]:
        return desk(call("ask"), tools=[asks(HandoffRequest(Agent("B", model=Voice("b", "B."))))])

    played = await both(make)
    updates = [event.agent for event in played.events if isinstance(event, AgentUpdated)]
    assert updates == ["A", "B"]


async def test_handler_is_preferred_to_an_agent_of_that_name() -> None:
    """It is the nearer one."""

    def make() -> Agent[Any]:
        b = Agent("B", model=Voice("b", "The agent."))
        c = Agent("C", model=Voice("c"), handoffs=[b])
        tools = [asks(HandoffRequest("B"))]
        return desk(call("ask"), tools=tools, handlers=[Voice("B", "The handler.")], handoffs=[c])

    assert (await both(make)).result.final_output == "The handler."


# -- declared handoffs --


class Ticket(BaseModel):
    number: int


def declared(*replies: Any, request: HandoffRequest, seen: list[Any], **options: Any) -> Agent[Any]:
    def on_handoff(context: RunContext[Any], *given: Any) -> None:
        seen.append(given)

    b = Agent("B", model=Voice("b", "B here."))
    declared = handoff(b, on_handoff=on_handoff, **options)
    return desk(*replies, tools=[asks(request)], handoffs=[declared])


@pytest.mark.parametrize("input", [{"number": 7}, Ticket(number=7)])
async def test_a_declared_handoffs_input_type_and_callback_count(input: Any) -> None:
    seen: list[Any] = []
    request = HandoffRequest("B", input=input)
    played = await both(
        lambda: declared(call("ask"), request=request, seen=seen, input_type=Ticket), run_id="r"
    )
    assert seen == [(Ticket(number=7),)] * 2
    assert played.result.handoffs[0].input == Ticket(number=7)


@pytest.mark.parametrize("input", [None, {"number": "seven"}, {"number": "7"}, {}, "7"])
async def test_an_input_that_does_not_fit_is_refused(input: Any) -> None:
    """What the handoff declares to take is checked for code as it is for a model."""
    seen: list[Any] = []
    request = HandoffRequest("B", input=input)
    played = await both(
        lambda: declared(call("ask"), "Model again.", request=request, seen=seen, input_type=Ticket)
    )
    assert played.statuses == [("A", "B", "failed")]
    assert seen == []
    assert played.result.final_output == "Model again."


async def test_a_declared_handoffs_filter_counts() -> None:
    def make() -> Agent[Any]:
        b = Agent("B", model=Voice("b", "B here."))
        tools = [asks(HandoffRequest("B"))]
        return desk(call("ask"), tools=tools, handoffs=[handoff(b, input_filter=remove_all_tools)])

    played = await both(make)
    shown = played.result.calls[1].messages
    assert [message["role"] for message in shown] == ["user"]


async def test_a_declared_handoff_counts_for_the_agent_itself() -> None:
    """Given as the object it is the same handoff as by its name."""
    seen: list[Any] = []

    def make() -> Agent[Any]:
        b = Agent("B", model=Voice("b", "B here."))
        declared = handoff(b, on_handoff=lambda context: seen.append(context.agent))
        return desk(call("ask"), tools=[asks(HandoffRequest(b))], handoffs=[declared])

    await both(make)
    assert seen == ["A", "A"]


async def test_handoff_declared_by_name_applies_to_the_agent() -> None:
    seen: list[Any] = []

    def make() -> Agent[Any]:
        b = Agent("B", model=Voice("b", "B here."))
        declared = handoff("B", on_handoff=lambda context: seen.append(context.agent))
        other = Agent("C", model=Voice("c"), handoffs=[b])
        return desk(call("ask"), tools=[asks(HandoffRequest(b))], handoffs=[declared, other])

    await both(make)
    assert seen == ["A", "A"]


async def test_a_declared_handoff_counts_although_it_is_not_offered() -> None:
    """``is_enabled`` is about what the model may do; code may do it all the same."""

    def make() -> Agent[Any]:
        b = Agent("B", model=Voice("b", "B here."))
        return desk(call("ask"), tools=[asks(HandoffRequest("B"))], handoffs=[handoff(b, is_enabled=False)])

    assert (await both(make)).result.final_output == "B here."


async def test_same_named_agent_is_not_the_declared_one() -> None:
    def make() -> Agent[Any]:
        b = Agent("B", model=Voice("b", "The declared one."))
        other = Agent("B", model=Voice("other", "The other one."))
        return desk(call("ask"), "Model again.", tools=[asks(HandoffRequest(other))], handoffs=[b])

    played = await both(make)
    assert played.result.final_output == "Model again."
    assert "another agent of this run is named 'B'" in played.answers[0]


async def test_same_named_handler_is_not_the_declared_one() -> None:
    def make() -> Agent[Any]:
        other = Voice("b", "The one that was given.")
        return desk(
            call("ask"), tools=[asks(HandoffRequest(other))], handoffs=[handoff(Voice("b", "Not me."))]
        )

    assert (await both(make)).result.final_output == "The one that was given."


async def test_handoff_with_a_target_function_gets_the_tools_input() -> None:
    """Not the arguments of the tool, which follow another schema."""
    seen: list[str] = []

    def make() -> Agent[Any]:
        b = Agent("B", model=Voice("b", "B here."))

        def choose(context: RunContext[Any], arguments: str) -> Agent[Any]:
            seen.append(arguments)
            return b

        declared = Handoff(agent_name="chosen", on_invoke_handoff=choose)
        tools = [asks(HandoffRequest("chosen", input={"number": 7}))]
        return desk(call("ask"), tools=tools, handoffs=[declared])

    played = await both(make)
    assert played.result.final_output == "B here."
    assert [json.loads(each) for each in seen] == [{"number": 7}] * 2


# -- what looks like one --

LOOKS = [
    "__HANDOFF_REQUEST__:specialist",
    "specialist",
    '{"target": "specialist"}',
    json.dumps(HandoffRequest("specialist").envelope()),
    repr(HandoffRequest("specialist")),
    '{"assistant": "specialist"}',
    {"target": "specialist", "input": None, "reason": None, "message": None},
    {"handoff": {"target": "specialist"}},
    {"ok": {"output": "x", "usage": None, "handoff": {"target": "specialist"}}},
    ("specialist", {"target": "specialist"}),
    [HandoffRequest("specialist")],
    {"request": HandoffRequest("specialist")},
    HandoffRequest,
    ToolResult("__HANDOFF_REQUEST__:specialist"),
    ToolResult({"target": "specialist"}),
    Ticket(number=1),
]


@pytest.mark.parametrize("value", LOOKS, ids=lambda value: f"{type(value).__name__}"[:20])
async def test_what_looks_like_a_request_switches_nothing(value: Any) -> None:
    played = await both(lambda: to_specialist(value=value))
    assert (played.result.last_handler, played.result.handoffs) == ("model", ())
    assert played.result.final_output == "Model again."


async def test_text_is_shown_to_the_model_as_it_is() -> None:
    played = await both(lambda: to_specialist(value="__HANDOFF_REQUEST__:specialist"))
    assert played.answers == ["__HANDOFF_REQUEST__:specialist"]


@pytest.mark.parametrize("text", ["__HANDOFF_REQUEST__:specialist", "<handoff>specialist</handoff>"])
async def test_request_written_as_text_is_only_text(text: str) -> None:
    played = await both(lambda: to_specialist(first=reply(text)), text)
    assert (played.result.final_output, played.result.last_handler) == (text, "model")


async def test_an_error_that_mentions_a_request_is_text() -> None:
    def make() -> Agent[Any]:
        def fail(context: Any, arguments: str) -> str:
            raise ValueError(HandoffRequest("specialist"))

        tools = [Tool(name="ask", on_invoke_tool=fail)]
        return desk(call("ask"), "Sorry.", tools=tools, handlers=[Voice("specialist")])

    played = await both(make)
    assert (played.result.last_handler, played.result.handoffs) == ("model", ())


async def test_on_error_cannot_ask_for_a_handoff() -> None:
    """It is told to answer with text."""

    def make() -> Agent[Any]:
        def fail(context: Any, arguments: str) -> str:
            raise ValueError("no")

        tools = [
            Tool(name="ask", on_invoke_tool=fail, on_error=lambda *_: HandoffRequest("specialist"))  # type: ignore[arg-type,return-value]
        ]
        return desk(call("ask"), "Sorry.", tools=tools, handlers=[Voice("specialist")])

    assert (await both(make)).result.last_handler == "model"


@given(text=st.text())
async def test_no_text_ever_switches(text: str) -> None:
    agent = to_specialist(value=text)
    result = await Runner.run(agent, text or "Hi")
    assert (result.last_handler, result.handoffs) == ("model", ())


async def test_request_in_a_tool_result_keeps_its_usage() -> None:
    used = Usage(input_tokens=3)
    value = ToolResult(HandoffRequest("specialist"), usage=used)
    played = await both(lambda: to_specialist("Done.", value=value))
    assert played.result.last_handler == "specialist"
    assert played.result.usage.input_tokens == 23


# -- siblings --


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_siblings_of_a_request_are_answered_in_call_order(place: int) -> None:
    """In webagents a break after the marker left siblings without results."""
    calls = [call("add", {"a": n, "b": 0}, id=f"add{n}") for n in (1, 2)]
    calls.insert(place, call("ask", id="ask"))
    played = await both(lambda: to_specialist("Done.", first=calls))
    expected = ["1", "2"]
    expected.insert(place, '{"assistant": "specialist"}')
    assert played.answers == expected
    assert played.result.last_handler == "specialist"
    assert_valid(played.asked("specialist")[0].messages)


async def test_a_sibling_that_does_not_exist_is_answered_too() -> None:
    played = await both(
        lambda: to_specialist("Done.", first=[call("nothing"), call("ask"), call("add", "{")])
    )
    assert played.result.final_output == "Done."
    assert len(played.answers) == 3


async def test_each_call_has_one_output_event() -> None:
    played = await both(lambda: to_specialist("Done.", first=[call("ask", id="q"), call("add", "{", id="a")]))
    called = [event.call_id for event in played.events if isinstance(event, ToolCalled)]
    outputs = {event.call_id: event.output for event in played.events if isinstance(event, ToolOutput)}
    assert called == ["q", "a"]
    assert outputs["q"] == '{"assistant": "specialist"}'
    assert set(outputs) == {"q", "a"}


def two_requests(*more: Any, **options: Any) -> Agent[Any]:
    tools = [asks(HandoffRequest("s1", reason="one"), "ask1"), asks(HandoffRequest("s2", input=2), "ask2")]
    handlers = [Voice("s1", "One."), Voice("s2", "Two.")]
    return desk([call("ask1"), ADD, call("ask2")], *more, tools=tools, handlers=handlers, **options)


async def test_first_request_in_call_order_is_taken() -> None:
    played = await both(two_requests)
    assert played.result.final_output == "One."
    assert played.answers == [
        '{"assistant": "s1"}',
        "3",
        "Multiple handoffs detected, ignoring this one.",
    ]
    assert sorted(played.statuses) == [("A", "s1", "taken"), ("A", "s2", "not_taken")]


async def test_two_requests_can_be_rejected() -> None:
    played = await both(lambda: two_requests("Model again."), multiple_handoffs="reject")
    assert played.result.final_output == "Model again."
    assert [status for _, _, status in played.statuses] == ["not_taken", "not_taken"]
    assert played.result.errors == ()


async def test_every_request_record_has_reason_and_input() -> None:
    played = await both(lambda: two_requests("Model again."), multiple_handoffs="reject")
    assert [(record.reason, record.input) for record in played.result.handoffs] == [("one", None), (None, 2)]
    assert {record.requested_by for record in played.result.handoffs} == {"tool"}


def request_and_transfer(order: int, *more: Any) -> Agent[Any]:
    first = [call("ask"), call("transfer_to_b")][::order]
    b = Agent("B", model=Voice("b", "B here."))
    tools = [asks(HandoffRequest("specialist"))]
    return desk(first, *more, tools=tools, handlers=[Voice("specialist", "Specialist.")], handoffs=[b])


@pytest.mark.parametrize(("order", "output"), [(1, "Specialist."), (-1, "B here.")])
async def test_request_and_transfer_compete_in_call_order(order: int, output: str) -> None:
    played = await both(lambda: request_and_transfer(order))
    assert played.result.final_output == output
    assert sorted(outcome(record) for record in played.result.handoffs) == ["not_taken", "taken"]
    assert_valid(played.result.calls[-1].messages)


@pytest.mark.parametrize("order", [1, -1])
async def test_request_and_transfer_can_both_be_rejected(order: int) -> None:
    played = await both(lambda: request_and_transfer(order, "Again."), multiple_handoffs="reject")
    assert [outcome(record) for record in played.result.handoffs] == ["not_taken"] * 2
    assert played.result.final_output == "Again."
    assert all(answer.startswith("Several transfers were asked for at once") for answer in played.answers)


async def test_skipped_request_stays_in_the_targets_view() -> None:
    """It is the call of a tool that ran, and its effects are real."""
    played = await both(two_requests)
    assert (
        played.asked("s1")[0].messages[-1].get("content") == "Multiple handoffs detected, ignoring this one."
    )


async def test_unknown_request_beside_a_good_one_is_ignored() -> None:
    def make() -> Agent[Any]:
        tools = [asks(HandoffRequest("nobody"), "ask1"), asks(HandoffRequest("s"), "ask2")]
        return desk([call("ask1"), call("ask2")], tools=tools, handlers=[Voice("s", "S here.")])

    played = await both(make, multiple_handoffs="reject")
    assert played.result.final_output == "S here."


# -- what cannot be made --


async def test_an_unknown_target_is_an_error_of_the_tool() -> None:
    played = await both(lambda: to_specialist(value=HandoffRequest("nobody")))
    why = "Handoff target 'nobody' was not found. There are: specialist."
    assert played.answers == [f"The transfer to 'nobody' was not made: {why}"]
    assert played.statuses == [("A", "nobody", "failed")]
    assert [problem.kind for problem in played.result.errors] == ["handoff"]
    assert [event.error for event in played.events if isinstance(event, ToolOutput)] == ["handoff"]
    assert played.result.final_output == "Model again."


async def test_an_unknown_target_is_not_shown_as_text() -> None:
    """It was streamed to the user."""
    played = await both(lambda: to_specialist(value=HandoffRequest("nobody")))
    assert "".join(event.text for event in played.events if isinstance(event, TextDelta)) == "Model again."


async def test_an_unknown_target_is_no_mistake_of_the_model() -> None:
    def make() -> Agent[Any]:
        return desk(
            *[call("ask", id=str(n)) for n in range(2)], "Sorry.", tools=[asks(HandoffRequest("nobody"))]
        )

    assert (await both(make, max_mistakes=1)).result.final_output == "Sorry."


class Named:
    name = "named"


async def test_target_without_a_model_is_a_tool_error() -> None:
    """The run goes on: it is the tool's mistake, and the model may know another way."""
    value = HandoffRequest(Named())
    played = await both(lambda: to_specialist(value=value))
    assert played.result.final_output == "Model again."
    assert "has no stream method" in played.answers[0]


async def test_target_with_an_invalid_scope_is_a_tool_error() -> None:
    odd: Any = 5
    played = await both(lambda: to_specialist(value=HandoffRequest(Voice("v", scope=odd))))
    assert played.result.final_output == "Model again."


async def test_an_agent_cannot_be_asked_for_by_itself() -> None:
    played = await both(lambda: to_specialist(value=HandoffRequest("A")))
    assert "an agent cannot hand off to itself" in played.answers[0]
    assert played.statuses == [("A", "A", "failed")]


async def test_active_handler_cannot_be_asked_for() -> None:
    played = await both(lambda: to_specialist(value=HandoffRequest("model")))
    assert "it is active already" in played.answers[0]


async def test_a_callback_that_raises_refuses_the_request() -> None:
    def make() -> Agent[Any]:
        def no(context: RunContext[Any]) -> None:
            raise LookupError("nobody is there")

        b = Agent("B", model=Voice("b"))
        tools = [asks(HandoffRequest("B"))]
        return desk(call("ask"), "Model again.", tools=tools, handoffs=[handoff(b, on_handoff=no)])

    played = await both(make)
    assert played.answers == ["The transfer to 'B' was not made: LookupError: nobody is there"]
    assert played.result.final_output == "Model again."
    (problem,) = played.result.errors
    assert isinstance(problem.error, LookupError)


async def test_failed_request_can_end_the_run() -> None:
    played = await both(lambda: to_specialist(value=HandoffRequest("A")), raise_on=["failed_handoff"])
    assert isinstance(played.error, HandoffError)
    assert played.statuses == [("A", "A", "failed")]


async def test_an_odd_input_does_not_end_the_run() -> None:
    circle: list[Any] = []
    circle.append(circle)
    value = HandoffRequest("specialist", input=circle)
    # not compared: two circles are never found equal
    assert (await Runner.run(to_specialist("Done.", value=value), "Hi")).final_output == "Done."
    streamed = await Runner.run_streamed(to_specialist("Done.", value=value), "Hi").drain()
    assert streamed.final_output == "Done."


# -- what it carries --


async def test_the_input_reaches_the_request_and_the_record() -> None:
    value = HandoffRequest("specialist", input={"url": "x"}, reason="too hard")
    played = await both(lambda: to_specialist(ADD, "Done.", value=value))
    assert [request.handoff_input for request in played.asked("specialist")] == [{"url": "x"}] * 2
    (record,) = played.result.handoffs
    assert (record.input, record.reason, record.requested_by) == ({"url": "x"}, "too hard", "tool")
    assert (record.source, record.target, record.tool_name) == ("A", "specialist", "ask")
    (occurred,) = [event for event in played.events if isinstance(event, HandoffOccurred)]
    assert occurred.reason == "too hard"


async def test_a_models_own_transfer_is_recorded_as_the_models() -> None:
    played = await both(
        lambda: to_specialist("Done.", first=call("transfer_to_b"), handoffs=[Voice("b", "B.")])
    )
    assert [record.requested_by for record in played.result.handoffs] == ["model"]


async def test_the_input_is_gone_with_the_next_switch() -> None:
    def make() -> Agent[Any]:
        tools = [asks(HandoffRequest("s1", input="for s1"), "go1"), asks(HandoffRequest("s2"), "go2")]
        handlers = [Voice("s1", call("go2")), Voice("s2", "Done.")]
        return desk(call("go1"), tools=tools, handlers=handlers)

    played = await both(make)
    assert [request.handoff_input for request in played.asked("s1")] == ["for s1"]
    assert [request.handoff_input for request in played.asked("s2")] == [None]


async def test_the_input_reaches_the_handler_of_an_agent() -> None:
    b = Voice("b", "B.")
    agent = desk(call("ask"), tools=[asks(HandoffRequest(Agent("B", model=b), input=[1]))])
    await Runner.run(agent, "Hi")
    assert [request.handoff_input for request in b.requests] == [[1]]


async def test_the_default_is_given_no_input() -> None:
    played = await both(lambda: to_specialist("Done.", value=HandoffRequest("specialist", input=1)))
    assert [request.handoff_input for request in played.asked("model")] == [None]


async def test_the_answer_may_be_the_tools_own() -> None:
    value = HandoffRequest("specialist", message="I ask the expert.")
    played = await both(lambda: to_specialist("Done.", value=value))
    assert played.answers == ["I ask the expert."]


async def test_record_of_a_failed_request_has_reason_and_input() -> None:
    value = HandoffRequest("A", input=1, reason="why")
    (record,) = (await both(lambda: to_specialist(value=value))).result.handoffs
    assert (outcome(record), record.input, record.reason) == ("failed", 1, "why")


# -- chaining --


def chained(*names: str, replies: Any = "Done.") -> Agent[Any]:
    """The model goes to the first name, that one to the second, and so on; the last one answers."""
    tools = [asks(HandoffRequest(name), f"to_{name}") for name in dict.fromkeys([*names, "model"])]
    steps: dict[str, list[Any]] = {name: [] for name in ("model", *names)}
    for source, target in zip(("model", *names), names, strict=False):
        steps[source].append(call(f"to_{target}"))
    steps[names[-1]].append(replies)
    handlers = [Voice(name, *steps[name]) for name in dict.fromkeys(names) if name != "model"]
    return desk(*steps["model"], tools=tools, handlers=handlers)


async def test_a_handoff_can_lead_to_another() -> None:
    played = await both(lambda: chained("s1", "s2"))
    assert (played.result.final_output, played.result.last_handler) == ("Done.", "s2")
    assert played.statuses == [("A", "s1", "taken"), ("s1", "s2", "taken")]


async def test_a_handoff_can_lead_back_to_the_default() -> None:
    played = await both(lambda: chained("s1", "s2", "model"))
    assert played.result.last_handler == "model"
    assert [made.handler for made in played.result.calls] == ["model", "s1", "s2", "model"]


async def test_default_handler_is_active_again_after_a_return() -> None:
    """The same speaker has the same name, or the loop guard would not know it."""
    played = await both(lambda: chained("s1", "model", "s2"))
    assert [source for source, _, _ in played.statuses] == ["A", "s1", "A"]


async def test_going_round_is_noticed() -> None:
    """Handlers that send the conversation to and fro get nowhere: the first repetition is refused."""
    played = await both(lambda: chained("s1", "model", "s1", "model", "s1", replies="Model again."))
    assert isinstance(played.error, LoopDetected)
    assert [outcome(record) for record in played.result.handoffs] == ["taken", "taken", "failed", "failed"]


async def test_going_round_is_noticed_although_the_arguments_differ() -> None:
    """A tool that does nothing but hand over finds nothing out."""

    def make() -> Agent[Any]:
        @function_tool
        def go(why: str) -> HandoffRequest:
            """Go."""
            return HandoffRequest("s")

        @function_tool
        def back(why: str) -> HandoffRequest:
            """Go back."""
            return HandoffRequest("model")

        said = [{"why": str(n)} for n in range(9)]
        handler = Voice("s", *[call("back", each) for each in said])
        return desk(*[call("go", each) for each in said], tools=[go, back], handlers=[handler])

    played = await both(make, max_handoffs=None)
    assert isinstance(played.error, LoopDetected)
    assert [outcome(record) for record in played.result.handoffs][:3] == ["taken", "taken", "failed"]


async def test_the_limit_of_transfers_holds() -> None:
    """The third is refused, and the active agent may still answer."""

    def make() -> Agent[Any]:
        tools = [asks(HandoffRequest(f"s{n}"), f"go{n}") for n in (1, 2, 3)]
        handlers = [Voice("s1", call("go2")), Voice("s2", call("go3"), "I stay."), Voice("s3")]
        return desk(call("go1"), tools=tools, handlers=handlers)

    played = await both(make, max_handoffs=2)
    assert [outcome(record) for record in played.result.handoffs] == ["taken", "taken", "failed"]
    assert "the limit of 2 transfers is reached" in played.answers[-1]
    assert played.result.final_output == "I stay."


async def test_asking_again_after_the_limit_ends_the_run() -> None:
    def make() -> Agent[Any]:
        return desk(*[call("ask", id=str(n)) for n in range(9)], tools=[asks(HandoffRequest(Voice("s")))])

    played = await both(make, max_handoffs=0)
    assert isinstance(played.error, MaxHandoffsExceeded)
    assert len(played.result.handoffs) == 2


async def test_the_next_run_starts_at_the_default() -> None:
    agent = desk(
        call("ask"), "Model here.", tools=[asks(HandoffRequest("s"))], handlers=[Voice("s", "S here.")]
    )
    assert (await Runner.run(agent, "Hi")).last_handler == "s"
    assert (await Runner.run(agent, "Hi")).final_output == "Model here."


# -- hooks --


async def test_hooks_see_the_request_as_a_handoff() -> None:
    seen: list[tuple[str, ...]] = []

    class Watch(RunHooks):
        async def on_handoff(self, context: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            seen.append((from_agent.name, to_agent.name))

    await Runner.run(to_specialist("Done."), "Hi", hooks=Watch())
    assert seen == [("A", "specialist")]


# -- replay --


@pytest.mark.parametrize(
    "make",
    [
        lambda: to_specialist("Done.", value=HandoffRequest("specialist", input={"n": 1}, reason="why")),
        lambda: to_specialist(value=HandoffRequest("nobody")),
        lambda: two_requests(),
        lambda: request_and_transfer(-1),
        lambda: chained("s1", "s2", "model"),
        lambda: to_specialist("Done.", value=ToolResult(HandoffRequest("specialist"), usage=Usage(cost=1))),
        lambda: to_specialist(value="__HANDOFF_REQUEST__:specialist"),
    ],
)
async def test_a_replayed_run_switches_again_without_running_a_tool(make: Callable[[], Agent[Any]]) -> None:
    recording = Recording()
    first = await Runner.run(make(), "Hi", run_config=RunConfig(executor=recording, run_id="r", retry=QUICK))
    replay = RunConfig(executor=Replaying(recording), run_id="r", retry=QUICK)
    again = await Runner.run(make(), "Hi", run_config=replay)
    assert facts(first) == facts(again)
    assert first.last_handler == again.last_handler


async def test_replay_finds_an_agent_given_as_an_object() -> None:
    recording = Recording()

    def make() -> Agent[Any]:
        b = Agent("B", model=Voice("b", "B here."))
        return desk(
            call("ask"), tools=[asks(HandoffRequest(b))], handoffs=[Agent("C", model="m", handoffs=[b])]
        )

    for executor in (recording, Replaying(recording)):
        result = await Runner.run(make(), "Hi", run_config=RunConfig(executor=executor, run_id="r"))
        assert result.final_output == "B here."


async def test_journal_has_only_requested_handoffs() -> None:
    recording = Recording()
    config = RunConfig(executor=recording, run_id="r")
    await Runner.run(to_specialist("Done.", first=[call("ask"), ADD]), "Hi", run_config=config)
    steps = [step for key, step in recording.journal.items() if ".tool." in key[1]]
    assert ["handoff" in step["ok"] for step in steps] == [True, False]


async def test_an_engine_may_run_a_request_again() -> None:
    """At least once is what engines promise: still one switch."""

    class Twice(InProcess):
        async def gather(
            self, calls: Sequence[Call], body: Callable[[Call], Awaitable[Outcome]]
        ) -> Sequence[Outcome]:
            await InProcess().gather(calls, body)
            return await InProcess().gather(calls, body)

    played = await both(lambda: to_specialist("Done."), executor=Twice())
    assert played.statuses == [("A", "specialist", "taken")]


# -- cancelled in between --


async def test_run_cancelled_before_a_requested_handoff_records_it() -> None:
    scope = anyio.CancelScope()

    async def on_handoff(context: RunContext[Any]) -> None:
        scope.cancel()
        await anyio.lowlevel.checkpoint()

    b = Agent("B", model=Voice("b"))
    agent = desk(
        [call("ask"), ADD], tools=[asks(HandoffRequest("B"))], handoffs=[handoff(b, on_handoff=on_handoff)]
    )
    stream = Runner.run_streamed(agent, "Hi")
    with scope:
        await stream.drain()
    answers = [text_of(item.message) for item in stream.result.new_items if item.message["role"] == "tool"]
    assert answers == ["It asked for a transfer to 'B', and the run ended before that was made.", "3"]
    (record,) = stream.result.handoffs
    assert (record.target, record.taken, record.status) == ("B", False, HandoffStatus.FAILED)
    assert_valid(stream.result.to_input_list())


@pytest.mark.parametrize("kind", [ToolCalled, ToolOutput, HandoffRequested, HandoffOccurred])
async def test_a_stream_may_be_left_anywhere_around_a_switch(kind: type[Any]) -> None:
    agent = to_specialist("Done.", first=[ADD, call("ask")])
    async with Runner.run_streamed(agent, "Hi") as stream:
        async for event in stream:
            if isinstance(event, kind):
                break
    assert_valid(stream.result.to_input_list())
    ids = [item.message.get("tool_call_id") for item in stream.result.new_items if item.kind == "tool"]
    assert len(set(ids)) == len(ids)


# -- ends with the turn --


async def test_a_turn_that_ends_the_run_makes_no_transfer() -> None:
    def make() -> Agent[Any]:
        def fail(context: Any, arguments: str) -> str:
            raise ValueError("broken")

        tools = [asks(HandoffRequest("s")), Tool(name="fail", on_invoke_tool=fail, on_error="raise")]
        return desk([call("ask"), call("fail")], tools=tools, handlers=[Voice("s")])

    played = await both(make)
    assert played.error is not None
    assert played.answers[0] == "A call beside it stops the agent, so nothing was handed over."
    assert played.statuses == [("A", "s", "not_taken")]
    check(dataclasses.replace(played, error=None))


async def test_failed_and_refused_requests_are_announced() -> None:
    played: Played = await both(two_requests)
    failed = [event for event in played.events if isinstance(event, HandoffFailed)]
    assert [(event.source, event.target) for event in failed] == [("A", "s2")]


async def test_handler_gets_the_input_of_its_handoff() -> None:
    def make() -> Agent[Any]:
        declared = handoff(Voice("s", "Done."), input_type=Ticket)
        return desk(call("transfer_to_s", {"number": 7}), handoffs=[declared])

    played = await both(make)
    assert played.result.handoffs[0].input == Ticket(number=7)


async def test_input_guardrails_of_a_requested_target_hold() -> None:
    def make() -> Agent[Any]:
        b = Agent("B", model=Voice("b"), input_guardrails=[lambda *_: GuardrailResult(True)])
        return desk(call("ask"), tools=[asks(HandoffRequest(b))])

    played = await both(make)
    assert isinstance(played.error, InputGuardrailTripped)
    assert played.statuses == [("A", "B", "taken")]


async def test_a_request_to_a_handler_starts_no_agent_anew() -> None:
    """Its guardrails and hooks were told already: it is the same agent that speaks."""
    seen: list[str] = []

    def note(*_: Any) -> GuardrailResult:
        seen.append("guardrail")
        return GuardrailResult(False)

    await Runner.run(to_specialist("Done.", input_guardrails=[note]), "Hi")
    assert seen == ["guardrail"]


async def test_agents_output_rules_hold_for_its_handlers() -> None:
    played = await both(lambda: to_specialist('{"number": 7}', output_type=Ticket))
    assert played.result.final_output == Ticket(number=7)


async def test_specialist_corrects_an_invalid_output() -> None:
    played = await both(lambda: to_specialist("seven", '{"number": 7}', output_type=Ticket))
    assert [made.handler for made in played.result.calls] == ["model", "specialist", "specialist"]


async def test_result_of_a_request_is_a_tool_result() -> None:
    """Filters that drop handoffs keep what tools did."""
    played = await both(lambda: to_specialist("Done.", first=[call("ask"), ADD]))
    assert [item.kind for item in played.result.new_items] == ["model", "tool", "tool", "model"]
    refused = await both(two_requests)
    assert [item.kind for item in refused.result.new_items] == ["model", "tool", "tool", "tool", "model"]


async def test_a_refused_request_is_no_mistake_of_the_model() -> None:
    """It asked for what is on offer."""
    value = HandoffRequest("A")
    played = await both(lambda: to_specialist(value=value), max_mistakes=1)
    assert played.result.final_output == "Model again."


async def test_several_requests_are_not_a_mistake() -> None:
    played = await both(lambda: two_requests_only("Model again."), multiple_handoffs="reject", max_mistakes=1)
    assert played.result.final_output == "Model again."


def two_requests_only(*more: Any) -> Agent[Any]:
    tools = [asks(HandoffRequest("s1"), "ask1"), asks(HandoffRequest("s2"), "ask2")]
    handlers = [Voice("s1"), Voice("s2")]
    return desk([call("ask1"), call("ask2")], *more, tools=tools, handlers=handlers)


async def test_repeatedly_refused_request_ends_the_run() -> None:
    """No mistake of the model, but no way on either."""

    def make() -> Agent[Any]:
        def no(context: RunContext[Any]) -> None:
            raise LookupError("closed")

        b = Agent("B", model=Voice("b"))
        declared = handoff(b, on_handoff=no)
        return desk(*[call("ask")] * 9, tools=[asks(HandoffRequest("B"))], handoffs=[declared])

    played = await both(make)
    assert isinstance(played.error, LoopDetected)
    assert len(played.result.handoffs) == 6
    assert [item.kind for item in played.result.new_items].count("nudge") == 1


async def test_handoff_with_a_target_function_gets_an_empty_object() -> None:
    seen: list[str] = []

    def make() -> Agent[Any]:
        def choose(context: RunContext[Any], arguments: str) -> Any:
            seen.append(arguments)
            return Voice("s", "S.")

        declared = Handoff(agent_name="chosen", on_invoke_handoff=choose)
        return desk(call("ask"), tools=[asks(HandoffRequest("chosen"))], handoffs=[declared])

    await both(make)
    assert seen == ["{}", "{}"]


@pytest.mark.parametrize("reason", [None, "the tool's"])
async def test_reason_of_the_tool_precedes_the_declared_one(
    reason: str | None,
) -> None:
    def make() -> Agent[Any]:
        declared = handoff(Agent("B", model=Voice("b", "B.")), reason="declared")
        return desk(call("ask"), tools=[asks(HandoffRequest("B", reason=reason))], handoffs=[declared])

    (record,) = (await both(make)).result.handoffs
    assert record.reason == (reason or "declared")


async def test_agents_outside_the_graph_may_name_each_other() -> None:
    def make() -> Agent[Any]:
        d = Agent("D", model=Voice("d", call("transfer_to_c")), handoffs=["C"])
        stranger = Agent("C", model=Voice("c", call("transfer_to_d"), "C again."), handoffs=[d])
        return desk(call("ask"), tools=[asks(HandoffRequest(stranger))])

    played = await both(make)
    assert played.result.final_output == "C again."


async def test_requests_that_differ_are_not_the_same_request_again() -> None:
    """Six that are refused one after the other are no loop as long as the model tries something else."""

    def make() -> Agent[Any]:
        @function_tool
        def ask(why: str) -> HandoffRequest:
            """Ask."""
            return HandoffRequest("A")

        calls = [call("ask", {"why": str(n)}) for n in range(7)]
        return desk(*calls, "I do it myself.", tools=[ask])

    assert (await both(make)).result.final_output == "I do it myself."


async def test_events_name_source_and_target_of_a_request() -> None:
    played = await both(lambda: chained("s1", "s2"))
    kinds = (HandoffRequested, HandoffOccurred)
    ways = [(event.type, event.source, event.target) for event in played.events if isinstance(event, kinds)]
    assert ways == [
        ("handoff_requested", "A", "s1"),
        ("handoff_occurred", "A", "s1"),
        ("handoff_requested", "s1", "s2"),
        ("handoff_occurred", "s1", "s2"),
    ]


async def test_a_model_step_says_what_was_passed_along() -> None:
    recording = Recording()
    agent = to_specialist("Done.", value=HandoffRequest("specialist", input=Ticket(number=7)))
    await Runner.run(agent, "Hi", run_config=RunConfig(executor=recording, run_id="r"))
    given_ = [step.args.get("handoff_input") for step in recording.calls if step.op == "model"]
    assert given_ == [None, {"number": 7}]
    assert "handoff_input" not in recording.calls[0].args


async def test_a_request_among_other_things_is_the_tools_mistake() -> None:
    """It would make no handoff, and the model would read it as data."""
    model = ScriptedHandler([call("ask"), "I stay."])
    tools = [asks([HandoffRequest("B")])]
    result = await Runner.run(Agent("A", model=model, tools=tools, handoffs=[Agent("B", model=model)]), "Hi")
    assert (result.final_output, result.handoffs) == ("I stay.", ())
    assert "must be returned by itself" in result.errors[0].message
