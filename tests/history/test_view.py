"""A view of a run: what one model call is shown of it, and what filters make of that."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from routelock.errors import HandoffFilterError
from routelock.history.filters import (
    HandoffInputData,
    apply_filter,
    compose,
    keep_last,
    partition,
    remove_all_tools,
)
from routelock.history.messages import ItemKind, Message, RunItem, calls_of, text_of
from routelock.history.nesting import (
    nest_handoff_history,
    reset_conversation_history_wrappers,
)
from routelock.history.portable import portable
from routelock.history.repair import repair
from routelock.history.validity import problems
from routelock.history.view import View

pytestmark = pytest.mark.anyio


START, END = "<CONVERSATION HISTORY>", "</CONVERSATION HISTORY>"


@pytest.fixture(autouse=True)
def _markers() -> Iterator[None]:
    yield
    reset_conversation_history_wrappers()


def item(place: int, message: Any, kind: ItemKind = "model", **more: Any) -> RunItem:
    return RunItem(id=place, kind=kind, message=message, **more)


def call(call_id: str, name: str = "f") -> Any:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def user(place: int, text: Any) -> RunItem:
    return item(place, {"role": "user", "content": text}, "input")


def turn(place: int, call_id: str, text: str, **more: Any) -> list[RunItem]:
    """A model message with one call, and its answer."""
    asks = {"role": "assistant", "content": None, "tool_calls": [call(call_id)]}
    answer = {"role": "tool", "tool_call_id": call_id, "content": text}
    return [item(place, asks, **more), item(place + 1, answer, "tool")]


def data_of(items: Iterable[RunItem]) -> HandoffInputData:
    return HandoffInputData(
        input_history=tuple(items), pre_handoff_items=(), new_items=(), source="a", target="b"
    )


ITEMS = [
    user(0, "Where is it?"),
    *turn(1, "a", "3 results"),
    item(3, {"role": "assistant", "content": "Here."}),
]


# -- View --


def shown(view: View, family: str = "x") -> list[Message]:
    messages, _ = view.messages(family)
    assert problems(messages) == []
    return list(messages)


def test_a_view_shows_its_items_and_those_added_later() -> None:
    view = View(ITEMS[:1])
    assert shown(view) == [ITEMS[0].message]
    for one in ITEMS[1:]:
        view.items.append(one)
    assert shown(view) == [one.message for one in ITEMS]
    assert view.items == ITEMS


def test_asking_again_shows_the_same() -> None:
    view = View(ITEMS)
    assert shown(view) == shown(view)


def test_a_view_can_be_replaced() -> None:
    view = View(ITEMS)
    shown(view)
    view.replace(ITEMS[:1])
    assert shown(view) == [ITEMS[0].message]


def test_view_copies_the_list_of_items() -> None:
    given = list(ITEMS)
    view = View(given)
    view.items.append(user(9, "x"))
    assert given == ITEMS


def test_repairs_are_reported_once() -> None:
    view = View([user(0, "Hi"), turn(1, "a", "x")[0]])
    assert view.messages("x")[1] == ["added a missing answer to tool call 'a'"]
    view.items.append(user(3, "And?"))
    assert not view.messages("x")[1]


def test_private_fields_return_to_their_own_family_only() -> None:
    """Thinking blocks go back to their provider, also after a handoff and a handoff back."""
    thought: Message = {"role": "assistant", "content": "Hm.", "thinking_blocks": [{"signature": "s"}]}
    view = View([user(0, "Hi"), item(1, thought, origin="anthropic")])
    assert shown(view, "anthropic")[1] is thought
    assert shown(view, "openai")[1] == {"role": "assistant", "content": "Hm."}
    assert shown(view, "anthropic")[1] is thought


def test_message_of_unknown_origin_is_unchanged() -> None:
    thought: Message = {"role": "assistant", "content": "Hm.", "reasoning_content": "r"}
    assert shown(View([item(0, thought)]))[0] is thought


def test_empty_reply_is_not_in_later_requests() -> None:
    """The run asks again when an output is not valid; providers refuse an empty assistant message."""
    view = View([user(0, "Hi")])
    shown(view)
    view.items.append(item(1, {"role": "assistant", "content": ""}))
    view.items.append(item(2, {"role": "user", "content": "Your answer is not valid"}, "nudge"))
    assert [message["role"] for message in shown(view)] == ["user", "user"]


def test_repeated_call_id_is_replaced_in_a_request() -> None:
    view = View([user(0, "Hi"), *turn(1, "a", "1"), *turn(3, "a", "2")])
    assert [message.get("tool_call_id") for message in shown(view)] == [None, None, "a", None, "a_2"]
    for one in turn(5, "a_2", "3"):
        view.items.append(one)
    assert [text_of(message) for message in shown(view)[2::2]] == ["1", "2", "3"]


_CALL_IDS = st.sampled_from(["a", "b", "a_2", "call_1", ""])


_ANY: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["user", "system", "assistant"]).map(lambda role: {"role": role, "content": "said"}),
    st.just({"role": "assistant", "content": ""}),
    st.lists(_CALL_IDS, min_size=1, max_size=2).map(
        lambda ids: {
            "role": "assistant",
            "content": None,
            "tool_calls": [call(one) for one in ids],
            "thinking_blocks": [{}],
        }
    ),
    _CALL_IDS.map(lambda one: {"role": "tool", "tool_call_id": one, "content": "42"}),
)


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "replace"]), st.lists(_ANY, max_size=4), st.sampled_from("xy")
    ),
    max_size=6,
)


@given(_STEPS)
@example(
    [
        ("add", [{"role": "assistant", "content": ""}], "x"),
        ("add", [{"role": "user", "content": "said"}], "x"),
    ]
)
def test_growing_view_equals_a_fresh_rendering(
    steps: list[tuple[str, list[Any], str]],
) -> None:
    """Rendering only the new items is an optimisation that never changes the result."""
    view = View([])
    place = 0
    for how, messages, family in steps:
        new = [item(place + offset, message, origin="x") for offset, message in enumerate(messages)]
        place += len(new)
        if how == "replace":
            view.replace(new)
        else:
            for one in new:
                view.items.append(one)
        afresh = [one.message if family == "x" else portable(one.message) for one in view.items]
        assert shown(view, family) == repair(afresh)[0]


# -- partition --


def test_filter_parts_begin_where_run_and_turn_began() -> None:
    """Before the run, before the turn, and the turn itself."""
    items = [user(0, "Hi"), user(1, "Again"), *turn(2, "a", "x"), *turn(4, "t", "y")]
    history, before, new = partition(items, 2, 4)
    assert ([one.id for one in history], [one.id for one in before], [one.id for one in new]) == (
        [0, 1],
        [2, 3],
        [4, 5],
    )


async def test_summary_and_items_before_it_are_history() -> None:
    nested = nest_handoff_history(data_of(ITEMS))
    note = item(-1, {"role": "user", "content": "note"}, "filter")
    history, before, new = partition([*nested.all_items, note, *turn(7, "t", "x")], 1, 7)
    assert history == (*nested.all_items, note)
    assert (before, [one.id for one in new]) == ((), [7, 8])


def test_the_parts_keep_an_order_that_a_filter_chose() -> None:
    """A second filter that changes nothing does not undo the first one."""
    items = [user(1, "Again"), *turn(2, "a", "x"), user(0, "Hi"), *turn(4, "t", "y")]
    history, before, new = partition(items, 2, 4)
    assert [[one.id for one in part] for part in (history, before, new)] == [[1], [2, 3, 0], [4, 5]]


@given(st.lists(st.tuples(st.integers(-1, 6), st.booleans())), st.integers(0, 6), st.integers(0, 6))
def test_the_parts_are_the_view_in_its_order(view: list[tuple[int, bool]], run: int, began: int) -> None:
    items = [item(place, {"role": "user"}, "summary" if summary else "tool") for place, summary in view]
    history, before, new = partition(items, run, began)
    assert [*history, *before, *new] == items
    assert all(one.id >= began for one in new)


# -- apply_filter --


async def test_a_filters_items_are_the_new_view() -> None:
    assert await apply_filter(keep_last(1), data_of(ITEMS), "f") == ITEMS[-1:]


async def test_filter_that_raises_is_named_in_the_error() -> None:
    """Never the unfiltered history: the filter may be there to hide it."""

    def broken(data: HandoffInputData) -> HandoffInputData:
        raise KeyError("oops")

    with pytest.raises(
        HandoffFilterError, match="Input filter 'mine' raised on handoff 'a' -> 'b'"
    ) as caught:
        await apply_filter(broken, data_of(ITEMS), "mine")
    assert "KeyError: 'oops'" in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


async def _forgot(data: HandoffInputData) -> Any:
    data.clone(new_items=())


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda data: {"new_items": []}, "must return a HandoffInputData, not dict"),
        (lambda data: list(data.all_items), "must return a HandoffInputData, not list"),
        (_forgot, "must return a HandoffInputData, not NoneType"),
        (
            lambda data: dataclasses.replace(data, new_items=5),
            "expected a tuple of items or messages, not int",
        ),
        (lambda data: dataclasses.replace(data, new_items=(5,)), "must be a dict with a role, not int"),
        (lambda data: dataclasses.replace(data, new_items=("text",)), "must be a dict with a role, not str"),
        (lambda data: dataclasses.replace(data, new_items=({"content": "x"},)), "has role None"),
        (lambda data: data.clone(new_items=[{"role": "human", "content": "x"}]), "has role 'human'"),
        (lambda data: data.clone(new_items=[dataclasses.replace(ITEMS[0], message="x")]), "must be a dict"),
        (
            lambda data: data.clone(
                new_items=[dataclasses.replace(ITEMS[0], message={"role": "user", "content": 5})]
            ),
            "content must be text",
        ),
        (lambda data: compose(_forgot, remove_all_tools)(data), "raised on handoff"),
    ],
)
async def test_wrong_result_of_a_filter_is_named_in_the_error(wrong: Any, says: str) -> None:
    with pytest.raises(HandoffFilterError, match="'f'") as caught:
        await apply_filter(wrong, data_of(ITEMS), "f")
    assert says in str(caught.value)


def _in_place(data: HandoffInputData) -> HandoffInputData:
    for one in data.all_items:
        one.message["content"] = "REDACTED"
        for made in calls_of(one.message):
            made["function"]["arguments"] = "REDACTED"
    return data


@pytest.mark.parametrize("nested", [False, True])
async def test_edit_in_place_by_a_filter_changes_only_the_view(nested: bool) -> None:
    """Filters never change the transcript, and a hidden item stays hidden."""
    data = nest_handoff_history(data_of(ITEMS)) if nested else data_of(ITEMS)
    before = copy.deepcopy(data)
    view = await apply_filter(_in_place, data, "f")
    assert data == before
    assert all(one.message.get("content") == "REDACTED" for one in view)
    again = nest_handoff_history(data_of(view))
    assert "3 results" not in repr([one.message for one in again.all_items])


async def test_summary_edited_by_a_filter_is_not_unfolded_by_the_next() -> None:
    """Also when the next one unfolds a summary."""
    nested = nest_handoff_history(data_of(ITEMS))
    view = await apply_filter(compose(_in_place, nest_handoff_history), nested, "f")
    assert "3 results" not in repr([one.message for one in view])


async def test_unchanged_items_are_the_transcripts_own_objects() -> None:
    nested = nest_handoff_history(data_of(ITEMS))
    view = await apply_filter(lambda data: data, nested, "f")
    assert all(new is old for new, old in zip(view, nested.all_items, strict=True))


async def test_later_edits_of_a_filter_do_not_reach_the_view() -> None:
    kept: list[Message] = []

    def keeps(data: HandoffInputData) -> HandoffInputData:
        note: Message = {"role": "user", "content": "note"}
        edited = dataclasses.replace(data.all_items[0], message={"role": "user", "content": "edited"})
        kept.extend([note, edited.message, data.all_items[1].message])
        return data.clone(input_history=[edited, *data.input_history[1:], note])

    view = await apply_filter(keeps, data_of(ITEMS), "f")
    before = copy.deepcopy(view)
    for message in kept:
        message["content"] = "later"
    assert view == before


async def test_private_keys_that_a_filter_writes_are_not_sent() -> None:
    def noted(data: HandoffInputData) -> HandoffInputData:
        for one in data.all_items:
            cast("dict[str, Any]", one.message).update(_note=1, _origin="x", _kind="nudge")
        return data

    assert await apply_filter(noted, data_of(ITEMS), "f") == ITEMS


async def test_own_filters_get_no_copies() -> None:
    given: list[RunItem] = []

    def sees(data: HandoffInputData) -> HandoffInputData:
        given.extend(data.all_items)
        return data

    await apply_filter(sees, data_of(ITEMS), "f", own=True)
    assert all(new is old for new, old in zip(given, ITEMS, strict=True))


async def test_input_items_are_copied_for_a_filter() -> None:
    data = dataclasses.replace(data_of(ITEMS[:1]), new_items=(ITEMS[1],), input_items=(ITEMS[3],))
    assert await apply_filter(_in_place, data, "f") != [ITEMS[0], ITEMS[3]]
    assert await apply_filter(lambda same: same, data, "f") == [ITEMS[0], ITEMS[3]]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda data: data.clone(new_items=[5]),
        lambda data: dataclasses.replace(data, new_items=(5,)),
        lambda data: dataclasses.replace(data, new_items=({"role": "x"},)),
        lambda data: 1 / 0,
        lambda data: next(iter(())),
    ],
)
async def test_errors_of_filters_are_sentences(wrong: Any) -> None:
    with pytest.raises(HandoffFilterError) as caught:
        await apply_filter(wrong, data_of(ITEMS), "f")
    assert ".." not in str(caught.value)
    assert ": ." not in str(caught.value)
    assert str(caught.value).endswith(".")


def _no_map(messages: list[Message]) -> list[Message]:
    raise KeyError("oops.")


@pytest.mark.parametrize(
    ("mapper", "says"),
    [
        (_no_map, " raised on handoff 'a' -> 'b': KeyError: 'oops.'. The run stopped"),
        (lambda messages: 5, " on handoff 'a' -> 'b': expected a tuple of items or messages, not int."),
        (
            lambda messages: [5],
            " on handoff 'a' -> 'b': Input message 0 must be a dict with a role, not int.",
        ),
    ],
)
async def test_a_mapper_is_called_a_mapper_in_its_error(mapper: Any, says: str) -> None:
    """The error does not mention an input filter, because the app has none."""
    with pytest.raises(HandoffFilterError) as caught:
        await apply_filter(
            lambda data: nest_handoff_history(data, history_mapper=mapper), data_of(ITEMS), "nest"
        )
    assert str(caught.value).startswith(f"The history mapper of nest_handoff_history{says}")
    assert caught.value.__cause__ is not None


async def test_async_generator_is_not_a_filter() -> None:
    async def generator(data: HandoffInputData) -> Any:
        yield data

    with pytest.raises(HandoffFilterError, match="not async_generator"):
        await apply_filter(generator, data_of(ITEMS), "f")


async def test_cancelled_filter_is_not_a_filter_error() -> None:
    with anyio.move_on_after(0) as scope:

        async def slow(data: HandoffInputData) -> HandoffInputData:
            await anyio.sleep_forever()
            return data

        await apply_filter(slow, data_of(ITEMS), "f")
    assert scope.cancelled_caught
