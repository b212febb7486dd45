"""The part of the pytest plugin that keeps tests from the network, and from models if it is asked to."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from routelock.testing.guards import models_allowed, no_models, no_network

__all__ = ["Guards", "guards_of", "hosts"]


class Guards:
    """The network guard of one pytest session, and the model guard if the configuration asks for it."""

    def __init__(self, *, forbid_models: bool, allow: Sequence[re.Pattern[str]]) -> None:
        self.refused_hosts: list[list[str]] = []
        """The hosts to which a connection was refused: one list for each time that the network was closed."""
        self._network = ExitStack()
        self._models = ExitStack()
        self._rules: list[Sequence[re.Pattern[str]] | None] = [allow]
        """The hosts that may be reached, innermost rule last; None for all."""
        if forbid_models:
            self._models.enter_context(no_models())
        self._apply()

    @contextmanager
    def open(self) -> Generator[None]:
        """Allow the network and models inside the block."""
        with self._rule(None), models_allowed():
            yield

    @contextmanager
    def closed(self, allow: Sequence[re.Pattern[str]]) -> Generator[None]:
        """Refuse the network inside the block, except for these hosts."""
        with self._rule(allow):
            yield

    def end(self) -> None:
        """Remove the guards, so that everything is as it was before the session."""
        self._network.close()
        self._models.close()

    @contextmanager
    def _rule(self, allow: Sequence[re.Pattern[str]] | None) -> Generator[None]:
        self._rules.append(allow)
        self._apply()
        try:
            yield
        finally:
            self._rules.pop()
            self._apply()

    def _apply(self) -> None:
        self._network.close()
        if (allow := self._rules[-1]) is not None:
            self.refused_hosts.append(self._network.enter_context(no_network(allow=allow)))


_GUARDS = pytest.StashKey[Guards]()


def guards_of(config: pytest.Config) -> Guards:
    """Return the guards of this session."""
    return config.stash[_GUARDS]


def hosts(patterns: str | Iterable[str] | None) -> list[re.Pattern[str]]:
    """Return the patterns of hosts, as pytest-recording takes them: several, or one text with commas."""
    texts = patterns.split(",") if isinstance(patterns, str) else patterns or ()
    return [re.compile(text) for text in texts]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("forbid_models", type="bool", default=False, help="refuse every model call")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "network: this test may reach the network")
    config.stash[_GUARDS] = Guards(
        forbid_models=bool(config.getini("forbid_models")), allow=hosts(config.getoption("--allowed-hosts"))
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    if guards := config.stash.get(_GUARDS, None):
        guards.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Open the network for a test marked ``network``, and close it for a test marked ``block_network``."""
    guards, blocked = guards_of(item.config), item.get_closest_marker("block_network")
    if blocked is not None:
        named: Any = blocked.kwargs.get("allowed_hosts") or item.config.getoption("--allowed-hosts")
        with guards.closed(hosts(named)):
            return (yield)
    if item.get_closest_marker("network") is None or item.config.getoption("--block-network"):
        return (yield)
    with guards.open():
        return (yield)


_REFUSED = "routelock_refused_hosts"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the refused hosts to the process that prints the summary, if this is a worker of xdist."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_REFUSED] = [host for hosts in guards_of(session.config).refused_hosts for host in hosts]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Note the hosts that a worker of xdist refused. A worker that crashed has sent nothing."""
    sent: dict[str, Any] = getattr(node, "workeroutput", {})
    guards_of(node.config).refused_hosts.append(sent.get(_REFUSED, []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the refused hosts: a client may have swallowed the error."""
    if refused := {host for hosts in guards_of(config).refused_hosts for host in hosts}:
        terminalreporter.write_line(
            f"routelock: connections refused by no_network: {', '.join(sorted(refused))}"
        )
