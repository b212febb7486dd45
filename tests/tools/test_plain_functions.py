"""A plain function is a tool wherever tools of an agent are listed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest

from routelock import Agent, RunContext, Runner, Skill, function_handler, function_tool, tool
from routelock.agents.registry import Registry
from routelock.errors import ConfigError, RoutelockError
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


async def slow_add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def who(context: RunContext[str]) -> str:
    """Return the caller's name."""
    return context.context


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    def order(self, item: str) -> str:
        """Order something."""
        return f"{item} from {self.name}"

    @staticmethod
    def hours() -> str:
        """Say when it is open."""
        return "9 to 5"


def model(name: str, arguments: dict[str, Any]) -> ScriptedHandler:
    return ScriptedHandler([call(name, arguments), "Done."])


@pytest.mark.parametrize(
    ("function", "name", "arguments", "answer"),
    [
        (add, "add", {"a": 1, "b": 2}, "3"),
        (slow_add, "slow_add", {"a": 1, "b": 2}, "3"),
        (who, "who", {}, "Ada"),
        (Shop("Lamps").order, "order", {"item": "A lamp"}, "A lamp from Lamps"),
        (Shop.hours, "hours", {}, "9 to 5"),
        (functools.partial(add, b=5), "add", {"a": 1}, "6"),
    ],
    ids=["sync", "async", "with context", "method", "static", "partial"],
)
async def test_a_function_answers_a_call(
    function: Callable[..., Any], name: str, arguments: dict[str, Any], answer: str
) -> None:
    agent = Agent("a", model=model(name, arguments), tools=[function])
    result = await Runner.run(agent, "Hi", context="Ada")
    assert [item.message.get("content") for item in result.new_items if item.kind == "tool"] == [answer]


def test_it_is_the_tool_that_the_decorator_makes() -> None:
    (made,) = Agent("a", tools=[add]).all_tools
    assert made.spec == tool(add).spec


def test_a_changed_copy_keeps_the_same_tool() -> None:
    agent = Agent("a", tools=[add])
    assert dataclasses.replace(agent, name="b").all_tools[0] is agent.all_tools[0]


def test_functions_stand_beside_tools_in_their_order() -> None:
    names = [each.name for each in Agent("a", tools=[add, function_tool(slow_add), who]).all_tools]
    assert names == ["add", "slow_add", "who"]


async def test_a_skill_registers_a_function() -> None:
    class Sums(Skill):
        def initialize(self, registry: Registry) -> None:
            registry.add_tool(add, scope="owner")

    (made,) = Agent("a", skills=[Sums()]).all_tools
    assert (made.name, made.scope) == ("add", "owner")


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="all offered as 'add'"):
        Agent("a", tools=[add, tool(add)])


def untellable(shop: Shop) -> str:
    """Take an argument that no model can write."""
    return shop.name


class Tooled:
    def __call__(self, a: int) -> int:
        return a


@function_handler
async def answers(request: Any) -> str:
    return "Hi"


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (lambda a: a, "lambda"),
        (Tooled(), "is not a Tool; .* or an object in function_tool"),
        (Shop, "is not a Tool"),
        (answers, "is a handler"),
    ],
    ids=["lambda", "callable object", "class", "handler"],
)
def test_object_that_cannot_be_a_tool_is_an_error(given: Any, wrong: str) -> None:
    with pytest.raises(ConfigError, match=rf"(?s)Agent 'a'.*{wrong}"):
        Agent("a", tools=[add, given])


def test_function_that_cannot_be_a_tool_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"(?s)Agent 'a'.*untellable.*shop"):
        Agent("a", tools=[untellable])


def test_skill_function_that_cannot_be_a_tool_is_an_error() -> None:
    class Odd(Skill):
        def initialize(self, registry: Registry) -> None:
            registry.add_tool(untellable)

    with pytest.raises(RoutelockError, match=r"(?s)'Odd'.*untellable"):
        Agent("a", skills=[Odd()])


async def test_function_that_returns_an_agent_is_no_handoff() -> None:
    """In Swarm it is one; and the instructions of that agent are not for the model that called."""
    other = Agent("refunds", "You handle refunds.", model=ScriptedHandler([]))

    def transfer_to_refunds() -> Any:
        return other

    agent = Agent("a", model=model("transfer_to_refunds", {}), tools=[transfer_to_refunds])
    (problem,) = (await Runner.run(agent, "Hi")).errors
    assert problem.message == (
        "Tool 'transfer_to_refunds' ran, but its result cannot be shown: an agent is no tool result: use "
        "handoffs, or return HandoffRequest('refunds')."
    )


def test_context_variables_are_not_asked_of_the_model() -> None:
    """Swarm fills them in; here the model would make them up."""

    def order(context_variables: dict[str, Any], item: str) -> str:
        """Order something."""
        return item

    wrong = "tool 'order' would ask the model for context_variables.*take a parameter ctx: RunContext"
    with pytest.raises(ConfigError, match=wrong):
        Agent("a", tools=[order])


def test_context_without_annotation_is_not_asked_of_the_model() -> None:
    with pytest.raises(ConfigError, match=r"parameter 'ctx' has no annotation.*write ctx: RunContext"):
        tool(lambda ctx, item: item, name="order")


def test_webagents_context_without_annotation_is_not_asked_of_the_model() -> None:
    """It is any parameter of that name there, mostly the last; here a model would make up its value."""
    with pytest.raises(
        ConfigError, match=r"parameter 'context' has no annotation.*write context: RunContext"
    ):
        tool(lambda item, context=None: item, name="order")


def test_context_with_an_annotation_may_be_text_from_the_model() -> None:
    def summarise(context: str) -> str:
        """Summarise a text."""
        return context

    assert list(tool(summarise).params_json_schema["properties"]) == ["context"]
