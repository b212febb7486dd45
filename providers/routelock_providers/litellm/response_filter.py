"""A filter for the bytes of an answer on their way from a vendor to litellm.

litellm does not pass on everything: it drops chunks with a raw U+2028, hides whether a stream ended or was
cut, whether the vendor counted the tokens or litellm guessed them, and why a vendor refused. The filter reads
the bytes first. It records these facts and fixes the few things that litellm cannot read. All else passes
unchanged.

It does no I/O and imports neither litellm nor an HTTP client; `routelock_providers.litellm.client` applies
it.
"""

from __future__ import annotations

import re
from base64 import b64decode
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Any, cast

from routelock_providers.chat_completions.stream_reader import MISSHAPEN
from routelock_providers.http_errors import Answer
from routelock_providers.litellm.fixes import (
    as_chunk,
    error_in,
    fix_chunk,
    fix_completion,
    fix_event,
    fix_reply,
    reply_in_events,
)
from routelock_providers.vendor_items import Collector
from routelock_providers.vendor_json import as_object, decode_json, encode_json, json_object, json_or_none

__all__ = [
    "ResponseFilter",
    "end_reason",
    "has_odd_calls",
    "has_usage",
    "is_completion",
    "is_reply_end",
    "is_reply_part",
]


_Json = Mapping[str, Any]

_BEGINNINGS = ("message_start", "message-start", "response.", "content_", "content-")

_ENDINGS = frozenset(
    ("message_stop", "message-end", "response.completed", "response.incomplete", "response.failed")
)

_BEDROCK = "amazon-bedrock-invocationMetrics"
"""A key in the last event of a model on Bedrock's ``invoke``, which passes on the model's own format."""

_USAGE_HOLDERS = ("message", "response", "delta", "x_groq", "metadata")
"""Keys of an event whose values may hold the usage."""


def is_reply_part(event: _Json) -> bool:
    """Return whether an event is part of a reply in a known format."""
    if "choices" in event or "candidates" in event or event.get("done") is False:
        return True
    kind = event.get("type")
    return isinstance(kind, str) and kind.startswith(_BEGINNINGS)


def is_reply_end(event: _Json) -> bool:
    """Return whether an event completes the reply.

    Raises:
        AttributeError, LookupError, TypeError: the event has a shape that no vendor sends.
    """
    for choice in event.get("choices") or event.get("candidates") or ():
        if choice.get("finish_reason") or choice.get("finishReason"):
            return True
    if event.get("done") is True or event.get("type") in _ENDINGS or _BEDROCK in event:
        return True
    delta = event.get("delta")  # an object on Anthropic, text in the Responses API
    if isinstance(delta, dict) and cast("_Json", delta).get("stop_reason"):
        return True
    feedback: _Json = event.get("promptFeedback") or {}
    return bool(feedback.get("blockReason"))


def end_reason(event: _Json) -> str:
    """Return Google's or Cohere's reason for the end of a reply or the refusal of a prompt.

    litellm knows fewer reasons.

    Raises:
        AttributeError, LookupError, TypeError: the event has a shape that no vendor sends.
    """
    feedback: _Json = event.get("promptFeedback") or {}
    for candidate in event.get("candidates") or ():
        if reason := candidate.get("finishReason"):
            return str(feedback.get("blockReason") or reason)
    return str(feedback.get("blockReason") or event.get("finish_reason") or "")


def has_usage(event: _Json) -> bool:
    """Return whether an event holds the vendor's count of tokens.

    Raises:
        AttributeError, LookupError, TypeError: the event has a shape that no vendor sends.
    """
    if _is_usage_holder(event) or event.get("usageMetadata"):
        return True
    if "eval_count" in event or "prompt_eval_count" in event:
        return True
    holders: list[Any] = [event[key] for key in _USAGE_HOLDERS if key in event]
    holders += event.get("choices") or ()
    return any(isinstance(each, dict) and _is_usage_holder(cast("_Json", each)) for each in holders)


def _is_usage_holder(holder: _Json) -> bool:
    return isinstance(holder.get("usage"), dict)


def is_completion(event: _Json) -> bool:
    """Return whether an event is a whole chat completion instead of a chunk."""
    choices = event.get("choices")
    first: object = cast("list[object]", choices)[0] if isinstance(choices, list) and choices else None
    return isinstance(first, dict) and "message" in first and "delta" not in first


def has_odd_calls(event: _Json) -> bool:
    """Return whether an event holds a call that litellm silently drops from a stream.

    Raises:
        AttributeError, LookupError, TypeError: the event has a shape that no vendor sends.
    """
    for choice in event.get("choices") or ():
        message: _Json = choice.get("delta") or choice.get("message") or {}
        for call in message.get("tool_calls") or ():
            function: _Json = call.get("function") or {}
            if not all(isinstance(each or "", str) for each in (call.get("id"), function.get("name"))):
                return True
    return False


