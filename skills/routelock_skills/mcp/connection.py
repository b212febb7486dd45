"""A connection that lives in a task of its own.

The mcp package opens task groups and cancel scopes that have to be left in the task that entered them, and
cancels that task when anything in them fails. In a task of its own a connection may be opened in one task,
used in others and closed in a third, and whatever goes wrong in it ends there.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, TypeVar, cast

import anyio
import pydantic

from routelock._json import sendable
from routelock._redaction import redact_text
from routelock.errors import MissingExtra, ToolError
from routelock.tools.invoke import reason_of
from routelock_skills.mcp.servers import OwnTransport, Program, ServerObject, ServerPlace, WebServer

__all__ = [
    "ErrorAnswer",
    "HungUp",
    "ServerConnection",
    "ServerLink",
    "SessionExpired",
    "alone",
    "in_background",
    "library",
    "linked",
    "running_loop",
]


_CONNECTION_CLOSED = -32000

_SESSION_TERMINATED = (-32600, 32600)
"""Of version 2, and of version 1, where the sign is missing."""

_SECONDS = 30.0
"""For all of HTTP but waiting for an answer: how long that may take says the caller."""


class ErrorAnswer(Exception):
    """The server answered a request with an error; the message is its own."""


class HungUp(Exception):
    """The connection was closed before there was an answer."""


class SessionExpired(Exception):
    """The server does not know the session any more, so it has not carried out the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLink:
    """A connection to a server that has said hello."""

    instructions: str
    """What the server says of how it is to be used."""
    page: Callable[[str | None], Awaitable[Any]]
    """Asks for one page of the list of tools."""
    ask: Callable[[str, dict[str, Any]], Awaitable[Any]]
    """Calls a tool."""
    has_session: bool
    """Whether the server may forget us and say so, see `SessionExpired`."""

    async def tools(self) -> list[Mapping[str, Any]]:
        """Return the tools as ``tools/list`` has them, all pages."""
        found: list[Mapping[str, Any]] = []
        cursor: str | None = None
        while True:
            page = await _plain(self.page(cursor), self.has_session)
            found += page.get("tools") or ()
            cursor = page.get("nextCursor")
            if not cursor:
                return found

    async def call(self, name: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
        """Return the result of a tool as ``tools/call`` has it."""
        return await _plain(self.ask(name, arguments), self.has_session)


async def _plain(asked: Awaitable[Any], has_session: bool) -> Mapping[str, Any]:
    """Return an answer as JSON data."""
    with _errors(has_session):
        answer = await asked
    return cast("Mapping[str, Any]", answer.model_dump(mode="json", by_alias=True, exclude_none=True))


@contextmanager
def _errors(has_session: bool) -> Generator[None]:
    """Tell apart what the package has one exception for.

    Args:
        has_session: whether the package may have found out itself that the server has forgotten us. Where it
            may not, whoever says so is the server, or one of its tools.

    Raises:
        ErrorAnswer: the server answered with an error.
        HungUp: it did not answer.
        SessionExpired: it has forgotten us.
    """
    mcp = library()
    failure: type[Any] = getattr(mcp, "MCPError", None) or mcp.McpError
    try:
        yield
    except Exception as error:
        told: Any = alone(error)
        if not isinstance(told, failure):
            raise
        code, message = told.error.code, told.error.message
        expired = code in _SESSION_TERMINATED and message == "Session terminated"
        if has_session and expired:  # the client's own word for a 404
            raise SessionExpired("it answered 404: it knows no such session, or is no MCP server") from error
        if code == _CONNECTION_CLOSED and message == "Connection closed":  # the client's own word, too
            raise HungUp("the connection was closed") from error
        raise ErrorAnswer(f"{message} (code {code})") from error


def alone(error: BaseException) -> BaseException:
    """Return what is in a group, if it is one of one; a task group makes those."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    first, *others = cast("BaseExceptionGroup[BaseException]", error).exceptions
    return cast(BaseException, error) if others else alone(first)


def library() -> Any:
    """Return the package.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import mcp  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "MCP servers need the mcp package, which is not installed: pip install 'routelock[mcp]'."
        ) from error
    module: ModuleType = mcp
    return module


def linked(place: ServerPlace, on_end: Callable[[], None]) -> AbstractAsyncContextManager[ServerLink]:
    """Connect to a server; it is disconnected, or ended if it is a program, when the block is left.

    Args:
        place: where the server is.
        on_end: called when the server closes the connection.
    """
    if hasattr(library(), "Client"):
        return _linked_2(place, on_end)
    return _linked_1(place, on_end)


@asynccontextmanager
async def _linked_2(place: ServerPlace, on_end: Callable[[], None]) -> AsyncGenerator[ServerLink]:
    server = place.server if isinstance(place, ServerObject) else _watched(_transport(place), on_end)
    with _errors(_has_session(place)):
        async with library().Client(server, cache=None) as client:
            yield ServerLink(
                instructions=client.instructions or "",
                page=lambda cursor: client.list_tools(cursor=cursor),
                ask=client.call_tool,
                has_session=_has_session(place),
            )


