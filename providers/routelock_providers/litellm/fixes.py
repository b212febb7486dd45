"""Fixes for requests and answers that litellm does not pass on correctly. Pure functions.

Each fix names the failure that it prevents. A body or an event that needs no fix is returned as the same
object, after a search for a few bytes in it.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from routelock._json import dicts_in
from routelock.handlers.stream_assembler import Assembler, why_incomplete
from routelock.history.messages import Message
from routelock.usage import to_usage
from routelock_providers.chat_completions.stream_reader import MISSHAPEN, EventDecoder, failure_in
from routelock_providers.vendor_json import decode_json, encode_json, json_object

__all__ = [
    "as_chunk",
    "error_in",
    "fix_chunk",
    "fix_completion",
    "fix_event",
    "fix_reply",
    "mark_parts",
    "reply_in_events",
    "restore_parts",
    "unprotect_arguments",
]


_KNOWN = frozenset(
    "text image_url input_audio audio_url document guarded_text grounding_source query video_url file".split()
)
"""The types of parts that litellm knows (1.105 to 1.109) and converts for each vendor."""

_MARK = re.compile(r"(\[routelock part [0-9a-f]{32}\])")


def mark_parts(messages: Sequence[Message]) -> tuple[Sequence[Message], dict[str, Any]]:
    """Return the messages with a mark for each part that litellm does not know, and the parts by their marks.

    Messages without such parts are the same objects, and so is the list if no message has one.
    """
    parts: dict[str, Any] = {}
    marked = [_marked(message, parts) for message in messages]
    return (marked, parts) if parts else (messages, parts)


def restore_parts(body: bytes, parts: Mapping[str, Any]) -> bytes:
    """Return a JSON request with each mark replaced by its part."""
    return encode_json(_with_parts(decode_json(body), parts)) if parts else body


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
    mark = f"[routelock part {secrets.token_hex(16)}]"  # random, so that no other text can be taken for it
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
    if key == "content" and isinstance(value, str):  # litellm joins texts for some vendors
        pieces = _pieces(value, {"type": "text"}, parts)
        return value if len(pieces) == 1 and pieces[0].get("text") == value else pieces
    return _with_parts(value, parts)


def _item(item: Any, parts: Mapping[str, Any]) -> list[Any]:
    if isinstance(item, dict) and isinstance(text := cast("dict[str, Any]", item).get("text"), str):
        return _pieces(text, cast("dict[str, Any]", item), parts)
    return [_with_parts(item, parts)]


def _pieces(text: str, around: Mapping[str, Any], parts: Mapping[str, Any]) -> list[Any]:
    """Return the parts for a text with marks in it."""
    found = [piece for piece in _MARK.split(text) if piece] or [text]
    return [parts[piece] if piece in parts else {**around, "text": piece} for piece in found]


_Json = dict[str, Any]

_DONE = b"[DONE]"

_ANNOTATION = re.compile(rb'"type"\s*:\s*"(file_citation|file_path|container_file_citation|file)"')

_ZERO_VALUE = re.compile(rb'"finish_reason"\s*:\s*""')

_BLOCKED = re.compile(rb'"blockReason"\s*:\s*"')

_FILTERED = re.compile(
    rb'"finishReason"\s*:\s*"(SAFETY|RECITATION|BLOCKLIST|(IMAGE_)?PROHIBITED_CONTENT|SPII|IMAGE_SAFETY)"'
)

_QUEUED = re.compile(rb'"status"\s*:\s*"(queued|in_progress|cancelled)"')


def error_in(value: Mapping[str, Any]) -> object:
    """Return the error of an object: its own, that of a choice, or that of a response inside an event.

    Raises:
        AttributeError, LookupError, TypeError: the object has a shape that no vendor sends.
    """
    response: object = value.get("response")
    inner = cast("_Json", response).get("error") if isinstance(response, dict) else None
    return failure_in(value) or inner


def fix_reply(provider: str, body: bytes) -> bytes:
    """Return the body of a whole reply in a form that litellm can read."""
    fixed = body
    for applies, fix in _REPLY_RULES:
        if applies(provider, body):
            value = json_object(fixed)
            if value and fix(value):
                fixed = encode_json(value)
    return fixed


def fix_event(provider: str, line: bytes) -> bytes:
    """Return one ``data:`` line of a stream in a form that litellm can read."""
    if provider == "groq" and b'"x_groq"' in line and b'"usage"' in line:
        return _with_groq_usage(line)
    return line


def reply_in_events(body: bytes) -> bytes | None:
    """Return the whole reply in the events of a stream, or None.

    litellm sends some requests with ``stream: false`` although a stream was asked for: models of the
    Responses API that it does not know, and all of Cohere's, whose streams it cannot read. Some gateways and
    recordings answer with a stream nevertheless.
    """
    decoder = EventDecoder()
    data = [each.strip() for each in (*decoder.feed(body), *decoder.flush())]
    events = [json_object(each) for each in data if each != _DONE]
    for event in reversed(events):
        if event.get("type") in ("response.completed", "response.incomplete", "response.failed"):
            return _as_body(event.get("response"))
        if event.get("type") == "message-end":
            return _as_body(_cohere_reply(events))
    try:
        return _as_body(_chat_reply(events, over=_DONE in data)) if all(events) else None
    except MISSHAPEN:
        return None


def _as_body(value: object) -> bytes | None:
    return encode_json(value) if value else None


def _chat_reply(events: list[_Json], *, over: bool) -> _Json | None:
    """Join the chunks of a chat completion. An error in them is returned alone, half a reply as None."""
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
    """Join the events of Cohere to the reply that it would have sent whole."""
    reply: _Json = {}
    message: _Json = {"role": "assistant", "content": []}
    calls: dict[object, _Json] = {}
    for event in events:
        delta: _Json = event.get("delta") or {}
        part: _Json = delta.get("message") or {}
        kind = event.get("type")
        if kind == "content-delta":
            message["content"].append({"type": "text", "text": part["content"].get("text") or ""})
        elif kind == "tool-plan-delta":
            message["tool_plan"] = message.get("tool_plan", "") + part["tool_plan"]
        elif kind == "tool-call-start":
            calls[event.get("index")] = part["tool_calls"]
        elif kind == "tool-call-delta":
            calls[event.get("index")]["function"]["arguments"] += part["tool_calls"]["function"]["arguments"]
        elif kind == "message-end":
            reply |= delta
    if calls:
        message["tool_calls"] = list(calls.values())
    return {"id": events[0].get("id"), **reply, "message": message}


def _with_groq_usage(line: bytes) -> bytes:
    """Move Groq's usage to the key that litellm reads; otherwise litellm counts the tokens itself."""
    event = json_object(line.partition(b":")[2])
    groq: object = event.get("x_groq")
    usage = cast("_Json", groq).get("usage") if isinstance(groq, dict) else None
    if not usage or event.get("usage"):
        return line
    return b"data: " + encode_json({**event, "usage": usage})


