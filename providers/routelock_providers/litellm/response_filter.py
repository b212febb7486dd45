"""A filter on the wire between litellm and a vendor: bytes in, bytes out.

litellm loses things on the way from the wire to its caller: chunks with a raw U+2028 in them, the
difference between a stream that ended and one that was cut, whether token counts came from the
vendor or were guessed, why the vendor refused. The filter reads the same bytes first. It notes what was
said, and fixes the few things that litellm cannot read. Whatever it does not know passes unchanged.

It knows no vendor by name but where a rule says so, does no I/O and imports neither litellm nor an
HTTP client; `routelock_providers.litellm.client` puts it into the stream of bytes.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Any, cast

from pydantic_core import from_json

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

__all__ = ["ResponseFilter", "counts", "ends", "has_strange_calls", "is_whole", "talks", "why_ended"]


_Json = Mapping[str, Any]

_BEGINNINGS = ("message_start", "message-start", "response.", "content_", "content-")

_ENDINGS = frozenset(
    ("message_stop", "message-end", "response.completed", "response.incomplete", "response.failed")
)

_BEDROCK = "amazon-bedrock-invocationMetrics"
"""What Bedrock adds to the last event of a model that it lets speak in its own words (``invoke``)."""

_COUNTED = ("message", "response", "delta", "x_groq", "metadata")
"""What holds the usage of an event, where the event itself does not."""


def talks(event: _Json) -> bool:
    """Whether it is part of a reply whose way of ending is known."""
    if "choices" in event or "candidates" in event or event.get("done") is False:
        return True
    kind = event.get("type")
    return isinstance(kind, str) and kind.startswith(_BEGINNINGS)


def ends(event: _Json) -> bool:
    """Whether the reply is whole with it.

    Raises:
        AttributeError, LookupError, TypeError: it has another shape than any vendor's.
    """
    for choice in event.get("choices") or event.get("candidates") or ():
        if choice.get("finish_reason") or choice.get("finishReason"):
            return True
    if event.get("done") is True or event.get("type") in _ENDINGS or _BEDROCK in event:
        return True
    delta = event.get("delta")  # Anthropic's; in the Responses API it is text
    if isinstance(delta, dict) and cast("_Json", delta).get("stop_reason"):
        return True
    feedback: _Json = event.get("promptFeedback") or {}
    return bool(feedback.get("blockReason"))


def why_ended(event: _Json) -> str:
    """Return why a reply ended, or a prompt was refused, in Google's and Cohere's words; litellm has fewer.

    Raises:
        AttributeError, LookupError, TypeError: it has another shape than any vendor's.
    """
    feedback: _Json = event.get("promptFeedback") or {}
    for candidate in event.get("candidates") or ():
        if reason := candidate.get("finishReason"):
            return str(feedback.get("blockReason") or reason)
    return str(feedback.get("blockReason") or event.get("finish_reason") or "")


def counts(event: _Json) -> bool:
    """Whether the vendor says in it how many tokens there were.

    Raises:
        AttributeError, LookupError, TypeError: it has another shape than any vendor's.
    """
    if _usage_in(event) or event.get("usageMetadata"):
        return True
    if "eval_count" in event or "prompt_eval_count" in event:
        return True
    holders: list[Any] = [event[key] for key in _COUNTED if key in event]
    holders += event.get("choices") or ()
    return any(isinstance(each, dict) and _usage_in(cast("_Json", each)) for each in holders)


def _usage_in(holder: _Json) -> bool:
    return isinstance(holder.get("usage"), dict)


def is_whole(event: _Json) -> bool:
    """Whether it is a whole chat completion, such as nobody streams."""
    choices = event.get("choices")
    first: object = cast("list[object]", choices)[0] if isinstance(choices, list) and choices else None
    return isinstance(first, dict) and "message" in first and "delta" not in first


def has_strange_calls(event: _Json) -> bool:
    """Whether a call in it has a shape that litellm drops from a stream without a word.

    Raises:
        AttributeError, LookupError, TypeError: likewise.
    """
    for choice in event.get("choices") or ():
        said: _Json = choice.get("delta") or choice.get("message") or {}
        for call in said.get("tool_calls") or ():
            function: _Json = call.get("function") or {}
            if not all(isinstance(each or "", str) for each in (call.get("id"), function.get("name"))):
                return True
    return False


_LARGEST_NOTE = 64_000
"""Of a body that was an error, so many bytes are kept to read the reason from."""

_LARGEST_QUOTE = 200

_WHY = (b'"finishReason"', b'"blockReason"', b'"ERROR_TOXIC"')
"""What is in an event with a reason to end for which litellm has no word."""

_ASKED_STREAM = re.compile(rb'"stream"\s*:\s*true')

_BY_PATH = re.compile(r"(:\w+|/converse(-stream)?|/invoke(-with-response-stream)?)$")
"""Ends of paths that say by themselves whether a stream is asked for: Google's and Bedrock's."""

_KIND = rb":event-type\x07\x00"
"""What stands before the kind of an event in Bedrock's binary stream, and in no text: that is JSON."""

