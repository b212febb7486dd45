"""Copies of data: what is shared with the original, and what is not."""

from __future__ import annotations

from collections import Counter
from typing import Any

from routelock._copies import detached, own_copy, unshared

CALL: Any = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_detached_message_shares_no_container() -> None:
    message: Any = {"role": "assistant", "content": [{"type": "text", "text": "x"}], "tool_calls": [CALL]}
    copied = detached(message)
    assert copied == message
    copied["content"][0]["text"] = copied["tool_calls"][0]["function"]["name"] = "changed"
    assert message["content"] == [{"type": "text", "text": "x"}]
    assert message["tool_calls"] == [CALL]


def test_object_that_cannot_be_copied_is_passed_itself() -> None:
    class Unique:
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("there is one")

    one = Unique()
    given = {"it": one, "list": [1]}
    made = own_copy(given)
    assert made == given
    assert made["it"] is one
    assert made["list"] is not given["list"]


def test_copied_data_shares_no_container() -> None:
    """However they are inside one another."""
    data: dict[str, Any] = {"list": [{"a": {1}}], "tuple": ([1],)}
    copied = unshared(data)
    copied["list"][0]["a"].add(2)
    copied["tuple"][0].append(2)
    assert data == {"list": [{"a": {1}}], "tuple": ([1],)}


def test_an_object_in_it_stays_itself() -> None:
    thing = object()
    assert unshared({"thing": thing})["thing"] is thing


def test_copied_container_keeps_its_type() -> None:
    counts = Counter(a=1)
    copied = unshared({"counts": counts})["counts"]
    copied["a"] += 1
    assert type(copied) is Counter
    assert counts["a"] == 1


def test_self_reference_is_copied() -> None:
    data: dict[str, Any] = {"list": []}
    data["list"].append(data)
    copied = unshared(data)
    assert copied["list"][0] is copied
    assert copied is not data


def test_data_nested_too_deep_is_not_copied() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert unshared(deep) is deep
