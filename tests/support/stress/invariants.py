"""What holds for every run, whatever its agents, models, tools and filters did (docs/design.md)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from stress.world import Asked, World
from view_checks import refused_by

from routelock import HandoffRecord, RunResult
from routelock.errors import RoutelockError
from routelock.handoff_request import HandoffStatus
from routelock.history.messages import calls_of
from routelock.history.portable import portable
from routelock.history.validity import says_nothing
from routelock.testing import assert_valid
from routelock.usage import Usage

QUOTING = ("Your answer is not valid",)
"""What begins like this says again what was said."""

__all__ = ["check_left", "check_requests", "check_run", "check_totals"]

MARK = re.compile(r"~[0-9a-f]{12}~")


def check_requests(world: World) -> None:
    """Every request that a handler was given is one that a provider accepts."""
    for asked in world.asked:
        request = asked.request
        assert_valid(request.messages)
        # what says nothing to other vendors is not shown to them at all
        shown = [message for message in request.messages if not says_nothing(portable(message))]
        refused = refused_by(shown, request.tools)
        assert not refused, refused
        wire = json.dumps([*request.messages, *request.tools], ensure_ascii=False, default=_no_json)
        wire.encode(errors="surrogatepass")  # providers replace half a pair
        names = [tool["function"]["name"] for tool in request.tools]
        assert len(names) == len(set(names)), names
        assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names), names
        assert not any(key.startswith("_") for message in request.messages for key in message)
        if request.tool_choice not in (None, "auto", "none", "required"):
            assert request.tool_choice in names
        if not world.hostile:
            _each_once(asked)


def _no_json(value: object) -> str:
    raise AssertionError(f"{value!r:.80} is no JSON")


def _each_once(asked: Asked) -> None:
    """No item is shown twice. What a call passes along may be quoted by its answer, so words count only."""
    shown: list[str] = []
    for message in asked.request.messages:
        if not str(message.get("content")).startswith(QUOTING):
            found = MARK.findall(json.dumps(message.get("content"), ensure_ascii=False))
            shown += dict.fromkeys(found)
    twice = [mark for mark, count in Counter(shown).items() if count > 1]
    assert not twice, f"shown twice: {twice}"


def check_run(
    world: World, result: RunResult[Any], error: Exception | None, *, max_turns: int | None, most: int | None
) -> None:
    """Check one run by what it left behind; those within it have their own checks.

    Args:
        world: where it was played.
        result: complete or partial.
        error: what it raised, if it did.
        max_turns: its limit.
        most: its ``max_handoffs``.
    """
    if error is not None:
        assert isinstance(error, RoutelockError), repr(error)
        assert error.result is not None
    assert [item.id for item in result.items] == list(range(len(result.items)))
    _calls_are_answered(result, done=error is None and result.stop_reason == "done")
    _limits_hold(result, max_turns, most)
    _records_agree(result, done=error is None and result.stop_reason == "done")
    _ends_well(result, error)
    for inner in _nested(result):
        _calls_are_answered(inner, done=inner.stop_reason == "done")
        _records_agree(inner, done=inner.stop_reason == "done")
    assert all(count == 1 for count in world.begun.values()), world.begun


def _nested(result: RunResult[Any], *, summaries: bool = True) -> Iterator[RunResult[Any]]:
    for key, inner in result.nested.items():
        if summaries or ".summary." not in key:
            yield inner
        yield from _nested(inner, summaries=summaries)


def _calls_are_answered(result: RunResult[Any], *, done: bool) -> None:
    made = [call["id"] for item in result.new_items for call in calls_of(item.message)]
    answers = Counter(
        item.message.get("tool_call_id") for item in result.new_items if item.message["role"] == "tool"
    )
    assert all(made), made
    assert len(made) == len(set(made)), f"an id twice: {made}"
    assert all(count == 1 for count in answers.values()), answers
    assert answers.keys() <= {*made}, "an answer without a call"
    if done:
        assert answers.keys() == {*made}, f"not answered: {set(made) - answers.keys()}"
    order = [answer for answer in answers if answer is not None]
    asked_of = {item.message.get("tool_call_id"): item.asked_by for item in result.new_items}
    direct = [call_id for call_id in made if call_id in answers and not asked_of.get(call_id)]
    plain = [call_id for call_id in order if not asked_of.get(call_id)]
    if not any(record.request and _waits(record) for record in result.handoffs):
        assert plain == direct, "the answers are not in the order of the calls"
    history = result.to_input_list()
    if not result.pending:
        assert_valid(history)
    json.dumps(history, default=_no_json)
    assert {call["id"] for call in result.pending} <= {*made}
    assert bool(result.pending) == (result.stop_reason == "requires_action")


def _waits(record: HandoffRecord) -> bool:
    return record.taken  # its answer may come later


def _limits_hold(result: RunResult[Any], max_turns: int | None, most: int | None) -> None:
    turns = {call.turn for call in result.calls}
    within = sum(len({call.turn for call in inner.calls}) for inner in _nested(result, summaries=False))
    assert max_turns is None or len(turns) + within <= max_turns, (len(turns), within)
    assert turns == set(range(1, len(turns) + 1))
    taken = sum(record.taken for record in result.handoffs)
    assert most is None or taken <= most, taken


def _records_agree(result: RunResult[Any], *, done: bool) -> None:
    made = {call["id"] for item in result.new_items for call in calls_of(item.message)}
    ids = [record.id for record in result.handoffs]
    assert len(ids) == len(set(ids)), ids
    for record in result.handoffs:
        assert record.call_id in made, record
        assert record.status is not HandoffStatus.PENDING, record
        assert record.ended is not None, record
        assert record.parent_id is None or record.parent_id in ids, record
        assert record.taken or record.error, record
        if done and record.taken:
            assert record.status is not HandoffStatus.ACCEPTED, record
        if record.usage is not None:
            assert record.usage.input_tokens <= result.usage.input_tokens
            assert record.usage.output_tokens <= result.usage.output_tokens


def _ends_well(result: RunResult[Any], error: Exception | None) -> None:
    reasons = ("done", "requires_action", "limit") if error is None else ("error",)
    assert result.stop_reason in reasons, (result.stop_reason, error)
    if result.stop_reason == "done":
        assert result.final_output is not None
        assert result.items[-1].message["role"] == "assistant"


def check_totals(world: World, result: RunResult[Any], *, left: bool = False) -> None:
    """The usage is that of all replies, and each agent's share adds up to it.

    The result of a tool in a thread is lost if the run was left before (docs/tool-calls.md).
    """
    assert sum(result.usage_by_agent.values(), Usage()) == result.usage
    by_tools = world.tool_usage
    if left and world.threads:  # they all say the same
        by_tools = by_tools[: max(0, result.usage.requests - len(world.asked))]
    told = [*(asked.usage for asked in world.asked if asked.usage), *by_tools]
    assert result.usage.input_tokens == sum(usage.input_tokens for usage in told)
    assert result.usage.output_tokens == sum(usage.output_tokens for usage in told)
    asked = len(world.asked) + sum(usage.requests for usage in by_tools)
    assert result.usage.requests == asked, f"{result.usage} for {asked} calls"
    assert not +world.open, f"still at work: {+world.open}"


def check_left(world: World, result: RunResult[Any], whole: Sequence[Any]) -> None:
    """A run that was left or cancelled did what the whole run did, up to that point."""
    check_requests(world)
    check_totals(world, result, left=True)
    history = result.to_input_list()
    if not result.pending:
        assert_valid(history)
    messages = [item.message for item in result.items]
    replies = [place for place, item in enumerate(result.items) if item.kind == "model"]
    until = replies[-1] if replies else len(messages)  # of the last turn something may be missing
    assert messages[:until] == list(whole[:until])
