"""What a streamed chat completion says, from the bytes of its body. No I/O.

Nearly every stream is one line of JSON per event with an empty line after it, so that is what is looked
for first: the bytes are decoded once, and each event is read in place. Whatever else the protocol allows is
left to `EventDecoder`, at its own pace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.handlers.stream_assembler import Assembler
from routelock_providers.http.body import JSON, decoded

__all__ = ["MISSHAPEN", "EventDecoder", "FailedReply", "Reading", "UnreadableEvent", "failure_in"]


_BOM = b"\xef\xbb\xbf"


class EventDecoder:
    """Cuts a stream of bytes into the data of its events.

    Lines end with LF, CR or CRLF and with nothing else: U+2028 inside a JSON text is text. Comments
    and the fields ``event``, ``id`` and ``retry`` are skipped, for chat streams say all in the data, and so
    are events without any, or with nothing but spaces, which keep a connection alive. The data stays bytes:
    whether it is UTF-8 is its reader's question.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, received: bytes) -> list[bytes]:
        """Take in the next bytes and return the data of the events that they complete."""
        lines = (self._rest + received).splitlines(keepends=True)
        # a CR at the very end may be the first half of a CRLF
        self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        return [event for line in lines if (event := self._line(line.rstrip(b"\r\n"))) is not None]

    def flush(self) -> list[bytes]:
        """Return what stands at the end of the stream without the empty line that should follow it."""
        lines = [self._rest.rstrip(b"\r\n"), b""] if self._rest else [b""]
        self._rest = b""
        return [event for line in lines if (event := self._line(line)) is not None]

    def _line(self, line: bytes) -> bytes | None:
        line = line.removeprefix(_BOM)  # at the very beginning, where else nobody puts one
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif not line and self._data:
            data = b"\n".join(self._data)
            self._data = []
            return data if data.strip() else None
        return None


_Json = Mapping[str, Any]

_DONE = b"[DONE]"

_START = len("data: ")

MISSHAPEN = (AttributeError, LookupError, TypeError, ValueError, RecursionError)
"""What reading JSON of an unexpected shape raises."""


class UnreadableEvent(ValueError):
    """An event is no chunk of a chat completion. ``said`` is what it holds instead."""

    def __init__(self, message: str, said: object) -> None:
        super().__init__(message)
        self.said = said


class FailedReply(Exception):
    """The vendor reports an error inside an answer that claimed success. ``error`` is what it says."""

    def __init__(self, error: object) -> None:
        super().__init__("The provider reported an error within its reply.")
        self.error = error


