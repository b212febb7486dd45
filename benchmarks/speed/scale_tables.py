"""Tables of what a long run and a thousand tools cost, over HTTP, for routelock and for other frameworks."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from speed.scale import CONTENDERS, WITHOUT_SEARCH
from speed.scale_server import WINDOW

__all__ = ["scale_tables"]


_OURS = "OpenAICompatible"

_Version = Callable[[str, str], str]
"""Gives name and version of a package of a Python."""


def _measured(python: str, name: str, scenario: str, given: int) -> dict[str, Any]:
    """Return what one contender did in one scenario.

    Raises:
        RuntimeError: it did not come to an end.
    """
    command = [python, str(Path(__file__).with_name("scale.py")), name, scenario, str(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if not lines or "cpu" not in (found := json.loads(lines[-1])):
        raise RuntimeError(f"{name}, {scenario}: {done.stdout[-500:]}{done.stderr[-500:]}")
    assert found["said"] == "Done.", found
    return dict(found)


def _long_runs(pythons: Mapping[str, str], turns: int, version: _Version) -> str:
    """Return a table in Markdown: CPU per turn of the first and the second half."""
    head = f"| {turns:,} turns, {WINDOW:,} tokens | first half | second half | longest request | refused |"
    lines = [head, "|---|---:|---:|---:|---:|"]
    for name, python in pythons.items():
        found = _measured(python, name, "long", turns)
        first, second = (f"{seconds * 1e3:.1f} ms" for seconds in found["cpu"])
        size = f"{found['longest'] / 1000:.0f} kB"
        lines.append(
            f"| {_named(python, name, version)} | {first} | {second} | {size} | {found['refused']} |"
        )
    return "\n".join(lines)


def _many_tools(pythons: Mapping[str, str], version: _Version) -> str:
    """Return a table in Markdown: a run that calls one of a thousand tools."""
    lines = ["| a thousand tools | all offered | longest request | searched | longest request |"]
    lines.append("|---|---:|---:|---:|---:|")
    for name, python in pythons.items():
        ways = (0,) if name in WITHOUT_SEARCH else (0, 1)
        found = [_measured(python, name, "many", way) for way in ways]
        assert all(each["called"] == 1 for each in found), found
        cells = [
            cell
            for each in found
            for cell in (f"{each['cpu'][0] * 1e3:.0f} ms", f"{each['longest'] / 1000:.1f} kB")
        ]
        lines.append(f"| {_named(python, name, version)} | {' | '.join([*cells, '', ''][:4])} |")
    return "\n".join(lines)


def _named(python: str, name: str, version: _Version) -> str:
    return name if name == _OURS else version(python, name)


def scale_tables(pythons: Mapping[str, str], turns: int, version: _Version) -> str:
    """Return two tables in Markdown, one of a long run and one of a run with a thousand tools.

    Args:
        pythons: the interpreter of each contender; those that have nothing for this are left out.
        turns: how many calls the long run makes.
        version: gives the name and version of a package.
    """
    measured = {name: pythons[name] for name in CONTENDERS if name in pythons}
    return f"{_long_runs(measured, turns, version)}\n\n{_many_tools(measured, version)}"