_MOST_ERROR_BYTES = 64_000
"""Bytes of an error's body that are kept."""

_MOST_QUOTED_BYTES = 200
"""Bytes of an unreadable body that are kept."""

_REASON_MARKS = (b'"finishReason"', b'"blockReason"', b'"ERROR_TOXIC"')
"""Bytes of events whose reason litellm does not pass on."""

_ASKED_STREAM = re.compile(rb'"stream"\s*:\s*true')

_BY_PATH = re.compile(r"(:\w+|/converse(-stream)?|/invoke(-with-response-stream)?)$")
"""Ends of paths that decide whether a stream is asked for: those of Google and Bedrock."""

_KIND = rb":event-type\x07\x00"
"""The bytes before the type of an event in Bedrock's binary stream; JSON text cannot hold them."""

_BINARY_TALK = re.compile(_KIND + rb".(contentBlock(Start|Delta)|messageStart)", re.DOTALL)

_BINARY_END = re.compile(_KIND + rb".messageStop", re.DOTALL)

_BINARY_USAGE = re.compile(rb'"usage"\s*:\s*\{')

_PACKED = re.compile(rb'"bytes"\s*:\s*"([A-Za-z0-9+/=]*+)("?)')
"""The model's own event on Bedrock's ``invoke``: JSON in base64, once per event. In the text of a model the
quotes would be escaped."""

_DONE = (b"data: [DONE]", b"data:[DONE]")

_SKIPPED = (b":", b"id:", b"retry:")
"""Lines that are dropped. The openai library takes a lone field for an event, and also each empty line after
an id. litellm takes a comment after the finish reason for the end of the stream, although the usage
follows."""

_FINISH = (
    b'data: {"id":"","object":"chat.completion.chunk","created":0,"model":"",'
    b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
)

_UNSAFE = (
    # litellm 1.105 splits streams with str.splitlines, which takes these for line ends. As escapes they are
    # the same JSON; JSON cannot hold the other line ends of splitlines unescaped.
    (b"\xe2\x80\xa8", rb"\u2028"),
    (b"\xe2\x80\xa9", rb"\u2029"),
    (b"\xc2\x85", rb"\u0085"),
)

_BINARY = "amazon.eventstream"

_LARGEST_EVENT = 2**20
"""The most bytes of an event that are buffered; a longer event is not text."""

_OVERLAP = 40
"""Bytes kept from one binary chunk to the next, so that a mark across the cut is found."""


def _with_escapes(line: bytes) -> bytes:
    for raw, escaped in _UNSAFE:
        line = line.replace(raw, escaped)
    return line


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


