"""A user's test suite, and a server that it asks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pytest_suites import CONFTEST


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
    with ThreadingHTTPServer(("127.0.0.1", 0), Hello) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


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
