"""Finds what is wrong with the settings of a run; one error lists all of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from os import PathLike
from types import UnionType
from typing import Any, TypeGuard, cast, get_args

from routelock.agents.agent import Agent
from routelock.agents.agent_problems import guardrail_problems
from routelock.handlers.model_settings import settings_problems
from routelock.handlers.port import ToolSpec, tool_name
from routelock.handlers.retry import Retry
from routelock.handoff_request import is_seconds
from routelock.handoffs.capabilities import Capacity
from routelock.history.compaction import Compact
from routelock.run.limits import Limits, Mistake
from routelock.tools.search import ToolSearch
from routelock.tools.tool import Tool

__all__ = ["listed", "problems_of_config"]


def _is_list(given: object) -> TypeGuard[Collection[Any]]:
    return isinstance(given, Collection) and not isinstance(given, (str, Mapping))


def _is_function(given: object) -> bool:
    return given is None or callable(given)


def _is(kind: type | UnionType) -> Callable[[object], bool]:
    """Return a check of the type."""
    return lambda given: isinstance(given, kind)


def _is_time(given: object) -> bool:
    return given is None or is_seconds(given)


def _from(least: int, given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= least


def _has(given: object, *methods: str) -> bool:
    """Whether a value is None, or an instance (not a class) with these methods."""
    is_object = given is not None and not isinstance(given, type)
    return given is None or (is_object and all(callable(getattr(given, name, None)) for name in methods))


def _is_tool(each: object) -> bool:
    return isinstance(each, Tool | Mapping) and bool(tool_name(cast(object, each)))


def _is_trace(each: object) -> bool:
    return isinstance(each, str | PathLike) or callable(getattr(each, "begin", None))


def listed(trace: Any) -> Sequence[Any]:
    """Return the traces of a setting that may be one trace, several, or None."""
    if isinstance(trace, list | tuple):
        return cast("Sequence[Any]", trace)
    return () if trace is None else (trace,)


_SWITCH = "True or False"

_RULES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("handler", _is(str | None), "the name of a handler"),
    ("fallback", _is(bool), f"{_SWITCH}; the next handler by priority takes over"),
    ("scopes", _is_list, "a list of names, such as ('owner',)"),
    ("user_id", _is(str | None), "text"),
    ("conversation_id", _is(str | None), "text"),
    (
        "agents",
        lambda given: _is_list(given) and all(isinstance(each, Agent) for each in given),
        "a list of agents",
    ),
    ("handoff_input_filter", _is_function, "a function"),
    ("nest_handoff_history", _is(bool), _SWITCH),
    ("handoff_history_mapper", _is_function, "a function"),
    ("nest_keep_last_user", _is(bool), _SWITCH),
    (
        "history_wrappers",
        lambda given: given is None or (_is_list(given) and [type(each) for each in given] == [str, str]),
        "two texts",
    ),
    ("handoff_prompt", _is(bool), _SWITCH),
    ("multiple_handoffs", lambda given: given in ("first", "reject"), "'first' or 'reject'"),
    ("foreign_calls", lambda given: given in ("told", "shown"), "'told' or 'shown'"),
    ("compact", _is(Compact | None), "a Compact, such as Compact(at_tokens=100_000)"),
    ("timeout", _is_time, "more than 0 seconds, or None for no limit"),
    ("turn_timeout", _is_time, "more than 0 seconds, or None for no limit"),
    ("raise_on", _is_list, "a list of mistakes, such as ['unknown_tool']"),
    ("max_mistakes", lambda given: _from(1, given), "at least 1"),
    ("limits", _is(Limits | None), "Limits, such as Limits(turns=20)"),
    ("tools_at_once", lambda given: given is None or _from(1, given), "at least 1, or None for all"),
    ("max_handoffs", lambda given: given is None or _from(0, given), "at least 0, or None for no limit"),
    ("detect_loops", _is(bool), _SWITCH),
    (
        "warn_handoffs_over",
        lambda given: given is None or _from(0, given),
        "at least 0, or None for no warning",
    ),
    ("next_agent", lambda given: given in ("reset", "sticky"), "'reset' or 'sticky'"),
    (
        "on_limit",
        lambda given: given in ("raise", "return") or callable(given),
        "'raise', 'return' or a function",
    ),
    ("on_invalid_output", lambda given: given == "raise" or callable(given), "'raise' or a function"),
    ("on_refusal", lambda given: given == "raise" or callable(given), "'raise' or a function"),
    ("available", _is_function, "a function"),
    ("capacity", _is(Capacity | None), "a Capacity, such as Capacity({'writer': 2})"),
    ("handoff_types", lambda given: _has(given, "check"), "HandoffTypes"),
    ("strict_payloads", _is(bool), _SWITCH),
    ("clock", callable, "a function that returns seconds"),
    (
        "external_tools",
        lambda given: _is_list(given) and all(map(_is_tool, given)),
        "a list of Tools, or of dicts such as {'type': 'function', 'function': {'name': ...}}",
    ),
    ("tool_search", _is(ToolSearch | None), "a ToolSearch, such as ToolSearch(defer_over=20)"),
    ("shared_memory", _is(Mapping), "a dict"),
    ("input_guardrails", _is_list, "a list of functions"),
    ("output_guardrails", _is_list, "a list of functions"),
    ("guardrails_beside", _is(bool), _SWITCH),
    ("retry", _is(Retry), "a Retry, such as Retry(attempts=3)"),
    (
        "trace",
        lambda given: all(_is_trace(each) for each in listed(given)),
        "the path of a file, or have begin(start, parent)",
    ),
    ("executor", lambda given: _has(given, "stream", "gather"), "an object with stream and gather"),
    ("run_id", _is(str | None), "text, such as the number of an order"),
)
"""The settings that are checked one by one: the name, the check, and a description of valid values. Another
value would fail in the middle of a run, far from its cause."""


def problems_of_config(config: Any) -> list[str]:
    """Return what is wrong with settings; empty if nothing is."""
    wrong = [
        f"{name} must be {what}, not {value!r:.80}"
        for name, is_right, what in _RULES
        if not is_right(value := getattr(config, name))
    ]
    known = get_args(Mistake)
    if _is_list(config.raise_on) and (unknown := sorted(str(each) for each in {*config.raise_on} - {*known})):
        wrong.append(f"raise_on does not know {', '.join(unknown)}; it knows {', '.join(known)}")
    if isinstance(config.limits, Limits):
        wrong += config.limits.problems()
    wrong += guardrail_problems(config)
    if _is_list(config.external_tools):
        wrong += _unused_options(config.external_tools)
    return wrong + settings_problems(config.model_settings)


def _unused_options(external: Collection[Tool | ToolSpec]) -> list[str]:
    """Name the options of the caller's tools that would protect a call, and that no run can carry out."""
    unused = [
        (tool.name, option)
        for tool in external
        if isinstance(tool, Tool)
        for option, is_set in (
            ("is_enabled", tool.is_enabled is not True),
            ("needs_approval", tool.needs_approval is not False),
            ("input_guardrails", bool(tool.input_guardrails)),
            ("output_guardrails", bool(tool.output_guardrails)),
        )
        if is_set
    ]
    return [
        f"external_tools: {option} of tool {name!r} would be ignored, because the caller runs it: check the "
        "call there"
        for name, option in unused
    ]
