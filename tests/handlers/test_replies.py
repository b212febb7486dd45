"""What can be taken as a model's reply, and the ids of its calls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock.handlers.events import MessageDone
from routelock.handlers.replies import is_empty, is_sound, reply_problem, with_unique_ids
from routelock.history.messages import ToolCall, calls_of
from routelock.testing import call


def done(*calls: ToolCall) -> MessageDone:
    return MessageDone(message={"role": "assistant", "tool_calls": list(calls)})


@pytest.mark.parametrize(
    ("ids", "used", "expected"),
    [
        (["a", "b"], [], ["a", "b"]),
        (["", ""], [], ["call_3_0", "call_3_1"]),
        (["a", "a"], [], ["a", "call_3_1"]),
        (["a"], ["a"], ["call_3_0"]),
        (["a", "a", "a"], ["a"], ["call_3_0", "call_3_1", "call_3_2"]),
        ([""], ["call_3_0"], ["call_3_0_2"]),
        (["call_3_1", ""], [], ["call_3_1", "call_3_1_2"]),
    ],
)
def test_call_ids_differ_from_all_before(ids: list[str], used: list[str], expected: list[str]) -> None:
    """By turn and place, so that a replayed run makes the same."""
    reply = done(*(call("f", id=each) for each in ids))
    taken = set(used)
    renamed, _ = with_unique_ids(reply, 3, taken)
    assert [made["id"] for made in calls_of(renamed.message)] == expected
    assert taken == {*used, *expected}
    assert (renamed is reply) == (ids == expected)


ids = st.sampled_from(["", "a", "call_1_0", "call_1_1", "call_0", "call_2_0", "a_1"])


@given(st.lists(st.lists(ids, max_size=4), max_size=4))
def test_no_two_calls_of_a_run_share_an_id(turns: list[list[str]]) -> None:
    used: set[str] = set()
    seen: list[str] = []
    for turn, each in enumerate(turns, 1):
        reply = done(*(call("f", id=one) for one in each))
        seen += [made["id"] for made in calls_of(with_unique_ids(reply, turn, used)[0].message)]
    assert len(set(seen)) == len(seen) == sum(map(len, turns))
    assert "" not in seen


def calling(made: Any) -> Any:
    return {"role": "assistant", "content": None, "tool_calls": [made]}


def test_a_reply_without_calls_is_not_copied() -> None:
    reply = MessageDone(message={"role": "assistant", "content": "Hi"})
    assert with_unique_ids(reply, 1, set())[0] is reply


def test_what_a_call_lacks_is_filled_in() -> None:
    """What is echoed to the provider in the next request must be something that it takes."""
    bare: Any = {"id": 5, "function": {"name": None, "arguments": None, "extra": 1}}
    (made,) = calls_of(with_unique_ids(done(bare), 1, set())[0].message)
    function = {"name": "", "arguments": "{}", "extra": 1}
    assert made == {"id": "call_1_0", "type": "function", "function": function}


@pytest.mark.parametrize("odd", [{}, [], 0, False, None])
def test_arguments_that_are_nothing_become_an_empty_object(odd: Any) -> None:
    called: Any = {"id": "a", "function": {"name": "f", "arguments": odd}}
    (made,) = calls_of(with_unique_ids(done(called), 1, set())[0].message)
    assert made["function"]["arguments"] == "{}"


def test_a_reply_sets_none_of_the_keys_that_are_routelocks_own() -> None:
    message: Any = {"role": "assistant", "content": "Hi", "_kind": "nudge", "_agent": "B", "citations": [1]}
    taken, _ = with_unique_ids(MessageDone(message=message), 1, set())
    assert taken.message == {"role": "assistant", "content": "Hi", "citations": [1]}


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        ({"role": "assistant", "content": "Hi"}, None),
        (calling(call("f")), None),
        (calling({"id": "a", "function": {"name": "f", "arguments": None}}), None),
        ({"role": "user", "content": "Hi"}, "role 'user' instead of 'assistant'"),
        ({"content": "Hi"}, "role None instead of 'assistant'"),
        (calling({"id": "a"}), "a tool call without a function"),
        (calling({"function": {"arguments": {}}}), None),
        (calling({"function": {"arguments": [1]}}), "a name or arguments that are not text"),
        (calling(5), "a tool call without a function"),
        ({"role": "assistant", "content": 5}, "content that is neither text nor parts"),
        ({"role": "assistant", "content": ["Hi"]}, "content with a part that is not a dict"),
        ({"role": "assistant", "tool_calls": {"a": 1}}, "tool calls that are not a list"),
        ({"role": "assistant", "content": "Hi", 5: 1}, "a key that is not text"),
        ("Hi", "'Hi' instead of a message"),
        (None, "None instead of a message"),
    ],
)
def test_what_is_wrong_with_a_reply(message: Any, wrong: str | None) -> None:
    found = reply_problem(message)
    assert found is None if wrong is None else str(found).startswith(wrong)


def test_a_number_that_is_none_becomes_null() -> None:
    """Whoever wrote the reply: nobody could send it back, or keep it."""
    odd = {**call("f", id="a"), "x": float("nan")}
    message: Any = {"role": "assistant", "tool_calls": [odd], "content": [{"type": "x", "y": float("-inf")}]}
    taken: Any = with_unique_ids(MessageDone(message=message), 1, set())[0].message
    assert taken["tool_calls"][0]["x"] is None
    assert taken["content"] == [{"type": "x", "y": None}]


texts: st.SearchStrategy[Any] = st.sampled_from(
    ["", " ", "Hi", None, 5, [], [{"type": "text", "text": "Hi"}]]
)
functions: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["f", None, 5]),
        "arguments": st.sampled_from(["{}", {}, 0]),
        "x": st.just(1),
    },
)
odd_calls: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"function": st.one_of(functions, st.just(None))},
    optional={"id": ids, "type": st.sampled_from(["function", "other"]), "index": st.just(float("nan"))},
)
whole_calls = st.builds(lambda made: call("f", id=made), ids)
messages: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"role": st.sampled_from(["assistant", "assistant", "assistant", "user"])},
    optional={
        "content": texts,
        "tool_calls": st.one_of(
            st.lists(whole_calls, max_size=3), st.lists(odd_calls, max_size=2), st.just(None)
        ),
        "_kind": st.just("nudge"),
        "refusal": st.just("No."),
    },
)


@given(messages, st.sets(ids))
def test_a_sound_reply_is_taken_as_it_would_be_after_a_close_look(message: Any, used: set[str]) -> None:
    if not is_sound(message):
        return
    assert reply_problem(message) is None
    assert not is_empty(message)
    at_once, closely = {*used}, {*used}
    taken, notes = with_unique_ids(MessageDone(message=message), 3, at_once, sound=True)
    assert (taken, [*notes]) == with_unique_ids(MessageDone(message=message), 3, closely)
    assert at_once == closely


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "Hi"},
        {"role": "assistant", "content": "Hi", "tool_calls": []},
        {"role": "assistant", "content": None, "tool_calls": [call("f"), call("g")]},
        {"role": "assistant", "tool_calls": [call("f")]},
    ],
)
def test_what_nearly_all_models_reply_is_sound(message: Any) -> None:
    assert is_sound(message)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "half \ud83d"},
        calling(call("f", id="\ud83d")),
        calling(call("f\ud83d")),
        {"role": "assistant", "content": "\udcff", "tool_calls": [call("f")]},
        calling({**call("f"), "function": {"name": "f", "arguments": '{"x": "\ud83d"}'}}),
        {"role": "assistant", "content": " \n"},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": "Hi", "refusal": "No."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "tool_calls": (call("f"),)},
        {"role": "assistant", "content": 5, "tool_calls": [call("f")]},
        calling({**call("f"), "index": 0}),
        calling({**call("f"), "type": "other"}),
        calling({**call("f"), "id": None}),
        calling({**call("f"), "function": {"name": "f", "arguments": "{}", "x": 1}}),
        calling({**call("f"), "function": {"name": "f", "arguments": None}}),
        calling({**call("f"), "function": {"name": 5, "arguments": "{}"}}),
        [],
    ],
)
def test_any_other_reply_is_looked_at_closely(message: Any) -> None:
    assert not is_sound(message)


@pytest.mark.parametrize("sound", [False, True])
def test_ids_of_a_sound_reply_are_known_from_then_on_and_none_comes_twice(sound: bool) -> None:
    used: set[str] = set()
    reply = done(call("f", id="a"), call("g", id="b"))
    assert with_unique_ids(reply, 1, used, sound=sound)[0] is reply
    assert used == {"a", "b"}
    again, _ = with_unique_ids(done(call("f", id="a"), call("f", id="c")), 2, used, sound=sound)
    assert [made["id"] for made in calls_of(again.message)] == ["call_2_0", "c"]
    twice, _ = with_unique_ids(done(call("f", id="d"), call("f", id="d")), 3, used, sound=sound)
    assert [made["id"] for made in calls_of(twice.message)] == ["d", "call_3_1"]
    unnamed, _ = with_unique_ids(done(call("f", id="")), 4, used, sound=sound)
    assert [made["id"] for made in calls_of(unnamed.message)] == ["call_4_0"]
