"""A client of an MCP server: its tools as tools of ours."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar, cast

import anyio
import pydantic_core

from routelock._json import sendable
from routelock._redaction import redact_text
from routelock.context import ToolContext
from routelock.errors import ConfigError, RoutelockError, ToolError, ToolTimeout
from routelock.tools.approvals import NeedsApproval
from routelock.tools.invoke import failure_text, reason_of
from routelock.tools.tool import Tool, ToolResult
from routelock_skills.mcp.connection import (
    ErrorAnswer,
    ServerConnection,
    ServerLink,
    SessionExpired,
    library,
    linked,
    running_loop,
)
from routelock_skills.mcp.results import result_media, result_text
from routelock_skills.mcp.servers import WebServer, server_place
from routelock_skills.mcp.tools import ListedTool, WantedTools, check_known, wanted_tools

__all__ = ["MCPClient"]


T = TypeVar("T")


class MCPClient:
    """Makes the tools of an MCP server tools of ours, for as long as its ``async with`` block lasts.

        async with MCPClient({"command": "uvx", "args": ["mcp-server-git"]}) as git:
            agent = Agent("coder", model=..., tools=[*git.tools, compile])

    They are ordinary tools: arguments, time limits, approvals, hooks and traces are as for all others. An
    agent keeps the tools that it was made with, also when the server lists others later.

    The block may be left by another task than the one that entered it. A server that ends is connected to
    anew by the next call. A call that was lost with it is not made again.

    Args:
        server: a URL; or a mapping as in the ``mcpServers`` of other programs, with ``command``, ``args``,
            ``env`` and ``cwd`` (a program, spoken to over its standard input and output) or ``url`` and
            ``headers`` (streamable HTTP); or a server object of the mcp package, in this process; or a
            function of nothing that opens a transport of the mcp package, such as
            ``lambda: sse_client(url)``.
        name: what it is called in messages; by default its host, program or own name.
        prefix: what the names of its tools begin with, such as ``"git_"``.
        only: which of its tools are wanted: their names, without the prefix, or a function of the name.
        needs_approval: whether somebody has to approve a call first: for all tools, for those with these
            names (without the prefix), or a function of the context and the arguments.
        timeout: seconds that a call may take once the server is connected to; None is for ever.
        connect_timeout: seconds that it may take to start the server, connect to it and list its tools.

    Raises:
        ConfigError: an argument that cannot work.
        MissingExtra: the mcp package is not installed.
    """

    def __init__(
        self,
        server: object,
        *,
        name: str | None = None,
        prefix: str = "",
        only: WantedTools = None,
        needs_approval: NeedsApproval | Collection[str] = False,
        timeout: float | None = 60.0,
        connect_timeout: float = 30.0,
    ) -> None:
        library()
        if timeout is not None and timeout <= 0:
            raise ConfigError(f"timeout of an MCPClient must be seconds or None, not {timeout!r}.")
        self._place = server_place(server)
        self.name = name or self._place.label
        self._prefix = prefix
        self._only = only
        self._needs_approval = needs_approval
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._where = f"MCP server {self.name!r}"
        self._listed: Sequence[Mapping[str, Any]] = ()
        self._tools: tuple[Tool, ...] = ()
        self._instructions = ""
        self._connection: ServerConnection | None = None
        self._loop: object = None
        self._lock: anyio.Lock

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of the server that are wanted, as they were when they were last listed."""
        self._opened()
        return self._tools

    @property
    def instructions(self) -> str:
        """What the server says of how to use it. No agent is told unless you put it into its instructions."""
        self._opened()
        return self._instructions

    async def __aenter__(self) -> MCPClient:
        """Start the server or connect to it, and list its tools.

        Raises:
            ToolError: it cannot be started or reached, is no MCP server, or takes too long.
            ConfigError: its tools do not fit the options, or their names clash.
        """
        if self._loop is not None:
            raise ConfigError(f"{self._where} is open already: a client has one block at a time.")
        self._loop, self._lock = running_loop(), anyio.Lock()
        try:
            with self._our_words():
                await self._connected()
            self._take()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Disconnect; a program is ended."""
        await self._close()

    async def refresh(self) -> tuple[Tool, ...]:
        """List the tools anew and return them, for agents that are made from now on.

        Raises:
            ToolError: the server cannot be reached or takes too long.
            ConfigError: its tools do not fit the options any more, or their names clash.
        """
        self._listed = await self._ask(self._list)
        return self._take()

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Call a tool and return the whole result, as the protocol has it.

        For code of yours: images, structured content and all else that a model is not shown is in it.

        Args:
            name: as the server spells it, without the prefix.
            arguments: JSON data.

        Raises:
            ToolTimeout: the call took longer than ``timeout``.
            ToolError: the server refused the call, or was lost. A tool that fails returns ``isError``.
        """
        # the package breaks the connection, for all who wait, over text that cannot be sent
        given = sendable(dict(arguments or {}))
        return await self._call(name, given, name)

    async def _list(self, link: ServerLink) -> list[Mapping[str, Any]]:
        with anyio.move_on_after(self._connect_timeout):
            return await link.tools()
        raise ToolError(f"{self._where} did not list its tools within {self._connect_timeout:g} seconds.")

    def _take(self) -> tuple[Tool, ...]:
        """Make tools of those that are listed."""
        wanted = wanted_tools(self._listed, prefix=self._prefix, only=self._only, where=self._where)
        if not isinstance(self._needs_approval, bool) and not callable(self._needs_approval):
            check_known(self._needs_approval, wanted, "needs_approval", self._where)
        self._tools = tuple(map(self._tool, wanted.values()))
        return self._tools

    def _tool(self, listed: ListedTool) -> Tool:
        gated = self._needs_approval
        if not isinstance(gated, bool) and not callable(gated):
            gated = listed.name in gated
        return Tool(
            name=listed.offered,
            description=listed.description,
            params_json_schema=listed.schema,
            on_invoke_tool=functools.partial(self._invoked, listed),
            strict=False,  # as the server wrote it: a null that stands for a default would be sent to it
            on_error=_told,
            needs_approval=gated,
        )

    async def _invoked(self, tool: ListedTool, context: ToolContext[Any], arguments: str) -> ToolResult:
        given = cast("dict[str, Any]", pydantic_core.from_json(arguments))
        given = {tool.arguments.get(name, name): each for name, each in given.items()}
        result = await self._call(tool.name, given, context.tool_name)
        text = result_text(result)
        if result.get("isError"):
            raise ToolError(text or "the server does not say why")
        return ToolResult(text, media=result_media(result))

    async def _call(self, name: str, given: dict[str, Any], called: str) -> Mapping[str, Any]:
        async def asked(link: ServerLink) -> Mapping[str, Any]:
            late = ToolTimeout(f"Tool {called!r} timed out after {self._timeout or 0:g}s.")
            # a time limit of the tool's own would cut short the connecting anew, each time
            with anyio.move_on_after(self._timeout):
                return await link.call(name, given)
            raise late

        return await self._ask(asked)

    async def _ask(self, what: Callable[[ServerLink], Awaitable[T]]) -> T:
        with self._our_words():
            connection = await self._connected()
            try:
                return await connection.ask(what)
            except SessionExpired as error:
                await connection.close()
                if not isinstance(self._place, WebServer):  # what an own transport means by it, nobody knows
                    raise ToolError(
                        f"{self._where} has ended the session. Whether the call was carried out is not "
                        "known. The next call connects anew."
                    ) from error
                return await (await self._connected()).ask(what)  # nothing was done, so it may be asked again

    @contextmanager
    def _our_words(self) -> Generator[None]:
        try:
            yield
        except RoutelockError:
            raise
        except ErrorAnswer as error:
            raise ToolError(f"{self._where} refused: {error}") from error
        except Exception as error:
            why = redact_text(reason_of(error))
            raise ToolError(f"{self._where} gave an answer that cannot be used: {why}") from error

    async def _connected(self) -> ServerConnection:
        """Return the connection; a new one if there is none, or if the last one was lost."""
        if self._opened() != running_loop():
            raise ConfigError(
                f"{self._where} was opened in another event loop. Open it in the one that runs your agents: "
                "Runner.run_sync makes one of its own, so use `await Runner.run(...)`."
            )
        lock = self._lock  # each block has its own
        async with lock:
            if self._connection is not None and not self._connection.over:
                return self._connection
            made = await self._connect()
            if self._lock is not lock:  # the block was left in the meantime
                await made.close()
                raise ToolError(f"{self._where} was closed.")
            self._connection = made
            return made

    async def _connect(self) -> ServerConnection:
        made = ServerConnection(functools.partial(linked, self._place), self._where)
        self._instructions = (await made.open(self._connect_timeout)).instructions
        try:
            # also when it is lost and connected to anew: the package knows the results by the list
            self._listed = await made.ask(self._list)
        except BaseException:
            await made.close()
            raise
        return made

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        self._loop, self._lock = None, anyio.Lock()
        if connection is not None:
            await connection.close()

    def _opened(self) -> object:
        """Return the event loop that it is open in."""
        if self._loop is None:
            raise ConfigError(f"{self._where} is not open: use it within `async with MCPClient(...)`.")
        return self._loop


def _told(context: ToolContext[Any], error: Exception) -> str:
    """Say what went wrong. What the server says of it is for the model, so it is not cut short.

    Raises:
        ConfigError: the app has made a mistake, which no model can repair.
    """
    if isinstance(error, ConfigError):
        raise error
    if isinstance(error, ToolError) and not isinstance(error, ToolTimeout):
        return f"Tool {context.tool_name!r} failed: {error}"
    return failure_text(context.tool_name, error)
