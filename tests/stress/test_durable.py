"""A few workers are killed; `python -m stress durable` kills many."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from databases import postgres_server

pytest.importorskip("dbos", reason="durable runs need DBOS: pip install 'routelock[durable]'")


def test_no_run_is_lost_or_done_twice_when_workers_are_killed(tmp_path: Path) -> None:
    from stress.durable import Plan, crash

    plan = Plan(kills=3, workers=3, seed=1, apart=True)
    with postgres_server() as server:
        counts = asyncio.run(crash(tmp_path, server, plan))
    assert (counts["kills"], counts["moved"]) == (3, counts["runs"])
    assert (counts["lost or wrong"], counts["missing steps"], counts["violations"]) == (0, 0, 0)
