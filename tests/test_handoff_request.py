"""HandoffRequest: only code can make one, and it survives the trip through JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from routelock import Agent, HandoffRequest
from routelock.errors import ConfigError
from routelock.handoff_request import HandoffResponse, HandoffStatus
from routelock.testing import ScriptedHandler

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


class Case(BaseModel):
    number: int


def test_all_fields_but_the_target_are_keyword_only() -> None:
    """Others take (from_agent, to_agent, reason): accepted here, it would have meant something else."""
    make: Any = HandoffRequest
    with pytest.raises(TypeError, match="positional argument"):
        make("billing", "support", "angry")


def test_a_target_is_enough() -> None:
    request = HandoffRequest("specialist")
    assert (request.input, request.reason, request.message) == (None, None, None)


@pytest.mark.parametrize(
    "target", ["B", Agent("B", model="m"), ScriptedHandler([], name="B")], ids=["name", "agent", "handler"]
)
def test_a_target_is_a_name_or_has_one(target: Any) -> None:
    assert HandoffRequest(target).target_name == "B"


@pytest.mark.parametrize("target", ["", None, 5, object(), ["B"], {"name": "B"}, lambda: None, Agent])
def test_a_target_without_a_name_is_refused_at_once(target: Any) -> None:
    with pytest.raises(ConfigError, match="A HandoffRequest needs to_agent"):
        HandoffRequest(target)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"metadata": 5}, "metadata of a HandoffRequest must be a dict, not 5"),
        ({"reason": 5}, "reason of a HandoffRequest must be text, not 5"),
        ({"message": {"a": 1}}, "message of a HandoffRequest must be text, not {"),
        ({"priority": "high"}, "priority of a HandoffRequest must be a whole number, not 'high'"),
        ({"priority": True}, "priority of a HandoffRequest must be a whole number, not True"),
        (
            {"timeout": "soon"},
            "timeout of a HandoffRequest must be seconds, more than 0, or None, not 'soon'",
        ),
        ({"timeout": 0}, "timeout of a HandoffRequest must be seconds, more than 0, or None, not 0"),
        (
            {"timeout": float("nan")},
            "timeout of a HandoffRequest must be seconds, more than 0, or None, not nan",
        ),
        ({"from_agent": None}, "from_agent of a HandoffRequest must be text, not None"),
        ({"request_id": 7}, "request_id of a HandoffRequest must be text, not 7"),
        ({"capabilities_required": [""]}, r"takes capabilities_required as a list of names, not \[''\]"),
        ({"capabilities_required": [5]}, r"takes capabilities_required as a list of names, not \[5\]"),
        ({"capabilities_required": None}, "takes capabilities_required as a list of names, not None"),
        ({"preserve_context": "no"}, "preserve_context of a HandoffRequest must be True or False, not 'no'"),
    ],
)
def test_wrong_field_type_of_a_request_is_refused(options: Any, wrong: str) -> None:
    """Found where it is made: later it would look as if the model's handler had failed."""
    with pytest.raises(ConfigError, match=wrong):
        HandoffRequest("B", **options)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"status": "maybe"}, "status of a HandoffResponse must be a HandoffStatus, not 'maybe'"),
        ({"handoff_id": 5}, "handoff_id of a HandoffResponse must be text, not 5"),
        ({"rejection_reason": 5}, "rejection_reason of a HandoffResponse must be text, not 5"),
        ({"metadata": 5}, "metadata of a HandoffResponse must be a dict, not 5"),
        ({"from_agent": None}, "from_agent of a HandoffResponse must be text, not None"),
    ],
)
def test_wrong_field_type_of_a_response_is_refused(options: Any, wrong: str) -> None:
    """The target gets the error; later the state of the run could not be read."""
    with pytest.raises(ConfigError, match=wrong):
        HandoffResponse(**options)


def test_a_status_may_be_given_as_its_text() -> None:
    status: Any = "ACCEPTED"
    assert HandoffResponse(status=status).status is HandoffStatus.ACCEPTED


@pytest.mark.parametrize("names", [["b", "a"], ("b", "a"), {"b": 1, "a": 2}])
def test_names_keep_their_order(names: Any) -> None:
    assert HandoffRequest("B", capabilities_required=names).capabilities_required == ("b", "a")


def test_a_set_of_names_has_one_order() -> None:
    """The order of a set differs from process to process."""
    names: Any = {"c", "a", "b"}
    assert HandoffRequest("B", capabilities_required=names).capabilities_required == ("a", "b", "c")


def test_lists_are_copied() -> None:
    names = ["sql"]
    request = HandoffRequest("B", capabilities_required=names)
    names.append("prose")
    assert request.capabilities_required == ("sql",)


def test_request_is_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        HandoffRequest("B").to_agent = "C"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (HandoffRequest("B"), '{"assistant": "B"}'),
        (HandoffRequest('Ä "x"'), '{"assistant": "Ä \\"x\\""}'),
        (HandoffRequest("B", message="One moment."), "One moment."),
        (HandoffRequest("B", message=""), ""),
    ],
)
def test_answer_is_the_message_or_the_target(request_: HandoffRequest, answer: str) -> None:
    assert request_.answer == answer


@given(target=st.text(min_size=1), input=JSON, reason=st.none() | st.text(), message=st.none() | st.text())
def test_envelope_survives_json(target: str, input: Any, reason: str | None, message: str | None) -> None:
    request = HandoffRequest(target, input=input, reason=reason, message=message)
    assert HandoffRequest.from_envelope(json.loads(json.dumps(request.envelope()))) == request


def test_a_target_that_is_an_object_is_recorded_by_its_name() -> None:
    assert HandoffRequest(Agent("B", model="m")).envelope()["to_agent"] == "B"


@pytest.mark.parametrize(
    ("input", "recorded"),
    [
        (Case(number=7), {"number": 7}),
        ({1: {2}}, {"1": [2]}),
        (ValueError("no"), "no"),
        (b"text", "text"),
    ],
)
def test_an_input_is_recorded_as_json(input: Any, recorded: Any) -> None:
    assert json.loads(json.dumps(HandoffRequest("B", input=input).envelope()["input"])) == recorded


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize("input", [_circle(), b"\xff", {"a": b"\xff"}, float("nan"), [float("inf")]])
def test_input_without_json_form_is_recorded_as_text(input: Any) -> None:
    """A journal must take any step, and a tool's odd input must not end the run."""
    recorded = HandoffRequest("B", input=input).envelope()["input"]
    assert json.loads(json.dumps(recorded, allow_nan=False)) == recorded


def test_unknown_keys_of_an_envelope_raise() -> None:
    """An envelope is the engine's own record; one of another make is an error, not half a request."""
    with pytest.raises(TypeError, match="surprise"):
        HandoffRequest.from_envelope({"to_agent": "B", "surprise": 1})
