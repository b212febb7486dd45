"""Carries out what the engine gives a worker: runs, parts of runs, and what is left of cancelled ones."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from routelock.agents.agent import Agent
from routelock.durable.documents import EndDocument, JobDocument, next_id
from routelock.durable.library import STEPS_VERSION, WORKFLOW, RunLost, engine, queue_of
from routelock.durable.settings import WorkerSettings
from routelock.durable.steps import RecordedSteps, recorded_entries, taken_over
from routelock.errors import HandlerError, RoutelockError
from routelock.handlers.events import HandlerEvent
from routelock.handlers.port import Request
from routelock.history.messages import Message
from routelock.run.config import RunConfig
from routelock.run.events import AgentUpdated
from routelock.run.executor import Executor
from routelock.run.result import RunResult
from routelock.run.start import start
from routelock.run.stream import RunStream, finish
from routelock.run_state import RunState

if TYPE_CHECKING:
    from dbos import DBOSClient

__all__ = ["Carrier"]

_log = logging.getLogger("routelock.durable")
_MOVED: EndDocument = {"status": "moved", "state": None, "error": None}


class Carrier:
    """Carries out jobs for one worker.

    Args:
        agents: those that the worker serves, by name.
        settings: of the worker.
        client: reads what is recorded.
    """

    def __init__(
        self, agents: Mapping[str, Agent[Any]], settings: WorkerSettings, client: DBOSClient
    ) -> None:
        self.agents = agents
        self.going_on: set[str] = set()
        """What is carried out at the moment, by the engine's names."""
        self._settings = settings
        self._client = client

    async def carry_out(self, job: JobDocument, workflow_id: str) -> EndDocument:
        """Carry out a job, or go on with it, within its workflow."""
        from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - comes with the extra

        self.going_on.add(workflow_id)
        try:
            return await self._carry_out(job, workflow_id)
        except (BaseExceptionGroup, RunLost, SQLAlchemyError) as error:
            first = _first(error)  # the engine's own come in groups, out of tools that ran at the same time
            if not isinstance(first, RunLost | SQLAlchemyError):
                raise first from error
            _log.warning("routelock: the run %s begins anew: %s", job["run_id"], first, exc_info=first)
            raise asyncio.CancelledError from error  # it is still ours, and the reaper finds it lying about
        finally:
            self.going_on.discard(workflow_id)

    async def _carry_out(self, job: JobDocument, workflow_id: str) -> EndDocument:
        if (cancelled := job.get("closes")) is not None:
            return await self._closed(job, cancelled)
        recorded = await self._client.list_workflow_steps_async(workflow_id)
        if recorded and await self._status_of(next_id(workflow_id)) is not None:
            return _MOVED  # whoever had it before was about to say so
        steps = await taken_over(recorded, show=job["show"], before=job.get("steps"))
        result, error = await self._end_of(job, steps)
        if error is None and result is not None and result.stop_reason == "unfinished":
            return await self._move(job, result, workflow_id)
        return _end(result, error, steps.left)

    async def _closed(self, job: JobDocument, cancelled: str) -> EndDocument:
        """Make a state of what is recorded of a run that was cancelled."""
        await self._client.cancel_workflow_async(cancelled)  # it may have been declared lost, and be back
        if (stood := await self._status_of(cancelled)) is not None and stood.output is not None:
            return cast("EndDocument", stood.output)  # it was done before
        recorded = await self._client.list_workflow_steps_async(cancelled)
        steps = RecordedSteps({**job.get("steps", {}), **recorded_entries(recorded)})
        result, error = await self._end_of({**job, "until": None}, steps)
        end = _end(result, error, steps.left)
        return end if end["status"] in ("done", "waiting") else {**end, "status": "cancelled"}

    async def _move(self, job: JobDocument, result: RunResult[Any], workflow_id: str) -> EndDocument:
        """Let the run go on with a worker that serves the agent whose turn it is.

        The engine puts it into the queue if the run is still ours, and notes here that it did, at once.
        """
        agent = result.last_agent.name
        moved: JobDocument = {
            **job,
            "agent": agent,
            "input": None,
            "state": result.state().to_json(),
            "follows": job.get("follows", 0) + 1,
        }
        moved.pop("steps", None)
        where = {
            "workflow_name": WORKFLOW,
            "queue_name": queue_of(agent),
            "workflow_id": next_id(workflow_id),
            "app_version": STEPS_VERSION,
        }
        await engine().DBOS.enqueue_workflow_with_options_async(where, moved)
        return _MOVED

    async def _end_of(
        self, job: JobDocument, steps: Executor
    ) -> tuple[RunResult[Any] | None, Exception | None]:
        """Carry out a run as far as it goes here; return its result, and what ended it."""
        try:
            return await self._run(job, steps), None
        except RoutelockError as error:
            return error.result, error
        except Exception as error:
            _log.exception("routelock: the run %s cannot be carried out", job["run_id"])
            return None, error

    async def _run(self, job: JobDocument, steps: Executor) -> RunResult[Any]:
        agent, given, settings = self.agents[job["agent"]], job["context"], self._settings
        config = self._config(agent, job, steps)
        beginning: list[Message] | RunState = job["input"] or []
        if job["state"] is not None:
            beginning = RunState.from_json(job["state"], agents=[agent, *config.agents])
        context = given if settings.context is None else settings.context(given)
        watched = job["show"] or bool(settings.elsewhere)
        run = start(agent, beginning, context, job["max_turns"], settings.hooks, config, stream=watched)
        if not watched:
            return await finish(run)
        async with RunStream(run) as stream:
            async for event in stream:
                if isinstance(event, AgentUpdated) and event.agent in settings.elsewhere:
                    break  # between two turns, and nothing of the other agent's was asked yet
        return stream.result

    def _config(self, agent: Agent[Any], job: JobDocument, steps: Executor) -> RunConfig:
        config = replace(self._settings.run_config, executor=steps, run_id=job["run_id"])
        if job["until"] is not None:
            left = max(0.001, job["until"] - time.time())
            config = replace(config, timeout=min(left, config.timeout or left))
        known = {name for one in (agent, *config.agents) for name in one.graph}
        stubs = [_stub(name, job["state"]) for name in self._settings.elsewhere if name not in known]
        return replace(config, agents=[*config.agents, *stubs])

    async def _status_of(self, workflow_id: str) -> Any:
        found = await self._client.list_workflows_async(workflow_ids=[workflow_id], load_input=False)
        return found[0] if found else None


