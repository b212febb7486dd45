"""What is registered on an agent: handlers in their order, and what skills register."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_and_streamed import Voice

from routelock import Agent, Request, Tool, handler
from routelock.agents.registry import RegisteredHandler, Registry, register
from routelock.errors import ConfigError
from routelock.handlers.port import Priority
from routelock.run.config import RunConfig
from routelock.run.handler_selection import handler_for, handlers_by_priority, named, next_handler
from routelock.testing import ScriptedHandler
from routelock_providers import LiteLLM


def names(registry: Registry) -> list[str]:
    return [each.name for each in registry.close().handlers]


def registry(*handlers: Any, source: str = "agent") -> Registry:
    made = Registry("A")
    for each in handlers:
        made.add_handler(each, source=source)
    return made


def test_the_bands_of_priorities() -> None:
    assert [int(each) for each in Priority] == [1, 10, 20, 50]


# -- names --


class Cheap(ScriptedHandler):
    """A handler of a vendor's model."""

    model, provider = "org/small", "vendor"

    def __init__(self, name: str) -> None:
        super().__init__([], name=name)


@pytest.mark.parametrize(
    ("handler", "written"),
    [
        ("openai/gpt-4o-mini", "openai/gpt-4o-mini"),
        (LiteLLM("openai/gpt-4o-mini"), "openai/gpt-4o-mini"),
        (LiteLLM("openai/gpt-4o-mini", name="cheap"), "cheap"),
        (Cheap("vendor_org_small"), "org/small"),
        (Cheap("my_org_small"), "my_org_small"),
        (ScriptedHandler([], name="script"), "script"),
    ],
)
def test_the_written_name_is_the_model_or_the_given_name(handler: Any, written: str) -> None:
    assert register(handler).written == written


# -- order --


def test_the_lowest_priority_is_first() -> None:
    assert names(registry(Voice("c", priority=30), Voice("a", priority=1), Voice("b", priority=2))) == list(
        "abc"
    )


def test_of_equals_the_first_registered_is_first() -> None:
    """Not the first by name."""
    assert names(registry(Voice("zzz"), Voice("aaa"), Voice("mmm"))) == ["zzz", "aaa", "mmm"]


@given(st.lists(st.integers(-3, 3), max_size=8))
def test_the_order_is_by_priority_and_then_by_registration(priorities: list[int]) -> None:
    made = registry(*[Voice(str(n), priority=priority) for n, priority in enumerate(priorities)])
    expected = sorted(range(len(priorities)), key=lambda n: (priorities[n], n))
    assert names(made) == [str(n) for n in expected]


def test_default_priority_of_a_handler_is_50() -> None:
    assert register(ScriptedHandler([])).priority == Priority.CUSTOM == 50


def test_default_priority_of_a_model_is_10() -> None:
    agent = Agent(
        "A", model=ScriptedHandler([], name="m"), handlers=[Voice("a", priority=11), Voice("b", priority=9)]
    )
    assert [each.name for each in agent.registered.handlers] == ["b", "m", "a"]
    assert agent.registered.handlers[1].priority == 10


def test_priority_of_a_model_is_kept() -> None:
    agent = Agent("A", model=Voice("m", priority=60), handlers=[Voice("a")])
    assert [each.name for each in agent.registered.handlers] == ["a", "m"]


def test_a_model_string_has_10_and_its_own_name() -> None:
    (only,) = Agent("A", model="openai/gpt-4o").registered.handlers
    assert (only.name, only.priority) == ("litellm_openai_gpt-4o", 10)


def test_the_model_comes_before_its_equals() -> None:
    agent = Agent("A", model=ScriptedHandler([], name="m"), handlers=[Voice("a", priority=10)])
    assert agent.registered.handlers[0].name == "m"


def test_a_model_among_the_handlers_is_one_handler() -> None:
    model = ScriptedHandler([], name="m")
    (only,) = Agent("A", model=model, handlers=[model]).registered.handlers
    assert only.priority == 10


# -- names --


def test_one_of_the_same_name_and_source_replaces() -> None:
    """A skill may register again."""
    old, new = Voice("h"), Voice("h", priority=1)
    assert registry(old, new, source="s").close().handlers[0].handler is new


def test_handler_name_from_another_source_is_an_error() -> None:
    made = registry(Voice("h"), source="one")
    with pytest.raises(ConfigError, match="two handlers are named 'h', one from 'one' and one from 'two'"):
        made.add_handler(Voice("h"), source="two")


