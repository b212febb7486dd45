"""A browser, for those tests that need one. Import the fixture into the conftest of a folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")
CHROMIUM = os.environ.get("ROUTELOCK_CHROMIUM") or next(filter(None, map(shutil.which, _PROGRAMS)), None)
_FLAGS = (
    "--no-sandbox",  # which root cannot have, and not every container
    "--disable-gpu",
    "--disable-quic",
)


@contextmanager
def launched() -> Iterator[Any]:
    """A browser that is there while the block lasts, with an event loop in this thread."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One for all tests of a module: it takes half a second to start, and its event loop cannot stay."""
    if CHROMIUM is None:
        pytest.skip("there is no browser: run scripts/services, or name one in ROUTELOCK_CHROMIUM")
    pytest.importorskip("playwright.sync_api", reason="playwright is missing")
    with launched() as found:
        yield found