class Reading:
    """The state of one streamed reply.

    ``ended`` tells that nothing more of it will come, and ``marked`` that the stream said so itself, with
    ``data: [DONE]``.
    """

    def __init__(self) -> None:
        self.count = 0
        """How many events have come; comments are none."""
        self.ended = False
        self.marked = False
        self._strange: bytes | None = None
        """The first event, where it was no object. It is an error only if no other one is."""
        self._assembler = Assembler()
        self._held: list[bytes] = []
        """The beginning of an event, in pieces."""
        self._last = b""
        """Its last byte."""
        self._decoder: EventDecoder | None = None
        """In charge once the stream was found to be an unusual one."""
        self._problem: Exception | None = None

    @property
    def finished(self) -> bool:
        """Whether a finish reason was seen: the message is whole then."""
        return self._assembler.finished

    @property
    def counted(self) -> bool:
        """Whether the usage came last."""
        return self._assembler.counted

    def check(self) -> None:
        """See that nothing is wrong with what has come.

        Raises:
            UnreadableEvent: an event is no chunk.
            FailedReply: the vendor reported an error.
        """
        if self._problem is not None:
            raise self._problem

    def feed(self, received: bytes) -> list[HandlerEvent]:
        """Take in the next bytes, none at the end, and return what they say.

        Raises:
            UnreadableEvent: an event is no chunk. What comes before it is told first, and this the next time.
            FailedReply: the vendor reports an error; likewise.
        """
        told: list[HandlerEvent] = []
        if not received and self._problem is None:
            return self.end()
        self._try(told, received)
        return told

    def end(self) -> list[HandlerEvent]:
        """Take note that no more bytes will come, and return what the last ones said.

        An event without the empty line after it may have been cut: it counts only if it can be read.
        """
        told: list[HandlerEvent] = []
        if not self.ended:
            decoder = self._decoder or EventDecoder()
            for data in (*decoder.feed(b"".join(self._held)), *decoder.flush()):
                if data.strip() == _DONE or isinstance(_parsed(data), dict):
                    self._take(data, told)
        self._held = []
        self.ended = True
        return told

    def done(self) -> MessageDone:
        """Return the complete message, as far as it came.

        Raises:
            UnreadableEvent: its pieces do not fit together.
            FailedReply: the vendor reported an error.
        """
        self.check()
        if self._strange is not None:
            raise UnreadableEvent("it is no object", self._strange)
        try:
            return self._assembler.done()
        except MISSHAPEN as error:
            raise UnreadableEvent(str(error), "its pieces together") from error

    def _try(self, told: list[HandlerEvent], received: bytes) -> None:
        self.check()
        try:
            if self._decoder is None and b"\r" not in received:
                self._read(received, told)
            else:
                self._read_unusual(received, told)
        except (UnreadableEvent, FailedReply) as problem:
            self._problem = problem
            if not told:
                raise

    def _read(self, received: bytes, told: list[HandlerEvent]) -> None:
        self._held.append(received)
        if b"\n\n" not in received and not (received[:1] == b"\n" and self._last == b"\n"):
            self._last = received[-1:]
            return  # put together once, however many pieces an event comes in
        head, _, rest = b"".join(self._held).rpartition(b"\n\n")
        self._held, self._last = [rest], rest[-1:]
        try:
            text = head.decode()
        except UnicodeDecodeError:
            self._take_all(EventDecoder().feed(head + b"\n\n"), told)  # which tells the good from the bad
            return
        for event in text.split("\n\n"):
            if event.startswith("data: {") and (chunk := _chunk_in(event)) is not None:
                self._take_chunk(chunk, told)
                continue
            self._take_all(EventDecoder().feed(f"{event}\n\n".encode()), told)
            if self.ended:
                break

    def _read_unusual(self, received: bytes, told: list[HandlerEvent]) -> None:
        self._decoder = self._decoder or EventDecoder()
        self._held.append(received)
        if b"\n" in received or b"\r" in received:
            self._take_all(self._decoder.feed(b"".join(self._held)), told)
            self._held = []

    def _take_all(self, events: list[bytes], told: list[HandlerEvent]) -> None:
        for data in events:
            if self.ended:
                break
            self._take(data, told)

    def _take(self, data: bytes, told: list[HandlerEvent]) -> None:
        if data.strip() == _DONE:
            self.ended = self.marked = True
            return
        try:
            chunk = JSON.decode(data.decode())
        except (ValueError, RecursionError) as error:
            raise UnreadableEvent(str(error), data) from error
        if isinstance(chunk, dict):
            self._take_chunk(cast("_Json", chunk), told)
        else:
            self._strange = None if self.count else data
            self.count += 1

    def _take_chunk(self, chunk: _Json, told: list[HandlerEvent]) -> None:
        self.count += 1
        self._strange = None
        try:
            if error := failure_in(chunk):
                raise FailedReply(error)
            self._assembler.take(chunk, told)
        except MISSHAPEN as error:
            raise UnreadableEvent(str(error), chunk) from error


def failure_in(said: _Json) -> object:
    """Return the error inside an answer that claimed success (OpenRouter and others), or None."""
    error, choices = said.get("error"), said.get("choices")
    if not choices:
        # all of it is the error: Mistral's kind, and FastChat's
        return error or (said if said.get("object") == "error" or said.get("error_code") else None)
    for choice in choices:
        if choice.get("finish_reason") == "error":
            error = error or choice.get("error") or {"message": "The provider gave up on the reply."}
    return error


def _chunk_in(event: str) -> Any:
    """Return the JSON after ``data: ``, if it is all of the event: it may take several lines."""
    try:
        return decoded(event[_START:])
    except (ValueError, RecursionError):
        return None


def _parsed(data: bytes) -> object:
    try:
        return JSON.decode(data.decode())
    except (ValueError, RecursionError):
        return None
