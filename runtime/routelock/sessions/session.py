"""`Session`: one conversation in a store; and the writer that stores a run in it, turn by turn."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import anyio

from routelock._callables import error_text
from routelock._hints import hint_attributes
from routelock._peer_names import SESSION
from routelock.errors import (
    ConfigError,
    InputGuardrailTripped,
    OutputGuardrailTripped,
    SessionConflict,
    SessionError,
)
from routelock.history.compaction import summary_of
from routelock.history.messages import Message, RunItem, ToolCall, call_ids, calls_of
from routelock.history.repair import repair
from routelock.history.view import View
from routelock.run.frames import Frame
from routelock.run.handler_selection import handler_for
from routelock.run.run import Run
from routelock.run.store import RunStore
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
from routelock.sessions.summaries import StoredSummary, stored_summary
from routelock.state.document import RunDocument

if TYPE_CHECKING:
    from routelock.state.run_state import RunState

__all__ = ["Conversation", "Session", "SessionRunStore"]


class SessionRunStore:
    """A `routelock.run.store.RunStore` that stores one run in a session.

    Args:
        log: the records of the session.
        state: the state from which the run resumes, if it does; the run then has its history already.
        is_sub_run: whether the run may be repeated after others followed it, see
            `Session.store_of_sub_run`.
        is_replayed: whether an engine repeats the run, and not the app: then a state may be resumed again.
    """

    __slots__ = (
        "_claimed",
        "_earlier",
        "_history",
        "_is_replayed",
        "_is_sub_run",
        "_log",
        "_name",
        "_number",
        "_on",
        "_passed",
        "_resumes",
        "_state",
        "_stored",
        "_summary",
    )

    def __init__(
        self, log: SessionLog, state: RunState | None, *, is_sub_run: bool = False, is_replayed: bool = False
    ) -> None:
        self._log = log
        self._state = state
        self._is_sub_run = is_sub_run
        self._is_replayed = is_replayed
        self._passed = False
        """Whether the run is repeated after other runs followed it, so that it can store nothing new."""
        self._name = os.urandom(8).hex()
        self._claimed = 0
        """How many times a saved state of this run was resumed."""
        self._resumes = ""
        """A digest of the state, if an engine resumes it: after a crash it does the same again."""
        self._on = False
        self._number = 0
        """The number of the newest record."""
        self._history = 0
        """How many of the run's items come from the session."""
        self._stored = 0
        """How many of the other items are stored so far."""
        self._summary: RunItem | None = None
        """The summary of a compaction that is stored already."""
        self._earlier: list[Any] = []
        """Items that an earlier attempt of the same run stored, and that this one has not reached yet."""

    def is_of(self, session: SessionLog) -> bool:
        """Whether the run is stored in this session."""
        return self._log.name == session.name and self._log.store is session.store

    async def open(self, run: Run) -> None:
        """Put the history before the run's input, and store the input; see `RunStore.open`."""
        log = self._log
        found = await (log.loaded_for_sub_run if self._is_sub_run else log.loaded)(run.run_id)
        self._passed = found.passed
        self._number, self._claimed = found.number, 0 if found.own is None else found.own.claimed
        if self._state is not None:
            self._history = _history_of(run, found, self._log.name, is_replayed=self._is_replayed)
            document = self._state.document
            if run.config.executor is not None and not self._is_replayed:
                self._resumes = _digest(self._state)
                self._is_replayed = _is_repeated(run, found.own, self._resumes)
            if self._is_replayed:
                run.open_calls.claims = self._claimed
            if run.open_calls.claims < self._claimed and _is_begun(document, document.open_calls):
                raise self._used(run)  # otherwise its items would replace those of the later attempt
        else:
            if found.passed and not self._is_sub_run:
                raise SessionConflict(
                    f"Session {self._log.name!r:.80} already holds the run {run.run_id!r:.80}, and other "
                    "runs followed it, so it cannot be repeated there. Its result is in the session; for a "
                    "new run leave run_id out, or use another one."
                )
            if found.own is not None and found.own.items and not self._is_sub_run:
                _check_same_input(run, found.own, self._log.name)
            self._history, run.open_calls.claims = len(found.items), self._claimed
            _add_history(run, found)
            self._summary = run.transcript.summary
            _select_agent(run, found, self._log.name)
        run.report.repairs += (*found.notes,)
        self._earlier = [*found.own.items] if found.own is not None and not found.own.first else []
        self._on = True
        await self.append(run)

    async def claim(self, run: Run, calls: Sequence[ToolCall]) -> None:
        """Record that a run has begun the remaining work of a state; see `RunStore.claim`."""
        if not self._on or self._state is None or self._is_replayed:
            return
        if not _is_begun(self._state.document, calls):
            if not calls:  # the run continues in another way, and no run has started that work yet
                run.open_calls.claims = max(run.open_calls.claims, self._claimed)
            return
        is_claimed = run.open_calls.claims < self._claimed
        if not is_claimed:
            try:
                await self._store_claim(run)
            except SessionConflict:
                is_claimed = True
        self._earlier.clear()  # from here on the run continues in another way than before
        if is_claimed:
            self._on = False
            raise self._used(run)

    async def _store_claim(self, run: Run) -> None:
        try:
            await self._store(run, (), claims=run.open_calls.claims + 1)
        except SessionConflict:  # the state of this run must stay refused as well
            raise
        except BaseException:
            # the store may have the claim nevertheless: then no run could resume, not even from this state
            with suppress(Exception), anyio.move_on_after(self._log.grace, shield=True):
                await self._store(run, (), claims=run.open_calls.claims + 1)
                run.open_calls.claims += 1
            raise
        run.open_calls.claims += 1

    def _used(self, run: Run) -> SessionConflict:
        return SessionConflict(
            f"This state of the run {run.run_id!r:.80} was already resumed in session "
            f"{self._log.name!r:.80}, and a state is resumed only once. Use the state of that result. If its "
            "process died, start a new run: its model sees that the calls have no answer."
        )

    async def append(self, run: Run) -> None:
        """Store the new items in one record; see `RunStore.append`."""
        if not self._on:
            return
        new = run.transcript.items[self._history + self._stored :]
        if self._earlier:
            same = _count_same(new, self._earlier)
            self._stored += same
            del self._earlier[:same]
            new = new[same:]
        if new:
            if self._passed:
                self._on = False
                raise SessionConflict(
                    f"Session {self._log.name!r:.80} already holds the run {run.run_id!r:.80}, and other "
                    "runs followed it. Now it is repeated and differs from what is stored, so it ends here."
                )
            self._drop_earlier(run)
            await self._store(run, new)

    def _drop_earlier(self, run: Run) -> None:
        """Forget the items of the earlier attempt, which this one does not repeat; warn of repeated tools."""
        if results := sum(each.get("kind") == "tool" for each in self._earlier):
            run.warn(
                f"the run {run.run_id!r:.80} was started before and now differs. In session "
                f"{self._log.name!r:.80} its earlier tool results ({results}) are no longer shown, and those "
                "tools may run twice: to go on with a run, resume its state"
            )
        self._earlier.clear()

    async def close(self, run: Run, error: Exception | None = None) -> None:
        """Store the remaining items; see `RunStore.close`."""
        visible = _visible_items(run.transcript.items[self._history :], error)
        if not self._on or (visible is None and self._history + self._stored == len(run.transcript.items)):
            return
        failure: Exception = SessionError(f"It took longer than {self._log.grace:g} s.")
        with anyio.move_on_after(self._log.grace, shield=True):
            try:
                await self.append(run)
                if visible is not None and not self._passed:
                    self._stored, self._on = visible, False
                    await self._store(run, ())
                return
            except Exception as raised:
                failure = raised
        self._on = False
        message = f"The end of the run is not in session {self._log.name!r:.80}: {error_text(failure)}"
        run.add_problem("session", message, error=failure)

    async def _store(self, run: Run, items: Sequence[RunItem], claims: int = 0) -> None:
        entry = Entry(
            items=[item_document(item) for item in items],
            run=run.run_id,
            turn=run.turn,
            history=self._history,
            first=self._stored,
            agent=run.next_agent().name if run.config.next_agent == "sticky" else None,
            claims=claims,
            resumes=self._resumes if claims else "",
            summary=self._new_summary(run),
            writer=self._name,
        )
        try:
            await self._log.append(self._number, record_text([entry]))
        except SessionConflict:
            self._on = False
            raise
        self._number += 1
        self._stored += len(items)
        self._summary = run.transcript.summary

    def _new_summary(self, run: Run) -> StoredSummary | None:
        """Return the summary that was written since the last time, if it is one for later runs."""
        summary = run.transcript.summary
        if summary is None or summary is self._summary:
            return None
        return stored_summary(summary, run.transcript.items, self._history)


