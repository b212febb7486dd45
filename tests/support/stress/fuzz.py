"""Random runs, each played plain and streamed, and left in the middle: one seed is one case.

python -m stress.fuzz --seed 7
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import anyio.lowlevel
from stress.graphs import Case, make_case
from stress.invariants import check_left, check_requests, check_run, check_totals
from stress.journal import Journal, can_be_replayed
from stress.pieces import in_one_go, in_pieces
from stress.world import World, in_virtual_time

from routelock import Runner, RunResult
from routelock.errors import ConfigError, RoutelockError
from routelock.run.events import RunDone, RunEvent
from routelock.run.handler_selection import handlers_by_priority
from routelock.tools.outcome import CUT_OFF

__all__ = ["Failed", "fuzz", "play_seed"]


class Failed(AssertionError):
    """A seed whose run broke a promise."""


@dataclass(slots=True)
class Play:
    """What came of one run."""

    case: Case
    world: World
    result: RunResult[Any]
    events: list[RunEvent] = field(default_factory=list[RunEvent])
    error: RoutelockError | None = None

    def was_cut_short(self) -> bool:
        """Whether an agent, or a tool beside it, ran out of time (docs/agents-as-tools.md)."""
        return _was_cut_short(self.result)

    def facts(self) -> dict[str, Any]:
        """Return all that must not depend on whether somebody watched."""
        result, error = self.result, self.error
        return {
            **_facts(result),
            "error": (type(error).__name__, None if error is None else str(error)),
            "nested": {call_id: _facts(inner) for call_id, inner in result.nested.items()},
        }


def _was_cut_short(result: RunResult[Any]) -> bool:
    nested = result.nested.values()
    if any(inner.stop_reason == "unfinished" or _was_cut_short(inner) for inner in nested):
        return True
    return bool(nested) and any(item.message.get("content") == CUT_OFF.output for item in result.items)


def _facts(result: RunResult[Any]) -> dict[str, Any]:
    return {
        "output": result.final_output,
        "last agent": result.last_agent.name,
        "next agent": result.next_agent.name,
        "last handler": result.last_handler,
        "items": result.items,
        "usage": result.usage,
        "usage by agent": result.usage_by_agent,
        "usage by handler": result.usage_by_handler,
        "handoffs": result.handoffs,
        "errors": [replace(problem, error=None) for problem in result.errors],
        "repairs": result.repairs,
        "warnings": result.warnings,
        "calls": [(made.agent, made.handler, made.turn, made.messages, made.tools) for made in result.calls],
        "stop reason": result.stop_reason,
        "pending": result.pending,
    }


def _world(seed: int) -> World:
    return World(seed, asyncio=seed % 2 == 0)


def _asks(case: Case, **more: Any) -> dict[str, Any]:
    """Return the arguments of a run."""
    return {"max_turns": case.max_turns, "hooks": case.hooks, "run_config": case.config(**more)}


async def _play(world: World, case: Case, *, stream: bool, **more: Any) -> Play:
    events: list[RunEvent] = []
    try:
        if not stream:
            result = await Runner.run(case.agents[0], case.input, **_asks(case, **more))
            return Play(case, world, result)
        async with Runner.run_streamed(case.agents[0], case.input, **_asks(case)) as happening:
            async for event in happening:
                events.append(event)
    except RoutelockError as error:
        return Play(case, world, error.result, events, error)
    assert isinstance(events[-1], RunDone)
    return Play(case, world, events[-1].result, events)


def _check(play: Play) -> None:
    case = play.case
    most = case.settings["max_handoffs"]
    check_run(play.world, play.result, play.error, max_turns=case.max_turns, most=most)
    check_requests(play.world)
    check_totals(play.world, play.result)
    capacity = case.settings["capacity"]
    if capacity is not None:
        for agent in case.agents:
            assert capacity.free(agent) == capacity.free("somebody"), f"{agent.name} holds a place"


async def _again(play: Play) -> None:
    """The next run of the same agents goes on from what happened, and begins at the default again."""
    world, case, result = play.world, play.case, play.result
    answers = [{"role": "tool", "tool_call_id": call["id"], "content": "Here."} for call in result.pending]
    messages = [*result.to_input_list(), *answers, {"role": "user", "content": "And now?"}]
    world.asked.clear()
    config = case.config(run_id="again", external_tools=())
    agent = case.agents[0]
    try:
        await Runner.run(agent, messages, max_turns=1, run_config=config)
    except RoutelockError:
        pass
    if world.asked:
        assert world.asked[0].request.agent == agent.name
        assert world.asked[0].handler == handlers_by_priority(agent, config)[0].name
    check_requests(world)


async def _leave(world: World, case: Case, after: int) -> RunResult[Any]:
    """Read so many events of a streamed run, then leave it."""
    async with Runner.run_streamed(case.agents[0], case.input, **_asks(case)) as stream:
        seen = 0
        try:
            async for _ in stream:
                seen += 1
                if seen >= after:
                    break
        except RoutelockError:
            pass
    return stream.result


async def _cancel(world: World, case: Case, after: int) -> RunResult[Any]:
    """Cancel the task that reads a run after so many steps of the event loop."""
    stream = Runner.run_streamed(case.agents[0], case.input, **_asks(case))

    async def watch(scope: anyio.CancelScope) -> None:
        for _ in range(after):
            await anyio.lowlevel.checkpoint()
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch, group.cancel_scope)
        try:
            await stream.drain()
        except RoutelockError:
            pass
        group.cancel_scope.cancel()
    await stream.aclose()
    return stream.result


async def _play_all(seed: int, counts: Counter[str]) -> None:
    plain_world = _world(seed)
    case = make_case(plain_world)
    plain = await _play(plain_world, case, stream=False)
    _check(plain)
    world = _world(seed)
    streamed = await _play(world, make_case(world), stream=True)
    _check(streamed)
    if not plain.was_cut_short():
        _compare(plain.facts(), streamed.facts())
    _count(plain, counts)
    whole = [item.message for item in plain.result.items]
    dice = plain_world.dice("leave")
    for leave in (_leave, _cancel):
        world = _world(seed)
        after = dice.randint(1, max(2, len(streamed.events)))
        check_left(world, await leave(world, make_case(world), after), whole)
    await _again(plain)
    await _stop_and_go(seed, counts)
    await _replay(seed, counts)
    if plain_world.asyncio:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others, f"left behind: {others}"


async def _replay(seed: int, counts: Counter[str]) -> None:
    """Write down what each step gave, then run again from that alone, as after a crash."""
    journal = Journal()
    world = _world(seed)
    first = await _play(world, make_case(world), stream=False, executor=journal)
    if not (journal.whole and can_be_replayed(first.result, first.error)):
        return
    counts["runs replayed"] += 1
    steps, world = journal.made, _world(seed)
    second = await _play(world, make_case(world), stream=False, executor=journal)
    assert journal.made == steps, f"{journal.made - steps} steps were made again"
    assert not world.asked
    assert not world.begun
    _compare(first.facts(), second.facts(), names=("made", "replayed"))


async def _stop_and_go(seed: int, counts: Counter[str]) -> None:
    """Stop after every turn, and go on from JSON."""
    worlds = _world(seed), _world(seed)
    for world in worlds:
        world.nests = world.waits = False
    one, other = map(make_case, worlds)
    whole, pieces = await in_one_go(one), await in_pieces(other)
    counts["runs resumed"] += 1
    _compare(whole, pieces, names=("in one go", "in pieces"))


def _compare(
    one: dict[str, Any], other: dict[str, Any], names: tuple[str, str] = ("plain", "streamed")
) -> None:
    for key, value in one.items():
        if value != other[key]:
            first, second = map(_short, _differing(value, other[key]))
            raise Failed(f"{key} differs:\n  {names[0]}: {first}\n  {names[1]}: {second}")


def _differing(plain: Any, streamed: Any) -> tuple[Any, Any]:
    """Return the first pair that differs, of two lists or of two values."""
    if isinstance(plain, str) and isinstance(streamed, str):
        pairs = enumerate(zip(plain, streamed, strict=False))
        place = next((place for place, (one, other) in pairs if one != other), 0)
        return plain[max(0, place - 200) : place + 300], streamed[max(0, place - 200) : place + 300]
    if not isinstance(plain, list | tuple) or not isinstance(streamed, list | tuple):
        return plain, streamed
    pairs = itertools.zip_longest(plain, streamed, fillvalue="(nothing)")
    return next((one, other) for one, other in pairs if one != other)


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) < 3_000 else f"{text[:3_000]}..."


def _count(play: Play, counts: Counter[str]) -> None:
    """Note what the run had in it, so that a summary can show that nothing is missing."""
    result, error = play.result, play.error
    counts["runs"] += 1
    counts[f"ended: {result.stop_reason if error is None else type(error).__name__}"] += 1
    counts["model calls"] += len(play.world.asked)
    counts["tool runs"] += sum(play.world.begun.values())
    counts["transfers made"] += sum(record.taken for record in result.handoffs)
    counts["transfers not made"] += sum(not record.taken for record in result.handoffs)
    counts["runs within runs"] += len(result.nested)
    counts["compactions"] += len(result.compactions)
    counts["repairs"] += len(result.repairs)
    counts["problems"] += len(result.errors)


def play_seed(seed: int, counts: Counter[str] | None = None) -> None:
    """Play one case in every way.

    Raises:
        Failed: a promise was broken; the message says how to play it again.
    """
    world = _world(seed)
    try:
        make_case(world)
    except ConfigError as error:
        raise Failed(f"seed {seed}: the case cannot be made: {error}") from error
    gathered: Counter[str] = Counter() if counts is None else counts

    async def work() -> None:
        await _play_all(seed, gathered)

    try:
        in_virtual_time(work, asyncio=world.asyncio, threads=world.threads)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        again = f"seed {seed} (python -m stress.fuzz --seed {seed}): {type(error).__name__}: {error}"
        raise Failed(again) from error


def fuzz(seeds: Sequence[int], *, most_failures: int = 10) -> tuple[Counter[str], list[Failed]]:
    """Play many cases; return what was in them, and those that failed."""
    counts: Counter[str] = Counter()
    failures: list[Failed] = []
    with _quiet():
        for number, seed in enumerate(seeds):
            if number and number % 500 == 0:
                print(f"{number} of {len(seeds)} seeds, {len(failures)} failed", file=sys.stderr, flush=True)
            try:
                play_seed(seed, counts)
            except Failed as error:
                failures.append(error)
                print(str(error)[:200], file=sys.stderr, flush=True)
                if len(failures) >= most_failures:
                    break
    return counts, failures


@contextmanager
def _quiet() -> Generator[None]:
    """Let routelock log nothing of what goes wrong on purpose."""
    log = logging.getLogger("routelock")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


LOST: list[str] = []
"""What was raised where nobody could catch it, such as a coroutine that nobody awaited."""


def _loud(lost: Any) -> None:
    LOST.append(f"{lost.exc_value!r} in {lost.object!r}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the seeds that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m stress.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one alone, and show where it fails")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1000)
    given = parser.parse_args(arguments)
    if given.seed is not None:
        play_seed(given.seed)
        print(f"seed {given.seed} holds")
        return 0
    warnings.simplefilter("error")
    sys.unraisablehook = _loud
    began = time.perf_counter()
    counts, failures = fuzz(range(given.first, given.first + given.runs))
    print(f"{given.runs} seeds from {given.first} in {time.perf_counter() - began:.0f} s")
    for name, count in sorted(counts.items()):
        print(f"  {name:32} {count}")
    for failure in failures:
        print(f"- {failure}"[:1500])
        cause = failure.__cause__
        if cause is not None:
            print("".join(traceback.format_tb(cause.__traceback__)[-2:]))
    for text in LOST:
        print(f"- lost on the way: {text}")
    return 1 if failures or LOST else 0


if __name__ == "__main__":
    sys.exit(main())
