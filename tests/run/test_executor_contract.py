"""The executor that records nothing passes the contract of executors."""

from __future__ import annotations

from routelock.run.executor import InProcess
from routelock.testing import ExecutorContract
from routelock.testing.executor_contract import Use


class TestInProcess(ExecutorContract):
    async def live(self, run_id: str, use: Use) -> None:
        await use(InProcess())
