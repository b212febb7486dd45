"""A run that is stopped after every turn, written as JSON and gone on with: the run that never stopped."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from stress.graphs import Case

from routelock import Runner, RunResult, RunState
from routelock.errors import RoutelockError

__all__ = ["in_one_go", "in_pieces"]

TURNS = 12
HALF = re.compile(r"\\ud[89ab][0-9a-f]{2}")


def _config(case: Case) -> dict[str, Any]:
    return {**case.settings, "on_limit": "return", "timeout": None}  # each piece would have its own


async def in_one_go(case: Case) -> dict[str, Any]:
    """Play a case in one go."""
    result, error = await _go(case, case.input, TURNS, _config(case))
    return _facts([result], error)


async def in_pieces(case: Case) -> dict[str, Any]:
    """Play a case turn by turn."""
    results: list[RunResult[Any]] = []
    given: Any = case.input
    settings = _config(case)
    for turns in range(1, TURNS + 1):
        result, error = await _go(case, given, turns, settings)
        results.append(result)
        stopped = result.errors[-1].message if result.errors else ""
        if error is not None or result.stop_reason != "limit" or not stopped.startswith("Max turns"):
            break
        text = result.state().to_json(include_secrets=True)
        given = RunState.from_json(text, agents=case.agents)
    return _facts(results, error)


async def _go(
    case: Case, given: Any, turns: int, settings: dict[str, Any]
) -> tuple[RunResult[Any], RoutelockError | None]:
    config = replace(case.config(), **settings)
    try:
        asked: dict[str, Any] = {"max_turns": turns, "hooks": case.hooks, "run_config": config}
        return await Runner.run(case.agents[0], given, **asked), None
    except RoutelockError as error:
        return error.result, error


def _facts(results: list[RunResult[Any]], error: RoutelockError | None) -> dict[str, Any]:
    last = results[-1]
    found = {
        "error": (type(error).__name__, None if error is None else str(error)),
        "output": last.final_output,
        "last agent": last.last_agent.name,
        "next agent": last.next_agent.name,
        "last handler": last.last_handler,
        "items": last.items,
        "usage": last.usage,
        "usage by agent": last.usage_by_agent,
        "handoffs": last.handoffs,
        "problems": [(each.kind, each.message, each.turn) for each in last.errors if each.kind != "limit"],
        "calls": [
            (made.agent, made.handler, made.turn, made.messages, made.tools)
            for result in results
            for made in result.calls
        ],
    }
    # half a surrogate pair cannot be written as UTF-8: U+FFFD stands in for it
    return {name: HALF.sub("\ufffd", repr(value)) for name, value in found.items()}
