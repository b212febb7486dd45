"""What a run asks of its store, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from scripted_agents import agent

from routelock import function_tool
from routelock.history import ToolCall
from routelock.run.loop import run_to_end
from routelock.run.run import Run
from routelock.run.start import start
from routelock.testing import call

pytestmark = pytest.mark.anyio


class Notes:
    """A store that notes what it is asked, and how many messages the run has by then."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    async def open(self, run: Run) -> None:
        self._note("open", run)

    async def claim(self, run: Run, calls: Sequence[ToolCall]) -> None:
        self._note("claim", run)

    async def append(self, run: Run) -> None:
        self._note("append", run)

    async def close(self, run: Run, error: Exception | None = None) -> None:
        self._note("close", run)

    def _note(self, what: str, run: Run) -> None:
        self.asked.append((what, len(run.transcript.items)))


@function_tool
def look() -> str:
    return "seen"


def stored(*script: Any) -> tuple[Run, Notes]:
    run = start(agent("A", *script, tools=[look]), "Hi", None, 10, None, None, stream=False)
    run.store = notes = Notes()
    return run, notes


async def test_a_run_is_stored_turn_by_turn() -> None:
    run, notes = stored(call("look"), "Done.")
    await run_to_end(run)
    assert notes.asked == [("open", 1), ("append", 3), ("append", 4), ("close", 4)]


async def test_the_rest_of_a_run_that_failed_is_stored() -> None:
    run, notes = stored(call("look"), RuntimeError("down"))
    with pytest.raises(Exception, match="down"):
        await run_to_end(run)
    assert notes.asked[:2] == [("open", 1), ("append", 3)]
    assert {what for what, _ in notes.asked[2:]} == {"close"}
