"""Fixtures and options for pytest. Ask for them in the topmost conftest.py:

    pytest_plugins = ["routelock.testing.pytest_plugin"]

pytest does not load this plugin by itself: an app that has routelock installed may test other things, which
should keep their network.

* No test and no import reaches the network, except in tests marked ``@pytest.mark.network``.
* With ``forbid_models = true`` in pytest's configuration no test calls a model either, on this machine or
  elsewhere, unless a cassette answers, see `routelock.testing.no_models`.
* A test marked ``@pytest.mark.vcr``, or with the fixture ``cassette``, is answered from
  ``cassettes/<module>/<test>.yaml`` beside its module. ``--record-mode`` records. Options, markers and
  fixtures are those of pytest-recording. If pytest-recording is installed, it provides them, and this plugin
  adds only what it lacks.
* ``respx_mock``, the fixture of respx, sees the requests of all handlers.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from importlib.metadata import entry_points
from typing import Any

import pytest

from routelock.errors import CassetteMiss
from routelock.testing import pytest_beside_recording, pytest_guards, pytest_respx, pytest_vcr

__all__: list[str] = []


_RECORDING = "pytest_recording.plugin"


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Load the other modules of the plugin."""
    pluginmanager.register(pytest_guards, "routelock_guards")
    if _has_recording(pluginmanager):
        pluginmanager.register(pytest_beside_recording, "routelock_beside_recording")
    else:
        pluginmanager.register(pytest_vcr, "routelock_vcr")


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixture ``respx_mock`` after that of respx, because the last one counts."""
    config.pluginmanager.register(pytest_respx, "routelock_respx")


def _has_recording(manager: pytest.PytestPluginManager) -> bool:
    """Return whether pytest-recording is loaded, or will be: a plugin named with ``-p`` is loaded earlier."""
    if any(getattr(plugin, "__name__", "") == _RECORDING for plugin in manager.get_plugins()):
        return True
    if os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        return False
    return any(
        entry.value == _RECORDING and not manager.is_blocked(entry.name)
        for entry in entry_points(group="pytest11")
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether a test ended early, before its fixtures are torn down, and what its cassette missed."""
    error = call.excinfo and call.excinfo.value
    if call.when != "teardown":
        item.stash[pytest_vcr.STOPPED] = error
    report = yield
    # an attribute, because xdist sends attributes from its workers
    report.__dict__[_MISSES] = list(
        dict.fromkeys(str(link) for link in _chain(error) if isinstance(link, CassetteMiss))
    )
    return report


_MISSES = "routelock_misses"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and all its causes, each of them once."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        link = waiting.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            yield link
            waiting += [link.__cause__, link.__context__, *getattr(link, "exceptions", ())]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show each miss with its difference; pytest's own summary has only one line for a test."""
    missed: dict[tuple[str, str], None] = {}
    reports: list[Any] = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    for report in reports:
        missed |= dict.fromkeys((report.nodeid, text) for text in getattr(report, _MISSES, ()))
    if missed:
        terminalreporter.section("unanswered requests")
    for nodeid, text in missed:
        terminalreporter.write_line(nodeid, bold=True)
        for line in text.splitlines():
            terminalreporter.write_line(f"  {line}")
