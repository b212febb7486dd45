"""Input filters: what the next agent is to see, as functions of what there is."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock import nest_handoff_history
from routelock._callables import resolve
from routelock.errors import ConfigError
from routelock.history.filters import (
    HandoffInputData,
    HandoffInputFilter,
    as_items,
    compose,
    keep_last,
    last_user_message,
    remove_all_tools,
    tool_results_budget,
)
from routelock.history.messages import ItemKind, Message, RunItem, calls_of, text_of
from routelock.history.validity import problems

pytestmark = pytest.mark.anyio


def item(place: int, message: Any, kind: ItemKind = "model", **more: Any) -> RunItem:
    return RunItem(id=place, kind=kind, message=message, **more)


def call(call_id: str, name: str = "f") -> Any:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


SYSTEM = item(0, {"role": "system", "content": "s"}, "input")
ASKED = item(1, {"role": "user", "content": "Where is it?"}, "input")
WORDS: Message = {
    "role": "assistant",
    "content": "I look.",
    "tool_calls": [call("a")],
    "reasoning_content": "Hm.",
}
LOOKED = item(2, WORDS, origin="anthropic")
FOUND = item(3, {"role": "tool", "tool_call_id": "a", "content": "secret"}, "tool")
MOVED = item(4, {"role": "assistant", "content": None, "tool_calls": [call("t", "transfer_to_b")]})
ACCEPTED = item(5, {"role": "tool", "tool_call_id": "t", "content": '{"assistant": "b"}'}, "handoff")
DATA = HandoffInputData(
    input_history=(SYSTEM, ASKED),
    pre_handoff_items=(LOOKED, FOUND),
    new_items=(MOVED, ACCEPTED),
    source="a",
    target="b",
    arguments={"why": "x"},
    reason="y",
    tool_call_id="t",
)


def messages_of(data: HandoffInputData) -> list[Message]:
    return [one.message for one in data.all_items]


# -- HandoffInputData --


def test_the_data_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        DATA.new_items = ()  # type: ignore[misc]


def test_all_items_are_the_three_parts_in_order() -> None:
    assert [one.id for one in DATA.all_items] == [0, 1, 2, 3, 4, 5]


def test_clone_replaces_only_the_given_parts() -> None:
    cloned = DATA.clone(new_items=())
    assert cloned.new_items == ()
    assert cloned == dataclasses.replace(DATA, new_items=())
    assert DATA.new_items == (MOVED, ACCEPTED)


def test_clone_without_arguments_is_the_same() -> None:
    assert DATA.clone() == DATA


def test_clone_knows_no_other_parts() -> None:
    with pytest.raises(TypeError, match="source"):
        DATA.clone(source="c")  # type: ignore[call-arg]


def test_input_items_replace_the_new_items() -> None:
    """The model's input is replaced; the stored items stay in their part."""
    cloned = DATA.clone(input_items=())
    assert cloned.new_items == (MOVED, ACCEPTED)
    assert cloned.all_items == (SYSTEM, ASKED, LOOKED, FOUND)
    assert cloned.clone(input_items=None).all_items == DATA.all_items


def test_clone_takes_plain_messages_beside_items() -> None:
    note: Message = {"role": "user", "content": "Over to you."}
    cloned = DATA.clone(new_items=[MOVED, ACCEPTED, note])
    assert cloned.new_items[2] == item(5, note, "filter")


def test_clone_takes_text_as_a_user_message() -> None:
    """The history of openai-agents is text or items."""
    text: Any = "Hi"
    assert messages_of(DATA.clone(input_history=text))[0] == {"role": "user", "content": "Hi"}


def test_a_history_that_is_text_is_a_user_message() -> None:
    """However the data is made: its letters are no messages."""
    made: dict[str, Any] = {"input_history": "Hi there", "pre_handoff_items": (), "new_items": ()}
    for data in (HandoffInputData(**made), dataclasses.replace(DATA, **made)):
        assert [one.message for one in data.all_items] == [{"role": "user", "content": "Hi there"}]


@pytest.mark.parametrize("value", [None, b"Hi"])
def test_a_history_that_is_no_list_is_refused_where_it_is_given(value: Any) -> None:
    with pytest.raises(TypeError, match="expected a tuple of items or messages, not"):
        HandoffInputData(input_history=value, pre_handoff_items=(), new_items=())


