"""A process that carries out the runs of a journal until all are done, or until it is killed.

python crash_worker.py FOLDER RUNS    the folder holds runs.db and log.jsonl, in which each effect is noted
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from routelock import Agent, Request, Tool, ToolContext, function_handler, handoff, tool
from routelock.state.journal import Journal
from routelock.testing import call

AT_ONCE = 8
MODEL, TOOL = 0.004, 0.010


class Log:
    """One line for each thing that begins or is done, on the disk before it goes on."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    def note(self, **what: Any) -> None:
        os.write(self._file, json.dumps({"pid": os.getpid(), "at": time.time(), **what}).encode() + b"\n")


def agents(log: Log, pace: float = 1) -> list[Agent[Any]]:
    """Triage asks two tools at once and hands over; billing charges, writes a letter and answers.

    Args:
        log: where all of them note what they do.
        pace: a step takes so many times as long.
    """

    def named(name: str) -> Tool:
        async def work(context: ToolContext[Any], number: str) -> str:
            where = {"run": context.run_id, "step": f"{name}.{context.tool_call_id}"}
            log.note(begins=True, **where)
            await asyncio.sleep(TOOL * pace)
            log.note(done=True, **where)
            return f"{name} of {number}"

        return tool(work, name=name)

    def model(name: str, first: int, *turns: Any) -> Any:
        async def speak(request: Request) -> Any:
            number = re.findall(r"Charge order (\w+)", str(request.messages))[0]
            assert request.context is not None
            where = {"run": request.context.run_id, "step": f"model.{request.turn}"}
            log.note(begins=True, **where)
            await asyncio.sleep(MODEL * pace)
            log.note(done=True, **where)
            says = turns[request.turn - first]
            if isinstance(says, str):
                return says.format(number)
            arguments = {"number": number}
            return {"content": None, "tool_calls": [call(tool, arguments, id=tool) for tool in says]}

        return function_handler(speak, name=name)

    billing = Agent(
        "billing",
        model=model("billing", 3, ["charge"], ["letter"], "Order {} is charged."),
        tools=[named("charge"), named("letter")],
    )
    triage = Agent(
        "triage",
        model=model("triage", 1, ["order", "customer"], ["transfer_to_billing"]),
        tools=[named("order"), named("customer")],
        handoffs=[handoff(billing)],
    )
    return [triage, billing]


async def main(folder: Path, runs: int) -> None:
    """Carry out all runs that are not done, some at a time."""
    triage, _ = agents(Log(folder / "log.jsonl"))
    slots = asyncio.Semaphore(AT_ONCE)
    async with Journal(folder / "runs.db") as journal:

        async def carry_out(number: int) -> None:
            async with slots:
                run_id = f"r{number}"
                result = await journal.run(triage, f"Charge order {number}x", run_id=run_id)
                assert result.final_output == f"Order {number}x is charged.", result.final_output

        async with asyncio.TaskGroup() as group:
            for number in range(runs):
                group.create_task(carry_out(number))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
