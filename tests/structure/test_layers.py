"""Imports go downward only, so the core can be read from the bottom to the top, once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

import pytest

ROOMS = (
    "routelock",
    "routelock.history",
    "routelock.handlers",
    "routelock.tools",
    "routelock.handoffs",
    "routelock.agents",
    "routelock.run",
    "routelock.tracing",
    "routelock.state",
    "routelock.sessions",
    "routelock.runner",
    "routelock.testing",
    "routelock_providers",
    "routelock_providers.http",
    "routelock_providers.chat_completions",
    "routelock_providers.litellm",
    "routelock_providers.remote",
    "routelock_skills",
    "routelock.serving",
    "routelock.cli",
)
"""The rooms, lowest first: a module imports only from its own room and from those above it in this list.
The first is the modules that stand at the top of `routelock`, beside the rooms."""

HIGH_AT_THE_TOP = {
    # they stand beside the lowest modules because of their names, and above nearly all rooms by what they do
    "routelock": "routelock.runner",
    "routelock.runner": "routelock.runner",
    "routelock.__main__": "routelock.cli",
}

LAZY_AND_UPWARD = {
    # a context can read the payload that rides along, and stands below all that knows payloads
    ("routelock.context", "routelock.handoffs.payload"),
    # the form in which a request goes to another process is checked with pydantic
    ("routelock.handoff_request", "routelock.handoffs.request_json"),
    # the defaults of a run's settings, for a table that is made without any
    ("routelock.agents.graph", "routelock.run.config"),
    # a model given as a string is answered by the bundled provider, which costs two seconds to import
    ("routelock.run.handler_selection", "routelock_providers.litellm.handler"),
    # respx answers what the transport sends
    ("routelock.testing.respx_mock", "routelock_providers.http.stand_in"),
    # a run that is traced by a file, or that goes on from a state
    ("routelock.run.start", "routelock.tracing.recorder"),
    ("routelock.run.start", "routelock.state.resume"),
    ("routelock.run.result", "routelock.state.capture"),
    ("routelock.run.loop", "routelock.state.resume"),
    ("routelock.run.subrun", "routelock.state.resume"),
}

SIDEWAYS = {
    # what a notebook shows is drawn in a notebook only, and what draws would make every import slower
    ("routelock.agents.agent", "routelock.agents.svg"),
    ("routelock.run.result", "routelock.run.notebook"),
}

NEEDED_BY_FEW = {
    # what is loaded by the first run that needs it, so that importing routelock stays quick: the most of that
    # is making dataclasses
    "routelock.cli.markdown",  # it needs an extra
    "routelock.handoffs.payload_types",
    "routelock.sessions",
    "routelock.state.capture",
    "routelock.tools.error_advice",
    "routelock.tools.ranking",
    "routelock.tools.stems",
    "routelock.serving.dev.routes",  # they need an extra
    "routelock.serving.routes",
    "routelock.state.document",
    "routelock.state.resume",
    "routelock.state.run_state",
    "routelock.tracing.recorder",
    "routelock_providers",  # by commands whose agents have models of litellm
}

VENDORS = {"aiohttp", "litellm", "openai"}

LATE = {
    # modules that are about one library and nothing else, and that nobody loads before it is needed
    "routelock_providers.chat_completions.openai",
    "routelock_providers.http.client",
    "routelock_providers.http.httpx_transport",
    "routelock_providers.http.stand_in",
    "routelock_providers.litellm.client",
}


@dataclass(frozen=True)
class Edge:
    source: str
    target: str
    line: int
    lazy: bool
    for_types: bool
    """Whether it stands below ``if TYPE_CHECKING``, so that it never happens."""


def _room(name: str) -> str:
    """Return the room of a module: that of the longest name in the list that it begins with."""
    if name in HIGH_AT_THE_TOP:
        return HIGH_AT_THE_TOP[name]
    return max((room for room in ROOMS if f"{name}.".startswith(f"{room}.")), key=len, default="")


def _targets(node: ast.AST, known: dict[str, Any]) -> Iterator[str]:
    """The modules that one statement imports, `importlib.import_module("...")` included."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=str(module), names=names):
            for alias in names:
                submodule = f"{module}.{alias.name}"
                yield submodule if submodule in known else module
        case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
            yield name


def _edges(modules: dict[str, Any]) -> Iterator[Edge]:
    for module in modules.values():
        for node, lazy, typing in _statements(module.tree):
            for target in _targets(node, modules):
                yield Edge(module.name, target, getattr(node, "lineno", 0), lazy, typing)


