"""What a recorded answer says, read from its bytes without litellm and without routelock.

Four wire formats: chat completions, Anthropic's messages, OpenAI's responses, Cohere's chat; Gemini's
for whole replies. Only what the sets without described calls need.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from replay.tape import Interaction

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What has to come out of a call: a reply, or an error."""

    text: str | None = ""
    """With an error: what was streamed before it, None when that is not known."""
    calls: Sequence[Json] = ()
    """Tool calls: name, arguments as an object, id where one was recorded."""
    usage: tuple[int, int] | None = None
    failed: bool = False
    status: int | None = None
    """The error's HTTP status; None for one that the body alone tells."""
    kind: str | None = None
    """The name of the error class, where the set says which."""
    retryable: bool | None = None


def read_reply(dialect: str, answer: Interaction) -> Expected:
    """Return what one answer says."""
    if answer.status >= 400:
        return Expected(failed=True, status=answer.status, text=None)
    if not answer.streamed:
        return _READERS[dialect](_object(answer.body))
    events = list(_events(answer.body))
    if any(event.get("error") or event.get("type") == "error" for event in events):
        return Expected(failed=True, text=None)
    return _STREAM_READERS[dialect](events)


def _object(body: bytes) -> Json:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _events(body: bytes) -> Iterator[Json]:
    for line in body.replace(b"\r\n", b"\n").split(b"\n"):
        if line.startswith(b"data:") and (event := _object(line[5:])):
            yield event


def _failed(**more: Any) -> Expected:
    return Expected(failed=True, text=None, **more)


def _call(call_id: str | None, name: str, arguments: Any) -> Json:
    if isinstance(arguments, str):
        arguments = json.loads(arguments or "{}")
    return {"id": call_id, "name": name, "arguments": arguments}


# chat completions


def _chat(reply: Json) -> Expected:
    if reply.get("error") or not reply.get("choices"):
        return _failed()
    message = reply["choices"][0].get("message") or {}
    calls = [
        _call(call.get("id"), call["function"]["name"], call["function"].get("arguments"))
        for call in message.get("tool_calls") or ()
    ]
    return Expected(text=_text(message.get("content")), calls=calls, usage=_chat_usage(reply.get("usage")))


def _chat_events(events: list[Json]) -> Expected:
    text, usage, slots = "", None, {}
    for event in events:
        usage = _chat_usage(event.get("usage")) or usage
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            text += _text(delta.get("content"))
            for piece in delta.get("tool_calls") or ():
                slot = slots.setdefault(piece.get("index"), {"id": None, "name": None, "arguments": ""})
                function = piece.get("function") or {}
                slot["id"] = slot["id"] or piece.get("id")
                slot["name"] = slot["name"] or function.get("name")
                slot["arguments"] += function.get("arguments") or ""
    calls = [_call(slot["id"], slot["name"], slot["arguments"]) for slot in slots.values()]
    return Expected(text=text, calls=calls, usage=usage)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(
            part.get("text") or "" for part in content if part.get("type") in ("text", "output_text")
        )
    return content or ""


def _chat_usage(usage: Json | None) -> tuple[int, int] | None:
    return (usage["prompt_tokens"], usage["completion_tokens"]) if usage else None


# Anthropic