@pytest.mark.parametrize("part", ["input_history", "pre_handoff_items", "new_items", "input_items"])
@pytest.mark.parametrize(
    "value", ["Hi there", [{"role": "user", "content": "Hi there"}]], ids=["text", "dict"]
)
@pytest.mark.parametrize(
    "over", [remove_all_tools, keep_last(5), tool_results_budget(9), last_user_message, nest_handoff_history]
)
def test_parts_may_be_text_or_plain_messages(part: str, value: Any, over: Any) -> None:
    """As openai-agents makes them; whichever filter is given them."""
    made: dict[str, Any] = {"input_history": (), "pre_handoff_items": (), "new_items": (), part: value}
    shown = [text_of(one.message) for one in over(HandoffInputData(**made)).all_items]
    assert shown[-1:] == ["Hi there"]


def test_text_as_a_history_can_be_nested() -> None:
    data: Any = HandoffInputData(input_history="Hi", pre_handoff_items=(), new_items=())
    nested = nest_handoff_history(data)
    assert [text_of(one.message) for one in nested.all_items][-1] == "Hi"


def test_plain_messages_keep_their_place_in_each_part() -> None:
    """A later nesting handoff sorts by id, so a message must not move before the item that it follows."""
    note: Message = {"role": "user", "content": "note"}
    assert [each.id for each in DATA.clone(input_history=[note]).input_history] == [-1]
    assert DATA.clone(pre_handoff_items=[note]).pre_handoff_items[0].id == ASKED.id
    assert DATA.clone(new_items=[note]).new_items[0].id == FOUND.id
    assert [each.id for each in DATA.clone(input_items=[note]).input_items or ()] == [FOUND.id]
    assert DATA.clone(pre_handoff_items=(), new_items=[note]).new_items[0].id == ASKED.id


def test_plain_assistant_message_keeps_portable_fields() -> None:
    """The author of an assistant message is unknown; a user message is the app's own."""
    assert as_items([WORDS])[0].message == {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [call("a")],
    }
    image: Any = {"role": "user", "content": [{"type": "image_url", "detail": "x"}], "vendor_says": 1}
    assert as_items([image])[0].message == image


def test_message_of_an_earlier_run_keeps_its_family() -> None:
    nudge: Any = {"role": "user", "content": "You repeat yourself.", "_kind": "nudge"}
    marked: Any = {**WORDS, "_origin": "anthropic"}
    assert as_items([marked, nudge], 7) == [
        item(7, WORDS, "filter", origin="anthropic"),
        item(7, {"role": "user", "content": "You repeat yourself."}, "nudge"),
    ]


