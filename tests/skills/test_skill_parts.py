"""`Skill`: its parts, their scopes and order, and wrong definitions."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from routelock import Agent, AgentHooks, Request, RunContext, Runner, function_tool
from routelock import handoff as handoff_to
from routelock.agents.registry import Registry
from routelock.errors import CallbackError, ConfigError, NoHandlerError, SkillInitError
from routelock.testing import ScriptedHandler, call
from routelock_skills import Skill, handler, handoff, hook, prompt, tool

pytestmark = pytest.mark.anyio


def agent(*replies: Any, name: str = "A", **options: Any) -> Agent[Any]:
    return Agent(name, "You are A.", model=ScriptedHandler(replies, name="model"), **options)


def asked(of: Agent[Any], turn: int = 0) -> Request:
    assert isinstance(of.model, ScriptedHandler)
    return of.model.requests[turn]


def offered(of: Agent[Any], turn: int = 0) -> list[str]:
    return [spec["function"]["name"] for spec in asked(of, turn).tools]


def system(of: Agent[Any], turn: int = 0) -> Any:
    return asked(of, turn).messages[0].get("content")


class Weather(Skill):
    """One of each part."""

    def __init__(self, city: str = "Bern", **options: Any) -> None:
        super().__init__(**options)
        self.city = city
        self.seen: list[str] = []

    @prompt
    def style(self) -> str:
        return f"Speak of {self.city}."

    @tool
    async def forecast(self) -> str:
        """Forecast."""
        return f"Rain in {self.city}."

    @handoff(prompt="Knows climates.")
    async def expert(self, request: Request) -> AsyncGenerator[str]:
        yield "Wet, "
        yield f"as ever in {self.city}."

    @hook("on_tool_end")
    async def note(self, context: Any, agent: Any, tool: Any, result: str) -> None:
        self.seen.append(f"{self.city}: {agent.name} {tool.name} {result}")


# -- parts --


async def test_its_tools_are_offered_and_bound_to_it(play: Any) -> None:
    one = agent(call("forecast"), "Rain.", skills=[Weather("Oslo")])
    await play(one)
    assert offered(one) == ["forecast", "transfer_to_expert"]
    assert asked(one, 1).messages[-1].get("content") == "Rain in Oslo."


async def test_its_handlers_are_bound_to_it(play: Any) -> None:
    result = await play(agent(call("transfer_to_expert"), skills=[Weather("Oslo")]))
    assert (result.final_output, result.last_handler) == ("Wet, as ever in Oslo.", "expert")


async def test_its_prompts_join_the_instructions_once(play: Any) -> None:
    one = agent(call("forecast"), "Rain.", skills=[Weather("Oslo")])
    await play(one)
    expected = "You are A.\n\nSpeak of Oslo.\n\nKnows climates."
    assert (system(one, 0), system(one, 1)) == (expected, expected)


async def test_its_hooks_are_called(play: Any) -> None:
    skill = Weather("Oslo")
    await play(agent(call("forecast"), "Rain.", skills=[skill]))
    assert skill.seen == ["Oslo: A forecast Rain in Oslo."]


async def test_its_hooks_are_not_called_for_other_agents(play: Any) -> None:
    skill = Weather()

    @function_tool
    async def look() -> str:
        return "seen"

    other = agent(call("look"), "Bye.", name="B", tools=[look])
    await play(agent(call("transfer_to_b"), handoffs=[other], skills=[skill]))
    assert skill.seen == []


async def test_a_part_may_be_static_or_of_the_class(play: Any) -> None:
    class Mixed(Skill):
        @tool
        @staticmethod
        def static() -> str:
            """Nothing of itself."""
            return "static"

        @prompt
        @staticmethod
        def style() -> str:
            return "Be brief."

    one = agent(call("static"), "Done.", skills=[Mixed()])
    await play(one)
    assert system(one).endswith("Be brief.")
    assert asked(one, 1).messages[-1].get("content") == "static"


def test_parts_can_be_called_like_the_functions_they_are() -> None:
    skill = Weather("Oslo")
    assert skill.style() == "Speak of Oslo."


async def test_its_prompts_and_hooks_may_ask_for_the_context(play: Any) -> None:
    class Curious(Skill):
        @prompt
        async def who(self, context: RunContext[Any], agent: Any) -> str:
            return f"{context.context} asks {agent.name} in turn {context.turn}."

    one = agent("Hi.", skills=[Curious()])
    await Runner.run(one, "Hi", context="Ann")
    assert system(one) == "You are A.\n\nAnn asks A in turn 1."


async def test_failing_prompt_names_its_skill(play: Any) -> None:
    class Broken(Skill):
        @prompt
        def style(self) -> str:
            raise RuntimeError("no ink")

    with pytest.raises(CallbackError, match=r"prompt of 'Broken', a skill of agent 'A', raised .*no ink"):
        await play(agent("Hi.", skills=[Broken()]))


async def test_an_empty_prompt_leaves_no_gap(play: Any) -> None:
    class Quiet(Skill):
        @prompt
        def style(self) -> str:
            return ""

    one = agent("Hi.", skills=[Quiet()])
    await play(one)
    assert system(one) == "You are A."


# -- inheritance --


async def test_a_subclass_has_the_parts_of_its_parents(play: Any) -> None:
    class Local(Weather):
        @tool
        def wind(self) -> str:
            """Wind."""
            return "none"

    one = agent("Hi.", skills=[Local()])
    await play(one)
    assert offered(one) == ["forecast", "wind", "transfer_to_expert"]


async def test_a_subclass_replaces_a_part(play: Any) -> None:
    class Grumpy(Weather):
        @tool
        async def forecast(self) -> str:
            """Forecast."""
            return "Look out of the window."

    one = agent(call("forecast"), "Done.", skills=[Grumpy()])
    await play(one)
    assert asked(one, 1).messages[-1].get("content") == "Look out of the window."


async def test_a_subclass_switches_a_part_off(play: Any) -> None:
    class Plain(Weather):
        style = None  # type: ignore[assignment]
        expert = None  # type: ignore[assignment]

    one = agent("Hi.", skills=[Plain()])
    await play(one)
    assert (offered(one), system(one)) == (["forecast"], "You are A.")


async def test_an_overriding_method_without_a_decorator_is_a_plain_method(play: Any) -> None:
    class Plain(Weather):
        async def forecast(self) -> str:  # type: ignore[override]
            return "not offered"

    one = agent("Hi.", skills=[Plain()])
    await play(one)
    assert "forecast" not in offered(one)


# -- one skill, many agents --


async def test_two_agents_share_a_skill_without_mixing(play: Any) -> None:
    class Counting(Weather):
        """Registers something of the agent's own."""

        def initialize(self, registry: Registry) -> None:
            registry.add_prompt(f"You serve {registry.agent}.")

    skill = Counting()
    one, two = agent("Hi.", skills=[skill], name="A"), agent("Hi.", skills=[skill], name="B")
    for each in (one, two):
        await play(each)
        assert system(each).count("You serve") == 1
        assert f"You serve {each.name}." in system(each)


