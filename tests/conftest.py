"""What all tests share: no network, no keys of the developer's, asyncio and trio."""

from __future__ import annotations

import gc
import importlib
import os
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from pkgutil import walk_packages

import coverage
import pytest
from hypothesis import HealthCheck, settings
from pairwise import in_turn, pairwise
from paths import SUPPORT
from ram_disk import ram_disk
from thoroughness import THOROUGH, examples
from view_checks import Views
from virtual_time import virtual_backends

from routelock.testing import watch_requests

pytest_plugins = ["routelock.testing.pytest_plugin", "pytester"]

_SETTINGS = {
    # all of these are read when litellm is imported or first used, so they are set before any test is
    "AWS_EC2_METADATA_DISABLED": "true",
    "HF_HUB_OFFLINE": "1",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION_NAME": "us-east-1",
    # each client loads its authorities; those of certifi take 20 ms of CPU time
    "SSL_CERT_FILE": str(SUPPORT / "authority.pem"),
}
_VENDORS = (
    "ANTHROPIC AZURE CEREBRAS COHERE DEEPSEEK GEMINI GROQ HUGGINGFACE MISTRAL OLLAMA OPENAI OPENROUTER "
    "PERPLEXITYAI TOGETHERAI XAI ZAI"
).split()
_NOT_OURS = ("_BASE_URL", "_API_BASE", "_PROXY", "_proxy")
"""A developer's shell must not move the host that a cassette matches on."""


_UNTRACED = {
    # more of what other tests have shown, and much of it
    "clients",
    "stress",
    "test_browser.py",
    "test_cancelled_anywhere.py",
    "test_handoff_matrix.py",
    "test_parity.py",
    "test_replay_recordings.py",
    # large and random bodies: other tests take the same ways
    "test_hostile.py",
    # these read sources and pages, and run none of them
    "test_citations.py",
    "test_exports.py",
    "test_layers.py",
    "test_run_parts.py",
    "test_site.py",
    "test_size.py",
}

_MOST_TRACED = 12
"""Cases of one test on an event loop: the others take the same ways with other values."""
_OURS = ("routelock", "routelock_providers", "routelock_skills")
_OF_OTHERS = ("aiohttp", "litellm", "openai", "rich.markdown", "starlette.applications")
"""What ours load, and takes the longest."""
_LOOP = "anyio_backend"
_TRACED = pytest.StashKey[bool]()
_COVERAGE = pytest.StashKey[coverage.Coverage | None]()

_VIEWS = Views()


def pytest_configure() -> None:
    """Make every machine the same machine."""
    watch_requests(_VIEWS.look)
    for name in list(os.environ):
        if name.endswith(_NOT_OURS) or name in ("LITELLM_RUST", "OPENAI_ORGANIZATION"):
            del os.environ[name]
    if folder := ram_disk():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", folder)
    os.environ.update(_SETTINGS)
    os.environ.update({f"{vendor}_API_KEY": "test-not-a-key" for vendor in _VENDORS})
    # a busy machine is no bug
    quiet = [HealthCheck.too_slow]
    settings.register_profile("routelock", examples(25), deadline=None, suppress_health_check=quiet)
    settings.load_profile("routelock")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Three workers for two cores: a worker waits for processes and servers a fourth of its time."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + cores // 2


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests marked ``anyio`` on asyncio and trio, unless another mark of theirs says otherwise."""
    if "anyio_backend" not in metafunc.fixturenames:
        return
    marked = metafunc.definition.get_closest_marker
    virtual = marked("virtual_time")
    if not (marked("asyncio_only") or virtual):
        return
    threads = virtual is not None and bool(virtual.kwargs.get("threads"))
    names = ["asyncio"] if marked("asyncio_only") or threads else ["asyncio", "trio"]
    backends = [virtual_backends(threads=threads)[name] for name in names] if virtual else names
    only = pytest.mark.parametrize("anyio_backend", backends, ids=names, scope="module")
    metafunc.definition.add_marker(only)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Trace how our modules load, and nothing else until the first test: that takes twice as long.

    A module that loaded while nothing is traced would count as one whose classes and functions are not there.
    The process that hands out the tests to others runs no code of ours.
    """
    config, measuring = session.config, coverage.Coverage.current()
    config.stash[_COVERAGE] = measuring
    while (running := coverage.Coverage.current()) is not None:
        # pytest-cov starts a second one in a worker of xdist's; when that is stopped, the first one goes on
        running.stop()
    if measuring is not None:
        config.stash[_TRACED] = False
        if not config.getoption("numprocesses", None):
            _load_all(measuring)
    return (yield)


