"""A browser, for those tests of the dev page that need one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = os.environ.get("ROUTELOCK_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("there is no browser: apt-get install chromium, or name one in ROUTELOCK_CHROMIUM")
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is missing: pip install 'routelock[browser]'"
    )
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()
