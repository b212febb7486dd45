"""The command line of routelock.

The commands are ``chat``, ``run``, ``serve``, ``mcp``, ``dev``, ``graph``, ``trace``, ``record``, ``replay``
and ``doctor``.

One module a command. May import everything. Start at `main.py`.
"""

from __future__ import annotations

from routelock.cli.main import main

__all__ = ["main"]
