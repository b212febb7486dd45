"""Runs in handlers of Restate pass the contract of durable executors.

Each life is an attempt of Restate at one invocation: the handler fails, and Restate calls it again.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any
from urllib.error import HTTPError

import pytest
from restate_server import register, request, restate_server
from servers import free_port
from waiting import eventually

from routelock import Agent, RunConfig, Runner, tool
from routelock.state.restate import restate_steps
from routelock.testing import DurableExecutorContract, ScriptedHandler, call
from routelock.testing.executor_contract import Use
from routelock.testing.executor_scenes import Killed

REASON = "runs in Restate need its SDK: pip install 'routelock[restate]'"
restate = pytest.importorskip("restate", reason=REASON)
hypercorn = pytest.importorskip("hypercorn", reason=REASON)
pytest.importorskip("hypercorn.asyncio", reason=REASON)

Life = tuple[Use, asyncio.Event]

AT_ONCE = timedelta(milliseconds=20)


class Engine:
    """Serves a workflow that plays lives, in a thread and an event loop of its own."""

    def __init__(self, ingress: str, admin: str) -> None:
        self.ingress, self.admin, self._port = ingress, admin, free_port()
        self._lives: defaultdict[str, asyncio.Queue[Life]] = defaultdict(asyncio.Queue)
        self._known: set[str] = set()
        self._model = ScriptedHandler(["Paid."])
        self._ready, self.hanging, self.stopped, self.mended = (threading.Event() for _ in range(4))
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def begin(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)
        register(self.ingress, self.admin, f"http://127.0.0.1:{self._port}")

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(60)

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        lives = restate.Workflow("lives", invocation_retry_policy=_at_once(attempts=1_000))
        lives.main(name="run")(self._carry_out)
        broken = restate.Workflow("broken", invocation_retry_policy=_at_once(attempts=2))
        broken.main(name="run")(self._fail)
        config = hypercorn.Config()
        config.bind = [f"127.0.0.1:{self._port}"]
        config.graceful_timeout = 0

        async def ended() -> None:
            self._ready.set()
            await self._over.wait()

        orders = restate.Workflow("orders")
        orders.main(name="run")(self._hang)
        app: Any = restate.app([lives, orders, broken])
        with suppress(ExceptionGroup):  # an invocation may be about to end
            await hypercorn.asyncio.serve(app, config, shutdown_trigger=ended)

    async def _carry_out(self, ctx: Any, nothing: str) -> str:
        over = None
        try:
            async with restate_steps(ctx) as executor:
                use, over = await self._lives[ctx.key()].get()
                await use(executor)
        except Killed as killed:  # only an Exception is the end of this attempt alone, and not of the server
            raise RuntimeError("the process dies here") from killed
        finally:
            if over is not None:
                over.set()
        return nothing

    async def _hang(self, ctx: Any, nothing: str) -> str:
        async def hang() -> str:
            self.hanging.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.stopped.set()
                raise
            return "never"

        agent = Agent("A", model=ScriptedHandler([call("hang")]), tools=[tool(hang)])
        async with restate_steps(ctx) as executor:
            await Runner.run(agent, "Hi", run_config=RunConfig(executor=executor, run_id=ctx.key()))
        return nothing

    async def _fail(self, ctx: Any, nothing: str) -> str | None:
        async with restate_steps(ctx) as executor:
            agent = Agent("A", model=self._model)
            result = await Runner.run(agent, "Hi", run_config=RunConfig(executor=executor, run_id=ctx.key()))
            if not self.mended.is_set():
                raise RuntimeError("not mended")
        return result.final_output

    async def _live(self, run_id: str, use: Use) -> None:
        over = asyncio.Event()
        self._lives[run_id].put_nowait((use, over))
        if run_id not in self._known:
            self._known.add(run_id)
            await asyncio.to_thread(request, f"{self.ingress}/lives/{run_id}/run/send", "")
        await asyncio.wait_for(over.wait(), 60)

    async def live(self, run_id: str, use: Use) -> None:
        playing = asyncio.run_coroutine_threadsafe(self._live(run_id, use), self._loop)
        await asyncio.to_thread(playing.result)


def _at_once(*, attempts: int) -> Any:
    return restate.InvocationRetryPolicy(
        initial_interval=AT_ONCE, max_interval=AT_ONCE, max_attempts=attempts
    )


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    served: list[Engine] = []
    try:
        with restate_server() as (ingress, admin):
            served.append(Engine(ingress, admin))
            served[0].begin()
            yield served[0]
    finally:
        for each in served:  # runs wait for another life, until their server is gone
            each.end()


class TestRestate(DurableExecutorContract):
    @pytest.fixture(autouse=True)
    def use_engine(self, engine: Engine) -> None:
        self.engine = engine

    async def live(self, run_id: str, use: Use) -> None:
        await self.engine.live(run_id, use)


def test_a_cancelled_invocation_stops_its_tool(engine: Engine) -> None:
    started = request(f"{engine.ingress}/orders/order-7/run/send", "")
    assert engine.hanging.wait(60)
    request(f"{engine.admin}/invocations/{started['invocationId']}/cancel", method="PATCH")
    with pytest.raises(HTTPError) as ended:
        request(f"{engine.ingress}/restate/workflow/orders/order-7/attach")
    assert ended.value.code == 409
    assert engine.stopped.is_set()


def test_a_paused_run_goes_on_from_its_records_when_it_is_resumed(engine: Engine) -> None:
    started = request(f"{engine.ingress}/broken/order-8/run/send", "")
    paused = {"query": "SELECT id FROM sys_invocation WHERE status = 'paused'"}
    eventually(lambda: request(f"{engine.admin}/query", paused)["rows"] == [{"id": started["invocationId"]}])
    engine.mended.set()
    request(f"{engine.admin}/invocations/{started['invocationId']}/resume", method="PATCH")
    assert request(f"{engine.ingress}/restate/workflow/broken/order-8/attach") == "Paid."
