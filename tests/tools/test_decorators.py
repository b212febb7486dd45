"""Functions become tools: what of a function counts, which options win, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from routelock.context import ToolContext
from routelock.errors import ConfigError
from routelock.tools.decorators import function_tool, tool
from routelock.tools.outcome import ToolOutcome
from routelock.tools.tool import FunctionTool, Tool

pytestmark = pytest.mark.anyio


CONTEXT = ToolContext(context={"user": "ada"}, tool_name="it", tool_call_id="c1")


async def answer(made: Tool, arguments: str = "{}") -> ToolOutcome:
    return await made.invoke(CONTEXT, arguments)


@tool
async def lookup(key: str, limit: int = 10) -> str:
    """Look it up.

    Args:
        key: What to look for.
        limit: How many.
    """
    return f"{key} {limit}"


def test_spec_has_the_chat_completions_form() -> None:
    assert lookup.spec == {
        "type": "function",
        "function": {
            "name": "lookup",
            "description": "Look it up.",
            "parameters": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "key": {"type": "string", "description": "What to look for."},
                    "limit": {
                        "anyOf": [{"type": "integer"}, {"type": "null"}],
                        "description": "How many. (null: the default, 10)",
                    },
                },
                "required": ["key", "limit"],
            },
            "strict": True,
        },
    }


def test_the_spec_is_made_once() -> None:
    assert lookup.spec is lookup.spec


def test_loose_schema_has_no_strict_key() -> None:
    """Vendors without it refuse the key."""

    @tool
    def f(anything: dict[str, int]) -> None: ...

    assert "strict" not in f.spec["function"]
    assert not f.strict


def test_an_empty_description_is_left_out() -> None:
    """Bedrock refuses an empty one."""
    assert "description" not in tool(lambda: None, name="f").spec["function"]


def test_options_win_over_the_function() -> None:
    def f(a: int = 1) -> None:
        """Do it."""

    made = tool(f, name="other", description="Words", strict=False, timeout=2, on_error="raise")
    assert (made.name, made.description, made.strict, made.timeout) == ("other", "Words", False, 2)
    assert made.spec["function"]["parameters"]["properties"]["a"] == {"type": "integer", "default": 1}


def test_the_names_of_openai_agents_work() -> None:
    @function_tool(name_override="fetch_data", description_override="Words", strict_mode=False)
    def f(a: int = 1) -> None: ...

    assert (f.name, f.description, f.strict, f.on_error) == ("fetch_data", "Words", False, "report")
    assert function_tool(lambda: None, name_override="f", failure_error_function=None).on_error == "raise"
    assert FunctionTool is Tool


def test_the_original_function_stays_reachable() -> None:
    def f() -> None: ...

    assert tool(f).function is f
    assert Tool(name="f", on_invoke_tool=lambda context, text: text).function is None


async def test_function_of_a_tool_can_be_called() -> None:
    """A type checker accepts the function of a tool without a cast."""
    assert await lookup.function("a", limit=2) == "a 2"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("get weather", "' '"),
        ("grüße!", "'!ßü'"),
        ("", "0 characters"),
        ("x" * 65, "65 characters"),
        ("a\n", r"'\\n'"),
        (None, "the type NoneType"),
    ],
)
def test_a_name_that_providers_refuse_is_a_configuration_error(name: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=f"name has {why}"):
        Tool(name=name, on_invoke_tool=lambda context, text: text)


@pytest.mark.parametrize(
    ("decorator", "ours"),
    [(tool, "@tool(name='look_up')"), (function_tool, "@function_tool(name_override='look_up')")],
)
def test_name_in_place_of_the_function_has_an_error_that_says_the_option(decorator: Any, ours: str) -> None:
    with pytest.raises(ConfigError) as raised:
        decorator("look_up")
    assert str(raised.value) == f"The first argument is the function, not a name: write {ours} above it."


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(ConfigError, match="'<lambda>': its name has '<>'"):
        tool(lambda: None)


def test_all_errors_of_a_tool_are_in_one_message() -> None:
    wrong: Any = {"on_error": "ignore", "is_enabled": "yes", "params_json_schema": {"type": "string"}}
    with pytest.raises(ConfigError, match=r"name has .*timeout must be .*on_error .*is_enabled .*an object"):
        Tool(name="a b", on_invoke_tool=lambda context, text: text, timeout=0, **wrong)


def test_tool_is_immutable_and_can_be_replaced() -> None:
    with pytest.raises(AttributeError):
        lookup.name = "other"  # type: ignore[misc]
    other = replace(lookup, name="other")
    assert other.spec["function"] == {**lookup.spec["function"], "name": "other"}
