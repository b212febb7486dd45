"""MCP over standard input and output, for hosts that start a server as a program of theirs."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import anyio

from routelock.agents.agent import Agent
from routelock.serving.auth import AccessControl
from routelock.serving.catalog import app_of
from routelock.serving.config import MCP, ServeConfig, ServedRequest
from routelock.serving.errors import Refusal, log_refusal, new_request_id
from routelock.serving.mcp.messages import line_problem, refused_line
from routelock.serving.mcp.tool_calls import Caller, ToolCalls

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp.shared._context_streams import ContextSendStream
    from mcp.shared.message import SessionMessage

__all__ = ["ProtocolStreams", "local_server", "protocol_streams", "serve_stdio"]


_STDIN, _STDOUT, _STDERR = 0, 1, 2

_PIECE = 2**16
"""Bytes that are read at once."""

ProtocolStreams = tuple[io.TextIOWrapper, io.TextIOWrapper]
"""The input and the output of the protocol."""


@contextmanager
def protocol_streams() -> Generator[ProtocolStreams]:
    """Keep standard input and output for the protocol while the block lasts.

    Other output of the process, and of programs that it starts, goes to stderr: one line of another kind
    would break the connection. Their input is empty.
    """
    source, target = os.dup(_STDIN), os.dup(_STDOUT)
    sys.stdout.flush()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, _STDIN)
    os.close(nothing)
    os.dup2(_STDERR, _STDOUT)
    try:
        yield _text(source, "rb"), _text(target, "wb")
    finally:
        sys.stdout.flush()  # before the descriptor is that of the protocol again
        os.dup2(source, _STDIN)
        os.dup2(target, _STDOUT)


def _text(descriptor: int, mode: str) -> io.TextIOWrapper:
    # a thread may still use it when the block ends, so it is not closed
    return io.TextIOWrapper(os.fdopen(descriptor, mode, closefd=False), encoding="utf-8", errors="replace")


async def serve_stdio(
    agents: Agent[Any] | Sequence[Agent[Any]],
    config: ServeConfig | None = None,
    streams: ProtocolStreams | None = None,
) -> None:
    """Serve agents as MCP tools over standard input and output, until the client closes its end.

    The command ``routelock mcp module:agent`` does the same. A running call is cancelled at the end. All that
    the program prints meanwhile goes to stderr.

    Args:
        agents: one agent, or several. Each is a tool.
        config: limits and settings. Keys, hosts and other protocols are not used: the client is the program
            that started this one.
        streams: open streams; None takes those of the process.

    Raises:
        ConfigError: the agents cannot be served.
        MissingExtra: version 2.2 of the mcp package, or a newer one, is not installed.
    """
    if streams is None:
        with protocol_streams() as own:
            return await serve_stdio(agents, config, own)
    server = local_server(agents, config or ServeConfig())
    from mcp.server.stdio import stdio_server  # noqa: PLC0415 - an extra

    lines = _Lines(streams[0])
    async with stdio_server(cast("Any", lines), cast("Any", _Output(streams[1]))) as (read, write):
        lines.answers = write
        await server.run(read, write, server.create_initialization_options())


async def _lines(source: io.TextIOWrapper) -> AsyncIterator[str]:
    """Yield the lines of standard input. A reader that waits for the next one can be cancelled.

    A thread that waits for input cannot, so the program would not end before the client's next line.
    """
    parts: list[bytes] = []
    while piece := await _piece(cast("io.BufferedReader", source.buffer)):
        *ended, rest = piece.split(b"\n")
        for line in ended:
            yield b"".join((*parts, line)).decode(errors="replace")
            parts.clear()
        parts.append(rest)
    if last := b"".join(parts):
        yield last.decode(errors="replace")


async def _piece(source: io.BufferedReader) -> bytes:
    """Return the next bytes of a stream; none at its end."""
    try:
        await anyio.wait_readable(source)
    except OSError:  # a file, or text in memory, which never make their reader wait
        return await anyio.to_thread.run_sync(source.read1, _PIECE)
    return source.read1(_PIECE)


class _Output:
    """Standard output. A writer that waits for a client that does not read can be cancelled."""

    def __init__(self, target: io.TextIOWrapper) -> None:
        self._target = target

    async def write(self, text: str) -> None:
        """Write a text."""
        await anyio.to_thread.run_sync(self._target.write, text, abandon_on_cancel=True)

    async def flush(self) -> None:
        """Send the written texts."""
        await anyio.to_thread.run_sync(self._target.flush, abandon_on_cancel=True)


class _Lines:
    """The client's lines. A line that is not a message is answered with an error, and left out.

    The SDK leaves it out in silence, and a client that sent a request would wait for ever: JavaScript writes
    half of a character as an escape, which is not JSON that can be read.
    """

    def __init__(self, source: io.TextIOWrapper) -> None:
        self._source = source
        self.answers: ContextSendStream[SessionMessage] | None = None

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the lines that the SDK can read."""
        async for line in _lines(self._source):
            if (refusal := line_problem(line)) is None:
                yield line
            elif line.strip():
                await self._refuse(line, refusal)

    async def _refuse(self, line: str, refusal: Refusal) -> None:
        from mcp.shared.message import SessionMessage  # noqa: PLC0415 - an extra
        from mcp_types import JSONRPCError  # noqa: PLC0415 - an extra

        request_id = new_request_id()
        log_refusal(request_id, refusal)
        error = JSONRPCError.model_validate(refused_line(line, refusal, request_id))
        if self.answers is not None:
            await self.answers.send(SessionMessage(error))


def local_server(agents: Agent[Any] | Sequence[Agent[Any]], config: ServeConfig) -> Server[Any]:
    """Return the SDK's server of these agents, for a client that needs no key.

    Raises:
        ConfigError: the agents cannot be served.
        MissingExtra: version 2.2 of the mcp package, or a newer one, is not installed.
    """
    app = app_of(agents, config)
    return ToolCalls(app, config.mcp or MCP(), lambda: _local(app.access)).server


def _local(access: AccessControl) -> Caller:
    """Return the caller of a call without an HTTP request."""

    def about(agent: str) -> ServedRequest:
        caller = access.anonymous
        return ServedRequest(
            request_id=new_request_id(), model=agent, principal=caller.name, scopes=caller.scopes
        )

    return Caller(about)
