"""Runs that die in the middle, as if the process had."""

from __future__ import annotations

from typing import Any

from routelock import RunHooks

__all__ = ["Crash", "Dies", "is_crash"]


class Crash(BaseException):
    """The process dies."""


class Dies(RunHooks):
    """Lets a run die when so many things have happened in it."""

    def __init__(self, after: int) -> None:
        self.left = after

    async def _happened(self, *given: Any) -> None:
        self.left -= 1
        if not self.left:
            raise Crash

    # not on_tool_end: a tool is done when its hooks are
    on_llm_start = on_llm_end = on_tool_start = on_handoff = on_agent_end = _happened  # type: ignore[assignment]


def is_crash(error: BaseException) -> bool:
    """Whether it is nothing but a `Crash`."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_crash, error.exceptions))
    return isinstance(error, Crash)
