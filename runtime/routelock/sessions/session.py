"""One conversation in a store: what it is for a run, and what can be done with it without one."""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import anyio

from routelock._callables import error_text
from routelock.errors import (
    ConfigError,
    InputGuardrailTripped,
    OutputGuardrailTripped,
    SessionConflict,
    SessionError,
)
from routelock.history.messages import Message, RunItem, ToolCall, call_ids, calls_of
from routelock.history.repair import repair
from routelock.history.unfinished_turn import left_over
from routelock.history.view import View
from routelock.run.handler_selection import handler_for
from routelock.run.run import Keeper, Run
from routelock.sessions.log import (
    NOTHING,
    Entry,
    Loaded,
    Part,
    SessionLog,
    entries_of,
    item_document,
    record_text,
)
from routelock.state.document import RunDocument

if TYPE_CHECKING:
    from routelock.state.run_state import RunState

__all__ = ["Conversation", "Session", "SessionKeeper"]


class SessionKeeper:
    """A `routelock.run.run.Keeper` that keeps a run in a session.

    Args:
        log: of the session.
        state: from which the run goes on, if it does; it has its history already then.
    """

    __slots__ = ("_claimed", "_earlier", "_history", "_log", "_name", "_number", "_on", "_state", "_stored")

    def __init__(self, log: SessionLog, state: RunState | None) -> None:
        self._log = log
        self._state = state
        self._name = os.urandom(8).hex()
        self._claimed = 0
        """How often what a state of the run left to do was begun."""
        self._on = False
        self._number = 0
        self._history = 0
        """How many of the run's items come from the session."""
        self._stored = 0
        """How many of the others are in it by now."""
        self._earlier: list[Any] = []
        """What follows there, when the run was begun before and is made again."""

    async def begin(self, run: Run) -> None:
        """Put the history before the run's input, and store the input; see `Keeper.begin`."""
        found = await self._log.loaded(run.run_id)
        self._number, self._claimed = found.number, 0 if found.own is None else found.own.claimed
        if self._state is not None:
            self._history = _history_of(run, found, self._log.name)
            document = self._state.document
            if run.claims < self._claimed and _is_begun(document, _calls_left(document)):
                raise self._used(run)  # before what it says takes the place of what was done since
        else:
            if found.passed:
                raise SessionConflict(
                    f"Session {self._log.name!r:.80} holds the run {run.run_id!r:.80} already, and others "
                    "have used it since, so the run cannot be made again there. What it gave is in the "
                    "session; for a new run leave run_id out, or give it one of its own."
                )
            if found.own is not None and found.own.items:
                _check_same_input(run, found.own, self._log.name)
            self._history, run.claims = len(found.items), self._claimed
            _put_before(run, found.items)
            _be_sticky(run, found, self._log.name)
        run.repairs += (*found.notes,)
        self._earlier = [*found.own.items] if found.own is not None and not found.own.first else []
        self._on = True
        await self.keep(run)

    async def claim(self, run: Run, calls: Sequence[ToolCall]) -> None:
        """Store that what a state left to do is begun; see `Keeper.claim`."""
        if not self._on or self._state is None:
            return
        if not _is_begun(self._state.document, calls):
            if not calls:  # it goes another way than before, and what it comes to is begun by nobody yet
                run.claims = max(run.claims, self._claimed)
            return
        taken = run.claims < self._claimed
        if not taken:
            try:
                await self._store_claim(run)
            except SessionConflict:
                taken = True
        self._earlier.clear()  # from here on the run goes another way
        if taken:
            self._on = False
            raise self._used(run)

    async def _store_claim(self, run: Run) -> None:
        try:
            await self._store(run, (), claims=run.claims + 1)
        except SessionConflict:  # the state of who was refused must be refused as well
            raise
        except BaseException:
            # it may be there all the same, as its own: nobody else could go on then, nor this run's state
            with suppress(Exception), anyio.move_on_after(self._log.grace, shield=True):
                await self._store(run, (), claims=run.claims + 1)
                run.claims += 1
            raise
        run.claims += 1

    def _used(self, run: Run) -> SessionConflict:
        return SessionConflict(
            f"Somebody has begun to carry out this state of the run {run.run_id!r:.80} in session "
            f"{self._log.name!r:.80} already, and that is not done twice. Take the state of that "
            "result; if its process died, begin a new run, which is told that the calls have no answer."
        )

    async def keep(self, run: Run) -> None:
        """Store what is new, in one piece; see `Keeper.keep`."""
        if not self._on:
            return
        new = run.items[self._history + self._stored :]
        if self._earlier:
            same = _count_same(new, self._earlier)
            self._stored += same
            del self._earlier[:same]
            new = new[same:]
        if new:
            self._leave_earlier(run)
            await self._store(run, new)

    def _leave_earlier(self, run: Run) -> None:
        """The run went another way this time, and that is what happened last; what tools did stays done."""
        if answered := sum(each.get("kind") == "tool" for each in self._earlier):
            run.warn(
                f"the run {run.run_id!r:.80} was begun before and goes another way now. In session "
                f"{self._log.name!r:.80} its answers of tools from then, {answered} of them, are no longer "
                "shown, and what those tools did may be done twice: to go on with a run, resume its state"
            )
        self._earlier.clear()

    async def last(self, run: Run, error: Exception | None = None) -> None:
        """Store what is left; see `Keeper.last`."""
        refused = _refused(run.items[self._history :], error)
        if not self._on or (refused is None and self._history + self._stored == len(run.items)):
            return
        wrong: Exception = SessionError(f"It took longer than {self._log.grace:g} s.")
        with anyio.move_on_after(self._log.grace, shield=True):
            try:
                await self.keep(run)
                if refused is not None:
                    self._stored, self._on = refused, False
                    await self._store(run, ())
                return
            except Exception as failed:
                wrong = failed
        self._on = False
        what = f"The end of the run is not in session {self._log.name!r:.80}: {error_text(wrong)}"
        run.problem("session", what, error=wrong)

    async def _store(self, run: Run, items: Sequence[RunItem], claims: int = 0) -> None:
        entry = Entry(
            items=[item_document(item) for item in items],
            run=run.run_id,
            turn=run.turn,
            history=self._history,
            first=self._stored,
            agent=run.next_agent().name if run.config.next_agent == "sticky" else None,
            claims=claims,
            writer=self._name,
        )
        try:
            await self._log.append(self._number, record_text([entry]))
        except SessionConflict:
            self._on = False
            raise
        self._number += 1
        self._stored += len(items)


