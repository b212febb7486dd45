"""An error names the server where that is not the vendor's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from answers import Answers
from servers import SSE, Reply, chunk, failed, refused_url, streamed

from routelock import Agent, RunConfig, Runner
from routelock.errors import ProviderError
from routelock.handlers.port import Handler
from routelock.handlers.retry import Retry
from routelock_providers import OpenAICompatible
from routelock_providers.chat_completions.openai import OpenAI
from routelock_providers.http_errors import Answer, error_from_answer, vendor_label
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import close_litellm

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only, pytest.mark.usefixtures("answers_of_respx")]

ONCE = RunConfig(retry=Retry(attempts=1))
HANDLERS: Mapping[str, Callable[[str], Handler]] = {
    "LiteLLM openai": lambda url: LiteLLM("openai/m", api_base=url),
    "LiteLLM mistral": lambda url: LiteLLM("mistral/m", api_base=url, api_key="k"),
    "OpenAI": lambda url: OpenAI("m", base_url=url),
    "OpenAICompatible": lambda url: OpenAICompatible("m", base_url=url),
}
REPLIES: Mapping[str, Reply] = {
    "429": failed(429),
    "500": failed(500),
    "a cut stream": streamed(chunk({"content": "Hel"}), ending="cut", done=False),
    "a stream of nothing": Reply((b": hello\n\n",), content_type=SSE),
}


async def error_of(model: Handler) -> ProviderError:
    try:
        with pytest.raises(ProviderError) as caught:
            await Runner.run_streamed(Agent("a", model=model), "Hi", run_config=ONCE).drain()
    finally:
        await close_litellm()
    return caught.value


@pytest.mark.parametrize("what", REPLIES)
@pytest.mark.parametrize("name", HANDLERS)
async def test_a_failure_names_the_server(name: str, what: str) -> None:
    with Answers(REPLIES[what]) as server:
        error = await error_of(HANDLERS[name](server.url))
        place = server.url.removeprefix("http://").removesuffix("/v1")
    assert f"({place})" in str(error)
    assert place not in error.provider


@pytest.mark.parametrize("name", HANDLERS)
async def test_refused_connection_names_the_server(name: str) -> None:
    url = refused_url()
    error = await error_of(HANDLERS[name](url))
    assert f"({url.removeprefix('http://').removesuffix('/v1')})" in str(error)


@pytest.mark.parametrize(
    ("provider", "url", "told"),
    [
        ("openai", "", "openai"),
        ("openai", "https://api.openai.com/v1", "openai"),
        ("groq", "https://api.groq.com/openai/v1", "groq"),
        ("xai", "https://api.x.ai/v1", "xai"),
        ("gemini", "https://generativelanguage.googleapis.com", "gemini"),
        ("azure", "https://mine.openai.azure.com/openai/v1", "azure"),
        ("openai", "https://user:secret@gateway.example:8443/v1", "openai (gateway.example:8443)"),
        ("openai", "http://[::1]:8000/v1", "openai ([::1]:8000)"),
        ("local", "http://localhost:11434/v1", "local (localhost:11434)"),
        ("", "", "The provider"),
        ("agents.example", "https://agents.example/v1/chat/completions", "agents.example"),
        ("agents.example:81", "http://agents.example:81/v1", "agents.example:81"),
    ],
)
async def test_a_vendors_own_server_is_the_vendor(provider: str, url: str, told: str) -> None:
    assert vendor_label(provider, url) == told
    error = error_from_answer(Answer(429, {}, "no"), provider=provider, model="m", url=url)
    assert str(error).startswith(f"{told} answered 429")
