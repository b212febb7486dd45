"""One wish, two ways to put it to the vendor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from interlock.events import MessageDone, TextDelta, ToolCallDelta
from interlock.port import OutputSchema, Request
from interlock_providers.structured import as_answer, as_answer_event, plan_for

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


def test_a_vendor_that_can_is_given_the_schema() -> None:
    plan = plan_for(wanting(tools=[tool("a")]), native=True)
    assert plan.response_format == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": False},
    }
    assert plan.answer_tool is None
    assert plan.tool_choice is None


def test_a_vendor_that_cannot_is_given_one_more_tool_and_must_call_one() -> None:
    plan = plan_for(wanting(tools=[tool("a")]), native=False)
    assert [spec["function"]["name"] for spec in plan.tools] == ["a", "final_answer"]
    assert plan.tool_choice == "required"
    assert plan.response_format is None


@pytest.mark.parametrize(("choice", "becomes"), [("a", "a"), ("none", "none"), ("auto", "required")])
def test_a_choice_of_the_users_stays(choice: str, becomes: str) -> None:
    assert plan_for(wanting(tools=[tool("a")], tool_choice=choice), native=False).tool_choice == becomes


def test_a_model_that_cannot_be_forced_is_not() -> None:
    assert plan_for(wanting(), native=False, can_force=False).tool_choice is None


def test_the_answer_tool_never_takes_the_name_of_another() -> None:
    plan = plan_for(wanting(tools=[tool("final_answer"), tool("final_answer_")]), native=False)
    assert plan.answer_tool == "final_answer__"


def test_the_call_of_the_answer_tool_becomes_the_text() -> None:
    assert as_answer(said("final_answer"), "final_answer").message == {"role": "assistant", "content": "[0]"}


def test_an_answer_beside_other_calls_waits_for_their_results() -> None:
    done = as_answer(said("a", "final_answer"), "final_answer")
    assert [call["function"]["name"] for call in done.message.get("tool_calls", [])] == ["a"]


def test_a_reply_that_answers_in_text_stays_as_it_is() -> None:
    done = said("a", content="x")
    assert as_answer(done, "final_answer") is done
    assert as_answer(done, None) is done


def test_the_answer_streams_as_text() -> None:
    assert as_answer_event(ToolCallDelta(0, "c", "final_answer", "[1"), "final_answer") == TextDelta("[1")
    assert as_answer_event(ToolCallDelta(0, "c", "final_answer", ""), "final_answer") is None
    other = ToolCallDelta(0, "c", "a", "")
    assert as_answer_event(other, "final_answer") is other
    assert as_answer_event(other, None) is other
