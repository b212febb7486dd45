"""`handoff` and `Handoff`: handlers in the spelling of webagents."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from scripted_agents import requests

from routelock import Agent, HandoffRequest, Request, RunContext
from routelock.errors import ConfigError, NoHandlerError
from routelock.handlers.function_handler import FunctionHandler
from routelock.handlers.port import family_of, is_handler
from routelock.history.messages import text_of
from routelock.testing import ScriptedHandler, call
from routelock_skills import Handoff, Skill, handler, handoff, tool

pytestmark = pytest.mark.anyio


async def answer(request: Request) -> str:
    """Answer with a greeting."""
    return "Hello"


async def letters(request: Request) -> AsyncGenerator[str]:
    yield "Hel"
    yield "lo"


def agent(*replies: Any, **options: Any) -> Agent[Any]:
    return Agent("A", "You are A.", model=ScriptedHandler(replies, name="model"), **options)


# -- the decorator --


def test_it_is_a_handler_that_is_offered() -> None:
    """What webagents calls auto_tool."""
    made = handoff(answer)
    assert isinstance(made, FunctionHandler)
    assert made == dataclasses.replace(handler(answer), expose=True)


def test_its_options_are_those_of_a_handler() -> None:
    """The docstring is no prompt."""
    made = handoff(name="desk", family="x", priority=5, scope=["owner"], prompt="Greets.")(answer)
    assert (made.name, made.family, made.priority, made.scope) == ("desk", "x", 5, ("owner",))
    assert (made.prompt, made.expose) == ("Greets.", True)
    assert handoff()(answer).prompt is None


def test_a_keyword_of_webagents_is_named() -> None:
    made: Any = handoff
    with pytest.raises(TypeError, match="unexpected keyword argument 'auto_tool'") as raised:
        made(name="desk", auto_tool=True)
    assert raised.value.__notes__ == [
        "Instead of auto_tool=, write nothing: the model is always offered transfer_to_<name>."
    ]


def test_a_sync_function_is_refused() -> None:
    with pytest.raises(ConfigError, match="'sync' must be an async function or async generator"):

        @handoff
        def sync(request: Request) -> str:
            return "Hello"


class Desk(Skill):
    """One handler that is offered, and one that is not."""

    @handoff(prompt="Knows the weather.")
    async def weather(self, request: Request) -> AsyncGenerator[str]:
        yield "It "
        yield "rains."

    @handler(prompt="Knows the time.")
    async def clock(self, request: Request) -> str:
        return "Noon."

    @tool
    def ask_clock(self) -> HandoffRequest:
        """Ask for the time."""
        return HandoffRequest("clock")


async def test_the_model_hands_over_to_a_handoff(play: Any) -> None:
    result = await play(agent(call("transfer_to_weather"), skills=[Desk()]))
    assert (result.final_output, result.last_handler) == ("It rains.", "weather")


async def test_only_the_handoff_is_offered(play: Any) -> None:
    asked = agent("Hi", skills=[Desk()])
    await play(asked)
    specs = {spec["function"]["name"]: spec["function"] for spec in requests(asked)[0].tools}
    assert list(specs) == ["ask_clock", "transfer_to_weather"]
    assert specs["transfer_to_weather"]["description"].endswith("Knows the weather.")


async def test_a_plain_handler_is_reached_by_code(play: Any) -> None:
    """Not being offered does not mean that it is out of reach."""
    result = await play(agent(call("ask_clock"), skills=[Desk()]))
    assert (result.final_output, result.handoffs[0].requested_by) == ("Noon.", "tool")


async def test_each_handoff_leads_to_its_own_target(play: Any) -> None:
    """Webagents' tools all led to the last one."""

    @handoff
    async def one(request: Request) -> str:
        return "one"

    @handoff
    async def two(request: Request) -> str:
        return "two"

    for name in ("one", "two"):
        result = await play(agent(call(f"transfer_to_{name}"), handlers=[one, two]))
        assert result.final_output == name


async def test_there_is_a_transfer_back_to_the_default(play: Any) -> None:
    """It is offered while another handler is active, and not to itself."""
    offered: dict[str, list[str]] = {}

    def noting(name: str, *replies: Any) -> Any:
        script = iter(replies)

        async def answer(request: Request) -> Any:
            offered.setdefault(name, []).append(" ".join(spec["function"]["name"] for spec in request.tools))
            said = next(script)
            return said if isinstance(said, str) else {"content": None, "tool_calls": [said]}

        return answer

    first = handoff(noting("front", call("transfer_to_expert"), "Back again."), name="front", priority=1)
    expert = handoff(noting("expert", call("transfer_to_front")), name="expert")
    result = await play(Agent("desk", handlers=[first, expert]))
    assert result.final_output == "Back again."
    assert offered == {"front": ["transfer_to_expert"] * 2, "expert": ["transfer_to_front"]}


