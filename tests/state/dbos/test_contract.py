"""The executor of durable runs passes the contract of durable executors that show what happens.

Each life is an execution of one DBOS workflow. It never ends, so that DBOS runs it again when it is resumed,
as a worker resumes the workflows of a dead one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from databases import address, postgres
from durable_threads import WorkerThread

from routelock import Agent
from routelock.state.dbos.database import queue_of
from routelock.state.dbos.steps import taken_over
from routelock.state.durable import RunClient
from routelock.testing import ScriptedHandler, StreamingExecutorContract
from routelock.testing.executor_contract import Use

pytest.importorskip("dbos", reason="durable runs need DBOS: pip install 'routelock[durable]'")

QUEUE = queue_of("idle")


@dataclass
class Life:
    """One execution of the workflow."""

    use: Use
    recorded: Sequence[Any]
    over: asyncio.Event = field(default_factory=asyncio.Event)
    began: bool = False
    """Whether it took over the run: DBOS refuses that if a step of the life before is recorded just now."""


class Engine:
    """A worker that plays lives in a workflow."""

    def __init__(self, database: str) -> None:
        self._worker = WorkerThread(database, [Agent("idle", model=ScriptedHandler([]))])
        self._lives: dict[str, Life] = {}
        self._known: set[str] = set()

    def begin(self) -> None:
        from dbos import DBOS

        self._worker.begin()

        async def carry_out(job: Any) -> None:
            await self._carry_out(job["run_id"])

        self._workflow = DBOS.workflow(name="lives", max_recovery_attempts=None)(carry_out)

    def end(self) -> None:
        self._worker.end()

    async def live(self, run_id: str, use: Use) -> None:
        await asyncio.to_thread(self._worker.do, self._live(run_id, use))

    async def _live(self, run_id: str, use: Use) -> None:
        for _ in range(5):  # a worker queues such a run again, too
            if await self._began(run_id, use):
                return

    async def _began(self, run_id: str, use: Use) -> bool:
        from dbos import DBOS, SetWorkflowID

        recorded = await DBOS.list_workflow_steps_async(run_id)
        life = self._lives[run_id] = Life(use, [dict(step) for step in recorded])
        if run_id in self._known:
            await DBOS.resume_workflow_async(run_id, queue_name=QUEUE)
        else:
            self._known.add(run_id)
            with SetWorkflowID(run_id):
                await DBOS.start_workflow_async(self._workflow, {"agent": "idle", "run_id": run_id})
        await life.over.wait()
        return life.began

    async def _carry_out(self, run_id: str) -> None:
        life = self._lives[run_id]
        task = asyncio.current_task()
        assert task is not None
        # the next life may begin once DBOS has dealt with the end of this one, not before
        task.add_done_callback(lambda _: life.over.set())
        try:
            steps = await taken_over(life.recorded, show=True)
            life.began = True
            await life.use(steps)
        except BaseException as error:
            raise asyncio.CancelledError from error  # DBOS keeps the workflow of a worker that stops

    async def shown(self, run_id: str, offset: int) -> Sequence[str]:
        texts: list[str] = []
        async with RunClient(self._worker.database, poll=0.02) as client:
            async with aclosing(client.events(run_id)) as parts:
                async for part in parts:  # the run has no end, so neither have its events
                    texts.append(part.text)
                    if part.events[-1]["type"] == "message_done":
                        break
            async with aclosing(client.events(run_id, offset=offset)) as parts:
                return [(await anext(parts)).text for _ in texts[offset:]]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with postgres() as conninfo:
        engine = Engine(address(conninfo))
        try:
            engine.begin()
            yield engine
        finally:
            engine.end()


class TestDBOS(StreamingExecutorContract):
    every: ClassVar[int] = 2

    @pytest.fixture(autouse=True)
    def use_engine(self, engine: Engine) -> None:
        self.engine = engine

    async def live(self, run_id: str, use: Use) -> None:
        await self.engine.live(run_id, use)

    async def shown(self, run_id: str, offset: int) -> Sequence[str]:
        return await self.engine.shown(run_id, offset)
