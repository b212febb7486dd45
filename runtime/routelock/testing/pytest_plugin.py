"""Fixtures and options for pytest. Ask for them in the topmost conftest.py:

    pytest_plugins = ["routelock.testing.pytest_plugin"]

It is not registered by itself: an app that has routelock installed may test other things, and need
not pay for it, nor find its network closed.

* No test reaches the network, nor does an import, except in tests marked ``@pytest.mark.network``.
* With ``forbid_models = true`` in pytest's configuration none asks a model either, on this machine or
  elsewhere, unless a cassette answers, see `routelock.testing.no_models`.
* The fixture ``cassette`` replays ``cassettes/<module>/<test>.yaml``. ``@pytest.mark.cassette(...)``
  takes another path and the options of `routelock.testing.use_cassette`.
* ``--cassettes=record`` asks the network and writes the cassettes of the tests that are run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from routelock.errors import CassetteMiss
from routelock.handlers.port import MODEL_CALL_CHECK, Request
from routelock.testing.cassette import VARIABLE, Cassette, use_cassette
from routelock.testing.guards import ModelCallBlocked, no_network

__all__ = ["cassette"]


class _Guard:
    """The network guard of one pytest session, and the fence around models if it is wanted.

    The fence is there all the time and looks at a flag: tests may share an event loop, whose tasks have the
    context variables of when it began.
    """

    def __init__(self, *, forbid_models: bool) -> None:
        self._forbid_models = self._forbidding = forbid_models
        self._before = MODEL_CALL_CHECK.get()
        MODEL_CALL_CHECK.set(self._check)
        self.refused: list[list[str]] = []
        self._stack = ExitStack()

    def _check(self, model: str, request: Request) -> None:
        if self._forbidding:
            raise ModelCallBlocked(model, request)

    def close_network(self) -> None:
        self.refused.append(self._stack.enter_context(no_network()))
        self._forbidding = self._forbid_models

    def open_network(self) -> None:
        self._stack.close()
        self._forbidding = False

    @contextmanager
    def models_allowed(self) -> Generator[None]:
        before, self._forbidding = self._forbidding, False
        try:
            yield
        finally:
            self._forbidding = before

    def end(self) -> None:
        self.open_network()
        MODEL_CALL_CHECK.set(self._before)


_GUARD = pytest.StashKey[_Guard]()

_STOPPED = pytest.StashKey[BaseException | None]()
"""Why a test did not come to its end: it failed, was skipped, or is expected to fail. None if it did."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("routelock")
    group.addoption(
        "--cassettes",
        choices=("replay", "record"),
        help=f"replay answers from files alone (the default), record asks the network; or set {VARIABLE}",
    )
    parser.addini("forbid_models", type="bool", default=False, help="refuse every call of a model")
    parser.addini("cassette_dir", default="cassettes", help="where cassettes are, from the root directory")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "network: this test may reach the network")
    config.addinivalue_line(
        "markers", "cassette(path, **options): another path than the test's name, options of use_cassette"
    )
    guard = config.stash[_GUARD] = _Guard(forbid_models=bool(config.getini("forbid_models")))
    guard.close_network()


def pytest_unconfigure(config: pytest.Config) -> None:
    if guard := config.stash.get(_GUARD, None):
        guard.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Open the network around the tests that are meant to use it."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    recording = _mode(item.config) == "record" and "cassette" in fixtures
    if not recording and item.get_closest_marker("network") is None:
        return (yield)
    guard = item.config.stash[_GUARD]
    guard.open_network()
    try:
        return (yield)
    finally:
        guard.close_network()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Take note of whether a test came to its end, before its fixtures are told."""
    if call.when != "teardown":
        item.stash[_STOPPED] = call.excinfo and call.excinfo.value


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the hosts that were refused: a client may have swallowed the error."""
    if hosts := {host for hosts in config.stash[_GUARD].refused for host in hosts}:
        terminalreporter.write_line(
            f"routelock: connections refused by no_network: {', '.join(sorted(hosts))}"
        )


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Iterator[Cassette]:
    """The cassette of this test, in use from here to the test's end."""
    marker = request.node.get_closest_marker("cassette")
    options: dict[str, Any] = dict(marker.kwargs) if marker else {}
    named: tuple[str, ...] = marker.args if marker else ()
    folder = request.config.rootpath / str(request.config.getini("cassette_dir"))
    path, mode = folder / (named[0] if named else _path(request)), _mode(request.config)
    with request.config.stash[_GUARD].models_allowed(), use_cassette(path, mode=mode, **options) as used:
        yield used
        # a test that stopped half-way has one problem, not two
        stopped = request.node.stash.get(_STOPPED, None)
        used.allow_unplayed |= stopped is not None
        if isinstance(stopped, CassetteMiss):
            used.misses.clear()


def _mode(config: pytest.Config) -> Any:
    return config.getoption("--cassettes") or os.environ.get(VARIABLE) or None


def _path(request: pytest.FixtureRequest) -> Path:
    """The path that belongs to a test; the name of the event loop is no part of it."""
    module, *names = request.node.nodeid.split("::")
    name = ".".join(names).replace("[asyncio]", "").replace("[trio]", "")
    name = re.sub(r"(?<=\[)(?:asyncio|trio)-|-(?:asyncio|trio)(?=\])", "", name)
    return (
        Path(Path(module).stem.removeprefix("test_"))
        / f"{re.sub(r'[^A-Za-z0-9_.]+', '-', name).strip('-')}.yaml"
    )