def _add_history(run: Run, found: Loaded) -> None:
    """Put the history before the input of a run, and note the summary of it."""
    if not (history := found.items):
        return
    items = [replace(item, id=place) for place, item in enumerate([*history, *run.transcript.items])]
    known = call_ids(item.message for item in history)
    run.transcript.items[:] = items
    run.frame.view = View(items)
    run.transcript.input_count = len(items)
    run.transcript.call_ids |= known
    run.transcript.input_has_calls = run.transcript.input_has_calls or bool(known)
    if (summary := found.summary) is not None:
        run.transcript.summary = summary_of(summary.text, [items[place] for place in summary.places])


def _select_agent(run: Run, found: Loaded, session: str) -> None:
    """Start with the last active agent of the session, with ``next_agent="sticky"`` and if it exists."""
    name = found.next_agent
    if run.config.next_agent != "sticky" or name is None or name == run.frame.agent.name:
        return
    if (agent := run.graph.get(name)) is None:
        run.warn(
            f"session {session!r:.80} names the agent {name!r:.80}, which does not exist, so "
            f"{run.frame.agent.name!r} answers. Known: {', '.join(sorted(run.graph)):.400}"
        )
        return
    handler = handler_for(agent, run.config)
    run.first_agent, run.cached_context = agent, None
    run.frame = Frame(agent=agent, handler=handler, default_handler=handler.name, view=run.frame.view)


