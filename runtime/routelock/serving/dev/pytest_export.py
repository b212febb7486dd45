"""Writes a traced run as a pytest test, in which a script gives the recorded model replies.

Texts of models and users are literals in the code, and never code themselves.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pprint import pformat
from typing import Any, cast

from routelock import errors
from routelock._json_document import decode
from routelock.agents.agent import Agent
from routelock.run.config import RunConfig
from routelock.run.start import DEFAULT_MAX_TURNS
from routelock.tools.approvals import rejection_reason
from routelock.tracing.reader import TracedCall, TracedRun
from routelock.tracing.records import ErrorTraced

__all__ = ["Source", "replay_test"]


_WIDTH = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The places where agents, context and settings are defined, each as ``module:attribute``.

    A test imports them. If one of them is not known, the test has a comment that says what to replace.
    """

    agent: str | None = None
    context: str | None = None
    config: str | None = None
    has_context: bool = False
    """Whether runs have a context."""
    run_config: RunConfig = field(default_factory=RunConfig)
    """The settings of the runs."""

    @property
    def has_config(self) -> bool:
        """Whether runs have settings that a test has to import."""
        made = replace(self.run_config, model=None, agents=(), trace=None, run_id=None)
        return self.config is not None or made != RunConfig()


def replay_test(run: TracedRun, source: Source | None = None, resumed: Sequence[TracedRun] = ()) -> str:
    """Return the code of a test that repeats a run.

    Tools are called, and so are handlers that are the target of a handoff. The test has the context and the
    settings of the page, but writes no trace.

    Args:
        run: the run.
        source: where the parts of the run are defined.
        resumed: the run after each time that calls waited for approval; the test decides as the user did.

    Raises:
        ValueError: the run has no end, or its beginning or a decision is missing.
    """
    parts, source = [run, *resumed], source or Source()
    if run.start.resumed:
        raise ValueError("This run was resumed, and the trace does not have its beginning.")
    last = parts[-1].end
    if last is None or (last.stop_reason in ("unfinished", "stopped") and last.error is None):
        raise ValueError("This run was stopped before it ended, so a test could check nothing.")
    replies = [_indented(_reply(call), 12) + "," for call in _scripted(parts)]
    imported, made = _app(run.start.agent, source)
    several = "AGENTS = " in "".join(made)
    return "\n".join(
        [
            '"""A run of the dev page as a test: a script gives the replies, and the tools are called."""',
            "",
            *_imports(parts, source, replies),
            "",
            *imported,
            *made,
            "",
            "",
            "def test_run() -> None:",
            "    model = ScriptedHandler(",
            "        [",
            *replies,
            "        ]",
            "    )",
            *_given(run),
            *_decided(parts, source, several=several),
            *_play(parts, _call_of(parts, source, "state" if resumed else "given", several=several)),
            "",
        ]
    )


def _scripted(parts: Sequence[TracedRun]) -> Sequence[TracedCall]:
    """Return the calls of default handlers. Other handlers are called again, so they need no script."""
    calls = [
        call
        for part in parts
        for one in _with_nested(part)
        for call in one.calls
        if call.start.handler == _defaults(one).get(call.start.agent, call.start.handler)
    ]
    return sorted(calls, key=lambda call: call.start.time)


def _error_of(call: TracedCall) -> ErrorTraced | None:
    return None if call.end is None else call.end.error


def _has_failed(call: TracedCall) -> bool:
    """Whether the handler failed. A handler that a parallel guardrail stopped has not."""
    error = _error_of(call)
    known: object = getattr(errors, error.type, None) if error is not None else None
    stopped = isinstance(known, type) and issubclass(known, errors.GuardrailTripped)
    return call.reply is None and not stopped


def _with_nested(run: TracedRun) -> Iterator[TracedRun]:
    yield run
    for inner in run.nested.values():
        yield from _with_nested(inner)


def _defaults(run: TracedRun) -> Mapping[str, str]:
    return {one.name: one.handlers[0] for one in run.start.agents if one.handlers}


