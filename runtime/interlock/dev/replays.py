"""A run as a pytest: a script plays the model, and says what it said then.

The code is made of data alone: whatever a model or a user wrote is in it as a literal.
"""

from __future__ import annotations

import builtins
import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pprint import pformat
from typing import Any, cast

from interlock import errors
from interlock.agents import Agent
from interlock.plain_json import decode
from interlock.trace_records import ErrorTraced
from interlock.traces import TracedCall, TracedRun

__all__ = ["replay_test"]

_WIDTH = 96


def replay_test(run: TracedRun, spec: str | None = None) -> str:
    """Return the code of a test that plays a run again.

    Tools run for real, and so do handlers that a transfer leads to. What a run's settings were is not in its
    trace, so the test has the defaults.

    Args:
        run: the run.
        spec: ``module:attribute`` of its agent; without one, a name to replace is imported.

    Raises:
        ValueError: the run has no end, or no beginning of its own.
    """
    if run.start.resumed:
        raise ValueError("This run went on from where another one stood, which a test of it would not have.")
    if run.end is None or (run.end.stop_reason == "unfinished" and run.end.error is None):
        raise ValueError("This run was stopped before it ended, so there is nothing that a test could check.")
    replies = [_indented(_reply(call), 12) + "," for call in _scripted(run)]
    body = [
        '"""A run of the dev page as a test: a script plays the model, and the tools run for real."""',
        "",
        *_imports(run, replies),
        "",
        *_agent(run.start.agent, spec),
        "",
        "",
        "def test_run() -> None:",
        "    model = ScriptedHandler(",
        "        [",
        *replies,
        "        ]",
        "    )",
        *_play(run),
        "",
    ]
    return "\n".join(body)


def _scripted(run: TracedRun) -> Sequence[TracedCall]:
    """Return the calls that a model answered. Another handler is called again, so it needs no script."""
    calls = [
        call
        for one in _with_nested(run)
        for call in one.calls
        if call.start.handler == _defaults(one).get(call.start.agent, call.start.handler)
    ]
    return sorted(calls, key=lambda call: call.start.time)


def _with_nested(run: TracedRun) -> Iterator[TracedRun]:
    yield run
    for inner in run.nested.values():
        yield from _with_nested(inner)


def _defaults(run: TracedRun) -> Mapping[str, str]:
    return {one.name: one.handlers[0] for one in run.start.agents if one.handlers}


def _imports(run: TracedRun, replies: Sequence[str]) -> Iterator[str]:
    text = "\n".join(replies)
    names = ["ScriptedHandler", *(name for name in ("call", "reply") if f"{name}(" in text)]
    kind = _error_class(run.end.error) if run.end is not None and run.end.error is not None else ""
    if kind:
        yield "import pytest"
        yield ""
    if "errors." in text or kind.startswith("errors."):
        yield "from interlock import RunConfig, Runner, errors"
    else:
        yield "from interlock import RunConfig, Runner"
    yield f"from interlock.testing import {', '.join(names)}"


# -- the agent --


def _agent(name: str, spec: str | None) -> Iterator[str]:
    if spec is None:
        yield "from app import agent as AGENT  # replace this with where the agent is"
        return
    module, _, path = spec.partition(":")
    yield f"import {module}"
    yield ""
    found = _found(module, path)
    if isinstance(found, Agent) and found.name == name:
        yield f"AGENT = {module}.{path}"
        return
    calls = "" if isinstance(found, Agent | list | tuple) else "()"
    yield f"FOUND = {module}.{path}{calls}"
    yield "AGENTS = FOUND if isinstance(FOUND, list | tuple) else [FOUND]"
    yield f"AGENT = next(each.graph[{name!r}] for each in AGENTS if {name!r} in each.graph)"


def _found(module: str, path: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError):
        return None
    return found


# -- the replies --


def _reply(call: TracedCall) -> str:
    if call.reply is None:
        error = call.end.error if call.end is not None else None
        return f"{_error_class(error)}({(error.message if error else 'cut off')!r})"
    message = {key: value for key, value in call.reply.items() if not key.startswith("_")}
    if not set(message) <= {"role", "content", "tool_calls"} or not isinstance(
        message.get("content"), str | None
    ):
        return pformat(message, width=_WIDTH, sort_dicts=False)
    calls = cast("list[dict[str, Any]]", message.get("tool_calls") or [])
    text = message.get("content")
    if not calls:
        return _literal(text or "")
    written = [_call(each) for each in calls]
    if text:
        return f"reply({_literal(text)}, calls=[{', '.join(written)}])"
    return f"[{', '.join(written)}]" if len(written) > 1 else written[0]


def _call(call: Mapping[str, Any]) -> str:
    function: Mapping[str, Any] = call.get("function") or {}
    arguments = str(function.get("arguments") or "{}")
    return f"call({function.get('name', '')!r}, {_arguments(arguments)}, id={call.get('id', '')!r})"


def _arguments(text: str) -> str:
    """Return arguments as an object, where that gives the same text again."""
    try:
        value = decode(text.encode())
    except ValueError:  # also of what Python has no literal for: NaN, or what is nested too deeply
        return repr(text)
    return repr(cast(object, value)) if isinstance(value, dict) and json.dumps(value) == text else repr(text)


def _literal(text: str) -> str:
    """Return a text as a literal; a long one in several pieces."""
    found = pformat(text, width=_WIDTH - 16)
    return found if found.startswith("(") or "\n" not in found else f"({found})"


def _indented(code: str, by: int) -> str:
    return "\n".join(" " * by + line for line in code.splitlines())


# -- the run --


def _play(run: TracedRun) -> Iterator[str]:
    assert run.end is not None
    given = [each.message for each in run.transcript[: run.start.input_count]]
    text = given[0].get("content") if len(given) == 1 and given[0].get("role") == "user" else None
    shown = _literal(text) if isinstance(text, str) else pformat(given, width=_WIDTH, sort_dicts=False)
    yield _indented(f"given = {shown}", 4)
    play = "Runner.run_sync(AGENT, given, run_config=RunConfig(model=model))"
    if run.end.error is not None:
        yield f"    with pytest.raises({_error_class(run.end.error)}):"
        yield f"        {play}"
        yield "    model.assert_complete()"
        return
    yield f"    result = {play}"
    yield "    model.assert_complete()"
    yield f"    assert result.stop_reason == {run.end.stop_reason!r}"
    yield f"    assert result.last_agent.name == {run.end.last_agent!r}"
    made = [(each.source, each.target) for each in run.handoffs if each.status.lower() in _TAKEN]
    yield f"    assert [(each.source, each.target) for each in result.handoffs if each.taken] == {made!r}"
    if isinstance(run.end.output, str):
        yield _indented(f"assert result.final_output == {_literal(run.end.output)}", 4)


_TAKEN = ("accepted", "completed")


def _error_class(error: ErrorTraced | None) -> str:
    """Return how a test names the class of an error; one that it cannot name is any."""
    name = error.type if error is not None else ""
    found: object = getattr(errors, name, None)
    if isinstance(found, type) and issubclass(found, Exception):
        return f"errors.{name}"
    known: object = getattr(builtins, name, None)
    return name if isinstance(known, type) and issubclass(known, Exception) else "Exception"