class _Elsewhere:
    """Stands for the model of an agent that another worker serves."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        """Raise.

        Raises:
            HandlerError: always.
        """
        raise HandlerError(
            f"{self.name!r} is served by another worker, and can take over a run, but not answer in "
            "one as a tool. Give this worker the agent itself."
        )
        yield


def _stub(name: str, state: str | None) -> Agent[Any]:
    """Return what stands for an agent elsewhere, with the handlers at which it waits for an answer."""
    callers = json.loads(state)["callers"] if state else ()
    waits = {
        each[which]: 0
        for which in ("default_handler", "handler")
        for each in callers
        if each["agent"] == name
    }
    first, *others = map(_Elsewhere, waits or [name])
    return Agent(name, model=first, handlers=others)


def _end(result: RunResult[Any] | None, error: Exception | None, left: Mapping[str, str]) -> EndDocument:
    words = None if error is None else f"{type(error).__name__}: {error}"
    ended: dict[str, Literal["done", "waiting"]] = {"done": "done", "requires_action": "waiting"}
    end: EndDocument = {"status": "failed", "state": None, "error": words}
    if result is not None:  # else it did not begin
        end["status"] = ended.get(result.stop_reason, "failed")
        end["state"] = result.state().to_json()
    if left and end["status"] != "done":
        end["steps"] = {**left}
    return end


def _first(several: BaseException) -> BaseException:
    error: Any = several
    while inner := getattr(error, "exceptions", ()):
        error = inner[0]
    return cast("BaseException", error)
