"""Thousands of runs in one process: what they need must not grow with their number.

    python -m stress.soak --runs 20000 --through litellm

One run in five is streamed, one in twenty left in the middle, one in twenty cancelled.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import threading
import time
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from stress.echo import echo_server

from routelock import Agent, Runner, function_tool
from routelock.handlers.events import TextDelta
from routelock.handlers.port import Handler

__all__ = ["Soaked", "soak"]

PAGE = os.sysconf("SC_PAGE_SIZE")
AT_ONCE = 8
"""Runs at the same time."""
_OF_A_CONNECTION = 28
"""Objects of an open connection: when a pool of aiohttp's opened three more, there were 85 more."""


@dataclass(slots=True)
class Sample:
    """What the process needs at one moment, between two runs."""

    runs: int
    kilobytes: float
    objects: int
    tasks: int
    files: int
    threads: int

    def __str__(self) -> str:
        memory = f"{self.kilobytes / 1024:.1f} MB, {self.objects} objects"
        return f"{memory}, {self.files} files, {self.threads} threads"


@dataclass(slots=True)
class Soaked:
    """What came of it."""

    samples: list[Sample] = field(default_factory=list[Sample])
    seconds: float = 0.0
    grown: list[str] = field(default_factory=list[str])
    """Which types of objects there are more of, and where memory was taken."""
    agents_alive: int = 0

    def slope(self, what: Callable[[Sample], float]) -> float:
        """Return by how much something grows with each run, over all samples (least squares)."""
        count = len(self.samples)
        mean_x = sum(sample.runs for sample in self.samples) / count
        mean_y = sum(map(what, self.samples)) / count
        over = sum((sample.runs - mean_x) * (what(sample) - mean_y) for sample in self.samples)
        return over / sum((sample.runs - mean_x) ** 2 for sample in self.samples)

    def wrong(self, *, kilobytes: float = 1.0, objects: float = 0.1) -> list[str]:
        """Return what grows with the number of runs."""
        late = self.samples[len(self.samples) // 2 :]
        limits = {
            f"{kilobytes:g} KB per run": self.slope(lambda one: one.kilobytes) < kilobytes,
            f"{objects:g} objects per run": self.slope(_without_connections) < objects,
            "open files": _most(late, "files") <= self.samples[0].files + AT_ONCE,
            "threads": _most(late, "threads") <= self.samples[0].threads + AT_ONCE,
            "tasks": _most(self.samples, "tasks") <= 4,
            "agents": self.agents_alive == 0,
        }
        return [f"more than it should be: {what}" for what, holds in limits.items() if not holds]

    def __str__(self) -> str:
        kb, objects = self.slope(lambda one: one.kilobytes), self.slope(lambda one: one.objects)
        last = self.samples[-1]
        return (
            f"{last.runs} runs in {self.seconds:.0f} s; after warm-up {kb:+.3f} KB and "
            f"{objects:+.3f} objects per run, {last.kilobytes / 1024:.0f} MB; tasks {self._spread('tasks')}, "
            f"files {self._spread('files')}, threads {self._spread('threads')}, agents {self.agents_alive}"
        )

    def _spread(self, name: str) -> str:
        found = [getattr(sample, name) for sample in self.samples]
        return f"{min(found)} to {max(found)}"


def _without_connections(sample: Sample) -> float:
    """Return the objects without those of open connections, of which a pool may open more at any time."""
    return sample.objects - _OF_A_CONNECTION * sample.files


def _most(samples: Sequence[Sample], name: str) -> int:
    return max(getattr(sample, name) for sample in samples)


def _sample(runs: int) -> Sample:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Sample(
        runs=runs,
        kilobytes=pages * PAGE / 1024,
        objects=_objects(),
        tasks=len(asyncio.all_tasks()),
        files=len(os.listdir("/proc/self/fd")),
        threads=threading.active_count(),
    )


def _cancel_many_timers() -> None:
    """Let the loop forget its cancelled timers, which it keeps until there are a hundred of them.

    How many there are depends on the speed of the machine, and each holds a few objects.
    """
    loop = asyncio.get_running_loop()
    for _ in range(1000):
        loop.call_later(3600, print).cancel()


def _agent(model: Handler) -> Agent[Any]:
    @function_tool
    async def note(mark: str) -> str:
        """Write something down."""
        return f"{mark} noted"

    return Agent("A", "Be brief.", model=model, tools=[note])


async def _one(model: Handler, number: int, agents: list[weakref.ref[Any]]) -> None:
    """Make one run with an agent of its own; what kind depends on its number."""
    agent = _agent(model)
    if number % 50 == 0:
        agents.append(weakref.ref(agent))
    mark = f"<run-{number}>"
    way = number % 20
    if way == 7:
        await _left(agent, mark)
    elif way == 13:
        await _cancelled(agent, mark, stream=number % 40 == 13)
    elif way % 5 == 0:
        result = await Runner.run_streamed(agent, f"{mark} hi").drain()
        assert str(result.final_output).startswith(mark)
    else:
        assert str((await Runner.run(agent, f"{mark} hi")).final_output).startswith(mark)


async def _left(agent: Agent[Any], mark: str) -> None:
    async with Runner.run_streamed(agent, f"{mark} hi") as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
    assert stream.result.stop_reason == "unfinished"


async def _cancelled(agent: Agent[Any], mark: str, *, stream: bool) -> None:
    """Cancel a run that waits for a server that has stopped to answer."""
    with anyio.move_on_after(0.15):
        if stream:
            await Runner.run_streamed(agent, f"{mark} stall").drain()
        else:
            await Runner.run(agent, f"{mark} stall")
        raise AssertionError("the server did answer")


async def soak(model: Handler, runs: int, *, warm_up: int, every: int, trace: bool = False) -> Soaked:
    """Make many runs, ``AT_ONCE`` at a time, and look at the process now and then."""
    soaked = Soaked()
    agents: list[weakref.ref[Any]] = []
    before: Counter[str] = Counter()
    snapshot: tracemalloc.Snapshot | None = None
    began = time.perf_counter()

    done = 0
    while done < runs:
        first, done = done, min(runs, done + (every if done else warm_up))
        batch = iter(range(first, done))

        async def work(batch: Any = batch) -> None:
            for number in batch:
                await _one(model, number, agents)

        async with anyio.create_task_group() as group:
            for _ in range(AT_ONCE):
                group.start_soon(work)
        _cancel_many_timers()
        await anyio.sleep(0.05)  # what the loop and the libraries do afterwards
        soaked.samples.append(_sample(done))
        print(f"{done} of {runs} runs, {soaked.samples[-1]}", file=sys.stderr, flush=True)
        if not before:
            before = _types()
            snapshot = _traced() if trace else None
    soaked.seconds = time.perf_counter() - began
    soaked.grown = _grown(before, runs - warm_up)
    if snapshot is not None:
        stats = _traced().compare_to(snapshot, "lineno")[:15]
        soaked.grown += [f"{stat.size_diff / 1024:+.0f} KB {stat.traceback}" for stat in stats]
        tracemalloc.stop()
    soaked.agents_alive = sum(agent() is not None for agent in agents)
    return soaked


def _traced() -> tracemalloc.Snapshot:
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    return tracemalloc.take_snapshot()


def _types() -> Counter[str]:
    gc.collect()
    return Counter(f"{type(each).__module__}.{type(each).__name__}" for each in gc.get_objects())


def _objects() -> int:
    """Return how many there are, without alarms that were called off: asyncio forgets a hundred at a time."""
    found = gc.get_objects()
    # not isinstance(): it would wake what openai loads on demand
    alarms = [each for each in found if type(each) is asyncio.TimerHandle]
    called_off = sum(alarm.cancelled() for alarm in alarms)
    return len(found) - 2 * called_off  # each has a context


def _grown(before: Counter[str], runs: int) -> list[str]:
    after = _types()
    more = {name: count - before[name] for name, count in after.items() if count - before[name] > runs / 100}
    ranked = sorted(more.items(), key=lambda pair: -pair[1])[:10]
    return [f"{count:+} {name}" for name, count in ranked]


def make_model(through: str, url: str) -> tuple[Handler, Callable[[], Any]]:
    """Return a handler, and what closes its connections."""
    if through == "direct":
        from routelock_providers import OpenAICompatible

        direct = OpenAICompatible("m", base_url=url, api_key="test-not-a-key")
        return direct, direct.aclose
    if through == "openai":
        from routelock_providers.chat_completions.openai import OpenAI

        handler = OpenAI("m", base_url=url, api_key="test-not-a-key")
        return handler, handler.aclose
    from routelock_providers.litellm.handler import LiteLLM
    from routelock_providers.litellm.library import close_litellm

    return LiteLLM("openai/gpt-4o-mini", api_base=url, api_key="test-not-a-key"), close_litellm


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, and say what it took."""
    parser = argparse.ArgumentParser(prog="python -m stress.soak", description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--warm-up", type=int, default=2_000)
    parser.add_argument("--through", choices=["litellm", "openai", "direct"], default="litellm")
    parser.add_argument("--trace", action="store_true", help="say where the memory is taken; slow")
    given = parser.parse_args(arguments)

    async def work(url: str) -> Soaked:
        model, close = make_model(given.through, url)
        try:
            every = max(1, (given.runs - given.warm_up) // 18)
            return await soak(model, given.runs, warm_up=given.warm_up, every=every, trace=given.trace)
        finally:
            await close()

    with echo_server() as url:
        soaked = asyncio.run(work(url))
    print(f"through {given.through}: {soaked}")
    for line in soaked.grown:
        print(f"  {line}")
    wrong = soaked.wrong()
    print("\n".join(f"- {line}" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
