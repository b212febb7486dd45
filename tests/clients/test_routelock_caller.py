"""routelock itself as the caller: to an agent, another served agent is one more model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from anyio import to_thread
from clients.cast import DESK, FORECAST, GREETING, POLYGLOT, Log
from clients.served import KEY, comes_true

from routelock import Agent, ProviderError, Retry, RunConfig, Runner, function_tool
from routelock.errors import AuthenticationFailed
from routelock.handlers.events import TextDelta
from routelock.handlers.port import Handler
from routelock_providers.chat_completions.openai import OpenAI
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import close_litellm
from routelock_providers.remote.agent import RemoteAgent

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]

Make = Callable[..., Handler]
"""Makes the handler that asks a served agent by its name; a key of one's own is the second argument."""

SCENES = {
    "greeter": (GREETING, 1),
    "desk": (DESK, 3),
    "polyglot": (POLYGLOT, 1),
    "slow": ("That took a while.", 2),
}
BOTH = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@pytest.fixture(params=["litellm", "openai", "remote"])
async def make(request: pytest.FixtureRequest, desk_server: tuple[str, Log]) -> AsyncIterator[Make]:
    url, _ = desk_server
    made: list[Any] = []

    def handler(agent: str, key: str = KEY) -> Handler:
        if request.param == "litellm":
            return LiteLLM(f"openai/{agent}", api_base=url, api_key=key)
        if request.param == "openai":
            made.append(OpenAI(agent, base_url=url, api_key=key))
        else:
            made.append(RemoteAgent(url, model=agent, api_key=key, pass_tools=True))
        return made[-1]

    yield handler
    for each in made:
        await each.aclose()
    await close_litellm()


async def result_of(agent: Agent[Any], text: str, *, streamed: bool) -> Any:
    """The result of a run, and the text that was shown while it went on."""
    config = RunConfig(retry=Retry(attempts=1))
    if not streamed:
        return await Runner.run(agent, text, run_config=config), None
    shown: list[str] = []
    async with Runner.run_streamed(agent, text, run_config=config) as running:
        async for event in running:
            if isinstance(event, TextDelta):
                shown.append(event.text)
    return running.result, "".join(shown)


@pytest.mark.pairwise
@BOTH
@pytest.mark.parametrize("agent", SCENES)
async def test_every_answer_is_whole(make: Make, agent: str, streamed: bool) -> None:
    text, requests = SCENES[agent]
    result, shown = await result_of(Agent("caller", model=make(agent)), "Hello?", streamed=streamed)
    assert result.final_output == text
    assert shown in (text, None)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (10 * requests, 5 * requests)


@BOTH
async def test_the_callers_tool_runs_at_the_callers(
    make: Make, desk_server: tuple[str, Log], streamed: bool, request: pytest.FixtureRequest
) -> None:
    """The served agent's own tool, called in the same breath, runs once, at the server."""
    asked: list[str] = []

    @function_tool
    def get_weather(city: str) -> str:
        asked.append(city)
        return "21 degrees"

    words = request.node.name
    caller = Agent("caller", model=make("forecaster"), tools=[get_weather])
    result, _ = await result_of(caller, words, streamed=streamed)
    assert result.final_output == FORECAST
    assert sorted(asked) == ["Paris", "Rome"]
    assert desk_server[1].stamped.count(words) == 1


@BOTH
async def test_a_failure_of_the_served_agent_is_one_of_the_caller(make: Make, streamed: bool) -> None:
    with pytest.raises(ProviderError) as raised:
        await result_of(Agent("caller", model=make("broken")), "Hello?", streamed=streamed)
    assert raised.value.result.stop_reason == "error"


async def test_a_wrong_key_is_a_typed_error(make: Make) -> None:
    with pytest.raises(AuthenticationFailed):
        await result_of(Agent("caller", model=make("greeter", "not-a-key")), "Hello?", streamed=False)


async def test_a_caller_that_leaves_cancels_the_run_at_the_server(
    make: Make, desk_server: tuple[str, Log], request: pytest.FixtureRequest
) -> None:
    words = request.node.name
    async with Runner.run_streamed(Agent("caller", model=make("endless")), words) as running:
        async for event in running:
            if isinstance(event, TextDelta):
                break
    assert await to_thread.run_sync(comes_true, lambda: words in desk_server[1].cancelled)