def _statements(
    node: ast.AST, lazy: bool = False, typing: bool = False
) -> Iterator[tuple[ast.AST, bool, bool]]:
    """Yield each node below one, with whether it is in a function, and whether it is for types alone."""
    lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    typing = typing or (isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING")
    for child in ast.iter_child_nodes(node):
        yield child, lazy, typing
        yield from _statements(child, lazy, typing)


@pytest.fixture(scope="module")
def edges(modules: dict[str, Any]) -> list[Edge]:
    return list(_edges(modules))


@pytest.fixture(scope="module")
def ours(edges: list[Edge], modules: dict[str, Any]) -> list[Edge]:
    return [
        edge for edge in edges if edge.target in modules and edge.source != edge.target and not edge.for_types
    ]


def _sanctioned(edge: Edge) -> bool:
    return edge.lazy and (edge.source, edge.target) in LAZY_AND_UPWARD | SIDEWAYS


def _is_face(edge: Edge, modules: dict[str, Any]) -> bool:
    """Whether a package names what its own modules define: it is loaded with each of them."""
    return modules[edge.source].is_package and edge.target.startswith(f"{edge.source}.")


def test_every_module_is_in_a_room(modules: dict[str, Any]) -> None:
    homeless = [name for name in modules if not _room(name)]
    assert not homeless, homeless


def test_every_room_exists(modules: dict[str, Any]) -> None:
    gone = [room for room in ROOMS if room not in modules]
    assert not gone, gone


def test_every_room_says_what_it_is(modules: dict[str, Any]) -> None:
    """A stranger reads the face of a room first: what lives here, what it imports, where to start."""
    silent = [
        str(modules[room].path)
        for room in ROOMS
        if modules[room].is_package and len((ast.get_docstring(modules[room].tree) or "").split()) < 12
    ]
    assert not silent, silent


def test_imports_go_downward(ours: list[Edge], modules: dict[str, Any]) -> None:
    """Imports for types alone never happen, and do not count."""
    upward = [
        f"{edge.source}:{edge.line} imports {edge.target}"
        for edge in ours
        if ROOMS.index(_room(edge.target)) > ROOMS.index(_room(edge.source))
        and not (_sanctioned(edge) or _is_face(edge, modules))
    ]
    assert not upward, "\n".join(upward)


def test_every_upward_import_that_is_named_is_made(ours: list[Edge]) -> None:
    made = {(edge.source, edge.target) for edge in ours if edge.lazy}
    assert made >= LAZY_AND_UPWARD | SIDEWAYS, (LAZY_AND_UPWARD | SIDEWAYS) - made


def test_no_cycles(ours: list[Edge], modules: dict[str, Any]) -> None:
    graph: dict[str, set[str]] = {}
    for edge in ours:
        if not (_sanctioned(edge) or modules[edge.source].is_package):
            graph.setdefault(edge.source, set()).add(edge.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])), pytrace=False)


def test_no_import_hides_in_a_function(ours: list[Edge], modules: dict[str, Any]) -> None:
    """A function-local import of our own would only hide a cycle, unless few runs need it."""
    hidden = [
        f"{edge.source}:{edge.line} imports {edge.target}"
        for edge in ours
        if edge.lazy and edge.source.split(".")[0] == "routelock" and not modules[edge.source].is_package
        if not _sanctioned(edge) and edge.target not in NEEDED_BY_FEW
    ]
    assert not hidden, "\n".join(hidden)


def test_the_core_knows_no_vendor(edges: list[Edge]) -> None:
    vendors = [
        f"{edge.source}:{edge.line} imports {edge.target}"
        for edge in edges
        if edge.source.split(".")[0] == "routelock" and edge.target.split(".")[0] in VENDORS
    ]
    assert not vendors, "\n".join(vendors)


def test_vendors_are_loaded_when_they_are_needed(edges: list[Edge]) -> None:
    eager = [
        f"{edge.source}:{edge.line} imports {edge.target} at the top"
        for edge in edges
        if (edge.target.split(".")[0] in VENDORS or edge.target in LATE)
        and not (edge.lazy or edge.for_types)
        and edge.source not in LATE
    ]
    assert not eager, "\n".join(eager)


_IMPORTS_A_FOLDER = re.compile(
    r"(?:^\s*(?:import|from)\b.*\b|import_module\(\s*['\"])(?:runtime|providers|skills)\b", re.MULTILINE
)


def test_nobody_imports_the_folders(repo: Any) -> None:
    """`import runtime.routelock` resolves from the root of the repository and gives a second copy."""
    folders = ("runtime", "providers", "skills")
    wrong = [
        f"{path.relative_to(repo)}:{getattr(node, 'lineno', 0)} imports {target}"
        for folder in (*folders, "tests", "examples", "benchmarks", "scripts")
        for path in (repo / folder).rglob("*.py")
        if _IMPORTS_A_FOLDER.search(text := path.read_text("utf-8"))  # to read them all would take long
        for node in ast.walk(ast.parse(text))
        for target in _targets(node, {})
        if target.split(".")[0] in folders
    ]
    assert not wrong, "\n".join(wrong)
