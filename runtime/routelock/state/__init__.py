"""A run that is stopped and goes on: as JSON, in a file, on another machine.

`RunState` is what a run that waits leaves behind; `Journal` records the steps of runs in SQLite, so that
they survive their process; `routelock.state.durable` does so on many machines, and `routelock.state.restate`
within Restate. Imports `run` and the rooms below it. Start at `run_state.py`.
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
