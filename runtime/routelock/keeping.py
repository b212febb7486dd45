"""How a run is kept while it goes on: what the loop calls, and `routelock.sessions` does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from routelock.history.messages import ToolCall

__all__ = ["Keeper"]


class Keeper(Protocol):
    """Keeps one run. It is given the `routelock.run.Run`, which it may change in `begin` only."""

    async def begin(self, run: Any) -> None:
        """Put what came before in front of the run's input, and keep the input.

        Raises:
            SessionError: that cannot be done.
        """
        ...

    async def claim(self, run: Any, calls: Sequence[ToolCall]) -> None:
        """See that nobody else goes on from the state of a resumed run; called before anything of it is done.

        Args:
            run: it stands where the state says.
            calls: those that are still to be made, with somebody's word or without.

        Raises:
            SessionConflict: somebody else does, or did.
            SessionError: that cannot be found out.
        """
        ...

    async def keep(self, run: Any) -> None:
        """Keep what was added since the last time; called after each turn.

        Raises:
            SessionError: that cannot be done.
        """
        ...

    async def last(self, run: Any, error: Exception | None = None) -> None:
        """Keep what is left, however the run ends, also while it is being cancelled. It raises nothing.

        It is called more than once. What goes wrong is in ``run.errors``.
        """
        ...
