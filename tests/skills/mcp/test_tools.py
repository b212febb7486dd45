"""The tools of a server get names and schemas that providers accept; others are refused."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock._tool_names import odd_tool_name
from routelock.errors import ConfigError
from routelock_skills.mcp.tools import WantedTools, offered_name, wanted_tools


def listed(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, "inputSchema": {"type": "object"}, **more} for name in names]


KEYS = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "enum",
    "$ref",
    "$defs",
    "properties",
    "required",
    "description",
    "a",
]


def arguments(schema: dict[str, Any]) -> dict[str, Any]:
    found = wanted_tools([{"name": "a", "inputSchema": schema}], prefix="", only=None, where="MCP server 'x'")
    return dict(found["a"].schema)


def names(tools: list[dict[str, Any]], *, prefix: str = "", only: WantedTools = None) -> dict[str, str]:
    found = wanted_tools(tools, prefix=prefix, only=only, where="MCP server 'x'")
    return {name: each.offered for name, each in found.items()}


@pytest.mark.parametrize(
    ("name", "offered"),
    [
        ("search", "search"),
        ("Search-2_x", "Search-2_x"),
        ("files.read/v1", "files_read_v1"),
        ("read file", "read_file"),
        ("läs", "l_s_cc90e1"),
        ("", "_da39a3"),
    ],
)
def test_valid_names_are_kept(name: str, offered: str) -> None:
    assert offered_name(name) == offered


@given(st.lists(st.text(), unique=True))
def test_any_name_becomes_one_that_providers_accept(given_names: list[str]) -> None:
    assert not [name for name in given_names if odd_tool_name(offered_name(name))]


def test_long_names_stay_apart() -> None:
    assert offered_name("a" * 70 + "b") != offered_name("a" * 70 + "c")


def test_a_prefix_is_part_of_the_name() -> None:
    assert names(listed("log", "blame"), prefix="git_") == {"log": "git_log", "blame": "git_blame"}


def test_only_takes_names_or_a_function() -> None:
    assert list(names(listed("a", "b", "c"), only=["c", "a"])) == ["a", "c"]
    assert list(names(listed("a", "b", "c"), only=lambda name: name > "a")) == ["b", "c"]


def test_unknown_name_in_only_lists_the_tools() -> None:
    with pytest.raises(ConfigError, match=r"only names 'serach'\. Its tools are: fetch, search"):
        names(listed("search", "fetch"), only=["serach"])


def test_single_text_instead_of_names_is_refused() -> None:
    with pytest.raises(ConfigError, match="only must be a list of names"):
        names(listed("a"), only="a")


def test_two_tools_under_one_name_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"'a\.b' and 'a_b' would both be offered as 'a_b'"):
        names(listed("a.b", "a_b"))
    assert names(listed("a.b", "a_b"), only=["a.b"]) == {"a.b": "a_b"}


def test_a_tool_that_is_listed_twice_is_there_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "routelock.mcp"):
        assert len(names(listed("a", "a"))) == 1
    assert "lists the tool 'a' twice" in caplog.text


def test_arguments_that_are_not_an_object_are_an_error() -> None:
    tools = [{"name": "odd", "inputSchema": {"type": "array"}}]
    with pytest.raises(ConfigError, match="'odd' takes 'array' instead of an object"):
        names(tools)


def test_a_schema_has_properties_and_no_draft() -> None:
    tools = [{"name": "a", "inputSchema": {"$schema": "http://json-schema.org/draft-07/schema#"}}]
    found = wanted_tools(tools, prefix="", only=None, where="x")
    assert found["a"].schema == {"type": "object", "properties": {}}


@pytest.mark.parametrize("odd", [{"properties": None, "required": None}, {"properties": []}])
def test_null_and_empty_list_mean_no_properties(odd: dict[str, Any]) -> None:
    """Servers in Go write null and those in PHP a list; OpenAI refuses every request that has it."""
    assert arguments({"type": "object", **odd}) == {"type": "object", "properties": {}}


@pytest.mark.parametrize("key", ["anyOf", "oneOf"])
def test_a_choice_at_the_top_becomes_arguments_that_may_be_left_out(key: str) -> None:
    """OpenAI and Claude refuse every request that has one there."""
    by_url = {"properties": {"to": {"type": "string"}, "url": {"type": "string"}}, "required": ["url"]}
    by_id = {"properties": {"to": {"type": "string"}, "id": {"type": "integer"}}, "required": ["id"]}
    shown = arguments({"type": "object", "$defs": {"ById": by_id}, key: [by_url, {"$ref": "#/$defs/ById"}]})
    assert shown.keys() == {"type", "properties", "$defs", "description"}
    assert shown["properties"] == {**by_url["properties"], "id": {"type": "integer"}}
    assert shown["description"].startswith(f'The arguments also have to fit: {{"{key}": [{{"properties"')


def test_an_argument_that_differs_from_branch_to_branch_may_be_either() -> None:
    branches = [{"properties": {"kind": {"const": kind}}} for kind in ("a", "b")]
    shown = arguments({"type": "object", "oneOf": [*branches, True]})
    assert shown["properties"] == {"kind": {"anyOf": [{"const": "a"}, {"const": "b"}]}}


def test_what_all_branches_require_is_required() -> None:
    branches = [{"required": ["b"]}, {"properties": {"c": {}}, "required": ["c"]}]
    own = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]}
    shown = arguments({**own, "allOf": branches, "not": {"required": ["d"]}})
    assert shown["required"] == ["a", "b", "c"]
    assert shown["properties"].keys() == {"a", "b", "c"}
    assert not shown.keys() & {"allOf", "not"}


def test_a_reference_at_the_top_is_spelled_out() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    assert arguments({"$ref": "#/$defs/Node", "$defs": {"Node": node}}) == {**node, "$defs": {"Node": node}}


def test_a_choice_further_down_stays_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}
    assert arguments(schema) == schema


def test_arguments_get_names_that_claude_takes() -> None:
    """It refuses every request that has another one."""
    names = ["$top", "filter[id]", "filter(id)", "at.time", "x" * 65, ""]
    tool = {"name": "a", "inputSchema": {"properties": {name: {} for name in names}, "required": ["$top"]}}
    found = wanted_tools([tool], prefix="", only=None, where="x")["a"]
    offered = list(found.schema["properties"])
    assert offered == ["_top", "filter_id_", "filter_id__63cf8e", "at.time", f"{'x' * 57}_78c741", "_da39a3"]
    assert [found.arguments.get(name, name) for name in offered] == names
    assert found.schema["required"] == ["_top"]
    assert found.schema["properties"]["_top"] == {"description": "(The server calls it $top)"}


json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(KEYS), json_data, max_size=6))
def test_no_refused_key_is_left_at_the_top(schema: dict[str, Any]) -> None:
    try:
        shown = arguments({**schema, "type": "object"})
    except ConfigError:
        return
    assert not shown.keys() & {"allOf", "anyOf", "oneOf", "not", "enum", "$ref", "$schema"}
    assert isinstance(shown["properties"], dict)


def test_title_replaces_a_missing_description() -> None:
    found = wanted_tools(listed("a", title="Does it"), prefix="", only=None, where="x")
    assert found["a"].description == "Does it"
