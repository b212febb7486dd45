"""A client of httpx that sends a request once more if a used connection ends before the answer.

`routelock_providers.http.client` does the same over aiohttp.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

__all__ = ["resending_client"]


class _Attempt:
    """What the connection of a request did, as the ``trace`` extension of httpx tells."""

    is_new = False
    """Whether the connection was opened for this request."""
    has_sent = False
    """Whether the request was on its way; stays False where a mock answers."""
    is_answered = False
    """Whether the head of an answer has arrived."""

    async def note(self, event: str, info: object) -> None:
        """Note an event."""
        self.is_new |= event.endswith("connect_tcp.started")
        self.has_sent |= event.endswith("send_request_headers.started")
        self.is_answered |= event.endswith("receive_response_headers.complete")

    @property
    def met_closed_connection(self) -> bool:
        """Whether a used connection ended before the answer."""
        return self.has_sent and not (self.is_new or self.is_answered)


@functools.cache
def resending_client() -> Any:
    """Return a class of clients with the defaults of the openai library, over its httpx or httpx2.

    A server may end a used connection while the next request is on its way. Such a request is sent again.
    Each time the pool loses a connection, so at the end a new one is opened, whose failure is raised.
    """
    from openai import DefaultAsyncHttpxClient  # noqa: PLC0415 - openai costs 0.7 s to import

    base: Any = DefaultAsyncHttpxClient
    library: Any = sys.modules[base.__mro__[1].__module__.partition(".")[0]]
    default = library.USE_CLIENT_DEFAULT

    async def send(
        self: Any, request: Any, *, stream: bool = False, auth: Any = default, follow_redirects: Any = default
    ) -> Any:
        while True:
            attempt = _Attempt()
            request.extensions = {**request.extensions, "trace": attempt.note}
            try:
                return await base.send(
                    self, request, stream=stream, auth=auth, follow_redirects=follow_redirects
                )
            except (library.RemoteProtocolError, library.NetworkError):
                if not attempt.met_closed_connection:
                    raise

    return type("ResendingClient", (base,), {"send": send})
