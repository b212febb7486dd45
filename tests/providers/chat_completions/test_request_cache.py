"""What is kept of a conversation never changes what is sent: only how often it is worked out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock_providers.chat_completions.request_cache import (
    Conversation,
    Conversations,
    Toolboxes,
    body_as_json,
)
from routelock_providers.request_shape import Outgoing, prepare, tools_for
from routelock_providers.vendors import shape_of

SYSTEM: Any = {"role": "system", "content": "Be brief."}
USER: Any = {"role": "user", "content": "Hi"}
CALL: Any = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
ANSWER: Any = {"role": "tool", "tool_call_id": "a", "content": "é"}
PICTURE: Any = {
    "role": "tool",
    "tool_call_id": "a",
    "content": [{"type": "image_url", "image_url": {"url": "x"}}],
}
SAID: Any = {"role": "assistant", "content": "x", "_origin": "y"}


class Counting(dict[str, Any]):
    """A message that counts how often it is read from the beginning."""

    reads = 0

    def items(self) -> Any:
        Counting.reads += 1
        return super().items()


def sent(conversations: Conversations, messages: list[Any]) -> Any:
    conversation = conversations.take("run", messages)
    if conversation is None:
        assert [message["role"] for message in messages] == ["system", "user"]
        return messages
    said = json.loads(conversation.json())
    conversations.put_back("run", conversation)
    return said


def taken(conversations: Conversations, run_id: str, messages: list[Any]) -> Conversation:
    conversation = conversations.take(run_id, messages)
    assert conversation is not None
    return conversation


messages = st.lists(
    st.sampled_from([USER, CALL, ANSWER, PICTURE, SAID, SYSTEM, {"role": "user", "content": " "}]).map(dict),
    max_size=8,
)


@given(
    provider=st.sampled_from(["openai", "mistral", "anthropic", "groq", "deepseek", "xai", "", "cohere"]),
    steps=st.lists(messages, min_size=1, max_size=5),
    data=st.data(),
)
def test_what_is_sent_is_what_would_be_sent_anew(
    provider: str, steps: list[list[Any]], data: st.DataObject
) -> None:
    shape = shape_of(provider, "m")
    conversations = Conversations(shape)
    shown: list[Any] = [SYSTEM, dict(USER)]
    for step in steps:
        shown = [dict(shown[0]), *shown[1:], *step]  # the system prompt is made anew for each request
        change = data.draw(st.sampled_from(["", "", "", "another prompt", "another message", "less"]))
        if change == "another prompt":
            shown[0] = {"role": "system", "content": f"Prompt {len(shown)}."}
        elif change == "another message" and len(shown) > 1:
            place = data.draw(st.integers(1, len(shown) - 1))
            shown = [*shown[:place], {"role": "user", "content": "Other"}, *shown[place + 1 :]]
        elif change == "less":
            shown = shown[: data.draw(st.integers(1, len(shown)))]
        assert sent(conversations, shown) == [*prepare(shown, shape)]


def test_a_message_is_looked_at_once() -> None:
    conversations = Conversations(shape_of("groq"))
    shown: list[Any] = [SYSTEM, Counting(USER)]
    for _ in range(20):
        sent(conversations, shown)
        shown = [dict(SYSTEM), *shown[1:], Counting(CALL), Counting(ANSWER)]
    before = Counting.reads
    sent(conversations, shown)
    assert Counting.reads - before <= 2 * 2, "the two that are new, to be repaired and to be encoded"


def test_two_runs_with_the_same_messages_do_not_meet() -> None:
    conversations = Conversations(shape_of("openai"))
    shown = [SYSTEM, USER, CALL, ANSWER]
    first, second = taken(conversations, "one", shown), taken(conversations, "another", shown)
    assert first is not second
    first.extend_to([*shown, CALL, ANSWER])
    assert json.loads(second.json()) == shown


def test_what_is_not_put_back_is_forgotten() -> None:
    conversations = Conversations(shape_of("openai"))
    shown = [SYSTEM, USER, CALL, ANSWER]
    first = taken(conversations, "run", shown)
    assert taken(conversations, "run", shown) is not first


def test_of_what_only_begins_nothing_is_kept() -> None:
    conversations = Conversations(shape_of("openai"))
    assert conversations.take("run", [SYSTEM, USER]) is None


def test_a_run_that_begins_again_is_forgotten() -> None:
    """A target that is shown nothing but the newest message has a request like the first of a run."""
    conversations = Conversations(shape_of("openai"))
    sent(conversations, [SYSTEM, USER, CALL, ANSWER])
    assert conversations.take("run", [SYSTEM, USER]) == [SYSTEM, USER]
    assert not conversations._kept


def test_a_run_has_one_conversation_at_most() -> None:
    """Whoever it is handed over to sees other messages, and whoever handed over does not go on."""
    conversations = Conversations(shape_of("openai"))
    for user in ("to the first agent", "to the second"):
        sent(conversations, [SYSTEM, {"role": "user", "content": user}, CALL, ANSWER])
    assert len(conversations._kept) == 1


def test_only_so_many_are_kept() -> None:
    conversations = Conversations(shape_of("openai"))
    for number in range(1100):
        shown: list[Any] = [SYSTEM, {"role": "user", "content": str(number)}, CALL, ANSWER]
        conversations.put_back(str(number), taken(conversations, str(number), shown))
    assert len(conversations._kept) == 1000


@pytest.mark.parametrize("shown", [[], [USER], [SYSTEM]])
def test_next_to_nothing(shown: list[Any]) -> None:
    conversations = Conversations(shape_of("openai"))
    for _ in range(2):
        assert sent(conversations, shown) == [*prepare(shown, shape_of("openai"))]


def test_a_body() -> None:
    shown = [SYSTEM, USER, CALL, ANSWER]
    conversation = taken(Conversations(shape_of("openai")), "run", shown)
    body = {"model": "m", "messages": conversation, "n": 1}
    assert json.loads(body_as_json(body)) == {"model": "m", "messages": shown, "n": 1}
    assert json.loads(body_as_json({"messages": conversation})) == {"messages": shown}
    assert json.loads(body_as_json({"messages": [USER]})) == {"messages": [USER]}


values = st.recursive(
    st.text() | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(rest=st.dictionaries(st.text(), values, max_size=5), place=st.integers(0, 5))
def test_a_body_says_what_json_says(rest: dict[str, Any], place: int) -> None:
    shown: list[Any] = [SYSTEM, USER, CALL, ANSWER]
    told = {"messages": shown, "tools": [TOOL]}
    encoded: dict[str, Any] = {
        "messages": taken(Conversations(shape_of("openai")), "run", shown),
        "tools": Toolboxes(shape_of("openai")).fitted(shown, (TOOL,)),
    }
    first, last = [*rest.items()][:place], [*rest.items()][place:]
    body = body_as_json(dict([*first, *encoded.items(), *last]))
    assert json.loads(body) == dict([*first, *told.items(), *last])


def test_asking_for_the_messages_changes_nothing() -> None:
    outgoing = Outgoing(shape_of("mistral"))
    for message in (USER, CALL, PICTURE):
        outgoing.add(message)
    assert outgoing.messages() == outgoing.messages()


TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}


@pytest.mark.parametrize("provider", ["openai", "groq", "mistral", "deepseek", ""])
def test_tools_are_sent_as_they_would_be_anew(provider: str) -> None:
    shape, tools = shape_of(provider, "m"), (TOOL, {"type": "web_search"})
    toolboxes = Toolboxes(shape)
    for _ in range(2):
        body = {"model": "m", "tools": toolboxes.fitted([USER], tools)}
        assert json.loads(body_as_json(body)) == {"model": "m", "tools": [*tools_for([USER], tools, shape)]}


def test_tools_are_looked_at_once() -> None:
    toolboxes, tools = Toolboxes(shape_of("groq")), (TOOL,)
    first = toolboxes.fitted([USER], tools)
    assert toolboxes.fitted([USER, CALL, ANSWER], tools) is first
    assert toolboxes.fitted([USER], (TOOL,)) is not first


def test_a_list_of_tools_may_change() -> None:
    toolboxes, tools = Toolboxes(shape_of("openai")), [TOOL]
    assert [*toolboxes.fitted([USER], tools)] == [TOOL]
    tools.append({"type": "web_search"})
    assert [*toolboxes.fitted([USER], tools)] == tools


def test_only_so_many_toolboxes_are_kept() -> None:
    toolboxes = Toolboxes(shape_of("openai"))
    for number in range(300):
        assert [*toolboxes.fitted([USER], (TOOL, {"type": str(number)}))][1] == {"type": str(number)}
    assert len(toolboxes._known) == 50


def test_stand_ins_follow_the_messages() -> None:
    toolboxes = Toolboxes(replace(shape_of("openai"), needs_tools=True))
    assert [*toolboxes.fitted([USER], ())] == []
    assert len(toolboxes.fitted([USER, CALL, ANSWER], ())) == 1


def test_messages_and_tools_that_are_encoded_already_stand_in_one_body() -> None:
    shape, tools = shape_of("openai"), (TOOL,)
    shown = [SYSTEM, USER, CALL, ANSWER]
    conversation = taken(Conversations(shape), "run", shown)
    box = Toolboxes(shape).fitted([USER], tools)
    for rest in ({}, {"model": "m"}):
        body = {"messages": conversation, **rest, "tools": box}
        assert json.loads(body_as_json(body)) == {"messages": shown, **rest, "tools": [TOOL]}