async def test_runs_at_the_same_time_share_a_skill() -> None:
    skill = Weather()

    async def again(request: Request) -> Any:
        await anyio.lowlevel.checkpoint()
        last = request.messages[-1]
        return "Rain." if last["role"] == "tool" else call("forecast")

    one = agent(*[again] * 40, skills=[skill])
    outputs: list[str] = []

    async def run() -> None:
        outputs.append((await Runner.run(one, "Hi")).final_output)

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(run)
    assert outputs == ["Rain."] * 20


def test_two_instances_need_two_names() -> None:
    with pytest.raises(ConfigError, match="two skills named 'Weather'; give one another name"):
        agent(skills=[Weather(), Weather("Oslo")])


def test_two_instances_bring_the_same_names_twice() -> None:
    with pytest.raises(ConfigError, match="'expert', one from 'Weather' and one from 'other'"):
        agent(skills=[Weather(), Weather("Oslo", name="other")])


def test_a_tool_of_a_skill_may_not_be_named_like_one_of_the_agent() -> None:
    @function_tool
    def forecast() -> str:
        return ""

    with pytest.raises(ConfigError, match="offered as 'forecast'"):
        agent(tools=[forecast], skills=[Weather()])


@pytest.mark.parametrize("thing", [Weather, "Weather", None])
def test_value_that_is_not_a_skill_is_refused(thing: Any) -> None:
    with pytest.raises(ConfigError, match="is not a Skill"):
        agent(skills=[thing])


