"""Routes of respx answer what every handler asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI
from servers import HELLO, Server
from waiting import PATIENCE

from routelock import Agent, Handler, Retry, RunConfig, Runner
from routelock.errors import CassetteMiss, ConnectionFailed, MissingExtra, ProviderTimeout, RateLimited
from routelock.handlers import TextDelta
from routelock.testing import no_models, no_network, use_respx
from routelock_providers import LiteLLM, OpenAICompatible, RemoteAgent
from routelock_providers.chat_completions.openai import OpenAI

URL = "https://model.invalid/v1"
CHAT = f"{URL}/chat/completions"

HANDLERS: dict[str, Callable[[], Handler]] = {
    "LiteLLM": lambda: LiteLLM("openai/m", api_base=URL),
    "OpenAI": lambda: OpenAI("m", base_url=URL),
    "OpenAICompatible": lambda: OpenAICompatible("m", base_url=URL),
    "OpenAI with a client": lambda: OpenAI("m", client=AsyncOpenAI(api_key="k", base_url=URL, max_retries=0)),
    "RemoteAgent": lambda: RemoteAgent(URL),
}
CASES = [
    *(pytest.param(name, "asyncio", id=f"{name}-asyncio") for name in HANDLERS),
    *(
        pytest.param(name, "trio", id=f"{name}-trio")
        for name in ("OpenAI", "OpenAI with a client", "RemoteAgent")
    ),
]

WHOLE: dict[str, Any] = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Paid."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


async def chunks() -> AsyncIterator[bytes]:
    """The reply as a stream."""
    for delta, reason in ({"role": "assistant", "content": "Pa"}, None), ({"content": "id."}, "stop"):
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        event = {
            "id": "x",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [choice],
        }
        yield f"data: {json.dumps(event)}\n\n".encode()
    yield b"data: [DONE]\n\n"


@pytest.fixture
def respx() -> Any:
    return pytest.importorskip("respx")


async def ask(handler: Handler) -> str:
    once = RunConfig(retry=Retry(attempts=1))
    return (await Runner.run(Agent("a", model=handler), "Hi", run_config=once)).final_output


@pytest.mark.anyio
@pytest.mark.every_loop
@pytest.mark.parametrize(("name", "anyio_backend"), CASES, indirect=["anyio_backend"])
async def test_each_handler_is_answered(respx: Any, name: str) -> None:
    with no_network() as blocked, use_respx() as router:
        route = router.post(CHAT, json__messages__0__content="Hi").respond(json=WHOLE)
        assert await ask(HANDLERS[name]()) == "Paid."
    assert (route.call_count, blocked) == (1, [])


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "anyio_backend"), CASES, indirect=["anyio_backend"])
async def test_each_handler_is_streamed_to(respx: Any, name: str) -> None:
    with no_network(), use_respx() as router:
        router.post(CHAT).respond(stream=chunks(), headers={"content-type": "text/event-stream"})
        stream = Runner.run_streamed(Agent("a", model=HANDLERS[name]()), "Hi")
        texts = [event.text async for event in stream if isinstance(event, TextDelta)]
    assert "".join(texts) == "Paid."


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "anyio_backend"), CASES, indirect=["anyio_backend"])
async def test_request_without_a_route_ends_the_run(respx: Any, name: str) -> None:
    with no_network() as blocked, use_respx():
        with pytest.raises(CassetteMiss, match="not mocked"):
            await Runner.run(Agent("a", model=HANDLERS[name]()), "Hi")
    assert blocked == []


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "anyio_backend"), CASES, indirect=["anyio_backend"])
async def test_failures_are_those_of_a_network(respx: Any, name: str) -> None:
    with use_respx() as router:
        for effect, error in (
            (httpx.ConnectError("no"), ConnectionFailed),
            (httpx.ReadTimeout("slow"), ProviderTimeout),
            (httpx.Response(429, json={"error": {"message": "slow down"}}), RateLimited),
        ):
            route = router.post(CHAT).mock(side_effect=[effect])
            with pytest.raises(error):
                await ask(HANDLERS[name]())
            assert route.call_count == 1
            router.routes.clear()


@pytest.mark.anyio
async def test_a_request_can_pass_through(respx: Any) -> None:
    with Server(HELLO) as server, use_respx() as router:
        router.post(f"{server.url}/chat/completions").pass_through()
        handler = OpenAI("m", base_url=server.url)
        assert await ask(handler) == "Hello"
        await handler.aclose()
    assert len(server.requests) == 1


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_httpx_itself_is_answered_too(respx: Any) -> None:
    with use_respx() as router:
        router.get(URL).respond(text="here")
        async with httpx.AsyncClient() as client:
            assert (await client.get(URL)).text == "here"


def test_routes_that_are_not_asked_are_an_error(respx: Any) -> None:
    with pytest.raises(AssertionError, match="not called"), use_respx() as router:
        router.post(CHAT).respond(json=WHOLE)


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_a_router_that_is_started_is_used_as_it_is(respx: Any) -> None:
    with respx.mock(base_url=URL) as started:
        route = started.post("/chat/completions").respond(json=WHOLE)
        with use_respx(started) as router:
            assert router is started
            await ask(HANDLERS["OpenAICompatible"]())
        assert route.call_count == 1


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_other_routers_of_the_block_answer_too(respx: Any) -> None:
    with use_respx(respx.mock(assert_all_called=False)), respx.mock as inner:
        inner.post(CHAT).respond(json=WHOLE)
        assert await ask(HANDLERS["OpenAICompatible"]()) == "Paid."


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_models_may_be_asked_as_respx_answers(respx: Any) -> None:
    with no_models() as blocked, use_respx() as router:
        router.post(CHAT).respond(json=WHOLE)
        await ask(HANDLERS["OpenAICompatible"]())
    assert blocked == []


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_no_key_is_needed(respx: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with use_respx() as router:
        router.post("https://api.openai.com/v1/chat/completions").respond(json=WHOLE)
        assert await ask(OpenAICompatible("gpt-4o")) == "Paid."


LITELLMS_OWN = """
import asyncio, importlib, json, sys
if sys.argv[1] == "before":
    importlib.import_module("litellm.llms.custom_httpx.http_handler")
from routelock import Agent, Runner
from routelock.testing import no_network, use_respx
from routelock_providers import LiteLLM

with no_network(), use_respx() as router:
    route = router.post("https://api.clarifai.com/v2/ext/openai/v1/chat/completions")
    route.respond(json=json.loads(sys.argv[2]))
    agent = Agent("a", model=LiteLLM("clarifai/u.a.m", api_key="k"))
    print(asyncio.run(Runner.run(agent, "Hi")).final_output)
"""


@pytest.mark.parametrize("loaded", ["before", "in the block"])
def test_vendors_that_litellm_asks_by_its_own_client_are_seen(respx: Any, loaded: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LITELLMS_OWN, loaded, json.dumps(WHOLE)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=PATIENCE,
    )
    assert done.stdout == "Paid.\n", done.stderr


def test_without_respx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "respx", None)
    with pytest.raises(MissingExtra, match=r"pip install 'routelock\[respx\]'"), use_respx():
        pass