def _add_service_tier(reply: _Json) -> bool:
    """Add the key that Groq's older answers lack; litellm fails with an AttributeError without it."""
    reply.setdefault("service_tier", None)
    return True


def _drop_annotations(reply: _Json) -> bool:
    """Remove annotations of files, on which litellm's model of a message fails; links pass."""
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
    """Remove Snowflake's empty objects for unused keys, which litellm takes for values."""
    for choice in reply.get("choices") or ():
        message: _Json = choice.get("message") or {}
        choice["finish_reason"] = choice.get("finish_reason") or "stop"
        for key in ("function_call", "audio", "annotations", "refusal"):
            if not _has_value(message.get(key)):
                message.pop(key, None)
        for call in message.get("tool_calls") or ():
            call.pop("custom", None)
    reply["service_tier"] = reply.get("service_tier") or None
    return True


def _has_value(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_value, cast("Mapping[str, object]", value).values()))
    return bool(value)


def _explain_unfinished(reply: _Json) -> bool:
    """Add an error to a background response, which is not a reply yet.

    litellm fails on such a response without a reason.
    """
    if reply.get("object") != "response" or reply.get("output"):
        return False
    message = (
        f"The response {reply.get('id')!r} is {reply.get('status')}, not complete: do not set background."
    )
    reply["error"] = {"type": "invalid_request_error", "message": message}
    return True


