"""The whole context of a conversation, as a value and as bytes that another process restores."""

from __future__ import annotations

import copy
import dataclasses
import gzip
import json
import os
import random
import subprocess
import sys
import zlib
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock import Agent, Runner, function_tool
from routelock._redaction import redact
from routelock.handoffs.context import (
    HandoffContext,
    ToolState,
    deserialize_context,
    prepare_handoff_context,
    serialize_context,
)
from routelock.history.repair import repair
from routelock.history.validity import problems
from routelock.testing import ScriptedHandler
from routelock.testing import call as make_call

pytestmark = pytest.mark.anyio

EMPTY = b'{"conversation_history":[],"tool_state":{},"metadata":{}}'
GZIPPED = gzip.compress(EMPTY, mtime=0)
"""Without the time of day: the ids of the cases below are made of it."""

# The example of sw4rm's page on context serialization, in our words: same keys, same order, same ids, the
# same orphan tool result, the same connection string.
EXAMPLE_HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "How did sales go in Q3?", "timestamp": "2025-01-15T10:30:00Z"},
    {
        "role": "assistant",
        "content": "Let me look at Q3.",
        "timestamp": "2025-01-15T10:30:01Z",
    },
    {
        "role": "tool",
        "name": "query_database",
        "tool_call_id": "call_abc123",
        "content": '{"total": 1500000, "growth": 0.12}',
        "timestamp": "2025-01-15T10:30:05Z",
    },
]
EXAMPLE_STATE: dict[str, Any] = {
    "active_calls": [{"call_id": "call_xyz789", "tool": "long_running_query", "started_at": "..."}],
    "cached_results": {"call_abc123": {"total": 1500000, "growth": 0.12}},
    "configurations": {"database": {"connection_string": "...", "timeout_ms": 30000}},
}
EXAMPLE = HandoffContext(EXAMPLE_HISTORY, EXAMPLE_STATE, {"agent_id": "agent-1"})


def call(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}


def asks(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [call(one) for one in ids]}


def answers(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "42"}


def user(text: str = "Hi") -> dict[str, Any]:
    return {"role": "user", "content": text}


def as_bytes(**fields: Any) -> bytes:
    whole: dict[str, Any] = {"conversation_history": [], "tool_state": {}, "metadata": {}, **fields}
    return json.dumps(whole).encode()


# -- the value --


def test_all_three_fields_are_empty_and_not_shared_by_default() -> None:
    one, other = HandoffContext(), HandoffContext()
    one.tool_state["x"] = 1
    one.metadata["x"] = 1
    one.conversation_history.append(user())
    assert (other.conversation_history, other.tool_state, other.metadata) == ([], {}, {})
    assert [field.name for field in dataclasses.fields(HandoffContext)] == [
        "conversation_history",
        "tool_state",
        "metadata",
    ]


def test_the_dict_has_exactly_the_three_keys_and_is_a_copy_at_every_depth() -> None:
    context = copy.deepcopy(EXAMPLE)
    made = context.to_dict()
    assert list(made) == ["conversation_history", "tool_state", "metadata"]
    made["conversation_history"][0]["content"] = "changed"
    made["tool_state"]["configurations"]["database"]["timeout_ms"] = 0
    made["metadata"]["new"] = 1
    assert context == EXAMPLE


def test_a_missing_field_is_empty() -> None:
    assert HandoffContext.from_dict({}) == HandoffContext()
    assert HandoffContext.from_dict({"tool_state": None, "metadata": {"a": 1}}).metadata == {"a": 1}


def test_keys_of_a_later_time_are_ignored() -> None:
    assert HandoffContext.from_dict({"signature": "x", "format_version": 9}) == HandoffContext()


def test_what_it_is_made_of_is_copied() -> None:
    given_data: dict[str, Any] = {"conversation_history": [user()]}
    context = HandoffContext.from_dict(given_data)
    given_data["conversation_history"][0]["content"] = "changed"
    assert context.conversation_history == [user()]


