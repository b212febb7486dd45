"""A user's test suite, and a server that it asks."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from pytest_suites import CONFTEST
from servers import served_by


class Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with served_by(Hello) as url:
        yield url


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project that asks for the plugin; its tests see Python code that asks a URL."""
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(
        asking="""
        import httpx

        def ask(url):
            with httpx.Client(trust_env=False) as client:
                return client.get(url, timeout=60).text
        """
    )
    return pytester
