"""A connection that lives in a task of its own.

The mcp package opens task groups and cancel scopes that have to be left in the task that entered them, and
cancels that task when anything in them fails. In a task of its own a connection may be opened in one task,
used in others and closed in a third, and whatever goes wrong in it ends there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import anyio

from routelock._redaction import redact_text
from routelock.errors import ToolError
from routelock.mcp.library import HungUp, ServerLink, alone
from routelock.tools.invoke import reason_of

__all__ = ["ServerConnection", "in_background", "running_loop"]

T = TypeVar("T")

_LAST_WORDS = 1.0
"""Seconds for handing on what a server has said before it ended."""
_GRACE = 10.0
"""Seconds that a server has to end in order; the package itself gives a program about five."""
_NOBODY_READS = (ConnectionResetError, BrokenPipeError)
"""What writing to a program that has ended may raise, before reading from it shows that it has."""


class ServerConnection:
    """One connection to a server, from opening it to its end, whoever brings that about.

    Args:
        opened: connects, given what to call when the server closes the connection.
        where: the server, for messages.
    """

    def __init__(
        self, opened: Callable[[Callable[[], None]], AbstractAsyncContextManager[ServerLink]], where: str
    ) -> None:
        self._opened = opened
        self._where = where
        self._link: ServerLink | None = None
        self._failure: BaseException | None = None
        self._closed_by_server = False
        self._asking: set[anyio.CancelScope] = set()
        self._scope = anyio.CancelScope()
        self._ready, self._leave, self._silent, self._gone = (anyio.Event() for _ in range(4))
        self._task: object = None

    @property
    def over(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._leave.is_set()

    async def open(self, seconds: float) -> ServerLink:
        """Connect.

        Raises:
            ToolError: it took longer than that, or failed; the cause is chained.
        """
        self._task = in_background(self._live)
        try:
            with anyio.move_on_after(seconds):
                await self._ready.wait()
        finally:
            if self._link is None:
                await self.close(grace=0)
        if self._link is None:
            why = self._why(f"it did not answer within {seconds:g} seconds")
            raise ToolError(f"{self._where} cannot be used: {why}.") from self._failure
        return self._link

    async def close(self, *, grace: float = _GRACE) -> None:
        """Disconnect. Who waits for an answer gets an error instead.

        Args:
            grace: seconds that the server has to end in order.
        """
        self._end()
        self._give_up()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(grace):
                await self._gone.wait()
            self._scope.cancel()
            await self._gone.wait()

    async def ask(self, what: Callable[[ServerLink], Awaitable[T]]) -> T:
        """Return an answer of the server.

        Raises:
            ToolError: the connection ended before there was one.
        """
        with anyio.CancelScope() as scope:
            self._asking.add(scope)
            try:
                if self._link is not None and not self.over:
                    return await what(self._link)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                self._end()
            except HungUp:
                pass  # HTTP goes on with the next request, a program does not
            finally:
                self._asking.discard(scope)
                if self.over and not self._asking:
                    self._silent.set()
        raise ToolError(
            f"{self._where} was lost: {self._why('the connection was closed')}. Whether the call was carried "
            "out is not known. The next call connects anew."
        ) from self._failure

    async def _live(self) -> None:
        try:
            with self._scope:
                async with self._opened(self._on_end) as link:
                    self._link = link
                    self._ready.set()
                    try:
                        await self._leave.wait()
                    finally:
                        self._end()  # it may take its time to end, and nothing more is to be asked meanwhile
                    with anyio.move_on_after(_LAST_WORDS):
                        await self._until_nobody_asks()
        except Exception as error:
            self._failure = alone(error)
        finally:
            self._end()
            self._give_up()
            self._ready.set()
            self._gone.set()

    async def _until_nobody_asks(self) -> None:
        if self._asking:
            await self._silent.wait()

    def _on_end(self) -> None:
        self._closed_by_server = True
        self._end()

    def _end(self) -> None:
        self._leave.set()

    def _give_up(self) -> None:
        """Let nobody wait any more. The package forgets some of those who wait when it fails."""
        for scope in tuple(self._asking):
            scope.cancel()

    def _why(self, otherwise: str) -> str:
        ended = self._closed_by_server or isinstance(self._failure, _NOBODY_READS)
        if self._failure is not None and not isinstance(self._failure, (HungUp, *_NOBODY_READS)):
            return redact_text(reason_of(self._failure)).partition("\n")[0].rstrip(".")
        if ended and self._link is None:
            return "it ended at once; what it wrote to stderr may say why"
        return "it has ended" if ended else otherwise


def in_background(work: Callable[[], Coroutine[Any, Any, None]]) -> object:
    """Start work that belongs to no task, and return what has to be kept while it is done.

    It must not raise. It is cancelled when the event loop ends. anyio has nothing like it on purpose: whose
    it is has to see to its end, as `ServerConnection.close` does.
    """
    if _trio_runs():
        import trio  # noqa: PLC0415 - it runs, so it is there

        return trio.lowlevel.spawn_system_task(work)
    return asyncio.create_task(work())


def running_loop() -> object:
    """Return something that stands for the event loop that runs this."""
    if _trio_runs():
        import trio  # noqa: PLC0415 - it runs, so it is there

        return trio.lowlevel.current_trio_token()
    return asyncio.get_running_loop()


def _trio_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return "trio" in sys.modules
    return False