@given(st.recursive(st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner)))
def test_from_dict_undoes_to_dict(state: Any) -> None:
    context = HandoffContext(tool_state={"x": state})
    assert HandoffContext.from_dict(context.to_dict()) == context


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"content": "no role"}, "role"),
        ({"role": "bogus", "content": "x"}, "role"),
        ({"role": "user"}, "content"),
        ({"role": "user", "content": None}, "content"),
        ({"role": "user", "content": 5}, "content"),
        ({"role": "user", "content": ["x"]}, "content"),
        ({"role": "tool", "content": "x", "tool_call_id": 5}, "tool_call_id"),
        ({"role": "tool", "content": "x", "name": 5}, "name"),
        ({"role": "user", "content": "x", "timestamp": 5}, "timestamp"),
        ({"role": "user", "content": "x", "timestamp": "yesterday"}, "timestamp must be ISO 8601"),
        ({"role": "user", "content": "x", "metadata": "x"}, "metadata"),
        ({"role": "assistant", "tool_calls": "x"}, "tool_calls"),
        ({"role": "assistant", "tool_calls": ""}, "tool_calls"),
        ({"role": "assistant", "tool_calls": [{"id": "a"}]}, "tool_calls"),
        ({"role": "user", "content": "x", "tool_calls": [call("a")]}, "tool_calls"),
        (5, "dict"),
        (None, "dict"),
    ],
)
def test_an_entry_that_is_no_message_is_named_with_its_place_and_key(entry: Any, named: str) -> None:
    """Everywhere alike."""
    history: list[Any] = [user(), entry]
    context = HandoffContext(history)
    for make in (
        lambda: HandoffContext.from_dict({"conversation_history": history}),
        lambda: prepare_handoff_context(history, {}),
        lambda: deserialize_context(as_bytes(conversation_history=history)),
        lambda: serialize_context(context),
        context.to_input_list,
        context.provider_messages,
    ):
        with pytest.raises(ValueError, match=rf"(?s)conversation_history\[1\].*\b{named}\b"):
            make()


@pytest.mark.parametrize("data", [None, 5, "text", [], [("conversation_history", [])]])
def test_it_is_made_of_a_dict_and_nothing_else(data: Any) -> None:
    with pytest.raises(ValueError, match="This is no HandoffContext: expected a dict"):
        HandoffContext.from_dict(data)


def test_a_context_says_whose_it_is() -> None:
    context = HandoffContext.of(
        [user()],
        agent="triage",
        run_id="r1",
        handoff_id="h-r1-1",
        created_at=datetime(2025, 1, 15, 12, 30, tzinfo=timezone(timedelta(hours=2))),
        tool_state={"active_calls": []},
        metadata={"capabilities": ["sql"], "run_id": "forged"},
    )
    assert context == HandoffContext(
        [user()],
        {"active_calls": []},
        {
            "capabilities": ["sql"],
            "agent_name": "triage",
            "run_id": "r1",
            "handoff_id": "h-r1-1",
            "created_at": "2025-01-15T10:30:00Z",
        },
    )


