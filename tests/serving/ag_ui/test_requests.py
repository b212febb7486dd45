"""The body of a request of AG-UI is parsed or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from routelock.serving.ag_ui.requests import ResumeEntry, RunRequest, parse_run_request
from routelock.serving.errors import Refusal

HI = {"id": "1", "role": "user", "content": "Hi"}


def parsed(**more: Any) -> RunRequest:
    return parse_run_request(json.dumps({"threadId": "t", "runId": "r", "messages": [HI], **more}).encode())


def test_the_least_body_has_neither_tools_nor_state_nor_answers() -> None:
    read = parsed()
    assert (read.thread, read.run, read.messages) == ("t", "r", [{"role": "user", "content": "Hi"}])
    assert (read.tools, read.state, read.resume, read.is_current) == ((), {}, {}, False)


def test_what_is_not_known_is_ignored() -> None:
    read = parsed(protocolVersion="1.7", parentRunId="p", news={"a": 1})
    assert read.is_current
    assert len(read.messages) == 1


@pytest.mark.parametrize("state", [0, "", False, [1], {"a": None}])
def test_any_state_is_kept(state: object) -> None:
    assert parsed(state=state).state == state


def test_tools_have_the_form_of_functions() -> None:
    tool = {"name": "f", "description": "Do.", "parameters": {"type": "object"}, "metadata": {"ui": 1}}
    function = {key: value for key, value in tool.items() if key != "metadata"}
    assert parsed(tools=[tool]).tools == ({"type": "function", "function": function},)


def test_the_context_is_one_message_before_all_others() -> None:
    context = [{"description": "Page", "value": "Orders"}, {"description": "Day", "value": "Monday"}]
    first, second = parsed(context=context).messages
    assert first == {
        "role": "system",
        "content": "Context from the application:\n\nPage:\nOrders\n\nDay:\nMonday",
    }
    assert second["role"] == "user"


def test_an_answer_knows_its_place() -> None:
    given = [
        {"interruptId": "i", "status": "resolved", "payload": {"a": [1]}},
        {"interruptId": "j", "status": "cancelled"},
    ]
    assert parsed(messages=[], resume=given).resume == {
        "i": ResumeEntry("resolved", {"a": [1]}, "resume[0]"),
        "j": ResumeEntry("cancelled", None, "resume[1]"),
    }


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"threadId": None}, "threadId"),
        ({"runId": "x" * 257}, "runId"),
        ({"messages": []}, "messages"),
        ({"messages": ["x"]}, "messages[0]"),
        ({"tools": [{"name": "a b"}]}, "tools[0].name"),
        ({"tools": [{"name": "f"}, {"name": "f"}]}, "tools[1]"),
        ({"context": [{"value": "x"}]}, "context[0].description"),
        ({"resume": [{"interruptId": "i", "status": "done"}]}, "resume[0].status"),
        ({"resume": [{"interruptId": "i", "status": "cancelled"}] * 2}, "resume[1]"),
    ],
)
def test_a_wrong_body_is_refused_by_the_path(body: dict[str, Any], where: str) -> None:
    with pytest.raises(Refusal) as refused:
        parsed(**body)
    assert (refused.value.status, refused.value.param) == (400, where)
