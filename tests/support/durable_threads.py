"""A worker of durable runs in a thread and an event loop of its own, beside the clients of a test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

from routelock import Agent
from routelock.state.durable import WorkerSettings, serving_runs


class WorkerThread:
    """Serves agents until it is ended."""

    def __init__(self, database: str, agents: Sequence[Agent[Any]]) -> None:
        self.database, self.agents = database, agents
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()))

    def begin(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(60)

    async def _work(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with serving_runs(self.agents, self.database, WorkerSettings(poll=0.02)):
            self._ready.set()
            await self._over.wait()

    def do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Do something in the worker's event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)
