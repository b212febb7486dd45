"""The command line: ``routelock chat``, ``run``, ``serve``, ``dev``, ``graph``, ``trace``, ``record``,
``replay``, ``doctor``.

One module a command. May import everything. Start at `main.py`.
"""

from __future__ import annotations

from routelock.cli.main import main

__all__ = ["main"]
