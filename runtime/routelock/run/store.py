"""The interface to a store of runs that still go on, such as a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from routelock.history.messages import ToolCall

__all__ = ["RunStore"]


class RunStore(Protocol):
    """Stores one run, such as in a session. Only `open` may change the `Run` that it gets."""

    async def open(self, run: Any) -> None:
        """Put the stored history in front of the run's input, and store the input.

        Raises:
            SessionError: the history cannot be loaded, or the input cannot be stored.
        """
        ...

    async def claim(self, run: Any, calls: Sequence[ToolCall]) -> None:
        """Make sure that a saved state is resumed only once; called before the run does anything.

        Args:
            run: the run, restored from the state.
            calls: the calls that are still to be made, decided or not.

        Raises:
            SessionConflict: another run resumed the state.
            SessionError: the store cannot be read or written.
        """
        ...

    async def append(self, run: Any) -> None:
        """Store the items that are new since the last time; called after each turn.

        Raises:
            SessionError: they cannot be stored.
        """
        ...

    async def close(self, run: Any, error: Exception | None = None) -> None:
        """Store the rest when the run ends, even if it is being cancelled. It raises nothing.

        It may be called more than once. Errors of the store become problems of the run.
        """
        ...
