"""The accounts of sub-runs: their results and their usage become part of the outer run."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from routelock.usage import NO_USAGE, Usage

if TYPE_CHECKING:
    from routelock.run.run import Run

__all__ = ["absorb_sub_runs", "begin_sub_run", "end_sub_run", "with_sub_runs"]


def begin_sub_run(run: Run, key: str, inner: Run) -> None:
    """Note a sub-run that answers no call, such as one that writes a summary."""
    run.sub_runs.active[key], run.budget.inner[key] = inner, inner.budget


def end_sub_run(run: Run, key: str) -> Usage:
    """Add the result of such a sub-run to this run, and return its usage. Its turns do not count."""
    inner = run.sub_runs.active.pop(key)
    del run.budget.inner[key]
    result = run.sub_runs.ended[key] = inner.result()
    run.budget.tool_calls += inner.budget.tool_calls
    for name, usage in result.usage_by_agent.items():
        if usage != NO_USAGE:
            run.add_usage(usage, name)
    return result.usage


def absorb_sub_runs(run: Run) -> None:
    """Add the results and the usage of the active sub-runs to this run, in call order."""
    active, run.sub_runs.active, run.budget.inner = run.sub_runs.active, {}, {}
    for call_id, inner in active.items():
        if not inner.turn and inner.ending.stop_reason == "unfinished":
            continue  # it was never started
        result = run.sub_runs.ended[call_id] = inner.result()
        run.budget.sub_run_turns += inner.turn + inner.budget.sub_run_turns - inner.budget.turns_counted
        if inner.ending.stop_reason == "requires_action":
            run.sub_runs.waiting[call_id] = inner
        run.budget.tool_calls += inner.budget.tool_calls
        for name, usage in result.usage_by_agent.items():
            run.add_usage(usage, name)


def with_sub_runs(run: Run) -> Run:
    """Return a copy of the run, as if its active sub-runs had ended now."""
    so_far = copy(run)
    so_far.budget, so_far.handoffs = copy(run.budget), copy(run.handoffs)
    so_far.sub_runs, so_far.report = copy(run.sub_runs), copy(run.report)
    so_far.budget.usage_by_agent = dict(run.budget.usage_by_agent)
    so_far.handoffs.spent = dict(run.handoffs.spent)
    so_far.sub_runs.ended = dict(run.sub_runs.ended)
    so_far.sub_runs.waiting = dict(run.sub_runs.waiting)
    absorb_sub_runs(so_far)
    return so_far
