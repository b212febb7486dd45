"""Reads a streamed chat completion from the bytes of its body. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.handlers.stream_assembler import Assembler
from routelock_providers.vendor_items import Collector
from routelock_providers.vendor_json import as_object, decode_json, json_or_none

__all__ = ["MISSHAPEN", "EventDecoder", "FailedReply", "StreamReader", "UnreadableEvent", "failure_in"]


_BOM = b"\xef\xbb\xbf"


class EventDecoder:
    """Splits the bytes of an event stream into the data of its events.

    Lines end with LF, CR or CRLF and with nothing else: U+2028 inside a JSON text is text. Comments and the
    fields ``event``, ``id`` and ``retry`` are skipped, because chat streams send everything in the data.
    Events without data, or with nothing but spaces, keep a connection alive and are skipped too. The data
    stays bytes: its reader checks whether it is UTF-8.
    """

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        """The beginning of a line, in the pieces that arrived; joined once, so that long lines stay
        linear."""
        self._data: list[bytes] = []
        """The data lines of an event that has not ended."""

    def feed(self, received: bytes) -> list[bytes]:
        """Take in the next bytes and return the data of the events that they complete."""
        self._pending.append(received)
        if b"\n" not in received and b"\r" not in received:
            return []
        text = b"".join(self._pending)
        lines = text.splitlines()
        self._pending = []
        if not text.endswith(b"\n"):
            # a CR at the very end may be the first half of a CRLF
            self._pending.append(lines.pop() + (b"\r" if text.endswith(b"\r") else b""))
        return self._events(lines)

    def flush(self) -> list[bytes]:
        """Return the event at the end of the stream that has no empty line after it."""
        rest = b"".join(self._pending)
        self._pending = []
        return self._events([*rest.splitlines(), b""])

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        for line in lines:
            if line:
                line = line.removeprefix(_BOM)  # stands at the very beginning of a stream, and nowhere else
                if line.startswith(b"data:"):
                    self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif self._data:
                data = b"\n".join(self._data)
                self._data.clear()
                if data and not data.isspace():
                    events.append(data)
        return events


_Json = Mapping[str, Any]

_DONE = b"[DONE]"

MISSHAPEN = (AttributeError, LookupError, TypeError, ValueError, RecursionError)
"""The exceptions that reading JSON of an unexpected shape raises."""


class UnreadableEvent(ValueError):
    """An event is not a chunk of a chat completion.

    Args:
        message: the mistake in the event.
        content: the content of the event instead of a chunk.
    """

    def __init__(self, message: str, content: object) -> None:
        super().__init__(message)
        self.content = content


class FailedReply(Exception):
    """The vendor reports an error inside an answer that claimed success.

    Args:
        error: the error object of the vendor.
    """

    def __init__(self, error: object) -> None:
        super().__init__("The provider reported an error within its reply.")
        self.error = error


class StreamReader:
    """Turns the bytes of one streamed reply into events and a complete message.

    Args:
        collector: is shown each chunk; None if no tool of the vendor was offered.
    """

    def __init__(self, collector: Collector | None = None) -> None:
        self._collector = collector
        self.count: int = 0
        """How many events came; comments do not count."""
        self.ended: bool = False
        """Whether the reply is over."""
        self.saw_done: bool = False
        """Whether the stream itself ended the reply, with ``data: [DONE]``."""
        self._not_object: bytes | None = None
        """The first event, if it is not an object. It is an error only if no object follows."""
        self._assembler = Assembler()
        self._decoder = EventDecoder()
        self._problem: Exception | None = None

    @property
    def has_finish(self) -> bool:
        """Whether a finish reason came: the message is complete then."""
        return self._assembler.finished

    @property
    def usage_came_last(self) -> bool:
        """Whether the usage came after all of the message."""
        return self._assembler.counted

    def check(self) -> None:
        """Raise the error that `feed` found in the last bytes, if there was one.

        Raises:
            UnreadableEvent: an event is not a chunk.
            FailedReply: the vendor reported an error.
        """
        if self._problem is not None:
            raise self._problem

    def feed(self, received: bytes) -> list[HandlerEvent]:
        """Take in the next bytes, none at the end, and return their events.

        Raises:
            UnreadableEvent: an event is not a chunk. The events before it are returned first, and the next
                call raises.
            FailedReply: the vendor reports an error. The events before it are returned first, too.
        """
        self.check()
        if not received:
            return self.end()
        events: list[HandlerEvent] = []
        try:
            for data in self._decoder.feed(received):
                if self.ended:
                    break
                self._take(data, events)
        except (UnreadableEvent, FailedReply) as problem:
            self._problem = problem
            if not events:
                raise
        return events

    def end(self) -> list[HandlerEvent]:
        """Note that no more bytes will come, and return the events of the last ones.

        An event without an empty line after it may have been cut: it counts only if it can be read.
        """
        events: list[HandlerEvent] = []
        if not self.ended:
            for data in self._decoder.flush():
                if data.strip() == _DONE or as_object(json_or_none(data)) is not None:
                    self._take(data, events)
        self.ended = True
        return events

    def done(self) -> MessageDone:
        """Return the message, as far as it came.

        Raises:
            UnreadableEvent: its pieces do not fit together.
            FailedReply: the vendor reported an error.
        """
        self.check()
        if self._not_object is not None:
            raise UnreadableEvent("it is not an object", self._not_object)
        try:
            return self._assembler.done()
        except MISSHAPEN as error:
            raise UnreadableEvent(str(error), "its pieces together") from error

    def _take(self, data: bytes, events: list[HandlerEvent]) -> None:
        if data.strip() == _DONE:
            self.ended = self.saw_done = True
            return
        try:
            value = decode_json(data)
        except (ValueError, RecursionError) as error:
            raise UnreadableEvent(str(error), data) from error
        self.count += 1
        if (chunk := as_object(value)) is None:
            self._not_object = data if self.count == 1 else None
            return
        self._not_object = None
        try:
            if failure := failure_in(chunk):
                raise FailedReply(failure)
            self._assembler.take(chunk, events)
            if self._collector is not None:
                self._collector.take(chunk)
        except MISSHAPEN as error:
            raise UnreadableEvent(str(error), chunk) from error


def failure_in(reply: _Json) -> object:
    """Return the error inside an answer that claimed success (OpenRouter and others), or None."""
    error, choices = reply.get("error"), reply.get("choices")
    if not choices:
        # Mistral and FastChat send an object that is the error itself
        return error or (reply if reply.get("object") == "error" or reply.get("error_code") else None)
    for choice in choices:
        if choice.get("finish_reason") == "error":
            error = error or choice.get("error") or {"message": "The provider gave up on the reply."}
    return error