@pytest.mark.parametrize(
    ("moment", "why"),
    [
        (datetime(2025, 1, 15), "time zone"),
        ("2025-01-15T10:30:00", "time zone"),
        ("yesterday", "ISO 8601"),
        (1_736_937_000, "ISO 8601"),
    ],
)
def test_a_moment_that_could_be_any_is_refused(moment: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        HandoffContext.of([], agent="a", run_id="r", handoff_id="h", created_at=moment)


# -- messages --


def test_a_provider_sees_no_private_keys() -> None:
    thoughts = {"role": "assistant", "content": "Yes.", "thinking_blocks": [{"signature": "x"}]}
    history = [{**user(), "metadata": {"x": 1}, "_kind": "nudge"}, {**thoughts, "_origin": "anthropic"}]
    context = HandoffContext([*EXAMPLE_HISTORY, *history])
    messages = cast("list[dict[str, Any]]", context.provider_messages())
    assert {key for message in messages for key in message} == {"role", "content", "name", "tool_call_id"}
    assert messages[-2:] == [user(), {"role": "assistant", "content": "Yes."}]
    assert context.conversation_history[:3] == EXAMPLE_HISTORY


def test_a_run_is_told_who_wrote_a_message() -> None:
    """So that thinking blocks go back to the family that wrote them, also in another process."""
    entry = {"role": "assistant", "content": "Yes.", "thinking_blocks": [], "_origin": "anthropic"}
    context = HandoffContext([{**entry, "timestamp": "2025-01-15T10:30:00Z"}])
    assert context.to_input_list() == [entry]


async def test_a_run_goes_on_from_a_context_that_crossed() -> None:
    """Timestamps arrive, and stay out of the request."""
    crossed = deserialize_context(serialize_context(EXAMPLE))
    assert crossed.conversation_history == EXAMPLE_HISTORY
    model = ScriptedHandler(["Sales grew by 12 %."])
    result = await Runner.run(Agent(name="analyst", model=model), crossed.to_input_list())
    assert result.final_output == "Sales grew by 12 %."
    allowed = {"role", "content", "name", "tool_call_id", "tool_calls"}
    assert all(set(message) <= allowed for message in model.requests[0].messages)


async def test_what_one_run_did_another_goes_on_with() -> None:
    """The second model is shown all that the first said, and told what it did."""

    def look_up(order: str) -> str:
        return f"{order} is on its way."

    first = ScriptedHandler([make_call("look_up", {"order": "A1"}), "It is on its way."])
    done = await Runner.run(Agent(name="a", model=first, tools=[function_tool(look_up)]), "Where is A1?")
    snapshot = HandoffContext.of(
        done.to_input_list(), agent="a", run_id="r", handoff_id="h", created_at="2025-01-15T10:30:00Z"
    )
    crossed = deserialize_context(serialize_context(snapshot))
    assert crossed == snapshot
    second = ScriptedHandler(["You asked about A1."])
    await Runner.run(Agent(name="b", model=second), [*crossed.to_input_list(), user("What did I ask?")])
    note, *shown = second.requests[0].messages
    told = '"called": "look_up", "with": {"order": "A1"}, "result": "A1 is on its way."'
    assert told in str(note.get("content"))
    assert shown == [
        user("Where is A1?"),
        {"role": "assistant", "content": "It is on its way."},
        user("What did I ask?"),
    ]


def test_another_process_restores_it() -> None:
    """And writes the same bytes."""
    program = (
        "import sys; from routelock.handoffs import *;"
        "context = deserialize_context(sys.stdin.buffer.read());"
        "sys.stdout.buffer.write(serialize_context(context, compress=True))"
    )
    data = serialize_context(EXAMPLE, compress=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run(
        [sys.executable, "-c", program], input=data, capture_output=True, check=True, env=environment
    )
    assert other.stdout == data


def test_sw4rms_example_is_illegal_and_can_be_repaired() -> None:
    """Its tool result answers no call."""
    messages = deserialize_context(serialize_context(EXAMPLE)).to_input_list()
    assert problems(messages) == ["message 2: orphan tool result call_abc123"]
    repaired, _ = repair(messages)
    assert problems(repaired) == []
    said = [each.get("content") for each in repaired]
    assert [each for each in said if each] == [entry["content"] for entry in EXAMPLE_HISTORY]


# -- to bytes --


def test_the_bytes_are_compact_utf8_json() -> None:
    """Not escaped: that doubles the size of Chinese."""
    data = serialize_context(HandoffContext([user("你好")], {"a": [1, 2]}, {"b": None}))
    assert data == (
        '{"conversation_history":[{"role":"user","content":"你好"}],"tool_state":{"a":[1,2]},'
        '"metadata":{"b":null},"format_version":1}'.encode()
    )


@pytest.mark.parametrize(
    ("state", "where"),
    [
        ({"x": object()}, r"tool_state\.x: object"),
        ({"x": [{"y": {1, 2}}]}, r"tool_state\.x\[0\]\.y: set"),
        ({"x": (1, 2)}, r"tool_state\.x: tuple .* use a list"),
        ({"x": b"bytes"}, r"tool_state\.x: bytes"),
        ({1: 2}, "tool_state: a key must be text, not int"),
        ({"x": {None: 2}}, r"tool_state\.x: a key must be text, not NoneType"),
        ({"x": float("nan")}, r"tool_state\.x: nan"),
        ({"x": float("inf")}, r"tool_state\.x: inf"),
        ({"x": "\ud800"}, r"tool_state\.x: half a surrogate pair"),
        ({"\udfff": 1}, "tool_state: half a surrogate pair in a key"),
        ({"x": 10**5000}, ".*4300 digits"),
        ((), "tool_state: tuple"),
        ([], "tool_state must be an object, not a list"),
        (None, "tool_state must be an object, not null"),
    ],
)
def test_what_would_not_come_back_as_it_was_is_refused(state: Any, where: str) -> None:
    """Never changed silently."""
    with pytest.raises(ValueError, match=f"^Failed to serialize HandoffContext: {where}") as caught:
        serialize_context(HandoffContext(tool_state=state))
    assert caught.value.__cause__ is not None


def test_what_is_inside_itself_is_refused() -> None:
    state: dict[str, Any] = {}
    state["self"] = state
    with pytest.raises(ValueError, match="are nested more than"):
        serialize_context(HandoffContext(tool_state=state))


def test_a_value_is_not_shown_in_an_error() -> None:
    """It may be a secret."""
    with pytest.raises(ValueError, match="api_key: bytes") as caught:
        serialize_context(HandoffContext(tool_state={"api_key": b"hunter2"}))
    assert "hunter2" not in str(caught.value)


def test_to_serialize_changes_nothing() -> None:
    context = HandoffContext([user()], {"api_key": "hunter2", "list": [{"token": "x"}]}, {"password": "p"})
    before = copy.deepcopy(context)
    serialize_context(context)
    assert context == before


def state_of_size(size: int) -> HandoffContext:
    """A context that takes exactly ``size`` bytes of JSON."""
    rest = len(serialize_context(HandoffContext(tool_state={"x": ""})))
    return HandoffContext(tool_state={"x": "y" * (size - rest)})


def test_above_100_kb_it_is_gzipped() -> None:
    assert serialize_context(state_of_size(102_400)).startswith(b"{")
    assert len(serialize_context(state_of_size(102_400))) == 102_400
    longer = serialize_context(state_of_size(102_401))
    assert longer.startswith(b"\x1f\x8b")
    assert deserialize_context(longer) == state_of_size(102_401)


def test_compression_can_be_chosen() -> None:
    small, large = HandoffContext(), state_of_size(200_000)
    assert serialize_context(small, compress=True).startswith(b"\x1f\x8b")
    assert deserialize_context(serialize_context(small, compress=True)) == small
    assert len(serialize_context(large, compress=False)) == 200_000


@pytest.mark.parametrize("compress", ["always", None, "gzip", 2])
def test_there_is_no_other_way_to_compress(compress: Any) -> None:
    with pytest.raises(ValueError, match="compress must be 'auto', True or False"):
        serialize_context(HandoffContext(), compress=compress)


@pytest.mark.parametrize("context", [None, {}, "text"])
def test_only_a_context_is_serialized(context: Any) -> None:
    with pytest.raises(ValueError, match="Failed to serialize HandoffContext: expected a HandoffContext"):
        serialize_context(context)


def test_compressed_bytes_carry_no_time() -> None:
    data = serialize_context(state_of_size(200_000))
    assert data[4:8] == bytes(4)
    assert data == serialize_context(state_of_size(200_000))


def test_one_side_writes_only_what_the_other_reads() -> None:
    """The limits are the same on both sides."""
    with pytest.raises(ValueError, match="Failed to serialize HandoffContext: more than 300 bytes"):
        serialize_context(state_of_size(301), max_bytes=300)
    assert deserialize_context(serialize_context(state_of_size(300), max_bytes=300), max_bytes=300)


# -- from bytes --


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "Expecting value"),
        (b"x", "Expecting value"),
        (b"\xff", "utf-8"),
        (b"{}", "conversation_history, tool_state, metadata missing"),
        (b"[]", "not a list"),
        (b"null", "not null"),
        (b"5", "not a number"),
        (b'"text"', "not text"),
        (b"true", "not a bool"),
        (b'{"conversation_history":[],"metadata":{}}', "tool_state missing"),
        (as_bytes(conversation_history=5), "conversation_history must be a list, not a number"),
        (as_bytes(conversation_history=None), "conversation_history must be a list, not null"),
        (as_bytes(tool_state=[]), "tool_state must be an object, not a list"),
        (as_bytes(metadata="x"), "metadata must be an object, not text"),
        (as_bytes(metadata={"x": float("nan")}), "nan is no JSON"),
        (as_bytes(metadata={"x": float("-inf")}), "inf is no JSON"),
        (EMPTY.replace(b'"metadata":{}', b'"metadata":{"x":1e999}'), "inf is no JSON"),
        (as_bytes(metadata={"x": "\ud800"}), "surrogate"),
        (as_bytes(metadata={"\udfff": 1}), "surrogate"),
        (EMPTY.replace(b"{}}", b'{"a":1,"a":2}}'), "'a' occurs twice"),
        (EMPTY.decode().encode("utf-16"), "utf-8"),
        (EMPTY.decode().encode("utf-8-sig"), "BOM"),
        (EMPTY + b"x", "Extra data"),
        (EMPTY[:-1], "delimiter"),
        (b"[" * 100_000, "are nested more than"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "are nested more than"),
        (b"1" * 5000, "4300 digits"),
        (b"\x1f\x8b", "ends too early"),
        (b"\x1f\x8b" + b"x" * 20, "broken"),
        (GZIPPED[:-1], "ends too early"),
        (GZIPPED[:-8] + b"\0" * 8, "broken"),
        (GZIPPED + b"x", "follow the gzip data"),
        (gzip.compress(GZIPPED, mtime=0), "utf-8"),
        (zlib.compress(EMPTY), "utf-8"),
        ("text", "expected bytes, not str"),
        (None, "expected bytes, not NoneType"),
        ({}, "expected bytes, not dict"),
    ],
)
def test_what_is_no_context_is_refused_as_one_kind_of_error(data: Any, why: str) -> None:
    """Sw4rm lets a list or null through as another error, and a number as a history."""
    with pytest.raises(ValueError, match=f"(?s)^Failed to deserialize HandoffContext: .*{why}") as caught:
        deserialize_context(data)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_will_do(kind: Any) -> None:
    assert deserialize_context(kind(EMPTY)) == HandoffContext()
    assert deserialize_context(kind(GZIPPED)) == HandoffContext()


