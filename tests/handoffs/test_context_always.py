"""What must hold for every snapshot of a context, and for all bytes that claim to be one."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from routelock.handoffs.context import (
    HandoffContext,
    deserialize_context,
    prepare_handoff_context,
    serialize_context,
)
from routelock.history.input import to_messages
from routelock.history.validity import problems


def asks(*ids: str) -> dict[str, Any]:
    calls = [{"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def answers(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "42"}


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
BESIDE = st.fixed_dictionaries(
    {},
    optional={
        "timestamp": st.datetimes(timezones=st.none() | st.just(UTC)).map(datetime.isoformat),
        "metadata": st.dictionaries(TEXT, JSON, max_size=2),
        "name": TEXT,
        "_origin": TEXT,
    },
)
WORDS = TEXT | st.lists(st.fixed_dictionaries({"type": TEXT, "text": TEXT}), max_size=2)
IDS = st.sampled_from("abc")
ENTRIES = st.one_of(
    st.builds(
        lambda role, content, more: {"role": role, "content": content, **more},
        st.sampled_from(["user", "system", "developer"]),
        WORDS,
        BESIDE,
    ),
    st.builds(
        lambda ids, content, more: {**asks(*ids), "content": content, **more},
        st.lists(IDS, max_size=2, unique=True),
        st.none() | WORDS,
        BESIDE,
    ),
    st.builds(lambda one, more: {**answers(one), **more}, IDS, BESIDE),
)
HISTORIES: st.SearchStrategy[list[dict[str, Any]]] = st.lists(ENTRIES, max_size=8)
CONTEXTS = st.builds(
    HandoffContext,
    HISTORIES,
    st.dictionaries(TEXT, JSON, max_size=3),
    st.dictionaries(TEXT, JSON, max_size=3),
)


@given(CONTEXTS, st.sampled_from(["auto", True, False]))
def test_what_crosses_arrives_as_it_was(context: HandoffContext, compress: Any) -> None:
    data = serialize_context(context, compress=compress, include_secrets=True)
    crossed = deserialize_context(data)
    assert crossed == context
    assert json.dumps(crossed.to_dict()) == json.dumps(context.to_dict())
    assert serialize_context(crossed, compress=compress, include_secrets=True) == data


@given(CONTEXTS)
def test_a_second_crossing_changes_nothing(context: HandoffContext) -> None:
    """Neither does a second redaction."""
    data = serialize_context(context)
    assert serialize_context(deserialize_context(data)) == data


@given(CONTEXTS)
def test_what_arrives_is_input_of_a_run_and_fits_a_provider(context: HandoffContext) -> None:
    crossed = deserialize_context(serialize_context(context))
    assert to_messages(crossed.to_input_list()) == crossed.to_input_list()
    for message in crossed.provider_messages():
        assert not {key for key in message if key.startswith("_")} & {"timestamp", "metadata"}


NEARLY = st.one_of(
    st.binary(max_size=200),
    st.binary(max_size=50).map(gzip.compress),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries(
        {},
        optional={
            "conversation_history": st.lists(ENTRIES | JSON, max_size=3) | JSON,
            "tool_state": JSON,
            "metadata": JSON,
            "format_version": JSON,
        },
    ).map(lambda value: json.dumps(value).encode()),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A context's bytes, with some of them changed, cut out or doubled."""
    data = bytearray(serialize_context(draw(CONTEXTS), compress=draw(st.booleans())))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        data[start : start + draw(st.integers(0, 5))] = draw(st.binary(max_size=4))
    return bytes(data)


@given(NEARLY | damaged(), st.booleans())
@example(b'{"conversation_history":[{"role":[]}],"tool_state":{},"metadata":{}}', True)
@example(b'{"conversation_history":[],"tool_state":{},"metadata":{},"format_version":1e400}', True)
def test_any_bytes_are_a_context_or_a_value_error(data: bytes, strict: bool) -> None:
    try:
        context = deserialize_context(data, strict=strict)
    except ValueError:
        return
    first = serialize_context(context)
    assert serialize_context(deserialize_context(first)) == first
    context.provider_messages()


@given(CONTEXTS)
def test_all_that_is_written_fits_the_schema(context: HandoffContext) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft7Validator(HandoffContext.json_schema())
    validator.validate(json.loads(serialize_context(context)))
    validator.validate(context.to_dict())


@st.composite
def legal(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A history without problems, of whole turns."""
    history: list[dict[str, Any]] = []
    for place in range(draw(st.integers(1, 8))):
        ids = [f"{place}{name}" for name in draw(st.lists(IDS, max_size=3, unique=True))]
        history.append(
            {"role": "user", "content": "Hi"} if draw(st.booleans()) else {"role": "system", "content": "s"}
        )
        if ids:
            history += [asks(*ids), *map(answers, draw(st.permutations(ids)))]
    return history


@given(legal(), st.integers(0, 12))
def test_a_trimmed_history_needs_no_repair(history: list[dict[str, Any]], count: int) -> None:
    """But for one that has nothing left to answer."""
    context = prepare_handoff_context(history, {}, count)
    wrong = problems(cast(Any, context.conversation_history))
    assert [each for each in wrong if "nothing to answer" not in each] == []
    assert context.metadata["trimmed"] == (context.conversation_history != history)
    others = [each for each in context.conversation_history if each["role"] != "system"]
    assert len(others) <= count or [each["role"] for each in others[1:]] == ["tool"] * (len(others) - 1)


@given(HISTORIES, st.integers(0, 8))
def test_trimming_makes_no_orphans(history: list[dict[str, Any]], count: int) -> None:
    """Whatever the history: what has its call, or its answer, before trimming has it after."""
    context = prepare_handoff_context(history, {}, count)

    def lonely(messages: Any) -> int:
        return sum("orphan" in each or "no answer" in each for each in problems(messages))

    assert lonely(context.conversation_history) <= lonely(history)
