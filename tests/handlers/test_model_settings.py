"""Settings that would replace the run's own part of a request, or that are misspelt, are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from answers import Answers
from servers import HELLO

from routelock import Agent, RunConfig, Runner, function_tool
from routelock.errors import ConfigError
from routelock.testing import ScriptedHandler
from routelock_providers import OpenAICompatible, RemoteAgent
from routelock_providers.litellm.handler import LiteLLM
from routelock_skills.specialist import SpecialistSkill

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("answers_of_respx")]

SEARCH = [{"type": "web_search"}]


@function_tool
def look(page: int) -> str:
    """Look at a page."""
    return f"page {page}"


TAKERS: Mapping[str, Callable[[Any], object]] = {
    "agent": lambda settings: Agent("a", model=ScriptedHandler(["Hi"]), model_settings=settings),
    "run": lambda settings: RunConfig(model_settings=settings),
    "specialist": lambda settings: SpecialistSkill("s", "Help.", model="openai/m", settings=settings),
    "remote": lambda settings: RemoteAgent("http://127.0.0.1:1/v1", settings=settings),
    "litellm": lambda settings: LiteLLM("openai/m", settings=settings),
}
ALL = pytest.mark.parametrize("taker", TAKERS)


@pytest.mark.parametrize("taker", [name for name in TAKERS if name != "litellm"])
def test_tools_among_the_settings_are_refused(taker: str) -> None:
    with pytest.raises(ConfigError, match=r"'tools'.*Agent\(tools="):
        TAKERS[taker]({"tools": SEARCH})


@ALL
@pytest.mark.parametrize("key", ["messages", "model", "functions", "function_call"])
def test_settings_of_the_run_itself_are_an_error(taker: str, key: str) -> None:
    with pytest.raises(ConfigError, match=repr(key)):
        TAKERS[taker]({key: "x"})


@ALL
@pytest.mark.parametrize("key", ["tools", "tool_choice", "messages", "model", "functions", "function_call"])
def test_nor_may_it_be_in_the_extra_body(taker: str, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"extra_body has {key!r}"):
        TAKERS[taker]({"extra_body": {key: "x"}})


@pytest.mark.parametrize("taker", ["specialist", "remote", "litellm"])
def test_a_handlers_settings_have_no_tool_choice(taker: str) -> None:
    """It holds for an agent's first call, which a handler knows nothing of."""
    with pytest.raises(ConfigError, match="tool_choice"):
        TAKERS[taker]({"tool_choice": "required"})


@pytest.mark.parametrize("taker", ["agent", "run"])
def test_a_tool_choice_that_is_no_text_is_an_error(taker: str) -> None:
    choice = {"type": "function", "function": {"name": "look"}}
    with pytest.raises(ConfigError, match="'tool_choice' is 'required', 'none' or the name of a tool"):
        TAKERS[taker]({"tool_choice": choice})


def test_all_wrong_settings_are_in_one_message() -> None:
    settings = {"tools": SEARCH, "extra_body": {"model": "n"}, "temprature": 0}
    with pytest.raises(ConfigError) as caught:
        Agent("a", model="m", model_settings=cast(Any, settings))
    assert all(each in str(caught.value) for each in ("Agent 'a'", "'tools'", "'model'", "'temprature'"))


@pytest.mark.parametrize("settings", [None, "temperature", [("temperature", 0)]])
@pytest.mark.parametrize("taker", ["agent", "run"])
def test_settings_are_a_dict(taker: str, settings: Any) -> None:
    with pytest.raises(ConfigError, match="model_settings must be a dict"):
        TAKERS[taker](settings)


@pytest.mark.asyncio_only
async def test_a_litellm_handlers_own_tools_stand_beside_the_agents() -> None:
    with Answers(HELLO) as server:
        model = LiteLLM("openai/m", api_base=server.url, settings={"tools": SEARCH})
        await Runner.run(Agent("a", model=model, tools=[look]), "Hi")
    assert [tool["type"] for tool in server.requests[0].body["tools"]] == ["function", "web_search"]


# spelling


@ALL
@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("temprature", "temperature"),
        ("Temperature", "temperature"),
        ("max_token", "max_tokens"),
        ("max-tokens", "max_tokens"),
        ("top-p", "top_p"),
        ("paralel_tool_calls", "parallel_tool_calls"),
        ("tool_choise", "tool_choice"),
        ("reasoning_efort", "reasoning_effort"),
        ("extra_header", "extra_headers"),
        ("stream_option", "stream_options"),
    ],
)
def test_a_misspelt_setting_is_refused_with_the_right_name(taker: str, key: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key!r}.*{meant!r}.*extra_body"):
        TAKERS[taker]({key: 1})


VENDORS = """temperature top_p max_tokens max_completion_tokens seed stop parallel_tool_calls reasoning_effort
    frequency_penalty presence_penalty response_format logit_bias logprobs top_logprobs n service_tier store
    metadata user stream_options thinking verbosity top_k top_a min_p min_tokens max_new_tokens stop_sequences
    max_output_tokens repetition_penalty reasoning_format reasoning speed num_ctx keep_alive random_seed
    safe_prompt provider models transforms plugins usage search_parameters safety_settings cached_content
    guided_json chat_template_kwargs cache_control_injection_points api_version timeout drop_params
    topP""".split()


@ALL
def test_settings_of_vendors_pass(taker: str) -> None:
    for key in VENDORS:
        TAKERS[taker]({key: 1})


@pytest.mark.asyncio_only
async def test_misspelt_setting_can_be_sent_in_extra_body() -> None:
    with Answers(HELLO) as server:
        agent = Agent(
            "a",
            model=OpenAICompatible("m", base_url=server.url),
            model_settings={"extra_body": {"temprature": 0.5}},
        )
        await Runner.run(agent, "Hi")
    assert server.requests[0].body["temprature"] == 0.5
