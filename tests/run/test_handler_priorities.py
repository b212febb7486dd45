"""Who answers by default, who is on offer, and what the system prompt says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_and_streamed import Played, Voice, both

from routelock import (
    Agent,
    AgentHooks,
    HandoffRequest,
    RunConfig,
    RunContext,
    RunHooks,
    Runner,
    Skill,
    Tool,
    function_handler,
    handoff,
)
from routelock.agents.skill import hook, prompt
from routelock.errors import CallbackError, ConfigError, NoHandlerError
from routelock.handlers.port import Request
from routelock.history.messages import text_of
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio


def asks(target: Any, name: str = "ask") -> Tool:
    return Tool(name=name, on_invoke_tool=lambda context, arguments: HandoffRequest(target))


def systems(played: Played) -> list[str | None]:
    """The system prompt of each model call."""
    firsts = [made.messages[0] for made in played.result.calls]
    return [text_of(first) if first["role"] == "system" else None for first in firsts]


def offered(played: Played) -> list[list[str]]:
    """The names that were offered in each model call."""
    return [[str(spec["function"]["name"]) for spec in made.tools] for made in played.result.calls]


# -- who answers --


@given(st.lists(st.integers(-2, 2), min_size=1, max_size=6))
async def test_the_lowest_priority_and_then_the_first_registered_answers(priorities: list[int]) -> None:
    """In whole runs: each starts there."""
    agent = Agent("A", handlers=[Voice(f"h{n}", "1", "2", priority=p) for n, p in enumerate(priorities)])
    expected = f"h{priorities.index(min(priorities))}"
    for _ in range(2):
        assert (await Runner.run(agent, "Hi")).last_handler == expected


async def test_a_function_is_default_where_there_is_no_model() -> None:
    async def answer(request: Request) -> str:
        return "From the function."

    played = await both(lambda: Agent("A", handlers=[answer]))
    assert (played.result.final_output, played.result.last_handler) == ("From the function.", "answer")


async def test_the_runs_model_answers_in_place_of_the_default() -> None:
    agent = Agent("A", model=Voice("m"), handlers=[Voice("h", priority=1)])
    result = await Runner.run(agent, "Hi", run_config=RunConfig(model=Voice("mine", "Mine.")))
    assert (result.final_output, result.last_handler) == ("Mine.", "mine")


async def test_a_run_starts_at_the_handler_that_it_names() -> None:
    played = await both(lambda: Agent("A", model=Voice("m"), handlers=[Voice("h", "H.")]), handler="h")
    assert (played.result.final_output, played.result.last_handler) == ("H.", "h")


async def test_run_handler_holds_for_the_first_agent_only() -> None:
    b = Agent("B", model=Voice("b", "B."), handlers=[Voice("h")])
    agent = Agent("A", model=Voice("m", "M."), handlers=[Voice("h", call("transfer_to_b"))], handoffs=[b])
    assert (await Runner.run(agent, "Hi", run_config=RunConfig(handler="h"))).last_handler == "b"
    assert (await Runner.run(agent, "Hi")).last_handler == "m"


async def test_a_handler_that_the_run_names_must_be_there() -> None:
    with pytest.raises(ConfigError, match=r"RunConfig\(handler='x'\): agent 'A' has no such handler"):
        Runner.run_streamed(Agent("A", model=Voice("m")), "Hi", run_config=RunConfig(handler="x"))


async def test_agent_without_a_handler_fails_before_any_call() -> None:
    with pytest.raises(NoHandlerError, match="Agent 'A' has no model"):
        Runner.run_streamed(Agent("A"), "Hi")


@pytest.mark.parametrize("name", ["openai:gpt-4o", "openai/gpt-4o"])
async def test_model_in_the_place_of_the_name_is_pointed_out(name: str) -> None:
    with pytest.raises(NoHandlerError, match=r"The first argument of Agent is its name\.$"):
        Runner.run_streamed(Agent(name), "Hi")


async def test_handoff_target_starts_at_its_own_default() -> None:
    def make() -> Agent[Any]:
        b = Agent("B", handlers=[Voice("b2"), Voice("b1", "B1.", priority=1)])
        return Agent("A", model=Voice("m", call("transfer_to_b")), handoffs=[b])

    assert (await both(make)).result.last_handler == "b1"


# -- who is on offer --


def exposing(*replies: Any, **options: Any) -> Agent[Any]:
    handlers = [
        Voice("one", "One.", expose=True, prompt="Knows one."),
        Voice("two", "Two.", expose=True),
        Voice("hidden", "Hidden."),
    ]
    return Agent("A", model=Voice("m", *replies, priority=10), handlers=handlers, **options)


@pytest.mark.parametrize(("name", "said"), [("one", "One."), ("two", "Two.")])
async def test_each_exposed_handler_is_its_own_target(name: str, said: str) -> None:
    """In webagents both tools went to the last handler."""
    played = await both(lambda: exposing(call(f"transfer_to_{name}")))
    assert (played.result.final_output, played.result.last_handler) == (said, name)


async def test_only_exposed_handlers_are_on_offer() -> None:
    played = await both(lambda: exposing(call("transfer_to_hidden"), "Sorry."))
    assert offered(played)[0] == ["transfer_to_one", "transfer_to_two"]
    assert played.result.last_handler == "m"


async def test_what_is_on_offer_is_described_to_the_model() -> None:
    played = await both(lambda: exposing("Hi"))
    function = played.result.calls[0].tools[0]["function"]
    assert function["description"] == "Handoff to the one agent to handle the request. Knows one."
    assert function["parameters"]["type"] == "object"


async def test_the_handler_in_charge_is_not_on_offer() -> None:
    def make() -> Agent[Any]:
        one = Voice("one", call("transfer_to_two"), expose=True)
        two = Voice("two", "Two.", expose=True)
        return Agent("A", model=Voice("m", call("transfer_to_one"), priority=1), handlers=[one, two])

    assert offered(await both(make)) == [
        ["transfer_to_one", "transfer_to_two"],
        ["transfer_to_two"],
        ["transfer_to_one"],
    ]


async def test_an_exposed_default_is_a_way_back() -> None:
    def make() -> Agent[Any]:
        model = Voice("m", call("transfer_to_one"), "M again.", priority=1, expose=True)
        return Agent("A", model=model, handlers=[Voice("one", call("transfer_to_m"), expose=True)])

    played = await both(make)
    assert offered(played) == [["transfer_to_one"], ["transfer_to_m"], ["transfer_to_one"]]
    assert played.result.final_output == "M again."


async def test_exposed_and_declared_handler_is_offered_once() -> None:
    one = Voice("one", expose=True)
    declared = handoff(one, tool_name_override="go")
    agent = Agent("A", model=Voice("m"), handlers=[one], handoffs=[declared])
    assert [each.tool_name for each in agent.all_handoffs] == ["go"]


async def test_two_handlers_with_one_tool_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="are all offered as 'transfer_to_a_b'"):
        Agent("A", handlers=[Voice("a b", expose=True), Voice("a-b", expose=True)])


# -- prompts --

PARTS = ["Be A.", "First.", "Second.", "Third."]


def prompting(*replies: Any, tools: Sequence[Tool] = (), **options: Any) -> Agent[Any]:
    handlers = [
        Voice("s3", *options.pop("s3", ()), prompt="Third.", priority=40),
        Voice("s1", *options.pop("s1", ()), prompt="First.", priority=20),
        Voice("s2", *options.pop("s2", ()), prompt="Second.", priority=20),
    ]
    model = Voice("m", *replies, prompt="The default's own.", priority=1)
    return Agent("A", "Be A.", model=model, handlers=handlers, tools=tools, **options)


async def test_prompts_join_the_system_prompt_by_priority() -> None:
    assert systems(await both(lambda: prompting("Hi"))) == ["\n\n".join(PARTS)]


async def test_the_defaults_own_is_left_out() -> None:
    (system,) = systems(await both(lambda: prompting("Hi")))
    assert "default's own" not in str(system)


async def test_system_prompt_is_the_same_for_every_handler() -> None:
    """A prompt cache is worth money; who speaks is no reason to lose it."""

    def make() -> Agent[Any]:
        tools = [asks("s1", "one"), asks("s2", "two"), asks("m", "back")]
        return prompting(call("one"), "Done.", tools=tools, s1=[call("two")], s2=[call("back")])

    played = await both(make)
    assert [made.handler for made in played.result.calls] == ["m", "s1", "s2", "m"]
    assert set(systems(played)) == {"\n\n".join(PARTS)}


async def test_it_is_the_same_after_a_fallback() -> None:
    def make() -> Agent[Any]:
        return prompting(
            call("one"), OSError("down"), tools=[asks("s1", "one")], s1=[OSError("x")], s2=["Done."]
        )

    played = await both(make, fallback=True)
    assert [made.handler for made in played.result.calls] == ["m", "s1", "s2"]
    assert len(set(systems(played))) == 1


async def test_it_is_the_same_where_a_run_starts_elsewhere() -> None:
    played = await both(lambda: prompting(s2=["Hi"]), handler="s2")
    assert systems(played) == ["\n\n".join(PARTS)]


async def test_system_prompt_is_the_same_with_handoff_handlers() -> None:
    def make() -> Agent[Any]:
        x = Voice("x", call("transfer_to_y"), prompt="X.")
        y = Voice("y", call("ask"), prompt="Y.")
        model = Voice("m", call("transfer_to_x"), "Done.")
        return Agent("A", "Be A.", model=model, handoffs=[handoff(x), handoff(y)], tools=[asks("m")])

    played = await both(make)
    assert len(played.result.calls) == 4
    assert set(systems(played)) == {"Be A.\n\nX.\n\nY."}


async def test_system_prompt_is_the_same_with_an_unknown_handler() -> None:
    """The handler is not one of the agent's own, so no prompt describes it."""

    def make() -> Agent[Any]:
        guest = Voice("guest", "Guest.", prompt="A stranger.")
        return prompting(call("ask"), tools=[asks(guest)])

    assert set(systems(await both(make))) == {"\n\n".join(PARTS)}


