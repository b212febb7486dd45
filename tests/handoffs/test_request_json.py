"""The form in which a request goes to another process, and what is read of one of foreign make."""

from __future__ import annotations

import base64
import copy
import json
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from routelock import Agent, HandoffRequest
from routelock.handoffs.payload import HandoffPayload

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=3)
LEAST = {"from_agent": "a", "to_agent": "b"}

REQUESTS = st.builds(
    HandoffRequest,
    NAMES,
    input=JSON,
    reason=st.none() | TEXT,
    message=st.none() | TEXT,
    from_agent=NAMES,
    request_id=TEXT,
    preserve_context=st.booleans(),
    capabilities_required=(
        st.lists(NAMES, max_size=3).flatmap(lambda names: st.sampled_from([names, tuple(names), set(names)]))
    ),
    timeout=st.none() | st.floats(0.001, 1e9) | st.integers(1, 9),
    payload=st.none() | OBJECTS,
    context_snapshot=st.none() | st.binary(),
    priority=st.integers(),
    metadata=OBJECTS | OBJECTS.map(MappingProxyType),
)


@dataclass
class Case:
    number: int


class Model(BaseModel):
    tags: tuple[str, ...]


@given(REQUESTS)
def test_what_is_written_is_read(request_: HandoffRequest) -> None:
    assert HandoffRequest.from_dict(json.loads(json.dumps(request_.to_dict()))) == request_


def test_every_field_is_on_the_wire() -> None:
    named = {each.name for each in fields(HandoffRequest)} - {"preserve_context"} | {"preserve_history"}
    assert HandoffRequest("b", from_agent="a").to_dict().keys() == named


def test_a_request_without_its_source_is_not_written() -> None:
    """It could not be read: the other process has to know who asks."""
    with pytest.raises(ValueError, match="it has no from_agent, the name of the agent that asks"):
        HandoffRequest("b").to_dict()


def test_preserve_history_is_the_wires_word_for_preserve_context() -> None:
    assert HandoffRequest("b", from_agent="a", preserve_context=False).to_dict()["preserve_history"] is False
    assert HandoffRequest.from_dict({**LEAST, "preserve_history": False}).preserve_context is False
    assert HandoffRequest.from_dict({**LEAST, "preserve_context": False}).preserve_context is False
    both = {**LEAST, "preserve_context": False, "preserve_history": False}
    assert HandoffRequest.from_dict(both).preserve_context is False


def test_the_least_that_is_a_request() -> None:
    """The defaults are those of the protocol."""
    assert HandoffRequest.from_dict(LEAST) == HandoffRequest("b", from_agent="a")


def test_a_request_of_the_protocol_is_read() -> None:
    """All fields that it has, as another program's dataclass gives them: the snapshot still is bytes."""
    foreign = {
        **LEAST,
        "reason": "needs SQL",
        "context_snapshot": b"{}",
        "preserve_history": True,
        "capabilities_required": ["sql"],
        "metadata": {"ticket": 7},
        "timeout": 30,
        "request_id": "r1",
        "priority": 2,
    }
    request = HandoffRequest.from_dict(foreign)
    assert (request.context_snapshot, request.timeout, request.priority) == (b"{}", 30, 2)


def test_the_snapshot_is_base64() -> None:
    wire = HandoffRequest("b", from_agent="a", context_snapshot=b"\x1f\x8b\xff").to_dict()
    assert base64.b64decode(wire["context_snapshot"]) == b"\x1f\x8b\xff"


def test_what_is_read_is_a_copy() -> None:
    given: dict[str, Any] = {**LEAST, "metadata": {"a": [1]}, "input": {"b": [2]}}
    request = HandoffRequest.from_dict(given)
    before = copy.deepcopy(request)
    given["metadata"]["a"].append(3)
    given["input"]["b"].append(3)
    assert request == before


def test_what_is_written_is_a_copy() -> None:
    inside = [1]
    HandoffRequest("b", from_agent="a", metadata={"a": inside}).to_dict()["metadata"]["a"].append(2)
    assert inside == [1]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Case(7), {"number": 7}),
        (Model(tags=("x", "y")), {"tags": ["x", "y"]}),
        ((1, 2), [1, 2]),
        ([Case(7)], [{"number": 7}]),
    ],
)
def test_models_become_objects(value: Any, written: Any) -> None:
    """What a model passed along is parsed by the handoff's `input_type`."""
    assert HandoffRequest("b", from_agent="a", input=value).to_dict()["input"] == written


def test_a_payload_becomes_the_object_that_it_is_parsed_from() -> None:
    payload = HandoffPayload(source_agent="a", handoff_type="t", context_data={"x": [1]})
    wire = HandoffRequest("b", from_agent="a", payload=payload).to_dict()
    assert HandoffPayload.parse(HandoffRequest.from_dict(wire).payload) == payload


@pytest.mark.parametrize("target", [Agent("b", model="m"), "b"])
def test_a_target_is_written_by_its_name(target: Any) -> None:
    assert HandoffRequest(target, from_agent="a").to_dict()["to_agent"] == "b"