def test_lenient_reading_takes_what_is_missing_as_empty() -> None:
    assert deserialize_context(b"{}", strict=False) == HandoffContext()
    assert deserialize_context(b'{"tool_state":null,"a":1,"a":2}', strict=False) == HandoffContext()
    with pytest.raises(ValueError, match="must be a list"):
        deserialize_context(b'{"conversation_history":5}', strict=False)


def test_a_bomb_is_not_unpacked() -> None:
    """200 MB in 200 KB."""
    bomb = gzip.compress(b" " * 200_000_000, 6)
    with pytest.raises(ValueError, match="more than 67108864 bytes"):
        deserialize_context(bomb)


def test_a_bomb_of_small_values_is_not_built() -> None:
    """Twenty million empty lists fit into 64 MB, and take 1.4 GB as Python objects."""
    bomb = gzip.compress(as_bytes().replace(b"[]", b"[" + b"[]," * 20_000_000 + b"[]]"), 6)
    with pytest.raises(ValueError, match="more than 1000000 values"):
        deserialize_context(bomb)


def test_text_full_of_commas_is_no_bomb() -> None:
    context = HandoffContext([user('[{,"\\' * 400_000)])
    assert deserialize_context(serialize_context(context)) == context


@pytest.mark.parametrize("size", [1, 299])
def test_the_size_can_be_bounded_further(size: int) -> None:
    """Compressed or not."""
    data = serialize_context(state_of_size(300))
    for each in (data, gzip.compress(data)):
        with pytest.raises(ValueError, match=f"more than {size} bytes"):
            deserialize_context(each, max_bytes=size)
        assert deserialize_context(each, max_bytes=300) == state_of_size(300)


