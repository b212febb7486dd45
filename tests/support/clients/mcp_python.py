"""The scenes of the MCP client for Python: what it sees of the served agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

from mcp_clients import Asks, said_in

Facts = dict[str, Any]
PATIENCE = 60.0
Connect = Callable[[Asks | None], AbstractAsyncContextManager[Any]]
"""Connects a client, which asks its user or cannot."""


class Scenes:
    """What two clients see of a server.

    Args:
        asking: a client that asks its user.
        silent: one that cannot.
        asks: what the user of the first does.
    """

    def __init__(self, asking: Any, silent: Any, asks: Asks) -> None:
        self._asking, self._silent, self._asks = asking, silent, asks

    def call(self, agent: str, **more: Any) -> Awaitable[Any]:
        return cast("Awaitable[Any]", self._silent.call_tool(agent, {"input": "Hello?"}, **more))

    async def listed(self) -> Facts:
        tools = (await self._silent.list_tools()).tools
        return {
            "names": [tool.name for tool in tools],
            "takes": list(tools[0].input_schema["properties"]),
            "promised": [tool.name for tool in tools if tool.output_schema is not None],
        }

    async def greeting(self) -> Facts:
        return {"text": said_in(await self.call("greeter"))}

    async def transfer(self) -> Facts:
        told: list[str | None] = []

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            told.append(message)

        return {"text": said_in(await self.call("desk", progress_callback=tell)), "told": told}

    async def unicode(self) -> Facts:
        return {"text": said_in(await self.call("polyglot"))}

    async def broken(self) -> Facts:
        result = await self.call("broken")
        return {"error": result.is_error, "text": said_in(result)}

    async def structured(self) -> Facts:
        result = await self.call("clerk")
        return {"data": result.structured_content, "text": json.loads(said_in(result))}

    async def approval(self) -> Facts:
        said = [said_in(await self._asking.call_tool("payer", {"input": "Hello?"})) for _ in range(2)]
        return {"asked": self._asks.questions, "said": said}

    async def silent(self) -> Facts:
        """Call it without a way to ask."""
        return {"refused": await refused(self.call("payer"))}

    async def unknown(self) -> Facts:
        return {"refused": await refused(self.call("stranger"))}

    async def cancelled(self) -> Facts:
        """Give a call up, and ask on the same connection what became of its run."""
        begun = asyncio.Event()

        async def tell(*progress: object) -> None:
            begun.set()

        task = asyncio.ensure_future(self.call("endless", progress_callback=tell))
        await begun.wait()
        task.cancel()
        while True:
            told = json.loads(said_in(await self.call("teller")))
            if told["cancelled"]:
                return {"told": told}
            await asyncio.sleep(0.02)


async def refused(call: Awaitable[Any]) -> str:
    """Return what a refused call says: an error of the protocol, or a result that is one."""
    try:
        result = await call
    except Exception as error:
        return str(error)
    assert result.is_error
    return said_in(result)


async def played(connect: Connect) -> dict[str, Facts]:
    """Play all scenes."""
    asks = Asks("accept", "decline")
    async with connect(asks) as asking, connect(None) as silent:
        return await _played(Scenes(asking, silent, asks))


async def _played(scenes: Scenes) -> dict[str, Facts]:
    parts: list[Callable[[], Awaitable[Facts]]] = [
        scenes.listed, scenes.greeting, scenes.transfer, scenes.unicode, scenes.broken, scenes.structured,
        scenes.approval, scenes.silent, scenes.unknown, scenes.cancelled,
    ]  # fmt: skip
    facts: dict[str, Facts] = {}
    for scene in parts:
        name = scene.__name__  # type: ignore[attr-defined]
        try:
            facts[name] = await asyncio.wait_for(scene(), PATIENCE)  # type: ignore[arg-type]
        except Exception as error:  # the test shows it; the other scenes are still played
            facts[name] = {"failed": f"{type(error).__name__}: {error}"}
    return facts
