"""The choice of an agent for a handoff: capabilities, availability at the time of the transfer, and capacity.

Nothing here changes an agent or a request. Agents are checked in the order in which they were registered. The
reasons are the exact texts that the model gets.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Generic, Protocol, TypeVar, cast

from routelock._callables import MaybeAwaitable, call_user_code, callback_errors
from routelock._tool_names import in_order
from routelock.errors import ConfigError

__all__ = [
    "Available",
    "CapabilityRouter",
    "Capacity",
    "Choice",
    "Named",
    "Slot",
    "missing_capability",
    "refusal_in",
]


AT_MAXIMUM = "At maximum capacity"

NONE_AVAILABLE = "All preferred agents unavailable"

NONE_CAPABLE = "No capable agent available"


class Named(Protocol):
    """An agent or a handler. Its ``capabilities`` say what it can do; without the attribute it has none."""

    @property
    def name(self) -> str:
        """The name of the agent or handler."""
        ...


T = TypeVar("T", bound=Named)

Available = Callable[[T], MaybeAwaitable[bool | str]]
"""Tells whether an agent can take a transfer now, sync or async; a text says why not, such as
``"Agent busy: DEPLOYING"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Generic[T]):
    """The agent that takes a transfer, or the reason why there is none."""

    agent: T | None = None
    reason: str | None = None
    """The reason why there is no agent; None when there is one."""
    passed_over: tuple[tuple[str, str], ...] = ()
    """The agents that were tried and not taken: the name of each, and the reason."""


def missing_capability(agent: object, required: Collection[str]) -> str | None:
    """Return a text such as ``"Missing capability: sql"``, or None when the agent has all capabilities.

    Args:
        agent: anything with ``capabilities``; a handler without the attribute has none.
        required: the names, in the order in which the text lists them; a plain text is one name.
    """
    held = _names(getattr(agent, "capabilities", ()))
    lacking = [name for name in _names(required) if name not in held]
    return f"Missing capability: {', '.join(lacking)}" if lacking else None


def _names(names: Collection[str]) -> Collection[str]:
    return (names,) if isinstance(names, str) else in_order(names)


class CapabilityRouter(Generic[T]):
    """Finds the agent that can take a transfer. It has no state: it checks all agents anew each time.

    Args:
        agents: in the order in which they are tried.
        available: called at the time of a transfer, with agents that have the required capabilities. True
            takes the agent; a text or False tries the next one. None takes every agent.
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
        with callback_errors(f"available({agent.name!r})"):
            answer = self._answer(agent, required)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise ConfigError("available is async: await router.check(agent, required) instead.")
        return refusal_in(answer, agent.name)

    async def check(self, agent: T, required: Collection[str] = ()) -> str | None:
        """Do the same as `refusal`, also with an ``available`` that is async.

        Raises:
            CallbackError: ``available`` raised.
        """
        answer = await call_user_code(f"available({agent.name!r})", self._answer, agent, required)
        return refusal_in(answer, agent.name)

    def _answer(self, agent: T, required: Collection[str]) -> MaybeAwaitable[bool | str]:
        lacking = missing_capability(agent, required)
        return lacking or self._available is None or self._available(agent)

    def choose(self, required: Collection[str]) -> Choice[T]:
        """Return the first agent that has all that is required and is available.

        Without one the reason is ``"No capable agent available"``.

        Raises:
            CallbackError: ``available`` raised.
        """
        passed_over: list[tuple[str, str]] = []
        for agent in self._agents:
            reason = self.refusal(agent, required)
            if reason is None:
                return Choice(agent=agent, passed_over=tuple(passed_over))
            passed_over.append((agent.name, reason))
        return Choice(reason=NONE_CAPABLE, passed_over=tuple(passed_over))

    def find(self, required: Collection[str]) -> T | None:
        """Return the agent that `choose` chooses, or None."""
        return self.choose(required).agent


def refusal_in(answer: bool | str, name: str) -> str | None:
    """Return the reason in an answer, None for True. Only True accepts: an empty text declines."""
    if answer is True:
        return None
    return answer if isinstance(answer, str) and answer else f"Agent unavailable: {name}"


class Capacity:
    """Limits how many transfers an agent holds at a time. An app makes one and shares it between its runs.

    It counts and never waits: a transfer that finds no free slot is declined. Threads and event loops may
    share it. It counts in this process only; for several processes write an ``available`` of your own that
    reads a shared store.

    Args:
        limits: number of slots by agent name; 0 lets no transfer through.
        default: number of slots of an agent that is not listed; None for no limit.

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
        """Return the number of free slots at this moment; None when there is no limit."""
        name = _name(agent)
        with self._lock:
            return self._free(name)

    def available(self, agent: Named | str) -> bool | str:
        """Return True or ``"At maximum capacity"``; the method can be the ``available`` of a router.

        It takes no slot, so another run may take the last slot before a later `take`.
        """
        return True if self.free(agent) != 0 else AT_MAXIMUM

    def take(self, agent: Named | str) -> Slot | None:
        """Take a slot until it is released, or return None when there is none.

        Check and take are one step, so two runs never get the same last slot.
        """
        name = _name(agent)
        with self._lock:
            if self._free(name) == 0:
                return None
            self._taken[name] = self._taken.get(name, 0) + 1
        return Slot(partial(self._release, name))

    def _free(self, name: str) -> int | None:
        limit = self._limits.get(name, self._default)
        return None if limit is None else limit - self._taken.get(name, 0)

    def _release(self, name: str) -> None:
        with self._lock:
            if self._taken[name] == 1:
                del self._taken[name]  # otherwise every name ever used would stay in memory
            else:
                self._taken[name] -= 1


class Slot:
    """One slot that `Capacity.take` gave. `release`, or leaving its ``with`` block, frees it."""

    __slots__ = ("_once",)

    def __init__(self, release: Callable[[], None]) -> None:
        self._once = [release]

    def release(self) -> None:
        """Free the slot. A second call does nothing."""
        try:
            release = self._once.pop()  # at most one thread gets the function
        except IndexError:
            return
        release()

    def __enter__(self) -> Slot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _name(agent: Named | str) -> str:
    return agent if isinstance(agent, str) else agent.name
