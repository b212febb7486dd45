"""The fence around models."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers import HELLO, Server

from routelock import Agent, Handler, Request, RunConfig, Runner, function_handler
from routelock.testing import ModelCallBlocked, ScriptedHandler, no_models, use_cassette
from routelock_providers import LiteLLM, OpenAICompatible, RemoteAgent
from routelock_providers.chat_completions.openai import OpenAI

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]

URL = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("handler", "model"),
    [
        (LiteLLM("ollama_chat/qwen3", api_base=URL), "ollama_chat/qwen3"),
        (OpenAICompatible("qwen3", base_url=URL, api_key="none"), "local/qwen3"),
        (OpenAI("qwen3", base_url=URL, api_key="none"), "local/qwen3"),
        (RemoteAgent(URL, model="desk"), "127.0.0.1:9/desk"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_model_calls_of_all_handlers_are_refused(handler: Handler, model: str) -> None:
    with no_models() as blocked, pytest.raises(ModelCallBlocked) as caught:
        await Runner.run(Agent("desk", model=handler), "Hi")
    assert f"Agent 'desk' was about to ask the model {model!r} in turn 1" in str(caught.value)
    assert blocked == [caught.value.model] == [model]


async def test_scripts_and_functions_answer() -> None:
    async def parrot(request: Request) -> str:
        return "Hi"

    with no_models() as blocked:
        for handler in (ScriptedHandler(["Hi"]), function_handler(parrot)):
            assert (await Runner.run(Agent("a", model=handler), "Hi")).final_output == "Hi"
    assert blocked == []


async def test_function_that_calls_a_model_is_refused() -> None:
    inner = OpenAICompatible("qwen3", base_url=URL, api_key="none")
    with no_models(), pytest.raises(ModelCallBlocked):
        await Runner.run(Agent("a", model=function_handler(inner.stream)), "Hi")


async def test_no_other_handler_takes_over() -> None:
    """A fallback would hide what the test is to find."""
    handlers = [OpenAICompatible("qwen3", base_url=URL, api_key="none"), ScriptedHandler(["Hi"])]
    with no_models(), pytest.raises(ModelCallBlocked):
        await Runner.run(Agent("a", handlers=handlers), "Hi", run_config=RunConfig(fallback=True))


async def test_allowed_model_is_called_and_all_after_the_block() -> None:
    with Server(HELLO) as server:
        handler = OpenAICompatible("qwen3", base_url=server.url, api_key="none")
        with no_models() as blocked, pytest.raises(ModelCallBlocked):
            await Runner.run(Agent("a", model=handler), "Hi")
        with no_models(allow=blocked):
            assert (await Runner.run(Agent("a", model=handler), "Hi")).final_output
        assert (await Runner.run(Agent("a", model=handler), "Hi")).final_output
        await handler.aclose()


async def test_a_cassette_may_answer(tmp_path: Path) -> None:
    with Server(HELLO) as server:
        handler = OpenAICompatible("qwen3", base_url=server.url, api_key="none")
        with no_models(), use_cassette(tmp_path / "hello.yaml", record_mode="rewrite"):
            await Runner.run(Agent("a", model=handler), "Hi")
        await handler.aclose()
    with no_models():
        with use_cassette(tmp_path / "hello.yaml"):
            assert (await Runner.run(Agent("a", model=handler), "Hi")).final_output
        with pytest.raises(ModelCallBlocked):
            await Runner.run(Agent("a", model=handler), "Hi")
    await handler.aclose()
