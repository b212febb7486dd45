"""Requests with any history are accepted by the profile of their vendor."""

from __future__ import annotations

import copy
import json

import pytest
from histories import handed_over
from hypothesis import given
from thoroughness import examples
from view_checks import MODELS

from routelock.history.messages import Message, calls_of
from routelock.history.validity import problems
from routelock.testing import PROFILES, assert_valid
from routelock_providers.litellm.request import as_sent
from routelock_providers.request_shape import prepare
from routelock_providers.vendors import vendor_rules

QUICK = examples(30)


@pytest.mark.parametrize("vendor", PROFILES)
@QUICK
@given(messages=handed_over())
def test_fitted_requests_are_accepted(vendor: str, messages: list[Message]) -> None:
    sent, tools = as_sent(MODELS[vendor], messages)
    assert_valid(sent, vendor, tools=tools, thinking=vendor == "deepseek")


@pytest.mark.parametrize("vendor", PROFILES)
@QUICK
@given(messages=handed_over())
def test_fitted_requests_need_no_repair(vendor: str, messages: list[Message]) -> None:
    provider, _, model = MODELS[vendor].partition("/")
    before = copy.deepcopy(messages)
    once = prepare(messages, vendor_rules(provider, model))
    assert messages == before
    assert prepare(once, vendor_rules(provider, model)) is once
    assert [found for found in problems(once) if "tool" in found] == []
    assert sum(len(calls_of(each)) for each in once) == sum(len(calls_of(each)) for each in messages)


@pytest.mark.parametrize("vendor", PROFILES)
@QUICK
@given(messages=handed_over())
def test_no_part_is_lost(vendor: str, messages: list[Message]) -> None:
    """Parts that a tool result cannot hold follow it."""
    sent, _ = as_sent(MODELS[vendor], messages)
    before = json.dumps(messages).count('"image_url":')
    provider, _, model = MODELS[vendor].partition("/")
    if vendor_rules(provider, model).media == frozenset():
        assert json.dumps(sent).count("(An image that this model cannot be shown.)") == before
    else:
        assert json.dumps(sent).count('"image_url":') == before


def test_there_is_a_profile_for_each_model() -> None:
    assert MODELS.keys() == PROFILES.keys()