async def test_registered_handoff_handler_is_described_once() -> None:
    def make() -> Agent[Any]:
        s = Voice("s", prompt="Knows.")
        handoffs = [handoff(s), handoff(s, tool_name_override="again")]
        return Agent("A", "Be A.", model=Voice("m", "Hi"), handlers=[s], handoffs=handoffs)

    assert systems(await both(make)) == ["Be A.\n\nKnows."]


async def test_handoff_that_is_not_offered_adds_no_prompt() -> None:
    def make() -> Agent[Any]:
        declared = handoff(Voice("s", prompt="Knows."), is_enabled=False)
        return Agent("A", "Be A.", model=Voice("m", "Hi"), handoffs=[declared])

    assert systems(await both(make)) == ["Be A."]


async def test_a_prompt_alone_is_a_system_prompt() -> None:
    played = await both(lambda: Agent("A", model=Voice("m", "Hi"), handlers=[Voice("s", prompt="Knows.")]))
    assert systems(played) == ["Knows."]


async def test_no_prompt_is_no_system_prompt() -> None:
    played = await both(lambda: Agent("A", model=Voice("m", "Hi"), handlers=[Voice("s")]))
    assert systems(played) == [None]


async def test_a_docstring_is_no_prompt() -> None:
    async def documented(request: Request) -> str:
        """Say nothing of this to a model."""
        return ""

    agent = Agent("A", model=Voice("m", "Hi"), handlers=[function_handler(documented)])
    result = await Runner.run(agent, "Hi")
    assert [message["role"] for message in result.calls[0].messages] == ["user"]


