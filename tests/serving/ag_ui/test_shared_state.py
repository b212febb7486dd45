"""Changes of the state that client and agents share: whole at first, then as JSON Patch."""

from __future__ import annotations

from typing import Any

import pytest
from ag_ui_client import patched
from hypothesis import given, settings
from hypothesis import strategies as st

from routelock.serving.ag_ui.shared_state import SharedState

PLAN: dict[str, Any] = {"about": "x" * 200, "steps": [{"text": "one", "done": False}], "count": 1}
"""Long enough that a patch is shorter."""


def after_first(state: Any) -> SharedState:
    """A state of which the client was sent this first change."""
    shared = SharedState({})
    assert shared.change(state) == [{"type": "STATE_SNAPSHOT", "snapshot": state}]
    return shared


@pytest.mark.parametrize(
    ("now", "patch"),
    [
        ({**PLAN, "count": 2}, [{"op": "replace", "path": "/count", "value": 2}]),
        ({**PLAN, "count": True}, [{"op": "replace", "path": "/count", "value": True}]),
        ({**PLAN, "new": None}, [{"op": "add", "path": "/new", "value": None}]),
        ({"about": PLAN["about"], "count": 1}, [{"op": "remove", "path": "/steps"}]),
        ({**PLAN, "a/b~c": 1}, [{"op": "add", "path": "/a~1b~0c", "value": 1}]),
        ({**PLAN, "steps": [*PLAN["steps"], 2]}, [{"op": "add", "path": "/steps/-", "value": 2}]),
        ({**PLAN, "steps": []}, [{"op": "remove", "path": "/steps/0"}]),
        (
            {**PLAN, "steps": [{"text": "one", "done": True}]},
            [{"op": "replace", "path": "/steps/0/done", "value": True}],
        ),
    ],
)
def test_a_later_change_is_sent_as_what_has_changed(now: Any, patch: list[dict[str, Any]]) -> None:
    assert after_first(PLAN).change(now) == [{"type": "STATE_DELTA", "delta": patch}]


@pytest.mark.parametrize(
    "now",
    [
        [1, 2, 3],
        "text",
        None,
        {"other": 1},
        {**PLAN, "__proto__": 1},
        {**PLAN, "constructor": {"prototype": 1}},
    ],
)
def test_what_no_client_could_apply_or_is_longer_is_sent_whole(now: Any) -> None:
    assert after_first(PLAN).change(now) == [{"type": "STATE_SNAPSHOT", "snapshot": now}]


def test_a_state_that_is_no_object_is_sent_whole() -> None:
    assert after_first([1] * 100).change([1] * 101)[0]["type"] == "STATE_SNAPSHOT"


@pytest.mark.parametrize("now", [PLAN, dict(reversed(PLAN.items()))])
def test_an_equal_state_is_not_sent(now: Any) -> None:
    assert after_first(PLAN).change(now) == []


def test_what_the_client_sent_is_known() -> None:
    assert SharedState({"open": 1}).change({"open": 1}) == []
    assert SharedState({"open": 1}).change({"open": True}) != []


def test_a_state_that_is_changed_in_place_is_noticed() -> None:
    state: dict[str, Any] = {"about": "x" * 200, "steps": []}
    shared = after_first(state)
    state["steps"].append(1)
    assert shared.change(state) == [
        {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/steps/-", "value": 1}]}
    ]


def values() -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a", "~/"])
    names = st.sampled_from(["", "a", "b", "~1", "/", "0", "-"])
    return st.recursive(
        leaves, lambda one: st.lists(one, max_size=3) | st.dictionaries(names, one, max_size=3)
    )


@settings(max_examples=100, deadline=None)
@given(
    before=st.dictionaries(st.sampled_from("abc"), values()),
    now=st.dictionaries(st.sampled_from("abc"), values()),
)
def test_a_client_that_applies_all_changes_has_the_state(before: Any, now: Any) -> None:
    padding = "x" * 3_000  # so that the patch is the shorter form
    first, second = {**before, "padding": padding}, {**now, "padding": padding}
    shared, known = after_first(first), first
    for event in shared.change(second):
        known = patched(known, event["delta"])
    assert repr(sorted_keys(known)) == repr(sorted_keys(second))


def sorted_keys(value: Any) -> Any:
    """The value, with the keys of all objects in order."""
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return [sorted_keys(each) for each in value] if isinstance(value, list) else value
