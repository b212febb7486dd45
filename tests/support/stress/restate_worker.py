"""A process that carries out runs in handlers of Restate until it is killed."""

from __future__ import annotations

import asyncio
import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import hypercorn.asyncio
import restate
from stress.crash_worker import Log, agents

from routelock import RunConfig, Runner
from routelock.state.restate import restate_steps

WORKFLOW = "orders"

SHORT = timedelta(milliseconds=20)


PATIENT = restate.InvocationRetryPolicy(max_interval=timedelta(seconds=10), max_attempts=10_000)
"""The policy that docs/restate.md recommends."""
HASTY = restate.InvocationRetryPolicy(initial_interval=SHORT, max_interval=SHORT)
"""A run that nothing serves has used up its 70 attempts after a second and a half."""


def work(folder: str, port: int, pace: float, is_hasty: bool) -> None:
    """Work; what happens is noted in ``log.jsonl`` in the folder, and what is said in ``workers.log``.

    Args:
        folder: of the logs.
        port: where all workers listen, each for the connections that the system gives it.
        pace: see `stress.crash_worker.agents`.
        is_hasty: whether Restate pauses runs soon.
    """
    said = os.open(Path(folder) / "workers.log", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.dup2(said, 1)
    os.dup2(said, 2)
    with _shared_port(port) as listener:
        config = hypercorn.Config()
        config.bind = [f"fd://{listener.fileno()}"]
        app = _app(Log(Path(folder) / "log.jsonl"), pace, HASTY if is_hasty else PATIENT)
        asyncio.run(hypercorn.asyncio.serve(app, config))


def _shared_port(port: int) -> socket.socket:
    """Take a port that other processes have as well."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", port))
    return listener


def _app(log: Log, pace: float, policy: restate.InvocationRetryPolicy) -> Any:
    triage, _ = agents(log, pace)
    orders = restate.Workflow(WORKFLOW, invocation_retry_policy=policy)

    @orders.main()
    async def run(ctx: restate.WorkflowContext, text: str) -> str | None:
        async with restate_steps(ctx) as executor:
            config = RunConfig(executor=executor, run_id=ctx.key())
            result = await Runner.run(triage, text, run_config=config)
        return result.final_output

    return restate.app([orders])