@pytest.mark.parametrize("model", [None, ScriptedHandler([], name="h")], ids=["handlers", "model"])
def test_two_declared_handlers_of_one_name_are_refused(model: Any) -> None:
    """One of them would be lost without an error, and a fallback with it."""
    handlers = [Voice("h"), *([] if model else [Voice("h")])]
    with pytest.raises(ConfigError, match="two handlers are named 'h'"):
        Agent("A", model=model, handlers=handlers)


def test_the_same_handler_twice_is_that_handler() -> None:
    one = Voice("h")
    assert len(Agent("A", handlers=[one, one]).registered.handlers) == 1


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_handler_needs_a_name(name: Any) -> None:
    with pytest.raises(ConfigError, match="A handler needs a name"):
        registry(Voice(name))


# -- what is a handler --


async def answer(request: Request) -> str:
    """Say hi."""
    return "Hi"


async def stream(request: Request) -> AsyncGenerator[str]:
    yield "Hi"


@pytest.mark.parametrize("function", [answer, stream])
def test_a_function_becomes_a_handler(function: Any) -> None:
    (only,) = registry(function).close().handlers
    assert (only.name, only.priority, only.prompt) == (function.__name__, 50, None)


@pytest.mark.parametrize("candidate", [5, object(), {"name": "x"}])
def test_object_that_is_not_a_handler_is_an_error(candidate: Any) -> None:
    """When it is registered, not when it is called."""
    with pytest.raises(ConfigError):
        registry(candidate)


def test_a_sync_function_is_refused() -> None:
    with pytest.raises(ValueError, match="async"):
        registry(lambda request: "Hi")


@pytest.mark.parametrize("priority", ["1", 1.5, [1], "high"])
def test_a_priority_is_a_whole_number(priority: Any) -> None:
    with pytest.raises(ConfigError, match="Handler 'h': priority must be a whole number, lower first, not"):
        register(Voice("h", priority=priority))


def test_a_scope_is_checked() -> None:
    odd: Any = 5
    with pytest.raises(ConfigError, match="Handler 'h': scope must be"):
        register(Voice("h", scope=odd))


def test_a_handlers_own_scope_counts_and_else_the_sources() -> None:
    assert register(Voice("h", scope="admin"), scope="owner").scope == "admin"
    assert register(Voice("h"), scope="owner").scope == "owner"


# -- what can be asked --


def test_registry_describes_a_handler() -> None:
    made = registry(Voice("h", priority=3, prompt="Knows.", scope="owner"), source="s")
    expected = {"target": "h", "description": "Knows.", "priority": 3, "source": "s", "scope": "owner"}
    assert made.get("h") == expected
    assert made.get("unknown") is None


def test_handlers_are_listed_in_their_order() -> None:
    assert [each["target"] for each in registry(Voice("b"), Voice("a", priority=1)).list()] == ["a", "b"]


def test_registered_handler_is_found_by_name() -> None:
    registered = registry(Voice("a")).close()
    found = registered.get("a")
    assert isinstance(found, RegisteredHandler)
    assert registered.get("b") is None


# -- tools, prompts, hooks --


def tool(name: str, **options: Any) -> Tool:
    return Tool(name=name, on_invoke_tool=lambda context, arguments: "", **options)


def test_tools_are_kept_in_their_order() -> None:
    made = Registry("A")
    for name in "ba":
        made.add_tool(tool(name))
    assert [each.name for each in made.close().tools] == ["b", "a"]


def test_own_scope_of_a_tool_precedes_the_given_one() -> None:
    made = Registry("A")
    made.add_tool(tool("a", scope="admin"), scope="owner")
    made.add_tool(tool("b"), scope="owner")
    assert [each.scope for each in made.close().tools] == ["admin", "owner"]


def test_object_that_is_not_a_function_is_not_a_tool() -> None:
    made: Any = Registry("A")
    with pytest.raises(ConfigError, match="is not a Tool; wrap functions with @tool"):
        made.add_tool("x")


def test_prompts_are_sorted_by_priority_then_registration() -> None:
    made = Registry("A")
    made.add_prompt("third")
    made.add_prompt("first", priority=1)
    made.add_prompt("fourth")
    made.add_handler(Voice("h", prompt="second", priority=2))
    assert [section.text for section in made.close().sections] == ["first", "second", "third", "fourth"]


def test_the_scope_of_a_prompt_is_checked() -> None:
    made: Any = Registry("A")
    with pytest.raises(ConfigError, match="scope must be"):
        made.add_prompt("x", scope=5, name="s")


