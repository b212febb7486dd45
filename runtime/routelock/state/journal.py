"""A journal of runs in an SQLite file: after a crash a run is resumed where it was.

    async with Journal("runs.db") as journal:
        result = await journal.run(triage, "My money back!", run_id="order-7")

Each model reply and each tool result is on the disk before the run uses it. After a crash the same call finds
them: completed steps are not run again, interrupted steps are. A journal is for one process at a time; for
several processes see docs/durable.md.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Literal, cast

import anyio

from routelock.agents.agent import Agent
from routelock.agents.hooks import RunHooks
from routelock.errors import ConfigError, JournalError, RoutelockError
from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.history.input import to_messages
from routelock.history.messages import Message, RunInput
from routelock.run.config import RunConfig
from routelock.run.events import RunDone, RunEvent
from routelock.run.executor import Call, InProcess, Outcome
from routelock.run.loop import run_to_end
from routelock.run.result import RunResult
from routelock.run.start import DEFAULT_MAX_TURNS, start
from routelock.run.stream import RunHandle, RunStream
from routelock.state.document import parse_document
from routelock.state.run_state import RunState, is_behind
from routelock.state.sqlite_file import SQLiteFile
from routelock.state.steps import ModelStep, ReplayedSteps, StepLost, recorded_error

__all__ = [
    "Journal",
    "JournalStatus",
    "JournalSteps",
    "JournaledRun",
    "Write",
    "journal_file",
    "recorded_steps",
]


Write = Callable[[str, str], Awaitable[None]]
"""Records the outcome of a step, by its key and as JSON text; a later outcome replaces the earlier one."""


class JournalSteps(ReplayedSteps):
    """The `routelock.run.Executor` of one run. It records each step as soon as it completes.

    Args:
        entries: the records of the run by key, in the order in which they were written.
        write: writes one more record.
    """

    def __init__(self, entries: Mapping[str, str], write: Write) -> None:
        super().__init__(entries, _WrittenSteps(write))


class _WrittenSteps:
    """Runs steps, and records each as soon as it completes."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._tools = InProcess()

    async def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        step = ModelStep()
        try:
            async with aclosing(body(call)) as events:
                async for event in events:
                    step.note(event)
                    if isinstance(event, MessageDone):
                        await self._keep(call.key, step.to_json())
                    yield event
        except Exception as error:
            step.error = recorded_error(error, call)
            if step.error is None:
                raise
            await self._keep(call.key, step.to_json())
            raise step.error from step.error.__cause__

    async def gather(
        self, calls: Sequence[Call], body: Callable[[Call], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        async def written(call: Call) -> Outcome:
            outcome = await body(call)
            await self._keep(call.key, json.dumps(outcome))
            return outcome

        return await self._tools.gather(calls, written)

    async def _keep(self, key: str, entry: str) -> None:
        with anyio.CancelScope(shield=True):  # a step that was done must be recorded, also of a cancelled run
            try:
                await self._write(key, entry)
            except Exception as error:
                raise StepLost(key) from error


JournalStatus = Literal["running", "waiting", "done", "failed", "stopped"]
"""The status of a run in a journal, see `JournaledRun`."""

_TABLES = """
    CREATE TABLE IF NOT EXISTS routelock_runs (
        run_id TEXT PRIMARY KEY, agent TEXT NOT NULL, input TEXT, since TEXT, status TEXT NOT NULL,
        state TEXT, begun TEXT NOT NULL, changed TEXT NOT NULL
    );
    CREATE TABLE IF NOT EXISTS routelock_steps (
        run_id TEXT NOT NULL, number INTEGER NOT NULL, key TEXT NOT NULL, entry TEXT NOT NULL,
        PRIMARY KEY (run_id, number), UNIQUE (run_id, key)
    );
"""

_NOW = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"


@dataclass(frozen=True, slots=True)
class JournaledRun:
    """A run in a journal."""

    run_id: str
    agent: str
    """The name of the agent with which the run began."""
    status: JournalStatus
    """The status of the run. ``running``: the run goes on, or a crash interrupted it. ``waiting``: the run
    waits for answers or approvals. ``done``: the run has a final output. ``failed``: an error or a limit
    ended the run; resume it to try again. ``stopped``: `RunHandle.stop` ended the run; resume it to go on."""
    begun: str
    """The time when the run began, in ISO 8601 and UTC."""
    changed: str
    """The time when the status last changed, in ISO 8601 and UTC."""


@dataclass(frozen=True, slots=True)
class _RunRow:
    """The record of one run."""

    agent: str
    input: str | None
    """The first input, as JSON; None if the run began with a state."""
    since: str | None
    """The state from which it is resumed, as JSON; None if it begins with the input."""
    status: JournalStatus
    state: str | None
    """The state of the run when it last ended, as JSON."""


def journal_file(path: str | os.PathLike[str]) -> SQLiteFile:
    """Return the file of a journal, for one process alone."""
    return SQLiteFile(path, part="journal", schema=1, tables=_TABLES, alone=True)


async def recorded_steps(file: SQLiteFile, run_id: str) -> JournalSteps:
    """Return the executor of a run whose steps are recorded in a file."""
    recorded = "SELECT key, entry FROM routelock_steps WHERE run_id = ? ORDER BY number"
    insert = (
        "INSERT OR REPLACE INTO routelock_steps SELECT ?, COALESCE(MAX(number), 0) + 1, ?, ?"
        " FROM routelock_steps WHERE run_id = ?"
    )

    async def write(key: str, entry: str) -> None:
        await file.do(lambda db: db.execute(insert, (run_id, key, entry, run_id)))

    entries = await file.do(lambda db: dict(db.execute(recorded, (run_id,)).fetchall()))
    return JournalSteps(entries, write)


class Journal:
    """Runs that survive the end of the process, for one process at a time.

    Args:
        path: the file. It is created if it does not exist; other processes are kept out while it is open.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = journal_file(path)
        self._going_on: set[str] = set()

    async def __aenter__(self) -> Journal:
        await self._file.do(lambda db: None)  # if another process uses the file, raise now and not in a run
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, so that other processes can use it."""
        self._file.close()

    async def run(
        self,
        agent: Agent[Any],
        input: RunInput | RunState | None = None,
        *,
        run_id: str,
        context: Any = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks | None = None,
        run_config: RunConfig | None = None,
        handle: RunHandle | None = None,
    ) -> RunResult[Any]:
        """Begin or resume a run, and return its result. A run that is done is not run again.

        Args:
            agent: the first agent. To resume a run, pass the same agents, context and settings again.
            input: see `Runner.run`. A `RunState` resumes a run that has not ended, such as one with approved
                calls. None resumes the run from its records.
            run_id: the id of the run, such as the number of an order.
            context: see `Runner.run`.
            max_turns: see `Runner.run`.
            hooks: see `Runner.run`. They are called for replayed steps, too.
            run_config: see `Runner.run`; without ``run_id`` and ``executor``.
            handle: see `Runner.run`. A stop is not recorded as a step, so a resumed run goes on.

        Raises:
            ConfigError: the id belongs to a run with another input or agent, the run has gone on since the
                state was taken, or it is running.
            JournalError: the outcome of a step, or the end, could not be recorded. The run is as after a
                crash.
            RoutelockError: the run failed. The journal has recorded the failure, and the same call resumes
                the run.
        """
        with self._exclusive(run_id), _journal_errors(run_id):
            beginning, config = await self._begin(agent, input, run_id, context, max_turns, hooks, run_config)
            try:
                run = start(agent, beginning, context, max_turns, hooks, config, stream=False)
                if handle is not None:
                    handle.hold(run)
                result = await run_to_end(run)
            except RoutelockError as error:
                await self._end(error.result, config)
                raise
            await self._end(result, config)
            return result

    async def stream(
        self,
        agent: Agent[Any],
        input: RunInput | RunState | None = None,
        *,
        run_id: str,
        context: Any = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks | None = None,
        run_config: RunConfig | None = None,
    ) -> AsyncGenerator[RunEvent]:
        """Do `run` and yield its events, the last being `RunDone`; close it with `contextlib.aclosing`.

        Closing it early has the effect of a crash: the same call resumes the run. A replayed reply is yielded
        as one event.
        """
        with self._exclusive(run_id), _journal_errors(run_id):
            beginning, config = await self._begin(agent, input, run_id, context, max_turns, hooks, run_config)
            try:
                run = start(agent, beginning, context, max_turns, hooks, config, stream=True)
                async with RunStream(run) as events:
                    async for event in events:
                        if isinstance(event, RunDone):
                            await self._end(event.result, config)
                        yield event
            except RoutelockError as error:
                await self._end(error.result, config)
                raise

    async def runs(self, *statuses: JournalStatus) -> list[JournaledRun]:
        """Return the runs with these statuses, the oldest first; without a status, all runs.

        After a start of the process, resume the runs that were interrupted::

            for one in await journal.runs("running"):
                await journal.run(agents[one.agent], run_id=one.run_id)
        """
        sql = "SELECT run_id, agent, status, begun, changed FROM routelock_runs ORDER BY begun, rowid"
        rows = await self._file.do(lambda db: db.execute(sql).fetchall())
        every = [JournaledRun(*row) for row in rows]
        return [one for one in every if not statuses or one.status in statuses]

    async def state(self, run_id: str, *, agents: Sequence[Agent[Any]]) -> RunState | None:
        """Return the state of a run that waits or has ended; None while it runs.

        Args:
            run_id: the id of the run.
            agents: see `RunState.from_json`.

        Raises:
            ConfigError: the journal has no such run, or the state names an agent that was not given.
        """
        kept = await self._row_of(run_id)
        if kept is None:
            raise ConfigError(f"The journal has no run {run_id!r:.80}.")
        if kept.status == "running" or kept.state is None:
            return None
        return RunState.from_json(kept.state, agents=agents)

    async def forget(self, run_id: str) -> None:
        """Remove the records of a run.

        Raises:
            ConfigError: the run is running.
        """
        with self._exclusive(run_id):
            await self._file.do(partial(_forget, run_id=run_id))

    @contextmanager
    def _exclusive(self, run_id: str) -> Generator[None]:
        if run_id in self._going_on:
            raise ConfigError(f"The run {run_id!r:.80} is running in this process at the moment.")
        self._going_on.add(run_id)
        try:
            yield
        finally:
            self._going_on.discard(run_id)

    async def _begin(
        self,
        agent: Agent[Any],
        input: RunInput | RunState | None,
        run_id: str,
        context: Any,
        max_turns: int | None,
        hooks: RunHooks | None,
        config: RunConfig | None,
    ) -> tuple[list[Message] | RunState, RunConfig]:
        """Record a run, and return its beginning and its settings."""
        config = config or RunConfig()
        if config.executor is not None or config.run_id is not None:
            raise ConfigError("The journal sets run_id and executor of the RunConfig itself: leave them out.")
        before = await self._row_of(run_id)
        kept = (
            _new_row(agent, input, run_id) if before is None else _resumed_row(before, agent, input, run_id)
        )
        state = kept.since if kept.status == "running" else kept.state
        beginning: list[Message] | RunState = json.loads(kept.input or "[]")
        if state is not None:
            beginning = RunState.from_json(state, agents=[agent, *config.agents])
        if kept != before:
            # a run that cannot start is not kept: its id could not be used for another one
            start(agent, beginning, context, max_turns, hooks, replace(config, trace=None), stream=False)
            await self._change("beginning", partial(_start, run_id=run_id, kept=kept), run_id)
        steps = await recorded_steps(self._file, run_id)
        return beginning, replace(config, executor=steps, run_id=run_id)

    async def _row_of(self, run_id: str) -> _RunRow | None:
        sql = "SELECT agent, input, since, status, state FROM routelock_runs WHERE run_id = ?"
        row = await self._file.do(lambda db: db.execute(sql, (run_id,)).fetchone())
        return None if row is None else _RunRow(*row)

    async def _end(self, result: RunResult[Any] | None, config: RunConfig) -> None:
        """Record the state of a run. It replaces the records of the steps that the run reached."""
        if result is None:  # the run did not begin
            return
        left = cast(JournalSteps, config.executor).left if result.stop_reason != "done" else {}
        state = result.state()
        ended: dict[str, JournalStatus] = {"done": "done", "requires_action": "waiting", "stopped": "stopped"}
        status = ended.get(result.stop_reason, "failed")
        finish = partial(_finish, run_id=state.run_id, status=status, state=state.to_json(), left=left)
        await self._change("end", finish, state.run_id)

    async def _change(self, what: str, work: Callable[[sqlite3.Connection], None], run_id: str) -> None:
        try:
            await self._file.do(work)
        except sqlite3.Error as error:
            raise JournalError(
                f"The {what} of the run {run_id!r:.80} could not be written into the journal: {error}. Make "
                "room for it, and make the same call again: no recorded step is run twice."
            ) from error


@contextmanager
def _journal_errors(run_id: str) -> Generator[None]:
    """Raise a `JournalError` for a step that could not be recorded."""
    try:
        yield
    except StepLost as lost:
        raise JournalError(
            f"The outcome of step {str(lost)!r} of the run {run_id!r:.80} could not be written into the "
            f"journal: {lost.__cause__}. Make room for it, and make the same call again: the run is resumed "
            "after the last recorded step."
        ) from lost.__cause__


def _new_row(agent: Agent[Any], input: RunInput | RunState | None, run_id: str) -> _RunRow:
    if input is None:
        raise ConfigError(f"The journal has no run {run_id!r:.80}: begin it with an input.")
    if isinstance(input, RunState):
        return _RunRow(agent.name, None, _text(input, run_id), "running", None)
    return _RunRow(agent.name, json.dumps(to_messages(input)), None, "running", None)


def _resumed_row(kept: _RunRow, agent: Agent[Any], input: RunInput | RunState | None, run_id: str) -> _RunRow:
    """Return the record from which the run is resumed."""
    if isinstance(input, RunState):
        text = _text(input, run_id)
        if text != kept.since:  # otherwise this state was used already
            _check_follows(input, kept)
            return replace(kept, since=text, status="running")
    elif input is not None and json.dumps(to_messages(input)) != kept.input:
        raise ConfigError(
            f"The run {run_id!r:.80} began with another input. Each run needs an id of its own; to go on "
            "with one, leave the input out."
        )
    if agent.name != kept.agent:
        raise ConfigError(f"The run {run_id!r:.80} began with agent {kept.agent!r}, not {agent.name!r}.")
    return replace(kept, since=kept.state, status="running") if kept.status in ("failed", "stopped") else kept


def _text(state: RunState, run_id: str) -> str:
    if state.run_id != run_id:
        raise ConfigError(
            f"This is a state of the run {state.run_id!r:.80}, not of {run_id!r:.80}. Give run_id="
            f"{state.run_id!r:.80}, or a state of the other run."
        )
    return state.to_json()


def _check_follows(given: RunState, kept: _RunRow) -> None:
    """Check that resuming from a state neither loses nor repeats a step."""
    if kept.status == "running":
        raise ConfigError(
            f"The run {given.run_id!r:.80} was resumed from another state and has not ended: pass no "
            "input to go on with it."
        )
    if kept.status == "done" or is_behind(given.document, parse_document(kept.state or "{}")):
        raise ConfigError(
            f"The run {given.run_id!r:.80} has gone on since this state was taken: take a newer one, "
            "await journal.state(...)."
        )


def _start(db: sqlite3.Connection, *, run_id: str, kept: _RunRow) -> None:
    db.execute(
        f"INSERT INTO routelock_runs VALUES (?, ?, ?, ?, 'running', NULL, {_NOW}, {_NOW})"
        f" ON CONFLICT (run_id) DO UPDATE SET since = excluded.since, status = 'running', changed = {_NOW}",
        (run_id, kept.agent, kept.input, kept.since),
    )


def _finish(db: sqlite3.Connection, *, run_id: str, status: str, state: str, left: Mapping[str, str]) -> None:
    db.execute("DELETE FROM routelock_steps WHERE run_id = ?", (run_id,))
    steps = [(run_id, number, key, entry) for number, (key, entry) in enumerate(left.items(), start=1)]
    db.executemany("INSERT INTO routelock_steps VALUES (?, ?, ?, ?)", steps)
    sql = f"UPDATE routelock_runs SET status = ?, state = ?, changed = {_NOW} WHERE run_id = ?"
    db.execute(sql, (status, state, run_id))


def _forget(db: sqlite3.Connection, *, run_id: str) -> None:
    db.execute("DELETE FROM routelock_steps WHERE run_id = ?", (run_id,))
    db.execute("DELETE FROM routelock_runs WHERE run_id = ?", (run_id,))
