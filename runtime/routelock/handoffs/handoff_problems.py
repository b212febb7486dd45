"""Finds what is wrong with the declaration of a handoff; one error lists all of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from routelock._callables import name_of, takes
from routelock.errors import ConfigError
from routelock.handoff_request import is_seconds
from routelock.handoffs.payload import HandoffPayload

if TYPE_CHECKING:
    pass

__all__ = ["is_list", "problems_of_handoff", "target_name"]


def target_name(target: object) -> str:
    """Return the name of a handoff's target.

    Raises:
        ConfigError: the object is not an agent, a handler or a name.
    """
    name = target if isinstance(target, str) else getattr(target, "name", None)
    if not isinstance(name, str) or not name:
        hint = "; wrap a function with routelock.function_handler(...)" if callable(target) else ""
        raise ConfigError(
            "The target of a handoff must be an Agent, a Handler or the name of an agent, not "
            f"{target!r:.80}{hint}."
        )
    is_agent_or_name = isinstance(target, str) or hasattr(target, "handoff_description")
    if not is_agent_or_name and not callable(getattr(target, "stream", None)):
        raise ConfigError(
            "The target of a handoff must be an Agent, a Handler or the name of an agent; "
            f"{target!r:.80} has no stream method."
        )
    return name


def is_list(value: object) -> bool:
    """Whether a value counts as a list in a declaration: any iterable but text and mappings."""
    return isinstance(value, Iterable) and not isinstance(value, str | Mapping)


def _is_names(value: Any) -> bool:
    return hasattr(value, "__len__") and is_list(value) and all(isinstance(name, str) for name in value)


_FIELDS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("input_filter", lambda given: given is None or callable(given), "a function"),
    ("is_enabled", lambda given: isinstance(given, bool) or callable(given), "a bool or a function"),
    ("needs_approval", lambda given: isinstance(given, bool) or callable(given), "a bool or a function"),
    ("on_invoke_handoff", lambda given: given is None or callable(given), "a function"),
    ("run_timeout", lambda given: given is None or is_seconds(given), "seconds or None"),
    ("timeout", lambda given: given is None or is_seconds(given), "seconds or None"),
    ("capabilities_required", is_list, "a list of names"),
    ("priority", lambda given: isinstance(given, int) and not isinstance(given, bool), "a whole number"),
    ("metadata", lambda given: isinstance(given, Mapping), "a dict"),
    ("share", lambda given: given is None or _is_names(given), "a list of names"),
    ("others", is_list, "a list"),
)
"""Fields of a `Handoff` that are checked one by one: the name, the check, and a description of valid
values."""


def problems_of_handoff(declared: Any) -> Iterator[str]:
    """Yield everything that is wrong with a handoff. Its type is `Any`: fields may hold anything."""
    for name, is_right, kind in _FIELDS:
        if not is_right(value := getattr(declared, name)):
            yield f"{name} must be {kind}, not {value!r:.80}"
    if declared.input_filter is not None and not declared.preserve_context:
        yield "use either input_filter or preserve_context=False, not both"
    if declared.input_type is not None and declared.ask_reason:
        yield "put a reason field into input_type instead of ask_reason=True"
    if declared.target is None and declared.others:
        yield "the first of several targets must be an agent or a handler"
    if re.fullmatch("[a-zA-Z0-9_-]{1,64}", declared.tool_name) is None:
        yield (
            f"providers take a tool name of 1 to 64 of a-z, A-Z, 0-9, _ and -, not {declared.tool_name!r:.80}"
        )
    if is_list(declared.others):
        yield from _problems_of_others(declared)
    if declared.on_handoff is not None:
        yield from _problems_of_on_handoff(declared)
    if callable(declared.payload):
        if not takes(declared.payload, 2):
            yield f"payload {name_of(declared.payload)!r} must take the context and the input"
    elif not isinstance(declared.payload, HandoffPayload | Mapping | None):
        kind = type(declared.payload).__name__
        yield f"payload must be a HandoffPayload, a dict or a function, not {kind}"


def _problems_of_others(declared: Any) -> Iterator[str]:
    names = [declared.agent_name]
    for each in declared.others:
        try:
            names.append(target_name(each))
        except ConfigError as error:
            yield str(error).removesuffix(".")
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{name!r} is in the list twice"


def _problems_of_on_handoff(declared: Any) -> Iterator[str]:
    called = f"on_handoff {name_of(declared.on_handoff)!r}"
    if not callable(declared.on_handoff):
        yield f"on_handoff must be a function, not {declared.on_handoff!r:.80}"
    elif declared.input_type is not None:
        if not takes(declared.on_handoff, 2):
            yield f"{called} must take the context and the input"
    elif not declared.on_handoff_takes_input and not takes(declared.on_handoff, 1):
        yield f"{called} must take one argument: the context"