def test_a_prompt_may_have_a_name_for_messages() -> None:
    made = Registry("A")
    made.add_prompt("x", name="mine")
    assert [section.name for section in made.close().sections] == ["mine"]


def test_hooks_are_sorted_by_priority_then_registration() -> None:
    made, functions = Registry("A"), [lambda: 0, lambda: 1, lambda: 2]
    made.add_hook("on_start", functions[2])
    made.add_hook("on_start", functions[0], priority=1)
    made.add_hook("on_end", functions[1])
    made.add_hook("on_start", functions[1])
    hooks = made.close().hooks
    assert hooks["on_start"] == (functions[0], functions[2], functions[1])
    assert hooks["on_end"] == (functions[1],)


def test_a_hook_of_no_event_is_refused() -> None:
    """It would never be called, without any error."""
    with pytest.raises(ConfigError, match="There is no hook 'on_tol_end'"):
        Registry("A").add_hook("on_tol_end", print)


def test_closed_registry_refuses_additions() -> None:
    """Agents are immutable: a part that one run registers would be in other runs too."""
    made = Registry("A")
    made.close()
    for add in (
        lambda: made.add_handler(Voice("h")),
        lambda: made.add_tool(tool("t")),
        lambda: made.add_prompt("p"),
        lambda: made.add_hook("on_start", print),
        made.close,
    ):
        with pytest.raises(ConfigError, match="is made already, and agents are immutable"):
            add()


# -- who answers, and who is next --

TEAM = Agent(
    "A",
    model=ScriptedHandler([], name="m"),
    handlers=[Voice("a", priority=20), Voice("root", priority=5, scope="admin"), Voice("b", priority=20)],
)


def line(**settings: Any) -> list[str]:
    return [each.name for each in handlers_by_priority(TEAM, RunConfig(**settings))]


def test_handlers_by_priority_are_those_in_scope() -> None:
    assert line() == ["m", "a", "b"]
    assert line(scopes=["admin"]) == ["root", "m", "a", "b"]


def test_the_runs_model_takes_the_place_of_the_first() -> None:
    assert line(model=ScriptedHandler([], name="x")) == ["x", "a", "b"]


def test_the_runs_model_is_not_there_twice() -> None:
    """It may be one of the agent's own: after it comes another one, not itself."""
    a = TEAM.handlers[0]
    assert line(model=a) == ["a", "b"]


def test_model_of_the_run_serves_agents_without_one() -> None:
    model = ScriptedHandler([], name="x")
    assert handler_for(Agent("B"), RunConfig(model=model)) is model


def after(failed: str, *tried: str, **settings: Any) -> str | None:
    found = next_handler(TEAM, failed, tried, RunConfig(**settings))
    return None if found is None else found.name


@pytest.mark.parametrize(
    ("failed", "tried", "next_"),
    [
        ("m", (), "a"),
        ("a", (), "b"),
        ("b", (), "m"),
        ("m", ("a",), "b"),
        ("m", ("a", "b"), None),
        ("stranger", (), "m"),
        ("stranger", ("m",), "a"),
        ("a", ("m", "b"), None),
    ],
)
def test_next_handler_in_order_of_priority(failed: str, tried: tuple[str, ...], next_: str | None) -> None:
    assert after(failed, *tried) == next_


def test_nobody_is_next_to_himself() -> None:
    assert after("a", model=TEAM.handlers[0]) == "b"


def test_a_run_may_start_at_a_handler_by_name() -> None:
    assert named(TEAM, "b", RunConfig()) is TEAM.handlers[2]


def test_unknown_name_is_an_error_with_the_known_names() -> None:
    with pytest.raises(ConfigError, match="There are: 'm', 'a', 'b'"):
        named(TEAM, "root", RunConfig())


def test_decorated_handler_keeps_its_options() -> None:
    @handler(name="x", priority=7, prompt="Knows.", scope="owner", expose=True)
    async def some(request: Request) -> str:
        return ""

    registered = register(some)
    assert (registered.name, registered.priority, registered.prompt, registered.scope, registered.expose) == (
        "x",
        7,
        "Knows.",
        "owner",
        True,
    )


def test_priority_that_is_not_a_whole_number_is_refused() -> None:
    made: Any = Registry("A")
    for add in (
        lambda: made.add_prompt("Be brief.", priority="10"),
        lambda: made.add_hook("on_start", print, priority="10"),
    ):
        with pytest.raises(ConfigError, match="priority must be a whole number, lower first, not '10'"):
            add()
