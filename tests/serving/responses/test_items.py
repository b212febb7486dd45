"""Input items become the messages of a conversation."""

from __future__ import annotations

from typing import Any

import pytest

from routelock.serving.errors import Refusal
from routelock.serving.responses.items import input_messages


def called(name: str) -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": f"call_{name}", "name": name, "arguments": "{}"}


def result(name: str, output: Any = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{name}", "output": output}


@pytest.mark.parametrize("role", ["user", "system", "developer", "assistant"])
def test_a_message_has_its_role_and_text(role: str) -> None:
    assert input_messages([{"role": role, "content": "Hi"}]) == [{"role": role, "content": "Hi"}]


def test_parts_of_a_user_are_in_the_form_of_chat_completions() -> None:
    parts = [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"},
    ]
    [message] = input_messages([{"type": "message", "role": "user", "content": parts}])
    assert message.get("content") == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"}},
    ]


def test_an_output_message_is_what_the_assistant_said() -> None:
    parts = [
        {"type": "output_text", "text": "Yes. ", "annotations": [], "logprobs": []},
        {"type": "refusal", "refusal": "But no more."},
    ]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": parts}
    assert input_messages([item]) == [{"role": "assistant", "content": "Yes. But no more."}]


def test_parallel_calls_are_one_message() -> None:
    items = [called("a"), called("b"), result("a"), result("b")]
    messages = input_messages(items)
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool"]
    assert [call["id"] for call in messages[0].get("tool_calls") or ()] == ["call_a", "call_b"]


def test_calls_belong_to_the_text_before_them() -> None:
    [message] = input_messages([{"role": "assistant", "content": "Wait."}, called("a")])
    assert (message.get("content"), len(message.get("tool_calls") or ())) == ("Wait.", 1)


def test_a_result_may_have_parts() -> None:
    [message] = input_messages([result("a", [{"type": "input_text", "text": "done"}])])
    assert message.get("content") == [{"type": "text", "text": "done"}]


def test_a_call_of_a_custom_tool_has_its_text_as_an_argument() -> None:
    items = [
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_a", "name": "patch", "input": "\u00e9"},
        {"type": "custom_tool_call_output", "call_id": "call_a", "output": "done"},
    ]
    function = {"name": "patch", "arguments": '{"input": "\u00e9"}'}
    assert input_messages(items) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_a", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "done"},
    ]


@pytest.mark.parametrize(
    "item", [called("a"), {"type": "custom_tool_call", "call_id": "call_a", "name": "a", "input": "x"}]
)
def test_a_call_of_a_namespace_has_the_name_that_the_model_used(item: dict[str, Any]) -> None:
    [message] = input_messages([{**item, "namespace": "crm"}])
    [call] = message.get("tool_calls") or []
    assert call["function"]["name"] == "crm__a"


def test_reasoning_is_left_out() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    assert input_messages([item, {"role": "user", "content": "Hi"}]) == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "item_reference", "id": "x"}, "input[0].type"),
        ({"type": "web_search_call"}, "input[0].type"),
        ({"type": ["message"]}, "input[0].type"),
        ({"role": "user", "content": [{"type": "input_video"}]}, "input[0].content[0].type"),
        ({"role": "user", "content": [{"type": {}}]}, "input[0].content[0].type"),
        ({"role": "user", "content": ["Hi"]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_image", "file_id": "x"}]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_file", "file_url": "x"}]}, "input[0].content[0]"),
        ({"role": "assistant", "content": [{"type": "input_image", "image_url": "x"}]}, "input[0].content"),
        ({"role": "user", "content": None}, "input[0].content"),
        ({"role": "user"}, "input[0].content"),
        (result("a", {}), "input[0].output"),
        ({**called("a"), "arguments": {}}, "input[0].arguments"),
    ],
)
def test_an_item_that_is_not_supported_is_refused_at_its_place(item: Any, param: str) -> None:
    with pytest.raises(Refusal) as caught:
        input_messages([item])
    assert caught.value.param == param
