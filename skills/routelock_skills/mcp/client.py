"""`MCPClient`: the tools of an MCP server as tools of an agent."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar, cast

import anyio
import pydantic_core

from routelock._redaction import redact_text
from routelock._sendable import sendable
from routelock._text import clip, one_line
from routelock.context import ToolContext
from routelock.errors import ConfigError, RoutelockError, ToolError, ToolTimeout
from routelock.tools.approvals import NeedsApproval
from routelock.tools.failures import failure_text, reason_of
from routelock.tools.outcome import ToolResult
from routelock.tools.questions import ToolAnswer, ToolQuestion
from routelock.tools.tool import Tool
from routelock_providers.deadlines import check_seconds
from routelock_skills.mcp.connection import (
    ErrorAnswer,
    ServerConnection,
    ServerLink,
    SessionExpired,
    connect,
    library,
    running_loop,
)
from routelock_skills.mcp.elicitation import Elicitations, InputRound, OnElicitation, is_unfinished
from routelock_skills.mcp.results import result_media, result_text
from routelock_skills.mcp.servers import WebServer, server_address
from routelock_skills.mcp.tools import ListedTool, WantedTools, check_known, wanted_tools

__all__ = ["MCPClient"]


T = TypeVar("T")

_LONGEST_NAME = 100
"""Most characters of what a server calls itself."""

_MOST_ROUNDS = 10
"""How many times in a row a server may leave a call unfinished, as in the package's own client."""