class ResponseFilter:
    """Reads and fixes one answer of one call.

    Args:
        provider: litellm's name of the provider.
        streams: whether litellm was asked for a stream. It does not always ask the vendor for one.
        collector: is shown the answer as it came; None if no tool of the vendor was offered.
    """

    def __init__(self, provider: str, *, streams: bool, collector: Collector | None = None) -> None:
        self.provider = provider
        self._collector = collector
        self._streams = streams
        self.streaming: bool = False
        """Whether the vendor was asked for a stream. Any other body is read and fixed whole."""
        self.answer: Answer | None = None
        """The answer if it was an error: by its status, or inside a success."""
        self.status: int | None = None
        self.usage_seen: bool = False
        """Whether the vendor counted the tokens."""
        self.end_reason: str = ""
        """The vendor's reason for the end of the reply, if litellm does not pass it on."""
        self.unreadable: bytes | None = None
        """The beginning of data that should have been a JSON object and is not."""
        self.is_broken: bool = False
        """Whether such data is in the middle of a stream: nothing after it is read."""
        self.ended_without_reason: bool = False
        """Whether the stream ended with ``[DONE]`` and no finish reason, which proves whole text at most."""
        self._event: list[bytes] = []
        """The data of an event in several lines. litellm would read each line as an event."""
        self._name = b""
        """The line with the name of the next event: the openai library takes a lone name for an event."""
        self._is_open = False
        """Whether the last event was passed on without the empty line after it."""
        self._is_over = False
        """Whether ``[DONE]`` came: nothing after it belongs to the reply."""
        self._began = False
        self._has_part = False
        self._ended = False
        self._headers: Mapping[str, str] = {}
        self._content_type = ""
        self._rest = b""

    @property
    def was_cut(self) -> bool:
        """Whether a streamed reply in a known format stopped before its end."""
        return self.streaming and self._has_part and not self._ended

    @property
    def was_empty(self) -> bool:
        """Whether an event stream held nothing at all."""
        return self.has_no_reply and "event-stream" in self._content_type and self.unreadable is None

    @property
    def is_complete(self) -> bool:
        """Whether the whole reply has come; usage may follow."""
        return self._ended

    @property
    def has_no_reply(self) -> bool:
        """Whether an answer that claimed success was a stream without any part of a reply."""
        silent = not self._has_part and (not self._ended or self.ended_without_reason)
        return silent and self.streaming and self.status is not None

    @property
    def reads_whole(self) -> bool:
        """Whether the body has to be read to its end and passed to `whole`."""
        return not self.streaming or (self.status or 0) >= 400

    def begin(self, path: str, asked: bytes, status: int, headers: Mapping[str, str]) -> None:
        """Record the head of an answer. A second answer in the same call replaces the first.

        Args:
            path: the path of the request; some vendors have a separate one for streams.
            asked: the body of the request.
            status: the status of the answer.
            headers: the headers of the answer, found by names in any case.
        """
        by_path = _BY_PATH.search(path)
        wanted = "stream" in by_path[0] if by_path else _ASKED_STREAM.search(asked)
        self.streaming = self._streams and bool(wanted)
        self.status, self._headers = status, headers
        self._content_type = headers.get("content-type", "")
        self.answer, self.unreadable, self.end_reason = None, None, ""
        self._began = self._has_part = self._ended = self.ended_without_reason = False
        self.usage_seen = self.is_broken = False
        self._rest = self._name = b""
        self._is_open = self._is_over = False
        self._event = []

    def whole(self, body: bytes) -> bytes:
        """Record a complete body, and return it in a form that litellm can read."""
        if self.status is not None and self.status >= 400:
            self._record_error(body)
            return body
        body = body.removeprefix(BOM_UTF8)
        if "event-stream" in self._content_type:
            body = reply_in_events(body) or body  # a stream came though a whole reply was asked for
        if self._collector is not None and self._collect(came := json_object(body), body):
            body = encode_json(came)
        fixed = fix_reply(self.provider, body)
        value = json_or_none(fixed)
        reply = as_object(value)
        if reply is not None and fix_completion(self.provider, reply):
            fixed = encode_json(reply)
        self._record(value, fixed)
        return fixed

    def feed(self, data: bytes) -> bytes:
        """Record the next bytes of a stream, and return the bytes for litellm."""
        if _BINARY in self._content_type:
            self._rest = self._record_binary(self._rest + data)
            return data
        head, newline, self._rest = (self._rest + data).rpartition(b"\n")
        if not newline:
            return b""
        if not self._began:
            self._began = True
            head = head.removeprefix(BOM_UTF8)
        lines: list[bytes] = []
        for line in head.split(b"\n"):
            lines.append(self._line(line))
            if self.is_broken:
                break
        return b"".join(lines)

    def end(self) -> bytes:
        """Return the rest for litellm when the stream has ended. Half an event is dropped."""
        rest, self._rest = self._rest, b""
        if _BINARY in self._content_type:
            return b""
        if not self._began:
            rest = rest.removeprefix(BOM_UTF8)
        if self._is_cut(rest):
            return b""
        last = self._line(rest) if rest else b""
        return last + self._line(b"") if self._is_open or self._event else last

    def _is_cut(self, rest: bytes) -> bool:
        """Return whether the last event cannot be read with the rest of the bytes."""
        if rest.startswith(b"data:") and not rest.startswith(_DONE):
            rest = rest[5:]
        elif not rest.startswith(b"{"):
            rest = b""
        if not (rest or self._event):
            return False
        try:
            decode_json(b"\n".join([*self._event, rest]))
        except (ValueError, RecursionError):
            return True
        return False

    def _line(self, line: bytes) -> bytes:
        """Record one line, and return the bytes for litellm."""
        if line in (b"", b"\r"):
            passed, self._name, self._is_open = self._end_event(), b"", False
            return passed + line + b"\n"
        if self._is_over:
            return b""
        if not (plain := line.isascii()):
            line = _with_escapes(line)
        if line.startswith(b"data:"):
            return self._done(line) if line.startswith(_DONE) else self._data(line, plain)
        if line.startswith(b"event:"):
            self._name, line = line + b"\n", b""
        elif line.startswith(b"{"):
            return self._bare(line)
        return line + b"\n" if line and not line.startswith(_SKIPPED) else b""

    def _data(self, line: bytes, plain: bool) -> bytes:
        data = line[5:]
        if not self._event:
            try:
                value = decode_json(data)
            except (ValueError, RecursionError):
                pass  # the event may continue in the next line
            else:
                return self._pass_event(value, line)
        if self._event or data.strip():
            self._event.append(data)
        return b"" if plain or _is_utf8(data) else self._end_event()

    def _bare(self, line: bytes) -> bytes:
        """Record a line of bare JSON: an event of Ollama, or a whole reply."""
        try:
            value = cast("dict[str, Any]", decode_json(line))
        except (ValueError, RecursionError):
            return line + b"\n"
        if b'"message"' in line and is_completion(value) and not value.get("error"):
            # litellm makes an empty stream of a whole reply
            return self._pass_event(as_chunk(value), b"data: " + encode_json(as_chunk(value)))
        self._record_event(value, line)
        return line + b"\n"

    def _end_event(self) -> bytes:
        """Return an event of several lines as one, if it can be read: litellm may skip others."""
        if not self._event:
            return b""
        data = b" ".join([part.strip() for part in self._event])
        self._event.clear()
        try:
            value = decode_json(data)
        except (ValueError, RecursionError):
            self._break(data)
            return b""
        return self._pass_event(value, b"data: " + data)

    def _pass_event(self, value: object, line: bytes) -> bytes:
        """Record an event, and return it in a form that litellm can read."""
        if value == {}:
            return b""  # an empty event only keeps the connection alive
        if (event := as_object(value)) is not None:
            if self._collector is not None and self._collect(event, line[5:]):
                line = b"data: " + encode_json(event)
            if not event:
                return b""
            if "choices" in event:
                self._name = b""  # litellm may take the name of a chunk for the end
            if fix_chunk(self.provider, event):
                line = b"data: " + encode_json(event)
        self._record(value, line[5:])
        return b"" if self.is_broken else self._framed(fix_event(self.provider, line))

    def _collect(self, value: dict[str, Any], data: bytes) -> bool:
        """Show an answer or an event to the collector; return whether something was removed from it."""
        assert self._collector is not None
        try:
            self._collector.take(value)
            return self._collector.hide(value)
        except MISSHAPEN:
            self._break(data)
            return False

    def _framed(self, line: bytes) -> bytes:
        """Return an event with its name and with an empty line before it, which the openai library needs."""
        before = b"\n" + self._name if self._is_open else self._name
        self._name, self._is_open = b"", True
        return before + line + b"\n"

    def _record(self, value: object, data: bytes) -> None:
        if (event := as_object(value)) is not None:
            self._record_event(event, data)
        else:
            self.unreadable = data[:_MOST_QUOTED_BYTES]

    def _record_event(self, event: Mapping[str, Any], data: bytes) -> None:
        try:
            if b'"tool_calls"' in data and has_odd_calls(event):
                self._break(data)
            self._has_part = self._has_part or is_reply_part(event)
            self._ended = self._ended or is_reply_end(event)
            if any(mark in data for mark in _REASON_MARKS):
                self.end_reason = end_reason(event) or self.end_reason
            self.usage_seen = self.usage_seen or has_usage(event)
            if b'"error' in data and (error := error_in(event)):
                # a nested error is moved to the top level, where it is read
                self._record_error(data if event.get("error") else encode_json({"error": error}))
        except MISSHAPEN:
            self._break(data)

    def _break(self, data: bytes) -> None:
        self.unreadable, self.is_broken = data.strip()[:_MOST_QUOTED_BYTES], True

    def _record_binary(self, data: bytes) -> bytes:
        """Record the facts of a binary stream, and return the bytes to search again with the next ones."""
        self._has_part = self._has_part or bool(_BINARY_TALK.search(data))
        self._ended = self._ended or bool(_BINARY_END.search(data))
        self.usage_seen = self.usage_seen or bool(_BINARY_USAGE.search(data))
        again = len(data) - _OVERLAP
        for packed in _PACKED.finditer(data):
            if packed[2]:
                self._unpack(packed[1])
            elif len(data) - packed.start() < _LARGEST_EVENT:
                again = min(again, packed.start())
        return data[max(again, 0) :]

    def _unpack(self, packed: bytes) -> None:
        try:
            data = b64decode(packed)
            event = as_object(decode_json(data))
        except (ValueError, RecursionError):
            return  # other bytes, such as an image
        if event is not None:
            self._has_part = True
            self._record_event(event, data)

    def _done(self, line: bytes) -> bytes:
        passed = self._end_event()
        self._is_over = True
        line = line.replace(b"data:[", b"data: [", 1)
        if not self._ended:
            self._ended = self.ended_without_reason = True
            if self._has_part:
                # litellm takes a reply without a finish reason for cut off
                line = _FINISH + line
        return passed + self._framed(line)

    def _record_error(self, body: bytes) -> None:
        self._ended = True
        text = body[:_MOST_ERROR_BYTES].decode("utf-8", "replace")
        self.answer = Answer(self.status, self._headers, text)
