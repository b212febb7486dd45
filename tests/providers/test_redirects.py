"""No handler goes where a server sends it: a key and a conversation are for the server that was named."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import openai
import pytest
from raw_server import RawServer
from servers import HELLO, HELLO_STREAM, Reply, Server

from routelock import Agent, RunConfig, Runner
from routelock.errors import InvalidRequest
from routelock.handlers.events import HandlerEvent
from routelock.handlers.port import Handler, Request
from routelock.handlers.retry import Retry
from routelock_providers import LiteLLM, OpenAICompatible, close_litellm
from routelock_providers.chat_completions.openai import OpenAI
from routelock_providers.remote.a2a import A2AAgent

pytestmark = pytest.mark.anyio

STATUSES = pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
WATCHED = pytest.mark.parametrize("watched", [False, True], ids=["whole", "streamed"])
KEY = "test-not-a-key"


class Trap:
    """A server that redirects every request, and the target."""

    def __init__(self, server: RawServer, other: Server) -> None:
        self.server = server
        self.url = server.url
        self.other = other
        self.there = other.url.removeprefix("http://").removesuffix("/v1")
        """The host that it leads to."""

    def check(self, error: BaseException) -> None:
        """See that nothing went there, nor here a second time, and that the error says where it leads."""
        assert self.other.connections == 0
        assert len(self.server.requests) == 1
        assert self.there in str(error)


@contextmanager
def trap(status: int, watched: bool = False) -> Iterator[Trap]:
    with Server(HELLO_STREAM if watched else HELLO) as other:
        with RawServer(Reply(status=status, headers={"location": f"{other.url}/chat/completions"})) as server:
            yield Trap(server, other)


async def refusal(handler: Handler, watched: bool) -> InvalidRequest:
    asked = Request(messages=[{"role": "user", "content": "a secret"}], stream=watched)
    with pytest.raises(InvalidRequest) as caught:
        await read(handler.stream(asked))
    return caught.value


async def read(reply: AsyncGenerator[HandlerEvent]) -> None:
    async with aclosing(reply) as events:
        async for _ in events:
            pass


def litellm(model: str, **settings: Any) -> Callable[[str], Any]:
    return lambda url: LiteLLM(model, api_base=url, api_key=KEY, settings=settings)


ON_ASYNCIO: dict[str, Callable[[str], Any]] = {
    "OpenAICompatible": lambda url: OpenAICompatible("m", base_url=url, api_key=KEY),
    "openai": litellm("openai/gpt-4o-mini"),
    "responses": litellm("openai/responses/gpt-4o"),
    "anthropic": litellm("anthropic/claude-haiku-4-5"),
    "gemini": litellm("gemini/gemini-2.5-flash"),
    "bedrock": litellm("bedrock/us.amazon.nova-lite-v1:0"),
    "mistral": litellm("mistral/mistral-small-latest"),
    "cohere": litellm("cohere_chat/command-a-03-2025"),
    "azure": litellm("azure/deployment", api_version="2024-10-21"),
    "azure v1": litellm("azure/deployment", api_version="v1"),
    "known to litellm from a file": litellm("scaleway/m"),
    "completions of old": litellm("text-completion-openai/m"),
    "not filtered": litellm("cloudflare/m"),
}


@pytest.mark.asyncio_only
@pytest.mark.pairwise
@WATCHED
@STATUSES
@pytest.mark.parametrize("name", ON_ASYNCIO)
async def test_a_redirect_is_refused(name: str, status: int, watched: bool) -> None:
    with trap(status, watched) as found:
        handler = ON_ASYNCIO[name](found.url)
        try:
            error = await refusal(handler, watched)
        finally:
            await (close_litellm() if isinstance(handler, LiteLLM) else handler.aclose())
        found.check(error)
    assert error.status == status
    assert not error.retryable
    assert ("api_base" if isinstance(handler, LiteLLM) else "base_url") in str(error)


@WATCHED
@STATUSES
async def test_openai_library_follows_no_redirect(status: int, watched: bool) -> None:
    with trap(status, watched) as found:
        handler = OpenAI("m", base_url=found.url, api_key=KEY)
        try:
            error = await refusal(handler, watched)
        finally:
            await handler.aclose()
        found.check(error)
    assert (error.status, error.retryable) == (status, False)


@WATCHED
@STATUSES
async def test_client_of_the_app_follows_no_redirect(status: int, watched: bool) -> None:
    with trap(status, watched) as found:
        async with openai.AsyncOpenAI(base_url=found.url, api_key=KEY) as client:
            error = await refusal(OpenAI("m", client=client), watched)
        found.check(error)
    assert (error.status, error.retryable) == (status, False)


@pytest.mark.asyncio_only
async def test_redirect_is_not_retried() -> None:
    with trap(307) as found:
        handler = OpenAICompatible("m", base_url=found.url, api_key=KEY)
        config = RunConfig(retry=Retry(attempts=3))
        try:
            with pytest.raises(InvalidRequest) as caught:
                await Runner.run(Agent("a", model=handler), "Hi", run_config=config)
        finally:
            await handler.aclose()
        found.check(caught.value)


@pytest.mark.asyncio_only
async def test_error_shows_no_secret_of_the_address() -> None:
    moved = Reply(status=302, headers={"location": "/login?api_key=sk-proj-abcdefghijklmnopqrstuvwx"})
    with Server(moved) as server:
        handler = OpenAICompatible("m", base_url=server.url, api_key=KEY)
        try:
            error = await refusal(handler, watched=False)
        finally:
            await handler.aclose()
    assert server.url.removesuffix("/v1") in str(error)
    assert "abcdefghijklmnopqrstuvwx" not in str(error)


def card(url: str) -> Reply:
    """What an agent says of itself, to be read before it is asked."""
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    said: dict[str, Any] = {"name": "a", "description": "a", "version": "1", "capabilities": {}, "skills": []}
    said |= {"defaultInputModes": ["text"], "defaultOutputModes": ["text"]}
    said["supportedInterfaces"] = [interface]
    return Reply((json.dumps(said).encode(),))


@pytest.mark.asyncio_only
@pytest.mark.parametrize("known", [False, True], ids=["its card", "itself"])
@STATUSES
async def test_a2a_redirect_is_not_followed(status: int, known: bool) -> None:
    with trap(status) as found:
        if known:
            found.server.say(card(found.url), Reply(status=status, headers={"location": found.other.url}))
        error = await refusal(A2AAgent(found.url, api_key=KEY), watched=False)
        assert found.other.connections == 0
        assert found.there in str(error)
    assert (error.status, error.retryable) == (status, False)
