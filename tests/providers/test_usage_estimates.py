"""Limits with servers that send no usage: tokens are estimated, unknown costs are a warning."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from answers import Answers
from servers import Reply, chunk, said, streamed

from routelock import Agent, RunConfig, Runner, RunResult, function_handler, function_tool
from routelock.errors import BudgetExceeded
from routelock.handlers.port import Handler, Request
from routelock.run.limits import Limits
from routelock.testing import ScriptedHandler, call
from routelock.usage import Usage
from routelock_providers import OpenAICompatible, RemoteAgent
from routelock_providers.chat_completions.openai import OpenAI
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import close_litellm
from routelock_providers.usage_estimates import completed_usage, estimated_usage

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("answers_of_respx")]

BOTH = pytest.mark.parametrize("watched", [False, True], ids=["plain", "streamed"])
HANDLERS: Mapping[str, Callable[[str], Handler]] = {
    "OpenAI": lambda url: OpenAI("m", base_url=url),
    "OpenAICompatible": lambda url: OpenAICompatible("m", base_url=url),
    "RemoteAgent": lambda url: RemoteAgent(url, pass_tools=True),
    "LiteLLM": lambda url: LiteLLM("openai/m", api_base=url),
}
EACH = pytest.mark.parametrize("name", HANDLERS)
QUESTION = "word " * 80
"""A hundred tokens, as four characters are about one."""


@function_tool
def look(page: int) -> str:
    """Look at a page."""
    return f"page {page}"


def looks(page: int, watched: bool, **more: Any) -> Reply:
    function = {"name": "look", "arguments": json.dumps({"page": page})}
    made = {"index": 0, "id": f"call_{page}", "type": "function", "function": function}
    if watched:
        return streamed(chunk({"tool_calls": [made]}), chunk({}, finish="tool_calls", **more))
    return said({"content": None, "tool_calls": [made]}, finish="tool_calls", **more)


async def run(agent: Agent[Any], text: str, watched: bool, limits: Limits) -> RunResult[Any]:
    config = RunConfig(limits=limits)
    if watched:
        return await Runner.run_streamed(agent, text, run_config=config).drain()
    return await Runner.run(agent, text, run_config=config)


@pytest.mark.asyncio_only
@BOTH
@EACH
async def test_a_limit_of_tokens_holds(name: str, watched: bool) -> None:
    try:
        with Answers(*[looks(page, watched) for page in range(8)]) as server:
            agent = Agent("a", model=HANDLERS[name](server.url), tools=[look])
            with pytest.raises(BudgetExceeded) as caught:
                await run(agent, QUESTION, watched, Limits(tokens=300))
            assert len(server.requests) in (2, 3)
    finally:
        await close_litellm()
    assert caught.value.result.usage.estimated
    assert caught.value.result.usage.total_tokens >= 300


@pytest.mark.asyncio_only
@BOTH
@EACH
async def test_a_count_of_zero_is_none(name: str, watched: bool) -> None:
    """Some servers send zeros in place of a count; each request has tokens."""
    zeros = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    try:
        with Answers(*[looks(page, watched, usage=zeros) for page in range(8)]) as server:
            agent = Agent("a", model=HANDLERS[name](server.url), tools=[look])
            with pytest.raises(BudgetExceeded) as caught:
                await run(agent, QUESTION, watched, Limits(tokens=300))
    finally:
        await close_litellm()
    assert caught.value.result.usage.estimated


INPUT_ONLY = {
    "no field": {"prompt_tokens": 7, "total_tokens": 7},
    "null": {"prompt_tokens": 7, "completion_tokens": None, "total_tokens": 7},
    "zero": {"prompt_tokens": 7, "completion_tokens": 0, "total_tokens": 7},
}


@pytest.mark.asyncio_only
@BOTH
@EACH
@pytest.mark.parametrize("counts", INPUT_ONLY)
async def test_output_that_is_not_counted_is_estimated(name: str, watched: bool, counts: str) -> None:
    """A limit of tokens would count too little."""
    text, usage = "word " * 80, INPUT_ONLY[counts]
    answer = (
        streamed(chunk({"content": text}), chunk({}, finish="stop", usage=usage))
        if watched
        else said({"content": text}, usage=usage)
    )
    try:
        with Answers(answer) as server:
            result = await run(Agent("a", model=HANDLERS[name](server.url)), "Hi", watched, Limits())
    finally:
        await close_litellm()
    assert (result.usage.input_tokens, result.usage.estimated) == (7, True)
    assert 80 <= result.usage.output_tokens <= 120


def test_half_of_the_counts_is_estimated() -> None:
    asked: Any = [{"role": "user", "content": "y" * 400}]
    said: Any = {"role": "assistant", "content": "x" * 40}
    whole = estimated_usage(asked, (), said)
    no_input, no_output = Usage(1, 0, 9, cost=0.5), Usage(1, 9, 0)
    assert completed_usage(no_input, asked, (), said) == Usage(
        1, whole.input_tokens, 9, cost=0.5, estimated=True
    )
    assert completed_usage(no_output, asked, (), said) == Usage(1, 9, whole.output_tokens, estimated=True)
    assert completed_usage(None, asked, (), said) == whole


def test_empty_reply_has_no_output_to_estimate() -> None:
    counted = Usage(1, 9, 0)
    empty: Any = {"role": "assistant", "content": ""}
    assert completed_usage(counted, [{"role": "user", "content": "Hi"}], (), empty) is counted


@pytest.mark.asyncio_only
@BOTH
@EACH
async def test_cost_limit_without_prices_is_a_warning(name: str, watched: bool) -> None:
    hello = (
        streamed(chunk({"content": "Hi"}), chunk({}, finish="stop")) if watched else said({"content": "Hi"})
    )
    try:
        with Answers(hello) as server:
            agent = Agent("a", model=HANDLERS[name](server.url))
            result = await run(agent, "Hi", watched, Limits(cost=1.0))
    finally:
        await close_litellm()
    (warning,) = result.warnings
    assert "the price of a model call is not known" in warning


def test_text_calls_and_tools_are_estimated() -> None:
    spec = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    message: Any = {"role": "assistant", "content": "x" * 40, "tool_calls": [call("look", {"page": 1})]}
    short = estimated_usage([{"role": "user", "content": "Hi"}], (), {"role": "assistant", "content": "Hi"})
    whole = estimated_usage([{"role": "user", "content": "y" * 400}], [spec], message)
    assert (short.requests, short.estimated, short.cost) == (1, True, None)
    assert whole.input_tokens > short.input_tokens + 100
    assert whole.output_tokens > short.output_tokens + 9


def test_an_image_counts_as_one_however_many_bytes_it_has() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}
    messages: Any = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}]
    assert (
        1000 <= estimated_usage(messages, (), {"role": "assistant", "content": "A dog."}).total_tokens < 1100
    )


@BOTH
async def test_handler_without_usage_is_a_warning(watched: bool) -> None:
    """A function has no estimate, because it may have called no model."""

    async def silent(request: Request) -> str:
        return "Hi"

    agent = Agent("a", model=function_handler(silent))
    result = await run(agent, "Hi", watched, Limits(tokens=10))
    (warning,) = result.warnings
    assert "Limits(tokens=...)" in warning
    assert "agent 'a'" in warning


@BOTH
async def test_warning_comes_once(watched: bool) -> None:
    async def silent(request: Request) -> Any:
        return call("look", {"page": request.turn}) if request.turn < 4 else "Hi"

    async def speaks(request: Request) -> Any:
        made = await silent(request)
        return made if isinstance(made, str) else {"role": "assistant", "tool_calls": [made]}

    agent = Agent("a", model=function_handler(speaks), tools=[look])
    result = await run(agent, "Hi", watched, Limits(tokens=10))
    assert len(result.warnings) == 1


async def test_no_warning_without_a_limit() -> None:
    async def silent(request: Request) -> str:
        return "Hi"

    result = await run(Agent("a", model=function_handler(silent)), "Hi", False, Limits(requests=3))
    assert result.warnings == ()
    assert result.usage == Usage(requests=1, estimated=True)


async def test_no_warning_for_counted_replies() -> None:
    result = await run(Agent("a", model=ScriptedHandler(["Hi"])), "Hi", False, Limits(tokens=1000))
    assert result.warnings == ()


@pytest.mark.asyncio_only
@BOTH
async def test_estimated_usage_has_a_cost(watched: bool) -> None:
    """litellm reports no tokens and no cost for a whole reply without usage."""
    hello = (
        streamed(chunk({"content": "Hi"}), chunk({}, finish="stop")) if watched else said({"content": "Hi"})
    )
    try:
        with Answers(hello) as server:
            agent = Agent("a", model=LiteLLM("openai/gpt-4o-mini", api_base=server.url))
            result = await run(agent, QUESTION, watched, Limits(cost=1.0))
    finally:
        await close_litellm()
    assert result.usage.estimated
    assert result.usage.cost
