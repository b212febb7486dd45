"""The executor of the journal passes the contract of durable executors."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

from routelock.state.journal import journal_file, recorded_steps
from routelock.testing import DurableExecutorContract
from routelock.testing.executor_contract import Use


class TestJournal(DurableExecutorContract):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "runs.db"

    async def live(self, run_id: str, use: Use) -> None:
        with closing(journal_file(self.path)) as file:
            await use(await recorded_steps(file, run_id))


class TestStreamedOnTrio(TestJournal):
    backend: ClassVar[str] = "trio"
    streamed: ClassVar[bool] = True
    every: ClassVar[int] = 3
