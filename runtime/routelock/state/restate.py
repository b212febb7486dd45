"""Runs in a handler of Restate: the extra ``restate``.

    orders = restate.Workflow("orders")

    @orders.main()
    async def run(ctx: restate.WorkflowContext, text: str) -> str:
        async with restate_steps(ctx) as executor:
            config = RunConfig(executor=executor, run_id=ctx.key())
            result = await Runner.run(clerk, text, run_config=config)
        return result.final_output

Restate finds steps by their position, and the steps of a run have no fixed order. So each position of its
journal takes the step that ends next, with its key. The records are read before the run goes on. It is
asyncio only, as Restate is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol

from routelock.errors import ConfigError
from routelock.run.executor import Call, Executor
from routelock.state.steps import Show, StepExecutor

__all__ = ["RestateContext", "restate_steps"]


_NAME = "routelock.step"

_END = ""
"""The key of the last record: the run has left the block."""


class RestateContext(Protocol):
    """The part of Restate's context for a handler that routelock uses."""

    def run_typed(self, name: str, action: Callable[[], Coroutine[Any, Any, str]], /) -> Awaitable[str]:
        """Run a function once, and record its result at the next position."""
        ...


@asynccontextmanager
async def restate_steps(ctx: RestateContext, show: Show | None = None) -> AsyncGenerator[Executor]:
    """Yield the executor of a run within a handler of Restate.

    Within the block, use the context for nothing else, and do not use it any more if the block raises. A step
    is on record before the run acts on it. If the process dies, Restate calls the handler again, and recorded
    steps are not made again.

    Args:
        ctx: the context of the handler.
        show: called with each event of a model call that is made, see `StepExecutor`.

    Raises:
        BaseException: from the block, if Restate cancels, suspends or takes away the handler.
    """
    records = _Records(ctx)
    reading = asyncio.create_task(records.read())
    playing = asyncio.current_task()
    assert playing is not None
    stopped: list[bool] = []

    def stop(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            stopped.append(playing.cancel())

    reading.add_done_callback(stop)
    try:
        yield StepExecutor(records.step, show)
        records.end()
        await reading
    except asyncio.CancelledError:
        if not stopped:
            raise
        playing.uncancel()
        await reading  # raises the error that ended the task
    finally:
        reading.remove_done_callback(stop)
        reading.cancel()


class _Records:
    """The records of one run. Only `read` waits for Restate, because one task may use its context."""

    def __init__(self, ctx: RestateContext) -> None:
        self._ctx = ctx
        self._texts: dict[str, asyncio.Future[str]] = {}
        self._made: asyncio.Queue[str] = asyncio.Queue()
        self._is_over = False
        """Whether the run has left the block, in this attempt or in an earlier one."""
        self._is_new = asyncio.Event()
        """Set when all records of earlier processes are read."""

    async def step(self, call: Call, work: Callable[[], Awaitable[str]]) -> str:
        """Return the text of a step, made now or by an earlier process."""
        await self._is_new.wait()
        if call.key not in self._texts:
            if self._is_over:
                raise ConfigError(
                    "An earlier attempt ended the run without this step: the agents have changed since. "
                    "Let a new invocation make the run."
                )
            text = await work()
            self._made.put_nowait(json.dumps([call.key, text]))
            self._texts.setdefault(call.key, asyncio.get_running_loop().create_future())
        return await asyncio.shield(self._texts[call.key])

    def end(self) -> None:
        """Let `read` return."""
        self._made.put_nowait(json.dumps([_END, ""]))

    async def read(self) -> None:
        """Read the records of earlier processes, and then record each step that ends."""
        key = None
        while key != _END:
            key, text = json.loads(await self._ctx.run_typed(_NAME, self._next))
            found = self._texts.setdefault(key, asyncio.get_running_loop().create_future())
            if not found.done():
                found.set_result(text)
        self._is_over = True
        self._is_new.set()  # an earlier attempt left the block, and every position has a record

    async def _next(self) -> str:
        """Return the next step that ends. Restate calls this for a position that has no record."""
        self._is_new.set()
        return await self._made.get()
