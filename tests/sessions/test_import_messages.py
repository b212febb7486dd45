"""Histories of other frameworks, or edited in the store, are read, repaired and reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from routelock import Agent, Runner
from routelock.errors import SessionError
from routelock.history.validity import problems
from routelock.sessions import InMemorySessions, Session
from routelock.testing import ScriptedHandler

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "1+2?"},
    {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "3"},
    {"role": "assistant", "content": "It is 3."},
]
RESPONSES: list[Any] = [
    {"role": "user", "content": "1+2?"},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"id": "m1", "type": "message", "role": "assistant", "status": "completed", "content": [
        {"type": "output_text", "text": "Let me see.", "annotations": []}]},
    {"type": "function_call", "id": "f1", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
    {"type": "function_call_output", "call_id": "c1", "output": "3"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is 3."}]},
]  # fmt: skip
ANTHROPIC: list[Any] = [
    {"role": "user", "content": [{"type": "text", "text": "1+2?"}]},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "...", "signature": "s"},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "3"}]}]},
    {"role": "assistant", "content": [{"type": "text", "text": "It is 3."}]},
]  # fmt: skip
LANGCHAIN: list[Any] = [
    {"type": "human", "data": {"content": "1+2?"}},
    {
        "type": "ai",
        "data": {"content": "Let me see.", "tool_calls": [{"name": "add", "args": {"a": 1}, "id": "c1"}]},
    },
    {"type": "tool", "data": {"content": "3", "tool_call_id": "c1"}},
    {"lc": 1, "type": "constructor", "id": ["langchain", "AIMessage"], "kwargs": {"content": "It is 3."}},
]


def plain(messages: Any) -> list[tuple[Any, ...]]:
    """Role, text, names of calls and their arguments, and the call that is answered."""
    made: list[tuple[Any, ...]] = []
    for message in messages:
        content = message.get("content")
        text = content if isinstance(content, str) else "".join(part["text"] for part in content or ())
        calls = [each["function"] for each in message.get("tool_calls") or ()]
        made.append((message["role"], text, calls, message.get("tool_call_id")))
    return made


async def loaded(*records: Any) -> Any:
    store = InMemorySessions()
    for number, record in enumerate(records):
        await store.append("u", number, record if isinstance(record, str) else json.dumps(record))
    return await Session("u", store).load()


@pytest.mark.parametrize("history", [CHAT, RESPONSES, ANTHROPIC, LANGCHAIN])
async def test_formats_of_other_frameworks_are_read(history: list[Any]) -> None:
    session = Session("u", InMemorySessions())
    await session.add(history)
    found = await session.load()
    assert plain(found.messages) == plain(CHAT)
    left_out = ["session: left out an item that no other model can read (reasoning)"]
    assert [*found.repairs] == (left_out if history is RESPONSES else [])


@pytest.mark.parametrize("history", [CHAT, RESPONSES, ANTHROPIC, LANGCHAIN])
async def test_foreign_records_are_read(history: list[Any]) -> None:
    assert plain((await loaded(history)).messages) == plain(CHAT)
    assert plain((await loaded(*history)).messages)[-1] == plain(CHAT)[-1]


async def test_calls_side_by_side_are_one_message() -> None:
    calls = [{"type": "function_call", "call_id": i, "name": "add", "arguments": "{}"} for i in "ab"]
    answers = [{"type": "function_call_output", "call_id": i, "output": {"sum": 3}} for i in "ab"]
    found = await loaded([*calls, *answers])
    assert [message["role"] for message in found.messages] == ["assistant", "tool", "tool"]
    assert found.messages[1]["content"] == '{"sum": 3}'
    assert [*found.repairs] == []


async def test_pictures_stay_pictures() -> None:
    text = {"type": "input_text", "text": "What is it?"}
    picture = {"type": "input_image", "image_url": "https://x/a.png"}
    found = await loaded([{"role": "user", "content": [text, picture]}])
    assert found.messages[0]["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "https://x/a.png"}},
    ]


LEFT = "session: left out an item"
POISONED: list[tuple[Any, str]] = [
    ("{not json", "session: left out record 1, which is not readable: Expecting property name"),
    ("7", "session: left out record 1, which is not readable: expected an object, not int"),
    ('"' + "[" * 3, "session: left out record 1, which is not readable: Unterminated string"),
    ("[" * 100_000, "session: left out record 1, which is not readable: "),
    ([7], "session: left out an item: Input message 0 must be a dict with a role, not int."),
    ({"role": "robot"}, "session: left out an item: Input message 0 has role 'robot'"),
    ([{"role": "assistant", "content": [{"type": "video"}]}], "session: left out parts that an assistant"),
    ([{"role": "assistant", "content": "x", "tool_calls": "broken"}], LEFT),
    ({"run": "r", "items": [{"kind": "model"}]}, f"{LEFT}: Input message 0 has role None"),
    ({"run": "r", "items": [7]}, f"{LEFT}: Input message 0 must be a dict"),
    ([{"role": "tool", "tool_call_id": "x", "content": "3"}], "added the missing call for orphan"),
    ([CHAT[1]], "added a missing answer to tool call 'c1'"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "told"), POISONED)
async def test_broken_items_are_reported_and_left_out(record: Any, told: str) -> None:
    found = await loaded(record, [{"role": "user", "content": "Hi"}])
    assert found.repairs[0].startswith(told)
    assert found.messages[-1] == {"role": "user", "content": "Hi"}
    assert problems(found.messages) == []


async def test_result_lists_the_repairs_of_its_session() -> None:
    session = Session("u", InMemorySessions())
    await session.add([{"role": "robot"}, CHAT[1]])
    before = await session.records(None)
    result = await Runner.run(Agent("A", model=ScriptedHandler(["Yes."])), "Hi", session=session)
    assert len(result.repairs) == 2
    assert result.repairs[1] == "added a missing answer to tool call 'c1'"
    assert (await session.records(None))[:1] == before


async def test_edited_numbers_and_names_do_no_harm() -> None:
    items = [{"kind": "input", "message": {"role": "user", "content": text}} for text in "ab"]
    found = await loaded(
        {"run": "r", "first": -7, "history": "x", "agent": 7, "items": items},
        {"run": "r", "first": 10**12, "items": items},
        {"run": 7, "first": None, "items": items[:1]},
    )
    assert [message["content"] for message in found.messages] == ["a", "b", "a", "b", "a"]
    assert found.next_agent is None


async def test_newer_format_is_refused() -> None:
    with pytest.raises(SessionError, match=r"has the format 2, .* Update routelock"):
        await loaded({"format_version": 2, "whatever": []})


async def test_unreadable_records_survive_compact() -> None:
    store = InMemorySessions()
    await store.append("u", 0, "{broken")
    with pytest.raises(SessionError, match=r"was left as it is, .+: session: left out record 1"):
        await Session("u", store).compact()
    assert await store.load("u") == [(1, "{broken")]


async def test_nan_becomes_null_with_a_note() -> None:
    """Older versions stored it; what comes later can be kept all the same."""
    store = InMemorySessions()
    await store.append("u", 0, '{"format_version":1,"messages":[{"role":"user","content":"NaN?","odd":NaN}]}')
    session = Session("u", store)
    found = await session.load()
    assert [*found.messages] == [{"role": "user", "content": "NaN?", "odd": None}]
    assert [*found.repairs] == ["session: replaced NaN or infinity by null"]
    await session.compact()
    again = await session.load()
    assert (again.messages, [*again.repairs]) == (found.messages, [])


async def test_empty_session_can_be_compacted() -> None:
    session = Session("u", InMemorySessions())
    await session.compact()
    assert await session.records(None) == []
    await session.add([])
    await session.compact()
    assert (await session.load()).messages == []
