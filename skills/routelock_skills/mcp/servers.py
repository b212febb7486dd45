"""Addresses of MCP servers: programs, URLs, server objects and transports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Annotated, Any, Literal, cast
from urllib.parse import urlsplit

import pydantic

from routelock._json_document import misfit_text
from routelock.errors import ConfigError

__all__ = ["OwnTransport", "Program", "ServerAddress", "ServerObject", "WebServer", "server_address"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that is started and used over its standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] | None = field(default=None, repr=False)
    """Variables beside those that the client passes on itself, such as ``PATH`` and ``HOME``."""
    cwd: str | None = None

    @property
    def label(self) -> str:
        """The name of the program."""
        return PurePath(self.command).name


@dataclass(frozen=True, slots=True, kw_only=True)
class WebServer:
    """A server with a URL, used over HTTP."""

    url: str
    headers: dict[str, str] = field(default_factory=lambda: {}, repr=False)

    @property
    def label(self) -> str:
        """The host; the rest of the URL may hold a secret."""
        return urlsplit(self.url).hostname or "url"


@dataclass(frozen=True, slots=True)
class ServerObject:
    """A server object of this process."""

    server: Any

    @property
    def label(self) -> str:
        """The server's own name."""
        return str(getattr(self.server, "name", None) or type(self.server).__name__)


@dataclass(frozen=True, slots=True)
class OwnTransport:
    """A transport of the app: a function that returns an async context manager with two streams."""

    open: Any

    @property
    def label(self) -> str:
        """The name of the function."""
        return str(getattr(self.open, "__name__", "transport")).strip("<>")


ServerAddress = Program | WebServer | ServerObject | OwnTransport


class _Entry(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", hide_input_in_errors=True)


class _CommandEntry(_Entry):
    type: Literal["stdio"] = "stdio"
    command: Annotated[str, pydantic.Field(min_length=1)]
    args: tuple[str, ...] = ()
    env: dict[str, str] | None = None
    cwd: str | None = None


class _UrlEntry(_Entry):
    type: Literal["http", "streamable-http"] = "http"
    url: Annotated[str, pydantic.Field(pattern="^https?://[^/]")]
    headers: dict[str, str] = {}


def server_address(given: object) -> ServerAddress:
    """Return the address of a server, see `routelock_skills.mcp.MCPClient` for the forms.

    Raises:
        ConfigError: the address has none of these forms. Values are not quoted, since they may be secrets.
    """
    if isinstance(given, str):
        given = {"url": given}
    if isinstance(given, Mapping):
        return _entry(dict(cast("Mapping[str, Any]", given)))
    if any(hasattr(given, name) for name in ("add_tool", "create_initialization_options")):
        return ServerObject(given)
    if callable(given):
        return OwnTransport(given)
    raise ConfigError(
        f"{type(given).__name__} is not an MCP server: pass a URL, a mapping with 'command' or 'url', a "
        "server object of the mcp package, or a function that opens a transport."
    )


def _entry(given: dict[str, Any]) -> ServerAddress:
    kind = _CommandEntry if "command" in given else _UrlEntry
    try:
        values = kind.model_validate(given).model_dump(exclude={"type"})
    except pydantic.ValidationError as error:
        raise ConfigError(
            f"This is not an MCP server: {misfit_text(error)}. A mapping has command, args, env and "
            "cwd, or url and headers."
        ) from error
    return Program(**values) if kind is _CommandEntry else WebServer(**values)
