"""The ranking of tools by a question in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from paths import REPO
from server_catalogue import SERVER_QUESTIONS, server_catalogue
from tool_catalogue import LATER_QUESTIONS, OTHER_QUESTIONS, QUESTIONS, catalogue

from routelock.tools import SearchedTool
from routelock.tools.ranking import ToolIndex

PAGE = (REPO / "docs" / "tool-search.md").read_text(encoding="utf-8")


def rank(query: str, *tools: str | SearchedTool) -> list[str]:
    known = [SearchedTool(name=each) if isinstance(each, str) else each for each in tools]
    return ToolIndex(known).rank(query)


def parameter(name: str, **about: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: about}}


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("create invoice", "create_invoice"),
        ("create invoice", "createInvoice"),
        ("create invoice", "HTTPCreateInvoice2"),
        ("creating invoices", "create_invoice"),
        ("the copies", "copy"),
        ("which was cancelled", "cancel"),
        ("my verification", "verify"),
        ("a bill for my customer", "create_invoice"),
        ("throw away", "delete_file"),
        ("throw my old file away", "delete_file"),
        ("they took part", "join"),
        ("a timesheet", "time_sheet"),
        ("registrations", "registrar"),
        ("data source", "create_datasource"),
        ("box plot", "generateBoxplot"),
        ("GitHub", "github_star"),
        ("s3", "S3_upload"),
        ("calender", "calendar"),
        ("recieve parcels", "receive"),
        ("unstar it", "star"),
        ("Überweisung", "neueÜberweisung"),
        ("\u5929\u6c14", "\u83b7\u53d6\u5929\u6c14"),
    ],
)
def test_a_name_is_found_by_other_forms_of_its_words(query: str, name: str) -> None:
    assert rank(query, "unrelated", name) == [name]


def test_a_tool_is_found_by_its_description() -> None:
    tool = SearchedTool(name="x1", description="Ring the bell of a house.")
    assert rank("ring a bell", "x2", tool) == ["x1"]


@pytest.mark.parametrize(
    "parameters",
    [
        parameter("postcode"),
        parameter("where", description="The postcode."),
        parameter("where", enum=["postcode", "street"]),
    ],
)
def test_a_tool_is_found_by_its_parameters(parameters: dict[str, Any]) -> None:
    assert rank("by postcode", "x2", SearchedTool(name="x1", parameters=parameters)) == ["x1"]


@pytest.mark.parametrize("origin", ["Notion", "notion-mcp-server", "mcp.notion.com"])
def test_a_tool_is_found_by_the_server_that_it_comes_from(origin: str) -> None:
    tool = SearchedTool(name="x1", origin=origin)
    assert rank("in Notion", "x2", tool) == ["x1"]


def test_words_that_all_servers_have_in_their_names_find_nothing() -> None:
    assert rank("an MCP server", "x2", SearchedTool(name="x1", origin="notion-mcp-server")) == []


@pytest.mark.parametrize("parameters", [{}, {"properties": []}, {"properties": {"a": True}}])
def test_odd_schemas_are_no_obstacle(parameters: dict[str, Any]) -> None:
    assert rank("bell", SearchedTool(name="bell", parameters=parameters)) == ["bell"]


def test_a_name_counts_more_than_a_description() -> None:
    described = SearchedTool(name="x1", description="Ring the bell.")
    assert rank("bell", described, "bell") == ["bell", "x1"]


def test_the_word_itself_counts_more_than_a_synonym() -> None:
    assert rank("invoice", "bill", "invoice") == ["invoice", "bill"]


def test_a_name_that_is_covered_comes_before_a_longer_one() -> None:
    assert rank("list bells", "list_bell_ropes", "list_bells")[0] == "list_bells"


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("create a bell", "create_bell"),
        ("throw the bell away", "delete_bell"),
        ("bells", "list_bell"),
        ("I don't need the bell", "delete_bell"),
        ("please rename my bell", "update_bell"),
    ],
)
def test_tools_of_the_asked_action_come_first(query: str, name: str) -> None:
    assert rank(query, *(f"{action}_bell" for action in ("create", "list", "update", "delete")))[0] == name


def test_a_word_of_parameters_does_not_make_a_name_common() -> None:
    others = [SearchedTool(name=f"x{n}_page", parameters=parameter("label")) for n in range(9)]
    assert rank("page label", *others, "add_label")[0] == "add_label"


def test_a_number_is_a_value_where_no_name_has_it() -> None:
    assert rank("bells of 3 tons", "bell") == rank("bells of tons", "bell") == ["bell"]
    assert rank("3", "bell") == []


def test_a_number_finds_the_name_that_has_it_after_those_with_the_words() -> None:
    assert rank("3 bells", "version_3", "bell") == ["bell", "version_3"]
    names = [f"bell_{n}" for n in range(20)]
    assert rank("ring the bell with the number 17", *names)[0] == "bell_17"


def test_a_question_prefers_tools_that_read() -> None:
    assert rank("what bells are there", "create_bell", "list_bell")[0] == "list_bell"


def test_of_equal_tools_the_first_declared_comes_first() -> None:
    assert rank("bell", "bell_y", "bell_x", "bell_z") == ["bell_y", "bell_x", "bell_z"]


@pytest.mark.parametrize("query", ["", "   ", "?!", "the and of", "qwertz"])
def test_a_question_without_known_words_finds_nothing(query: str) -> None:
    assert rank(query, "create_bell", "list_bell") == []


def test_no_tools_are_ranked_as_no_names() -> None:
    assert ToolIndex([]).rank("bell") == []


@pytest.mark.parametrize(
    ("questions", "found"),
    [(QUESTIONS, 58), (OTHER_QUESTIONS, 33), (LATER_QUESTIONS, 201)],
    ids=["known", "others", "later"],
)
def test_users_find_the_right_tool_among_a_thousand_within_the_first_five(
    questions: dict[str, str], found: int
) -> None:
    """At least 57 of the 60 known ones."""
    tools = [SearchedTool(name=each.name, description=each.description) for each in catalogue()]
    check_found(tools, questions, found)


def test_models_find_the_right_tool_of_many_servers_within_the_first_five() -> None:
    check_found(server_catalogue(), SERVER_QUESTIONS, 109)


def test_origins_find_tools_whose_descriptions_do_not_name_the_app() -> None:
    tools = server_catalogue(described=False)
    check_found(tools, SERVER_QUESTIONS, 108)
    assert len(missed([replace(each, origin=None) for each in tools], SERVER_QUESTIONS)) == 4


def missed(tools: Sequence[SearchedTool], questions: Mapping[str, str]) -> list[str]:
    """Return the questions that do not find their tool within the first five."""
    index = ToolIndex(tools)
    return [query for query, name in questions.items() if name not in index.rank(query)[:5]]


def check_found(tools: Sequence[SearchedTool], questions: Mapping[str, str], found: int) -> None:
    """Check how many questions find their tool, and that the page on tool search says so."""
    not_found = missed(tools, questions)
    assert len(questions) - len(not_found) == found, not_found
    assert re.search(rf"^\| .*\| {len(questions)} of .*\| {found} \|$", PAGE, re.MULTILINE)
    assert f"{len(tools):,}" in PAGE


def test_each_line_of_synonyms_has_words_of_tools_and_perhaps_of_users() -> None:
    text = (REPO / "runtime/routelock/tools/synonyms.txt").read_text(encoding="utf-8")
    line = re.compile(r"\w+( \w+)*( =( \w+)+)?")
    lines = [each for each in text.replace("\n  ", " ").splitlines() if each and not each.startswith("#")]
    assert [each for each in lines if not line.fullmatch(each)] == []
