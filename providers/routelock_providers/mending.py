"""What litellm cannot read in a vendor's answer, written so that it can. Pure functions on bytes.

Each rule names the failure that it prevents. A body or an event that needs no mending is returned as
the very same object, after a look for a few bytes in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from routelock.handlers.stream_assembler import Assembler, why_incomplete
from routelock_providers.chat_completions.stream_reader import MISSHAPEN, failure_in

__all__ = ["as_object", "error_in", "mend_event", "mend_reply", "reply_in_events"]

_Json = dict[str, Any]

_DONE = b"[DONE]"
_ANNOTATION = re.compile(rb'"type"\s*:\s*"(file_citation|file_path|container_file_citation|file)"')
_ZERO_VALUE = re.compile(rb'"finish_reason"\s*:\s*""')
_BLOCKED = re.compile(rb'"blockReason"\s*:\s*"')
_FILTERED = re.compile(
    rb'"finishReason"\s*:\s*"(SAFETY|RECITATION|BLOCKLIST|(IMAGE_)?PROHIBITED_CONTENT|SPII|IMAGE_SAFETY)"'
)
_QUEUED = re.compile(rb'"status"\s*:\s*"(queued|in_progress|cancelled)"')


def as_object(body: bytes) -> _Json:
    """Return the JSON object in some bytes; an empty one if there is none."""
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return cast("_Json", value) if isinstance(value, dict) else {}


def error_in(value: Mapping[str, Any]) -> object:
    """Return the error that an object reports: its own, a choice's, or that of a response inside an event.

    Raises:
        AttributeError, LookupError, TypeError: it has another shape than any vendor's.
    """
    response: object = value.get("response")
    inner = cast("_Json", response).get("error") if isinstance(response, dict) else None
    return failure_in(value) or inner


def mend_reply(provider: str, body: bytes) -> bytes:
    """Return the body of a whole reply as litellm can read it."""
    mended = body
    for applies, mend in _REPLY_RULES:
        if applies(provider, body):
            value = as_object(mended)
            if value and mend(value):
                mended = json.dumps(value, ensure_ascii=False).encode()
    return mended


def mend_event(provider: str, line: bytes) -> bytes:
    """Return one ``data:`` line of a stream as litellm can read it."""
    if provider == "groq" and b'"x_groq"' in line and b'"usage"' in line:
        return _with_groq_usage(line)
    return line


def reply_in_events(body: bytes) -> bytes | None:
    """Return the whole reply that the events of a stream amount to, or None.

    Some requests that litellm could have streamed are sent with ``stream: false`` (models that it does
    not know on the Responses API; all of Cohere's, because it cannot read those streams), and some
    gateways and recordings stream nevertheless.
    """
    said = [line[5:].strip() for line in body.split(b"\n") if line.startswith(b"data:")]
    events = [as_object(data) for data in said if data not in (b"", _DONE)]
    for event in reversed(events):
        if event.get("type") in ("response.completed", "response.incomplete", "response.failed"):
            return _as_body(event.get("response"))
        if event.get("type") == "message-end":
            return _as_body(_cohere_reply(events))
    try:
        return _as_body(_chat_reply(events, over=_DONE in said)) if all(events) else None
    except MISSHAPEN:
        return None


def _as_body(value: object) -> bytes | None:
    return json.dumps(value, ensure_ascii=False).encode() if value else None


def _chat_reply(events: list[_Json], *, over: bool) -> _Json | None:
    """Put the chunks of a chat completion together; an error in them is all, and of half a reply nothing."""
    assembler, usage = Assembler(), None
    for event in events:
        if error := failure_in(event):
            return {"error": error}
        assembler.feed(event)
        usage = event.get("usage") or usage
    done = assembler.done()
    if why_incomplete(done, ended=over, counted=assembler.counted):
        return None
    choice = {"index": 0, "message": done.message, "finish_reason": done.finish_reason or "stop"}
    head = {"id": done.response_id, "object": "chat.completion", "created": 0, "model": done.model}
    return {**head, "choices": [choice], "usage": usage}


def _cohere_reply(events: list[_Json]) -> _Json:
    """Put Cohere's events together to the reply that it would have sent whole."""
    reply: _Json = {}
    message: _Json = {"role": "assistant", "content": []}
    calls: dict[object, _Json] = {}
    for event in events:
        delta: _Json = event.get("delta") or {}
        said: _Json = delta.get("message") or {}
        kind = event.get("type")
        if kind == "content-delta":
            message["content"].append({"type": "text", "text": said["content"].get("text") or ""})
        elif kind == "tool-plan-delta":
            message["tool_plan"] = message.get("tool_plan", "") + said["tool_plan"]
        elif kind == "tool-call-start":
            calls[event.get("index")] = said["tool_calls"]
        elif kind == "tool-call-delta":
            calls[event.get("index")]["function"]["arguments"] += said["tool_calls"]["function"]["arguments"]
        elif kind == "message-end":
            reply |= delta
    if calls:
        message["tool_calls"] = list(calls.values())
    return {"id": events[0].get("id"), **reply, "message": message}


def _with_groq_usage(line: bytes) -> bytes:
    """Move Groq's own usage to where litellm looks; without it litellm counts tokens itself."""
    event = as_object(line.partition(b":")[2])
    groq: object = event.get("x_groq")
    usage = cast("_Json", groq).get("usage") if isinstance(groq, dict) else None
    if not usage or event.get("usage"):
        return line
    return b"data: " + json.dumps({**event, "usage": usage}, ensure_ascii=False).encode()


def _add_service_tier(reply: _Json) -> bool:
    """Groq's older answers have none, and litellm fails with an AttributeError."""
    reply.setdefault("service_tier", None)
    return True


def _drop_annotations(reply: _Json) -> bool:
    """Annotations of files make litellm's model of a message fail; links pass."""
    holders: list[_Json] = [choice.get("message") or {} for choice in reply.get("choices") or ()]
    for item in reply.get("output") or ():
        holders += [part for part in item.get("content") or () if isinstance(part, dict)]
    for holder in holders:
        if holder.get("annotations"):
            holder["annotations"] = [
                one for one in holder["annotations"] if one.get("type") == "url_citation"
            ]
    return bool(holders)


def _drop_zero_values(reply: _Json) -> bool:
    """Snowflake fills what it does not mean with empty objects, which litellm takes at their word."""
    for choice in reply.get("choices") or ():
        message: _Json = choice.get("message") or {}
        choice["finish_reason"] = choice.get("finish_reason") or "stop"
        for key in ("function_call", "audio", "annotations", "refusal"):
            if not _means_something(message.get(key)):
                message.pop(key, None)
        for call in message.get("tool_calls") or ():
            call.pop("custom", None)
    reply["service_tier"] = reply.get("service_tier") or None
    return True


def _means_something(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_means_something, cast("Mapping[str, object]", value).values()))
    return bool(value)


