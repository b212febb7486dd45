"""A tool whose function takes its arguments as JSON text."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from routelock.context import ToolContext
from routelock.tools.outcome import ToolOutcome
from routelock.tools.tool import Tool

pytestmark = pytest.mark.anyio


CONTEXT = ToolContext(context={"user": "ada"}, tool_name="it", tool_call_id="c1")


async def answer(made: Tool, arguments: str = "{}") -> ToolOutcome:
    return await made.invoke(CONTEXT, arguments)


RAN: list[str] = []


def raw_tool(**options: Any) -> Tool:
    async def call(context: ToolContext[Any], text: str) -> str:
        RAN.append(text)
        return text

    return Tool(name="raw", on_invoke_tool=call, **options)


RAW = raw_tool(params_json_schema={"type": "object", "required": ["key", "numbers"]})


async def test_raw_tool_gets_the_text_unchanged() -> None:
    made = raw_tool(params_json_schema={"type": "object", "required": ["b"]}, strict=False)
    assert (await answer(made, '{"b":  1,"a":2}')).output == '{"b":  1,"a":2}'
    assert made.spec["function"]["parameters"] == {"type": "object", "required": ["b"]}


@pytest.mark.parametrize("arguments", ["", "null", " ", "{}"])
async def test_raw_tool_gets_an_empty_object_for_no_arguments(arguments: str) -> None:
    assert (await answer(raw_tool(), arguments)).output == "{}"


async def test_a_raw_tool_that_misses_arguments_is_not_called() -> None:
    outcome = await answer(RAW, '{"numbers": []}')
    assert "Required and missing: key." in outcome.output


async def test_sync_raw_tool_has_arguments_in_its_context() -> None:
    def call(context: ToolContext[Any], text: str) -> Any:
        return [threading.current_thread() is threading.main_thread(), context.arguments]

    made = Tool(name="raw", on_invoke_tool=call)
    assert (await answer(made, '{"a": 1}')).output == '[false,{"a":1}]'
