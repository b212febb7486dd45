"""Clients of the official SDK for agents that are MCP tools, in both forms of the protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import mcp
from mcp.client import streamable_http

__all__ = ["BOTH", "Asks", "connected", "http_client", "said_in"]


BOTH = ("auto", "legacy")
"""The modes of a client: the newest form of the protocol, and the one with a handshake."""


class Asks:
    """Answers the questions of a server, and keeps them.

    Args:
        actions: what the user does, in order; the last one again and again.
        content: what the user fills in.
    """

    def __init__(self, *actions: str, content: Mapping[str, Any] | None = None) -> None:
        self._content = content
        self.questions: list[str] = []
        self._actions = [*actions]

    async def __call__(self, context: object, params: Any) -> Any:
        self.questions.append(params.message)
        action = self._actions.pop(0) if len(self._actions) > 1 else self._actions[0]
        return mcp.types.ElicitResult.model_validate({"action": action, "content": self._content})


def connected(server: Any, mode: str, asks: Callable[..., Any] | None = None) -> Any:
    """Return the SDK's client of a server; ``async with`` connects it."""
    return mcp.Client(server, mode=mode, elicitation_callback=asks)


@asynccontextmanager
async def http_client(
    url: str, mode: str, *, key: str = "none", asks: Callable[..., Any] | None = None
) -> AsyncGenerator[Any]:
    """Connect to a server behind a URL, with a key."""
    made: Any = streamable_http
    headers = {"authorization": f"Bearer {key}"}
    async with made.create_mcp_http_client(headers=headers) as http:
        transport = made.streamable_http_client(url, http_client=http)
        async with connected(transport, mode, asks) as client:
            yield client


def said_in(result: Any) -> str:
    """Return what a result says."""
    return "".join(each.text for each in result.content)
