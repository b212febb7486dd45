"""Start, kill, resume: a run whose worker is killed in the middle of an answer, and ends all the same.

make durable-demo                         on each engine in turn; it needs no network and no key
make durable-demo DURABLE_ARGS=restate    on one of them

dbos starts a PostgreSQL of its own, restate a Restate server; one that is not installed is named, see
scripts/services.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import hypercorn.asyncio
import pytest
import restate
from databases import address, postgres
from restate_server import register, request, restate_server
from servers import free_port

from routelock import Agent, Request, RunConfig, Runner, ToolContext, tool
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.run import Call
from routelock.state.durable import RunClient, WorkerSettings, serve_runs
from routelock.state.restate import restate_steps
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


def clerk() -> Agent[Any]:
    """Return the agent of both engines."""
    return Agent("clerk", "You take payments.", model=Clerk(), tools=[tool(charge)])


def begin(work: Callable[..., None], *given: Any) -> multiprocessing.Process:
    """Start a worker."""
    worker = multiprocessing.Process(target=work, args=given, daemon=True)
    worker.start()
    print(f"  [worker {worker.pid} starts]", flush=True)
    return worker


def kill(worker: multiprocessing.Process) -> None:
    """Kill a worker."""
    print(f"\n  [kill -9 {worker.pid}]", flush=True)
    worker.kill()


def work_on_postgres(database: str) -> None:
    """Be a worker of a database until killed."""
    asyncio.run(serve_runs([clerk()], database, WorkerSettings()))


async def on_postgres(database: str) -> None:
    """Start a run, watch it, and kill its worker on the way."""
    workers = [begin(work_on_postgres, database)]
    async with RunClient(database) as client:
        await client.start("clerk", "Pay order 7.", run_id="order-7", show=True)
        words = 0
        async for part in client.events("order-7"):
            if part.restarts:
                print(f"\n  [attempt {part.attempt}: {part.step} begins anew]")
            print(part.text, end="", flush=True)
            words += part.text.count(" ")
            if words >= 5 and len(workers) == 1:
                kill(workers[0])
                workers.append(begin(work_on_postgres, database))
        ended = await client.wait("order-7")
    print(f"\n  [{ended.status}]")
    workers[-1].terminate()


def with_dbos() -> None:
    """Show DBOS, with a PostgreSQL of its own."""
    with postgres() as conninfo:
        asyncio.run(on_postgres(address(conninfo)))


def work_for_restate(port: int, shown: Connection) -> None:
    """Serve a handler of Restate until killed, and send the text of the model as it is written."""
    orders = restate.Workflow("orders")

    def show(step: Call, event: HandlerEvent) -> None:
        if isinstance(event, TextDelta):
            shown.send(event.text)

    @orders.main()
    async def run(ctx: restate.WorkflowContext, text: str) -> str | None:
        async with restate_steps(ctx, show) as executor:
            config = RunConfig(executor=executor, run_id=ctx.key())
            result = await Runner.run(clerk(), text, run_config=config)
        shown.send(None)
        return result.final_output

    config = hypercorn.Config()
    config.bind, config.errorlog = [f"127.0.0.1:{port}"], None
    app: Any = restate.app([orders])
    asyncio.run(hypercorn.asyncio.serve(app, config))


def texts_of(shown: Connection, before: str = "") -> Iterator[str]:
    """Print and yield what a worker sends until its run ends."""
    while (text := shown.recv()) is not None:
        print(f"{before}{text}", end="", flush=True)
        before = ""
        yield text


def with_restate() -> None:
    """Show Restate, with a server of its own."""
    with restate_server() as (ingress, admin):
        port = free_port()
        shown, showing = multiprocessing.Pipe(duplex=False)
        worker = begin(work_for_restate, port, showing)
        register(ingress, admin, f"http://127.0.0.1:{port}")
        request(f"{ingress}/orders/order-7/run/send", "Pay order 7.")
        texts = texts_of(shown)
        for _ in range(5):
            next(texts)
        kill(worker)
        shown, showing = multiprocessing.Pipe(duplex=False)
        worker = begin(work_for_restate, port, showing)
        texts = texts_of(shown, before="  [attempt 2: the answer begins anew, the charge is recorded]\n")
        deque(texts, maxlen=0)
        answer = request(f"{ingress}/restate/workflow/orders/order-7/attach")
        print(f"\n  [done: {answer}]")
        worker.kill()


ENGINES = {"dbos": with_dbos, "restate": with_restate}


def main() -> int:
    """Show the engines that are asked for; fail if there is none."""
    parser = argparse.ArgumentParser(prog="durable_demo")
    parser.add_argument("engines", nargs="*", help=f"some of: {', '.join(ENGINES)}; default: both")
    wanted = parser.parse_args().engines or list(ENGINES)
    if unknown := set(wanted) - ENGINES.keys():
        parser.error(f"there is no {', '.join(sorted(unknown))}: name some of {', '.join(ENGINES)}")
    shown = 0
    for name in wanted:
        print(f"== {name}", flush=True)
        try:
            ENGINES[name]()
            shown += 1
        except pytest.skip.Exception as missing:
            print(f"  [not shown: {missing}]")
    return 0 if shown else 1


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    sys.exit(main())
