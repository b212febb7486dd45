"""The messages of AG-UI as chat messages."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

import pydantic
from pydantic.alias_generators import to_camel

from routelock.history.messages import Message
from routelock.serving.requests import (
    MOST_CALLS,
    bad_request,
    checked_messages,
    content_of,
    file_part,
    validated,
)

__all__ = ["Wire", "chat_messages"]


_logger = logging.getLogger("routelock.serving")

_OF_THE_CLIENT = ("activity", "reasoning")
"""Roles of messages that only the client shows. No model is shown them."""

_MEDIA = ("image", "audio", "video", "document", "binary")

_SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
"""The formats of sound that chat messages can have, by their media types."""


class Wire(pydantic.BaseModel, alias_generator=to_camel):
    """Base of the protocol's data: its fields have camel-case names in JSON."""


class _Function(Wire):
    name: str
    arguments: str


class _Call(Wire):
    id: str
    function: _Function


class _TextPart(Wire):
    text: str


class _Source(Wire):
    type: str
    value: str
    mime_type: str | None = None


class _MediaPart(Wire):
    """A part with media. Before version 1.0 a part of the type ``binary`` had its data in itself."""

    type: str
    source: _Source | None = None
    mime_type: str | None = None
    data: str | None = None
    url: str | None = None


class _Text(Wire):
    content: str


class _User(Wire):
    content: Any


class _Assistant(Wire):
    content: str | None = None
    tool_calls: Annotated[list[_Call], pydantic.Field(max_length=MOST_CALLS)] | None = None


class _Tool(Wire):
    content: Any
    tool_call_id: str
    error: str | None = None


def chat_messages(given: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return the messages of a request as the input of a run.

    Messages that only the client shows are left out: activities, reasoning, and texts of agents that were
    called as tools. So are names of authors, which some vendors refuse, and parts that chat messages do not
    have.

    Raises:
        Refusal: 400, a message is wrong.
    """
    messages: list[dict[str, Any]] = []
    for place, each in enumerate(given):
        if each.get("role") not in _OF_THE_CLIENT and each.get("subagentRunId") is None:
            messages += _message(each, f"messages[{place}]")
    return checked_messages(messages, "messages")


def _message(each: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Return the chat message of one message; none if it says nothing."""
    match role := each.get("role"):
        case "user":
            return [{"role": "user", "content": _content(validated(_User, each, where).content, where)}]
        case "system" | "developer":
            return [{"role": role, "content": validated(_Text, each, where).content}]
        case "assistant":
            return _assistant_message(validated(_Assistant, each, where))
        case "tool":
            said = validated(_Tool, each, where)
            content = _with_error(_content(said.content, where), said.error)
            return [{"role": "tool", "tool_call_id": said.tool_call_id, "content": content}]
        case _:
            raise bad_request(f"{where}.role: {role!r:.80} is not a role of a message.", f"{where}.role")


def _assistant_message(said: _Assistant) -> list[dict[str, Any]]:
    calls = [
        {"id": call.id, "type": "function", "function": call.function.model_dump()}
        for call in said.tool_calls or ()
    ]
    if not calls and not said.content:
        return []
    return [
        {"role": "assistant", "content": said.content or None, **({"tool_calls": calls} if calls else {})}
    ]


def _with_error(content: str | list[dict[str, Any]], error: str | None) -> str | list[dict[str, Any]]:
    if not error:
        return content
    if isinstance(content, str):
        return f"{content}\nError: {error}".strip()
    return [*content, {"type": "text", "text": f"Error: {error}"}]


def _content(content: object, where: str) -> str | list[dict[str, Any]]:
    """Return the parts of a content that a chat message can have; only text parts become text."""
    if isinstance(content, str):
        return content
    path = f"{where}.content"
    if not isinstance(content, list):
        raise bad_request(f"{path}: must be text or a list of parts.", path)
    given = cast("list[object]", content)
    parts = [chat for place, part in enumerate(given) for chat in _part(part, f"{path}[{place}]")]
    return content_of(parts)


def _part(given: object, where: str) -> list[dict[str, Any]]:
    """Return a part in the form of chat messages; none if they have no such part."""
    if not isinstance(given, dict):
        raise bad_request(f"{where}: must be an object.", where)
    part = cast("dict[str, Any]", given)
    if part.get("type") == "text":
        return [{"type": "text", "text": validated(_TextPart, part, where).text}]
    found = _media(validated(_MediaPart, part, where)) if part.get("type") in _MEDIA else None
    if found is None:
        _logger.warning("%s: a part of type %.80r is left out", where, part.get("type"))
        return []
    return [found]


def _media(part: _MediaPart) -> dict[str, Any] | None:
    kind, source = part.type, part.source
    media_type = (part.mime_type if source is None else source.mime_type) or ""
    data = part.data if source is None else source.value if source.type == "data" else None
    url = part.url if source is None else source.value if source.type == "url" else None
    if kind == "image" or media_type.startswith("image/"):
        inline = f"data:{media_type or 'application/octet-stream'};base64,{data}"
        return {"type": "image_url", "image_url": {"url": inline if data else url}} if data or url else None
    if not data or kind == "video":  # nothing that a client names is fetched
        return None
    if kind != "audio" and not media_type.startswith("audio/"):
        return file_part(media_type, data)
    sound = _SOUNDS.get(media_type)
    return {"type": "input_audio", "input_audio": {"data": data, "format": sound}} if sound else None