def test_the_class_instead_of_an_instance_says_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"pass Weather\(\)"):
        agent(skills=[Weather])  # type: ignore[list-item]


# -- dependencies --


class Recorded(Skill):
    """Notes when it is initialised, in ``config["log"]``."""

    def initialize(self, registry: Registry) -> None:
        self.config["log"].append(self.name)


def chain(log: list[str], **needs: Any) -> list[Skill]:
    return [Recorded({"log": log}, name=name, dependencies=needed) for name, needed in needs.items()]


def test_dependencies_are_initialised_first() -> None:
    """Webagents ignored them."""
    log: list[str] = []
    agent(skills=chain(log, a=["c"], b=[], c=["d"], d=[]))
    assert log == ["d", "c", "a", "b"]


def test_without_dependencies_the_declared_order_stands() -> None:
    log: list[str] = []
    agent(skills=chain(log, b=[], a=[]))
    assert log == ["b", "a"]


def test_a_dependency_of_two_is_initialised_once() -> None:
    log: list[str] = []
    agent(skills=chain(log, a=["c"], b=["c"], c=[]))
    assert log == ["c", "a", "b"]


def test_dependency_loop_is_refused_and_shown() -> None:
    with pytest.raises(ConfigError, match="in a circle: b -> c -> b"):
        agent(skills=chain([], a=["b"], b=["c"], c=["b"]))


def test_skill_that_depends_on_itself_is_refused() -> None:
    with pytest.raises(ConfigError, match="in a circle: a -> a"):
        agent(skills=chain([], a=["a"]))


def test_a_missing_dependency_is_refused() -> None:
    with pytest.raises(ConfigError, match="skill 'a' depends on 'z', which the agent does not have"):
        agent(skills=chain([], a=["z"]))


def test_a_skill_finds_those_it_depends_on() -> None:
    found: list[Any] = []

    class Needs(Skill):
        dependencies = ("Weather",)

        def initialize(self, registry: Registry) -> None:
            found.append(registry.skills["Weather"])

    skill = Weather()
    agent(skills=[Needs(), skill])
    assert found == [skill]


# -- initialising --


def test_a_failing_initialize_names_the_skill() -> None:
    """Webagents logged it and went on without the handler."""

    class Broken(Skill):
        def initialize(self, registry: Registry) -> None:
            raise OSError("no disk")

    with pytest.raises(SkillInitError, match=r"'A': skill 'Broken' could .* OSError: no disk") as raised:
        agent(skills=[Broken()])
    assert isinstance(raised.value.__cause__, OSError)


@pytest.mark.filterwarnings("error")
def test_an_async_initialize_is_refused() -> None:
    class Late(Skill):
        async def initialize(self, registry: Registry) -> None:  # type: ignore[override]
            raise AssertionError

    with pytest.raises(SkillInitError, match="initialize of skill 'Late' is async"):
        agent(skills=[Late()])


async def test_a_skill_registers_what_no_decorator_can(play: Any) -> None:
    class Tables(Skill):
        def initialize(self, registry: Registry) -> None:
            for name in self.config["tables"]:
                registry.add_tool(tool(lambda name=name: f"rows of {name}", name=f"read_{name}"))

    one = agent("Hi.", skills=[Tables({"tables": ["cats", "dogs"]})])
    await play(one)
    assert offered(one) == ["read_cats", "read_dogs"]


