"""Programs for webagents, ported unchanged: they work, or fail at once with the names of both libraries."""

from __future__ import annotations

from typing import Any

import pytest
from plain_and_streamed import Voice
from scripted_agents import agent

from routelock import Agent, HandoffRequest, Runner
from routelock.agents.registry import Registry
from routelock.errors import ConfigError, SkillInitError
from routelock.testing import ScriptedHandler, call
from routelock_skills import AgentHandoffSkill, LiteLLMSkill, Skill, tool

pytestmark = pytest.mark.anyio


class Router(Skill):
    @tool
    def escalate(self) -> Any:
        """Let the expert answer."""
        return self.request_handoff("expert")

    @tool
    def look_up(self, topic: str) -> Any:
        """Let the expert answer about a topic."""
        return self.request_handoff("expert", {"topic": topic})


async def test_a_skill_asks_for_a_handoff_by_name() -> None:
    model = ScriptedHandler([call("escalate")])
    made = Agent("desk", model=model, skills=[Router()], handlers=[Voice("expert", "It depends.")])
    result = await Runner.run(made, "Hi")
    assert (result.final_output, result.last_handler) == ("It depends.", "expert")


async def test_a_skill_passes_something_along() -> None:
    expert = Voice("expert", "It depends.")
    model = ScriptedHandler([call("look_up", {"topic": "taxes"})])
    await Runner.run(Agent("desk", model=model, skills=[Router()], handlers=[expert]), "Hi")
    assert expert.requests[0].handoff_input == {"topic": "taxes"}


def test_keyword_of_a_request_of_webagents_is_named() -> None:
    ask: Any = Skill().request_handoff
    with pytest.raises(TypeError, match="unexpected keyword argument 'agent_url'") as raised:
        ask("expert", agent_url="https://agents.example.com")
    assert raised.value.__notes__ == ["Instead of agent_url=, write input={'agent_url': ...}."]


def test_result_of_a_skill_is_a_handoff_request() -> None:
    assert Skill().request_handoff("expert") == HandoffRequest("expert")


class Registers(Skill):
    def __init__(self, method: str, on: str) -> None:
        super().__init__(name="old")
        self.method, self.on = method, on

    def initialize(self, registry: Registry) -> None:
        getattr(self if self.on == "skill" else registry, self.method)(object())


@pytest.mark.parametrize("on", ["skill", "registry"])
@pytest.mark.parametrize(
    ("method", "instead"),
    [
        ("register_handoff", "registry.add_handler"),
        ("register_tool", "registry.add_tool"),
        ("register_hook", "registry.add_hook"),
        ("register_prompt", "registry.add_prompt"),
    ],
)
def test_a_method_of_webagents_names_the_one_here(method: str, instead: str, on: str) -> None:
    with pytest.raises(SkillInitError, match=rf"has no attribute '{method}': write {instead}\(\.\.\.\)"):
        agent("desk", skills=[Registers(method, on)])


def test_other_missing_attribute_is_a_plain_error() -> None:
    with pytest.raises(SkillInitError, match=r"has no attribute 'anything'$"):
        agent("desk", skills=[Registers("anything", "skill")])


def test_webagents_config_instead_of_a_url_is_refused() -> None:
    make: Any = AgentHandoffSkill
    with pytest.raises(
        ConfigError, match=r"takes the url of the agent as text, not .*AgentHandoffSkill\(url, allow="
    ):
        make({"agent_url": "https://agents.example.com"})
    with pytest.raises(ConfigError, match="takes the url of the agent as text, not 5"):
        make(5)


def test_webagents_config_instead_of_a_model_is_refused() -> None:
    make: Any = LiteLLMSkill
    with pytest.raises(
        ConfigError, match=r"takes litellm's model string, .*, not \{'model': 'openai/gpt-4o'\}"
    ):
        make({"model": "openai/gpt-4o"})


@pytest.mark.parametrize("config", ["expert", ["expert"], 5])
def test_a_config_is_a_dict(config: Any) -> None:
    with pytest.raises(ConfigError, match="Skill 'Skill': config must be a dict"):
        Skill(config)


def test_skills_are_a_list() -> None:
    skills: Any = {"router": Router()}
    with pytest.raises(ConfigError, match="Agent 'desk': skills must be a list, not a dict: pass its values"):
        Agent("desk", skills=skills)