@asynccontextmanager
async def _linked_1(place: ServerPlace, on_end: Callable[[], None]) -> AsyncGenerator[ServerLink]:
    mcp = library()
    async with (
        _watched(_transport(place), on_end) as streams,
        mcp.ClientSession(*streams) as session,
    ):
        has_session = _has_session(place)
        hello = await _plain(session.initialize(), has_session)

        async def page(cursor: str | None) -> Any:
            return await session.list_tools(params=mcp.types.PaginatedRequestParams(cursor=cursor))

        async def ask(name: str, arguments: dict[str, Any]) -> Any:
            number = session._request_id  # this call's; the package tells it to nobody
            try:
                return await session.call_tool(name, arguments)
            except anyio.get_cancelled_exc_class():
                await _call_off(session, number)
                raise

        instructions = hello.get("instructions") or ""
        yield ServerLink(instructions=instructions, page=page, ask=ask, has_session=has_session)


async def _call_off(session: Any, number: int) -> None:
    """Tell the server that nobody waits for an answer any more, as version 2 does by itself."""
    types = library().types
    told = types.CancelledNotification(
        params=types.CancelledNotificationParams(requestId=number, reason="nobody waits for it any more")
    )
    with anyio.move_on_after(1, shield=True):
        try:
            await session.send_notification(types.ClientNotification(told))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # nobody is there to be told


def _has_session(place: ServerPlace) -> bool:
    return isinstance(place, WebServer | OwnTransport)


# -- transports --


def _transport(place: ServerPlace) -> AbstractAsyncContextManager[Any]:
    """Return an async context manager that yields a stream to read from and one to write to."""
    match place:
        case Program():
            return _program(place)
        case WebServer():
            return _http(place)
        case ServerObject():
            return _in_process(place.server)
        case OwnTransport():
            return cast("AbstractAsyncContextManager[Any]", place.open())


def _program(place: Program) -> AbstractAsyncContextManager[Any]:
    from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: PLC0415 - an extra

    started: Any = StdioServerParameters(
        command=place.command,
        args=list(place.args),
        env=place.env,
        cwd=place.cwd,
        encoding_error_handler="replace",  # one byte that is no UTF-8 would end all reading, without a word
    )
    return stdio_client(started, errlog=_stderr())


def _stderr() -> Any:
    """Return where a program may write to; what stands in for stderr in a notebook may be no file."""
    for stream in (sys.stderr, sys.__stderr__):
        with suppress(AttributeError, OSError, ValueError):
            cast(Any, stream).fileno()
            return stream
    return subprocess.DEVNULL


@asynccontextmanager
async def _http(place: WebServer) -> AsyncGenerator[Any]:
    from mcp.client import streamable_http  # noqa: PLC0415 - an extra

    client: Any = cast(Any, streamable_http).create_mcp_http_client(headers=place.headers)
    client.timeout = (_SECONDS, None, _SECONDS, _SECONDS)
    client.event_hooks = {"request": [partial(_stay, client.build_request("POST", place.url).url)]}
    async with client, streamable_http.streamable_http_client(place.url, http_client=client) as streams:
        yield streams


async def _stay(home: Any, request: Any) -> None:
    """Refuse to go where a redirect leads: the headers are for one server. Version 1 would go anywhere."""
    url = request.url
    if (url.scheme, url.host, url.port) != (home.scheme, home.host, home.port):
        there = f"{url.scheme}://{url.netloc.decode()}"
        raise ErrorAnswer(f"redirect to {there} not followed; use that URL if it is the right server")


@asynccontextmanager
async def _in_process(server: Any) -> AsyncGenerator[Any]:
    """Run a server beside us; for version 1, whose session takes nothing but streams."""
    from mcp.shared.memory import create_client_server_memory_streams  # noqa: PLC0415 - an extra

    running = getattr(server, "_mcp_server", server)  # within a FastMCP, which has no other way to it
    async with create_client_server_memory_streams() as (ours, theirs), anyio.create_task_group() as group:
        group.start_soon(running.run, *theirs, running.create_initialization_options())
        yield ours
        group.cancel_scope.cancel()


@asynccontextmanager
async def _watched(
    transport: AbstractAsyncContextManager[Any], on_end: Callable[[], None]
) -> AsyncGenerator[Any]:
    """Pass the streams of a transport on, and tell when the server has closed its end.

    The package tells it to those who wait for an answer only, and a call that is made later could not know
    whether it was sent.
    """
    async with transport as (source, write, *_), anyio.create_task_group() as group:
        send, receive = anyio.create_memory_object_stream[Any](0)

        async def pump() -> None:
            async with source, send:
                async for message in source:
                    await send.send(_repaired(message))
                on_end()

        with receive:
            group.start_soon(pump)
            yield receive, write
            group.cancel_scope.cancel()


def _repaired(message: Any) -> Any:
    """Return a message that the package could not read for half a surrogate pair, with U+FFFD there.

    JavaScript cuts a text within an emoji, and is right to send the half as JSON. Whoever waits for that
    answer would not be told that there was one.
    """
    if not isinstance(message, pydantic.ValidationError):
        return message
    from mcp.shared.message import SessionMessage  # noqa: PLC0415 - an extra

    try:
        text = json.dumps(sendable(json.loads(message.errors()[0]["input"])))
        return SessionMessage(_read(text))
    except (ValueError, TypeError, RecursionError):
        return message


def _read(text: str) -> Any:
    types = library().types
    if hasattr(types, "jsonrpc_message_adapter"):
        return types.jsonrpc_message_adapter.validate_json(text, by_name=False)
    return types.JSONRPCMessage.model_validate_json(text)


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