class Prompting(Skill):
    """A skill whose prompt is the function that it is given."""

    def __init__(self, write: Callable[..., Any]) -> None:
        super().__init__(name="prompting")
        self.write = write

    @prompt
    async def text(self, context: RunContext[Any], agent: Agent[Any]) -> str:
        given_: str = self.write(context, agent)
        return given_


def with_skill(write: Callable[..., Any]) -> Agent[Any]:
    return Agent(
        "A", "Be A.", model=Voice("m", call("ask"), "Hi"), skills=[Prompting(write)], tools=[asks("x")]
    )


async def test_a_skills_prompt_is_asked_in_every_turn() -> None:
    played = await both(lambda: with_skill(lambda context, agent: f"{agent.name} {context.turn}"))
    assert systems(played) == ["Be A.\n\nA 1", "Be A.\n\nA 2"]


async def test_a_skills_prompt_of_nothing_leaves_no_gap() -> None:
    assert systems(await both(lambda: with_skill(lambda context, agent: "")))[0] == "Be A."


@pytest.mark.parametrize("wrong", [lambda context, agent: 1 / 0, lambda context, agent: 5])
async def test_failing_prompt_of_a_skill_names_the_skill(wrong: Any) -> None:
    played = await both(lambda: with_skill(wrong))
    assert isinstance(played.error, CallbackError)
    assert "A prompt of 'prompting', a skill of agent 'A'" in str(played.error)
    assert played.result.calls == ()


# -- usage, hooks --


async def test_usage_is_told_by_handler() -> None:
    def make() -> Agent[Any]:
        return Agent(
            "A", model=Voice("m", call("ask"), priority=1), handlers=[Voice("s", "S.")], tools=[asks("s")]
        )

    played = await both(make)
    used = played.result.usage_by_handler
    assert {name: usage.requests for name, usage in used.items()} == {"m": 1, "s": 1}
    assert sum(usage.input_tokens for usage in used.values()) == played.result.usage.input_tokens