def _anthropic(reply: Json) -> Expected:
    if reply.get("type") != "message":
        return _failed()
    blocks = reply.get("content") or ()
    calls = [
        _call(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"
    ]
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    return Expected(text=text, calls=calls, usage=_anthropic_usage(reply.get("usage") or {}))


def _anthropic_events(events: list[Json]) -> Expected:
    if not any(event.get("type") == "message_stop" for event in events):
        return _failed(kind="IncompleteResponse", retryable=True)
    blocks: dict[int, Json] = {}
    usage: Json = {}
    for event in events:
        match event["type"]:
            case "message_start":
                usage |= event["message"].get("usage") or {}
            case "content_block_start":
                blocks[event["index"]] = {**event["content_block"], "json": ""}
            case "content_block_delta":
                block, delta = blocks[event["index"]], event["delta"]
                block["json"] += delta.get("partial_json") or ""
                block["text"] = (block.get("text") or "") + (delta.get("text") or "")
            case "message_delta":
                usage |= {
                    key: value for key, value in (event.get("usage") or {}).items() if value is not None
                }
    for block in blocks.values():
        block["input"] = json.loads(block["json"]) if block["json"] else block.get("input")
    reply = _anthropic({"type": "message", "content": list(blocks.values()), "usage": usage})
    return reply


def _anthropic_usage(usage: Json) -> tuple[int, int] | None:
    if not usage:
        return None
    cached = (usage.get("cache_read_input_tokens") or 0) + (usage.get("cache_creation_input_tokens") or 0)
    return (usage.get("input_tokens") or 0) + cached, usage.get("output_tokens") or 0


# OpenAI's responses


def _responses(reply: Json) -> Expected:
    if reply.get("error") or reply.get("status") not in ("completed", "incomplete"):
        return _failed()
    items = reply.get("output") or ()
    text = "".join(_text(item.get("content")) for item in items if item["type"] == "message")
    calls = [
        _call(item.get("call_id"), item["name"], item["arguments"])
        for item in items
        if item["type"] == "function_call"
    ]
    usage = reply.get("usage")
    counted = (usage["input_tokens"], usage["output_tokens"]) if usage else None
    return Expected(text=text, calls=calls, usage=counted)


def _responses_events(events: list[Json]) -> Expected:
    last = ("response.completed", "response.incomplete", "response.failed")
    final = next((event["response"] for event in reversed(events) if event.get("type") in last), None)
    return _failed(kind="IncompleteResponse", retryable=True) if final is None else _responses(final)


# Cohere


def _cohere(reply: Json) -> Expected:
    message = reply.get("message")
    if not isinstance(message, dict):
        return _failed()
    calls = [
        _call(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    ]
    return Expected(text=_text(message.get("content")), calls=calls, usage=_cohere_usage(reply.get("usage")))


def _cohere_events(events: list[Json]) -> Expected:
    text, calls, usage = "", {}, None
    for event in events:
        message = (event.get("delta") or {}).get("message") or {}
        match event["type"]:
            case "content-delta":
                text += (message.get("content") or {}).get("text") or ""
            case "tool-call-start":
                call = message["tool_calls"]
                calls[event["index"]] = [call["id"], call["function"]["name"], call["function"]["arguments"]]
            case "tool-call-delta":
                calls[event["index"]][2] += message["tool_calls"]["function"]["arguments"]
            case "message-end":
                usage = _cohere_usage(event["delta"].get("usage"))
    return Expected(text=text, calls=[_call(*call) for call in calls.values()], usage=usage)


def _cohere_usage(usage: Json | None) -> tuple[int, int] | None:
    tokens = (usage or {}).get("tokens")
    return (int(tokens["input_tokens"]), int(tokens["output_tokens"])) if tokens else None


# Gemini


def _gemini(reply: Json) -> Expected:
    if (reply.get("promptFeedback") or {}).get("blockReason") and not reply.get("candidates"):
        return _failed(kind="ContentRefused", retryable=False)
    if not reply.get("candidates"):
        return _failed()
    parts = (reply["candidates"][0].get("content") or {}).get("parts") or ()
    text = "".join(part.get("text") or "" for part in parts if not part.get("thought"))
    calls = [
        _call(
            part["functionCall"].get("id"),
            part["functionCall"]["name"],
            part["functionCall"].get("args") or {},
        )
        for part in parts
        if "functionCall" in part
    ]
    usage = reply.get("usageMetadata") or {}
    output = (usage.get("candidatesTokenCount") or 0) + (usage.get("thoughtsTokenCount") or 0)
    counted = (usage["promptTokenCount"], output) if "promptTokenCount" in usage else None
    return Expected(text=text, calls=calls, usage=counted)


_READERS = {
    "chat": _chat,
    "anthropic": _anthropic,
    "responses": _responses,
    "cohere": _cohere,
    "gemini": _gemini,
}
_STREAM_READERS = {
    "chat": _chat_events,
    "anthropic": _anthropic_events,
    "responses": _responses_events,
    "cohere": _cohere_events,
}
