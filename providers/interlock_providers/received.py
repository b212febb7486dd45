"""Reading the chunks of a streamed chat completion from the bytes of an HTTP answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, cast

import anyio

from interlock_providers.sse import EventDecoder

__all__ = ["Chunks", "UnreadableEvent", "parsed"]

_DONE = b"[DONE]"
_DRAINING = 0.5  # seconds to wait for the end of the body after [DONE], so that the connection lives on


class UnreadableEvent(ValueError):
    """An event is not JSON in UTF-8. ``said`` is what it holds instead."""

    def __init__(self, message: str, said: bytes) -> None:
        super().__init__(message)
        self.said = said


class Chunks:
    """The chunks of one streamed reply, as dicts.

    ``ended`` tells that nothing more will come, ``marked`` that the stream said so itself, with
    ``data: [DONE]``. Close it when leaving early.
    """

    def __init__(self, received: AsyncIterator[bytes]) -> None:
        self.ended = False
        self.marked = False
        self.strange: bytes | None = None
        """An event that was no object, where there was none that was."""
        self._objects = 0
        self._wrong: UnreadableEvent | None = None
        """What was wrong with an event that came together with good ones."""
        self._received = received
        self._decoder = EventDecoder()

    async def more(self) -> list[Mapping[str, Any]]:
        """Wait for the next chunks: several may come at once, and none only at the end.

        Raises:
            UnreadableEvent: an event is not JSON. Those before it are told first.
        """
        if self._wrong is not None:
            raise self._wrong
        while not self.ended:
            received = await anext(self._received, None)
            if received is None:
                self.ended = True
                # an event without its end may have been cut: it counts only if it can be read
                rest = [event for event in self._decoder.flush() if event == _DONE or parsed(event)]
                return self._read(rest)
            if events := self._decoder.feed(received):
                return self._read(events)
        return []

    async def drain(self) -> None:
        """Read what follows ``[DONE]``, so that the connection can be used again.

        The reply is complete by then: what goes wrong with the connection now concerns nobody.
        """
        with suppress(Exception), anyio.move_on_after(_DRAINING):
            async for _ in self._received:
                pass

    async def aclose(self) -> None:
        """End the reading.

        A cancelled read unwinds the generators within httpx from the inside. Closing the response
        alone leaves them to the garbage collector, about which trio complains.
        """
        received: Any = self._received
        while hasattr(received, "inner"):  # what is around it may end first, by a limit of its own
            received = received.inner
        with suppress(Exception), anyio.CancelScope() as scope:
            scope.cancel()
            async for _ in received:
                pass

    def _read(self, events: list[bytes]) -> list[Mapping[str, Any]]:
        chunks: list[Mapping[str, Any]] = []
        for event in events:
            if event == _DONE:
                self.ended = self.marked = True
                break
            try:
                chunk = json.loads(event.decode())
            except (ValueError, RecursionError) as error:
                self._wrong = UnreadableEvent(str(error), event)
                if chunks:
                    break
                raise self._wrong from error
            if isinstance(chunk, dict):
                self._objects += 1
                chunks.append(cast("Mapping[str, Any]", chunk))
            self.strange = None if self._objects else event
        return chunks


def parsed(text: str | bytes) -> object:
    """Return the JSON value of a text, or None when it is no JSON."""
    try:
        return json.loads(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError):
        return None
