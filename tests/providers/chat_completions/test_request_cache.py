"""The caches never change a request: they only save work."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock_providers.chat_completions.request_cache import (
    MessageCache,
    ToolCache,
    body_as_json,
)
from routelock_providers.request_shape import OutgoingMessages, prepare, tools_for
from routelock_providers.vendors import vendor_rules

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


def sent(cache: MessageCache, messages: list[Any]) -> Any:
    conversation = cache.take("run", messages)
    said = json.loads(conversation.json())
    cache.put_back("run", conversation)
    return said


messages = st.lists(
    st.sampled_from([USER, CALL, ANSWER, PICTURE, SAID, SYSTEM, {"role": "user", "content": " "}]).map(dict),
    max_size=8,
)


@given(
    provider=st.sampled_from(["openai", "mistral", "anthropic", "groq", "deepseek", "xai", "", "cohere"]),
    steps=st.lists(messages, min_size=1, max_size=5),
    data=st.data(),
)
def test_cached_request_equals_a_new_one(provider: str, steps: list[list[Any]], data: st.DataObject) -> None:
    rules = vendor_rules(provider, "m")
    cache = MessageCache(rules)
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
        assert sent(cache, shown) == [*prepare(shown, rules)]


def test_message_is_fitted_and_encoded_once() -> None:
    cache = MessageCache(vendor_rules("groq"))
    shown: list[Any] = [SYSTEM, Counting(USER)]
    for _ in range(20):
        sent(cache, shown)
        shown = [dict(SYSTEM), *shown[1:], Counting(CALL), Counting(ANSWER)]
    before = Counting.reads
    sent(cache, shown)
    assert Counting.reads - before <= 2 * 2, "the two new messages, to be fitted and to be encoded"


def test_two_runs_share_no_entry() -> None:
    cache = MessageCache(vendor_rules("openai"))
    shown = [SYSTEM, USER, CALL, ANSWER]
    first, second = cache.take("one", shown), cache.take("another", shown)
    assert first is not second
    first.extend_to([*shown, CALL, ANSWER])
    assert json.loads(second.json()) == shown


def test_entry_that_is_not_put_back_is_gone() -> None:
    cache = MessageCache(vendor_rules("openai"))
    shown = [SYSTEM, USER, CALL, ANSWER]
    first = cache.take("run", shown)
    assert cache.take("run", shown) is not first


def test_first_request_of_a_run_is_reused() -> None:
    cache = MessageCache(vendor_rules("openai"))
    first = cache.take("run", [SYSTEM, USER])
    cache.put_back("run", first)
    assert cache.take("run", [SYSTEM, USER, CALL, ANSWER]) is first


def test_run_with_fewer_messages_starts_anew() -> None:
    """A handoff target that sees only the newest message has a request like the first of a run."""
    cache = MessageCache(vendor_rules("openai"))
    sent(cache, [SYSTEM, USER, CALL, ANSWER])
    assert cache.take("run", [SYSTEM, USER]) == [SYSTEM, USER]
    assert not cache._kept


def test_run_has_one_entry_at_most() -> None:
    """The target of a handoff sees other messages, and its source does not continue."""
    cache = MessageCache(vendor_rules("openai"))
    for user in ("to the first agent", "to the second"):
        sent(cache, [SYSTEM, {"role": "user", "content": user}, CALL, ANSWER])
    assert len(cache._kept) == 1


def test_cache_keeps_at_most_1000_runs() -> None:
    cache = MessageCache(vendor_rules("openai"))
    for number in range(1100):
        shown: list[Any] = [SYSTEM, {"role": "user", "content": str(number)}, CALL, ANSWER]
        cache.put_back(str(number), cache.take(str(number), shown))
    assert len(cache._kept) == 1000


@pytest.mark.parametrize("shown", [[], [USER], [SYSTEM]])
def test_requests_with_hardly_any_message(shown: list[Any]) -> None:
    cache = MessageCache(vendor_rules("openai"))
    for _ in range(2):
        assert sent(cache, shown) == [*prepare(shown, vendor_rules("openai"))]


def test_body_with_cached_messages() -> None:
    shown = [SYSTEM, USER, CALL, ANSWER]
    conversation = MessageCache(vendor_rules("openai")).take("run", shown)
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
def test_body_equals_plain_json(rest: dict[str, Any], place: int) -> None:
    shown: list[Any] = [SYSTEM, USER, CALL, ANSWER]
    told = {"messages": shown, "tools": [TOOL]}
    encoded: dict[str, Any] = {
        "messages": MessageCache(vendor_rules("openai")).take("run", shown),
        "tools": ToolCache(vendor_rules("openai")).take(shown, (TOOL,)),
    }
    first, last = [*rest.items()][:place], [*rest.items()][place:]
    body = body_as_json(dict([*first, *encoded.items(), *last]))
    assert json.loads(body) == dict([*first, *told.items(), *last])


def test_reading_the_messages_does_not_change_them() -> None:
    outgoing = OutgoingMessages(vendor_rules("mistral"))
    for message in (USER, CALL, PICTURE):
        outgoing.add(message)
    assert outgoing.messages() == outgoing.messages()


TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}


@pytest.mark.parametrize("provider", ["openai", "groq", "mistral", "deepseek", ""])
def test_cached_tools_equal_new_ones(provider: str) -> None:
    rules, tools = vendor_rules(provider, "m"), (TOOL, {"type": "web_search"})
    tools_cache = ToolCache(rules)
    for _ in range(2):
        body = {"model": "m", "tools": tools_cache.take([USER], tools)}
        assert json.loads(body_as_json(body)) == {"model": "m", "tools": [*tools_for([USER], tools, rules)]}


def test_tools_are_fitted_once() -> None:
    tools_cache, tools = ToolCache(vendor_rules("groq")), (TOOL,)
    first = tools_cache.take([USER], tools)
    assert tools_cache.take([USER, CALL, ANSWER], tools) is first
    assert tools_cache.take([USER], (TOOL,)) is not first


def test_list_of_tools_may_change() -> None:
    tools_cache, tools = ToolCache(vendor_rules("openai")), [TOOL]
    assert [*tools_cache.take([USER], tools)] == [TOOL]
    tools.append({"type": "web_search"})
    assert [*tools_cache.take([USER], tools)] == tools


def test_cache_keeps_at_most_50_tool_lists() -> None:
    tools_cache = ToolCache(vendor_rules("openai"))
    for number in range(300):
        assert [*tools_cache.take([USER], (TOOL, {"type": str(number)}))][1] == {"type": str(number)}
    assert len(tools_cache._known) == 50


def test_placeholder_tools_follow_the_messages() -> None:
    tools_cache = ToolCache(replace(vendor_rules("openai"), needs_tools=True))
    assert [*tools_cache.take([USER], ())] == []
    assert len(tools_cache.take([USER, CALL, ANSWER], ())) == 1


def test_body_with_cached_messages_and_tools() -> None:
    rules, tools = vendor_rules("openai"), (TOOL,)
    shown = [SYSTEM, USER, CALL, ANSWER]
    conversation = MessageCache(rules).take("run", shown)
    box = ToolCache(rules).take([USER], tools)
    for rest in ({}, {"model": "m"}):
        body = {"messages": conversation, **rest, "tools": box}
        assert json.loads(body_as_json(body)) == {"messages": shown, **rest, "tools": [TOOL]}
