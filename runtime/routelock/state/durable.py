"""Runs on many workers and machines that survive the failure of any of them: the extra ``durable``.

    async with serving_runs([triage], database):          # in each worker
        ...
    async with RunClient(database) as client:             # anywhere else
        await client.start(triage, "My money back!", run_id="order-7")
        ended = await client.wait("order-7")

It is DBOS on PostgreSQL; asyncio only. For one process `routelock.state.Journal` needs nothing but a file.
"""

from routelock.state.dbos.client import EndedRun, RunClient, StepPart
from routelock.state.dbos.worker import WorkerSettings, serve_runs, serving_runs

__all__ = ["EndedRun", "RunClient", "StepPart", "WorkerSettings", "serve_runs", "serving_runs"]
