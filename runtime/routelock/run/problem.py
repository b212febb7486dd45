"""The record of a problem in a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that went wrong without ending the run."""

    kind: Literal[
        "unknown_tool",
        "bad_arguments",
        "tool",
        "handoff",
        "hook",
        "provider",
        "fallback",
        "output",
        "refusal",
        "loop",
        "limit",
        "session",
    ]
    agent: str
    turn: int
    message: str
    call_id: str | None = None
    error: BaseException | None = None
