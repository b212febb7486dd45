"""What is asked of a worker and what it answers, as JSON that lies in the database in between."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

from routelock.agents.agent import Agent
from routelock.errors import ConfigError
from routelock.history.messages import Message
from routelock.run_state import RunState

__all__ = [
    "EndDocument",
    "EndStatus",
    "EndedRun",
    "JobDocument",
    "check_run_id",
    "next_id",
    "segment_id",
    "segment_of",
]

EndStatus = Literal["done", "waiting", "failed", "cancelled"]
"""``done``: there is a final output. ``waiting``: for answers or approvals. ``failed``: an error or a limit
ended it. ``cancelled``: somebody did."""


class JobDocument(TypedDict):
    """A run, or a part of one, that a worker is to carry out."""

    agent: str
    run_id: str
    input: list[Message] | None
    state: str | None
    """A `RunState` as JSON, from which it goes on."""
    context: Any
    """What the worker's ``context`` function is given."""
    max_turns: int | None
    until: float | None
    """The time at which it has taken too long, in seconds since 1970."""
    show: bool
    """Whether its events are written down for others."""
    follows: NotRequired[int]
    """So many segments before this one are part of what `RunClient.events` shows."""
    closes: NotRequired[str]
    """A cancelled segment, by the engine's name: what is recorded of it is made a state, and no more."""
    steps: NotRequired[dict[str, str]]
    """Recorded steps of the segment before, by key, to which it did not come again before it ended."""


class EndDocument(TypedDict):
    """How it ended."""

    status: Literal["done", "waiting", "failed", "cancelled", "moved"]
    """``moved``: the run goes on in the next segment, with another worker."""
    state: str | None
    error: str | None
    steps: NotRequired[dict[str, str]]
    """Recorded steps to which the run did not come again, by key: the next segment is to find them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """How a run ended, or where it stands and waits."""

    run_id: str
    segment: int
    """A run that waited, was cancelled, or went to a worker elsewhere goes on in another segment: 1, 2, 3."""
    agent: str
    """Name of the agent in whose queue it was last."""
    status: EndStatus
    state_json: str | None = None
    """None if it could not begin."""
    error: str | None = None
    """What ended it, in words."""

    def state(self, *, agents: Sequence[Agent[Any]]) -> RunState:
        """Return where it stands: its items, what it waits for, its usage.

        Args:
            agents: see `RunState.from_json`.

        Raises:
            ConfigError: there is no state.
        """
        if self.state_json is None:
            raise ConfigError(
                f"The run {self.run_id!r:.80} has no state: it was {self.status}. {self.error or ''}".strip()
            )
        return RunState.from_json(self.state_json, agents=agents)


def check_run_id(run_id: str) -> None:
    """Make sure that segments can be told apart.

    Raises:
        ConfigError: they could not.
    """
    if not re.fullmatch(r"[^#\s][^#]{0,199}", run_id):
        raise ConfigError(f"A run_id has 1 to 200 characters and no '#', not {run_id!r:.80}.")


def segment_id(run_id: str, segment: int) -> str:
    """Return what the engine calls a segment of a run."""
    return run_id if segment == 1 else f"{run_id}#{segment}"


def segment_of(workflow_id: str) -> int:
    """Return which segment it is."""
    number = workflow_id.partition("#")[2]
    return int(number) if number else 1


def next_id(workflow_id: str) -> str:
    """Return what the engine calls the segment after this one."""
    return segment_id(workflow_id.partition("#")[0], segment_of(workflow_id) + 1)
