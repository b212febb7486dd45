"""Vendors' own tools on Chat Completions: over aiohttp, over the openai library, and through litellm."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from answers import Answers
from servers import USAGE, Reply, chunk, event, streamed
from vendor_tool_replies import whole

from routelock import Agent, Runner, RunResult
from routelock.errors import ConfigError
from routelock.history import Citation
from routelock.testing import ScriptedHandler
from routelock_providers import LiteLLM, OpenAI, OpenAICompatible, close_litellm

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only, pytest.mark.usefixtures("answers_of_respx")]

SEARCH: Any = {"type": "web_search", "search_context_size": "low"}
MODEL = "gpt-4o-search-preview"
CITED = {
    "type": "url_citation",
    "url_citation": {"url": "https://a.example", "title": "A", "start_index": 0, "end_index": 2},
}
PLAIN = whole(
    {
        "id": "r1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "It rains.", "annotations": [CITED]},
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
    }
)
STREAM = streamed(
    chunk({"role": "assistant", "content": "It rains."}, created=1),
    chunk({"annotations": [CITED]}, created=1),
    chunk({}, finish="stop", created=1),
    event({"id": "r1", "model": MODEL, "created": 1, "choices": [], "usage": USAGE}),
)

Make = Callable[[str, str], Any]


def _compatible(url: str, model: str) -> Any:
    return OpenAICompatible(model, base_url=url, api_key="test-not-a-key")


def _openai(url: str, model: str) -> Any:
    return OpenAI(model, base_url=url, api_key="test-not-a-key")


def _litellm(url: str, model: str) -> Any:
    return LiteLLM(f"openai/{model}", api_base=url, api_key="test-not-a-key")


HANDLERS = pytest.mark.parametrize("make", [_compatible, _openai, _litellm])


async def ask(handler: Any, tools: Any, *, stream: bool = False, **more: Any) -> RunResult[Any]:
    close: Callable[[], Awaitable[None]] = getattr(handler, "aclose", close_litellm)
    agent = Agent("A", model=handler, tools=tools, **more)
    try:
        if not stream:
            return await Runner.run(agent, "Hi")
        running = Runner.run_streamed(agent, "Hi")
        async for _ in running:
            pass
        return running.result
    finally:
        await close()


@HANDLERS
@pytest.mark.parametrize("reply", [PLAIN, STREAM], ids=["whole", "streamed"])
async def test_openais_search_models_are_sent_options_and_answer_with_citations(
    make: Make, reply: Reply
) -> None:
    with Answers(reply) as server:
        result = await ask(make(server.url, MODEL), [SEARCH], stream=reply is STREAM)
    body = server.requests[0].body
    assert body["web_search_options"] == {"search_context_size": "low"}
    assert "tools" not in body
    assert result.citations == [Citation(url="https://a.example", title="A", start=0, end=2)]


PAGES: Any = {"search_results": [{"url": "https://a.example", "title": "A"}]}
BESIDE = whole({**json.loads(PLAIN.pieces[0]), **PAGES})
BESIDE_STREAM = streamed(
    chunk({"role": "assistant", "content": "It rains."}, created=1, **PAGES),
    chunk({}, finish="stop", created=1, **PAGES),
)


@HANDLERS
@pytest.mark.parametrize("reply", [BESIDE, BESIDE_STREAM], ids=["whole", "streamed"])
async def test_pages_beside_the_message_are_its_citations(make: Make, reply: Reply) -> None:
    """Perplexity names them there."""
    with Answers(reply) as server:
        result = await ask(make(server.url, "sonar"), [SEARCH], stream=reply is BESIDE_STREAM)
    assert result.citations == [Citation(url="https://a.example", title="A")]


@HANDLERS
async def test_a_server_of_the_app_is_sent_the_tool_as_it_is(make: Make) -> None:
    with Answers(PLAIN) as server:
        await ask(make(server.url, "m"), [SEARCH])
    assert server.requests[0].body["tools"] == [SEARCH]


@pytest.mark.parametrize(
    "host", ["api.deepseek.com", "api.mistral.ai/v1", "api.x.ai/v1", "api.openai.com/v1"]
)
async def test_a_vendor_without_the_tool_is_not_asked(host: str) -> None:
    with pytest.raises(ConfigError, match="web_search"):
        await ask(_compatible(f"https://{host}", "m"), [SEARCH])


async def test_a_later_agents_tool_is_refused_before_the_first_is_asked() -> None:
    first = ScriptedHandler(["Hi."])
    later = Agent("Later", model=_compatible("https://api.deepseek.com", "m"), tools=[SEARCH])
    with pytest.raises(ConfigError, match="Agent 'Later': The vendor's tool 'web_search' does not exist"):
        await Runner.run(Agent("First", model=first, handoffs=[later]), "Hi")
    assert not first.requests


async def test_functions_stand_before_the_vendors_tools() -> None:
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    with Answers(PLAIN) as server:
        await ask(_compatible(server.url, "m"), [SEARCH, double])
    assert [tool["type"] for tool in server.requests[0].body["tools"]] == ["function", "web_search"]


async def test_an_option_twice_is_an_error() -> None:
    settings: Any = {"web_search_options": {}}
    with Answers(PLAIN) as server:
        with pytest.raises(ConfigError, match="ask for the same"):
            await ask(_compatible(server.url, MODEL), [SEARCH], model_settings=settings)
    assert server.requests == []


async def test_a_history_of_another_api_is_sent_without_its_keys() -> None:
    """Two handlers may have one family, such as Google's two APIs."""
    said: Any = {"role": "assistant", "content": "Yes.", "vendor_calls": [{"tool": "web_search"}]}
    said |= {"vendor_items": {"api": "gemini", "items": []}, "_origin": "local@127.0.0.1"}
    with Answers(PLAIN) as server:
        handler = _compatible(server.url, "m")
        said["_origin"] = handler.family
        agent = Agent("A", model=handler)
        try:
            await Runner.run(
                agent, [{"role": "user", "content": "Hi"}, said, {"role": "user", "content": "So?"}]
            )
        finally:
            await handler.aclose()
    assert server.requests[0].body["messages"][1].keys() == {"role", "content"}