def _load_all(measuring: coverage.Coverage) -> None:
    for name in _OF_OTHERS:
        with suppress(ImportError):  # the tests that need it are skipped
            importlib.import_module(name)
    measuring.start()
    for package in _OURS:
        for module in walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                with suppress(ImportError):
                    importlib.import_module(module.name)
    measuring.stop()


@pytest.hookimpl(trylast=True)  # hypothesis has marked its own by then
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what says nothing new, and say which tests are traced: those that say more about coverage."""
    if left_out := set[pytest.Item]() if THOROUGH else _left_out(items):
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]
    cases = Counter[str]()
    seen = set[tuple[str, object]]()
    for item in items:
        which = function_of(item), _but_for_the_loop(item)
        again = which in seen or item.get_closest_marker("hypothesis") or _UNTRACED & {*item.path.parts}
        seen.add(which)
        cases[function_of(item)] += not again and _LOOP in _parameters(item)
        item.stash[_TRACED] = not again and cases[function_of(item)] <= _MOST_TRACED


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Trace a test or not; one that is traced takes more than twice as long, and so does pytest around it.

    Nothing is done between two of the same kind: threads that go on would not be traced any more.
    """
    config, wanted = item.config, item.stash[_TRACED]
    measuring = config.stash[_COVERAGE]
    if measuring is not None and wanted is not config.stash.get(_TRACED, True):
        config.stash[_TRACED] = wanted
        if wanted:
            measuring.start()
        else:
            measuring.stop()
    return (yield)


def function_of(item: pytest.Item) -> str:
    """Return the test that an item is a case of."""
    return item.nodeid.partition("[")[0]


def _left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the cases that say nothing new."""
    matrices = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if _parameters(item):
            matrices[function_of(item)].append(item)
    left_out: set[pytest.Item] = set()
    for matrix in matrices.values():
        left_out |= {*matrix} - {matrix[place] for place in _kept(matrix)}
    return left_out


def _kept(matrix: Sequence[pytest.Item]) -> Sequence[int]:
    cases = [_parameters(item) for item in matrix]
    on_loops = all(_LOOP in case for case in cases)
    turning = on_loops and not matrix[0].get_closest_marker("every_loop")
    if matrix[0].get_closest_marker("pairwise"):
        return pairwise(cases, _LOOP if turning else None)
    if turning and len({tuple(case.items()) for case in cases}) == len(cases):
        return in_turn(cases, _LOOP)
    return range(len(cases))


def _parameters(item: pytest.Item) -> dict[str, str]:
    """Return the parameters of a test as text; what looks the same is the same."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return {}
    return {name: _shown(value) for name, value in item.callspec.params.items()}


def _shown(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # a number of more digits than Python shows
        return f"{type(value)} at {id(value)}"


def _but_for_the_loop(item: pytest.Item) -> object:
    """Return what tells an item from other cases of its test, except for the event loop."""
    others = [(name, value) for name, value in _parameters(item).items() if name != _LOOP]
    return tuple(sorted(others)) if others else ()


def pytest_collection_finish() -> None:
    """Spare tests that collect garbage the million objects that are here by now, and stay to the end."""
    gc.freeze()


@pytest.fixture(params=["asyncio", "trio"], scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop that a test marked ``anyio`` runs on."""
    return request.param


@pytest.fixture(scope="module")
def answers_of_respx() -> Iterator[None]:
    """`answers.Answers` answer in the module; tests share the router, since each takes 2 ms."""
    from answers import answering

    with answering():
        yield


@pytest.fixture(autouse=True)
def _views_are_accepted() -> Iterator[None]:
    """What a run shows a model in any test is something that every vendor takes."""
    _VIEWS.take()
    yield
    if refused := _VIEWS.take():
        pytest.fail("\n".join(refused), pytrace=False)
