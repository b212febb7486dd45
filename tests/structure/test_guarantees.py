"""What docs/guarantees.md promises is proven: every test file that it names is there, and has tests."""

from __future__ import annotations

import re

from paths import REPO

PAGE = (REPO / "docs" / "guarantees.md").read_text("utf-8")
PROMISES = re.findall(r"^\*\*(.+?)\*\*(.*?)(?=^\*\*|^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)


def test_every_promise_names_its_proof() -> None:
    assert len(PROMISES) > 20
    unproven = [promise for promise, text in PROMISES if not re.search(r"Proof:\s+`tests/", text)]
    assert unproven == []


def test_every_proof_is_there() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))
    missing = [name for name in named if not (REPO / name).is_file()]
    assert missing == []
    tests = re.compile(r"def test_|^class Test\w+\(\w+Contract\)", re.MULTILINE)
    assert [name for name in named if not tests.search((REPO / name).read_text("utf-8"))] == []
