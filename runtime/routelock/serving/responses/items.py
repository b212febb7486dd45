"""Input items of the Responses API as chat messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import pydantic

from routelock.history.messages import Message
from routelock.serving.requests import MOST_MESSAGES, bad_request, checked_messages, validated
from routelock.serving.responses.tools import custom_arguments, name_in

__all__ = ["input_messages"]


_PARTS: Mapping[str, Sequence[str]] = {
    "input_text": ("text",),
    "output_text": ("text",),
    "refusal": ("refusal",),
    "input_image": ("image_url",),
    "input_file": ("file_data", "file_id"),
}
"""The types of parts, each with the keys of which it needs one."""


class _Message(pydantic.BaseModel):
    role: Literal["user", "assistant", "system", "developer"]
    content: Any


class _Call(pydantic.BaseModel):
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str


class _CustomCall(pydantic.BaseModel):
    call_id: str
    name: str
    namespace: str | None = None
    input: str


class _Result(pydantic.BaseModel):
    call_id: str
    output: Any


def input_messages(given: object) -> list[Message]:
    """Return the ``input`` of a request as messages.

    Reasoning items are left out: the server keeps the reasoning that its models need.

    Raises:
        Refusal: 400, an item is wrong or of a type that is not supported.
    """
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise bad_request("input: must be text or a list of items.", "input")
    items = cast("list[object]", given)
    if len(items) > MOST_MESSAGES:
        raise bad_request(f"input: must have at most {MOST_MESSAGES} items.", "input")
    messages: list[dict[str, Any]] = []
    for place, item in enumerate(items):
        _add(messages, item, f"input[{place}]")
    return checked_messages(messages, "input")


def _add(messages: list[dict[str, Any]], item: object, where: str) -> None:
    kind = _kind(item, where)
    if kind == "message":
        said = validated(_Message, item, where)
        content = _content(said.content, f"{where}.content")
        if said.role == "assistant" and isinstance(content, list):
            content = _text(content, where)
        messages.append({"role": said.role, "content": content})
    elif kind == "function_call":
        called = validated(_Call, item, where)
        _add_call(messages, called, called.arguments)
    elif kind == "custom_tool_call":
        custom = validated(_CustomCall, item, where)
        _add_call(messages, custom, custom_arguments(custom.input))
    elif kind in ("function_call_output", "custom_tool_call_output"):
        result = validated(_Result, item, where)
        content = _content(result.output, f"{where}.output")
        messages.append({"role": "tool", "tool_call_id": result.call_id, "content": content})
    elif kind != "reasoning":
        path = f"{where}.type"
        raise bad_request(f"{path}: this server does not support items of type {kind!r:.80}.", path)


def _kind(item: object, where: str) -> object:
    if not isinstance(item, dict):
        raise bad_request(f"{where}: must be an object.", where)
    return cast("dict[str, object]", item).get("type", "message")


def _add_call(messages: list[dict[str, Any]], call: _Call | _CustomCall, arguments: str) -> None:
    """Add a call to the assistant's message before it: parallel calls belong to one message."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    function = {"name": name_in(call.namespace, call.name), "arguments": arguments}
    made = {"id": call.call_id, "type": "function", "function": function}
    messages[-1].setdefault("tool_calls", []).append(made)


def _content(content: object, where: str) -> str | list[dict[str, Any]]:
    """Return a content of which each part is one that chat messages can have."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise bad_request(f"{where}: must be text or a list of parts.", where)
    parts: list[dict[str, Any]] = []
    for place, part in enumerate(cast("list[dict[str, Any]]", content)):
        path = f"{where}[{place}]"
        kind = _kind(part, path)
        needed = _PARTS.get(kind) if isinstance(kind, str) else None
        if needed is None:
            raise bad_request(f"{path}.type: this server does not support {kind!r:.80}.", f"{path}.type")
        if not any(isinstance(part.get(name), str) for name in needed):
            raise bad_request(f"{path}: {kind} needs {' or '.join(needed)}, as text.", path)
        parts.append(part)
    return parts


def _text(parts: Sequence[Mapping[str, Any]], where: str) -> str:
    """Return the text of an assistant's message."""
    if wrong := next((part for part in parts if "text" not in part and "refusal" not in part), None):
        path = f"{where}.content"
        raise bad_request(f"{path}: an assistant says text only, not {wrong['type']!r}.", path)
    return "".join(part.get("text") or part.get("refusal") or "" for part in parts)
