"""A few workers are killed; `python -m stress durable` kills many."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from databases import address, postgres

pytest.importorskip("dbos", reason="durable runs need DBOS: pip install 'interlock[durable]'")


def test_no_run_is_lost_or_done_twice_when_workers_are_killed(tmp_path: Path) -> None:
    from stress.durable import crash

    with postgres() as conninfo:
        counts = asyncio.run(crash(tmp_path, address(conninfo), kills=3, workers=2, seed=1))
    assert counts["kills"] == 3
    assert (counts["lost or wrong"], counts["missing steps"], counts["violations"]) == (0, 0, 0)
