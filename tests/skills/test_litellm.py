"""`LiteLLMSkill`: a model of any vendor, registered with the agent that has the skill."""

from __future__ import annotations

from typing import Any

import pytest
from answers import Answers
from servers import HELLO, HELLO_STREAM, failed

from routelock import Agent, Retry
from routelock.errors import ConfigError
from routelock_providers import LiteLLM
from routelock_skills import LiteLLMSkill

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only, pytest.mark.usefixtures("answers_of_respx")]

MODEL = "openai/gpt-4o-mini"


def at(server: Answers, **options: Any) -> LiteLLMSkill:
    return LiteLLMSkill(MODEL, api_base=server.url, api_key="none", **options)


@pytest.fixture
def hello(request: pytest.FixtureRequest) -> Any:
    """Says hello, streamed to those who want it so."""
    return HELLO_STREAM if "streamed" in request.node.name else HELLO


def test_it_is_named_after_the_model_and_a_model_by_priority() -> None:
    skill = LiteLLMSkill("openai/gpt-4o")
    assert (skill.name, skill.handler.name) == ("litellm_openai_gpt-4o", "litellm_openai_gpt-4o")
    assert (skill.handler.priority, skill.scope) == (10, "all")
    assert isinstance(skill.handler, LiteLLM)


def test_it_registers_the_model_with_the_agent() -> None:
    made = Agent("A", skills=[LiteLLMSkill("openai/gpt-4o", scope="owner")])
    (found,) = made.registered.handlers
    assert (found.name, found.priority, found.scope) == ("litellm_openai_gpt-4o", 10, "owner")
    assert (found.source, found.expose) == ("litellm_openai_gpt-4o", False)


def test_two_models_may_be_on_one_agent() -> None:
    """They are named after their models, and not after the class."""
    made = Agent("A", skills=[LiteLLMSkill("openai/gpt-4o"), LiteLLMSkill("openai/gpt-5", priority=5)])
    assert [each.name for each in made.registered.handlers] == [
        "litellm_openai_gpt-5",
        "litellm_openai_gpt-4o",
    ]


def test_the_same_model_twice_needs_another_name() -> None:
    with pytest.raises(ConfigError, match="two skills named 'litellm_openai_gpt-4o'"):
        Agent("A", skills=[LiteLLMSkill("openai/gpt-4o"), LiteLLMSkill("openai/gpt-4o")])
    both = [LiteLLMSkill("openai/gpt-4o"), LiteLLMSkill("openai/gpt-4o", name="backup")]
    assert [each.name for each in Agent("A", skills=both).registered.handlers][1] == "backup"


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("", {}, "needs a model string"),
        (MODEL, {"timeout": -1}, "timeout"),
        (MODEL, {"chunk_timeout": 0}, "chunk_timeout"),
    ],
)
def test_wrong_arguments_are_refused(model: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LiteLLMSkill(model, **options)


async def test_it_answers(play: Any, hello: Any) -> None:
    with Answers(hello) as server:
        result = await play(Agent("A", "You are A.", skills=[at(server)]))
    assert (result.final_output, result.last_handler) == ("Hello", f"litellm_{MODEL.replace('/', '_')}")
    assert (result.usage.requests, result.usage.input_tokens) == (1, 5)


async def test_its_settings_are_sent_and_the_agents_win(play: Any, hello: Any) -> None:
    with Answers(hello) as server:
        skill = at(server, settings={"temperature": 0.1, "seed": 7})
        await play(Agent("A", skills=[skill], model_settings={"temperature": 0.9}))
    body = server.requests[0].body
    assert (body["temperature"], body["seed"]) == (0.9, 7)


async def test_one_skill_serves_two_agents(play: Any, hello: Any) -> None:
    with Answers(hello) as server:
        skill = at(server)
        for name in ("A", "B"):
            await play(Agent(name, f"You are {name}.", skills=[skill]))
    assert [seen.body["messages"][0]["content"] for seen in server.requests] == ["You are A.", "You are B."]


async def test_several_are_a_chain_of_fallbacks(play: Any, hello: Any) -> None:
    """The next by priority answers for one that fails."""
    with Answers(failed(500)) as broken, Answers(hello) as sound:
        chain = [at(broken, name="first"), at(sound, name="second", priority=11)]
        result = await play(Agent("A", skills=chain), fallback=True, retry=Retry(attempts=1))
    assert (result.final_output, result.last_handler) == ("Hello", "second")
    assert [problem.kind for problem in result.errors] == ["fallback"]


def test_subclass_may_set_the_scope() -> None:
    class Dear(LiteLLMSkill):
        scope = "owner"

    assert Agent("A", skills=[Dear(MODEL)]).registered.handlers[0].scope == "owner"
    assert Agent("A", skills=[Dear(MODEL, scope="all")]).registered.handlers[0].scope == "all"
