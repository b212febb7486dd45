"""What each vendor accepts, as data: every rule has a source, and every rule is checked."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from routelock.errors import ConfigError
from routelock.history.messages import Message
from routelock.testing import PROFILES, Profile, assert_valid, call, refusals

USER: Message = {"role": "user", "content": "Hi"}
SAID: Message = {"role": "assistant", "content": "Hello"}
LATE: Message = {"role": "system", "content": "Be brief."}
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
NO_RULE = {field.name: field.default for field in dataclasses.fields(Profile)}


def turn(call_id: str = "abcDEF123", name: str = "f", content: Any = "", **more: Any) -> list[Any]:
    made = {**call(name, id=call_id), **more}
    return [
        {"role": "assistant", "content": content, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": call_id, "content": "ok"},
    ]


def swapped() -> list[Any]:
    (one, first), (two, second) = turn("a"), turn("b")
    return [{**one, "tool_calls": [*one["tool_calls"], *two["tool_calls"]]}, second, first]


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_every_rule_has_a_source(profile: Profile) -> None:
    rules = {
        name
        for name, default in NO_RULE.items()
        if name not in ("name", "sources") and getattr(profile, name) != default
    }
    assert profile.sources.keys() >= rules
    assert profile.sources.keys() <= rules | {"thoughts"}, "a source for a rule that is not there"
    assert all(source.startswith("https://") for source in profile.sources.values())


BROKEN = [
    # vendor, messages, rule, what the complaint says
    ("openai", [USER, *turn("x" * 41)], "call_id", "message 1: call id 'xxx"),
    ("openai", [USER, *turn(name="a.b")], "tool_name", "message 1: tool name 'a.b'"),
    ("openai", [USER, {**SAID, "thinking_blocks": [{}]}], "thoughts", "message 1: private fields"),
    ("openai", [{**LATE, "content": [IMAGE]}, USER], "parts", "message 0: only text"),
    ("openai", [{**USER, "name": "John Smith"}], "message_name", "message 0: the name 'John Smith'"),
    ("openai", [USER, {**SAID, "name": "Ann|"}, USER], "message_name", "message 1: the name 'Ann|'"),
    ("openai", [{**USER, "metadata": {}}], "input_keys", "message 0: unknown keys ['metadata']"),
    ("openrouter", [USER, {**LATE, "timestamp": "x"}], "input_keys", "message 1: unknown keys ['timestamp']"),
    ("azure", [USER, turn()[0], {**turn()[1], "id": 7}], "input_keys", "message 2: unknown keys ['id']"),
    ("azure", [USER, *turn("x" * 41)], "call_id", "message 1"),
    ("azure", [{**USER, "name": "J\u00fcrgen"}], "message_name", "message 0"),
    ("openrouter", [USER, *turn("x" * 41)], "call_id", "message 1: call id 'xxx"),
    ("openrouter", [USER, *turn("a b")], "call_id", "message 1: call id 'a b'"),
    ("openrouter", [USER, SAID], "ends_with", "at the end"),
    ("anthropic", [USER, SAID], "ends_with", "at the end: role 'assistant' speaks last"),
    ("anthropic", [SAID, USER], "starts_with", "at the start: role 'assistant' speaks first"),
    ("anthropic", [{"role": "user", "content": " "}], "no_blank", "message 0: blank text"),
    ("anthropic", [USER, *turn()], "tools_for_calls", "calls without a list of tools"),
    ("anthropic", [USER, *turn("a b")], "call_id", "message 1: call id 'a b'"),
    ("gemini", [USER, SAID], "ends_with", "at the end"),
    ("gemini", [USER, *turn(name="2fa")], "tool_name", "message 1: tool name '2fa'"),
    ("mistral", [USER, *turn("call_1")], "call_id", "call id 'call_1'"),
    ("mistral", [USER, *turn(), USER], "refused_order", "message 3: role 'user' after role 'tool'"),
    ("mistral", [USER, SAID, LATE, USER], "refused_order", "message 2: role 'system' after"),
    ("mistral", [USER, SAID], "ends_with", "at the end"),
    ("mistral", [{**USER, "name": "Ann"}], "keys", "message 0: unknown keys ['name']"),
    ("mistral", [{**LATE, "role": "developer"}, USER], "roles", "message 0: no role 'developer'"),
    ("mistral", [USER, *turn(content="I look.")], "text_beside_calls", "message 1: a text beside"),
    ("groq", [USER, {**SAID, "reasoning_content": "Hm."}, USER], "keys", "['reasoning_content']"),
    ("groq", [USER, *turn(index=0)], "call_keys", "message 1: unknown keys ['index'] in a call"),
    ("deepseek", [{**LATE, "role": "developer"}, USER], "roles", "message 0: no role 'developer'"),
    ("deepseek", [{"role": "user", "content": [IMAGE]}], "parts", "message 0: only text"),
    ("cohere", [USER, *turn(content="I look.")], "text_beside_calls", "message 1: a text beside"),
    ("cohere", [USER, *turn(index=0)], "call_keys", "['index']"),
    ("bedrock", [USER, *turn("x" * 65)], "call_id", "message 1"),
    ("bedrock", [USER, {"role": "user", "content": [{"type": "text", "text": ""}, IMAGE]}], "no_blank", "1"),
    ("ollama", [USER, *swapped()], "answers_in_order", "message 3: a result before that of an earlier"),
    ("gemini", [USER, *swapped()], "answers_in_order", "message 3"),
    ("ollama", [USER, {**SAID, "thinking_blocks": [{}]}, USER], "thoughts", "message 1"),
    ("xai", [USER, *turn(content=None)], "null_beside_calls", "message 1: content is null"),
]


@pytest.mark.parametrize(("vendor", "messages", "rule", "told"), BROKEN)
def test_a_broken_rule_is_named_with_its_place_and_its_source(
    vendor: str, messages: list[Any], rule: str, told: str
) -> None:
    assert_valid(messages)
    with pytest.raises(AssertionError) as caught:
        assert_valid(messages, vendor)
    (line,) = [line for line in str(caught.value).splitlines() if f"({rule}: " in line]
    assert told in line
    assert PROFILES[vendor].sources[rule] in line


def test_every_vendor_is_among_them() -> None:
    assert {vendor for vendor, *_ in BROKEN} == PROFILES.keys()


def test_common_rules_come_before_profiles() -> None:
    with pytest.raises(AssertionError, match="orphan tool result"):
        assert_valid([USER, turn()[1]], "openai")


def test_tools_are_checked_too() -> None:
    spec = {"type": "function", "function": {"name": "a b"}}
    with pytest.raises(AssertionError, match="tools: tool name 'a b'"):
        assert_valid([USER], "openai", tools=[spec])
    offered = [{"type": "function", "function": {"name": "f"}}, {"type": "web_search"}]
    assert_valid([USER, *turn()], "anthropic", tools=offered)


TOOL = [{"type": "function", "function": {"name": "f"}}]
THOUGHT = {"thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]}


@pytest.mark.parametrize(
    ("messages", "fine"),
    [
        ([USER, *turn()], False),
        ([USER, {**turn()[0], **THOUGHT}, turn()[1]], True),
        ([USER, {**turn("a")[0], **THOUGHT}, turn("a")[1], *turn("b")], True),
        ([USER, {**SAID, **THOUGHT}, USER, *turn()], False),
        ([USER, *turn(), USER], True),
    ],
)
def test_thinking_claude_needs_thinking_before_answered_calls(messages: list[Any], fine: bool) -> None:
    """A user's turn begins anew; within one, the first of its own thoughts is enough (litellm 18926)."""
    profile = PROFILES["anthropic"]
    assert refusals(messages, profile, tools=TOOL) == []
    assert (refusals(messages, profile, tools=TOOL, thinking=True) == []) is fine


def test_thinking_deepseek_needs_reasoning_in_every_message() -> None:
    profile = PROFILES["deepseek"]
    assert refusals([USER, SAID, USER], profile) == []
    (told,) = refusals([USER, SAID, USER], profile, thinking=True)
    assert told.startswith("message 1: no reasoning_content (needs_thought: https://")
    assert refusals([USER, {**SAID, "reasoning_content": "Hm."}, USER], profile, thinking=True) == []


def test_an_unknown_vendor_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="no profile 'acme'; there are openai, azure"):
        assert_valid([USER], "acme")


def test_a_profile_of_ones_own() -> None:
    profile = Profile(
        name="my server", ends_with=frozenset(("user",)), sources={"ends_with": "https://x.test"}
    )
    assert_valid([USER], profile)
    with pytest.raises(AssertionError, match=r"my server would refuse(.|\n)*https://x.test"):
        assert_valid([USER, *turn()], profile)
