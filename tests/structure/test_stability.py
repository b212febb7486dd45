"""docs/stability.md names the versions of what is stored."""

from __future__ import annotations

from paths import REPO

from routelock.handoffs import context_fields
from routelock.sessions import log
from routelock.state import document
from routelock.state.dbos import database
from routelock.tracing import FORMAT


def test_all_formats_have_the_version_that_the_page_names() -> None:
    """Where one of them grows, the page has to say what reads it, and how data is brought over."""
    versions = {
        "state": document.FORMAT_VERSION,
        "context": context_fields.FORMAT_VERSION,
        "session": log.FORMAT_VERSION,
        "trace": FORMAT,
        "steps": int(database.STEPS_VERSION.removeprefix("routelock-")),
    }
    assert set(versions.values()) == {1}, versions
    assert "All of them have version 1." in (REPO / "docs" / "stability.md").read_text("utf-8")
