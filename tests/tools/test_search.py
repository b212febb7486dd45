"""The settings of a tool search, and the tool that searches."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from routelock import Tool, ToolContext, tool
from routelock.errors import ConfigError, ToolError
from routelock.tools import SearchedTool, ToolSearch, function_tool
from routelock.tools.search import Catalogue, found_names, search_tool

pytestmark = pytest.mark.anyio

NAMES = ("bell_one", "bell_two", "bell_three", "horn")
CONTEXT: ToolContext[Any] = ToolContext(context=None, tool_name="search_tools")


def made(search: ToolSearch, *, closed: Collection[str] = (), disabled: Collection[str] = ()) -> Tool:
    tools = [SearchedTool(name=name, description="Rings.") for name in NAMES]
    names = [name for name in NAMES if name not in closed]

    async def enabled(context: ToolContext[Any], several: Sequence[str]) -> Sequence[bool]:
        return [name not in disabled for name in several]

    return search_tool(search, Catalogue(tools), names, lambda context: names, enabled)


async def found(searching: Tool, query: str) -> list[str]:
    outcome = await searching.invoke(CONTEXT, json.dumps({"query": query}))
    return found_names(outcome.output)


async def test_the_result_names_tools_with_their_descriptions() -> None:
    outcome = await made(ToolSearch(most=1)).invoke(CONTEXT, '{"query": "the horn"}')
    assert json.loads(outcome.output) == {
        "found": [{"name": "horn", "description": "Rings."}],
        "note": "You can call these tools from now on.",
    }


async def test_no_more_than_the_most_are_found() -> None:
    assert await found(made(ToolSearch(most=2)), "bell") == ["bell_one", "bell_two"]


async def test_next_ones_take_the_place_of_those_that_are_disabled() -> None:
    searching = made(ToolSearch(most=1), disabled=["bell_one", "bell_two"])
    assert await found(searching, "bell") == ["bell_three"]


async def test_tools_out_of_scope_are_neither_found_nor_described() -> None:
    searching = made(ToolSearch(), closed=["horn"])
    assert await found(searching, "horn") == []
    assert "horn" not in searching.description
    assert "bell" in searching.description


async def test_a_search_without_a_result_says_what_there_is() -> None:
    outcome = await made(ToolSearch()).invoke(CONTEXT, '{"query": "xylophone"}')
    assert "No tool was found" in outcome.output
    assert "There are tools for: bell, " in outcome.output


async def test_a_query_that_is_no_text_is_reported_to_the_model() -> None:
    assert (await made(ToolSearch()).invoke(CONTEXT, '{"query": 7}')).error == "arguments"


async def test_a_function_of_the_app_ranks_in_a_thread() -> None:
    asked: list[tuple[str, list[str], bool]] = []

    def rank(query: str, tools: Sequence[SearchedTool]) -> list[str]:
        is_main = threading.current_thread() is threading.main_thread()
        asked.append((query, [each.name for each in tools], is_main))
        return ["horn", "bell_one"]

    assert await found(made(ToolSearch(rank=rank), closed=["bell_two"]), "x") == ["horn", "bell_one"]
    assert asked == [("x", ["bell_one", "bell_three", "horn"], False)]


async def test_an_async_function_ranks_too() -> None:
    async def rank(query: str, tools: Sequence[SearchedTool]) -> list[str]:
        return [each.name for each in tools if each.description == "Rings."]

    assert await found(made(ToolSearch(rank=rank, most=9)), "x") == [*NAMES]


@pytest.mark.parametrize("given", [None, "horn", ["trumpet"], [3]])
async def test_a_function_that_ranks_must_give_names_of_the_tools(given: Any) -> None:
    with pytest.raises(ToolError, match="ToolSearch: rank") as caught:
        await found(made(ToolSearch(rank=lambda query, tools: given)), "x")
    assert isinstance(caught.value.__cause__, ConfigError)


async def test_a_function_that_fails_is_reported_to_the_model() -> None:
    def rank(query: str, tools: Sequence[SearchedTool]) -> list[str]:
        raise OSError("no embeddings today")

    outcome = await made(ToolSearch(rank=rank)).invoke(CONTEXT, '{"query": "x"}')
    assert outcome.output == "Tool 'search_tools' failed: OSError: no embeddings today"


@pytest.mark.parametrize("result", ["", "done", "[]", "{}", '{"found": 3}', '{"found": [{}]}', "[" * 9999])
def test_other_results_name_no_tools(result: str) -> None:
    assert found_names(result) == []


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ({"defer_over": -1}, "defer_over must be a number or None, not -1"),
        ({"defer_over": True}, "defer_over must be"),
        ({"most": 0}, "most must be at least 1, not 0"),
        ({"name": "find tools"}, "its name has ' '"),
        ({"rank": "bm25"}, "rank must be a function, not 'bm25'"),
        ({"by": "google"}, "by must be 'routelock' or 'vendor', not 'google'"),
        ({"by": "vendor", "rank": print}, "rank ranks for a search by routelock, not by the vendor"),
    ],
)
def test_an_invalid_setting_is_a_config_error(setting: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ConfigError, match=f"ToolSearch: {wrong}"):
        ToolSearch(**setting)


def test_decorators_make_deferred_tools() -> None:
    @tool(deferred=True)
    def one() -> str:
        return ""

    @function_tool(defer_loading=True)
    def two() -> str:
        return ""

    assert (one.deferred, two.deferred, tool(lambda: "", name="three").deferred) == (True, True, None)


def test_origin_must_be_a_name_or_none() -> None:
    with pytest.raises(ConfigError, match="origin must be a name or None, not 5"):
        Tool(name="one", on_invoke_tool=lambda context, arguments: "", origin=5)  # type: ignore[arg-type]


def test_deferred_must_be_a_bool_or_none() -> None:
    with pytest.raises(ConfigError, match="deferred must be True, False or None, not 'yes'"):
        Tool(name="one", on_invoke_tool=lambda context, arguments: "", deferred="yes")  # type: ignore[arg-type]