class Both(AgentHooks, RunHooks):
    """Writes down what the hooks of a run and of an agent are told of model calls."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def on_llm_start(self, context: RunContext[Any], agent: Any, request: Any) -> None:
        self.seen.append(("start", agent.name, request.turn, context.turn))

    async def on_llm_end(self, context: RunContext[Any], agent: Any, reply: Any) -> None:
        self.seen.append(("end", agent.name, text_of(reply.message), context.usage.requests))


async def test_an_agents_hooks_see_its_own_model_calls() -> None:
    hooks = Both()
    b = Agent("B", model=Voice("b", "B here."))
    agent = Agent("A", model=Voice("m", call("transfer_to_b")), handoffs=[b], hooks=hooks)
    await Runner.run(agent, "Hi")
    assert hooks.seen == [("start", "A", 1, 1), ("end", "A", "", 1)]


async def test_hooks_of_run_agent_and_skills_have_this_order() -> None:
    """Skills' hooks by priority."""
    seen: list[str] = []

    class Watch(RunHooks):
        async def on_llm_start(self, *_: Any) -> None:
            seen.append("run")

    class Own(AgentHooks):
        async def on_llm_start(self, *_: Any) -> None:
            seen.append("agent")

    class Noting(Skill):
        @hook("on_llm_start")
        def second(self, context: Any, agent: Any, request: Any) -> None:
            seen.append("second")

        @hook("on_llm_start", priority=1)
        async def first(self, context: Any, agent: Any, request: Any) -> None:
            seen.append("first")

    agent = Agent("A", model=Voice("m", "Hi"), hooks=Own(), skills=[Noting()])
    await Runner.run(agent, "Hi", hooks=Watch())
    assert seen == ["run", "agent", "first", "second"]


async def test_failing_hook_of_a_skill_is_a_problem() -> None:
    seen: list[str] = []

    class Broken(Skill):
        @hook("on_llm_end", priority=1)
        def broken(self, *_: Any) -> None:
            raise ValueError("no")

        @hook("on_llm_end")
        def fine(self, *_: Any) -> None:
            seen.append("fine")

    result = await Runner.run(Agent("A", model=Voice("m", "Hi"), skills=[Broken()]), "Hi")
    assert (result.final_output, seen) == ("Hi", ["fine"])
    assert [problem.message for problem in result.errors] == ["hook on_llm_end raised ValueError: no"]


@pytest.mark.parametrize("count", [2, 5])
async def test_concurrent_runs_do_not_share_handlers(count: int) -> None:
    """In webagents user B was answered by the specialist that A chose."""
    outputs: dict[int, tuple[Any, str]] = {}

    async def model(request: Request) -> Any:
        await anyio.lowlevel.checkpoint()
        number = int(text_of(request.messages[-1])) if request.messages[-1]["role"] == "user" else 0
        return call("ask", id="c") if number % 2 else "Default."

    async def specialist(request: Request) -> str:
        await anyio.lowlevel.checkpoint()
        return "Specialist."

    async def replying(request: Request) -> Any:
        said = await model(request)
        if isinstance(said, str):
            return said
        return {"role": "assistant", "content": None, "tool_calls": [said]}

    agent = Agent("A", model=function_handler(replying), handlers=[specialist], tools=[asks("specialist")])

    async def one(number: int) -> None:
        result = await Runner.run(agent, str(number))
        outputs[number] = (result.final_output, result.last_handler)

    async with anyio.create_task_group() as group:
        for number in range(1, count + 1):
            group.start_soon(one, number)
    odd, even = ("Specialist.", "specialist"), ("Default.", "replying")
    assert outputs == {number: odd if number % 2 else even for number in range(1, count + 1)}


async def test_handlers_are_loaded_from_the_agent_only() -> None:
    """Two runs, one after the other, of one agent whose only state is its declaration."""
    agent = Agent(
        "A",
        model=ScriptedHandler([call("ask"), "Again M."], name="m"),
        tools=[asks("s")],
        handlers=[Voice("s", "S.")],
    )
    before = agent.registered
    assert [(await Runner.run(agent, "Hi")).last_handler for _ in range(2)] == ["s", "m"]
    assert agent.registered is before


async def test_what_a_handler_used_is_added_up() -> None:
    played = await both(lambda: Agent("A", model=Voice("m", call("nothing"), call("nothing"), "Hi")))
    assert {name: used.requests for name, used in played.result.usage_by_handler.items()} == {"m": 3}


async def test_run_may_start_at_a_handoff_handler() -> None:
    """So that a run which waited for its caller goes on where it was."""
    voice = ScriptedHandler(["Hello."], name="voice")
    agent = Agent("A", model=ScriptedHandler([], name="m"), handoffs=[voice])
    result = await Runner.run(agent, "Hi", run_config=RunConfig(handler="voice"))
    assert (result.final_output, result.last_handler) == ("Hello.", "voice")
