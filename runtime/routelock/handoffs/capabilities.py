"""Who can take a handoff: capabilities, availability at the moment of the transfer, and capacity.

Nothing here changes an agent or a request: a router is asked and answers, in the order in which the agents
were registered. The reasons are the exact texts that the model is told.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Generic, Protocol, TypeVar, cast

from routelock._callables import MaybeAwaitable, callback_errors, resolve
from routelock._tool_names import in_order
from routelock.errors import ConfigError

__all__ = [
    "Available",
    "CapabilityRouter",
    "Capacity",
    "Choice",
    "Named",
    "Slot",
    "Slots",
    "first_to_accept",
    "missing_capability",
]


AT_MAXIMUM = "At maximum capacity"

NONE_AVAILABLE = "All preferred agents unavailable"

NONE_CAPABLE = "No capable agent available"


class Named(Protocol):
    """An agent or a handler. What it can do is read from its ``capabilities``; without any it has none."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...


T = TypeVar("T", bound=Named)

Available = Callable[[T], MaybeAwaitable[bool | str]]
"""Whether an agent can take a transfer now, sync or async; a text says why not, such as
``"Agent busy: DEPLOYING"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Generic[T]):
    """Who takes a transfer, or why nobody does."""

    agent: T | None = None
    reason: str | None = None
    """Why there is no agent; None when there is one."""
    passed_over: tuple[tuple[str, str], ...] = ()
    """The name of each agent that was asked before, or in vain, and why it was not taken."""


def missing_capability(agent: object, required: Collection[str]) -> str | None:
    """Return ``"Missing capability: sql"`` for what an agent lacks, or None when it has all.

    Args:
        agent: anything with ``capabilities``; a handler without the attribute has none.
        required: the names, in the order in which they are told; a plain text is one name.
    """
    held = _names(getattr(agent, "capabilities", ()))
    lacking = [name for name in _names(required) if name not in held]
    return f"Missing capability: {', '.join(lacking)}" if lacking else None


def _names(names: Collection[str]) -> Collection[str]:
    return (names,) if isinstance(names, str) else in_order(names)


class CapabilityRouter(Generic[T]):
    """Finds the agent that can take a transfer. It holds no state of its own: all is asked anew each time.

    Args:
        agents: in the order in which they are asked.
        available: asked at the time of a transfer, and only about agents that have what is required. True
            takes the agent; a text or False passes it over. None takes every agent.
    """

    __slots__ = ("_agents", "_available")

    def __init__(self, agents: Iterable[T], available: Available[T] | None = None) -> None:
        self._agents = tuple(agents)
        self._available = available

    def refusal(self, agent: T, required: Collection[str] = ()) -> str | None:
        """Return why one agent cannot take a transfer now, or None when it can.

        Raises:
            CallbackError: ``available`` raised.
            ConfigError: ``available`` is async, see `check`.
        """
        lacking = missing_capability(agent, required)
        if lacking or self._available is None:
            return lacking
        with callback_errors(f"available, asked about {agent.name!r},"):
            answer = self._available(agent)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise ConfigError("available is async: await router.check(agent, required) instead.")
        return _why_not(answer, agent.name)

    async def check(self, agent: T, required: Collection[str] = ()) -> str | None:
        """Return what `refusal` does, also with an ``available`` that is async.

        Raises:
            CallbackError: ``available`` raised.
        """
        lacking = missing_capability(agent, required)
        if lacking or self._available is None:
            return lacking
        with callback_errors(f"available, asked about {agent.name!r},"):
            answer: bool | str = await resolve(self._available(agent))
        return _why_not(answer, agent.name)

    def choose(self, required: Collection[str]) -> Choice[T]:
        """Return the first agent that has all that is required and is available.

        Without one the reason is ``"No capable agent available"``.

        Raises:
            CallbackError: ``available`` raised.
        """
        passed_over: list[tuple[str, str]] = []
        for agent in self._agents:
            why = self.refusal(agent, required)
            if why is None:
                return Choice(agent=agent, passed_over=tuple(passed_over))
            passed_over.append((agent.name, why))
        return Choice(reason=NONE_CAPABLE, passed_over=tuple(passed_over))

    def find(self, required: Collection[str]) -> T | None:
        """Return the agent that `choose` chooses, or None."""
        return self.choose(required).agent


async def first_to_accept(
    preferred: Iterable[T], accepts: Callable[[T], MaybeAwaitable[bool | str | None]]
) -> Choice[T]:
    """Ask agents in order and return the first that accepts; nobody after it is asked.

    Args:
        preferred: the best one first.
        accepts: sync or async. True or None accepts; a text or False declines, so that
            `CapabilityRouter.refusal` fits.

    Returns:
        The agent, or the reason ``"All preferred agents unavailable"``.

    Raises:
        CallbackError: ``accepts`` raised.
    """
    declined: list[tuple[str, str]] = []
    for agent in preferred:
        with callback_errors(f"accepts, asked about {agent.name!r},"):
            answer = await resolve(accepts(agent))
        why = _why_not(answer is None or answer, agent.name)
        if why is None:
            return Choice(agent=agent, passed_over=tuple(declined))
        declined.append((agent.name, why))
    return Choice(reason=NONE_AVAILABLE, passed_over=tuple(declined))


def _why_not(answer: bool | str, name: str) -> str | None:
    """Return the reason in an answer. An empty text is a reason as well: only True means yes."""
    if answer is True:
        return None
    return answer if isinstance(answer, str) and answer else f"Agent unavailable: {name}"


class Capacity:
    """How many transfers agents hold at a time. An app makes one and shares it between its runs.

    It counts, and never waits: a transfer that finds no slot is declined. So one object serves any number
    of threads and event loops. It knows this process alone; ask a shared store in an ``available`` of your
    own where several processes count together.

    Args:
        limits: slots for each agent, by name; 0 closes it.
        default: slots for an agent that is not listed; None gives it as many as it is asked for.

    Raises:
        ConfigError: a limit is not a whole number from 0 on.
    """

    __slots__ = ("_default", "_limits", "_lock", "_taken")

    def __init__(self, limits: Mapping[str, int], *, default: int | None = None) -> None:
        for name, limit in (*limits.items(), ("default", default or 0)):
            if type(cast(object, limit)) is not int or limit < 0:
                raise ConfigError(
                    f"Capacity: {name!r:.80} must be a whole number from 0 on, not {limit!r:.80}."
                )
        self._limits = dict(limits)
        self._default = default
        self._taken: dict[str, int] = {}
        self._lock = threading.Lock()

    def free(self, agent: Named | str) -> int | None:
        """Return how many slots are left at this moment; None when there is no limit."""
        name = _name(agent)
        limit = self._limits.get(name, self._default)
        with self._lock:
            return None if limit is None else limit - self._taken.get(name, 0)

    def available(self, agent: Named | str) -> bool | str:
        """Return True, or ``"At maximum capacity"``; made to be the ``available`` of a router.

        It takes no slot: between the answer and `take` somebody else may have taken the last.
        """
        return True if self.free(agent) != 0 else AT_MAXIMUM

    def take(self, agent: Named | str) -> Slot | None:
        """Take a slot until it is released, or return None when there is none.

        This decides and takes in one step, so two runs never get the same last slot.
        """
        name = _name(agent)
        limit = self._limits.get(name, self._default)
        with self._lock:
            taken = self._taken.get(name, 0)
            if limit is not None and taken >= limit:
                return None
            self._taken[name] = taken + 1
        return Slot(partial(self._give_back, name))

    def _give_back(self, name: str) -> None:
        with self._lock:
            if self._taken[name] == 1:
                del self._taken[name]  # names that come and go leave nothing behind
            else:
                self._taken[name] -= 1


class Slot:
    """One slot that `Capacity.take` gave. Leaving its ``with`` block releases it, and so does `release`."""

    __slots__ = ("_once",)

    def __init__(self, give_back: Callable[[], None]) -> None:
        self._once = [give_back]

    def release(self) -> None:
        """Give the slot back. A second time does nothing."""
        try:
            give_back = self._once.pop()  # at most one thread gets it
        except IndexError:
            return
        give_back()

    def __enter__(self) -> Slot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


_NONE_HELD: tuple[Slot | None, ...] = (None,)


class Slots:
    """The slots that one run holds: that of whoever speaks, and those of the agents that wait for it."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: tuple[Slot | None, ...] = _NONE_HELD

    def acquire(self, slot: Slot | None, *, waits: bool) -> None:
        """Hold the slot of whoever speaks from now on; give back that of the last one, unless it waits."""
        *before, last = self._held
        if last is not None and not waits:
            last.release()
        if waits or slot is not last:
            self._held = (*before, last, slot) if waits else (*before, slot)

    def come_back(self) -> None:
        """Give back the slot of whoever spoke; the one that waited for it goes on with its own."""
        *before, last = self._held
        self._held = tuple(before)
        if last is not None:
            last.release()

    def forget(self, first: int, end: int) -> None:
        """Give back the slots of agents that waited, from the first of them on; the others keep theirs."""
        gone = self._held[first:end]
        self._held = (*self._held[:first], *self._held[end:])
        for slot in gone:
            if slot is not None:
                slot.release()

    def release(self) -> None:
        """Give back all of them. Safe to call twice."""
        if self._held is _NONE_HELD:
            return
        while self._held:
            self.come_back()
        self._held = _NONE_HELD


def _name(agent: Named | str) -> str:
    return agent if isinstance(agent, str) else agent.name
