"""An app on a true socket, served by uvicorn in a thread of its own, for tests of any kind of client."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import uvicorn
from asgi_client import Answer
from waiting import PATIENCE

from routelock import Agent
from routelock.serving import ServeConfig, create_app


@contextmanager
def served(agents: Agent[Any] | Sequence[Agent[Any]], config: ServeConfig | None = None) -> Iterator[str]:
    """Serve agents while the block lasts; yields the base URL, which ends in ``/v1``."""
    with listening(create_app(agents, config)) as url:
        yield f"{url}/v1"


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """Serve an ASGI app while the block lasts; yields its URL, without a slash at the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    # connections inherit it; else each small piece would wait 40 ms for the client's acknowledgement
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            ws="none",
            lifespan="on",
            timeout_graceful_shutdown=1,
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        assert server.is_up.wait(PATIENCE), "the app did not start"
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stop()
        thread.join(PATIENCE)
        listener.close()


class _Server(uvicorn.Server):
    """Ends as uvicorn does, but as soon as it can: uvicorn looks each tenth of a second, then waits one."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self.serve(sockets))

    def stop(self) -> None:
        """Stop the server; from any thread, and also if it is gone."""
        self.should_exit = True
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._stopped.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while state.connections or state.tasks:  # noqa: ASYNC110 - they are uvicorn's own
                    await asyncio.sleep(0.002)
        except TimeoutError:
            for task in list(state.tasks):
                task.cancel()
        await self.lifespan.shutdown()


def ask(content: str = "Hi", **more: Any) -> dict[str, Any]:
    """The body of a request with one user message."""
    return {"messages": [{"role": "user", "content": content}], **more}


def post(url: str, body: Any, **headers: str) -> httpx.Response:
    """Send a request; underscores in header names become dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(f"{url}/chat/completions", json=body, headers=named, timeout=PATIENCE)


def events_of(response: httpx.Response | Answer) -> list[Any]:
    """The data of all events of a stream, parsed; ``"[DONE]"`` as it stands."""
    assert response.headers["content-type"].startswith("text/event-stream"), response.text
    found: list[Any] = []
    for block in response.text.split("\n\n"):
        if block.startswith("data: "):
            data = block.removeprefix("data: ")
            found.append(data if data == "[DONE]" else json.loads(data))
        else:
            assert not block or block.startswith(":"), f"a client may choke on {block!r}"
    return found


def deltas_of(events: Sequence[Any]) -> list[Mapping[str, Any]]:
    """The deltas of a stream's chunks."""
    return [choice["delta"] for event in events if event != "[DONE]" for choice in event.get("choices", ())]


def text_in(deltas: Sequence[Mapping[str, Any]], key: str = "content") -> str:
    """What the deltas say together."""
    return "".join(delta.get(key) or "" for delta in deltas)
