"""The pages for people who come from another library show the programs that are run, line by line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from paths import REPO

PAGES = sorted(REPO.glob("docs/coming-from-*.md"))
PORTS = sorted(REPO.glob("examples/ports/*.py"))

_SHOWN = re.compile(r"^<!-- from (\S+) -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_LONGEST = 250


def _shown() -> list[tuple[str, str]]:
    """Return the path of each program, with a part of it that a page shows."""
    found = (_SHOWN.finditer(page.read_text("utf-8")) for page in PAGES)
    return [(part[1], part[2]) for parts in found for part in parts]


@pytest.mark.parametrize("port", PORTS, ids=lambda path: path.stem)
def test_page_shows_the_program_as_it_is(port: Path) -> None:
    name, text = port.relative_to(REPO).as_posix(), port.read_text("utf-8")
    parts = [code for program, code in _shown() if program == name]
    assert parts, f"no page shows {name}"
    assert [code for code in parts if code not in text] == []


def test_page_names_programs_that_exist() -> None:
    assert {program for program, _ in _shown()} == {port.relative_to(REPO).as_posix() for port in PORTS}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_page_is_short(page: Path) -> None:
    assert page.read_text("utf-8").count("\n") <= _LONGEST
