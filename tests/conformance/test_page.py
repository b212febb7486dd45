"""The page has the table that the command prints, with a row for each client."""

from __future__ import annotations

import re

from conformance.__main__ import SUITES
from conformance.table import HEAD
from conformance.unmodified_clients import CLIENTS
from paths import REPO

PAGE = (REPO / "docs" / "conformance.md").read_text("utf-8")
TABLE = PAGE.partition(HEAD)[2].partition("\n\n")[0]


def test_the_page_has_a_dated_table_of_counts() -> None:
    rows = TABLE.strip().splitlines()
    assert re.search(r"^On \d{4}-\d\d-\d\d, with Python ", PAGE, re.MULTILINE)
    assert [row for row in rows if not re.fullmatch(r"\| [^|]+ \| [^|]+ \| \d+ \| \d+ \| \d+ \|", row)] == []
    assert len(rows) == len(SUITES)


def test_each_client_has_a_row() -> None:
    named = {row.split(" | ")[0].removeprefix("| ") for row in TABLE.strip().splitlines()}
    assert {client.name for client in CLIENTS.values()} <= named


def test_the_page_says_how_to_run_each_suite() -> None:
    assert [name for name in SUITES if f"`{name}`" not in PAGE] == []
