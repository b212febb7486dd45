"""Messages as text of OpenTelemetry's attributes, in the form of the conventions' JSON schemas.

They are on spans only with ``OpenTelemetry(content=True)``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast
from urllib.parse import unquote_to_bytes

from routelock._json import recordable
from routelock._json_document import decode
from routelock._redaction import redact
from routelock.handlers.events import MessageDone
from routelock.handlers.port import Request
from routelock.history.content import chat_part
from routelock.history.messages import Message, calls_of
from routelock.history.vendor_calls import VendorCall, vendor_calls_of

__all__ = ["RequestTexts", "messages_text", "output_text", "reply_text"]


class RequestTexts:
    """The requests of a run as attributes; each message and each tool is converted to JSON once.

    The span of each model call has all messages. Converting them again for each call would make the time
    grow with the square of the number of turns.

    Args:
        largest_media: the longest base64 text of an image, a recording or a file.
    """

    __slots__ = ("_known", "_largest_media", "_system")

    def __init__(self, largest_media: int) -> None:
        self._largest_media = largest_media
        self._known: dict[int, tuple[object, str]] = {}
        self._system: tuple[list[dict[str, Any]], str] = [], ""

    def of(self, request: Request) -> dict[str, str]:
        """Return the messages, instructions and tools of a request as attributes."""
        messages = list(request.messages)
        system: list[dict[str, Any]] = []
        while messages and messages[0]["role"] == "system":
            system += _parts(messages.pop(0), self._largest_media)
        found = {"gen_ai.input.messages": self._list(self._message, messages)}
        if system:
            if system != self._system[0]:
                self._system = system, _json(system)
            found["gen_ai.system_instructions"] = self._system[1]
        if request.tools:
            found["gen_ai.tool.definitions"] = self._list(_definition, request.tools)
        return found

    def _message(self, message: Message) -> dict[str, Any]:
        return _message(message, self._largest_media)

    def _list(self, convert: Callable[[Any], object], values: Iterable[object]) -> str:
        return f"[{', '.join([self._text(convert, value) for value in values])}]"

    def _text(self, convert: Callable[[Any], object], value: object) -> str:
        known = self._known.get(id(value))
        if known is None:  # the value is kept, so that no other object can get its id
            known = self._known[id(value)] = value, _json(convert(value))
        return known[1]


def messages_text(messages: Iterable[Mapping[str, Any]], largest_media: int) -> str:
    """Return messages as the text of ``gen_ai.input.messages``."""
    return _json([_message(cast(Message, one), largest_media) for one in messages])


def reply_text(reply: MessageDone, largest_media: int) -> str:
    """Return a reply as the text of ``gen_ai.output.messages``."""
    return _output(_message(reply.message, largest_media), reply.finish_reason)


def output_text(output: object) -> str:
    """Return the final output of a run as the text of ``gen_ai.output.messages``."""
    text = output if isinstance(output, str) else json.dumps(recordable(output), ensure_ascii=False)
    return _output({"role": "assistant", "parts": [{"type": "text", "content": text}]}, "stop")


def _output(message: Mapping[str, Any], finish_reason: str | None) -> str:
    # 0.1 of the conventions deprecates the finish reason in messages; readers of 1.41 refuse one without it
    return _json([{**message, "finish_reason": finish_reason or ""}])


def _definition(spec: Mapping[str, Any]) -> dict[str, Any]:
    if "function" in spec:
        return {"type": "function", **spec["function"]}
    return {"name": str(spec.get("type") or "unknown"), **spec}  # a vendor's tool often has a type alone


def _message(message: Message, largest_media: int) -> dict[str, Any]:
    if message["role"] == "tool":
        content = message.get("content")
        response = [_part(part, largest_media) for part in content] if isinstance(content, list) else content
        answer = {"id": message.get("tool_call_id"), "response": response}
        return {"role": "tool", "parts": [{"type": "tool_call_response", **answer}]}
    return {"role": message["role"], "parts": _parts(message, largest_media)}


def _parts(message: Message, largest_media: int) -> list[dict[str, Any]]:
    content = message.get("content")
    listed: Iterable[Mapping[str, Any]] = (
        [{"type": "text", "text": content}] if isinstance(content, str) and content else content or ()
    )
    reasoning = message.get("reasoning_content")
    parts: list[dict[str, Any]] = [{"type": "reasoning", "content": reasoning}] if reasoning else []
    parts += [_part(part, largest_media) for part in listed]
    if refusal := message.get("refusal"):
        parts.append({"type": "refusal", "content": refusal})
    parts += [part for call in vendor_calls_of(message) for part in _vendor_call(call)]
    return parts + [_call(call) for call in calls_of(message)]


def _vendor_call(call: VendorCall) -> list[dict[str, Any]]:
    """Return the parts of a tool that the vendor ran: its call, and its result."""
    result = {"output": call.output, "error": call.error, "sources": [one.url for one in call.sources]}
    return [
        {
            "type": "server_tool_call",
            "id": call.id or None,
            "name": call.tool,
            "server_tool_call": {"type": call.tool, "input": dict(call.input)},
        },
        {
            "type": "server_tool_call_response",
            "id": call.id or None,
            "server_tool_call_response": {
                "type": call.tool,
                **{name: value for name, value in result.items() if value},
            },
        },
    ]


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {
        "type": "tool_call",
        "id": call.get("id"),
        "name": function.get("name") or "",
        "arguments": _parsed(function.get("arguments") or ""),
    }


def _part(part: Mapping[str, Any], largest_media: int) -> dict[str, Any]:
    part = chat_part(part)
    if part.get("type") == "text":
        return {"type": "text", "content": str(part.get("text") or "")}
    kind = str(part.get("type") or "unknown")
    try:
        media = _media(kind, part, largest_media)
    except (AttributeError, TypeError, ValueError):  # a part may have any form
        media = None
    return media or {"type": kind}


_MODALITIES = {
    "audio_url": "audio",
    "document": "document",
    "document_url": "document",
    "file": "document",
    "image_url": "image",
    "input_audio": "audio",
    "video_url": "video",
}
"""The modality of each type of media part; a more exact MIME type goes before."""


def _media(kind: str, part: Mapping[str, Any], largest: int) -> dict[str, Any] | None:
    modality = _MODALITIES.get(kind)
    if modality is None:
        return None
    held: Any = part.get(kind)
    if isinstance(held, str):
        return _located(held, modality, largest)
    if file_id := held.get("file_id"):
        return {"type": "file", "modality": modality, "file_id": str(file_id)}
    if url := held.get("url") or held.get("file_data"):
        return _located(str(url), modality, largest)
    return _blob(f"{modality}/{held['format']}", modality, held["data"], largest) if "data" in held else None


def _located(url: str, modality: str, largest: int) -> dict[str, Any]:
    """Return the message part for the address of a medium: a blob if the address holds the data itself."""
    if not url.startswith("data:"):
        if "://" in url:
            return {"type": "uri", "modality": modality, "uri": url}
        return _blob(None, modality, url, largest)
    head, _, data = url.removeprefix("data:").partition(",")
    mime_type, *options = head.split(";")
    if "base64" not in options:
        data = base64.b64encode(unquote_to_bytes(data)).decode()
    return _blob(mime_type or "text/plain", modality, data, largest)


def _blob(mime_type: str | None, modality: str, data: str, largest: int) -> dict[str, Any]:
    family = (mime_type or "").partition("/")[0]
    found: dict[str, Any] = {
        "type": "blob",
        "modality": family if family in ("audio", "image", "video") else modality,
        "content": data,
    }
    if mime_type:
        found["mime_type"] = mime_type
    if len(data) > largest:
        found |= {"content": "", "omitted_characters": len(data)}
    return found


def _parsed(arguments: str) -> object:
    try:
        return decode(arguments.encode())
    except ValueError:
        return arguments


def _json(value: object) -> str:
    return json.dumps(redact(value), ensure_ascii=False, default=str)
