"""Agents that are called as tools begin and end once each."""

from __future__ import annotations

from typing import Any

from routelock.run.events import AgentUpdated, NestedEvent
from routelock.serving.ag_ui.subagents import Subagents


def told(*calls: str, path: str = "inner") -> NestedEvent:
    return NestedEvent(path=("outer", path), call_ids=calls, event=AgentUpdated(path))


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def test_a_sub_run_begins_once() -> None:
    subagents = Subagents()
    first, second = subagents.take(told("c"), {"c": "shown"}), subagents.take(told("c"), {})
    assert kinds(first) == ["SUBAGENT_STARTED"]
    assert first[0]["parentToolCallId"] == "shown"
    assert second == []


def test_a_sub_run_within_another_names_it() -> None:
    subagents = Subagents()
    [outer] = subagents.take(told("c"), {})
    [inner] = subagents.take(told("c", "d"), {"c": "shown"})
    assert inner["parentSubagentRunId"] == outer["subagentRunId"]
    assert "parentToolCallId" not in inner


def test_a_call_with_a_result_ends_its_sub_runs_the_innermost_first() -> None:
    subagents = Subagents()
    begun = [subagents.take(told(*calls), {})[0] for calls in (("c",), ("c", "d"), ("e",))]
    ended = subagents.end("c")
    assert kinds(ended) == ["SUBAGENT_ERROR"] * 2
    assert [each["subagentRunId"] for each in ended] == [
        each["subagentRunId"] for each in (begun[1], begun[0])
    ]
    assert [each["subagentRunId"] for each in subagents.end_all()] == [begun[2]["subagentRunId"]]
    assert subagents.end_all() == []
