"""LiteLLM itself asks the served agents, as any app of its users would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from anyio import to_thread
from clients.cast import DESK, FORECAST, GREETING, POLYGLOT, Log
from clients.served import KEY, comes_true
from waiting import PATIENCE

from routelock_providers.litellm.library import close_litellm

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]

Ask = Any
"""Asks an agent by name: more arguments are LiteLLM's own."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SCENES = {
    "greeter": (GREETING, 1),
    "desk": (DESK, 3),
    "polyglot": (POLYGLOT, 1),
    "slow": ("That took a while.", 2),
}


@pytest.fixture
async def ask(desk_server: tuple[str, Log]) -> AsyncIterator[Ask]:
    import litellm

    async def acompletion(agent: str, text: str = "Hello?", **more: Any) -> Any:
        messages = more.pop("messages", [{"role": "user", "content": text}])
        return await litellm.acompletion(
            **{
                "model": f"openai/{agent}",
                "api_base": desk_server[0],
                "api_key": KEY,
                "messages": messages,
                "max_retries": 0,
                **more,
            }
        )

    yield acompletion
    await close_litellm()


async def built(stream: Any) -> Any:
    """Let LiteLLM put its own chunks together."""
    import litellm

    return litellm.stream_chunk_builder([chunk async for chunk in stream])


def usage_of(answer: Any) -> list[int]:
    return [answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens]


@pytest.mark.parametrize("agent", SCENES)
async def test_a_plain_answer(ask: Ask, agent: str) -> None:
    text, requests = SCENES[agent]
    answer = await ask(agent)
    assert answer.choices[0].message.content == text
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "stop"
    assert usage_of(answer) == [10 * requests, 5 * requests, 15 * requests]


@pytest.mark.parametrize("agent", SCENES)
async def test_a_streamed_answer_is_the_same(ask: Ask, agent: str) -> None:
    text, requests = SCENES[agent]
    answer = await built(await ask(agent, stream=True, stream_options={"include_usage": True}))
    assert answer.choices[0].message.content == text
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "stop"
    assert usage_of(answer) == [10 * requests, 5 * requests, 15 * requests]


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_the_callers_tool_is_the_callers_to_run(
    ask: Ask, desk_server: tuple[str, Log], streamed: bool
) -> None:
    """The agent's own tool, called beside it, runs once all the same."""
    words = f"Weather, LiteLLM {streamed}?"

    async def turn(messages: list[Any]) -> Any:
        answer = await ask("forecaster", messages=messages, tools=[WEATHER], stream=streamed)
        return (await built(answer) if streamed else answer).choices[0]

    messages: list[Any] = [{"role": "user", "content": words}]
    first = await turn(messages)
    calls = first.message.tool_calls
    assert first.finish_reason == "tool_calls"
    assert [call.function.name for call in calls] == ["get_weather", "get_weather"]
    assert [call.function.arguments for call in calls] == ['{"city": "Paris"}', '{"city": "Rome"}']
    answers = [{"role": "tool", "tool_call_id": call.id, "content": "21 degrees"} for call in calls]
    then = await turn([*messages, first.message.model_dump(), *answers])
    assert (then.message.content, then.finish_reason) == (FORECAST, "stop")
    assert desk_server[1].stamped.count(words) == 1


@pytest.mark.parametrize(
    ("error", "more"),
    [("AuthenticationError", {"api_key": "not-a-key"}), ("NotFoundError", {"model": "openai/nobody"})],
    ids=["no key", "unknown model"],
)
async def test_a_refusal_is_litellms_own_error(ask: Ask, error: str, more: dict[str, Any]) -> None:
    import litellm

    with pytest.raises(getattr(litellm.exceptions, error)):
        await ask("greeter", **more)


async def test_a_failure_in_mid_stream_is_an_error(ask: Ask) -> None:
    import openai

    texts: list[str] = []

    async def read(stream: Any) -> None:
        async for chunk in stream:
            texts.append(chunk.choices[0].delta.content or "")

    with pytest.raises(openai.APIError):
        await read(await ask("broken", stream=True))
    assert "".join(texts) == "Half an "


async def test_a_caller_that_leaves_cancels_the_run(ask: Ask, desk_server: tuple[str, Log]) -> None:
    stream = await ask("endless", "LiteLLM leaves", stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.aclose()
    # in a thread: the loop has to run for the connection to be closed
    assert await to_thread.run_sync(comes_true, lambda: "LiteLLM leaves" in desk_server[1].cancelled)


ALONE = """
import asyncio, sys
import litellm
from routelock_providers.litellm.library import close_litellm

async def main():
    answer = await litellm.acompletion(
        model="openai/greeter", api_base=sys.argv[1], api_key=sys.argv[2],
        messages=[{"role": "user", "content": "Hello?"}],
    )
    print(answer.choices[0].message.content)
    await close_litellm()

asyncio.run(main())
assert "routelock_providers.litellm.client" not in sys.modules
"""


def test_what_an_app_asked_of_litellm_by_itself_is_closed_as_well(desk_server: tuple[str, Log]) -> None:
    command = [sys.executable, "-W", "default::ResourceWarning", "-c", ALONE, desk_server[0], KEY]
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE, env=environment
    )
    assert (ran.stdout, ran.returncode) == (f"{GREETING}\n", 0), ran.stderr
    assert "unclosed" not in ran.stderr
