"""A connection to an MCP server, in a task of its own.

The mcp package opens task groups and cancel scopes that the same task has to enter and leave, and cancels
that task if anything in them fails. With a task of its own, a connection can be opened in one task, used in
others and closed in a third, and its failures stay in it.
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

from routelock._lazy import needs_extra
from routelock._redaction import redact_text
from routelock._sendable import sendable
from routelock.errors import ToolError
from routelock.tools.failures import reason_of
from routelock_skills.mcp.elicitation import Elicitations, InputRound, NotAnswered
from routelock_skills.mcp.servers import OwnTransport, Program, ServerAddress, ServerObject, WebServer

__all__ = [
    "ConnectionClosed",
    "ErrorAnswer",
    "ServerConnection",
    "ServerLink",
    "SessionExpired",
    "connect",
    "library",
    "running_loop",
    "start_background_task",
    "unwrap_group",
]


_CONNECTION_CLOSED = -32000

_SESSION_TERMINATED = (-32600, 32600)
"""The codes for a session that has ended: of version 2 of the package, and of version 1, which lacks the
minus sign."""

_HEADER_MISMATCH = -32020
"""The code for a tool whose schema has changed since the client listed it; the server has done nothing."""

_HTTP_SECONDS = 30.0
"""The time limit for HTTP except for the wait for an answer, which the caller limits."""


class ErrorAnswer(Exception):
    """The server answered a request with an error. The message is the server's."""


class ConnectionClosed(Exception):
    """The connection was closed before there was an answer."""


class SessionExpired(Exception):
    """The server no longer knows the session, so it has not carried out the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLink:
    """An initialized connection to a server."""

    name: str
    """What the server calls itself; empty if it does not say."""
    instructions: str
    """The server's text on how to use it."""
    page: Callable[[str | None], Awaitable[Any]]
    """Requests one page of the list of tools."""
    ask: Callable[[str, dict[str, Any], InputRound | None], Awaitable[Any]]
    """Calls a tool; again with answers, if it asked for some."""
    has_session: bool
    """Whether the server may end the session, see `SessionExpired`."""

    async def tools(self) -> list[Mapping[str, Any]]:
        """Return the tools of all pages of ``tools/list``."""
        found: list[Mapping[str, Any]] = []
        cursor: str | None = None
        while True:
            page = await _plain(self.page(cursor), self.has_session)
            found += page.get("tools") or ()
            cursor = page.get("nextCursor")
            if not cursor:
                return found

    async def call(
        self, name: str, arguments: dict[str, Any], answers: InputRound | None = None
    ) -> Mapping[str, Any]:
        """Return the result of a tool in the form of ``tools/call``, which may be unfinished."""
        return await _plain(self.ask(name, arguments, answers), self.has_session)


async def _plain(request: Awaitable[Any], has_session: bool) -> Mapping[str, Any]:
    """Await a request and return its answer as JSON data."""
    with _errors(has_session):
        answer = await request
    return cast("Mapping[str, Any]", answer.model_dump(mode="json", by_alias=True, exclude_none=True))


@contextmanager
def _errors(has_session: bool) -> Generator[None]:
    """Turn the one exception class of the ``mcp`` package into three of this module.

    Args:
        has_session: whether the package itself may report an expired session. If not, such a message comes
            from the server or one of its tools.

    Raises:
        ErrorAnswer: the server answered with an error.
        ConnectionClosed: the connection was closed before the server answered.
        SessionExpired: the server no longer knows the session.
    """
    mcp = library()
    failure: type[Any] = getattr(mcp, "MCPError", None) or mcp.McpError
    try:
        yield
    except Exception as error:
        inner: Any = unwrap_group(error)
        if not isinstance(inner, failure):
            raise
        code, message = inner.error.code, inner.error.message
        expired = code in _SESSION_TERMINATED and message == "Session terminated"
        if has_session and expired:  # the package's message for a 404
            raise SessionExpired(
                "it answered 404: the session is unknown, or it is not an MCP server"
            ) from error
        if code == _CONNECTION_CLOSED and message == "Connection closed":  # the package's message, too
            raise ConnectionClosed("the connection was closed") from error
        raise ErrorAnswer(f"{message} (code {code})") from error


