"""Fixtures and options for pytest. Ask for them in the topmost conftest.py:

    pytest_plugins = ["routelock.testing.pytest_plugin"]

pytest does not load it by itself: an app that has routelock installed may test other things, which should
keep their network.

* No test and no import reaches the network, except in tests marked ``@pytest.mark.network``.
* With ``forbid_models = true`` in pytest's configuration no test calls a model either, on this machine or
  elsewhere, unless a cassette answers, see `routelock.testing.no_models`.
* The fixture ``cassette`` replays ``cassettes/<module>/<test>.yaml``. ``@pytest.mark.cassette(...)``
  takes another path and the options of `routelock.testing.use_cassette`.
* ``--cassettes=record`` calls the network and writes the cassettes of the tests that run.
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
from routelock.testing.cassette import VARIABLE, Cassette, use_cassette
from routelock.testing.guards import models_allowed, no_models, no_network

__all__ = ["cassette"]


class _Guards:
    """The network guard of one pytest session, and the model guard if the configuration asks for it."""

    def __init__(self, *, forbid_models: bool) -> None:
        self.refused_hosts: list[list[str]] = []
        """One list for each time that the network was closed."""
        self._network = ExitStack()
        self._models = ExitStack()
        if forbid_models:
            self._models.enter_context(no_models())
        self._close_network()

    def _close_network(self) -> None:
        self.refused_hosts.append(self._network.enter_context(no_network()))

    @contextmanager
    def lifted(self) -> Generator[None]:
        """Allow the network and models inside the block."""
        self._network.close()
        try:
            with models_allowed():
                yield
        finally:
            self._close_network()

    def end(self) -> None:
        self._network.close()
        self._models.close()


_GUARDS = pytest.StashKey[_Guards]()

_STOPPED = pytest.StashKey[BaseException | None]()
"""The exception that ended a test early: a failure, a skip or an expected failure. None without one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("routelock")
    group.addoption(
        "--cassettes",
        choices=("replay", "record"),
        help=f"replay answers from files alone (the default), record calls the network; or set {VARIABLE}",
    )
    parser.addini("forbid_models", type="bool", default=False, help="refuse every model call")
    parser.addini("cassette_dir", default="cassettes", help="where cassettes are, from the root directory")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "network: this test may reach the network")
    config.addinivalue_line(
        "markers", "cassette(path, **options): another path than the test's name, options of use_cassette"
    )
    config.stash[_GUARDS] = _Guards(forbid_models=bool(config.getini("forbid_models")))


def pytest_unconfigure(config: pytest.Config) -> None:
    if guards := config.stash.get(_GUARDS, None):
        guards.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Lift the guards for a test that may use the network."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    recording = _mode(item.config) == "record" and "cassette" in fixtures
    if not recording and item.get_closest_marker("network") is None:
        return (yield)
    with item.config.stash[_GUARDS].lifted():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Note whether a test ended early, before its fixtures are torn down."""
    if call.when != "teardown":
        item.stash[_STOPPED] = call.excinfo and call.excinfo.value


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the refused hosts: a client may have swallowed the error."""
    if hosts := {host for hosts in config.stash[_GUARDS].refused_hosts for host in hosts}:
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
    with use_cassette(path, mode=mode, **options) as used:
        yield used
        # a test that ended early is reported for that, and not for unmade requests as well
        stopped = request.node.stash.get(_STOPPED, None)
        used.allow_unplayed |= stopped is not None
        if isinstance(stopped, CassetteMiss):
            used.misses.clear()


def _mode(config: pytest.Config) -> Any:
    return config.getoption("--cassettes") or os.environ.get(VARIABLE) or None


def _path(request: pytest.FixtureRequest) -> Path:
    """Return the cassette path of a test; the name of the event loop is not part of it."""
    module, *names = request.node.nodeid.split("::")
    name = ".".join(names).replace("[asyncio]", "").replace("[trio]", "")
    name = re.sub(r"(?<=\[)(?:asyncio|trio)-|-(?:asyncio|trio)(?=\])", "", name)
    return (
        Path(Path(module).stem.removeprefix("test_"))
        / f"{re.sub(r'[^A-Za-z0-9_.]+', '-', name).strip('-')}.yaml"
    )
