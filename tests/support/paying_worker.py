"""A worker in a process of its own: python paying_worker.py DATABASE LOG; the log says who pays, and when."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from routelock import Agent, Request, function_handler, tool
from routelock.state.durable import WorkerSettings, serve_runs
from routelock.testing import call

QUICK = WorkerSettings(poll=0.02, watch=0.1, lease=3.0, grace=0.3)
"""A transaction may do nothing for a third of the lease; the engine keeps to that on a busy machine too."""


def go_on(log: Path) -> Path:
    """Return the file without which nothing is paid."""
    return log.with_suffix(".go")


def payer(log: Path) -> Agent[Any]:
    """Return an agent that pays, and then says who did."""

    async def pay() -> str:
        _note(log, "begins")
        while not go_on(log).exists():  # noqa: ASYNC110 - another process says so
            await asyncio.sleep(0.01)
        _note(log, "done")
        return f"paid by {os.getpid()}"

    async def speak(request: Request) -> Any:
        if request.turn == 1:
            return {"content": None, "tool_calls": [call("pay", {}, id="p")]}
        return str(request.messages[-1].get("content"))

    return Agent("payer", model=function_handler(speak, name="payer"), tools=[tool(pay)])


def _note(log: Path, what: str) -> None:
    with log.open("a") as file:
        file.write(f"{os.getpid()} {what}\n")


if __name__ == "__main__":
    asyncio.run(serve_runs([payer(Path(sys.argv[2]))], sys.argv[1], QUICK))
