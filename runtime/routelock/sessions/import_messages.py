"""Messages as other frameworks store them, made into chat messages.

What is read: chat messages; items of OpenAI's Responses API, as openai-agents stores them; Anthropic's
blocks for calls and results; LangChain's messages as dicts. Whatever cannot be read is named and left out;
the store keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from routelock._json import detached
from routelock.errors import ConfigError
from routelock.history.content import chat_part
from routelock.history.messages import Message, checked_message

__all__ = ["messages_of", "readable"]


_LANGCHAIN = {
    **{"human": "user", "ai": "assistant", "system": "system", "tool": "tool"},
    **{"HumanMessage": "user", "AIMessage": "assistant", "SystemMessage": "system", "ToolMessage": "tool"},
}

_TEXTS = ("text", "input_text", "output_text")

_SAID = ("text", "refusal")

_THOUGHTS = ("thinking", "redacted_thinking")

_OTHER_PARTS = ("tool_use", "tool_result", "input_text", "output_text", "input_image", *_THOUGHTS)


def messages_of(given: Iterable[object]) -> tuple[list[Message], list[str]]:
    """Return messages that a run can take, and what could not be read, one line each."""
    found: list[Message] = []
    notes: list[str] = []
    for place, raw in enumerate(given):
        try:
            made = [checked_message(place, message) for message in _chat(raw)]
        except ConfigError as error:
            notes.append(f"session: left out an item: {error}")
            continue
        if not made:
            notes.append(f"session: left out an item that no other model can read ({_kind(raw)})")
        for message in made:
            message, wrong = readable(message)
            notes += wrong
            _add(found, message, joined=_type(raw) == "function_call")
    return found, notes


def readable(message: Message) -> tuple[Message, list[str]]:
    """Return a message of which nobody knows who wrote it, without what no vendor lets an assistant say."""
    content = message.get("content")
    if message["role"] != "assistant" or not isinstance(content, list):
        return message, []
    other = [str(part.get("type")) for part in content if part.get("type") not in _SAID]
    if not other:
        return message, []
    said = [part for part in content if part.get("type") in _SAID]
    note = f"session: left out what no assistant can have said ({', '.join(other):.80})"
    return cast(Message, {**message, "content": said or None}), [note]


def _add(found: list[Message], message: Message, *, joined: bool) -> None:
    """Add a message; calls that stand alone belong to the assistant message before them."""
    last = found[-1] if found else None
    if joined and last is not None and last["role"] == "assistant":
        last["tool_calls"] = [*(last.get("tool_calls") or ()), *(message.get("tool_calls") or ())]
    else:
        found.append(message)


def _kind(raw: object) -> str:
    return str(_type(raw) or type(raw).__name__)[:40]


def _type(raw: object) -> object:
    return cast("Mapping[str, Any]", raw).get("type") if isinstance(raw, Mapping) else None


def _chat(raw: object) -> list[object]:
    """Return one stored item as chat messages; what is one already, or is nothing that we know, stays."""
    if isinstance(raw, str):
        return [{"role": "user", "content": raw}]
    if not isinstance(raw, Mapping):
        return [raw]
    item = detached(cast("Mapping[str, Any]", raw))
    match item.get("type"):
        case "function_call":
            return [_calling([_call(item.get("call_id"), item.get("name"), item.get("arguments"))])]
        case "function_call_output":
            return [_answer(item.get("call_id"), item.get("output"))]
        case "reasoning":
            return []
        case _:
            pass
    if "role" in item:
        return _role(item)
    return _langchain(item)


def _call(call_id: object, name: object, arguments: object) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def _calling(calls: Sequence[Any], content: object = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": calls}


def _answer(call_id: object, content: object) -> dict[str, Any]:
    if not isinstance(content, str | list):
        content = "" if content is None else json.dumps(content)
    return {"role": "tool", "tool_call_id": call_id, "content": _parts(cast(object, content))}


def _role(item: Mapping[str, Any]) -> list[object]:
    parts = _dicts(item.get("content"))
    if not any(part.get("type") in _OTHER_PARTS for part in parts):
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
        return [*answers, _calling(calls, rest or None)]
    return [*answers, {"role": item["role"], "content": rest}] if rest else answers


def _parts(content: object) -> object:
    """Return parts of a content as chat messages have them; where all are text, the text."""
    if not isinstance(content, list):
        return content
    parts = [_part(part) for part in cast("list[object]", content)]
    texts = [part.get("text") for part in _dicts(parts) if part.get("type") == "text"]
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


def _langchain(item: Mapping[str, Any]) -> list[object]:
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
        _call(call.get("id"), call.get("name"), call.get("args")) for call in _dicts(said.get("tool_calls"))
    ]
    if calls:
        return [_calling(calls, _text(said.get("content")))]
    return _role({"role": role, "content": said.get("content")})


def _text(content: object) -> object:
    """Return what an assistant said beside its calls, which LangChain keeps in the content as well."""
    if not isinstance(content, list):
        return content
    return _parts([part for part in _dicts(cast(object, content)) if part.get("type") in _TEXTS])


def _dicts(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    return [cast("dict[str, Any]", each) for each in cast("list[object]", value) if isinstance(each, dict)]
