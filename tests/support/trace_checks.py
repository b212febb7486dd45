"""What a trace says, held against the result of its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from routelock import RunResult
from routelock.tracing.reader import TracedRun, read_trace
from routelock.tracing.records import numbers


def only(path: Path) -> TracedRun:
    log = read_trace(path)
    assert log.unreadable == []
    [run] = log.runs
    return run


def same(result: RunResult[Any], run: TracedRun) -> None:
    """The trace says what the result says, also of the runs within."""
    assert [item.message for item in run.transcript] == [item.message for item in result.items]
    assert [item.kind for item in run.transcript] == [item.kind for item in result.items]
    assert [each.messages for each in run.calls] == [each.messages for each in result.calls]
    assert [list(each.tools) for each in run.calls] == [list(each.tools) for each in result.calls]
    assert [each.start.agent for each in run.calls] == [each.agent for each in result.calls]
    assert [each.start.handler for each in run.calls] == [each.handler for each in result.calls]
    replies = [None if each.reply is None else each.reply.message for each in result.calls]
    assert [each.reply for each in run.calls] == replies
    assert [(one.id, one.status) for one in run.handoffs] == [(one.id, one.status) for one in result.handoffs]
    assert run.end is not None
    assert run.end.stop_reason == result.stop_reason
    assert run.end.usage == result.usage
    assert dict(run.end.usage_by_agent) == result.usage_by_agent
    assert {*run.nested} == {*result.nested}
    for call_id, inner in result.nested.items():
        same(inner, run.nested[call_id])


def accounted_for(run: TracedRun) -> None:
    """Each message of the transcript is shown as it is or in another form, or told, summarised or removed."""
    for each in run.calls:
        start = each.start
        shown = {item.id for item in each.items if item.id >= 0}
        forms = {item.stands_for for item in each.items if item.stands_for is not None}
        hidden = [*numbers(start.removed), *numbers(start.summarised), *numbers(start.told)]
        assert len(hidden) == len(set(hidden))
        assert not set(hidden) & (shown | forms)
        known = shown | forms | set(hidden)
        assert known == set(range(len(known)))
