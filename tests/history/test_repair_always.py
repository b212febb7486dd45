"""Any transcript through any filters, trimmings and nestings: what a model is shown is valid for all vendors.

This is the property in full. `test_repair` has the rules one by one.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples
from view_checks import refused_by

from routelock import Agent, Runner
from routelock.history.filters import (
    HandoffInputData,
    HandoffInputFilter,
    apply_filter,
    compose,
    keep_last,
    last_user_message,
    partition,
    remove_all_tools,
)
from routelock.history.messages import Message, RunItem
from routelock.history.nesting import nest_handoff_history
from routelock.history.notes import Audience, with_notes
from routelock.history.portable import portable
from routelock.history.repair import repair
from routelock.history.validity import problems
from routelock.history.view import View
from routelock.testing import ScriptedHandler

T = TypeVar("T")

QUICK = examples(60)

# -- transcripts: whatever an app, a model, a crash or another library may have left behind --

IDS = st.sampled_from(["a", "b", "c", "a_2", "call_1", "call", "", "x" * 70])
NAMES = st.sampled_from(["look", "transfer_to_b", "transfer_to_a", "gone", "a.b"])
TEXTS = st.sampled_from(["", " ", "Hi", "<CONVERSATION HISTORY>\n1. {}", "\u2028 \udcff"])
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
PARTS = st.lists(
    st.sampled_from([{"type": "text", "text": "part"}, {"type": "text", "text": ""}, IMAGE]), max_size=2
)
THOUGHTS = st.sampled_from(
    [
        {},
        {"thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]},
        {"reasoning_content": "Hm."},
        {"refusal": "No."},
        {"tool_calls": []},
    ]
)


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    arguments = draw(st.sampled_from(["", "{}", '{"at": 1}', "[1", '{"reason": "x"}']))
    call: dict[str, Any] = {"type": "function", "function": {"name": draw(NAMES), "arguments": arguments}}
    if draw(st.booleans()):
        call["provider_specific_fields"] = {"thought_signature": "s"}
    return call | draw(st.sampled_from([{}, {"id": None}]) | IDS.map(lambda one: {"id": one}))


MESSAGES: st.SearchStrategy[Any] = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, TEXTS | PARTS),
    st.builds(
        lambda role, text: {"role": role, "content": text}, st.sampled_from(["system", "developer"]), TEXTS
    ),
    st.builds(lambda text, more: {"role": "assistant", "content": text, **more}, TEXTS | st.none(), THOUGHTS),
    st.builds(
        lambda text, more, made: {"role": "assistant", "content": text, **more, "tool_calls": made},
        TEXTS | st.none(),
        THOUGHTS,
        st.lists(calls(), max_size=3),
    ),
    st.builds(
        lambda call_id, text: {"role": "tool", "tool_call_id": call_id, "content": text},
        IDS,
        TEXTS | PARTS | st.none(),
    ),
)


@st.composite
def turns(draw: st.DrawFn) -> list[Any]:
    """A message with calls and an answer to each, in any order."""
    ids = draw(st.lists(IDS, min_size=1, max_size=3, unique=True))
    made = [{**draw(calls()), "id": one} for one in ids]
    asks = {"role": "assistant", "content": draw(TEXTS | st.none()), **draw(THOUGHTS), "tool_calls": made}
    answers = [{"role": "tool", "tool_call_id": one, "content": draw(TEXTS | PARTS)} for one in ids]
    return [asks, *draw(st.permutations(answers))]


@st.composite
def nearly_sound(draw: st.DrawFn) -> list[Any]:
    """What a run left behind, with a message or two lost, doubled or out of place."""
    blocks = draw(st.lists(turns() | MESSAGES.map(lambda message: [message]), max_size=4))
    messages = [message for block in blocks for message in block]
    for _ in range(draw(st.integers(0, 2)) if messages else 0):
        place = draw(st.integers(0, len(messages) - 1))
        what = draw(st.sampled_from(["lose", "double", "move"]))
        message = messages[place] if what == "double" else messages.pop(place)
        if what != "lose":
            messages.insert(draw(st.integers(0, len(messages))), message)
        if not messages:
            break
    return messages


TRANSCRIPTS = st.lists(MESSAGES, max_size=8) | nearly_sound()
AGENTS = st.sampled_from([None, "a", "b"])
ORIGINS = st.sampled_from([None, "anthropic", "deepseek"])


def items_of(messages: Sequence[Any], place: int, agent: str | None, origin: str | None) -> list[RunItem]:
    kinds: dict[str, Any] = {"assistant": "model", "tool": "tool"}
    return [
        RunItem(
            id=place + index,
            kind=kinds.get(message["role"], "input"),
            message=message,
            agent=agent if message["role"] in kinds else None,
            origin=origin if message["role"] == "assistant" else None,
        )
        for index, message in enumerate(messages)
    ]


# -- filters: ours, and what people write --


def over_all(change: Callable[[list[RunItem]], list[RunItem]]) -> HandoffInputFilter:
    """A filter that changes the view as a whole."""
    return lambda data: data.clone(
        input_history=(), pre_handoff_items=(), new_items=change(list(data.all_items))
    )


def reworded(item: RunItem) -> RunItem:
    return dataclasses.replace(item, message={**item.message, "content": "[hidden]"})


def renamed(item: RunItem) -> RunItem:
    """Every answer answers another call."""
    if item.message["role"] != "tool":
        return item
    return dataclasses.replace(item, message={**item.message, "tool_call_id": "c"})


OURS: list[HandoffInputFilter] = [
    nest_handoff_history,
    lambda data: nest_handoff_history(data, keep_last_user=False),
    lambda data: nest_handoff_history(data, history_mapper=lambda messages: messages[-2:]),
    remove_all_tools,
    last_user_message,
    compose(remove_all_tools, nest_handoff_history),
]
THEIRS: list[HandoffInputFilter] = [
    over_all(lambda items: items[::-1]),
    over_all(lambda items: items * 2),
    over_all(lambda items: items[::2]),
    over_all(lambda items: [reworded(item) for item in items]),
    over_all(lambda items: [renamed(item) for item in items]),
    over_all(lambda items: [item for item in items if item.message["role"] != "tool"]),
    over_all(lambda items: [item for item in items if item.message["role"] != "assistant"]),
    over_all(lambda items: [item for item in items if item.message["role"] != "user"]),
    lambda data: data.clone(new_items=[*data.new_items, {"role": "user", "content": "note"}]),
    lambda data: data.clone(input_items=[{"role": "assistant", "content": "summed up"}]),
    lambda data: data.clone(input_history=(), pre_handoff_items=(), new_items=()),
]
SLICES = st.tuples(st.integers(-4, 4), st.integers(-4, 4)).map(
    lambda ends: over_all(lambda items: items[ends[0] : ends[1] or None])
)
FILTERS = st.sampled_from(OURS) | st.sampled_from(THEIRS) | SLICES | st.builds(keep_last, st.integers(0, 5))
HOPS = st.lists(
    st.tuples(TRANSCRIPTS, AGENTS, ORIGINS, st.lists(FILTERS, max_size=3)), min_size=1, max_size=3
)
READERS = st.sampled_from(
    [
        None,
        Audience(agent="a", can_call=["look", "transfer_to_b"]),
        Audience(agent="b", can_call=[], is_handler=True, transfers={"a": ("b", True), "b": ("b", False)}),
    ]
)


def _knows_no_transfers(audience: Audience | None) -> bool:
    """The repairs that an audience knows were made before new items were added."""
    return audience is None or not audience.transfers


FAMILIES = st.sampled_from(["openai", "anthropic"])


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, without an event loop for each example."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waited for something")


def after(hops: Sequence[Any]) -> View:
    """The view that is left when each of these stretches was followed by a handoff with these filters."""
    view, place = View([]), 0
    for messages, agent, origin, filters in hops:
        for item in items_of(copy.deepcopy(messages), place, agent, origin):
            view.items.append(item)
            place = item.id + 1
        for each in filters:
            history, before, new = partition(view.items, 1, max(0, place - 2))
            data = HandoffInputData(input_history=history, pre_handoff_items=before, new_items=new)
            view.replace(at_once(apply_filter(each, data, "f")))
    return view


def unrepaired(view: View, family: str, audience: Audience | None) -> list[Message]:
    """What would be shown if nothing were repaired."""
    items = view.items if audience is None else with_notes(view.items, audience)
    return [item.message if item.origin in (None, family) else portable(item.message) for item in items]


@QUICK
@given(HOPS, FAMILIES, READERS)
def test_whatever_filters_leave_is_made_valid_for_every_vendor(
    hops: Any, family: str, audience: Audience | None
) -> None:
    view = after(hops)
    shown, notes = view.messages(family, audience)
    assert problems(shown) == []
    assert refused_by(shown, ()) == []
    again, more = repair(shown)
    assert more == []
    assert all(one is two for one, two in zip(again, shown, strict=True))
    before = unrepaired(view, family, audience)
    assert bool(notes) == bool(problems(before)) == (before != shown)
    if not notes:
        assert json.dumps(before) == json.dumps(shown)


@QUICK
@given(HOPS, st.lists(turns() | TRANSCRIPTS, max_size=3), FAMILIES, READERS.filter(_knows_no_transfers))
def test_growing_view_equals_a_fresh_view(
    hops: Any, more: list[list[Any]], family: str, audience: Audience | None
) -> None:
    """Whether by whole turns of the agent that reads it, as in a run, or by whatever."""
    view = after(hops)
    for stretch in more:
        view.messages(family, audience)
        place = max((item.id for item in view.items), default=0) + 1
        for item in items_of(stretch, place, audience.agent if audience else "a", "anthropic"):
            view.items.append(item)
    assert view.messages(family, audience)[0] == View(view.items).messages(family, audience)[0]


@QUICK
@given(TRANSCRIPTS.filter(bool))
def test_a_poisoned_session_resumes(stored: list[Any]) -> None:
    """Any stored history is repaired, and what a run stores is valid from then on (pydantic-ai 4728)."""
    model = ScriptedHandler(["Hello.", "Hello again."])
    agent = Agent("a", model=model)
    first = Runner.run_sync(agent, stored)
    assert first.final_output == "Hello."
    second = Runner.run_sync(agent, [*first.to_input_list(), {"role": "user", "content": "And?"}])
    assert second.final_output == "Hello again."
    for request in model.requests:
        assert refused_by(request.messages, ()) == []
