"""MCP servers of this process, made alike with both major versions of the mcp package."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
import mcp
import raw_mcp_server

__all__ = ["Office", "over_streams", "protocol_error", "raw"]

types: Any = mcp.types
IS_2 = hasattr(mcp, "Client")
if TYPE_CHECKING:
    Context = Any
else:
    Context = import_module("mcp.server.mcpserver" if IS_2 else "mcp.server.fastmcp").Context
RAW = Path(raw_mcp_server.__file__)


def raw(notes: Path | None = None, *more: str) -> dict[str, Any]:
    """Return where `raw_mcp_server` is, for an `MCPClient`."""
    return {"command": sys.executable, "args": ["-S", str(RAW), *([str(notes)] if notes else ()), *more]}


class Office:
    """A server with tools of all kinds; it knows what has happened to it."""

    def __init__(self, name: str = "office") -> None:
        self.calls: list[str] = []
        self.hanging = anyio.Event()
        self.called_off = anyio.Event()
        self.server: Any = _server()(name, instructions="Ask the office.")
        for tool in (self.add, self.fail, self.hang, self.team, self.none, self.chart, self.lend):
            self.add_tool(tool)
        self.add_tool(self.read, name="files.read/v1")

    def add_tool(self, function: Any, name: str | None = None) -> None:
        """Have one more tool."""
        self.server.add_tool(function, name=name)

    def app(self) -> Any:
        """Return the server as an app for streamable HTTP."""
        return self.server.streamable_http_app()

    def add(self, a: int, b: int = 2) -> int:
        """Add two numbers."""
        self.calls.append("add")
        return a + b

    def read(self, path: str) -> str:
        """Read a file."""
        self.calls.append("read")
        return f"what is in {path}"

    def fail(self) -> Any:
        """Fail, in words of the server's own."""
        content = [types.TextContent(type="text", text="the printer is on fire")]
        return types.CallToolResult(content=content, **{"is_error" if IS_2 else "isError": True})

    async def hang(self) -> str:
        """Wait for ever."""
        self.hanging.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.called_off.set()
        return "never"

    def lend(self, title: str, context: Context) -> Any:
        """Lend a book, in a second round that says where."""
        if replies := context.input_responses:
            return f"{title} is lent in {replies['branch'].content['branch']}"
        schema = {"type": "object", "properties": {"branch": {"type": "string"}}, "required": ["branch"]}
        asked = types.ElicitRequestFormParams(message="Which branch?", requested_schema=schema)
        return types.InputRequiredResult(input_requests={"branch": types.ElicitRequest(params=asked)})

    def team(self) -> list[dict[str, str]]:
        """Tell who works here."""
        return [{"name": "Ada"}, {"name": "Bob"}]

    def none(self) -> list[str]:
        """Tell who does not."""
        return []

    def chart(self) -> Any:
        """Draw a picture and say something about it."""
        mime = {"mime_type" if IS_2 else "mimeType": "image/png"}
        return [
            types.TextContent(type="text", text="The sales:"),
            types.ImageContent(type="image", data="aGVsbG8=", **mime),
        ]


def protocol_error(code: int, message: str) -> Exception:
    """Return an error that a tool answers with in the protocol's own words."""
    known = cast(Any, mcp)
    if IS_2:
        return cast(Exception, known.MCPError(code=code, message=message))
    return cast(Exception, known.McpError(types.ErrorData(code=code, message=message)))


@asynccontextmanager
async def over_streams(server: Any) -> AsyncGenerator[Any]:
    """Run a server beside us, and yield the streams of a transport to it."""
    from mcp.shared.memory import create_client_server_memory_streams

    running = getattr(server, "_lowlevel_server" if IS_2 else "_mcp_server")
    async with create_client_server_memory_streams() as (ours, theirs), anyio.create_task_group() as group:
        group.start_soon(running.run, *theirs, running.create_initialization_options())
        yield ours
        group.cancel_scope.cancel()


def _server() -> Any:
    if IS_2:
        from mcp.server import MCPServer

        return MCPServer
    from mcp.server import fastmcp

    return cast(Any, fastmcp).FastMCP
