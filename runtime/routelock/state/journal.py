"""A journal of runs in an SQLite file: a run that was cut off by a crash goes on where it stood.

    async with Journal("runs.db") as journal:
        result = await journal.run(triage, "My money back!", run_id="order-7")

Each model reply and each tool's outcome is on the disk before anything is made of it. After a crash the same
line finds them: what was done is not done again, and what was cut off in the middle is. It is for one process
at a time; for several see docs/durable.md.
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
from routelock.history.messages import Message, RunInput, to_messages
from routelock.run.config import RunConfig
from routelock.run.events import RunDone, RunEvent
from routelock.run.executor import Call, InProcess, Outcome
from routelock.run.result import RunResult
from routelock.run.start import DEFAULT_MAX_TURNS, start
from routelock.run.stream import RunStream, finish
from routelock.state.document import parse_document
from routelock.state.run_state import RunState, is_behind
from routelock.state.sqlite_file import SQLiteFile
from routelock.state.steps import ModelStep, ReplayedSteps, recorded_error

__all__ = ["Journal", "JournalStatus", "JournalSteps", "JournaledRun", "StepLost", "Write"]


Write = Callable[[str, str], Awaitable[None]]
"""Keeps what the step of a key gave, as JSON text, in the place of what was kept of it before."""


class StepLost(BaseException):
    """The result of a step could not be written, so the run stops as if the process had died.

    It is no `Exception`, or the run would use another handler, or report it to the model.
    """


class JournalSteps(ReplayedSteps):
    """The `routelock.run.Executor` of one run: it writes each step as soon as it is done.

    Args:
        entries: the records of the run by key, in the order in which they were written.
        write: writes another one.
    """

    def __init__(self, entries: Mapping[str, str], write: Write) -> None:
        super().__init__(entries, _WrittenSteps(write))


class _WrittenSteps:
    """Carries out steps, and writes each as soon as it is done."""

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


JournalStatus = Literal["running", "waiting", "done", "failed"]
"""Where a run of a journal stands, see `JournaledRun`."""

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
    """A run that the journal knows."""

    run_id: str
    agent: str
    """Name of the agent that it began with."""
    status: JournalStatus
    """``running``: it goes on, or was cut off. ``waiting``: for answers or approvals. ``done``: it has a
    final output. ``failed``: an error or a limit ended it, and it may be tried again."""
    begun: str
    """When, in ISO 8601 and UTC."""
    changed: str


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is kept of one run."""

    agent: str
    input: str | None
    """The first input, as JSON; None if the run was taken over as a state."""
    since: str | None
    """The state from which it goes on, as JSON; None if it goes on from the input."""
    status: JournalStatus
    state: str | None
    """Where it stood when it last ended, as JSON."""


