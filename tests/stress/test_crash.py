"""The quick part of `stress.crash`."""

from __future__ import annotations

from pathlib import Path

from stress.crash import crash


def test_who_is_killed_goes_on_and_does_nothing_twice_that_was_written_down(tmp_path: Path) -> None:
    counts = crash(tmp_path, kills=4, runs=60, seed=7)
    assert (counts["lost"], counts["violations"], counts["missing steps"]) == (0, 0, 0)
    assert counts["kills"] >= 1