def _put_before(run: Run, history: Sequence[RunItem]) -> None:
    """Let the run begin as if it had been given the history with its input."""
    if not history:
        return
    items = [replace(item, id=place) for place, item in enumerate([*history, *run.items])]
    known = call_ids(item.message for item in history)
    run.items[:] = items
    run.view = View(items)
    run.input_count = len(items)
    run.call_ids |= known
    run.read_calls = run.read_calls or bool(known)


def _be_sticky(run: Run, found: Loaded, session: str) -> None:
    """Let whoever was in charge at the end answer again, if the run wants that and it is still there."""
    name = found.next_agent
    if run.config.next_agent != "sticky" or name is None or name == run.agent.name:
        return
    if (agent := run.graph.get(name)) is None:
        run.warn(
            f"session {session!r:.80} names the agent {name!r:.80}, which is not there, so "
            f"{run.agent.name!r} answers. Known: {', '.join(sorted(run.graph)):.400}"
        )
        return
    run.first = run.agent = agent
    run.handler = handler_for(agent, run.config)
    run.default_handler, run.moment, run.read_by = run.handler.name, None, None


def _history_of(run: Run, found: Loaded, session: str) -> int:
    """Return how many of a resumed run's items the session had before it.

    Raises:
        SessionConflict: others have used the session since.
    """
    if found.own is not None and found.own.history <= len(run.items):
        return found.own.history
    if found.own is None and found.empty:
        return 0
    raise SessionConflict(
        f"Session {session!r:.80} does not end with the run {run.run_id!r:.80}, which is to go on: somebody "
        "else has used the session since, or the run was made without it. Resume it without the session, "
        "or begin a new run."
    )


def _is_begun(document: RunDocument, calls: Sequence[ToolCall]) -> bool:
    """Whether a call is going to be made, or declined, or somebody has answered all that waited."""
    if not calls:
        return document.answered
    waiting = {(*one.path, one.call_id) for one in document.interruptions}
    return not _all_wait(document, calls, waiting, ())


def _all_wait(
    document: RunDocument,
    calls: Sequence[ToolCall],
    waiting: Container[tuple[str, ...]],
    path: tuple[str, ...],
) -> bool:
    """Whether nothing was said of any call yet, nor of any that is left to make in a run that answers one."""
    return bool(calls) and all(
        (*path, call["id"]) in waiting
        or (
            (inner := document.sub_runs.get(call["id"])) is not None
            and _all_wait(inner, _calls_left(inner), waiting, (*path, call["id"]))
        )
        for call in calls
    )


def _calls_left(document: RunDocument) -> Sequence[ToolCall]:
    left = left_over(document.items, document.first_of_turn, document.turn, document.awaited_calls)
    return [call for call in left.calls if call["id"] not in document.begun]


def _check_same_input(run: Run, own: Part, session: str) -> None:
    if _count_same(run.items, own.items) < len(run.items):
        raise ConfigError(
            f"RunConfig(run_id={run.run_id!r:.80}): session {session!r:.80} ends with a run of that name, "
            "and it had another input. The same name means the same run, made again: leave run_id out, or "
            "give each run its own."
        )


