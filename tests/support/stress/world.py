"""One play of a random case: its dice, its clock, and all that can be seen of it from outside.

Everything random is drawn from the seed and from what it is about (which run, which turn, which call),
never from what was drawn before. So a case plays the same way streamed or not, whatever ran first.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio
import trio
from virtual_time import JumpingLoop, clock

from routelock.handlers.port import Request
from routelock.usage import Usage

__all__ = ["Asked", "World", "in_virtual_time"]


@dataclass(slots=True)
class Asked:
    """One model call as the handler saw it."""

    handler: str
    request: Request
    usage: Usage | None = None
    """That of the reply, if one came."""
    done: bool = False


@dataclass(slots=True)
class World:
    """What one play is made of, and what it leaves behind."""

    seed: int
    asyncio: bool = True
    asked: list[Asked] = field(default_factory=list[Asked])
    begun: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """How often each call of a tool ran, by run and call id."""
    tool_usage: list[Usage] = field(default_factory=list[Usage])
    open: Counter[str] = field(default_factory=Counter[str])
    """Handlers and tools that are at work."""
    nests: bool = True
    """Whether agents may be tools of others: their share of the turns depends on how many are left."""
    waits: bool = True
    """Whether callers wait for so long and no longer: their patience begins anew with each piece of a run."""
    hostile: bool = False
    """Whether something may show an item twice, or hide one."""
    threads: bool = False
    """Whether tools run in threads, for which no clock may jump."""
    attempts: Counter[tuple[Any, ...]] = field(default_factory=Counter[tuple[Any, ...]])

    def dice(self, *about: object) -> Random:
        """Return dice that fall the same way whenever this is asked about."""
        return Random(f"{self.seed}/{about!r}")

    def mark(self, *about: object) -> str:
        """Return a text that stands nowhere else."""
        digest = hashlib.blake2b(f"{self.seed}/{about!r}".encode(), digest_size=6)
        return f"~{digest.hexdigest()}~"

    def attempt(self, *about: object) -> int:
        """Count how often this was tried, from 1."""
        self.attempts[about] += 1
        return self.attempts[about]


def in_virtual_time(work: Callable[[], Coroutine[Any, Any, None]], *, asyncio: bool, threads: bool) -> None:
    """Run something on a loop of its own where sleeping takes no time, unless there are threads."""
    if asyncio:
        anyio.run(work, backend_options={} if threads else {"loop_factory": JumpingLoop})
    else:  # by trio itself, for anyio before 4.14 gives it no clock
        trio.run(work, clock=None if threads else clock())
