"""The part of the pytest plugin that adds to pytest-recording, in suites that use that plugin.

The options, markers, fixtures and rules of pytest-recording hold. This plugin adds: a miss that shows the
difference, replaying without keys, files without secrets, bodies that are compared by their meaning if
``match_on`` has ``"body"``, and the fixture ``cassette``.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from routelock.errors import CassetteMiss
from routelock.testing.cassette import Cassette, answering_from
from routelock.testing.guards import models_allowed
from routelock.testing.matching import PARTS, HTTPRequest
from routelock.testing.pytest_guards import guards_of
from routelock.testing.pytest_vcr import STOPPED, cassette_of, network_of, options_of
from routelock.testing.scrub import Scrubber, secrets_in

__all__: list[str] = []


_VCRPYS = ("method", "scheme", "host", "port", "path", "query")
"""The parts of a request that vcrpy compares by default."""


@pytest.hookimpl(tryfirst=True)  # a hook of the app may replace what this one sets
def pytest_recording_configure(vcr: Any) -> None:
    """Keep secrets out of the files, and compare bodies by their meaning."""
    scrub = Scrubber(secrets=secrets_in(os.environ), keep_request_headers=None, keep_response_headers=None)
    decode: Any = importlib.import_module("vcr.filters").decode_response

    def scrub_request(request: Any) -> Any:
        headers = scrub.request_headers(request.headers)
        return type(request)(request.method, scrub.text(request.uri), scrub.body(request.body), headers)

    def scrub_both(request: Any, response: Any) -> Any:
        decoded: dict[str, Any] = decode(response)  # compressed bodies cannot be scrubbed
        body = scrub.body(decoded["body"]["string"])
        headers = scrub.response_headers(decoded["headers"])
        return scrub_request(request), decoded | {"headers": headers, "body": {"string": body}}

    def same_body(ours: Any, recorded: Any) -> bool:
        return _asked(ours).matches(_asked(recorded), ["body"])

    vcr.before_record_request = scrub_request
    vcr.before_save_interaction = scrub_both  # what is replayed from older files stays as it is
    vcr.register_matcher("body", same_body)


def _asked(request: Any) -> HTTPRequest:
    return HTTPRequest(method=request.method, url=request.uri, body=request.body or b"")


@pytest.fixture(autouse=True)
def _routelock_cassette(
    request: pytest.FixtureRequest, vcr: Any, vcr_config: Mapping[str, Any], record_mode: str
) -> Iterator[Cassette | None]:
    """The cassette of a test: that of pytest-recording if the test is marked for it, else one of ours."""
    options = options_of(request, vcr_config)
    with ExitStack() as stack:
        stack.enter_context(network_of(request, options))
        if vcr is None:
            wanted = "cassette" in request.fixturenames
            yield stack.enter_context(cassette_of(request, options, record_mode)) if wanted else None
            return
        used = Cassette(
            path=Path(vcr.path),
            record_mode=vcr.record_mode.value,
            match_on=[name for name in options.get("match_on", _VCRPYS) if name in PARTS],
            allow_unplayed=True,
            _tape=vcr,
        )
        stack.enter_context(models_allowed())
        if not used.is_replaying:
            stack.enter_context(guards_of(request.config).open())
        stack.enter_context(answering_from(used))
        yield used
        if isinstance(request.node.stash.get(STOPPED, None), CassetteMiss):
            used.misses.clear()


@pytest.fixture(name="cassette")
def _cassette(_routelock_cassette: Cassette) -> Cassette:
    """The cassette of this test, in use from here to the test's end."""
    return _routelock_cassette
