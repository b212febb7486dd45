"""The part of the pytest plugin for tests marked ``vcr``: the options and fixtures of pytest-recording.

This part is not loaded if pytest-recording is, see `routelock.testing.pytest_beside_recording`.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast, get_args

import pytest

from routelock.errors import CassetteMiss
from routelock.testing.cassette import VARIABLE, Cassette, RecordMode, use_cassette
from routelock.testing.pytest_guards import guards_of, hosts

__all__ = [
    "KEYS",
    "STOPPED",
    "cassette",
    "cassette_of",
    "default_cassette_name",
    "network_of",
    "options_of",
    "record_mode",
    "vcr",
    "vcr_cassette_dir",
    "vcr_config",
]


STOPPED = pytest.StashKey[BaseException | None]()
"""The exception that ended a test early: a failure, a skip or an expected failure. None without one."""

_OF_USE_CASSETTE: Final = frozenset(inspect.signature(use_cassette).parameters) - {"path", "also"}

KEYS: Final = _OF_USE_CASSETTE | {"allowed_hosts"}
"""The keys of ``vcr_config`` and of the marker."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("recording")
    group.addoption(
        "--record-mode",
        choices=get_args(RecordMode),
        help=f"when cassettes are recorded; the default is that of vcr_config, of {VARIABLE}, or none",
    )
    group.addoption(
        "--block-network",
        action="store_true",
        default=False,
        help="refuse the network to tests marked network, too; only recording opens it",
    )
    group.addoption("--allowed-hosts", help="patterns of hosts that may be reached, separated by commas")


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.has_plugin("vcr"):
        raise pytest.UsageError(
            "pytest-vcr and the plugin of routelock both have the marker and the fixtures of cassettes. "
            "Uninstall pytest-vcr, or switch it off with -p no:vcr."
        )
    for line in (
        "vcr(*cassettes, **options): answer from the test's cassette, and from these others",
        "default_cassette(name): the name of the test's cassette",
        "block_network(allowed_hosts=[...]): refuse the network, except for these patterns of hosts",
    ):
        config.addinivalue_line("markers", line)


@pytest.fixture
def vcr_config() -> dict[str, Any]:
    """The options of `routelock.testing.use_cassette` for these tests; override it in any scope."""
    return {}


@pytest.fixture(scope="session")
def record_mode(request: pytest.FixtureRequest) -> str:
    """The record mode of tests whose own options name none."""
    return request.config.getoption("--record-mode") or os.environ.get(VARIABLE) or "none"


@pytest.fixture(scope="module")
def vcr_cassette_dir(request: pytest.FixtureRequest) -> str:
    """The folder of a module's cassettes."""
    return str(request.path.parent / "cassettes" / request.path.stem)


@pytest.fixture
def default_cassette_name(request: pytest.FixtureRequest) -> str:
    """The name of a test's cassette; the name of the event loop is not part of it."""
    marker = request.node.get_closest_marker("default_cassette")
    if marker is not None:
        return str(marker.args[0])
    name = request.node.name.replace("[asyncio]", "").replace("[trio]", "")
    name = re.sub(r"(?<=\[)(?:asyncio|trio)-|-(?:asyncio|trio)(?=\])", "", name)
    if (owner := cast("type | None", request.cls)) is not None:  # pyright: ignore[reportUnknownMemberType]
        name = f"{owner.__name__}.{name}"
    return re.sub(r"""[<>?%*:|"'/\\]""", "-", name)


@pytest.fixture(autouse=True)
def vcr(
    request: pytest.FixtureRequest, vcr_config: Mapping[str, Any], record_mode: str
) -> Iterator[Cassette | None]:
    """The cassette of a test that is marked ``vcr`` or uses ``cassette``, and None for others."""
    options = options_of(request, vcr_config)
    if unknown := sorted(options.keys() - KEYS):
        pytest.fail(
            f"vcr_config or @pytest.mark.vcr has an unknown key {unknown[0]!r}; "
            f"the keys are {', '.join(sorted(KEYS))}.",
            pytrace=False,
        )
    marked = request.node.get_closest_marker("vcr") is not None
    with network_of(request, options):
        if marked or "cassette" in request.fixturenames:
            with cassette_of(request, options, record_mode) as used:
                yield used
        else:
            yield None


@pytest.fixture
def cassette(vcr: Cassette) -> Cassette:
    """The cassette of this test, in use from here to the test's end."""
    return vcr


def options_of(request: pytest.FixtureRequest, vcr_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a test: those of its markers, nearest first, and then of ``vcr_config``."""
    options = dict(vcr_config)
    for marker in reversed(list(request.node.iter_markers("vcr"))):
        options |= marker.kwargs
    return options


@contextmanager
def network_of(request: pytest.FixtureRequest, options: Mapping[str, Any]) -> Generator[None]:
    """Allow the hosts of ``vcr_config`` where the command line and a marker name none."""
    blocked = request.node.get_closest_marker("block_network")
    named = request.config.getoption("--allowed-hosts") or (blocked and blocked.kwargs.get("allowed_hosts"))
    allowed = options.get("allowed_hosts")
    if not allowed or named or (request.node.get_closest_marker("network") and not blocked):
        yield
        return
    with guards_of(request.config).closed(hosts(allowed)):
        yield


@contextmanager
def cassette_of(
    request: pytest.FixtureRequest, options: Mapping[str, Any], default_mode: str
) -> Generator[Cassette]:
    """Use the cassette of a test, and open the network while it is recorded."""
    given: dict[str, Any] = {key: value for key, value in options.items() if key in _OF_USE_CASSETTE}
    given["record_mode"] = (
        request.config.getoption("--record-mode") or given.get("record_mode") or default_mode
    )
    folder = Path(request.getfixturevalue("vcr_cassette_dir"))
    path = folder / _file_name(str(request.getfixturevalue("default_cassette_name")))
    others: Sequence[str] = [name for marker in request.node.iter_markers("vcr") for name in marker.args]
    with use_cassette(path, also=[folder / other for other in others], **given) as used:
        if used.is_replaying:
            yield used
        else:
            with guards_of(request.config).open():
                yield used
        # a test that ended early is reported for that, and not for unmade requests as well
        stopped = request.node.stash.get(STOPPED, None)
        used.allow_unplayed |= stopped is not None
        if isinstance(stopped, CassetteMiss):
            used.misses.clear()


def _file_name(name: str) -> str:
    """Return the name of a cassette's file; that of a long name is shortened as pytest-recording does it."""
    if len(name) + len(_SUFFIX) > _LONGEST_NAME:
        digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
        name = f"{name[: _LONGEST_NAME - len(_SUFFIX) - len(digest) - 3]}...{digest}"
    return name if name.endswith(_SUFFIX) else name + _SUFFIX


_SUFFIX: Final = ".yaml"

_LONGEST_NAME: Final = 255
"""Characters of a file's name, on common systems."""
