"""The events of a run: messages, calls in pieces, handoffs and outcomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ag_ui_client import kinds, of_kind

from routelock.handlers.events import AttemptFailed, MessageDone, TextDelta, ToolCallDelta
from routelock.run.events import AgentUpdated, HandoffFailed, ToolOutput
from routelock.serving.ag_ui.events import RunEvents
from routelock.serving.ag_ui.interrupts import Interrupt
from routelock.serving.completions import DeltaWriter
from routelock.serving.errors import Refusal
from routelock.tools.approvals import Interruption


def events(*, is_hidden: Callable[[str], bool] = lambda _: False, **shown: str) -> RunEvents:
    made = RunEvents(
        "t", "r", writer=DeltaWriter(agents=["A"]), is_hidden=is_hidden, is_current=True, shown=shown
    )
    made.take(AgentUpdated("A"))
    return made


def piece(arguments: str, index: int = 0, name: str = "f") -> ToolCallDelta:
    return ToolCallDelta(index, f"own{index}", name, arguments)


def done(*arguments: str, content: str | None = None) -> MessageDone:
    calls: Any = [
        {"id": f"own{index}", "type": "function", "function": {"name": "f", "arguments": each}}
        for index, each in enumerate(arguments)
    ]
    return MessageDone(message={"role": "assistant", "content": content, "tool_calls": calls})


def taken(of: RunEvents, *given: Any) -> list[dict[str, Any]]:
    return [event for each in given for event in of.take(each)]


def arguments_in(made: list[dict[str, Any]]) -> list[str]:
    return [event["delta"] for event in of_kind(made, "TOOL_CALL_ARGS")]


def test_arguments_come_in_pieces() -> None:
    made = taken(events(), piece(""), piece('{"a"'), piece(": 1}"), done('{"a": 1}'))
    assert arguments_in(made) == ['{"a"', ": 1}"]
    assert kinds(made) == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]


def test_a_call_that_was_not_streamed_comes_whole() -> None:
    made = taken(events(), done('{"a": 1}'))
    assert arguments_in(made) == ['{"a": 1}']


def test_a_call_without_arguments_has_an_empty_object() -> None:
    assert arguments_in(taken(events(), piece("{}"), done("{}"))) == ["{}"]


@pytest.mark.parametrize("pieces", [("{}", '{"a": 1}'), ('{"a": "\ud83d', '\ude00"}')])
def test_a_piece_that_may_not_stand_is_held(pieces: tuple[str, ...]) -> None:
    """An empty object before the arguments, and half of a character."""
    whole = pieces[-1] if pieces[0] == "{}" else '{"a": "\U0001f600"}'
    made = taken(events(), *map(piece, pieces), done(whole))
    assert "".join(arguments_in(made)) == whole


def test_calls_at_once_belong_to_one_message() -> None:
    made = taken(events(), piece("{", 0), piece("{", 1), piece("}", 0), piece("}", 1), done("{}", "{}"))
    begun = of_kind(made, "TOOL_CALL_START")
    assert len({event["parentMessageId"] for event in begun}) == 1
    assert len({event["toolCallId"] for event in begun}) == 2


def test_a_call_has_the_message_of_the_text_before_it() -> None:
    made = taken(events(), TextDelta("Look:"), piece('{"a"'), done('{"a": 1}', content="Look:"))
    assert kinds(made)[:4] == [
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
    ]
    assert made[0]["messageId"] == of_kind(made, "TOOL_CALL_START")[0]["parentMessageId"]


def test_text_after_a_call_goes_on_in_the_same_message() -> None:
    made = taken(events(), TextDelta("One."), piece('{"a"'), TextDelta(" Two."), done('{"a": 1}'))
    assert len({event["messageId"] for event in of_kind(made, "TEXT_MESSAGE_START")}) == 1


def test_each_reply_is_a_message_without_blank_lines() -> None:
    made = events()
    both = taken(made, TextDelta("One."), done(content="One."), TextDelta("Two."), done(content="Two."))
    assert [event["delta"] for event in of_kind(both, "TEXT_MESSAGE_CONTENT")] == ["One.", "Two."]
    assert len({event["messageId"] for event in both}) == 2


def test_an_attempt_that_failed_ends_its_message() -> None:
    failed = AttemptFailed(error=ValueError(), attempt=1, delay=0)
    assert kinds(taken(events(), TextDelta("One."), failed))[-1] == "TEXT_MESSAGE_END"


def test_a_hidden_call_has_no_events() -> None:
    made = events(is_hidden=lambda name: name == "f")
    output = ToolOutput(agent="A", call_id="own0", name="f", output="x")
    assert taken(made, piece('{"a"'), done('{"a": 1}'), output) == []


def test_a_result_of_an_earlier_run_has_the_id_that_the_client_knows() -> None:
    made = events(own0="shown")
    [result] = made.take(ToolOutput(agent="A", call_id="own0", name="f", output="x"))
    assert result["toolCallId"] == "shown"


@pytest.mark.parametrize("kind", ["raised", "output", "timeout"])
def test_why_a_tool_failed_is_not_told(kind: str) -> None:
    failed = ToolOutput(agent="A", call_id="own0", name="f", output="OSError: /srv/x", error=kind)
    [result] = events(own0="shown").take(failed)
    assert result["content"] == "Tool 'f' failed."
    assert result["metadata"] == {"routelock": {"error": kind}}


def test_why_a_handoff_failed_is_not_told() -> None:
    failed = HandoffFailed(source="A", target="B", call_id="c", reason="secret")
    [told] = events().take(failed)
    assert told["value"] == {"status": "failed", "source": "A", "target": "B"}


def test_an_interrupt_of_a_call_that_was_not_shown_is_a_confirmation() -> None:
    one = Interruption(agent="A", name="transfer_to_b", arguments="{}", call_id="c")
    [_, finished] = events().ask_again({"i": Interrupt(call=one)})
    [interrupt] = finished["outcome"]["interrupts"]
    assert (interrupt["id"], interrupt["reason"]) == ("i", "confirmation")
    assert interrupt["responseSchema"]["required"] == ["approved"]


def test_a_refusal_is_an_error_with_its_code() -> None:
    [error] = events().fail(Refusal(504, "Too late.", "timeout"), "req_1")
    assert error == {"type": "RUN_ERROR", "message": "Too late.", "code": "timeout"}


def test_a_reply_that_broke_ends_before_the_step_of_the_agent_that_goes_on() -> None:
    of = events()
    broken = taken(of, TextDelta("Half"), AgentUpdated("B"), TextDelta("Well."))
    assert kinds(broken)[2:6] == ["TEXT_MESSAGE_END", "STEP_FINISHED", "STEP_STARTED", "TEXT_MESSAGE_START"]
    first, second = of_kind(broken, "TEXT_MESSAGE_START")
    assert first["messageId"] != second["messageId"]


def test_a_call_of_a_reply_that_broke_ends_and_is_not_continued() -> None:
    made = taken(events(), piece('{"a"'), AgentUpdated("B"), piece('{"b": 1}'), done('{"b": 1}'))
    assert kinds(made)[:4] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "STEP_FINISHED"]
    assert arguments_in(made) == ['{"a"', '{"b": 1}']
    first, second = of_kind(made, "TOOL_CALL_START")
    assert first["toolCallId"] != second["toolCallId"]