def test_registering_later_is_refused() -> None:
    """Agents are immutable."""
    kept: list[Registry] = []

    class Keeps(Skill):
        def initialize(self, registry: Registry) -> None:
            kept.append(registry)

    agent(skills=[Keeps()])
    for late in (
        lambda: kept[0].add_prompt("Late."),
        lambda: kept[0].add_tool(Weather().forecast),
        lambda: kept[0].add_handler(Weather().expert),
        lambda: kept[0].add_hook("on_end", print),
    ):
        with pytest.raises(ConfigError, match="'A' is made already, and agents are immutable"):
            late()


async def test_appending_to_the_list_of_skills_changes_nothing(play: Any) -> None:
    skills: list[Skill] = []
    one = agent("Hi.", skills=skills)
    skills.append(Weather())
    await play(one)
    assert offered(one) == []


async def test_another_agent_is_made_with_other_skills(play: Any) -> None:
    one = agent("Hi.", skills=[Weather()])
    two = dataclasses.replace(one, model=ScriptedHandler(["Hi."]), skills=[])
    for each in (one, two):
        await play(each)
    assert (offered(one), offered(two)) == (["forecast", "transfer_to_expert"], [])


async def test_another_agent_is_made_with_one_skill_more(play: Any) -> None:
    one = agent("Hi.")
    two = dataclasses.replace(one, skills=[*one.skills, Weather()])
    await play(two)
    assert "forecast" in offered(two)


async def test_handler_of_a_skill_may_have_its_own_handoff(play: Any) -> None:
    """It is taken from the skill anew each time; still it is one handler, and offered once."""
    skill = Weather()
    one = agent("Hi.", skills=[skill], handoffs=[handoff_to(skill.expert, tool_name_override="ask_expert")])
    await play(one)
    assert offered(one) == ["forecast", "ask_expert"]


# -- who may use it --


class Guarded(Skill):
    """Parts with and without a scope of their own."""

    scope = "admin"

    @tool
    def inherits(self) -> str:
        """Inherit."""
        return ""

    @tool(scope="owner")
    def has_its_own(self) -> str:
        """Have one."""
        return ""

    @prompt
    def admins(self) -> str:
        return "For admins."

    @prompt(scope="owner")
    def owners(self) -> str:
        return "For owners."

    @handoff(prompt="Helps admins.")
    async def admin_help(self, request: Request) -> str:
        return "done"

    @handoff(scope="owner", prompt="Helps owners.")
    async def owner_help(self, request: Request) -> str:
        return "done"


@pytest.mark.pairwise
@pytest.mark.parametrize(
    ("scopes", "tools", "prompts"),
    [
        ([], [], []),
        (["owner"], ["has_its_own", "transfer_to_owner_help"], ["For owners.", "Helps owners."]),
        (
            ["admin"],
            ["inherits", "has_its_own", "transfer_to_admin_help", "transfer_to_owner_help"],
            ["For admins.", "For owners.", "Helps admins.", "Helps owners."],
        ),
        (["stranger"], [], []),
    ],
)
async def test_parts_inherit_the_scope_of_their_skill(
    scopes: list[str], tools: list[str], prompts: list[str], play: Any
) -> None:
    one = agent("Hi.", skills=[Guarded()])
    await play(one, scopes=scopes)
    assert offered(one) == tools
    assert system(one) == "\n\n".join(["You are A.", *prompts])


async def test_what_initialize_adds_inherits_the_scope_too(play: Any) -> None:
    class Plain(Skill):
        scope = "admin"

        def initialize(self, registry: Registry) -> None:
            registry.add_tool(tool(lambda: "", name="wipe"))
            registry.add_prompt("Wipe with care.")
            registry.add_handler(handoff(_nothing, name="wiper"))

    one = agent("Hi.", skills=[Plain()])
    await play(one)
    assert (offered(one), system(one)) == ([], "You are A.")


async def _nothing(request: Request) -> str:
    return ""


async def test_a_scope_given_wins_over_that_of_the_class(play: Any) -> None:
    one = agent("Hi.", skills=[Guarded(scope="all")])
    await play(one)
    assert offered(one) == ["inherits", "transfer_to_admin_help"]