def test_a_wrong_message_is_named_with_its_place() -> None:
    with pytest.raises(ConfigError, match="Input message 1 has role None"):
        DATA.clone(new_items=[MOVED, {"content": "x"}])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("part", "error"),
    [
        (5, TypeError),
        ({"role": "user", "content": "Hi"}, TypeError),
        ([5], ConfigError),
        ([{"content": "no role"}], ConfigError),
        ([{"role": "bogus", "content": "x"}], ConfigError),
        ([{"role": "assistant", "tool_calls": [{}]}], ConfigError),
        ([None], ConfigError),
    ],
)
def test_a_part_that_cannot_be_shown_is_refused(part: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        DATA.clone(new_items=part)


def test_single_message_is_not_a_part() -> None:
    with pytest.raises(TypeError, match="expected a tuple of items or messages, not dict"):
        as_items({"role": "user", "content": "Hi"})


# -- remove_all_tools --


def test_without_tools_only_words_are_left() -> None:
    assert messages_of(remove_all_tools(DATA)) == [
        SYSTEM.message,
        ASKED.message,
        {"role": "assistant", "content": "I look."},
    ]


def test_item_without_its_calls_keeps_its_id() -> None:
    (words,) = remove_all_tools(DATA).pre_handoff_items
    assert (words.id, words.kind, words.origin) == (LOOKED.id, "model", "anthropic")


def test_items_without_tools_are_not_touched() -> None:
    assert remove_all_tools(DATA).input_history == DATA.input_history
    assert remove_all_tools(DATA).input_history[0] is SYSTEM


def test_remove_all_tools_applies_to_input_items() -> None:
    """It used to leak through there when filters were chained."""
    data = DATA.clone(input_items=[LOOKED, FOUND])
    assert [text_of(one.message) for one in remove_all_tools(data).input_items or ()] == ["I look."]


def test_remove_all_tools_hides_what_a_vendors_tools_did() -> None:
    searched: Any = {"role": "assistant", "content": "Rain.", "vendor_calls": [{"tool": "web_search"}]}
    item = RunItem(id=9, kind="model", message=searched)
    data = DATA.clone(input_items=[item])
    assert [one.message for one in remove_all_tools(data).input_items or ()] == [
        {"role": "assistant", "content": "Rain."}
    ]


def test_remove_all_tools_twice_is_once() -> None:
    once = remove_all_tools(DATA)
    assert remove_all_tools(once) == once


async def test_remove_all_tools_before_and_after_nesting() -> None:
    """A summary is text and stays; tools that are removed before it is made are not in it."""
    after = remove_all_tools(nest_handoff_history(DATA))
    assert "secret" in text_of(after.all_items[1].message)
    before = await resolve(compose(remove_all_tools, nest_handoff_history)(DATA))
    assert "secret" not in text_of(before.all_items[1].message)
    assert "I look." in text_of(before.all_items[1].message)


# -- keep_last --


@pytest.mark.parametrize(
    ("count", "kept"),
    [
        (0, [0]),
        (1, [0, 4, 5]),
        (2, [0, 4, 5]),
        (3, [0, 4, 5]),
        (4, [0, 2, 3, 4, 5]),
        (5, [0, 1, 2, 3, 4, 5]),
        (99, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_keep_last_never_separates_a_call_from_its_answer(count: int, kept: list[int]) -> None:
    """Calls and answers go together, system messages stay."""
    data = keep_last(count)(DATA)
    assert isinstance(data, HandoffInputData)
    assert [one.id for one in data.all_items] == kept


def test_keep_last_leaves_each_item_in_its_part() -> None:
    data = keep_last(4)(DATA)
    assert isinstance(data, HandoffInputData)
    assert (data.input_history, data.pre_handoff_items) == ((SYSTEM,), (LOOKED, FOUND))


def test_keep_last_counts_shown_items() -> None:
    data = keep_last(1)(DATA.clone(input_items=[{"role": "user", "content": "only this"}]))
    assert isinstance(data, HandoffInputData)
    assert [text_of(one.message) for one in data.all_items] == ["s", "only this"]
    assert data.new_items == ()


def test_keep_last_of_a_negative_count_is_refused() -> None:
    with pytest.raises(ConfigError, match="keep_last needs a count of 0 or more, not -1"):
        keep_last(-1)


def test_a_leading_answer_does_not_break_keep_last() -> None:
    data = keep_last(1)(HandoffInputData(input_history=(FOUND,), pre_handoff_items=(), new_items=()))
    assert isinstance(data, HandoffInputData)
    assert data.all_items == (FOUND,)


# -- last_user_message --


def test_only_the_newest_user_message_is_left() -> None:
    later = item(3, {"role": "user", "content": "And now?"}, "input")
    data = last_user_message(DATA.clone(pre_handoff_items=[LOOKED, FOUND, later]))
    assert data.all_items == (SYSTEM, later)


def test_without_user_message_only_system_messages_stay() -> None:
    assert last_user_message(DATA.clone(input_history=[SYSTEM])).all_items == (SYSTEM,)


def test_a_nudge_is_not_the_users_message() -> None:
    """A nudge of the runtime has the user's role; the target needs the user's own question."""
    nudge = item(4, {"role": "user", "content": "You have made the same call 3 times."}, "nudge")
    data = last_user_message(DATA.clone(pre_handoff_items=[LOOKED, FOUND, nudge]))
    assert data.all_items == (SYSTEM, ASKED)


async def test_summary_with_the_users_role_is_not_a_user_message() -> None:
    """Else the whole conversation would cross a handoff that shows only the newest user message."""

    def mapper(messages: list[Message]) -> list[Message]:
        return [{"role": "system", "content": "All of it"}, {"role": "user", "content": "in two messages"}]

    data = last_user_message(nest_handoff_history(DATA, history_mapper=mapper))
    assert data.all_items == (SYSTEM, ASKED)


async def test_last_user_message_after_nesting() -> None:
    data = await resolve(compose(nest_handoff_history, last_user_message)(DATA))
    assert data.all_items == (SYSTEM, ASKED)


# -- compose --


async def test_filters_apply_from_left_to_right_sync_or_async() -> None:
    def mark(text: str, data: HandoffInputData) -> HandoffInputData:
        return data.clone(new_items=[*data.new_items, {"role": "user", "content": text}])

    async def mark_async(data: HandoffInputData) -> HandoffInputData:
        return mark("two", data)

    class Mark:
        async def __call__(self, data: HandoffInputData) -> HandoffInputData:
            return mark("three", data)

    data = await resolve(compose(functools.partial(mark, "one"), mark_async, Mark())(DATA))
    assert [text_of(one.message) for one in data.new_items[2:]] == ["one", "two", "three"]


async def test_composing_nothing_changes_nothing() -> None:
    assert await resolve(compose()(DATA)) is DATA


# -- what must hold always --

CONTENTS = st.one_of(
    st.none(), st.just(""), st.just("words"), st.just([{"type": "image_url"}, {"type": "text", "text": "t"}])
)
_MESSAGES: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        lambda role: {"role": role, "content": "said"}, st.sampled_from(["user", "system", "developer"])
    ),
    st.builds(
        lambda content, ids, more: {
            "role": "assistant",
            "content": content,
            "tool_calls": [call(one) for one in ids],
            **more,
        },
        CONTENTS,
        st.lists(st.sampled_from("abc"), max_size=2, unique=True),
        st.sampled_from(
            [{}, {"thinking_blocks": [{"signature": "x"}]}, {"reasoning_content": "r"}, {"new": 1}]
        ),
    ),
    st.builds(lambda one: {"role": "tool", "tool_call_id": one, "content": "secret"}, st.sampled_from("abc")),
)


def _items(messages: Sequence[Any]) -> tuple[RunItem, ...]:
    return tuple(item(place, message) for place, message in enumerate(messages))


@st.composite
def _data(draw: st.DrawFn) -> HandoffInputData:
    items = _items(draw(st.lists(_MESSAGES, max_size=10)))
    one, two = sorted(draw(st.tuples(st.integers(0, 10), st.integers(0, 10))))
    shown = draw(st.one_of(st.none(), st.lists(_MESSAGES, max_size=3)))
    return HandoffInputData(
        input_history=items[:one],
        pre_handoff_items=items[one:two],
        new_items=items[two:],
        input_items=None if shown is None else _items(shown),
        source="a",
        target="b",
    )


BUILT_IN: list[HandoffInputFilter] = [
    remove_all_tools,
    last_user_message,
    nest_handoff_history,
    *[keep_last(count) for count in (0, 1, 2, 5)],
]
FILTERS = st.lists(st.sampled_from(BUILT_IN), max_size=4)


@given(_data(), FILTERS)
async def test_filters_do_not_change_their_input(
    data: HandoffInputData, filters: list[HandoffInputFilter]
) -> None:
    before = copy.deepcopy(data)
    await resolve(compose(*filters)(data))
    assert data == before


@given(_data(), FILTERS)
async def test_filters_keep_source_and_target(
    data: HandoffInputData, filters: list[HandoffInputFilter]
) -> None:
    """Every field that is not a part survives every filter."""
    after = await resolve(compose(*filters)(data))
    assert (after.source, after.target) == ("a", "b")


@given(_data(), FILTERS)
async def test_after_remove_all_tools_no_tool_is_left(
    data: HandoffInputData, filters: list[HandoffInputFilter]
) -> None:
    """However filters are composed, no call, answer or reasoning of one gets past it."""
    after = await resolve(compose(remove_all_tools, *filters)(data))
    for message in messages_of(after):
        assert message["role"] != "tool"
        assert not calls_of(message)
        assert "secret" not in text_of(message)


@given(_data(), st.integers(0, 8))
def test_keep_last_keeps_pairs_together(data: HandoffInputData, count: int) -> None:
    """A valid history stays valid, except that no message may be left."""
    shown = data.clone(input_history=(), pre_handoff_items=())
    kept = keep_last(count)(shown)
    assert isinstance(kept, HandoffInputData)
    if not problems(messages_of(shown)):
        assert [wrong for wrong in problems(messages_of(kept)) if "nothing to answer" not in wrong] == []


@given(_data(), st.integers(0, 8))
def test_keep_last_is_bounded(data: HandoffInputData, count: int) -> None:
    """More than ``count`` only when a single group is longer than that."""
    kept = keep_last(count)(data)
    assert isinstance(kept, HandoffInputData)
    others = [one for one in messages_of(kept) if one["role"] not in ("system", "developer")]
    assert len(others) <= count or all(one["role"] == "tool" for one in others[1:])