def unwrap_group(error: BaseException) -> BaseException:
    """Return the exception of a group that holds only one; else the error itself.

    Task groups make such groups.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    first, *others = cast("BaseExceptionGroup[BaseException]", error).exceptions
    return cast(BaseException, error) if others else unwrap_group(first)


def library() -> Any:
    """Return the mcp package.

    Raises:
        MissingExtra: the mcp package is not installed.
    """
    with needs_extra("MCP servers need the mcp package, which is not installed", "mcp"):
        import mcp  # noqa: PLC0415 - an extra
    module: ModuleType = mcp
    return module


def connect(
    address: ServerAddress, elicitations: Elicitations, on_end: Callable[[], None]
) -> AbstractAsyncContextManager[ServerLink]:
    """Connect to a server for the block.

    At the end of the block the connection is closed, and a server that is a program is ended.

    Args:
        address: the address of the server.
        elicitations: answers questions of the server while a call runs.
        on_end: called when the server closes the connection.
    """
    if hasattr(library(), "Client"):
        return _connect_2(address, elicitations, on_end)
    return _connect_1(address, elicitations, on_end)


@asynccontextmanager
async def _connect_2(
    address: ServerAddress, elicitations: Elicitations, on_end: Callable[[], None]
) -> AsyncGenerator[ServerLink]:
    server = (
        address.server if isinstance(address, ServerObject) else _with_end_notice(_transport(address), on_end)
    )
    # the package lets a server ask only if there is a callback, although unfinished results need none
    callback = partial(_elicited, elicitations)
    with _errors(_has_session(address)):
        async with library().Client(server, cache=None, elicitation_callback=callback) as client:
            yield ServerLink(
                name=str(getattr(client.server_info, "name", "")),
                instructions=client.instructions or "",
                page=lambda cursor: client.list_tools(cursor=cursor),
                ask=partial(_ask_2, client),
                has_session=_has_session(address),
            )


async def _ask_2(client: Any, name: str, arguments: dict[str, Any], answers: InputRound | None) -> Any:
    """Call a tool. If its listing has changed, read the list and call again, as the package's client does."""
    mcp = library()
    replies = {} if answers is None else answers.replies
    responses = {key: mcp.types.ElicitResult.model_validate(reply) for key, reply in replies.items()}
    state = None if answers is None else answers.state

    async def send() -> Any:
        return await client.session.call_tool(
            name,
            arguments,
            input_responses=responses or None,
            request_state=state,
            allow_input_required=True,
        )

    try:
        return await send()
    except mcp.MCPError as error:
        if error.error.code != _HEADER_MISMATCH:
            raise
        cursor: str | None = None
        while True:
            page = await client.list_tools(cursor=cursor)
            cursor = page.next_cursor
            if not cursor or any(tool.name == name for tool in page.tools):
                return await send()


async def _elicited(elicitations: Elicitations, _: object, params: Any) -> Any:
    """Answer a question of a server while a call runs."""
    types = library().types
    try:
        reply = await elicitations.reply_now(params.model_dump(mode="json", by_alias=True, exclude_none=True))
    except NotAnswered as error:
        return types.ErrorData(code=types.INVALID_REQUEST, message=str(error))
    return types.ElicitResult.model_validate(reply)


@asynccontextmanager
async def _connect_1(
    address: ServerAddress, elicitations: Elicitations, on_end: Callable[[], None]
) -> AsyncGenerator[ServerLink]:
    mcp = library()
    callback = partial(_elicited, elicitations) if elicitations.function is not None else None
    async with (
        _with_end_notice(_transport(address), on_end) as streams,
        mcp.ClientSession(*streams, elicitation_callback=callback) as session,
    ):
        has_session = _has_session(address)
        hello = await _plain(session.initialize(), has_session)

        async def page(cursor: str | None) -> Any:
            return await session.list_tools(params=mcp.types.PaginatedRequestParams(cursor=cursor))

        async def ask(name: str, arguments: dict[str, Any], _: InputRound | None) -> Any:
            number = session._request_id  # the id of this call, which the package does not return
            try:
                return await session.call_tool(name, arguments)
            except anyio.get_cancelled_exc_class():
                await _send_cancelled(session, number)
                raise

        instructions = hello.get("instructions") or ""
        info: Mapping[str, Any] = hello.get("serverInfo") or {}
        name = str(info.get("name") or "")
        yield ServerLink(name=name, instructions=instructions, page=page, ask=ask, has_session=has_session)


