"""Several event loops in one process, one after another and at once in threads.

Run with ``-W error``: a task that outlives its loop, a connection that nobody closed or a coroutine that
nobody awaited shows on stderr.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from stress.echo import echo_server
from stress.soak import make_model

from routelock import Agent, Runner


async def _runs(model: Any, close: Any) -> None:
    agent = Agent("A", model=model)
    for number in range(3):
        result = await Runner.run(agent, f"<run-{number}> hi")
        assert str(result.final_output).startswith(f"<run-{number}>")
        result = await Runner.run_streamed(agent, f"<run-{number}> hi").drain()
        assert str(result.final_output).startswith(f"<run-{number}>")
    await close()


def _in_a_thread(through: str, url: str, failures: list[BaseException]) -> None:
    try:
        asyncio.run(_runs(*make_model(through, url)))
    except BaseException as error:
        failures.append(error)


def one_after_another(through: str, url: str) -> None:
    """Use one handler on three loops, each of which is left clean, and on three that nobody tidies."""
    model, close = make_model(through, url)
    for _ in range(3):
        asyncio.run(_runs(model, close))
    agent = Agent("A", model=model)
    for number in range(3):
        assert Runner.run_sync(agent, f"<run-{number}> hi").final_output
    gc.collect()


def at_once(through: str, url: str) -> None:
    """Use a handler on each of three loops at the same time."""
    failures: list[BaseException] = []
    work = partial(_in_a_thread, through, url, failures)
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


STEPS = {"one_after_another": one_after_another, "at_once": at_once}


def main(steps: Sequence[str]) -> None:
    """Do one thing after the other, such as ``at_once:openai``."""
    with echo_server() as url:
        for step in steps:
            how, through = step.split(":")
            STEPS[how](through, url)
    print("all loops are done")


if __name__ == "__main__":
    main(sys.argv[1:])