class Journal:
    """Runs that survive the process, for one process at a time.

    Args:
        path: the file, made if it is not there. Other processes are kept out as long as it is open.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = SQLiteFile(path, part="journal", schema=1, tables=_TABLES, alone=True)
        self._going_on: set[str] = set()

    async def __aenter__(self) -> Journal:
        await self._file.do(lambda db: None)  # another process is found out about now, and not in a run
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, and let others use it."""
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
    ) -> RunResult[Any]:
        """Begin a run, or go on with it, and return its result; a run that is done is not made again.

        Args:
            agent: the agent that answers first. To continue a run, pass the same agents, context and settings
                again.
            input: see `Runner.run`. A `RunState` is for a run that waits or failed, such as one with calls
                that are approved now. None goes on with what there is.
            run_id: what the run is called, such as the id of an order.
            context: see `Runner.run`.
            max_turns: see `Runner.run`.
            hooks: see `Runner.run`. They are told of steps that are replayed, too.
            run_config: see `Runner.run`; without ``run_id`` and ``executor``.

        Raises:
            ConfigError: the id belongs to a run that began otherwise, has gone on since the state was taken,
                or is being carried out.
            JournalError: what a step gave, or the end, could not be written down. The run stands as after a
                crash.
            RoutelockError: whatever ended the run. It is kept as failed, and the same call tries it again.
        """
        with self._alone(run_id), _telling(run_id):
            beginning, config = await self._begin(agent, input, run_id, context, max_turns, hooks, run_config)
            try:
                run = start(agent, beginning, context, max_turns, hooks, config, stream=False)
                result = await finish(run)
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
        """Do `run` and yield what happens, down to `RunDone`; close it with `contextlib.aclosing`.

        Leaving it early is like a crash: the same call goes on. A reply that is replayed is shown whole.
        """
        with self._alone(run_id), _telling(run_id):
            beginning, config = await self._begin(agent, input, run_id, context, max_turns, hooks, run_config)
            try:
                run = start(agent, beginning, context, max_turns, hooks, config, stream=True)
                async with RunStream(run) as happening:
                    async for event in happening:
                        if isinstance(event, RunDone):
                            await self._end(event.result, config)
                        yield event
            except RoutelockError as error:
                await self._end(error.result, config)
                raise

    async def runs(self, *statuses: JournalStatus) -> list[JournaledRun]:
        """Return the runs that stand like this, the oldest first; all of them, if no status is given.

        Once, after a start, go on with those that were cut off::

            for one in await journal.runs("running"):
                await journal.run(agents[one.agent], run_id=one.run_id)
        """
        sql = "SELECT run_id, agent, status, begun, changed FROM routelock_runs ORDER BY begun, rowid"
        rows = await self._file.do(lambda db: db.execute(sql).fetchall())
        every = [JournaledRun(*row) for row in rows]
        return [one for one in every if not statuses or one.status in statuses]

    async def state(self, run_id: str, *, agents: Sequence[Agent[Any]]) -> RunState | None:
        """Return where a run stands that waits or has ended; None as long as it has not.

        Args:
            run_id: of the run.
            agents: see `RunState.from_json`.

        Raises:
            ConfigError: there is no such run, or it names an agent that is not there.
        """
        kept = await self._kept(run_id)
        if kept is None:
            raise ConfigError(f"The journal has no run {run_id!r:.80}.")
        if kept.status == "running" or kept.state is None:
            return None
        return RunState.from_json(kept.state, agents=agents)

    async def forget(self, run_id: str) -> None:
        """Remove all that is kept of a run.

        Raises:
            ConfigError: it is being carried out.
        """
        with self._alone(run_id):
            await self._file.do(partial(_forget, run_id=run_id))

    @contextmanager
    def _alone(self, run_id: str) -> Generator[None]:
        if run_id in self._going_on:
            raise ConfigError(f"The run {run_id!r:.80} is being carried out by this process at this moment.")
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
        """Return what a run begins with, once it is kept, and its settings."""
        config = config or RunConfig()
        if config.executor is not None or config.run_id is not None:
            raise ConfigError("The journal sets run_id and executor of the RunConfig itself: leave them out.")
        before = await self._kept(run_id)
        kept = _new(agent, input, run_id) if before is None else _known(before, agent, input, run_id)
        state = kept.since if kept.status == "running" else kept.state
        beginning: list[Message] | RunState = json.loads(kept.input or "[]")
        if state is not None:
            beginning = RunState.from_json(state, agents=[agent, *config.agents])
        if kept != before:
            # a run that cannot start is not kept: its id could not be used for another one
            start(agent, beginning, context, max_turns, hooks, replace(config, trace=None), stream=False)
            await self._change("beginning", partial(_start, run_id=run_id, kept=kept), run_id)
        entries = await self._file.do(partial(_entries, run_id=run_id))
        steps = JournalSteps(entries, partial(self._write, run_id))
        return beginning, replace(config, executor=steps, run_id=run_id)

    async def _kept(self, run_id: str) -> _Kept | None:
        sql = "SELECT agent, input, since, status, state FROM routelock_runs WHERE run_id = ?"
        row = await self._file.do(lambda db: db.execute(sql, (run_id,)).fetchone())
        return None if row is None else _Kept(*row)

    async def _write(self, run_id: str, key: str, entry: str) -> None:
        sql = (
            "INSERT OR REPLACE INTO routelock_steps SELECT ?, COALESCE(MAX(number), 0) + 1, ?, ?"
            " FROM routelock_steps WHERE run_id = ?"
        )
        await self._file.do(lambda db: db.execute(sql, (run_id, key, entry, run_id)))

    async def _end(self, result: RunResult[Any] | None, config: RunConfig) -> None:
        """Keep where the run stands, which says all that its steps said, but for those it did not come to."""
        if result is None:  # it did not begin
            return
        left = cast(JournalSteps, config.executor).left if result.stop_reason != "done" else {}
        state = result.state()
        ended: dict[str, JournalStatus] = {"done": "done", "requires_action": "waiting"}
        status = ended.get(result.stop_reason, "failed")
        finish = partial(_finish, run_id=state.run_id, status=status, state=state.to_json(), left=left)
        await self._change("end", finish, state.run_id)

    async def _change(self, what: str, work: Callable[[sqlite3.Connection], None], run_id: str) -> None:
        try:
            await self._file.do(work)
        except sqlite3.Error as error:
            raise JournalError(
                f"The {what} of the run {run_id!r:.80} could not be written into the journal: {error}. Make "
                "room for it, and make the same call again: of what is written there nothing is done twice."
            ) from error