def _imports(parts: Sequence[TracedRun], source: Source, replies: Sequence[str]) -> Iterator[str]:
    end = parts[-1].end
    assert end is not None
    failed = [_error_of(call) for call in _scripted(parts) if _has_failed(call)]
    raised = [_error_class(each) for each in [*failed, end.error]]
    if _is_async(source):
        yield "import asyncio"
    if source.has_config:
        yield "from dataclasses import replace"
    if _is_async(source) or source.has_config:
        yield ""
    if end.error is not None:
        yield "import pytest"
        yield ""
    ours = ["Retry"] if failed else []
    ours += ["Runner"] if source.has_config else ["RunConfig", "Runner"]
    ours += ["errors"] if any(each.startswith("errors.") for each in raised) else []
    yield f"from routelock import {', '.join(ours)}"
    text = "\n".join(replies)
    names = ["ScriptedHandler", *(name for name in ("call", "reply") if f"{name}(" in text)]
    yield f"from routelock.testing import {', '.join(names)}"


# -- imports from the app, under names that do not collide with the test's own --


def _app(agent: str, source: Source) -> tuple[Sequence[str], Sequence[str]]:
    """Return the lines that import the app's parts, and the lines that define AGENT and CONFIG."""
    found = _found(source.agent)
    alone = source.agent is None or (isinstance(found, Agent) and found.name == agent)
    parts = [_part(source.agent, "AGENT" if alone else "FOUND", "agent")]
    if source.has_config:
        parts.append(_part(source.config, "CONFIG", "config"))
    imported = [line for _, line, _ in parts]
    made = [f"{name} = {value}" for name, _, value in parts if value != name]
    if source.has_context:
        imported.append(_part(source.context, "CONTEXT", "context")[1])
    if not alone:
        more = ", *CONFIG.agents" if source.has_config else ""
        made += [
            f"AGENTS = [*(FOUND if isinstance(FOUND, list | tuple) else [FOUND]){more}]",
            f"AGENT = next(each.graph[{agent!r}] for each in AGENTS if {agent!r} in each.graph)",
        ]
    return imported, ["", *made] if made else made


def _part(spec: str | None, name: str, what: str) -> tuple[str, str, str]:
    """Return a name, the line that imports a part of the app as this name, and the expression of the part."""
    if spec is None:
        return name, f"from app import {what} as {name}  # replace this with where the {what} is", name
    module, _, path = spec.partition(":")
    first, _, rest = path.partition(".")
    found = _found(spec)
    value = f"{name}.{rest}" if rest else name
    if callable(found) and not isinstance(found, Agent):
        value += "()"
    return name, f"from {module} import {first} as {name}", value


def _found(spec: str | None) -> Any:
    module, _, path = (spec or "").partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError):
        return None
    return found


def _is_async(source: Source) -> bool:
    """Whether the function that makes the context is async."""
    return source.has_context and inspect.iscoroutinefunction(_found(source.context))


# -- the replies --


def _reply(call: TracedCall) -> str:
    if call.reply is None:
        error = _error_of(call)
        if not _has_failed(call):
            return repr("")
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
    """Return arguments as an object, if that has the same JSON text."""
    try:
        value = decode(text.encode())
    except ValueError:  # also for values without a literal in Python: NaN, or nested too deeply
        return repr(text)
    return repr(cast(object, value)) if isinstance(value, dict) and json.dumps(value) == text else repr(text)


def _literal(text: str) -> str:
    """Return a text as a literal, in several lines if it is long."""
    found = pformat(text, width=_WIDTH - 16)
    return found if found.startswith("(") or "\n" not in found else f"({found})"


def _indented(code: str, by: int) -> str:
    return "\n".join(" " * by + line for line in code.splitlines())


# -- the run --


def _call_of(parts: Sequence[TracedRun], source: Source, begins_with: str, *, several: bool) -> str:
    """Return the call that repeats the run, or a part of it.

    Args:
        parts: the run, and the run after each time that it was resumed.
        source: where its parts are defined.
        begins_with: the name of the input, or of the state.
        several: whether the test has a list of agents, which handoffs may name.
    """
    run, given = parts[0], ["AGENT", begins_with]
    if source.has_context:
        made = _part(source.context, "CONTEXT", "context")[2]
        given.append(f"context=asyncio.run({made})" if _is_async(source) else f"context={made}")
    if run.start.max_turns != DEFAULT_MAX_TURNS:
        given.append(f"max_turns={run.start.max_turns}")
    settings = ", ".join(_settings(parts, source, several=several))
    config = f"replace(CONFIG, {settings})" if source.has_config else f"RunConfig({settings})"
    given.append(f"run_config={config}")
    line = f"Runner.run_sync({', '.join(given)})"
    if len(line) <= _WIDTH - 20:
        return line
    return "\n".join(["Runner.run_sync(", *(f"    {each}," for each in given), ")"])


