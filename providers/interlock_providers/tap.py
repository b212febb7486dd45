"""A thin tap on the wire between litellm and a vendor: bytes in, bytes out.

litellm loses things on the way from the wire to its caller: chunks with a raw U+2028 in them, the
difference between a stream that ended and one that was cut, whether token counts came from the
vendor or were guessed, why the vendor refused. The tap reads the same bytes first. It notes what was
said, and mends the few things that litellm cannot read. Whatever it does not know passes unchanged.

It knows no vendor by name but where a rule says so, does no I/O and imports neither litellm nor an
HTTP client; `interlock_providers.tapped` puts it into the stream of bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pydantic_core import from_json

from interlock_providers.answers import Answer
from interlock_providers.mending import as_object, error_in, mend_event, mend_reply, reply_in_events

__all__ = ["Tap"]

_LARGEST_NOTE = 64_000
"""Of a body that was an error, so many bytes are kept to read the reason from."""

_LARGEST_QUOTE = 200

_ASKED_STREAM = re.compile(rb'"stream"\s*:\s*true')

_TALK = re.compile(
    rb'"choices"\s*:|"candidates"\s*:|"type"\s*:\s*"(message.start|response\.\w+|content.\w+)"|"done"\s*:\s*false'
    rb"|contentBlock(Start|Delta)|messageStart"
)
"""Marks of a streamed reply whose way of ending is known."""

_END = re.compile(
    rb'"(finish_reason|finishReason|stop_reason|blockReason)"\s*:\s*"\w'  # chat, Gemini, Anthropic
    rb'|"type"\s*:\s*"(message.(stop|end)|response\.(completed|incomplete|failed))"'
    rb'|"done"\s*:\s*true|messageStop'  # Ollama, Bedrock
)
_REASON = re.compile(rb'eason"\s*:\s*"\w')
_USAGE = re.compile(rb'"usage(Metadata)?"\s*:\s*\{')
_COUNT = re.compile(rb'"(prompt_)?eval_count"\s*:')
_ERROR = re.compile(rb'"error"\s*:\s*[{"]|"type"\s*:\s*"error"')

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
_OVERLAP = 40
"""Bytes kept from one binary chunk to the next, so that a mark is found across the cut."""


def _has_end(data: bytes) -> bool:
    """Whether there is a mark of an end; `_END` alone takes twice as long to say that there is none."""
    maybe = b'"type"' in data or b'"done"' in data or b"messageStop" in data or _REASON.search(data)
    return bool(maybe and _END.search(data))


def _has_usage(data: bytes) -> bool:
    return bool(_USAGE.search(data)) or (b'eval_count"' in data and bool(_COUNT.search(data)))


def _is_object(data: bytes) -> bool:
    """Whether it is a JSON object; the quick parser refuses some that Python's takes.

    Raises:
        ValueError, RecursionError: it is no JSON.
    """
    try:
        return isinstance(from_json(data), dict)
    except ValueError:
        return isinstance(json.loads(data.decode()), dict)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


class Tap:
    """Reads one answer of one call.

    Args:
        provider: litellm's name of the provider.
    """

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.streaming = False
        """Whether a stream was asked for. A whole body is read and mended whole."""
        self.answer: Answer | None = None
        """The answer when it was an error: by its status, or inside a success."""
        self.status: int | None = None
        self.usage_seen = False
        """Whether the vendor itself counted tokens."""
        self.strange: bytes | None = None
        """The beginning of something that is no JSON object where the vendor should have sent one."""
        self.is_broken = False
        """Whether that is no JSON at all, in the middle of a stream: what follows is not to be read."""
        self._event: list[bytes] = []
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
        return self.streaming and self.status is not None and not self._talked and not self._ended

    @property
    def reads_whole(self) -> bool:
        """Whether the body has to be read to its end and passed through `whole`."""
        return not self.streaming or (self.status or 0) >= 400

    def begin(self, path: str, asked: bytes, status: int, headers: Mapping[str, str]) -> None:
        """Note the head of an answer. A second answer in the same call replaces the first.

        Args:
            path: of the request; some vendors have another one for streams.
            asked: the body of the request. litellm does not always ask for a stream when told to.
            status: of the answer.
            headers: of the answer, their names in any case.
        """
        self.streaming = "stream" in path.lower() or bool(_ASKED_STREAM.search(asked))
        self.status, self._headers = status, headers
        self._content_type = headers.get("content-type", "")
        self.answer = self.strange = None
        self._talked = self._ended = self.usage_seen = self.is_broken = False
        self._rest = b""
        self._event = []

    def whole(self, body: bytes) -> bytes:
        """Note a complete body, and return it as litellm can read it."""
        if self.status is not None and self.status >= 400:
            self._note_error(body)
            return body
        if "event-stream" in self._content_type:
            body = reply_in_events(body) or body  # asked for a whole reply, got a stream
        if not (body.lstrip().startswith(b"{") and body.rstrip().endswith(b"}")):
            self.strange = body[:_LARGEST_QUOTE]
        self.usage_seen = _has_usage(body)
        body = mend_reply(self.provider, body)
        if _ERROR.search(body) and error_in(as_object(body)):
            self._note_error(body)
        return body

    def feed(self, data: bytes) -> bytes:
        """Note the next bytes of a stream, and return what litellm is to see of them."""
        if _BINARY in self._content_type:
            self._look(self._rest + data)
            self._rest = data[-_OVERLAP:]
            return data
        head, newline, self._rest = (self._rest + data).rpartition(b"\n")
        if not newline:
            return b""
        lines: list[bytes] = []
        whole = 0  # how many of them are of whole events
        for line in head.split(b"\n"):
            mended = self._line(line)
            if self.is_broken:
                return b"\n".join([*lines[:whole], b""])
            lines.append(mended)
            if not self._event:
                whole = len(lines)
        return b"\n".join([*lines, b""])

    def end(self) -> bytes:
        """Return what is left when the stream has ended."""
        rest, self._rest = self._rest, b""
        if _BINARY in self._content_type or not rest:
            return b""
        return self._line(rest)

    def _line(self, line: bytes) -> bytes:
        """Note one line, and return it mended."""
        if line in (b"", b"\r"):
            self._check_event()
            return line
        plain = line.isascii()
        for raw, escaped in () if plain else _UNSAFE:
            if raw in line:
                line = line.replace(raw, escaped)
        if line.startswith(b"data: [DONE]"):
            return self._done(line)
        if line.startswith(b"data:"):
            self._event.append(line[5:])
            if not (plain or _is_utf8(line)):
                self._check_event()
        self._look(line)
        return mend_event(self.provider, line)

    def _check_event(self) -> None:
        """See whether an event is what litellm can read: some of its readers skip what they cannot."""
        data = b"\n".join(self._event).strip()
        self._event.clear()
        if not data:
            return
        try:
            fine = _is_object(data)
        except (ValueError, RecursionError):
            fine, self.is_broken = False, True
        if not fine:
            self.strange = data[:_LARGEST_QUOTE]

    def _look(self, data: bytes) -> None:
        self._talked = self._talked or bool(_TALK.search(data))
        self._ended = self._ended or _has_end(data)
        self.usage_seen = self.usage_seen or _has_usage(data)
        if b'"error"' in data and _ERROR.search(data):
            body = data.partition(b"data:")[2] or data
            if error_in(as_object(body)):
                self._note_error(body)

    def _done(self, line: bytes) -> bytes:
        if self._ended or not self._talked:
            self._ended = True
            return line
        self._ended = True
        # complete by its end mark, though without a finish reason: litellm takes that for cut off
        return _FINISH + line

    def _note_error(self, body: bytes) -> None:
        self._ended = True
        text = body[:_LARGEST_NOTE].decode("utf-8", "replace")
        self.answer = Answer(self.status, self._headers, text)