# -- Handoff --


def test_webagents_handoff_is_a_handler() -> None:
    made = Handoff(target="x", description="d", metadata={"function": answer, "priority": 10})
    assert is_handler(cast(object, made))
    assert (made.target, made.description, made.scope) == ("x", "d", "all")
    assert (made.name, made.prompt, made.priority, made.expose) == ("x", "d", 10, False)
    assert family_of(made) == "x"


def test_default_priority_is_50() -> None:
    assert Handoff("x", metadata={"function": answer}).priority == 50


def test_no_description_is_no_prompt() -> None:
    assert Handoff("x", metadata={"function": answer}).prompt is None


@pytest.mark.parametrize("metadata", [None, {}, {"priority": 10}, {"function": None}])
def test_a_handoff_without_a_function_is_refused_at_once(metadata: Any) -> None:
    """Webagents said so when the handoff was taken."""
    with pytest.raises(ConfigError, match="No function for handoff: x"):
        Handoff("x", metadata=metadata)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "", "metadata": {"function": answer}}, "name must be text that is not empty"),
        ({"metadata": {"function": "answer"}}, "cannot be called"),
        ({"metadata": {"function": len}}, "async"),
        ({"metadata": {"function": answer, "priority": "high"}}, "priority must be a whole number"),
        ({"metadata": {"function": answer, "auto_tool": "yes"}}, "expose must be a bool"),
        ({"metadata": {"function": answer}, "scope": 5}, "scope must be"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Handoff(**{"target": "x", **options})


def test_its_metadata_are_a_copy_and_other_keys_stay() -> None:
    given = {"function": answer, "is_generator": True, "team": "red"}
    made = Handoff("x", metadata=given)
    given["team"] = "blue"
    assert made.metadata == {"function": answer, "is_generator": True, "team": "red"}


def test_it_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Handoff("x", metadata={"function": answer}).target = "y"  # type: ignore[misc]


@pytest.mark.parametrize(("function", "claimed"), [(answer, True), (letters, False)])
async def test_function_decides_and_not_its_metadata(function: Any, claimed: bool, play: Any) -> None:
    """`is_generator` is ignored."""
    made = Handoff("x", metadata={"function": function, "is_generator": claimed})
    assert (await play(Agent("A", handlers=[made]))).final_output == "Hello"


async def test_it_answers_for_an_agent_by_its_priority(play: Any) -> None:
    first = Handoff("first", metadata={"function": answer, "priority": 5})
    asked = agent(handlers=[first])
    assert (await play(asked)).last_handler == "first"


async def test_auto_tool_offers_it(play: Any) -> None:
    made = Handoff("x", "Greets.", metadata={"function": answer, "auto_tool": True})
    result = await play(agent(call("transfer_to_x"), handlers=[made]))
    assert (result.final_output, result.last_handler) == ("Hello", "x")


async def test_it_may_be_the_target_of_an_agents_handoff(play: Any) -> None:
    made = Handoff("x", "Greets.", metadata={"function": answer})
    result = await play(agent(call("transfer_to_x"), handoffs=[made]))
    assert (result.final_output, result.last_handler) == ("Hello", "x")


async def test_its_scope_is_a_gate(play: Any) -> None:
    made = Handoff("x", scope="admin", metadata={"function": answer})
    with pytest.raises(NoHandlerError):
        await play(Agent("A", handlers=[made]))
    assert (await play(Agent("A", handlers=[made]), scopes=["admin"])).final_output == "Hello"


async def test_its_function_is_given_the_context(play: Any) -> None:
    async def who(messages: Any, context: RunContext[Any]) -> str:
        return f"{text_of(messages[-1])} {context.agent}"

    made = Handoff("x", metadata={"function": who})
    assert (await play(Agent("A", handlers=[made]))).final_output == "Hi A"


@pytest.mark.parametrize("given", [Agent("B", model="openai/m"), "B"], ids=["agent", "name"])
def test_an_agent_is_handed_to_by_the_other_handoff(given: Any) -> None:
    """Two packages have a `handoff`: the error names the other one."""
    with pytest.raises(ConfigError, match=r"routelock\.handoff\(agent\)"):
        handoff(given)


def test_webagents_handoff_names_a_handler_and_no_agent() -> None:
    target: Any = Agent("B", model="openai/m")
    with pytest.raises(ConfigError, match=r"routelock\.handoff\(agent\)"):
        Handoff(target)