def test_no_bytes_at_all_is_no_limit() -> None:
    """zlib takes 0 for "as much as there is"."""
    for size in (0, -1):
        with pytest.raises(ValueError, match="max_bytes must be at least 1"):
            deserialize_context(GZIPPED, max_bytes=size)


def test_the_depth_can_be_chosen() -> None:
    state: dict[str, Any] = {"a": {"b": {"c": 1}}}
    data = serialize_context(HandoffContext(tool_state=state), max_depth=4)
    assert deserialize_context(data, max_depth=4).tool_state == state
    for failing in (
        lambda: deserialize_context(data, max_depth=3),
        lambda: serialize_context(HandoffContext(tool_state=state), max_depth=3),
    ):
        with pytest.raises(ValueError, match="lists and objects are nested more than 3 deep"):
            failing()


def test_a_depth_that_python_cannot_do_is_the_same_kind_of_error() -> None:
    deep: Any = 1
    for _ in range(20_000):
        deep = [deep]
    with pytest.raises(ValueError, match="Failed to serialize HandoffContext"):
        serialize_context(HandoffContext([{**user(), "metadata": {"x": deep}}]), max_depth=10**6)
    inner = b"[" * 20_000 + b"]" * 20_000
    data = EMPTY.replace(b"[]", b'[{"role":"user","content":"x","deep":' + inner + b"}]")
    with pytest.raises(ValueError, match="Failed to deserialize HandoffContext"):
        deserialize_context(data, max_depth=10**6)


