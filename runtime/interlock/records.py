"""Dataclasses that are made several times a turn.

To a type checker ``@record(frozen=True, ...)`` is ``@dataclass(frozen=True, ...)``: nobody assigns to a field
of one. When the program runs the guard is left out: it makes an object cost three times as much (1.3 instead
of 0.5 microseconds for eight fields), and these objects were a quarter of what the loop costs. Equality and
hashes are those of frozen dataclasses. What is made once a run or less often stays frozen in earnest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["record"]

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import dataclass as record  # by an assignment mypy would not know it again
else:
    from dataclasses import dataclass

    def record(*, frozen: bool, slots: bool = True, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
        """Make a dataclass that is frozen to type checkers."""
        made: Any = dataclass(slots=slots, kw_only=kw_only, unsafe_hash=frozen)
        return made