@contextmanager
def _telling(run_id: str) -> Generator[None]:
    """Tell that a step is lost."""
    try:
        yield
    except StepLost as lost:
        raise JournalError(
            f"What step {str(lost)!r} of the run {run_id!r:.80} gave could not be written into the journal: "
            f"{lost.__cause__}. Make room for it, and make the same call again: it goes on after the last "
            "step that was written."
        ) from lost.__cause__


def _new(agent: Agent[Any], input: RunInput | RunState | None, run_id: str) -> _Kept:
    if input is None:
        raise ConfigError(f"The journal has no run {run_id!r:.80}: begin it with an input.")
    if isinstance(input, RunState):
        return _Kept(agent.name, None, _text(input, run_id), "running", None)
    return _Kept(agent.name, json.dumps(to_messages(input)), None, "running", None)


def _known(kept: _Kept, agent: Agent[Any], input: RunInput | RunState | None, run_id: str) -> _Kept:
    """Return the run as it is to go on."""
    if isinstance(input, RunState):
        text = _text(input, run_id)
        if text != kept.since:  # else it was begun already, and is done, waits, or was cut off
            _check_follows(input, kept)
            return replace(kept, since=text, status="running")
    elif input is not None and json.dumps(to_messages(input)) != kept.input:
        raise ConfigError(
            f"The run {run_id!r:.80} began with another input. Each run needs an id of its own; to go on "
            "with one, leave the input out."
        )
    if agent.name != kept.agent:
        raise ConfigError(f"The run {run_id!r:.80} began with agent {kept.agent!r}, not {agent.name!r}.")
    return replace(kept, since=kept.state, status="running") if kept.status == "failed" else kept


def _text(state: RunState, run_id: str) -> str:
    if state.run_id != run_id:
        raise ConfigError(f"This is a state of the run {state.run_id!r:.80}, not of {run_id!r:.80}.")
    return state.to_json()


def _check_follows(given: RunState, kept: _Kept) -> None:
    """Make sure that nothing is lost or done twice by going on from a state."""
    if kept.status == "running":
        raise ConfigError(
            f"The run {given.run_id!r:.80} goes on from another state already: leave the input out."
        )
    if kept.status == "done" or is_behind(given.document, parse_document(kept.state or "{}")):
        raise ConfigError(
            f"The run {given.run_id!r:.80} has gone on since this state was taken: take journal.state(...)."
        )


def _start(db: sqlite3.Connection, *, run_id: str, kept: _Kept) -> None:
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


def _entries(db: sqlite3.Connection, *, run_id: str) -> dict[str, str]:
    sql = "SELECT key, entry FROM routelock_steps WHERE run_id = ? ORDER BY number"
    return dict(db.execute(sql, (run_id,)).fetchall())
