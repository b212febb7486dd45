"""Imports go downward only, so the core can be read from the bottom to the top, once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

import pytest

LAYERS = """
    fresh model_settings records
    glimpse metrics output_modes parts showing time_limits
    errors names pieces plain_json strict usage
    limits request_wire
    callables handoff_request messages redaction schema scopes
    capabilities concurrency context
    payloads
    handoff_types
    approvals keeping
    arguments binary context_shape outcomes trimming
    result_budget
    events filters guardrails narrative handoff_context repair signatures
    assembly calls executor history port replies sqlite_file
    step_entries
    journal_steps
    handler_functions handler_replies trace_records
    attempts fence hooks tools trace_content trace_port traces otel_words
    otel trace_files
    agent_tools function_tools mcp.schemas mcp.places mcp.results
    mcp.library mcp.listing
    mcp.connection
    mcp.client
    mcp
    handlers
    registry
    skills
    declarations
    agents
    edges outline
    drawing mermaid
    config routing progress run_document unfinished
    approval_documents document_checks run_state_text
    run_state
    results
    handoff_documents models notebook sharing
    hops trace_notes trace_views
    books callers graph handoff_store
    matrix model_calls
    run
    capturing
    resuming
    logs
    tracing
    starting
    nested prompts tell
    asking tool_runs
    acceptance
    transfers
    caller_stack waiting
    transfer
    answers
    judging conclusion endings
    loop
    sessions.foreign sessions.stores sessions.threads sessions.window
    sessions.entries
    sessions.encrypted sessions.log sessions.postgres sessions.redis sessions.sqlite
    sessions.keeper
    sessions.session
    sessions
    run_stream
    journal runner
    durable.library durable.settings
    durable.connection durable.documents durable.reaper durable.showcase
    durable.client durable.steps
    durable.carrier
    durable.worker
    durable
    routelock
    testing.fence testing.network testing.placeholders testing.profiles testing.scripted testing.scrub
    testing.matching testing.validity
    testing.cassette
    testing testing.pytest_plugin
    serving.a2a_contexts serving.a2a_tasks serving.chunks serving.config serving.pending serving.refusals
    serving.a2a_bodies serving.a2a_telling serving.catalog serving.guards serving.requests serving.wire
    serving.endpoints serving.jobs
    serving.a2a_runs
    serving.a2a
    serving.service
    serving.app
    serving
    dev.door dev.pages dev.replays dev.talks dev.traced
    dev.desk
    dev.app
    dev.serving
    dev
    routelock_providers.*
    routelock_skills.*
    commands commands.blocks commands.command commands.exit_codes commands.keyboard commands.keys
    commands.waiting commands.words
    commands.loading commands.notes
    commands.options commands.plain_screen commands.rich_screen
    commands.chat commands.dev commands.doctor commands.graph commands.run commands.serve
    commands.trace
    commands.cassettes
    cli
    __main__
"""
"""The order, lowest first: a module imports only from lines above its own. Names are those inside
`routelock`; what begins with ``routelock`` is meant as it stands, and within ``package.*`` the modules
may import one another, without a cycle."""

LAZY_AND_UPWARD = {
    # a context can read the payload that rides along, and stands below all that knows payloads
    ("routelock.context", "routelock.payloads"),
    # the defaults of a run's settings, for a table that is made without any
    ("routelock.matrix", "routelock.config"),
    # a model given as a string is answered by the bundled provider, which costs two seconds to import
    ("routelock.models", "routelock_providers.litellm"),
    # what a notebook shows is drawn in a notebook only, and what draws would make every import slower
    ("routelock.agents", "routelock.drawing"),
    ("routelock.results", "routelock.notebook"),
}

NEEDED_BY_FEW = {
    # what is loaded by the first run that needs it, so that importing routelock stays quick: the most of that
    # is making dataclasses
    "routelock.capturing",
    "routelock.handoff_types",
    "routelock.request_wire",
    "routelock.resuming",
    "routelock.run_state",
    "routelock.tracing",
}

VENDORS = {"aiohttp", "litellm", "openai"}

LATE = {
    # modules that are about one library and nothing else, and that nobody loads before it is needed
    "routelock_providers.aiohttp_transport",
    "routelock_providers.http_client",
    "routelock_providers.openai",
    "routelock_providers.pools",
    "routelock_providers.tapped",
}


@dataclass(frozen=True)
class Edge:
    source: str
    target: str
    line: int
    lazy: bool
    for_types: bool
    """Whether it stands below ``if TYPE_CHECKING``, so that it never happens."""


_LINES = [line.split() for line in LAYERS.strip().splitlines()]
HEIGHTS = {
    name if name.startswith("routelock") else f"routelock.{name}": height
    for height, names in enumerate(_LINES)
    for name in names
}


def _height(name: str) -> int | None:
    return HEIGHTS.get(name, HEIGHTS.get(f"{name.split('.')[0]}.*"))


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
        inside = {
            id(node)
            for function in ast.walk(module.tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for node in ast.walk(function)
        }
        typing = {
            id(node)
            for condition in ast.walk(module.tree)
            if isinstance(condition, ast.If) and ast.unparse(condition.test) == "TYPE_CHECKING"
            for node in ast.walk(condition)
        }
        for node in ast.walk(module.tree):
            for target in _targets(node, modules):
                line = getattr(node, "lineno", 0)
                yield Edge(module.name, target, line, id(node) in inside, id(node) in typing)


@pytest.fixture(scope="module")
def edges(modules: dict[str, Any]) -> list[Edge]:
    return list(_edges(modules))


@pytest.fixture(scope="module")
def ours(edges: list[Edge], modules: dict[str, Any]) -> list[Edge]:
    return [
        edge for edge in edges if edge.target in modules and edge.source != edge.target and not edge.for_types
    ]


def _sanctioned(edge: Edge) -> bool:
    return edge.lazy and any(
        (edge.source, edge.target) == (source, target) for source, target in LAZY_AND_UPWARD
    )


def test_every_module_has_its_place(modules: dict[str, Any]) -> None:
    unlisted = [name for name in modules if _height(name) is None]
    assert not unlisted, f"add these to LAYERS, each on a line below all that it imports: {unlisted}"


def test_the_list_names_only_modules_that_exist(modules: dict[str, Any]) -> None:
    gone = [name for name in HEIGHTS if name not in modules and not name.endswith(".*")]
    assert not gone, f"take these out of LAYERS: {gone}"


def _is_upward(edge: Edge) -> bool:
    source, target = _height(edge.source), _height(edge.target)
    if source is None or target is None:
        return False  # the test above tells
    return target > source or (target == source and edge.source in HEIGHTS)


def test_imports_go_downward(ours: list[Edge]) -> None:
    """Imports for types alone never happen, and do not count."""
    upward = [
        f"{edge.source}:{edge.line} imports {edge.target}"
        for edge in ours
        if _is_upward(edge) and not _sanctioned(edge)
    ]
    assert not upward, "\n".join(upward)


def test_no_cycles(ours: list[Edge]) -> None:
    graph: dict[str, set[str]] = {}
    for edge in ours:
        if not _sanctioned(edge):
            graph.setdefault(edge.source, set()).add(edge.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])), pytrace=False)


def test_no_import_hides_in_a_function(ours: list[Edge]) -> None:
    """A function-local import of our own would only hide a cycle, unless few runs need it."""
    hidden = [
        f"{edge.source}:{edge.line} imports {edge.target}"
        for edge in ours
        if edge.lazy and edge.source.split(".")[0] == "routelock"
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
