"""Random runs that are left or cancelled anywhere, written as JSON and gone on with, again and again.

python -m stress.left --seed 7
"""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
from stress.graphs import Case, make_case
from stress.invariants import check_requests
from stress.world import World, in_virtual_time

from routelock import RunConfig, Runner, RunResult, RunState
from routelock.errors import ConfigError, RoutelockError
from routelock.history.messages import calls_of
from routelock.testing import assert_valid

__all__ = ["left_and_gone_on_with", "main"]

PIECES = 40
ERRORS = 5


def left_and_gone_on_with(seed: int, counts: Counter[str]) -> None:
    """Play one case; whatever it is cut into, no tool runs twice and each call has one answer."""
    world = World(seed, asyncio=seed % 2 == 0)
    case = make_case(world)

    async def work() -> None:
        await _play(world, case, counts)

    in_virtual_time(work, asyncio=world.asyncio, threads=world.threads)


async def _play(world: World, case: Case, counts: Counter[str]) -> None:
    dice, given, errors = world.dice("left"), case.input, 0
    for piece in itertools.count(1):
        whole = piece >= PIECES  # what is left of a reply is asked for again: leave it alone at last
        result, error = await _piece(case, given, 10**6 if whole else _after(dice), dice.random() < 0.5)
        counts["pieces"] += 1
        errors += error is not None or result.stop_reason == "limit"
        assert not isinstance(error, ConfigError), error
        _check(world, result)
        if result.stop_reason == "done" or errors == ERRORS:
            break
        given = _state(case, result)
    counts["done"] += result.stop_reason == "done"
    check_requests(world)


def _after(dice: Random) -> int:
    return dice.choice([1, 2, 3, 5, 8, 13, 21])


async def _piece(
    case: Case, given: Any, after: int, cancel: bool
) -> tuple[RunResult[Any], RoutelockError | None]:
    config: RunConfig = case.config()
    stream = Runner.run_streamed(case.agents[0], given, max_turns=40, hooks=case.hooks, run_config=config)
    failed: list[RoutelockError] = []

    async def watch(scope: anyio.CancelScope) -> None:
        for _ in range(after):
            await anyio.lowlevel.checkpoint()
        scope.cancel()

    async with anyio.create_task_group() as group:
        if cancel:
            group.start_soon(watch, group.cancel_scope)
        try:
            async with stream:
                for _ in range(10**6 if cancel else after):
                    await anext(aiter(stream))
        except StopAsyncIteration:
            pass
        except RoutelockError as error:
            failed.append(error)
        group.cancel_scope.cancel()
    await stream.aclose()
    return stream.result, failed[0] if failed else None


def _state(case: Case, result: RunResult[Any]) -> RunState:
    """Return the state of a run as another process reads it, with the answers of the caller's."""
    here = result.state()
    text = here.to_json(include_secrets=True)
    there = RunState.from_json(text, agents=case.agents)
    assert there == here
    assert there.to_json(include_secrets=True) == text
    assert (there.status, there.reason, there.error) == (here.status, here.reason, here.error)
    return there.with_answers(
        {"role": "tool", "tool_call_id": call["id"], "content": "Here."} for call in there.pending
    )


def _check(world: World, result: RunResult[Any]) -> None:
    made = [call["id"] for item in result.new_items for call in calls_of(item.message)]
    answers = Counter(
        item.message.get("tool_call_id") for item in result.new_items if item.message["role"] == "tool"
    )
    assert len(made) == len(set(made)), f"an id twice: {made}"
    assert all(count == 1 for count in answers.values()), answers
    assert answers.keys() <= {*made}, "an answer without a call"
    if result.stop_reason == "done":
        assert answers.keys() == {*made}, f"not answered: {set(made) - answers.keys()}"
    twice = [key for key, count in world.begun.items() if count > 1]
    assert not twice, f"run twice: {twice}"
    if not result.pending:
        assert_valid(result.to_input_list())


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the seeds that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m stress.left", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one alone")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1000)
    given = parser.parse_args(arguments)
    seeds = range(given.first, given.first + given.runs) if given.seed is None else [given.seed]
    counts: Counter[str] = Counter()
    failed: list[str] = []
    logging.getLogger("routelock").setLevel(logging.CRITICAL)  # much goes wrong on purpose
    for number, seed in enumerate(seeds):
        if number and number % 100 == 0:
            print(f"{number} of {len(seeds)} seeds, {len(failed)} failed", file=sys.stderr, flush=True)
        try:
            left_and_gone_on_with(seed, counts)
        except Exception as error:
            if given.seed is not None:
                raise
            failed.append(f"- seed {seed} (python -m stress.left --seed {seed}): {error!r}"[:1500])
    print(f"{len(seeds)} seeds: {dict(counts)}", *failed[:10], sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
