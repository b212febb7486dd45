"""Reading the chunks of a streamed chat completion from the bytes of an HTTP answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, cast

import anyio

from interlock_providers.sse import EventDecoder

__all__ = ["Chunks", "parsed"]

_DONE = "[DONE]"
_DRAINING = 0.5  # seconds to wait for the end of the body after [DONE], so that the connection lives on


class Chunks:
    """The chunks of one streamed reply, as dicts.

    ``ended`` tells that nothing more will come, ``marked`` that the stream said so itself, with
    ``data: [DONE]``. Close it when leaving early.
    """

    def __init__(self, received: AsyncIterator[bytes]) -> None:
        self.ended = False
        self.marked = False
        self._received = received
        self._decoder = EventDecoder()

    async def more(self) -> list[Mapping[str, Any]]:
        """Wait for the next chunks: several may come at once, and none only at the end.

        Raises:
            ValueError: an event is not JSON.
        """
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
        with suppress(Exception), anyio.CancelScope() as scope:
            scope.cancel()
            async for _ in self._received:
                pass

    def _read(self, events: list[str]) -> list[Mapping[str, Any]]:
        chunks: list[Mapping[str, Any]] = []
        for event in events:
            if event == _DONE:
                self.ended = self.marked = True
                break
            chunk = json.loads(event)
            if isinstance(chunk, dict):
                chunks.append(cast("Mapping[str, Any]", chunk))
        return chunks


def parsed(text: str) -> object:
    """Return the JSON value of a text, or None when it is no JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None