# -- versions --


def test_the_format_has_a_version() -> None:
    assert json.loads(serialize_context(HandoffContext()))["format_version"] == 1


def test_bytes_without_a_version_are_of_the_first() -> None:
    """As others write them who know the same three fields."""
    assert deserialize_context(EMPTY) == HandoffContext()
    assert deserialize_context(as_bytes(format_version=1)) == HandoffContext()


@pytest.mark.parametrize("strict", [True, False])
def test_a_newer_version_is_refused_and_says_so(strict: bool) -> None:
    for version in (2, 10**1000):
        with pytest.raises(ValueError, match=r"format_version [0-9]+, .* reads up to 1; update routelock"):
            deserialize_context(as_bytes(format_version=version), strict=strict)


@pytest.mark.parametrize("version", ["1", 1.5, True, [], 0, -1])
def test_a_version_is_a_number(version: Any) -> None:
    with pytest.raises(ValueError, match="format_version must be a whole number"):
        deserialize_context(as_bytes(format_version=version))


def test_keys_of_a_later_format_are_ignored() -> None:
    assert deserialize_context(as_bytes(signature="x")) == HandoffContext()


# -- secrets --


def test_sw4rms_example_leaks_nothing() -> None:
    crossed = deserialize_context(serialize_context(EXAMPLE))
    assert crossed.tool_state["configurations"] == {
        "database": {"connection_string": "[redacted]", "timeout_ms": 30000}
    }
    assert crossed.tool_state["cached_results"] == EXAMPLE_STATE["cached_results"]


@pytest.mark.parametrize("key", ["api_key", "password", "connection_string", "token", "Authorization"])
def test_secrets_stay_behind_unless_they_are_asked_for(key: str) -> None:
    entry = {**user(), "metadata": {key: "hunter2", "ip": "::1"}}
    context = HandoffContext([entry], {"deep": [{key: "hunter2"}]}, {key: {"of": "hunter2"}})
    data = serialize_context(context)
    assert b"hunter2" not in data
    assert deserialize_context(data) == HandoffContext(
        [{**user(), "metadata": {key: "[redacted]", "ip": "::1"}}],
        {"deep": [{key: "[redacted]"}]},
        {key: "[redacted]"},
    )
    assert deserialize_context(serialize_context(context, include_secrets=True)) == context


def test_what_looks_like_a_secret_stays_behind_under_any_name() -> None:
    state = {"url": "postgresql://app:hunter2@db:5432/sales", "note": "Bearer " + "abc123def456"}
    crossed = deserialize_context(serialize_context(HandoffContext(tool_state=state)))
    assert crossed.tool_state == {"url": "postgresql://[redacted]@db:5432/sales", "note": "Bearer [redacted]"}


def test_what_was_said_is_not_touched() -> None:
    """A changed word would be a changed conversation; an app may redact it first."""
    said = [
        user("my password is hunter2, see https://me:hunter2@host"),
        {"role": "assistant", "content": None, "tool_calls": [call("a")], "_origin": "x"},
        {"role": "tool", "tool_call_id": "a", "content": '{"api_key": "hunter2"}'},
    ]
    context = HandoffContext(said)
    assert deserialize_context(serialize_context(context)) == context
    first = redact(context.conversation_history)[0]
    assert first["content"] == "my password is hunter2, see https://[redacted]@host"


