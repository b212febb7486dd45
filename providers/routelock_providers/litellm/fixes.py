"""What litellm cannot read in a vendor's answer, written so that it can. Pure functions on bytes.

Each rule names the failure that it prevents. A body or an event that needs no fix is returned as
the very same object, after a look for a few bytes in it.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from routelock.handlers.stream_assembler import Assembler, why_incomplete
from routelock.history.messages import Message
from routelock.usage import to_usage
from routelock_providers.chat_completions.stream_reader import MISSHAPEN, failure_in

__all__ = [
    "Echoes",
    "as_chunk",
    "as_object",
    "error_in",
    "fix_chunk",
    "fix_completion",
    "fix_event",
    "fix_reply",
    "put_back",
    "reply_in_events",
    "set_aside",
    "unshield",
]


class Echoes:
    """Takes out of the deltas of one stream what they repeat.

    The delta that brings the signature of a thought brings its whole text again, and each delta has its
    thinking blocks in two places. Put together as they come, the thought would be twice as long as what
    was signed, and Anthropic refuses it when it is sent back.
    """

    def __init__(self) -> None:
        self._thought = ""

    def take_out(self, delta: dict[str, Any]) -> None:
        """Change the delta so that nothing in it was said before."""
        blocks: list[dict[str, Any]] = delta.get("thinking_blocks") or []
        if not blocks:
            return
        elsewhere: dict[str, Any] = delta.get("provider_specific_fields") or {}
        elsewhere.pop("thinking_blocks", None)
        for block in blocks:
            if not block.get("signature"):
                self._thought += block.get("thinking") or ""
                continue
            if block.get("thinking") == self._thought:
                block["thinking"] = ""
            self._thought = ""


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


def fix_reply(provider: str, body: bytes) -> bytes:
    """Return the body of a whole reply as litellm can read it."""
    fixed = body
    for applies, fix in _REPLY_RULES:
        if applies(provider, body):
            value = as_object(fixed)
            if value and fix(value):
                fixed = json.dumps(value, ensure_ascii=False).encode()
    return fixed


def fix_event(provider: str, line: bytes) -> bytes:
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

_SHIELD = "\ufeff"
"""Before arguments that litellm is not to read: at a byte order mark Python's reader stops, and litellm then
leaves them as they are."""

_SEVERAL = "multi_tool_use.parallel"
"""A name that OpenAI's models invent. Of a call of it litellm makes others, but not in a stream."""

_SURELY_READABLE = 200
"""Arguments are surely that if they begin as an object, and have fewer brackets than this ..."""

_SURELY_SHORT = 4000
"""... and fewer characters than this: Python reads no number of more than 4,300 digits."""


def fix_chunk(provider: str, chunk: _Json) -> bool:
    """Change a chunk of a stream so that litellm can read it, and say whether anything had to be.

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
        # or litellm counts the tokens of a streamed thought itself, and gives that out as the vendor's number
        changed = _add_details(usage) or changed
    if chunk["choices"] is None:
        chunk["choices"], changed = [], True
    for choice in _dicts(cast("object", chunk["choices"])):
        if choice.get("delta", choice) is None:
            choice["delta"], changed = {}, True
        delta: object = choice.get("delta")
        if isinstance(delta, dict):
            changed = _fix_delta(provider, cast("_Json", delta)) or changed
    return changed


def fix_completion(provider: str, reply: _Json) -> bool:
    """Change a whole reply so that litellm can read it, and say whether anything had to be.

    Args:
        provider: litellm's name of the provider.
        reply: any JSON object; it is changed in place.
    """
    if "choices" not in reply:
        return False
    changed = _fix_head(reply)
    for choice in _dicts(reply["choices"]):
        message: object = choice.get("message")
        if not isinstance(message, dict):
            continue
        said = cast("_Json", message)
        if not said.get("role"):
            said["role"], changed = "assistant", True
        changed = _join_content(provider, said) or changed
        changed = _shield(said) or changed
    return changed


def unshield(message: _Json) -> None:
    """Take what `fix_completion` put before arguments away again, in a whole message as litellm gives it."""
    for function in _functions(message):
        function["arguments"] = function["arguments"].removeprefix(_SHIELD)


def _shield(message: _Json) -> bool:
    """Keep litellm from reading arguments of which it would fail, or make another call than a stream has.

    It reads those of whole replies alone.
    """
    changed = False
    for function in _functions(message):
        arguments: str = function["arguments"]
        odd = function.get("name") == _SEVERAL or arguments.startswith(_SHIELD)
        if odd or not _is_readable(arguments):
            function["arguments"], changed = _SHIELD + arguments, True
    return changed


def _is_readable(arguments: str) -> bool:
    """Whether litellm reads arguments as an object, or sees that they are no JSON."""
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
    for call in _dicts(message.get("tool_calls")):
        function: object = call.get("function")
        if isinstance(function, dict) and isinstance(cast("_Json", function).get("arguments"), str):
            yield cast("_Json", function)


def as_chunk(reply: Mapping[str, Any]) -> _Json:
    """Return a whole reply as the one chunk of a stream."""
    choices: list[_Json] = []
    for choice in _dicts(reply.get("choices")):
        delta = dict(cast("_Json", choice.get("message") or {}))
        if calls := delta.get("tool_calls"):
            delta["tool_calls"] = [{**call, "index": place} for place, call in enumerate(calls)]
        rest = {key: value for key, value in choice.items() if key != "message"}
        choices.append({**rest, "delta": delta, "finish_reason": choice.get("finish_reason") or "stop"})
    return {**reply, "object": "chat.completion.chunk", "choices": choices}


def _fix_head(said: _Json) -> bool:
    """See to what stands around the choices: the time, and a bill that nobody can read."""
    changed = False
    if isinstance(created := said.get("created"), float):
        said["created"], changed = int(created), True
    usage: object = said.get("usage")
    if usage is None:
        return changed
    if to_usage(cast(Any, usage)) is None:
        del said["usage"]
        return True
    bill = cast("_Json", usage)
    if not isinstance(bill.get("total_tokens", 0), int | float | None):
        del bill["total_tokens"]
        changed = True
    return changed


def _add_details(usage: _Json) -> bool:
    if usage.get("completion_tokens_details") is not None:
        return False
    usage["completion_tokens_details"] = {"reasoning_tokens": 0}
    return True


def _fix_delta(provider: str, delta: _Json) -> bool:
    changed = _join_content(provider, delta)
    if not delta.get("content") and delta.get("annotations") is None and _says_more(delta):
        delta["annotations"], changed = [], True
    return changed


def _says_more(delta: _Json) -> bool:
    """Whether litellm (1.105 to 1.110) would drop a delta that says something.

    It does so where there is neither a text nor a call beside it: a piece of a refusal, or a signature in
    OpenRouter's ``reasoning_details``, without which the thought is refused when it goes back.
    """
    if delta.get("tool_calls"):
        return False
    return any(value and key not in _IS_HEARD for key, value in delta.items())


_IS_HEARD = frozenset(("role", "content", "function_call", "reasoning", "reasoning_content"))


def _join_content(provider: str, said: _Json) -> bool:
    """Make one text of parts that are text; what Mistral says in parts, litellm reads by itself."""
    content: object = said.get("content")
    if provider == "mistral" or not isinstance(content, list):
        return False
    parts = cast("list[object]", content)
    texts = [str(part.get("text") or "") for part in _dicts(parts) if part.get("type") == "text"]
    if len(texts) < len(parts):
        return False
    said["content"] = "".join(texts)
    return True


def _dicts(value: object) -> list[_Json]:
    every = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("_Json", each) for each in every if isinstance(each, dict)]
