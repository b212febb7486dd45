"""Whatever history interlock hands over, what each vendor is sent is what its profile accepts."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from views import MODELS

from interlock.messages import Message, calls_of
from interlock.repair import problems, repair
from interlock.testing import PROFILES, assert_valid, call
from interlock_providers.litellm_call import as_sent
from interlock_providers.shapes import shape_of
from interlock_providers.wire import prepare

QUICK = examples(30)

TEXTS = st.sampled_from(["", " ", "Hi", "naïve", "a\n"])
TEXT_PARTS = TEXTS.map(lambda text: {"type": "text", "text": text})
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
PARTS = st.lists(TEXT_PARTS | st.just(IMAGE), max_size=3)
IDS = st.sampled_from(["a", "abcDEF123", "x" * 41, "x" * 65, "é", "a b", "call_1"]) | st.text(min_size=1)
NAMES = st.sampled_from(["f", "transfer_to_x", "a.b", "é", "2fa", "x" * 80])
ARGUMENTS = st.sampled_from(["", "{}", '{"x":1}', "[1]", '{"x"'])
PRIVATE = st.sampled_from([{}, {"_origin": "x"}, {"refusal": None}, {"name": "n"}])


@st.composite
def handed_over(draw: st.DrawFn) -> list[Message]:
    """Messages as a handler is given them: any list, repaired."""
    out: list[Any] = []
    for role in draw(st.lists(st.sampled_from("user assistant calls system developer".split()), max_size=7)):
        if role == "calls":
            ids = draw(st.lists(IDS, min_size=1, max_size=3, unique=True))
            calls = [call(draw(NAMES), draw(ARGUMENTS), id=each) for each in ids]
            out.append({"role": "assistant", "content": draw(TEXTS | st.none()), "tool_calls": calls})
            answers = [{"role": "tool", "tool_call_id": each, "content": draw(TEXTS | PARTS)} for each in ids]
            out += draw(st.permutations(answers))
        elif role == "user":
            out.append({"role": role, "content": draw(TEXTS | PARTS)})
        elif role == "assistant":
            said = draw(TEXTS | st.lists(TEXT_PARTS, max_size=2) | st.none())
            out.append({"role": role, "content": said} | draw(PRIVATE))
        else:
            out.append({"role": role, "content": draw(TEXTS)})
    return repair(out)[0]


@pytest.mark.parametrize("vendor", PROFILES)
@QUICK
@given(messages=handed_over())
def test_what_is_sent_is_accepted(vendor: str, messages: list[Message]) -> None:
    sent, tools = as_sent(MODELS[vendor], messages)
    assert_valid(sent, vendor, tools=tools, thinking=vendor == "deepseek")


@pytest.mark.parametrize("vendor", PROFILES)
@QUICK
@given(messages=handed_over())
def test_what_is_sent_needs_no_more_mending(vendor: str, messages: list[Message]) -> None:
    provider, _, model = MODELS[vendor].partition("/")
    before = copy.deepcopy(messages)
    once = prepare(messages, shape_of(provider, model))
    assert messages == before
    assert prepare(once, shape_of(provider, model)) is once
    assert [found for found in problems(once) if "tool" in found] == []
    assert sum(len(calls_of(each)) for each in once) == sum(len(calls_of(each)) for each in messages)


@pytest.mark.parametrize("vendor", PROFILES)
@QUICK
@given(messages=handed_over())
def test_no_part_is_lost(vendor: str, messages: list[Message]) -> None:
    """What a tool result cannot hold here is shown after it."""
    sent, _ = as_sent(MODELS[vendor], messages)
    before = json.dumps(messages).count('"image_url":')
    provider, _, model = MODELS[vendor].partition("/")
    if shape_of(provider, model).media == frozenset():
        assert json.dumps(sent).count("(An image that this model cannot be shown.)") == before
    else:
        assert json.dumps(sent).count('"image_url":') == before


def test_there_is_a_profile_for_each_model() -> None:
    assert MODELS.keys() == PROFILES.keys()