def _history_of(run: Run, found: Loaded, session: str, *, is_replayed: bool) -> int:
    """Return how many of a resumed run's items the session had before the run.

    Raises:
        SessionConflict: another run has used the session since.
    """
    is_newest = not found.passed or is_replayed
    if found.own is not None and is_newest and found.own.history <= len(run.transcript.items):
        return found.own.history
    if found.own is None and found.empty:
        return 0
    raise SessionConflict(
        f"Session {session!r:.80} does not end with the resumed run {run.run_id!r:.80}: another run has used "
        "the session since, or this run was started without it. Resume it without the session, or start a "
        "new run."
    )


def _digest(state: RunState) -> str:
    """Return a text that stands for a state with its decisions."""
    return hashlib.blake2b(state.to_json().encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _is_repeated(run: Run, own: Part | None, state: str) -> bool:
    """Whether the newest resumption of the run in its session was that of this state, by an engine."""
    return own is not None and own.resumes == state and run.open_calls.claims + 1 == own.claimed


def _is_begun(document: RunDocument, calls: Sequence[ToolCall]) -> bool:
    """Whether resuming makes or declines a call, or all calls that waited have been answered."""
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
    """Whether all calls wait for a decision, each itself or through all open calls of its sub-run."""
    return bool(calls) and all(
        (*path, call["id"]) in waiting
        or (
            (inner := document.sub_runs.get(call["id"])) is not None
            and _all_wait(inner, inner.open_calls, waiting, (*path, call["id"]))
        )
        for call in calls
    )


def _check_same_input(run: Run, own: Part, session: str) -> None:
    if _count_same(run.transcript.items, own.items) < len(run.transcript.items):
        raise ConfigError(
            f"RunConfig(run_id={run.run_id!r:.80}): session {session!r:.80} ends with a run of this id that "
            "had another input. The same id means the same run, repeated: leave run_id out, or give each run "
            "its own."
        )


def _count_same(items: Sequence[RunItem], documents: Sequence[Any]) -> int:
    """Return how many items, from the first on, equal the stored documents."""
    count = 0
    for item, document in zip(items, documents, strict=False):
        if json.loads(json.dumps(item_document(item), default=str)) != document:
            break
        count += 1
    return count


def _visible_items(items: Sequence[RunItem], error: Exception | None) -> int | None:
    """Return how many items later runs may see of a run that a guardrail stopped; None if none did.

    An input guardrail hides the input unless a model has already seen it, an output guardrail the reply.
    """
    if isinstance(error, InputGuardrailTripped):
        return None if any(item.kind == "model" for item in items) else 0
    if not isinstance(error, OutputGuardrailTripped) or not items:
        return None
    stopped = items[-1].kind == "model" and not calls_of(items[-1].message)
    return len(items) - 1 if stopped else None


_TRIES = 100
"""How many conflicts `Session.add` survives; at each of them another writer has stored something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """The messages of a session, or the newest part of them."""

    messages: Sequence[Message]
    """Valid input for a run, as from ``RunResult.to_input_list``."""
    repairs: Sequence[str]
    """Notes on messages that were repaired, or could not be read. The store keeps the original."""
    next_agent: str | None
    """Name of the agent that answers the next message, if it was stored (``next_agent="sticky"``)."""


@hint_attributes(SESSION)
class Session(SessionLog):
    """A stored conversation: ``Runner.run(agent, "Hi", session=Session("user-7", store))``.

    The object holds no data: two of them with the same name and store are the same session.

    Args:
        name: the name of the conversation in the store.
        store: keeps the conversation, such as a `routelock.sessions.SQLiteSessions`.
        max_items: the highest number of messages given to a run, the newest. Tool results without their call
            are left out. The store keeps all.
        max_bytes: the highest number of bytes of JSON given to a run; four bytes are about one token.
        grace: seconds that the store may take for the end of a run, also while the run is being cancelled.

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
        """Add messages from elsewhere, such as the history of another framework.

        They are stored as they are, except that NaN and infinity become null, and repaired each time they are
        loaded; `import_messages.py` lists the formats it reads. Messages that others add at the same time are
        stored as well, before or after them.

        Raises:
            SessionConflict: other writers were faster a hundred times.
            ConfigError: the messages are no JSON.
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
        """Whether a refused text is stored after all: the store's first response may have been lost."""
        entries, _ = entries_of(await self.records(newest)) if newest > 0 else ([], [])
        return any(entry.writer == writer for entry in entries)

    async def clear(self) -> None:
        """Delete all messages.

        Runs in progress get a `SessionConflict`, because the store keeps the name and the number of the
        session.

        Raises:
            SessionConflict: another writer added something at this moment.
            SessionError: the store fails.
        """
        await self.append(await self.newest(), NOTHING, alone=True)

    async def compact(self) -> None:
        """Replace the records of all turns by one record with the same content.

        In an `EncryptedSessions` the first key encrypts it, so the session no longer needs older keys.

        Raises:
            SessionConflict: another writer added something at this moment.
            SessionError: a record cannot be read and would be lost; or the store fails.
        """
        records = await self.records(None)
        entries, notes = entries_of(records)
        if notes:
            raise SessionError(
                f"Session {self.name!r} was left as it is, because compacting would lose records: "
                f"{'; '.join(notes):.400}."
            )
        if records:
            await self.append(records[-1][0], record_text(entries) if entries else NOTHING, alone=True)

    def store_of_run(self, state: RunState | None = None) -> RunStore:
        """Return the writer that stores one run in this session.

        Args:
            state: the state from which the run resumes, if it does; the run then has its history already.
        """
        return SessionRunStore(self, state)

    def store_of_sub_run(
        self, state: RunState | None = None, *, outer: RunStore | None = None, is_replayed: bool = False
    ) -> RunStore:
        """Return the writer that stores one sub-run, see ``Agent.as_tool(session=...)``.

        The outer run may be repeated after other sub-runs followed this one in the session. Then the sub-run
        gets the history of that time, and stores nothing again as long as its messages are the same.

        Args:
            state: the state from which the sub-run resumes, if it does.
            outer: the writer of the outer run, if that is stored too.
            is_replayed: whether an engine repeats the run, such as a journal after a crash.

        Raises:
            ConfigError: the outer run is stored in this session, which can hold one run at a time.
        """
        if isinstance(outer, SessionRunStore) and outer.is_of(self):
            raise ConfigError(
                f"The outer run is stored in session {self.name!r:.80}, too. Give the agent another session: "
                "as_tool(session=Session('another name', store))."
            )
        return SessionRunStore(self, state, is_sub_run=True, is_replayed=is_replayed)
