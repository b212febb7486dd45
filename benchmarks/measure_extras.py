"""What hooks, traces, sessions and journals cost a turn: CPU time, without HTTP.

    python benchmarks/measure_extras.py [--turns N] [--rounds N] [--quick]

The same run of many calls of a tool, with a model that is a function: plain, and with each of the extras.
They take turns, and each figure is a median. What is written goes to a folder for temporary files. With a
thousand tools, the bytes of the tools in a request are shown too, all of them and with a tool search.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / root) for root in ("runtime", "providers"))]

from speed.ours import Scripted  # noqa: E402
from speed.scene import ANSWER, SPECIALIST, lookup  # noqa: E402
from speed.server import marker  # noqa: E402

from routelock import Agent, RunConfig, RunHooks, Runner, Tool, function_tool  # noqa: E402
from routelock.sessions import InMemorySessions, Session, SessionStore, SQLiteSessions  # noqa: E402
from routelock.state.journal import Journal  # noqa: E402
from routelock.tracing.file import TraceFile  # noqa: E402

Way = Callable[[Agent[Any], str], Awaitable[Any]]

_ids = map(str, count())


async def plain(agent: Agent[Any], text: str) -> Any:
    """Run it, and nothing else."""
    return (await Runner.run(agent, text, max_turns=None)).final_output


async def streamed(agent: Agent[Any], text: str) -> Any:
    """Read all events of the run."""
    final: Any = None
    async with Runner.run_streamed(agent, text, max_turns=None) as events:
        async for event in events:
            if event.type == "run_done":
                final = event.result.final_output
    return final


def hooked(agent: Agent[Any], text: str) -> Awaitable[Any]:
    """Tell hooks that do nothing."""
    return _finished(Runner.run(agent, text, max_turns=None, hooks=RunHooks()))


def kept_in(store: SessionStore) -> Way:
    """Keep each run in a session of its own."""

    def way(agent: Agent[Any], text: str) -> Awaitable[Any]:
        return _finished(Runner.run(agent, text, max_turns=None, session=Session(next(_ids), store)))

    return way


def traced(trace: Any) -> Way:
    """Tell a trace."""
    config = RunConfig(trace=trace)

    def way(agent: Agent[Any], text: str) -> Awaitable[Any]:
        return _finished(Runner.run(agent, text, max_turns=None, run_config=config))

    return way


def journaled(file: Path) -> Way:
    """Write each step down, so that a run which was killed goes on."""

    async def way(agent: Agent[Any], text: str) -> Any:
        async with Journal(file) as journal:
            return (await journal.run(agent, text, run_id=next(_ids), max_turns=None)).final_output

    return way


async def _finished(run: Awaitable[Any]) -> Any:
    return (await run).final_output


def thousand(*, deferred: bool) -> Agent[Any]:
    """Return an agent with a thousand tools, of which the model calls one."""
    things = ["invoice", "order", "customer", "ticket", "meeting"]
    tools = [
        Tool(
            name=f"{thing}_{number}",
            description=f"Change the {thing} with the number {number} and tell what has changed.",
            params_json_schema={"type": "object", "properties": {"text": {"type": "string"}}},
            on_invoke_tool=lambda context, arguments: "",
            deferred=deferred,
        )
        for number in range(200)
        for thing in things
    ]
    return Agent("specialist", SPECIALIST, model=Scripted(), tools=[function_tool(lookup), *tools[1:]])


def by(agent: Agent[Any]) -> Way:
    """Run another agent."""

    def way(_: Agent[Any], text: str) -> Awaitable[Any]:
        return plain(agent, text)

    return way


def tool_bytes() -> tuple[int, int]:
    """Return the bytes of a thousand tools in a request, and of those with a search that found five."""
    agent = thousand(deferred=True)
    deferral = agent.deferrals.own
    assert deferral is not None
    assert deferral.tool is not None
    specs = [route.spec for route in deferral.routes.values()]
    return len(json.dumps(specs)), len(json.dumps([deferral.tool.spec, *specs[:5]]))


def ways(folder: Path) -> Mapping[str, Way]:
    """Return what is measured, by name; what is not installed is left out."""
    found: dict[str, Way] = {
        "plain": plain,
        "streamed": streamed,
        "hooks": hooked,
        "session in memory": kept_in(InMemorySessions()),
        "session in SQLite": kept_in(SQLiteSessions(folder / "sessions.db")),
        "trace in a file": traced(TraceFile(folder / "trace.jsonl")),
        "journal": journaled(folder / "journal.db"),
        "a thousand tools": by(thousand(deferred=False)),
        "a thousand tools to search for": by(thousand(deferred=True)),
    }
    try:
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return found
    from routelock.tracing.otel import OpenTelemetry  # noqa: PLC0415

    provider = TracerProvider(shutdown_on_exit=False)
    found["spans of OpenTelemetry"] = traced(OpenTelemetry(tracer_provider=provider))
    found["spans with content"] = traced(OpenTelemetry(tracer_provider=provider, content=True))
    return found


async def measured(turns: int, rounds: int) -> Mapping[str, float]:
    """Return microseconds of CPU time per turn, by name."""
    agent = Agent("specialist", SPECIALIST, model=Scripted(), tools=[function_tool(lookup)])
    text, seen = marker(turns=turns), dict[str, list[float]]()
    with tempfile.TemporaryDirectory() as folder:
        every = ways(Path(folder))
        for number in range(rounds + 1):  # the first one warms up
            for name, way in every.items():
                gc.collect()
                began = time.process_time()
                assert await way(agent, text) == ANSWER
                took = (time.process_time() - began) / turns * 1e6
                seen.setdefault(name, []).extend([took] * (number > 0))
    return {name: median(times) for name, times in seen.items()}


def main(arguments: list[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=200, help="calls of the tool in a run")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="only see whether all works")
    given = parser.parse_args(arguments)
    turns, rounds = (3, 1) if given.quick else (given.turns, given.rounds)
    figures = asyncio.run(measured(turns, rounds))
    print("| | CPU per turn | more than plain |\n|---|---:|---:|")
    for name, took in figures.items():
        print(f"| {name} | {took:.0f} µs | {took - figures['plain']:+.0f} µs |")
    whole, searched = tool_bytes()
    print(f"\nA thousand tools: {whole:,} bytes in a request; with a search that found five: {searched:,}.")


if __name__ == "__main__":
    main(sys.argv[1:])