def _explain_unfinished(reply: _Json) -> bool:
    """A background response is not a reply yet; litellm fails on it without a word why."""
    if reply.get("object") != "response" or reply.get("output"):
        return False
    message = (
        f"The response {reply.get('id')!r} is {reply.get('status')}, not complete: do not set background."
    )
    reply["error"] = {"type": "invalid_request_error", "message": message}
    return True


def _answer_blocked(reply: _Json) -> bool:
    """Gemini answers a prompt that it refuses with no candidate; litellm also fails if there is no usage."""
    if reply.get("candidates"):
        return False
    reply["candidates"] = [{"index": 0, "finishReason": "SAFETY"}]
    reply.setdefault("usageMetadata", {})
    return True


def _keep_filtered(reply: _Json) -> bool:
    """Gemini's filters stop a text, of which litellm keeps nothing in a whole reply, and all in a stream."""
    candidates: list[_Json] = reply.get("candidates") or [{}]
    candidate = candidates[0]
    content: _Json = candidate.get("content") or {}
    if not content.get("parts"):
        return False
    candidate["finishReason"] = "OTHER"  # which litellm calls a content filter, too
    return True


_Rule = tuple[Callable[[str, bytes], bool], Callable[[_Json], bool]]
_REPLY_RULES: tuple[_Rule, ...] = (
    (lambda provider, body: provider == "groq" and b'"service_tier"' not in body, _add_service_tier),
    (lambda provider, body: b'"annotations"' in body and bool(_ANNOTATION.search(body)), _drop_annotations),
    (lambda provider, body: bool(_ZERO_VALUE.search(body)), _drop_zero_values),
    (lambda provider, body: bool(_QUEUED.search(body)), _explain_unfinished),
    (lambda provider, body: bool(_BLOCKED.search(body)), _answer_blocked),
    (lambda provider, body: bool(_FILTERED.search(body)), _keep_filtered),
)