class MCPClient:
    """Offers the tools of an MCP server as tools of an agent, inside its ``async with`` block.

        async with MCPClient({"command": "uvx", "args": ["mcp-server-git"]}) as git:
            agent = Agent("coder", model=..., tools=[*git.tools, compile])

    They are ordinary tools, with arguments, time limits, approvals, hooks and traces like all others. An
    agent keeps the tools that it was made with, even if the server lists others later.

    Another task than the one that entered the block may leave it. After a server has ended, the next call
    connects again. A call that was lost with the server is not repeated.

    Args:
        server: a URL; or a mapping as in the ``mcpServers`` of other programs, with ``command``, ``args``,
            ``env`` and ``cwd`` (a program, used over its standard input and output) or ``url`` and
            ``headers`` (streamable HTTP); or a server object of the mcp package, in this process; or a
            function without arguments that opens a transport of the mcp package, such as ``lambda:
            sse_client(url)``.
        name: its name in messages, and the ``origin`` of its tools; default: its host, program or own name in
            messages, and what it calls itself as the origin.
        prefix: the beginning of the names of its tools, such as ``"git_"``.
        only: the tools to offer: their names without the prefix, or a function of the name; default: all.
        needs_approval: whether a call needs an approval first: for all tools, for those with these names
            (without the prefix), or by a function of the context and the arguments.
        deferred: whether models have to find the tools first, see `routelock.tools.ToolSearch`; None leaves
            that to the agent or the run.
        timeout: seconds for one call after the connection is open; None for no limit.
        connect_timeout: seconds to start the server, connect to it and list its tools.
        on_elicitation: a sync or async function that answers questions of the server in the middle of a call.
            It gets a `routelock.tools.ToolQuestion`. It returns the fields of the answer, True for an answer
            of defaults only, False to decline, or None to leave the question to a person. The call then waits
            like a call that needs approval.

    Raises:
        ConfigError: an argument is invalid.
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
        deferred: bool | None = None,
        timeout: float | None = 60.0,
        connect_timeout: float = 30.0,
        on_elicitation: OnElicitation | None = None,
    ) -> None:
        library()
        check_seconds(timeout=timeout)
        self._address = server_address(server)
        self.name: str = name or self._address.label
        self._origin = name
        self._prefix = prefix
        self._only = only
        self._needs_approval = needs_approval
        self._deferred = deferred
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._elicitations = Elicitations(on_elicitation)
        self._where = f"MCP server {self.name!r}"
        self._listed: Sequence[Mapping[str, Any]] = ()
        self._tools: tuple[Tool, ...] = ()
        self._instructions = self._own_name = ""
        self._connection: ServerConnection | None = None
        self._loop: object = None
        self._lock: anyio.Lock

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of the server, as they were listed last."""
        self._open_loop()
        return self._tools

    @property
    def definitions(self) -> Mapping[str, Mapping[str, Any]]:
        """The server's definitions of its tools, by its names: ``inputSchema`` and everything else.

        The schemas are as the server wrote them; those of `tools` are in the form that providers accept.
        """
        self._open_loop()
        return {str(each.get("name")): each for each in reversed(self._listed)}

    @property
    def instructions(self) -> str:
        """The server's text on how to use it. Add it to an agent's instructions if the agent needs it."""
        self._open_loop()
        return self._instructions

    async def __aenter__(self) -> MCPClient:
        """Start the server or connect to it, and list its tools.

        Raises:
            ToolError: the server cannot be started or reached, is not an MCP server, or takes too long.
            ConfigError: the server's tools do not fit the options, or two names are the same.
        """
        if self._loop is not None:
            raise ConfigError(f"{self._where} is open already: a client can have only one block at a time.")
        self._loop, self._lock = running_loop(), anyio.Lock()
        try:
            with self._as_tool_errors():
                await self._connected()
            self._make_tools()
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
        """Disconnect from the server; a server that is a program is ended."""
        await self._close()

    async def refresh(self) -> tuple[Tool, ...]:
        """List the tools again and return them, for agents that are made later.

        Raises:
            ToolError: the server cannot be reached or takes too long.
            ConfigError: the server's tools no longer fit the options, or two names are the same.
        """
        self._listed = await self._ask(self._list)
        return self._make_tools()

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Call a tool and return the whole result in the form of the protocol.

        It is for code of the app: the result also holds images, structured content and everything else that a
        model is not shown.

        Args:
            name: the server's name of the tool, without the prefix.
            arguments: JSON data.

        Raises:
            ToolTimeout: the call took longer than ``timeout``.
            ToolError: the server refused the call, or was lost, or asked what ``on_elicitation`` does not
                answer. A tool that fails returns ``isError``.
        """
        # the package breaks the connection, with all its calls, over text that cannot be sent
        given = sendable(dict(arguments or {}))
        result = await self._finished(name, given, name, None)
        if isinstance(result, ToolQuestion):
            raise ToolError(
                f"{self._where} asks {result.message!r:.200}, and no person can be asked outside of a run: "
                "give MCPClient an on_elicitation function that answers."
            )
        return result

    async def _list(self, link: ServerLink) -> list[Mapping[str, Any]]:
        with anyio.move_on_after(self._connect_timeout):
            return await link.tools()
        raise ToolError(f"{self._where} did not list its tools within {self._connect_timeout:g} seconds.")

    def _make_tools(self) -> tuple[Tool, ...]:
        """Make tools of the listed ones, and return them."""
        wanted = wanted_tools(self._listed, prefix=self._prefix, only=self._only, where=self._where)
        if not isinstance(self._needs_approval, bool) and not callable(self._needs_approval):
            check_known(self._needs_approval, wanted, "needs_approval", self._where)
        self._tools = tuple(map(self._tool, wanted.values()))
        return self._tools

    def _tool(self, listed: ListedTool) -> Tool:
        approval = self._needs_approval
        if not isinstance(approval, bool) and not callable(approval):
            approval = listed.name in approval
        return Tool(
            name=listed.offered,
            description=listed.description,
            params_json_schema=listed.schema,
            on_invoke_tool=functools.partial(self._invoke, listed),
            strict=False,  # the server's schema as it is: a null for a default would be sent to the server
            on_error=_error_text,
            needs_approval=approval,
            deferred=self._deferred,
            origin=self._origin or clip(one_line(self._own_name), _LONGEST_NAME) or self.name,
        )

    async def _invoke(self, tool: ListedTool, context: ToolContext[Any], arguments: str) -> ToolResult:
        given = cast("dict[str, Any]", pydantic_core.from_json(arguments))
        given = {tool.arguments.get(name, name): each for name, each in given.items()}
        result = await self._finished(tool.name, given, context.tool_name, context.answer)
        if isinstance(result, ToolQuestion):
            return ToolResult(result)
        text = result_text(result)
        if result.get("isError"):
            raise ToolError(text or "the server does not say why")
        if context.answer is not None and context.answer.message:
            text = f"{text}\nThe question was declined: {context.answer.message}"
        return ToolResult(text, media=result_media(result))

    async def _finished(
        self, name: str, given: dict[str, Any], called: str, answer: ToolAnswer | None
    ) -> Mapping[str, Any] | ToolQuestion:
        """Call a tool until it has a result; return a question of the server that a person has to answer."""
        asked = None if answer is None else InputRound.answered(answer)
        for count in range(_MOST_ROUNDS):
            if asked is not None:
                question = await asked.ask(self._elicitations)
                if question is not None:
                    return question
                if not asked.replies:  # the server needs time, and not an answer
                    await anyio.sleep(min(0.05 * 2**count, 1))
            result = await self._call(name, given, called, asked)
            if not is_unfinished(result):
                return result
            asked = InputRound.of(result)
        raise ToolError(f"the server asked {_MOST_ROUNDS} times in one call, which is the limit")

    async def _call(
        self, name: str, given: dict[str, Any], called: str, answers: InputRound | None
    ) -> Mapping[str, Any]:
        async def request(link: ServerLink) -> Mapping[str, Any]:
            # a time limit of the tool would also count the time of connecting again
            with anyio.move_on_after(self._timeout):
                return await link.call(name, given, answers)
            raise ToolTimeout(f"Tool {called!r} timed out after {self._timeout or 0:g}s.")

        return await self._ask(request)

    async def _ask(self, request: Callable[[ServerLink], Awaitable[T]]) -> T:
        with self._as_tool_errors():
            connection = await self._connected()
            try:
                return await connection.ask(request)
            except SessionExpired as error:
                await connection.close()
                # the app's own transport may mean something else
                if not isinstance(self._address, WebServer):
                    raise ToolError(
                        f"{self._where} has ended the session. It is unknown whether the call was carried "
                        "out. The next call connects again."
                    ) from error
                return await (await self._connected()).ask(request)  # nothing was carried out, so repeat it

    @contextmanager
    def _as_tool_errors(self) -> Generator[None]:
        """Raise errors that are not routelock's as `ToolError`."""
        try:
            yield
        except RoutelockError:
            raise
        except ErrorAnswer as error:
            raise ToolError(f"{self._where} refused: {error}") from error
        except Exception as error:
            why = redact_text(reason_of(error))
            raise ToolError(f"{self._where} sent an answer that cannot be read: {why}") from error

    async def _connected(self) -> ServerConnection:
        """Return the connection; a new one if there is none, or if the last one was lost."""
        if self._open_loop() != running_loop():
            raise ConfigError(
                f"{self._where} was opened in another event loop. Open it in the loop that runs your agents: "
                "Runner.run_sync makes its own loop, so use `await Runner.run(...)`."
            )
        lock = self._lock  # each `async with` block has a lock of its own
        async with lock:
            if self._connection is not None and not self._connection.is_over:
                return self._connection
            connection = await self._connect()
            if self._lock is not lock:  # the block was left in the meantime
                await connection.close()
                raise ToolError(f"{self._where} was closed while it connected, so the call was not made.")
            self._connection = connection
            return connection

    async def _connect(self) -> ServerConnection:
        opened = functools.partial(connect, self._address, self._elicitations)
        connection = ServerConnection(opened, self._where)
        link = await connection.open(self._connect_timeout)
        self._instructions, self._own_name = link.instructions, link.name
        try:
            # again after a lost connection, because the package reads results by the list of tools
            self._listed = await connection.ask(self._list)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        self._loop, self._lock = None, anyio.Lock()
        if connection is not None:
            await connection.close()

    def _open_loop(self) -> object:
        """Return the event loop in which the client is open."""
        if self._loop is None:
            raise ConfigError(f"{self._where} is not open: use it inside `async with MCPClient(...)`.")
        return self._loop


def _error_text(context: ToolContext[Any], error: Exception) -> str:
    """Return the error text for the model. The server's own text is for the model, so it is not cut.

    Raises:
        ConfigError: the app has made a mistake, which a model cannot correct.
    """
    if isinstance(error, ConfigError):
        raise error
    if isinstance(error, ToolError) and not isinstance(error, ToolTimeout):
        return f"Tool {context.tool_name!r} failed: {error}"
    return failure_text(context.tool_name, error)
