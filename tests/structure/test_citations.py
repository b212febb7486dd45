"""No text cites a list that a reader of the repository cannot look into: it says the fact itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import REPO

FOLDERS = (".ci", "benchmarks", "docs", "examples", "providers", "runtime", "scripts", "skills", "tests")
"""Not the cassettes: what models say is theirs."""
SUFFIXES = (".css", ".html", ".js", ".md", ".mjs", ".py", ".sql", ".toml", ".txt", ".yaml", ".yml")
PROGRAMS = (".ci", "scripts")
"""Where files have no suffix."""

_CITATION = re.compile(
    r"""
    \b(?:feature|row|pain|defect|requirement)s?\s+\d+(?:[-.]\d+)?\b(?!\s+of\b)  # an entry of a list
    | \b(?:decision|invariant)s?\s+[A-Z]?\d+\b
    | (?<!\w)(?:\(|\"{3})(?-i:[A-Z])\d{1,2}[,:;)]     # the key of one alone, where a citation stands
    | (?:\bdesign,?\s+|\"{3}|\()section\s+\d        # no section of docs/design.md has a number
    """,
    re.VERBOSE | re.IGNORECASE,
)


def _texts() -> Iterator[Path]:
    for path in (*REPO.iterdir(), *(each for name in FOLDERS for each in (REPO / name).rglob("*"))):
        read = path.suffix in SUFFIXES or path.parent.name in PROGRAMS or path.name == "Makefile"
        if read and path.is_file():
            yield path


def _cited(text: str) -> list[tuple[int, str]]:
    """Return each citation with the number of its line; it may go on in the next one."""
    return [(text.count("\n", 0, found.start()) + 1, found[0]) for found in _CITATION.finditer(text)]


def test_every_text_says_the_fact_and_no_number_for_it() -> None:
    paths = list(_texts())
    assert len(paths) > 500
    cited = [
        f"{path.relative_to(REPO)}:{line}: {' '.join(found.split())}"
        for path in paths
        for line, found in _cited(path.read_text("utf-8"))
    ]
    assert not cited, "say it in words, or name a public address:\n" + "\n".join(cited)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("It is refused (row {}).", "3-39"),
        ("Rows {} and 14: it is refused.", 12),
        ("# -- limits (feature row {}) --", "1-35"),
        ("It is refused (feature\n    row {}).", "2-20"),
        ("It goes round (pain {}).", 25),
        ("Pains {} and 25 in one.", 6),
        ("It rides along (decision {}).", "R8"),
        ('    """{}: the model is told first."""', "R4"),
        ("It is refused ({}).", "R5"),
        ("What holds always (invariant {})", "I2"),
        ("Section 8, defect {}: a client goes away.", 3),
        ("It is never guessed (design, section {}).", 5),
        ('    """Section {}: no tool runs twice."""', 6),
    ],
)
def test_a_citation_is_found(text: str, number: object) -> None:
    assert _cited(text.format(number))


ORDER = "A7"
"""The number of an order, and the name of a variable: neither names an entry of a list."""


@pytest.mark.parametrize(
    "text",
    [
        "A database has 12 rows, and a table a row of its own.",
        "three rows; two in a row; row 3 of the table",
        "DeepSeek-R1 cannot be made to call a tool (litellm 7580).",
        "RFC 9110, section 15.4",
        "See https://github.com/openai/openai-agents-python/issues/1895.",
        "The run found six defects, and its decisions are on record.",
        f'call("look_up", {{"order": "{ORDER}"}}), RunConfig(run_id="r7"), play({ORDER}), (x7, y7)',
    ],
)
def test_what_is_no_citation_is_left_alone(text: str) -> None:
    assert _cited(text) == []