def _answer_blocked(reply: _Json) -> bool:
    """Add a candidate to Gemini's answer to a refused prompt, and usage, without which litellm fails."""
    if reply.get("candidates"):
        return False
    reply["candidates"] = [{"index": 0, "finishReason": "SAFETY"}]
    reply.setdefault("usageMetadata", {})
    return True


def _keep_filtered(reply: _Json) -> bool:
    """Keep the text that Gemini's filter stopped.

    litellm drops the text from whole replies, but not from streams.
    """
    candidates: list[_Json] = reply.get("candidates") or [{}]
    candidate = candidates[0]
    content: _Json = candidate.get("content") or {}
    if not content.get("parts"):
        return False
    candidate["finishReason"] = "OTHER"  # litellm also takes this for a content filter
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

_PROTECTION = "\ufeff"
"""A prefix for arguments that litellm must not read: Python's JSON reader stops at a byte order mark, and
litellm then leaves the arguments unchanged."""

_SEVERAL = "multi_tool_use.parallel"
"""A tool name that OpenAI's models invent. litellm turns a call of it into others, but not in a stream."""

_SURELY_READABLE = 200
"""A number of brackets: arguments that begin as an object, have fewer, and are short, are surely readable."""

_SURELY_SHORT = 4000
"""A number of characters: shorter arguments have no number of more than 4,300 digits, Python's limit."""


def fix_chunk(provider: str, chunk: _Json) -> bool:
    """Change a chunk of a stream so that litellm can read it; return whether it was changed.

    Args:
        provider: litellm's name of the provider.
        chunk: any event of a stream; it is changed in place.
    """
    if "choices" not in chunk:
        if chunk.get("object") != "chat.completion.chunk":
            return False
        chunk["choices"] = None
    changed = _fix_head(chunk)
    if usage := chunk.get("usage"):
        # otherwise litellm counts the tokens of a streamed thought itself and reports them as the vendor's
        changed = _add_details(usage) or changed
    if chunk["choices"] is None:
        chunk["choices"], changed = [], True
    for choice in dicts_in(cast("object", chunk["choices"])):
        if choice.get("delta", choice) is None:
            choice["delta"], changed = {}, True
        delta: object = choice.get("delta")
        if isinstance(delta, dict):
            changed = _fix_delta(provider, cast("_Json", delta)) or changed
    return changed


def fix_completion(provider: str, reply: _Json) -> bool:
    """Change a whole reply so that litellm can read it; return whether it was changed.

    Args:
        provider: litellm's name of the provider.
        reply: any JSON object; it is changed in place.
    """
    if "choices" not in reply:
        return False
    changed = _fix_head(reply)
    for choice in dicts_in(reply["choices"]):
        message: object = choice.get("message")
        if not isinstance(message, dict):
            continue
        fields = cast("_Json", message)
        if not fields.get("role"):
            fields["role"], changed = "assistant", True
        changed = _join_content(provider, fields) or changed
        changed = _protect_arguments(fields) or changed
    return changed


def unprotect_arguments(message: _Json) -> None:
    """Remove the prefix that `fix_completion` put before arguments, in a whole message of litellm."""
    for function in _functions(message):
        function["arguments"] = function["arguments"].removeprefix(_PROTECTION)