@pytest.mark.parametrize(
    ("request_", "where"),
    [
        (HandoffRequest("b", from_agent="a", input={"x": object()}), "input: "),
        (HandoffRequest("b", from_agent="a", metadata={"x": object()}), "metadata: "),
        (HandoffRequest("b", from_agent="a", input=float("nan")), "input: nan is no JSON number"),
        (
            HandoffRequest("b", from_agent="a", payload={"x": [float("inf")]}),
            r"payload.x\[0\]: inf is no JSON number",
        ),
        (HandoffRequest("b", from_agent="a", input="\ud800"), "input: "),
        (HandoffRequest("b", from_agent="a", reason="\ud800"), "reason: half a surrogate"),
        (HandoffRequest("b", from_agent="a", input=b"\xff"), "input: "),
        (HandoffRequest("b", from_agent="a", input=HandoffPayload), "input: "),
        (HandoffRequest("b", from_agent="a", timeout=float("inf")), "timeout: inf"),
    ],
)
def test_what_has_no_json_form_does_not_leave(request_: HandoffRequest, where: str) -> None:
    with pytest.raises(ValueError, match=f"This HandoffRequest cannot leave the process: {where}"):
        request_.to_dict()


def test_what_refers_to_itself_does_not_leave() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="cannot leave the process: input: "):
        HandoffRequest("b", from_agent="a", input=circle).to_dict()


@pytest.mark.parametrize("data", [None, [], "{}", b"{}", 5, [("from_agent", "a")]])
def test_what_is_no_object_is_no_request(data: Any) -> None:
    with pytest.raises(ValueError, match="This is no HandoffRequest: expected a dict, not "):
        HandoffRequest.from_dict(data)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"from_agent": ""}, "from_agent: String should have at least 1 character"),
        ({"to_agent": None}, "to_agent: Input should be a valid string"),
        ({"reason": 5}, "reason: Input should be a valid string"),
        ({"preserve_history": "no"}, "preserve_history: Input should be a valid boolean"),
        ({"preserve_history": 0}, "preserve_history: Input should be a valid boolean"),
        ({"preserve_context": True, "preserve_history": False}, "preserve_history: it contradicts"),
        ({"capabilities_required": "sql"}, "capabilities_required: Input should be a valid list"),
        ({"capabilities_required": ["sql", 5]}, r"capabilities_required.1: Input should be a valid string"),
        ({"timeout": 0}, "timeout: Input should be greater than 0"),
        ({"timeout": "5"}, "timeout: Input should be a valid number"),
        ({"timeout": True}, "timeout: Input should be a valid number"),
        ({"timeout": float("inf")}, "timeout: Input should be a finite number"),
        ({"priority": True}, "priority: Input should be a valid integer"),
        ({"priority": 1.5}, "priority: Input should be a valid integer"),
        ({"context_snapshot": "%%"}, "context_snapshot: it is no base64"),
        ({"context_snapshot": "\u00e4"}, "context_snapshot: it is no base64"),
        ({"context_snapshot": [1]}, "context_snapshot: it must be base64 or None, not list"),
        ({"metadata": None}, "metadata: Input should be a valid dictionary"),
        ({"metadata": {"a": {1}}}, "metadata.a: set is no JSON type"),
        ({"input": object()}, "input: object is no JSON type"),
        ({"payload": []}, "payload: Input should be a valid dictionary"),
        ({"prioritiy": 1}, "prioritiy: there is no such field"),
        ({5: 1}, "5: Keys should be strings"),
    ],
)
def test_what_does_not_fit_is_named(wrong: dict[Any, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=f"^This is no HandoffRequest: {problem}"):
        HandoffRequest.from_dict({**LEAST, **wrong})


def test_everything_that_is_wrong_is_named_at_once() -> None:
    foreign = {
        "to_agent": "",
        "timeout": -1,
        "context_snapshot": "%",
        "metadata": {"a": float("nan")},
        "x": 1,
    }
    with pytest.raises(ValueError, match="This is no HandoffRequest") as caught:
        HandoffRequest.from_dict(foreign)
    named = {problem.split(":")[0] for problem in str(caught.value).partition(": ")[2].split("; ")}
    assert named == {"from_agent", "to_agent", "timeout", "context_snapshot", "metadata.a", "x"}


def test_a_message_stays_readable_whatever_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"; and 82 more\.$") as caught:
        HandoffRequest.from_dict({str(number) * 1000: 1 for number in range(100)})
    assert len(str(caught.value)) < 3000


def test_no_value_is_shown() -> None:
    with pytest.raises(ValueError, match="no HandoffRequest") as caught:
        HandoffRequest.from_dict({name: ["sk-secret"] for name in (*LEAST, "timeout", "reason", "payload")})
    assert "sk-secret" not in str(caught.value)


@given(
    st.dictionaries(
        st.sampled_from([*asdict(HandoffRequest("b")), "preserve_history", "x"]), JSON | st.binary()
    )
)
def test_any_object_is_a_request_or_a_value_error(data: dict[str, Any]) -> None:
    try:
        request = HandoffRequest.from_dict(data)
    except ValueError:
        return
    assert HandoffRequest.from_dict(request.to_dict()) == request
