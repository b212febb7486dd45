"""Structured output: the vendor gets a schema, a tool, or a prompt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from routelock.handlers.events import MessageDone, TextDelta, ToolCallDelta
from routelock.handlers.port import OutputSchema, Request
from routelock.history.messages import text_of
from routelock_providers.structured_output import AnswerEvents, as_answer, plan_for, with_prompt

SCHEMA = OutputSchema("answer", {"type": "object"}, strict=False)


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def wanting(**more: Any) -> Request:
    return Request(messages=[], output_schema=SCHEMA, **more)


def said(*names: str, content: str | None = None) -> MessageDone:
    calls: Any = [
        {"id": f"c{place}", "type": "function", "function": {"name": name, "arguments": f"[{place}]"}}
        for place, name in enumerate(names)
    ]
    return MessageDone(message={"role": "assistant", "content": content, "tool_calls": calls})


def test_without_a_schema_nothing_changes() -> None:
    plan = plan_for(replace(wanting(tools=[tool("a")], tool_choice="a"), output_schema=None), native=False)
    assert (plan.tools, plan.tool_choice, plan.answer_tool) == ([tool("a")], "a", None)


def test_vendor_with_schemas_gets_the_schema() -> None:
    plan = plan_for(wanting(tools=[tool("a")]), native=True)
    assert plan.response_format == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": False},
    }
    assert plan.answer_tool is None
    assert plan.tool_choice is None


def test_vendor_without_schemas_gets_an_answer_tool() -> None:
    plan = plan_for(wanting(tools=[tool("a")]), native=False)
    assert [spec["function"]["name"] for spec in plan.tools] == ["a", "final_answer"]
    assert plan.tool_choice == "required"
    assert plan.response_format is None


@pytest.mark.parametrize(("choice", "becomes"), [("a", "a"), ("none", "none"), ("auto", "required")])
def test_tool_choice_of_the_user_is_kept(choice: str, becomes: str) -> None:
    assert plan_for(wanting(tools=[tool("a")], tool_choice=choice), native=False).tool_choice == becomes


def test_model_that_cannot_be_forced_is_not_forced() -> None:
    assert plan_for(wanting(), native=False, can_force=False).tool_choice is None


def test_the_answer_tool_never_takes_the_name_of_another() -> None:
    plan = plan_for(wanting(tools=[tool("final_answer"), tool("final_answer_")]), native=False)
    assert plan.answer_tool == "final_answer__"


def test_the_call_of_the_answer_tool_becomes_the_text() -> None:
    assert as_answer(said("final_answer"), "final_answer").message == {"role": "assistant", "content": "[0]"}


def test_words_in_front_of_the_answer_stay() -> None:
    done = as_answer(said("final_answer", content="Done:"), "final_answer")
    assert done.message.get("content") == "Done:\n\n[0]"


def test_parts_in_front_of_the_answer_stay() -> None:
    parts: Any = [{"type": "text", "text": "Done:"}]
    done = as_answer(said("final_answer", content=parts), "final_answer")
    assert done.message.get("content") == [*parts, {"type": "text", "text": "\n\n[0]"}]


def test_an_answer_beside_other_calls_is_text_and_waits_for_their_results() -> None:
    done = as_answer(said("a", "final_answer"), "final_answer")
    assert [call["function"]["name"] for call in done.message.get("tool_calls", [])] == ["a"]
    assert done.message.get("content") == "[1]"


def test_two_answers_are_both_kept() -> None:
    done = as_answer(said("final_answer", "final_answer"), "final_answer")
    assert done.message == {"role": "assistant", "content": "[0]\n\n[1]"}


def test_a_reply_that_answers_in_text_stays_as_it_is() -> None:
    done = said("a", content="x")
    assert as_answer(done, "final_answer") is done
    assert as_answer(done, None) is done


def test_the_answer_streams_as_text() -> None:
    events = AnswerEvents("final_answer")
    assert events.convert(ToolCallDelta(0, "c", "final_answer", "")) is None
    assert events.convert(ToolCallDelta(0, "c", "final_answer", "[1")) == TextDelta("[1")
    assert events.convert(ToolCallDelta(0, "c", "final_answer", "]")) == TextDelta("]")
    other = ToolCallDelta(1, "c", "a", "")
    assert events.convert(other) is other
    assert AnswerEvents(None).convert(other) is other


def test_streamed_text_equals_the_reply() -> None:
    events = AnswerEvents("final_answer")
    pieces = [
        TextDelta("Done:"),
        ToolCallDelta(0, "c0", "final_answer", "[0"),
        ToolCallDelta(0, "c0", "final_answer", "]"),
        ToolCallDelta(1, "c1", "final_answer", "[1]"),
    ]
    seen = "".join(event.text for event in map(events.convert, pieces) if isinstance(event, TextDelta))
    done = as_answer(said("final_answer", "final_answer", content="Done:"), "final_answer")
    assert done.message.get("content") == seen


# Which way


def with_mode(mode: Any, **more: Any) -> Request:
    return Request(messages=[], output_schema=replace(SCHEMA, mode=mode), **more)


@pytest.mark.parametrize("native", [True, False])
def test_the_user_chooses(native: bool) -> None:
    assert plan_for(with_mode("native"), native=native).response_format is not None
    assert plan_for(with_mode("tool"), native=native).answer_tool == "final_answer"


def test_prompted_schema_adds_nothing() -> None:
    plan = plan_for(with_mode("prompted", tools=[tool("a")], tool_choice="a"), native=True)
    assert (plan.tools, plan.tool_choice, plan.prompt) == ([tool("a")], "a", None)
    assert (plan.response_format, plan.answer_tool) == (None, None)


def test_model_without_tools_gets_the_schema_as_text() -> None:
    plan = plan_for(wanting(), native=False, calls=False)
    assert plan.prompt is not None
    assert plan.prompt.endswith('{"type":"object"}')
    assert (plan.tools, plan.response_format, plan.answer_tool) == ((), None, None)


def test_the_answer_tool_is_as_strict_as_the_schema() -> None:
    strict = plan_for(Request(messages=[], output_schema=replace(SCHEMA, strict=True)), native=False)
    assert strict.tools[0]["function"]["strict"] is True
    assert "strict" not in plan_for(wanting(), native=False).tools[0]["function"]


def test_the_prompt_ends_the_instructions() -> None:
    user: Any = {"role": "user", "content": "Hi"}
    system: Any = {"role": "system", "content": "Be brief."}
    parts: Any = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    assert with_prompt([user], None) == [user]
    assert with_prompt([user], "JSON!") == [{"role": "system", "content": "JSON!"}, user]
    assert with_prompt([system, user], "JSON!") == [{"role": "system", "content": "Be brief.\n\nJSON!"}, user]
    assert text_of(with_prompt([parts, user], "JSON!")[0]) == "Be brief.\n\nJSON!"