def _protect_arguments(message: _Json) -> bool:
    """Keep litellm from reading arguments on which it fails, or of which it makes other calls.

    It reads the arguments of whole replies only.
    """
    changed = False
    for function in _functions(message):
        arguments: str = function["arguments"]
        odd = function.get("name") == _SEVERAL or arguments.startswith(_PROTECTION)
        if odd or not _is_readable(arguments):
            function["arguments"], changed = _PROTECTION + arguments, True
    return changed


def _is_readable(arguments: str) -> bool:
    """Return whether litellm reads the arguments as an object, or finds that they are not JSON."""
    brackets = arguments.count("[") + arguments.count("{")
    if arguments.startswith("{") and brackets < _SURELY_READABLE and len(arguments) < _SURELY_SHORT:
        return True
    try:
        return isinstance(json.loads(arguments), dict)
    except json.JSONDecodeError:
        return True
    except (ValueError, RecursionError):
        return False


def _functions(message: Mapping[str, Any]) -> Iterable[_Json]:
    for call in dicts_in(message.get("tool_calls")):
        function: object = call.get("function")
        if isinstance(function, dict) and isinstance(cast("_Json", function).get("arguments"), str):
            yield cast("_Json", function)


def as_chunk(reply: Mapping[str, Any]) -> _Json:
    """Return a whole reply as the one chunk of a stream."""
    choices: list[_Json] = []
    for choice in dicts_in(reply.get("choices")):
        delta = dict(cast("_Json", choice.get("message") or {}))
        if calls := delta.get("tool_calls"):
            delta["tool_calls"] = [{**call, "index": place} for place, call in enumerate(calls)]
        rest = {key: value for key, value in choice.items() if key != "message"}
        choices.append({**rest, "delta": delta, "finish_reason": choice.get("finish_reason") or "stop"})
    return {**reply, "object": "chat.completion.chunk", "choices": choices}


def _fix_head(reply: _Json) -> bool:
    """Fix the keys beside the choices: the time, and usage that cannot be read."""
    changed = False
    if isinstance(created := reply.get("created"), float):
        reply["created"], changed = int(created), True
    usage: object = reply.get("usage")
    if usage is None:
        return changed
    if to_usage(cast(Any, usage)) is None:
        del reply["usage"]
        return True
    counts = cast("_Json", usage)
    if not isinstance(counts.get("total_tokens", 0), int | float | None):
        del counts["total_tokens"]
        changed = True
    return changed


def _add_details(usage: _Json) -> bool:
    if usage.get("completion_tokens_details") is not None:
        return False
    usage["completion_tokens_details"] = {"reasoning_tokens": 0}
    return True


def _fix_delta(provider: str, delta: _Json) -> bool:
    changed = _join_content(provider, delta)
    if not delta.get("content") and delta.get("annotations") is None and _has_other_keys(delta):
        delta["annotations"], changed = [], True
    return changed


def _has_other_keys(delta: _Json) -> bool:
    """Return whether litellm (1.105 to 1.110) would drop this delta although it holds something.

    It drops deltas with neither text nor a call. Such a delta may be a piece of a refusal, or a signature in
    OpenRouter's ``reasoning_details``; without the signature the vendor later refuses the thought.
    """
    if delta.get("tool_calls"):
        return False
    return any(value and key not in _KEYS_OF_LITELLM for key, value in delta.items())


_KEYS_OF_LITELLM = frozenset(("role", "content", "function_call", "reasoning", "reasoning_content"))


def _join_content(provider: str, message: _Json) -> bool:
    """Join content that consists of text parts; litellm itself reads the parts of Mistral."""
    content: object = message.get("content")
    if provider == "mistral" or not isinstance(content, list):
        return False
    parts = cast("list[object]", content)
    texts = [str(part.get("text") or "") for part in dicts_in(parts) if part.get("type") == "text"]
    if len(texts) < len(parts):
        return False
    message["content"] = "".join(texts)
    return True
