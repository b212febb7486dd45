"""Skills: what their decorators make of methods, in which order they are initialised, and what goes wrong.

Whole runs with skills are in tests/skills.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_and_streamed import Voice

from routelock import Agent, Request, RunContext, Skill, handler, tool
from routelock.agents.hooks import AgentHooks
from routelock.agents.registry import Registry
from routelock.agents.skill import Hook, Prompt, hook, prompt, register_all
from routelock.errors import ConfigError, SkillInitError
from routelock.testing import ScriptedHandler


class Weather(Skill):
    @tool
    def forecast(self, city: str) -> str:
        """Say what the weather will be."""
        return f"{self.config['mood']} in {city}"

    @prompt(priority=10)
    def style(self) -> str:
        """A docstring that no model sees."""
        return f"Be {self.config['mood']}."

    @hook("on_tool_end", priority=3)
    async def note(self, context: RunContext[Any], agent: Any, made: Any, result: str) -> None: ...

    @handler(expose=True, prompt="Knows storms.")
    async def storms(self, request: Request) -> str:
        """A docstring that no model sees."""
        return "Stay at home."

    @handler
    async def winds(self, request: Request) -> AsyncGenerator[str]:
        yield "Windy."

    def helper(self) -> str:
        return "not registered"


def registered_on(*skills: Skill, **options: Any) -> Any:
    return Agent("A", model=ScriptedHandler([], name="m"), skills=skills, **options).registered


SUNNY = Weather({"mood": "sunny"})


# -- what the decorators make --


def test_tools_are_registered() -> None:
    assert [each.name for each in registered_on(SUNNY).tools] == ["forecast"]


def test_handlers_are_registered_with_the_skill_as_their_source() -> None:
    found = {each.name: each.source for each in registered_on(SUNNY).handlers}
    assert found == {"m": "agent", "storms": "Weather", "winds": "Weather"}


def test_prompts_are_registered_and_no_docstring_with_them() -> None:
    texts = [
        section.text() if callable(section.text) else section.text
        for section in registered_on(SUNNY).sections
    ]
    assert texts == ["Be sunny.", "Knows storms."]


def test_hooks_are_registered() -> None:
    hooks = registered_on(SUNNY).hooks
    assert list(hooks) == ["on_tool_end"]
    assert hooks["on_tool_end"][0].__self__ is SUNNY


def test_an_exposed_handler_is_offered() -> None:
    agent = Agent("A", model=ScriptedHandler([]), skills=[SUNNY])
    assert [each.tool_name for each in agent.all_handoffs] == ["transfer_to_storms"]


def test_a_method_still_is_one() -> None:
    """A unit test calls it as it is written."""
    assert SUNNY.style() == "Be sunny."
    assert isinstance(SUNNY.style, Prompt)
    assert isinstance(SUNNY.note, Hook)
    assert SUNNY.helper() == "not registered"


def test_two_skills_of_one_class_are_bound_to_themselves() -> None:
    rainy = Weather({"mood": "rainy"})
    assert (SUNNY.style(), rainy.style(), SUNNY.style()) == ("Be sunny.", "Be rainy.", "Be sunny.")


def test_parts_are_in_class_body_order_base_first() -> None:
    class Base(Skill):
        @tool
        def zebra(self) -> str:
            """Z."""
            return ""

        @tool
        def apple(self) -> str:
            """A."""
            return ""

    class More(Base):
        @tool
        def middle(self) -> str:
            """M."""
            return ""

    assert [each.name for each in registered_on(More()).tools] == ["zebra", "apple", "middle"]


def test_an_overridden_part_is_registered_once() -> None:
    class Windy(Weather):
        @tool
        def forecast(self, city: str) -> str:
            """Blow."""
            return "wind"

    (only,) = registered_on(Windy({"mood": ""})).tools
    assert only.description == "Blow."


def test_part_overridden_by_a_plain_method_is_not_registered() -> None:
    class Silent(Weather):
        def style(self) -> str:  # type: ignore[override]
            return "never called"

    assert [section.name for section in registered_on(Silent({"mood": ""})).sections] == ["storms"]


def test_parts_of_a_mixin_count() -> None:
    class Mixin:
        @tool
        def mixed(self) -> str:
            """M."""
            return ""

    class Both(Mixin, Skill): ...

    assert [each.name for each in registered_on(Both()).tools] == ["mixed"]


def test_property_of_a_skill_is_not_read_while_registering() -> None:
    class Lazy(Skill):
        @property
        def expensive(self) -> str:
            raise AssertionError("this must not be called")

    assert registered_on(Lazy()).tools == ()


# -- prompts and hooks --


def test_hook_of_an_unknown_event_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"There is no hook 'on_tool_ends'. There are: on_start, "):
        hook("on_tool_ends")


@pytest.mark.parametrize("event", [name for name in vars(AgentHooks) if name.startswith("on_")])
def test_every_method_of_agent_hooks_is_an_event(event: str) -> None:
    assert hook(event)(print).event == event


def test_hooks_of_all_skills_are_sorted_by_priority() -> None:
    class Late(Skill):
        @hook("on_start", priority=60)
        def late(self, context: Any, agent: Any) -> None: ...

    class Early(Skill):
        @hook("on_start")
        def second(self, context: Any, agent: Any) -> None: ...

        @hook("on_start", priority=1)
        def first(self, context: Any, agent: Any) -> None: ...

    found = [function.__name__ for function in registered_on(Late(), Early()).hooks["on_start"]]
    assert found == ["first", "second", "late"]


@pytest.mark.parametrize("scope", [5, "", []])
def test_a_prompts_scope_is_checked_where_it_is_written(scope: Any) -> None:
    with pytest.raises(ConfigError, match="scope must be"):
        prompt(scope=scope)(lambda: "")


def test_default_priority_of_a_prompt_is_50() -> None:
    assert (prompt(lambda: "").priority, prompt(priority=1)(lambda: "").priority) == (50, 1)


# -- scopes --


class Parts(Skill):
    @tool
    def plain(self) -> str:
        """P."""
        return ""

    @tool(scope="owner")
    def own(self) -> str:
        """O."""
        return ""

    @prompt
    def text(self) -> str:
        return ""

    @prompt(scope="owner")
    def own_text(self) -> str:
        return ""

    @handler
    async def one(self, request: Request) -> str:
        return ""

    @handler(scope="owner", prompt="Two.")
    async def two(self, request: Request) -> str:
        return ""

    def initialize(self, registry: Registry) -> None:
        registry.add_handler(Voice("three"), source=self.name, scope=self.scope)


def test_parts_without_a_scope_have_the_skills_scope() -> None:
    found = registered_on(Parts(scope="admin"))
    assert [each.scope for each in found.tools] == ["admin", "owner"]
    assert {each.name: each.scope for each in found.handlers} == {
        "m": "all",
        "one": "admin",
        "two": "owner",
        "three": "admin",
    }
    assert [section.scope for section in found.sections] == ["admin", "owner", "owner"]


@pytest.mark.parametrize("scope", [5, "", []])
def test_a_skills_scope_is_checked(scope: Any) -> None:
    with pytest.raises(ConfigError, match="Skill 'Parts': scope must be"):
        registered_on(Parts(scope=scope))


def test_class_attributes_set_scope_name_and_dependencies() -> None:
    class Mine(Skill):
        name = "mine"
        scope = "owner"
        dependencies = ("Weather",)

    assert (Mine().name, Mine().scope, Mine().dependencies) == ("mine", "owner", ("Weather",))
    given_ = Mine(name="other", scope="all", dependencies=[])
    assert (given_.name, given_.scope, given_.dependencies) == ("other", "all", ())


def test_skill_without_super_init_works() -> None:
    class Careless(Skill):
        def __init__(self) -> None:
            self.url = "x"

    agent = Agent("A", model=ScriptedHandler([]), skills=[Careless()])
    assert agent.registered.tools == ()


def test_settings_that_nobody_gave_are_nobodys() -> None:
    """Otherwise a write of one skill would appear in all others."""

    class Careless(Skill):
        def __init__(self) -> None: ...

    config: Any = Careless().config
    with pytest.raises(TypeError):
        config["url"] = "mine"
    assert Skill.config == {}


def test_the_settings_are_a_copy() -> None:
    settings = {"a": 1}
    skill = Skill(settings)
    settings["a"] = 2
    assert skill.config == {"a": 1}


# -- order of initialisation --


def noting(name: str, seen: list[str], *dependencies: str) -> Skill:
    class Noting(Skill):
        def initialize(self, registry: Registry) -> None:
            assert set(self.dependencies) <= set(seen)
            seen.append(self.name)

    return Noting(name=name, dependencies=dependencies)


def test_skills_are_initialised_in_their_order() -> None:
    seen: list[str] = []
    registered_on(noting("b", seen), noting("a", seen))
    assert seen == ["b", "a"]


def test_dependencies_come_first() -> None:
    seen: list[str] = []
    registered_on(noting("a", seen, "c", "b"), noting("b", seen, "c"), noting("c", seen))
    assert seen == ["c", "b", "a"]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda edge: edge[0] > edge[1])),
    st.permutations(range(6)),
)
def test_any_order_that_can_be_kept_is(edges: list[tuple[int, int]], declared: list[int]) -> None:
    seen: list[str] = []
    registered_on(*[noting(str(n), seen, *[str(b) for a, b in edges if a == n]) for n in declared])
    assert sorted(seen) == [str(n) for n in range(6)]


@pytest.mark.parametrize(
    ("edges", "circle"),
    [
        ({"a": ["a"]}, "a -> a"),
        ({"a": ["b"], "b": ["a"]}, "a -> b -> a"),
        ({"z": ["a"], "a": ["b"], "b": ["c"], "c": ["a"]}, "a -> b -> c -> a"),
    ],
)
def test_a_circle_is_shown(edges: dict[str, list[str]], circle: str) -> None:
    with pytest.raises(ConfigError, match=f"depend on each other in a circle: {circle}\\."):
        registered_on(*[Skill(name=name, dependencies=needed) for name, needed in edges.items()])


def test_missing_dependency_is_named() -> None:
    expected = "skill 'a' depends on 'unknown', which the agent does not have. It has: a, b"
    with pytest.raises(ConfigError, match=expected):
        registered_on(Skill(name="a", dependencies=["unknown"]), Skill(name="b"))


def test_a_skill_finds_those_that_it_depends_on() -> None:
    class Needs(Skill):
        dependencies = ("Weather",)

        def initialize(self, registry: Registry) -> None:
            assert registry.skills["Weather"] is SUNNY
            assert registry.agent == "A"

    registered_on(Needs(), SUNNY)


def test_decorated_parts_are_there_when_a_skill_is_initialised() -> None:
    class Looks(Weather):
        def initialize(self, registry: Registry) -> None:
            assert registry.get("storms") is not None

    registered_on(Looks({"mood": ""}))


def test_one_skill_may_serve_two_agents() -> None:
    first, second = registered_on(SUNNY), registered_on(SUNNY)
    assert [each.name for each in first.tools] == [each.name for each in second.tools]


# -- what goes wrong --


def test_a_skill_that_cannot_be_initialised_is_named() -> None:
    """It was logged, and the agent had no handler later."""

    class Broken(Skill):
        def initialize(self, registry: Registry) -> None:
            raise KeyError("url")

    with pytest.raises(
        SkillInitError, match="Agent 'A': skill 'Broken' could not be initialised: KeyError: 'url'"
    ) as e:
        registered_on(Broken())
    assert isinstance(e.value.__cause__, KeyError)


def test_an_async_initialize_is_refused() -> None:
    class Async(Skill):
        async def initialize(self, registry: Registry) -> None: ...  # type: ignore[override]

    with pytest.raises(SkillInitError, match="initialize of skill 'Async'"):
        registered_on(Async())


@pytest.mark.parametrize("skill", [Weather, 5, "Weather", ScriptedHandler([])])
def test_object_that_is_not_a_skill_is_an_error(skill: Any) -> None:
    with pytest.raises(ConfigError, match="is not a Skill"):
        registered_on(skill)


def test_skill_class_is_an_error_with_advice() -> None:
    skill: Any = Weather
    with pytest.raises(ConfigError, match=r"pass Weather\(\)"):
        registered_on(skill)


def test_two_skills_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="Agent 'A' has two skills named 'Weather'; give one another name"):
        registered_on(SUNNY, Weather({"mood": ""}))


def test_skills_with_one_tool_name_are_an_error() -> None:
    with pytest.raises(
        ConfigError, match="tool 'forecast' and tool 'forecast' are all offered as 'forecast'"
    ):
        registered_on(dataclass_tools("one"), dataclass_tools("two"))


def dataclass_tools(name: str) -> Skill:
    class Tools(Skill):
        @tool
        def forecast(self) -> str:
            """F."""
            return ""

    return Tools(name=name)


def test_skills_with_one_handler_name_are_an_error() -> None:
    with pytest.raises(
        ConfigError, match="two handlers are named 'storms', one from 'one' and one from 'two'"
    ):
        registered_on(Weather({"mood": ""}, name="one"), Weather({"mood": ""}, name="two"))


def test_dependencies_that_are_text_are_refused() -> None:
    """The letters would be looked for."""
    text: Any = "Weather"
    with pytest.raises(ConfigError, match="dependencies must be a list of names"):
        registered_on(type("Needs", (Skill,), {"dependencies": text})())


# -- agents do not change --


def test_an_agent_with_other_skills_is_another_agent() -> None:
    agent = Agent("A", model=ScriptedHandler([]), skills=[SUNNY])
    without = dataclasses.replace(agent, skills=[])
    assert len(agent.registered.tools) == 1
    assert without.registered.tools == ()


def test_kept_registry_refuses_later_additions() -> None:
    kept: list[Registry] = []

    class Keeps(Skill):
        def initialize(self, registry: Registry) -> None:
            kept.append(registry)

    registered_on(Keeps())
    with pytest.raises(ConfigError, match="is made already, and agents are immutable"):
        kept[0].add_prompt("later")


def test_equip_is_all_that_an_agent_does() -> None:
    found = register_all("A", ScriptedHandler([], name="m"), [], [SUNNY], [])
    assert [each.name for each in found.handlers] == ["m", "storms", "winds"]
