"""Parts of a message that the vendor knows and litellm does not, carried past litellm. Pure functions.

litellm refuses a request with a part such as Mistral's ``document_url`` before anyone is asked. Such a
part is set aside, a mark goes through litellm in its place, and on the wire the part is put back.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, cast

from routelock.history.messages import Message

__all__ = ["put_back", "set_aside"]

_KNOWN = frozenset(
    "text image_url input_audio audio_url document guarded_text grounding_source query video_url file".split()
)
"""The types that litellm lets pass (1.105 to 1.109); it knows what to make of them for each vendor."""

_MARK = re.compile(r"(\[routelock part [0-9a-f]{32}\])")


def set_aside(messages: Sequence[Message]) -> tuple[Sequence[Message], dict[str, Any]]:
    """Return the messages with a mark for each foreign part, and the parts by their marks.

    Messages without one are the very same objects, and so is the list when no message has one.
    """
    parts: dict[str, Any] = {}
    marked = [_marked(message, parts) for message in messages]
    return (marked, parts) if parts else (messages, parts)


def put_back(body: bytes, parts: Mapping[str, Any]) -> bytes:
    """Return a JSON request with each mark replaced by its part."""
    if not parts:
        return body
    return json.dumps(_with_parts(json.loads(body), parts), ensure_ascii=False).encode()


def _marked(message: Message, parts: dict[str, Any]) -> Message:
    content = message.get("content")
    if message["role"] != "user" or not isinstance(content, list):
        return message
    if all(part.get("type") in _KNOWN for part in content):
        return message
    return {**message, "content": [_mark(part, parts) for part in content]}


def _mark(part: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") in _KNOWN:
        return part
    mark = f"[routelock part {secrets.token_hex(16)}]"  # nobody's text can be taken for it
    parts[mark] = part
    return {"type": "text", "text": mark}


def _with_parts(value: Any, parts: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: _field(key, inner, parts) for key, inner in fields.items()}
    if isinstance(value, list):
        return [new for item in cast(Sequence[Any], value) for new in _item(item, parts)]
    return value


def _field(key: str, value: Any, parts: Mapping[str, Any]) -> Any:
    if key == "content" and isinstance(value, str):  # litellm joins texts to one for some vendors
        pieces = _pieces(value, {"type": "text"}, parts)
        return value if len(pieces) == 1 and pieces[0].get("text") == value else pieces
    return _with_parts(value, parts)


def _item(item: Any, parts: Mapping[str, Any]) -> list[Any]:
    if isinstance(item, dict) and isinstance(text := cast("dict[str, Any]", item).get("text"), str):
        return _pieces(text, cast("dict[str, Any]", item), parts)
    return [_with_parts(item, parts)]


def _pieces(text: str, around: Mapping[str, Any], parts: Mapping[str, Any]) -> list[Any]:
    """Return the parts that a text with marks in it stands for."""
    found = [piece for piece in _MARK.split(text) if piece] or [text]
    return [parts[piece] if piece in parts else {**around, "text": piece} for piece in found]
