"""Whatever there is has a place in the docs: an option that nobody can find is not there."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable
from typing import Any, get_args

import pytest
from paths import REPO

from routelock import Agent, RunConfig, function_tool, handoff, tool
from routelock.run.records import StopReason

DOCS = REPO / "docs"

OPTIONS: dict[str, Iterable[str]] = {
    "handoff()": inspect.signature(handoff).parameters,
    "Agent.as_tool()": [name for name in inspect.signature(Agent.as_tool).parameters if name != "self"],
    "Agent": [field.name for field in dataclasses.fields(Agent) if field.init],
    "RunConfig": [field.name for field in dataclasses.fields(RunConfig)],
    "RunResult.stop_reason": get_args(StopReason),
}


@pytest.fixture(scope="module")
def docs() -> str:
    """All pages."""
    return "\n".join(page.read_text("utf-8") for page in sorted(DOCS.glob("*.md")))


@pytest.mark.parametrize("what", OPTIONS)
def test_every_option_is_in_the_docs(what: str, docs: str) -> None:
    missing = [name for name in OPTIONS[what] if not re.search(rf"\b{name}\b", docs)]
    assert not missing, f"{what}: say what these are for in one of docs/*.md: {missing}"


@pytest.mark.parametrize(("decorator", "column"), [(tool, 1), (function_tool, 2)])
def test_table_of_tool_options_has_the_names_of_the_decorator(decorator: Any, column: int) -> None:
    page = (DOCS / "tools.md").read_text("utf-8").partition("## The options")[2].partition("\n## ")[0]
    _head, *rows = [line for line in page.splitlines() if line.startswith("| `")]
    named = re.findall(r"`(\w+)`", " ".join(row.split("|")[column] for row in rows))
    assert sorted(named) == sorted({*inspect.signature(decorator).parameters} - {"function"})


def test_every_example_is_listed() -> None:
    page = (DOCS / "examples.md").read_text("utf-8")
    examples = (DOCS.parent / "examples").glob("*.py")
    assert [
        path.name for path in examples if f"`{path.name}`" not in page and path.stem != "support_desk"
    ] == []


def test_every_cassette_is_listed() -> None:
    cassettes = DOCS.parent / "cassettes"
    page = (cassettes / "README.md").read_text("utf-8")
    assert [path.name for path in cassettes.glob("*.yaml") if f"`{path.name}`" not in page] == []