async def _send_cancelled(session: Any, number: int) -> None:
    """Send the server the cancellation of a request, which version 2 of the package does itself."""
    types = library().types
    cancelled = types.CancelledNotification(
        params=types.CancelledNotificationParams(requestId=number, reason="the request was cancelled")
    )
    with anyio.move_on_after(1, shield=True):
        try:
            await session.send_notification(types.ClientNotification(cancelled))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # the connection is closed


def _has_session(address: ServerAddress) -> bool:
    return isinstance(address, WebServer | OwnTransport)


def _transport(address: ServerAddress) -> AbstractAsyncContextManager[Any]:
    """Return an async context manager that yields a stream to read and one to write."""
    match address:
        case Program():
            return _program(address)
        case WebServer():
            return _http(address)
        case ServerObject():
            return _in_process(address.server)
        case OwnTransport():
            return cast("AbstractAsyncContextManager[Any]", address.open())


def _program(address: Program) -> AbstractAsyncContextManager[Any]:
    from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: PLC0415 - an extra

    started: Any = StdioServerParameters(
        command=address.command,
        args=list(address.args),
        env=address.env,
        cwd=address.cwd,
        encoding_error_handler="replace",  # one byte that is not UTF-8 would silently end all reading
    )
    return stdio_client(started, errlog=_stderr())


def _stderr() -> Any:
    """Return the file for a program's stderr; in a notebook ``sys.stderr`` may not be a file."""
    for stream in (sys.stderr, sys.__stderr__):
        with suppress(AttributeError, OSError, ValueError):
            cast(Any, stream).fileno()
            return stream
    return subprocess.DEVNULL


@asynccontextmanager
async def _http(address: WebServer) -> AsyncGenerator[Any]:
    from mcp.client import streamable_http  # noqa: PLC0415 - an extra

    client: Any = cast(Any, streamable_http).create_mcp_http_client(headers=address.headers)
    client.timeout = (_HTTP_SECONDS, None, _HTTP_SECONDS, _HTTP_SECONDS)
    own_url = client.build_request("POST", address.url).url
    client.event_hooks = {"request": [partial(_refuse_redirect, own_url)]}
    async with client, streamable_http.streamable_http_client(address.url, http_client=client) as streams:
        yield streams


async def _refuse_redirect(own_url: Any, request: Any) -> None:
    """Refuse a redirect to another server, which would get the headers. Version 1 follows all redirects."""
    url = request.url
    if (url.scheme, url.host, url.port) != (own_url.scheme, own_url.host, own_url.port):
        target = f"{url.scheme}://{url.netloc.decode()}"
        raise ErrorAnswer(f"redirect to {target} not followed; use that URL if it is the right server")


@asynccontextmanager
async def _in_process(server: Any) -> AsyncGenerator[Any]:
    """Run a server in this process, for version 1 of the package, whose session takes streams only."""
    from mcp.shared.memory import create_client_server_memory_streams  # noqa: PLC0415 - an extra

    running = getattr(server, "_mcp_server", server)  # FastMCP has no public name for it
    async with create_client_server_memory_streams() as (ours, theirs), anyio.create_task_group() as group:
        group.start_soon(running.run, *theirs, running.create_initialization_options())
        yield ours
        group.cancel_scope.cancel()


@asynccontextmanager
async def _with_end_notice(
    transport: AbstractAsyncContextManager[Any], on_end: Callable[[], None]
) -> AsyncGenerator[Any]:
    """Pass on the streams of a transport, and call ``on_end`` when the server closes its end.

    The package reports the end only to requests that wait for an answer. A later call could not know whether
    it was sent.
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
    """Return a message that the package could not read, with U+FFFD for each half of a surrogate pair.

    JavaScript cuts texts inside an emoji and may send the half as JSON. Unrepaired, such an answer is lost,
    and the request waits for it forever.
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

_DELIVERY_SECONDS = 1.0
"""How long the answers that a server sent before its end are passed on."""

_SHUTDOWN_SECONDS = 10.0
"""How long a server has to shut down; the package gives a program about five."""

_PROGRAM_ENDED = (ConnectionResetError, BrokenPipeError)
"""Errors of writing to a program that has ended, before reading from it shows the end."""