# -- less of it --


def test_only_the_last_messages_are_kept() -> None:
    history = [user(str(number)) for number in range(60)]
    context = prepare_handoff_context(history, {})
    assert context.conversation_history == history[10:]
    assert context.metadata == {"original_history_length": 60, "trimmed": True}


def test_what_fits_is_kept_whole() -> None:
    context = prepare_handoff_context([user()], {}, metadata={"run_id": "r"})
    assert context.metadata == {"run_id": "r", "original_history_length": 1, "trimmed": False}


def test_no_messages_are_no_messages() -> None:
    """Sw4rm keeps all sixty."""
    assert prepare_handoff_context([user()] * 60, {}, max_history=0).conversation_history == []


@pytest.mark.parametrize("count", [-1, 1.5, "5", True, None])
def test_a_number_of_messages_that_is_none_is_refused(count: Any) -> None:
    with pytest.raises(ValueError, match=f"max_history must be 0 or more, not {count!r}"):
        prepare_handoff_context([], {}, max_history=count)


def test_a_state_of_tools_that_is_none_is_refused() -> None:
    state: Any = ["active_calls"]
    with pytest.raises(ValueError, match="tool_state must be a dict, not list"):
        prepare_handoff_context([], state)


def test_system_messages_are_always_kept() -> None:
    system = {"role": "system", "content": "s"}
    context = prepare_handoff_context([system, user("a"), user("b")], {}, 1)
    assert context.conversation_history == [system, user("b")]


@pytest.mark.parametrize(
    ("count", "kept"), [(0, []), (1, [2, 3, 4]), (3, [2, 3, 4]), (4, [1, 2, 3, 4]), (5, [0, 1, 2, 3, 4])]
)
def test_a_call_is_not_parted_from_its_answers(count: int, kept: list[int]) -> None:
    history = [user("0"), user("1"), asks("a", "b"), answers("a"), answers("b")]
    context = prepare_handoff_context(history, {}, count)
    assert context.conversation_history == [history[place] for place in kept]


def test_not_even_where_something_stands_between_them() -> None:
    """A history of foreign make, which only the target's run repairs."""
    history = [user("0"), asks("a"), user("1"), answers("a"), user("2")]
    assert prepare_handoff_context(history, {}, 3).conversation_history == history[1:]


def test_a_call_that_waits_for_its_answer_stays_open() -> None:
    """It may need an approval first."""
    history = [user(), asks("a")]
    assert prepare_handoff_context(history, {}, 1).conversation_history == history[1:]


def test_only_what_is_not_finished_is_kept_of_the_tools() -> None:
    state: ToolState = {**cast(ToolState, EXAMPLE_STATE), "pending_approvals": [{"call_id": "c"}]}
    context = prepare_handoff_context([], state)
    assert context.tool_state == {
        "active_calls": EXAMPLE_STATE["active_calls"],
        "pending_approvals": [{"call_id": "c"}],
    }
    assert prepare_handoff_context([]).tool_state == {"active_calls": [], "pending_approvals": []}


def test_finished_results_are_kept_on_request() -> None:
    context = prepare_handoff_context([], EXAMPLE_STATE, include_cached=True)
    assert context.tool_state["cached_results"] == EXAMPLE_STATE["cached_results"]


def test_what_is_prepared_is_a_copy() -> None:
    state = copy.deepcopy(EXAMPLE_STATE)
    history = copy.deepcopy(EXAMPLE_HISTORY)
    context = prepare_handoff_context(history, state)
    context.tool_state["active_calls"][0]["tool"] = "changed"
    context.conversation_history[0]["content"] = "changed"
    assert (state, history) == (EXAMPLE_STATE, EXAMPLE_HISTORY)


def test_a_large_context_crosses() -> None:
    """500 KB of words."""
    words = random.Random(1)
    history = [
        user(" ".join(str(words.getrandbits(30)) for _ in range(100))) if place % 3 else asks(str(place))
        for place in range(750)
    ]
    context = HandoffContext(history)
    data = serialize_context(context)
    assert len(data) < len(serialize_context(context, compress=False)) / 1.5
    assert deserialize_context(data) == context
