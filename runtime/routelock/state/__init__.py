"""Runs that stop and are resumed: from JSON, from a file, or on another machine.

`RunState` is the state of a run that waits or has ended. `Journal` records the steps of runs in SQLite, so
that they survive their process; `routelock.state.durable` does so on many machines, and
`routelock.state.restate` within Restate. This package imports `run` and the rooms below it. Start at
`run_state.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from routelock._lazy import load_late

if TYPE_CHECKING:
    from routelock.state.journal import *
    from routelock.state.run_state import *
    from routelock.state.steps import *
else:
    __getattr__ = load_late(
        __name__,
        {
            "journal": "Journal JournalStatus JournaledRun",
            "run_state": "RunState RunStatus",
            "steps": "Show Step StepExecutor StepLost",
        },
    )

__all__ = [
    "Journal",
    "JournalStatus",
    "JournaledRun",
    "RunState",
    "RunStatus",
    "Show",
    "Step",
    "StepExecutor",
    "StepLost",
]
