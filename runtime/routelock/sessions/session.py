"""One conversation in a store: what it is for a run, and what can be done with it without one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from routelock.errors import ConfigError, SessionConflict, SessionError
from routelock.history.messages import Message
from routelock.history.repair import repair
from routelock.run.run import Keeper
from routelock.sessions.entries import NOTHING, Entry, entries_of, record_text
from routelock.sessions.keeper import SessionKeeper
from routelock.sessions.log import SessionLog

if TYPE_CHECKING:
    from routelock.state.run_state import RunState

__all__ = ["Conversation", "Session"]

_TRIES = 100
"""How often something is added that others were faster with; each time one of them was stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What is in a session, or the newest part of it."""

    messages: Sequence[Message]
    """Valid input for a run, as ``RunResult.to_input_list`` gives it."""
    repairs: Sequence[str]
    """What was mended for that, and what could not be read. The store keeps it as it is."""
    next_agent: str | None
    """Name of the agent that answers the next message, if that was stored (``next_agent="sticky"``)."""


class Session(SessionLog):
    """A conversation that outlives its runs: ``Runner.run(agent, "Hi", session=Session("user-7", store))``.

    It holds nothing itself: two of them with the same name and store are the same session.

    Args:
        name: of the conversation within the store.
        store: where it is kept, such as an `routelock.sessions.SQLiteSessions`.
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

        They are stored as they are, and mended each time they are loaded; see `routelock.sessions.foreign`
        for what is understood. Only a number that is none, NaN or infinity, becomes null. What others add in
        the same moment is stored as well, before or after them.

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
