"""Start, kill, resume: a run whose worker is killed in the middle of an answer, and ends all the same.

make durable-demo    starts a PostgreSQL of its own; it needs no network and no key
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import AsyncGenerator
from typing import Any

from databases import address, postgres

from routelock import Agent, Request, ToolContext, tool
from routelock.handlers.events import MessageDone, TextDelta
from routelock.state.durable import RunClient, WorkerSettings, serve_runs
from routelock.testing import call


class Clerk:
    """A model that charges first and then talks slowly."""

    name = "clerk"

    async def stream(self, request: Request) -> AsyncGenerator[Any]:
        """Answer one turn."""
        if request.turn == 1:
            charge = call("charge", {"amount": 40}, id="c1")
            yield MessageDone(message={"role": "assistant", "content": None, "tool_calls": [charge]})
            return
        words = "Your order 7 is charged with 40 EUR and will be with you on Thursday .".split()
        for word in words:
            await asyncio.sleep(0.15)
            yield TextDelta(f"{word} ")
        yield MessageDone(message={"role": "assistant", "content": " ".join(words)})


async def charge(context: ToolContext[Any], amount: int) -> str:
    """Charge an amount."""
    print(f"  [worker {os.getpid()}: charging {amount} EUR, key {context.idempotency_key}]", flush=True)
    return f"charged {amount} EUR"


def work(database: str) -> None:
    """Be a worker until killed."""
    clerk = Agent("clerk", "You take payments.", model=Clerk(), tools=[tool(charge)])
    asyncio.run(serve_runs([clerk], database, WorkerSettings()))


def begin(database: str) -> multiprocessing.Process:
    """Start a worker."""
    worker = multiprocessing.Process(target=work, args=(database,), daemon=True)
    worker.start()
    print(f"  [worker {worker.pid} starts]", flush=True)
    return worker


async def main(database: str) -> None:
    """Start a run, watch it, and kill its worker on the way."""
    workers = [begin(database)]
    async with RunClient(database) as client:
        await client.start("clerk", "Pay order 7.", run_id="order-7", show=True)
        words = 0
        async for part in client.events("order-7"):
            if part.restarts:
                print(f"\n  [attempt {part.attempt}: {part.step} begins anew]")
            print(part.text, end="", flush=True)
            words += part.text.count(" ")
            if words >= 5 and len(workers) == 1:
                print(f"\n  [kill -9 {workers[0].pid}]", flush=True)
                workers[0].kill()
                workers.append(begin(database))
        ended = await client.wait("order-7")
    print(f"\n  [{ended.status}]")
    workers[-1].terminate()


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    with postgres() as conninfo:
        asyncio.run(main(address(conninfo)))
