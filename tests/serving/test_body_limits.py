"""Bodies that arrive slowly hold a bounded memory, in each protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from asgi_client import Exchange
from mcp_clients import Asks, http_client, said_in
from scripted_agents import agent
from served_apps import listening

from routelock import Agent, tool
from routelock.serving import A2A, AGUI, MCP, ServeConfig, create_app
from routelock.testing import ScriptedHandler, call

pytest.importorskip("mcp_types", reason="version 2 of the mcp package serves")
pytest.importorskip("a2a")

ALL = ServeConfig(a2a=A2A(), ag_ui=AGUI(), mcp=MCP(), max_concurrent=1, max_body=1000)


class Stalled(Exchange):
    """A request whose client sends a part of the body and then nothing."""

    def __init__(self) -> None:
        super().__init__(b"[")
        self._left[0]["more_body"] = True
        self.has_begun = anyio.Event()

    async def of(self, app: Any, path: str, size: int) -> None:
        """Make the request, with a declared size."""
        await self.play(app, path, headers={"content-length": str(size)})

    async def _receive(self) -> Mapping[str, Any]:
        if not self._left:
            self.has_begun.set()
        return await super()._receive()


@pytest.mark.anyio
@pytest.mark.asyncio_only
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/ag-ui", "/a2a/A", "/mcp"])
async def test_more_than_the_slots_may_hold_is_refused_at_once(path: str) -> None:
    app = create_app(agent("A"), ALL)
    stalled = Stalled()
    async with anyio.create_task_group() as group:
        group.start_soon(stalled.of, app, path, 900)
        await stalled.has_begun.wait()
        refused = await Exchange(b"[" * 200).play(app, path, headers={"content-length": "200"})
        group.cancel_scope.cancel()
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert "Try again in a moment" in refused.text


@pytest.mark.anyio
@pytest.mark.asyncio_only
@pytest.mark.parametrize("path", ["/a2a/A", "/mcp"])
async def test_short_bodies_that_are_slow_keep_no_other_out(path: str) -> None:
    app = create_app(agent("A"), ALL)
    stalled = [Stalled() for _ in range(50)]
    async with anyio.create_task_group() as group:
        for each in stalled:
            group.start_soon(each.of, app, path, 10)
            await each.has_begun.wait()
        answer = await Exchange(b"{}").play(app, path, headers={"content-length": "2"})
        group.cancel_scope.cancel()
    assert answer.status != 429
    assert (await Exchange(b"{}").play(app, path)).status != 429, "those that have left hold no room"


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_a_running_call_gets_its_answer_though_no_slot_is_free() -> None:
    """The answer to its question comes in a request of its own."""

    @tool(needs_approval=True)
    def pay() -> str:
        return "paid"

    payer = Agent("A", model=ScriptedHandler([call("pay", {}), "Done."]), tools=[pay])
    with listening(create_app(payer, ALL)) as url:
        async with http_client(f"{url}/mcp", "legacy", asks=Asks("accept")) as client:
            assert said_in(await client.call_tool("a", {"input": "Pay"})) == "Done."
