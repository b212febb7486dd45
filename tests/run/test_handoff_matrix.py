"""Handoffs from every vendor to every other, over real HTTP bodies: no vendor gets what it refuses.

Each hop has thoughts with signatures, texts, parallel calls, and a transfer beside an ordinary call. The
target answers in kind and hands back. litellm translates for real; only the vendors are played.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from answers import Answers
from servers import Seen
from vendor_bodies import Asked, read_body
from vendor_replies import answer
from view_checks import MODELS

from routelock import Agent, RunConfig, Runner, RunResult, function_tool, handoff
from routelock.handlers.port import ModelSettings
from routelock.history.messages import calls_of
from routelock.testing import PROFILES, assert_valid
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import close_litellm

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only, pytest.mark.usefixtures("answers_of_respx")]

VENDORS = ["openai", "anthropic", "gemini", "mistral", "deepseek", "bedrock", "cohere"]
THINKING: ModelSettings = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
SETTINGS: Mapping[str, ModelSettings] = {"anthropic": THINKING, "bedrock": THINKING}
CONFIGS = {
    "told": RunConfig(),
    "shown": RunConfig(foreign_calls="shown"),
    "nested": RunConfig(nest_handoff_history=True),
}


@function_tool
async def look(at: int) -> str:
    """Look."""
    return f"seen {at}" if at else ""


class Played:
    """An agent whose model is a vendor that answers from a list."""

    def __init__(self, name: str, vendor: str, *turns: tuple[str, list[tuple[str, dict[str, Any]]]]) -> None:
        self.vendor = vendor
        self.thoughts = [f"{name} of {vendor} thinks {place}." for place in range(len(turns))]
        self.name = name
        replies = []
        for place, (thought, (text, calls)) in enumerate(zip(self.thoughts, turns, strict=True)):
            numbered = [(f"{name}{place}{index}_{vendor}_call_id", *each) for index, each in enumerate(calls)]
            replies.append(answer(vendor, thought, text, numbered))
        self.server = Answers(*replies)

    def handler(self) -> LiteLLM:
        key = None if self.vendor == "bedrock" else "test-not-a-key"
        return LiteLLM(MODELS[self.vendor], api_base=self.server.url, name=self.name, api_key=key)

    def settings(self) -> ModelSettings:
        return SETTINGS.get(self.vendor, {})

    def asked(self) -> list[Asked]:
        return [read_body(seen.path, seen.body) for seen in self.server.requests]


@asynccontextmanager
async def hop(
    source: str, target: str, **options: Any
) -> AsyncGenerator[tuple[Agent[Any], tuple[Played, Played]]]:
    a = Played(
        "a",
        source,
        ("", [("look", {"at": 1}), ("look", {"at": 0})]),
        ("I pass you on.", [("look", {"at": 3}), ("transfer_to_b", {})]),
        ("Anything else?", []),
    )
    b = Played(
        "b",
        target,
        ("", [("look", {"at": 4}), ("look", {"at": 5})]),
        ("Done, back to A.", [("transfer_to_a", {})]),
    )
    second = Agent(
        "b", "You are B.", model=b.handler(), model_settings=b.settings(), tools=[look], handoffs=["a"]
    )
    first = Agent(
        "a",
        "You are A.",
        model=a.handler(),
        model_settings=a.settings(),
        tools=[look],
        handoffs=[handoff(second, **options)],
    )
    async with AsyncExitStack() as stack:
        stack.enter_context(a.server)
        stack.enter_context(b.server)
        stack.push_async_callback(close_litellm)
        yield first, (a, b)


def assert_all_accepted(played: Played) -> None:
    for asked in played.asked():
        thinking = asked.thinking or played.vendor == "deepseek"  # whose newer models do by default
        assert_valid(asked.messages, PROFILES[played.vendor], tools=asked.tools, thinking=thinking)


def family_of(vendor: str) -> str:
    return "anthropic" if vendor == "bedrock" else vendor


def holds(seen: Seen, thought: str) -> bool:
    """Whether a thought is in a body: as text, or as the signature that stands for it."""
    body = json.dumps(seen.body)
    return thought in body or base64.b64encode(f"signed {thought}".encode()).decode() in body


def assert_thoughts_stay_in_the_family(a: Played, b: Played) -> None:
    for one, other in ((a, b), (b, a)):
        if family_of(one.vendor) != family_of(other.vendor):
            assert not any(holds(seen, thought) for seen in one.server.requests for thought in other.thoughts)


def assert_own_thoughts_come_back(a: Played) -> None:
    """The turn before the transfer, whose signature it needs, and those after it."""
    if a.vendor in ("anthropic", "bedrock", "gemini", "deepseek"):
        _, second, third = a.server.requests
        assert holds(second, a.thoughts[0])
        assert holds(third, a.thoughts[1])


def ran_to_its_end(result: RunResult[Any]) -> bool:
    ids = [call["id"] for message in result.messages for call in calls_of(message)]
    return result.final_output == "Anything else?" and len(ids) == len(set(ids)) == 7


PAIRS = [(source, target, "told") for source in VENDORS for target in VENDORS]
RING = [
    (source, target, how)
    for how in ("shown", "nested")
    for source, target in zip(VENDORS, [*VENDORS[1:], VENDORS[0]], strict=True)
]
"""Every vendor is a source once and a target once."""


@pytest.mark.pairwise
@pytest.mark.parametrize(("source", "target", "how"), PAIRS + RING)
async def test_there_and_back(source: str, target: str, how: str) -> None:
    async with hop(source, target) as (first, (a, b)):
        result = await Runner.run(first, "Hi", run_config=CONFIGS[how])
    assert ran_to_its_end(result)
    assert (len(a.server.requests), len(b.server.requests)) == (3, 2)
    assert_all_accepted(a)
    assert_all_accepted(b)
    assert_thoughts_stay_in_the_family(a, b)
    if how != "nested":
        assert_own_thoughts_come_back(a)