def _settings(parts: Sequence[TracedRun], source: Source, *, several: bool) -> Iterator[str]:
    """Return the settings that the test changes: those for the script, and those with effects outside."""
    config = source.run_config
    yield "model=model"
    if several:
        yield "agents=AGENTS"
    if any(_has_failed(call) for call in _scripted(parts)):
        yield "retry=Retry(attempts=1)"  # the trace has the last attempt only
    if config.handler is not None and config.handler == _defaults(parts[0]).get(parts[0].start.agent):
        yield "handler=None"  # the script takes its place
    if source.has_config:
        yield from (f"{name}=None" for name in ("trace", "run_id") if getattr(config, name) is not None)


def _given(run: TracedRun) -> Iterator[str]:
    given = [each.message for each in run.transcript[: run.start.input_count]]
    text = given[0].get("content") if len(given) == 1 and given[0].get("role") == "user" else None
    shown = _literal(text) if isinstance(text, str) else pformat(given, width=_WIDTH, sort_dicts=False)
    yield _indented(f"given = {shown}", 4)


def _decided(parts: Sequence[TracedRun], source: Source, *, several: bool) -> Iterator[str]:
    """Yield the lines of each part that ended with calls that waited, and of the decisions on them."""
    for place, (part, following) in enumerate(pairwise(parts)):
        call = _call_of(parts, source, "state" if place else "given", several=several)
        yield _indented(f"result = {call}", 4)
        assert part.end is not None  # otherwise the run was not resumed
        reasons = [_rejection(one, following) for one in part.end.interruptions]
        yield _indented(f"reasons = {pformat(reasons, width=_WIDTH - 10)}  # None approves the call", 4)
        yield "    state = result.state()"
        yield "    for one, reason in zip(result.interruptions, reasons, strict=True):"
        yield "        approved = reason is None"
        yield "        state = state.approve(one) if approved else state.reject(one, message=reason)"


def _rejection(one: Mapping[str, Any], run: TracedRun) -> str | None:
    """Return the reason for which a call was rejected when a run was resumed, or None if it was approved.

    Args:
        one: the call as the trace has it, an `Interruption` as a dict.
        run: the run after it was resumed.

    Raises:
        ValueError: the call was neither made nor rejected, or was answered with fields.
    """
    call_id, inner = one.get("call_id"), run
    for outer_call in one.get("path") or ():  # within agents as tools, where ids may be the same as outside
        inner = inner.nested.get(str(outer_call), inner)
    if any(tool.call_id == call_id and tool.start is not None for tool in inner.tools):
        asked = cast("Mapping[str, Any]", one.get("question") or {})
        if cast("Mapping[str, Any]", asked.get("schema") or {}).get("properties"):
            raise ValueError(
                f"{one.get('name')!r:.80} asked for fields, and a trace does not have the answer: write the "
                "test yourself, with state.approve(one, answer={...})."
            )
        return None
    for item in inner.items.values():
        if item.message.get("role") == "tool" and item.message.get("tool_call_id") == call_id:
            return rejection_reason(str(item.message.get("content") or ""))
    raise ValueError(f"The trace does not say whether the call {call_id!r:.80} was approved.")


def _play(parts: Sequence[TracedRun], play: str) -> Iterator[str]:
    end = parts[-1].end
    assert end is not None
    if end.error is not None:
        yield f"    with pytest.raises({_error_class(end.error)}):"
        yield _indented(play, 8)
        yield "    model.assert_complete()"
        return
    yield _indented(f"result = {play}", 4)
    yield "    model.assert_complete()"
    yield f"    assert result.stop_reason == {end.stop_reason!r}"
    yield f"    assert result.last_agent.name == {end.last_agent!r}"
    handoffs = {each.id: each for part in parts for each in part.handoffs}.values()
    made = [(each.source, each.target) for each in handoffs if each.status.lower() in _TAKEN]
    yield f"    assert [(each.source, each.target) for each in result.handoffs if each.taken] == {made!r}"
    if isinstance(end.output, str):
        yield _indented(f"assert result.final_output == {_literal(end.output)}", 4)


_TAKEN = ("accepted", "completed")


def _error_class(error: ErrorTraced | None) -> str:
    """Return the class of an error as a test names it; ``Exception`` if it has no such name."""
    name = error.type if error is not None else ""
    found: object = getattr(errors, name, None)
    if isinstance(found, type) and issubclass(found, Exception):
        return f"errors.{name}"
    known: object = getattr(builtins, name, None)
    return name if isinstance(known, type) and issubclass(known, Exception) else "Exception"