async def test_handler_outside_the_scope_cannot_be_reached(play: Any) -> None:
    """A name that the model made up leads nowhere."""
    one = agent(call("transfer_to_admin_help"), "No.", skills=[Guarded()])
    result = await play(one)
    assert (result.final_output, result.last_handler) == ("No.", "model")
    with pytest.raises(ConfigError, match="no such handler that the run's scopes may reach"):
        await play(one, handler="admin_help")


async def test_a_handler_out_of_scope_is_not_the_default(play: Any) -> None:
    class First(Skill):
        scope = "admin"

        @handler(priority=1)
        async def first(self, request: Request) -> str:
            return "first"

    one = Agent("A", skills=[First()])
    with pytest.raises(NoHandlerError):
        await play(one)
    assert (await play(one, scopes=["admin"])).final_output == "first"


def test_unknown_scope_is_refused() -> None:
    with pytest.raises(ConfigError, match="Skill 'Weather': scope must be"):
        agent(skills=[Weather(scope=5)])


# -- order --


async def test_prompts_stand_in_the_order_of_their_priority(play: Any) -> None:
    """Those of handlers among them; equal ones as they were registered."""

    class Late(Skill):
        @prompt
        def third(self) -> str:
            return "third"

        @prompt(priority=1)
        def first(self) -> str:
            return "first"

        @handoff(priority=20, prompt="second")
        async def aside(self, request: Request) -> str:
            return ""

    class Later(Skill):
        @prompt
        def fourth(self) -> str:
            return "fourth"

    one = agent("Hi.", skills=[Late(), Later()])
    await play(one)
    assert system(one).split("\n\n") == ["You are A.", "first", "second", "third", "fourth"]


async def test_hooks_are_called_in_the_order_of_their_priority(play: Any) -> None:
    """The agent's own first."""
    order: list[str] = []

    class Own(AgentHooks):
        async def on_start(self, context: Any, agent: Any) -> None:
            order.append("own")

    class Watching(Skill):
        @hook("on_start")
        def usual(self, *args: Any) -> None:
            order.append(f"{self.name} usual")

        @hook("on_start", priority=1)
        async def early(self, *args: Any) -> None:
            order.append(f"{self.name} early")

    await play(agent("Hi.", hooks=Own(), skills=[Watching(name="one"), Watching(name="two")]))
    assert order == ["own", "one early", "two early", "one usual", "two usual"]


async def test_a_hook_that_raises_is_on_the_result_and_the_rest_goes_on(play: Any) -> None:
    called: list[str] = []

    class Broken(Skill):
        @hook("on_end", priority=1)
        def breaks(self, *args: Any) -> None:
            raise RuntimeError("no ink")

        @hook("on_end")
        def works(self, *args: Any) -> None:
            called.append("works")

    result = await play(agent("Hi.", skills=[Broken()]))
    assert (result.final_output, called) == ("Hi.", ["works"])
    assert [(problem.kind, str(problem.error)) for problem in result.errors] == [("hook", "no ink")]


@pytest.mark.pairwise
@pytest.mark.parametrize("event", [name for name in vars(AgentHooks) if name.startswith("on_")])
async def test_every_event_of_an_agent_has_a_hook(event: str, play: Any) -> None:
    called: list[str] = []

    class Watching(Weather):
        @hook(event)
        def watch(self, context: Any, agent: Any, *args: Any) -> None:
            called.append(agent.name)

    other = agent(call("forecast"), "Bye.", name="B", skills=[Watching()])
    await play(agent(call("transfer_to_b"), handoffs=[other]))
    assert set(called) == {"B"}


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"There is no hook 'on_tool_stop'\. There are: on_start"):
        hook("on_tool_stop")


def test_the_agents_own_handlers_come_before_equal_ones_of_skills() -> None:
    """Ties go by registration."""

    async def own(request: Request) -> str:
        return "own"

    made = Agent("A", handlers=[own], skills=[Weather()])
    assert [each.name for each in made.registered.handlers] == ["own", "expert"]