_BINARY_TALK = re.compile(_KIND + rb".(contentBlock(Start|Delta)|messageStart)", re.DOTALL)

_BINARY_END = re.compile(_KIND + rb".messageStop", re.DOTALL)

_BINARY_USAGE = re.compile(rb'"usage"\s*:\s*\{')

_PACKED = re.compile(rb'"bytes"\s*:\s*"([A-Za-z0-9+/=]*+)("?)')
"""Where Bedrock passes on what a model says in the model's own words (``invoke``): JSON in base64, once per
event. In text of a model the quotes would be escaped."""

_DONE = (b"data: [DONE]", b"data:[DONE]")

_SKIPPED = (b":", b"id:", b"retry:")
"""Lines of no use to a reply. openai's library takes a field alone for an event, and each empty line
after an id as well; litellm takes a comment after the finish reason for the end, before the usage came."""

_FINISH = (
    b'data: {"id":"","object":"chat.completion.chunk","created":0,"model":"",'
    b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
)

_UNSAFE = (
    # line ends for Python's str.splitlines, which litellm 1.105 cuts streams with; as escapes they are the
    # same JSON (the others that splitlines knows may not stand in JSON unescaped)
    (b"\xe2\x80\xa8", rb"\u2028"),
    (b"\xe2\x80\xa9", rb"\u2029"),
    (b"\xc2\x85", rb"\u0085"),
)

_BINARY = "amazon.eventstream"

_LARGEST_EVENT = 2**20
"""Bytes of an event that are waited for; what is longer is no text."""

_OVERLAP = 40
"""Bytes kept from one binary chunk to the next, so that a mark is found across the cut."""


def _parsed(data: bytes) -> object:
    """Return what some JSON says; the quick parser refuses some that Python's takes.

    Raises:
        ValueError, RecursionError: it is no JSON.
    """
    try:
        return from_json(data)
    except ValueError:
        return json.loads(data.decode())