def _count_same(items: Sequence[RunItem], documents: Sequence[Any]) -> int:
    """Return how many of the items, from the first on, are those that were stored."""
    count = 0
    for item, document in zip(items, documents, strict=False):
        if json.loads(json.dumps(item_document(item), default=str)) != document:
            break
        count += 1
    return count


def _refused(items: Sequence[RunItem], error: Exception | None) -> int | None:
    """Return how much of a run later runs may see that a guardrail stopped; None if it did not.

    What came in is refused as a whole as long as no model was shown it, and of what was to go out the reply.
    """
    if isinstance(error, InputGuardrailTripped):
        return None if any(item.kind == "model" for item in items) else 0
    if not isinstance(error, OutputGuardrailTripped) or not items:
        return None
    stopped = items[-1].kind == "model" and not calls_of(items[-1].message)
    return len(items) - 1 if stopped else None


_TRIES = 100
"""How often something is added that others were faster with; each time one of them was stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What is in a session, or the newest part of it."""

    messages: Sequence[Message]
    """Valid input for a run, as ``RunResult.to_input_list`` gives it."""
    repairs: Sequence[str]
    """What was repaired for that, and what could not be read. The store keeps it as it is."""
    next_agent: str | None
    """Name of the agent that answers the next message, if that was stored (``next_agent="sticky"``)."""


class Session(SessionLog):
    """A conversation that outlives its runs: ``Runner.run(agent, "Hi", session=Session("user-7", store))``.

    It holds nothing itself: two of them with the same name and store are the same session.

    Args:
        name: of the conversation within the store.
        store: where it is kept, such as a `routelock.sessions.SQLiteSessions`.
        max_items: at most so many messages, the newest, are given to a run. Answers whose call is not among
            them are left out. The store keeps all.
        max_bytes: at most so many bytes of JSON; four of them are about one token.
        grace: seconds that the store may take for the end of a run, also of one that is being cancelled.

    Raises:
        ConfigError: the name is empty, or a limit is no positive number.
    """

    __slots__ = ()

    async def load(self) -> Conversation:
        """Return the conversation, within the limits of the session.

        Raises:
            SessionError: the store fails, or a newer version of routelock has written to it.
        """
        found = await self.loaded()
        messages, repairs = repair(found.messages) if found.messages else ([], [])
        return Conversation(messages=messages, repairs=[*found.notes, *repairs], next_agent=found.next_agent)

    async def add(self, messages: Iterable[Message | Mapping[str, Any]]) -> None:
        """Add messages that come from elsewhere, such as the history of another framework.

        They are stored as they are, and repaired each time they are loaded; `import_messages.py` says what
        is understood. Only a number that is none, NaN or infinity, becomes null.
        What others add in the same moment is stored as well, before or after them.

        Raises:
            SessionConflict: others were faster each of a hundred times.
            ConfigError: they are no JSON.
            SessionError: the store fails.
        """
        if isinstance(cast(object, messages), str | bytes | Mapping):
            raise ConfigError(f"Add a list of messages, not {type(messages).__name__}.")
        writer = os.urandom(8).hex()
        text = record_text([Entry(items=[*messages], writer=writer)])
        newest, left = await self.newest(), _TRIES
        while True:
            try:
                await self.append(newest, text)
                return
            except SessionConflict:
                left -= 1
                if not left:
                    raise
            before, newest = newest, await self.newest()
            if await self._is_stored(writer, newest - before):
                return

    async def _is_stored(self, writer: str, newest: int) -> bool:
        """Whether a text is there that the store refused: it may have had it, and its answer was lost."""
        entries, _ = entries_of(await self.records(newest)) if newest > 0 else ([], [])
        return any(entry.writer == writer for entry in entries)

    async def clear(self) -> None:
        """Delete all that is stored.

        Runs that go on meanwhile get a `SessionConflict`. The name and a number stay: by that they are told.

        Raises:
            SessionConflict: somebody else has added something in this moment.
            SessionError: the store fails.
        """
        await self.append(await self.newest(), NOTHING, alone=True)

    async def compact(self) -> None:
        """Store all that is stored as one text, in place of one for each turn.

        Nothing changes but that; in an `EncryptedSessions` it is the newest key that encrypts it, so older
        ones are not needed for it any more.

        Raises:
            SessionConflict: somebody else has added something in this moment.
            SessionError: something stored cannot be read and would be lost; or the store fails.
        """
        records = await self.records(None)
        entries, notes = entries_of(records)
        if notes:
            raise SessionError(f"Session {self.name!r} was left as it is: {'; '.join(notes):.400}.")
        if records:
            await self.append(records[-1][0], record_text(entries) if entries else NOTHING, alone=True)

    def keeper(self, state: RunState | None = None) -> Keeper:
        """Return what keeps one run in this session.

        Args:
            state: from which the run goes on, if it does; it has its history already then.
        """
        return SessionKeeper(self, state)
