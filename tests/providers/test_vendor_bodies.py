"""Bodies of requests with any history are accepted by their vendor.

`test_vendor_shapes.py` checks the arguments for litellm; this checks the bodies that litellm makes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from answers import Answers
from histories import handed_over
from hypothesis import given
from servers import failed
from thoroughness import examples
from vendor_bodies import read_body
from view_checks import MODELS

from routelock.errors import InvalidRequest
from routelock.handlers.port import Request
from routelock.history.messages import Message
from routelock.testing import PROFILES, call, refusals
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import close_litellm

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only, pytest.mark.usefixtures("answers_of_respx")]

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
async def refusing() -> AsyncGenerator[Answers]:
    """A server that records requests and refuses them."""
    with Answers(failed(400)) as server:
        yield server
        await close_litellm()


async def ask(handler: LiteLLM, asked: Request) -> None:
    async with aclosing(handler.stream(asked)) as events:
        async for _ in events:
            pass


@pytest.mark.parametrize("vendor", MODELS)
@examples(15)
@given(messages=handed_over())
async def test_requests_are_accepted(refusing: Answers, vendor: str, messages: list[Message]) -> None:
    settings: dict[str, Any] = {"api_version": "2024-10-21"} if vendor == "azure" else {}
    handler = LiteLLM(MODELS[vendor], api_base=refusing.url, api_key=None if vendor == "bedrock" else "k")
    asked = Request(messages=messages, tools=[TOOL], settings=settings)
    refusing.requests.clear()
    with pytest.raises(InvalidRequest):
        await ask(handler, asked)
    (seen,) = refusing.requests
    read = read_body(seen.path.partition("?")[0], seen.body)
    assert refusals(read.messages, PROFILES[vendor], tools=read.tools, thinking=vendor == "deepseek") == []


SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
OWN_THOUGHTS: dict[str, dict[str, Any]] = {
    "anthropic": {"reasoning_content": "Hm.", "thinking_blocks": [SIGNED]},
    "bedrock": {"reasoning_content": "Hm.", "thinking_blocks": [SIGNED]},
    "gemini": {"reasoning_content": "Hm.", "provider_specific_fields": {"thought_signatures": ["c2ln"]}},
    "deepseek": {"reasoning_content": "Hm."},
    "xai": {"reasoning_content": "Hm."},
    "ollama": {"reasoning_content": "Hm."},
    "mistral": {"reasoning_content": "Hm.", "thinking_blocks": [{"type": "thinking", "thinking": "Hm."}]},
    "groq": {"reasoning": "Hm."},
    "cohere": {"reasoning_content": "Hm."},
}


@pytest.mark.parametrize("vendor", OWN_THOUGHTS)
@pytest.mark.parametrize("blank", ["", " \n"])
async def test_a_reply_of_thoughts_and_blanks_can_be_nudged(
    refusing: Answers, vendor: str, blank: str
) -> None:
    calling = call("f", id="abcDEF123")
    messages: list[Any] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [calling]},
        {"role": "tool", "tool_call_id": "abcDEF123", "content": "ok"},
        {"role": "assistant", "content": blank, **OWN_THOUGHTS[vendor]},
        {"role": "user", "content": "Your reply was empty. Answer the user, or call a tool."},
    ]
    handler = LiteLLM(MODELS[vendor], api_base=refusing.url, api_key=None if vendor == "bedrock" else "k")
    refusing.requests.clear()
    with pytest.raises(InvalidRequest):
        await ask(handler, Request(messages=messages, tools=[TOOL]))
    (seen,) = refusing.requests
    read = read_body(seen.path.partition("?")[0], seen.body)
    assert refusals(read.messages, PROFILES[vendor], tools=read.tools, thinking=vendor == "deepseek") == []