def _encoded(value: object) -> bytes:
    return json.dumps(value).encode()


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
    """Reads one answer of one call.

    Args:
        provider: litellm's name of the provider.
        streams: whether litellm is told to stream. It does not always ask the vendor to.
    """

    def __init__(self, provider: str, *, streams: bool) -> None:
        self.provider = provider
        self._streams = streams
        self.streaming = False
        """Whether a stream was asked for. A whole body is read and fixed whole."""
        self.answer: Answer | None = None
        """The answer when it was an error: by its status, or inside a success."""
        self.status: int | None = None
        self.usage_seen = False
        """Whether the vendor itself counted tokens."""
        self.why_ended = ""
        """Why the reply ended, where the vendor has more words for it than litellm."""
        self.strange: bytes | None = None
        """The beginning of something that is no JSON object where the vendor should have sent one."""
        self.is_broken = False
        """Whether that is in the middle of a stream, and no part of any reply: nothing after it is read."""
        self.gave_no_reason = False
        """Whether the stream said that it is over, and not why: that is proof of whole text at most."""
        self._event: list[bytes] = []
        """The data of an event that takes several lines. litellm reads each line as an event of its own."""
        self._name = b""
        """The line that names the event to come: openai's library takes a name alone for an event."""
        self._is_open = False
        """Whether an event was passed on without the empty line after it."""
        self._is_over = False
        """Whether the stream said so: nothing that follows is of the reply."""
        self._began = False
        self._talked = False
        self._ended = False
        self._headers: Mapping[str, str] = {}
        self._content_type = ""
        self._rest = b""

    @property
    def was_cut(self) -> bool:
        """Whether a streamed reply of a known kind stopped without its proper end."""
        return self.streaming and self._talked and not self._ended

    @property
    def was_silent(self) -> bool:
        """Whether what was to be a stream had nothing in it, not even something strange."""
        return self.said_nothing and "event-stream" in self._content_type and self.strange is None

    @property
    def is_complete(self) -> bool:
        """Whether nothing of the reply itself is outstanding: what may follow is a trailer."""
        return self._ended

    @property
    def said_nothing(self) -> bool:
        """Whether an answer that claimed success was a stream without anything of a reply in it."""
        silent = not self._talked and (not self._ended or self.gave_no_reason)
        return silent and self.streaming and self.status is not None

    @property
    def reads_whole(self) -> bool:
        """Whether the body has to be read to its end and passed through `whole`."""
        return not self.streaming or (self.status or 0) >= 400

    def begin(self, path: str, asked: bytes, status: int, headers: Mapping[str, str]) -> None:
        """Note the head of an answer. A second answer in the same call replaces the first.

        Args:
            path: of the request; some vendors have another one for streams.
            asked: the body of the request.
            status: of the answer.
            headers: of the answer, their names in any case.
        """
        by_path = _BY_PATH.search(path)
        wanted = "stream" in by_path[0] if by_path else _ASKED_STREAM.search(asked)
        self.streaming = self._streams and bool(wanted)
        self.status, self._headers = status, headers
        self._content_type = headers.get("content-type", "")
        self.answer, self.strange, self.why_ended = None, None, ""
        self._began = self._talked = self._ended = self.gave_no_reason = False
        self.usage_seen = self.is_broken = False
        self._rest = self._name = b""
        self._is_open = self._is_over = False
        self._event = []

    def whole(self, body: bytes) -> bytes:
        """Note a complete body, and return it as litellm can read it."""
        if self.status is not None and self.status >= 400:
            self._note_error(body)
            return body
        body = body.removeprefix(BOM_UTF8)
        if "event-stream" in self._content_type:
            body = reply_in_events(body) or body  # asked for a whole reply, got a stream
        fixed = fix_reply(self.provider, body)
        try:
            said: Any = _parsed(fixed)
        except (ValueError, RecursionError):
            said = None
        if isinstance(said, dict) and fix_completion(self.provider, cast("dict[str, Any]", said)):
            fixed = _encoded(cast("object", said))
        self._take(cast("object", said), fixed)
        return fixed

    def feed(self, data: bytes) -> bytes:
        """Note the next bytes of a stream, and return what litellm is to see of them."""
        if _BINARY in self._content_type:
            self._rest = self._look_into(self._rest + data)
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
        """Return what is left when the stream has ended. Half an event is none."""
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
        """Whether the last event cannot be read with the rest of the bytes."""
        if rest.startswith(b"data:") and not rest.startswith(_DONE):
            rest = rest[5:]
        elif not rest.startswith(b"{"):
            rest = b""
        if not (rest or self._event):
            return False
        try:
            _parsed(b"\n".join([*self._event, rest]))
        except (ValueError, RecursionError):
            return True
        return False

    def _line(self, line: bytes) -> bytes:
        """Note one line, and return what litellm is to see for it."""
        if line in (b"", b"\r"):
            told, self._name, self._is_open = self._end_event(), b"", False
            return told + line + b"\n"
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
                said = _parsed(data)
            except (ValueError, RecursionError):
                pass  # it may go on in the next line
            else:
                return self._take_event(said, line)
        if self._event or data.strip():
            self._event.append(data)
        return b"" if plain or _is_utf8(data) else self._end_event()

    def _bare(self, line: bytes) -> bytes:
        """Note a line that is an event without any frame, such as Ollama's, or a whole reply."""
        try:
            said = cast("dict[str, Any]", _parsed(line))
        except (ValueError, RecursionError):
            return line + b"\n"
        if b'"message"' in line and is_whole(said) and not said.get("error"):
            # litellm makes a stream with nothing in it of a reply that does not stream
            return self._take_event(as_chunk(said), b"data: " + _encoded(as_chunk(said)))
        self._look(said, line)
        return line + b"\n"

    def _end_event(self) -> bytes:
        """Return an event of several lines in one, if it can be read: litellm may skip others."""
        if not self._event:
            return b""
        data = b" ".join([part.strip() for part in self._event])
        self._event.clear()
        try:
            said = _parsed(data)
        except (ValueError, RecursionError):
            self._break(data)
            return b""
        return self._take_event(said, b"data: " + data)

    def _take_event(self, said: object, line: bytes) -> bytes:
        """Note an event, and return it as litellm can read it."""
        if said == {}:
            return b""  # keeps the connection alive
        if isinstance(said, dict):
            event = cast("dict[str, Any]", said)
            if "choices" in event:
                self._name = b""  # means nothing to litellm, which takes one for the end, too
            if fix_chunk(self.provider, event):
                line = b"data: " + _encoded(event)
        self._take(cast("Any", said), line[5:])
        return b"" if self.is_broken else self._framed(fix_event(self.provider, line))

    def _framed(self, line: bytes) -> bytes:
        """Return an event with its name, and apart from the one before: openai's library needs it."""
        before = b"\n" + self._name if self._is_open else self._name
        self._name, self._is_open = b"", True
        return before + line + b"\n"

    def _take(self, said: object, data: bytes) -> None:
        if isinstance(said, dict):
            self._look(cast("dict[str, Any]", said), data)
        else:
            self.strange = data[:_LARGEST_QUOTE]

    def _look(self, event: Mapping[str, Any], data: bytes) -> None:
        try:
            if b'"tool_calls"' in data and has_strange_calls(event):
                self._break(data)
            self._talked = self._talked or talks(event)
            self._ended = self._ended or ends(event)
            if any(mark in data for mark in _WHY):
                self.why_ended = why_ended(event) or self.why_ended
            self.usage_seen = self.usage_seen or counts(event)
            if b'"error' in data and (error := error_in(event)):
                # an error further in is lifted to where it is looked for
                self._note_error(data if event.get("error") else json.dumps({"error": error}).encode())
        except MISSHAPEN:
            self._break(data)

    def _break(self, data: bytes) -> None:
        self.strange, self.is_broken = data.strip()[:_LARGEST_QUOTE], True

    def _look_into(self, data: bytes) -> bytes:
        """Note what is in a binary stream, and return what has to be seen again with the next bytes."""
        self._talked = self._talked or bool(_BINARY_TALK.search(data))
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
            event = _parsed(data)
        except (ValueError, RecursionError):
            return  # bytes of something else, such as an image
        if isinstance(event, dict):
            self._talked = True
            self._look(cast("dict[str, Any]", event), data)

    def _done(self, line: bytes) -> bytes:
        told = self._end_event()
        self._is_over = True
        line = line.replace(b"data:[", b"data: [", 1)
        if not self._ended:
            self._ended = self.gave_no_reason = True
            if self._talked:
                # complete by its end mark, though without a finish reason: litellm takes that for cut off
                line = _FINISH + line
        return told + self._framed(line)

    def _note_error(self, body: bytes) -> None:
        self._ended = True
        text = body[:_LARGEST_NOTE].decode("utf-8", "replace")
        self.answer = Answer(self.status, self._headers, text)
