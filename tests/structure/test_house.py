"""The pages that describe the house name files that exist."""

from __future__ import annotations

import re

import pytest
from paths import REPO

ROOTS = ("", "runtime", "runtime/routelock", "providers", "providers/routelock_providers", "skills")


def _named(page: str) -> list[str]:
    """Return the files that a page names in backticks, such as `run/loop.py`."""
    text = (REPO / page).read_text("utf-8")
    return sorted(set(re.findall(r"`([\w/]+/\w+\.py|_\w+\.py)`", text)))


@pytest.mark.parametrize("page", ["docs/design.md", "CONTRIBUTING.md", "docs/guarantees.md"])
def test_files_that_a_page_names_exist(page: str) -> None:
    named = _named(page)
    assert named, "the page names no file: is it read as it is written?"
    # a step of the way of a run names files by their folder within a package
    places = [REPO / root for root in ROOTS]
    lost = [name for name in named if not any((place / name).is_file() for place in places)]
    assert not lost, lost
