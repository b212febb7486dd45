"""Which messages are accepted as a model's reply, and the ids of their calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock.handlers.events import MessageDone
from routelock.handlers.replies import is_empty, reply_problem, storable_reply
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
def test_call_id_differs_from_all_earlier_ones(ids: list[str], used: list[str], expected: list[str]) -> None:
    """New ids follow from turn and place, so a replayed run makes the same ids."""
    reply = done(*(call("f", id=each) for each in ids))
    taken = set(used)
    renamed, _ = storable_reply(reply, 3, taken)
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
        seen += [made["id"] for made in calls_of(storable_reply(reply, turn, used)[0].message)]
    assert len(set(seen)) == len(seen) == sum(map(len, turns))
    assert "" not in seen


def calling(made: Any) -> Any:
    return {"role": "assistant", "content": None, "tool_calls": [made]}


def test_reply_without_calls_is_not_copied() -> None:
    reply = MessageDone(message={"role": "assistant", "content": "Hi"})
    assert storable_reply(reply, 1, set())[0] is reply


def test_missing_fields_of_a_call_are_filled_in() -> None:
    """The next request sends the call back, so the provider must accept it."""
    bare: Any = {"id": 5, "function": {"name": None, "arguments": None, "extra": 1}}
    (made,) = calls_of(storable_reply(done(bare), 1, set())[0].message)
    function = {"name": "", "arguments": "{}", "extra": 1}
    assert made == {"id": "call_1_0", "type": "function", "function": function}


@pytest.mark.parametrize("odd", [{}, [], 0, False, None])
def test_empty_arguments_become_an_empty_object(odd: Any) -> None:
    called: Any = {"id": "a", "function": {"name": "f", "arguments": odd}}
    (made,) = calls_of(storable_reply(done(called), 1, set())[0].message)
    assert made["function"]["arguments"] == "{}"


def test_private_keys_of_a_reply_are_removed() -> None:
    message: Any = {"role": "assistant", "content": "Hi", "_kind": "nudge", "_agent": "B", "citations": [1]}
    taken, _ = storable_reply(MessageDone(message=message), 1, set())
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
        ({"role": "assistant", "content": 5, "tool_calls": [call("f")]}, "content that is neither text"),
        ({"role": "assistant", "tool_calls": {"a": 1}}, "tool calls that are not a list"),
        ({"role": "assistant", "tool_calls": (call("f"),)}, "tool calls that are not a list"),
        ({"role": "assistant", "content": "Hi", 5: 1}, "a key that is not text"),
        ("Hi", "'Hi' instead of a message"),
        (None, "None instead of a message"),
    ],
)
def test_reply_problem_names_the_malformed_part(message: Any, wrong: str | None) -> None:
    found = reply_problem(message)
    assert found is None if wrong is None else str(found).startswith(wrong)


def test_nan_and_infinity_become_null() -> None:
    """JSON has no such numbers, so later requests and sessions would fail."""
    odd = {**call("f", id="a"), "x": float("nan")}
    message: Any = {"role": "assistant", "tool_calls": [odd], "content": [{"type": "x", "y": float("-inf")}]}
    taken: Any = storable_reply(MessageDone(message=message), 1, set())[0].message
    assert taken["tool_calls"][0]["x"] is None
    assert taken["content"] == [{"type": "x", "y": None}]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "Hi"},
        {"role": "assistant", "content": "Hi", "tool_calls": []},
        {"role": "assistant", "content": None, "tool_calls": [call("f", id="a"), call("g", id="b")]},
        {"role": "assistant", "tool_calls": [call("f", id="a")]},
    ],
)
def test_valid_reply_is_returned_unchanged(message: Any) -> None:
    reply = MessageDone(message=message)
    taken, repairs = storable_reply(reply, 1, set())
    assert taken is reply
    assert not repairs


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "half \ud83d"},
        {"role": "assistant", "content": "\udcff", "tool_calls": [call("f")]},
        calling(call("f", id="\ud83d")),
        calling(call("f\ud83d")),
        calling({**call("f"), "function": {"name": "f", "arguments": '{"x": "\ud83d"}'}}),
    ],
)
def test_half_a_surrogate_pair_is_replaced(message: Any) -> None:
    taken, _ = storable_reply(MessageDone(message=message), 1, set())
    assert json.dumps(taken.message, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("message", "empty"),
    [
        ({"role": "assistant", "content": " \n"}, True),
        ({"role": "assistant", "content": ""}, True),
        ({"role": "assistant", "content": None}, True),
        ({"role": "assistant", "content": "Hi"}, False),
        ({"role": "assistant", "content": None, "refusal": "No."}, False),
        ({"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}, False),
        (calling(call("f")), False),
    ],
)
def test_reply_without_text_calls_or_refusal_is_empty(message: Any, empty: bool) -> None:
    assert is_empty(message) == empty


def test_call_id_used_in_an_earlier_reply_is_replaced() -> None:
    used: set[str] = set()
    reply = done(call("f", id="a"), call("g", id="b"))
    assert storable_reply(reply, 1, used)[0] is reply
    assert used == {"a", "b"}
    again, _ = storable_reply(done(call("f", id="a"), call("f", id="c")), 2, used)
    assert [made["id"] for made in calls_of(again.message)] == ["call_2_0", "c"]
