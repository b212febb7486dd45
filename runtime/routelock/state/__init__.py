"""A run that is stopped and goes on: as JSON, in a file, on another machine.

`RunState` is what a run that waits leaves behind; `Journal` records the steps of runs in SQLite, so that
they survive their process; `routelock.state.durable` does so on many machines. Imports `run` and the rooms
below it. Start at `run_state.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from routelock._lazy import load_late

if TYPE_CHECKING:
    from routelock.state.journal import Journal, JournaledRun, JournalStatus
    from routelock.state.run_state import RunState, RunStatus

__all__ = ["Journal", "JournalStatus", "JournaledRun", "RunState", "RunStatus"]

_LATE = {
    "RunState": "routelock.state.run_state",
    "RunStatus": "routelock.state.run_state",
    "Journal": "routelock.state.journal",
    "JournalStatus": "routelock.state.journal",
    "JournaledRun": "routelock.state.journal",
}


def __getattr__(name: str) -> Any:
    return load_late(__name__, _LATE, name)
