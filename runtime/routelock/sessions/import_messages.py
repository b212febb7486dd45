"""Converts the stored messages of other frameworks to chat messages.

It reads: chat messages; items of OpenAI's Responses API, as openai-agents stores them; Anthropic's blocks for
calls and results; LangChain's messages as dicts. Other items are reported and left out; the store keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from routelock._copies import detached
from routelock._json import dicts_in
from routelock.errors import ConfigError
from routelock.history.content import chat_part
from routelock.history.input import checked_message
from routelock.history.messages import Message

__all__ = ["messages_of", "readable"]


_LANGCHAIN = {
    **{"human": "user", "ai": "assistant", "system": "system", "tool": "tool"},
    **{"HumanMessage": "user", "AIMessage": "assistant", "SystemMessage": "system", "ToolMessage": "tool"},
}

_TEXTS = ("text", "input_text", "output_text")

_SAID = ("text", "refusal")

_THOUGHTS = ("thinking", "redacted_thinking")

_FOREIGN_PARTS = ("tool_use", "tool_result", "input_text", "output_text", "input_image", *_THOUGHTS)


def messages_of(given: Iterable[object]) -> tuple[list[Message], list[str]]:
    """Return messages that a run accepts, and a note for each item that could not be read."""
    messages: list[Message] = []
    notes: list[str] = []
    for position, raw in enumerate(given):
        try:
            converted = [checked_message(position, message) for message in _chat_messages(raw)]
        except ConfigError as error:
            notes.append(f"session: left out an item: {error}")
            continue
        if not converted:
            kind = str(_type(raw) or type(raw).__name__)[:40]
            notes.append(f"session: left out an item that no other model can read ({kind})")
        for message in converted:
            message, removed = readable(message)
            notes += removed
            _add(messages, message, is_call=_type(raw) == "function_call")
    return messages, notes


def readable(message: Message) -> tuple[Message, list[str]]:
    """Return a message of unknown origin without the parts that vendors refuse in an assistant message."""
    content = message.get("content")
    if message["role"] != "assistant" or not isinstance(content, list):
        return message, []
    other = [str(part.get("type")) for part in content if part.get("type") not in _SAID]
    if not other:
        return message, []
    said = [part for part in content if part.get("type") in _SAID]
    note = f"session: left out parts that an assistant message cannot have ({', '.join(other):.80})"
    return cast(Message, {**message, "content": said or None}), [note]


def _add(messages: list[Message], message: Message, *, is_call: bool) -> None:
    """Add a message; a single call joins the assistant message before it."""
    last = messages[-1] if messages else None
    if is_call and last is not None and last["role"] == "assistant":
        last["tool_calls"] = [*(last.get("tool_calls") or ()), *(message.get("tool_calls") or ())]
    else:
        messages.append(message)


def _type(raw: object) -> object:
    return cast("Mapping[str, Any]", raw).get("type") if isinstance(raw, Mapping) else None


def _chat_messages(raw: object) -> list[object]:
    """Return one stored item as chat messages; chat messages and unknown items are returned as they are."""
    if isinstance(raw, str):
        return [{"role": "user", "content": raw}]
    if not isinstance(raw, Mapping):
        return [raw]
    item = detached(cast("Mapping[str, Any]", raw))
    match item.get("type"):
        case "function_call":
            return [_assistant([_call(item.get("call_id"), item.get("name"), item.get("arguments"))])]
        case "function_call_output":
            return [_answer(item.get("call_id"), item.get("output"))]
        case "reasoning":
            return []
        case _:
            pass
    if "role" in item:
        return _from_parts(item)
    return _from_langchain(item)


def _call(call_id: object, name: object, arguments: object) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def _assistant(calls: Sequence[Any], content: object = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": calls}


def _answer(call_id: object, content: object) -> dict[str, Any]:
    if not isinstance(content, str | list):
        content = "" if content is None else json.dumps(content)
    return {"role": "tool", "tool_call_id": call_id, "content": _parts(cast(object, content))}


def _from_parts(item: Mapping[str, Any]) -> list[object]:
    """Return a message with a role, and maybe with parts of other APIs, as chat messages."""
    parts = dicts_in(item.get("content"))
    if not any(part.get("type") in _FOREIGN_PARTS for part in parts):
        return [{key: value for key, value in item.items() if key != "type"}]
    answers: list[object] = [
        _answer(part.get("tool_use_id"), part.get("content"))
        for part in parts
        if part.get("type") == "tool_result"
    ]
    calls = [
        _call(part.get("id"), part.get("name"), part.get("input"))
        for part in parts
        if part.get("type") == "tool_use"
    ]
    rest = _parts([part for part in parts if part.get("type") not in ("tool_use", "tool_result", *_THOUGHTS)])
    if calls:
        return [*answers, _assistant(calls, rest or None)]
    return [*answers, {"role": item["role"], "content": rest}] if rest else answers


def _parts(content: object) -> object:
    """Return content with its parts in chat form, or as one text if all parts are text."""
    if not isinstance(content, list):
        return content
    parts = [_part(part) for part in cast("list[object]", content)]
    texts = [part.get("text") for part in dicts_in(parts) if part.get("type") == "text"]
    return "".join(map(str, texts)) if len(texts) == len(parts) else parts


def _part(part: object) -> object:
    match part:
        case {"type": str(kind), "text": str(text)} if kind in _TEXTS:
            return {"type": "text", "text": text}
        case {"type": "refusal", "refusal": str(text)}:
            return {"type": "text", "text": text}
        case Mapping():
            return chat_part(cast("Mapping[str, Any]", part))
        case _:
            return part


def _from_langchain(item: Mapping[str, Any]) -> list[object]:
    names = item.get("id")
    kind = cast("list[object]", names)[-1] if isinstance(names, list) and names else item.get("type")
    role = _LANGCHAIN.get(kind) if isinstance(kind, str) else None
    inner = item.get("data", item.get("kwargs", item))
    if role is None or not isinstance(inner, Mapping):
        return [item]
    said = cast("Mapping[str, Any]", inner)
    if role == "tool":
        return [_answer(said.get("tool_call_id"), said.get("content"))]
    calls = [
        _call(call.get("id"), call.get("name"), call.get("args")) for call in dicts_in(said.get("tool_calls"))
    ]
    if calls:
        return [_assistant(calls, _text(said.get("content")))]
    return _from_parts({"role": role, "content": said.get("content")})


def _text(content: object) -> object:
    """Return the text of a message with calls: LangChain keeps the calls in its content as well."""
    if not isinstance(content, list):
        return content
    return _parts([part for part in dicts_in(cast(object, content)) if part.get("type") in _TEXTS])