class ServerConnection:
    """One connection to a server, from its opening to its end by either side.

    Args:
        connect: connects, with a function to call when the server closes the connection.
        where: the server, for messages.
    """

    def __init__(
        self, connect: Callable[[Callable[[], None]], AbstractAsyncContextManager[ServerLink]], where: str
    ) -> None:
        self._connect = connect
        self._where = where
        self._link: ServerLink | None = None
        self._failure: BaseException | None = None
        self._closed_by_server = False
        self._requests: set[anyio.CancelScope] = set()
        self._scope = anyio.CancelScope()
        self._ready, self._ending, self._idle, self._closed = (anyio.Event() for _ in range(4))
        self._task: object = None

    @property
    def is_over(self) -> bool:
        """Whether no more requests can be sent."""
        return self._ending.is_set()

    async def open(self, seconds: float) -> ServerLink:
        """Connect to the server.

        Args:
            seconds: the time limit.

        Raises:
            ToolError: connecting took longer, or failed; the cause is chained.
        """
        self._task = start_background_task(self._run)
        try:
            with anyio.move_on_after(seconds):
                await self._ready.wait()
        finally:
            if self._link is None:
                await self.close(seconds=0)
        if self._link is None:
            why = self._why(f"it did not answer within {seconds:g} seconds")
            raise ToolError(f"{self._where} cannot be used: {why}.") from self._failure
        return self._link

    async def close(self, *, seconds: float = _SHUTDOWN_SECONDS) -> None:
        """Disconnect. Requests that wait for an answer raise an error.

        Args:
            seconds: how long the server has to shut down.
        """
        self._end()
        self._cancel_requests()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(seconds):
                await self._closed.wait()
            self._scope.cancel()
            await self._closed.wait()

    async def ask(self, request: Callable[[ServerLink], Awaitable[T]]) -> T:
        """Send a request and return its answer.

        Raises:
            ToolError: the connection ended before the answer came.
        """
        with anyio.CancelScope() as scope:
            self._requests.add(scope)
            try:
                if self._link is not None and not self.is_over:
                    return await request(self._link)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                self._end()
            except ConnectionClosed:
                pass  # with HTTP the next request may succeed
            finally:
                self._requests.discard(scope)
                if self.is_over and not self._requests:
                    self._idle.set()
        raise ToolError(
            f"{self._where} was lost: {self._why('the connection was closed')}. It is unknown whether the "
            "call was carried out. The next call connects again."
        ) from self._failure

    async def _run(self) -> None:
        try:
            with self._scope:
                async with self._connect(self._on_end) as link:
                    self._link = link
                    self._ready.set()
                    try:
                        await self._ending.wait()
                    finally:
                        self._end()  # the end may take time, and no request may be sent meanwhile
                    with anyio.move_on_after(_DELIVERY_SECONDS):
                        await self._wait_until_idle()
        except Exception as error:
            self._failure = unwrap_group(error)
        finally:
            self._end()
            self._cancel_requests()
            self._ready.set()
            self._closed.set()

    async def _wait_until_idle(self) -> None:
        if self._requests:
            await self._idle.wait()

    def _on_end(self) -> None:
        self._closed_by_server = True
        self._end()

    def _end(self) -> None:
        self._ending.set()

    def _cancel_requests(self) -> None:
        """Cancel all requests: the package forgets some of them when it fails."""
        for scope in tuple(self._requests):
            scope.cancel()

    def _why(self, otherwise: str) -> str:
        ended = self._closed_by_server or isinstance(self._failure, _PROGRAM_ENDED)
        if self._failure is not None and not isinstance(self._failure, (ConnectionClosed, *_PROGRAM_ENDED)):
            return redact_text(reason_of(self._failure)).partition("\n")[0].rstrip(".")
        if ended and self._link is None:
            return "it ended at once; its stderr may say why"
        return "it has ended" if ended else otherwise


def start_background_task(work: Callable[[], Coroutine[Any, Any, None]]) -> object:
    """Start a task without a parent, and return an object that has to be kept while it runs.

    The work must not raise. It is cancelled when the event loop ends. anyio has no such tasks on purpose: the
    caller has to end the task, as `ServerConnection.close` does.
    """
    if _trio_runs():
        import trio  # noqa: PLC0415 - trio runs, so it is installed

        return trio.lowlevel.spawn_system_task(work)
    return asyncio.create_task(work())


def running_loop() -> object:
    """Return an object that identifies the running event loop."""
    if _trio_runs():
        import trio  # noqa: PLC0415 - trio runs, so it is installed

        return trio.lowlevel.current_trio_token()
    return asyncio.get_running_loop()


def _trio_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return "trio" in sys.modules
    return False
