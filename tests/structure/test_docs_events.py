"""docs/events.md has every event, every hook and every option that takes a function, and nothing else."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from paths import REPO

from routelock import Agent, AgentHooks, Handoff, Retry, RunConfig, RunHooks, RunResult
from routelock.handoffs.payload_types import HandoffTypes
from routelock.run import events
from routelock.run.events import NestedEvent, RunEvent
from routelock.serving import ServeConfig
from routelock.sessions import Session
from routelock.tools.search import ToolSearch
from routelock.tools.tool import Tool
from routelock.tracing.recorder import Trace

PAGE = (REPO / "docs" / "events.md").read_text("utf-8")
EVENTS: tuple[type[Any], ...] = get_args(RunEvent)
OWNERS: dict[str, Any] = {
    "Agent": Agent,
    "Agent.as_tool": Agent.as_tool,
    "Handoff": Handoff,
    "Retry": Retry,
    "RunConfig": RunConfig,
    "ServeConfig": ServeConfig,
    "Tool": Tool,
    "ToolSearch": ToolSearch,
}


def _rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    (text,) = [each for each in section if each.startswith(f"{heading}\n")]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def _code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def _fields(event: type[Any]) -> list[str]:
    """The fields of an event and then its properties, as the page spells them."""
    there = [(each.name, str(each.type)) for each in dataclasses.fields(event)]
    properties = [(name, each) for name, each in vars(event).items() if isinstance(each, property)]
    there += [
        (name, str(inspect.signature(each.fget).return_annotation)) for name, each in properties if each.fget
    ]
    kinds = [(name, re.sub(r"Annotated\[(\w+), [^\]]*\]", r"\1", kind)) for name, kind in there]
    return [f"{name}: {kind.replace(' | ', ' or ')}" for name, kind in kinds]


def test_every_event_is_there_with_all_of_its_fields_and_their_types() -> None:
    told = {_code(row[0])[0]: _code(row[-1]) for row in _rows("Events")}
    assert told == {event.__name__: _fields(event) for event in EVENTS}


def test_every_event_that_there_is_may_be_shown() -> None:
    """A new one that nobody can match on would be missing from the page as well."""
    made = {name for name in events.__all__ if isinstance(getattr(events, name), type)}
    assert made - {event.__name__ for event in EVENTS} == set()


def test_the_type_of_each_event_is_as_the_page_says() -> None:
    odd = {
        event.__name__: event.type
        for event in EVENTS
        if event.type != re.sub(r"(?<=[a-z])(?=[A-Z])", "_", event.__name__).lower()
    }
    assert odd == {"NestedEvent": "nested"}


@pytest.mark.parametrize(("column", "hooks"), [(0, RunHooks), (1, AgentHooks)])
def test_every_hook_is_there_with_its_parameters(column: int, hooks: type[Any]) -> None:
    methods = {name: each for name, each in vars(hooks).items() if inspect.isfunction(each)}
    there = [
        f"{name}({', '.join([*inspect.signature(each).parameters][1:])})" for name, each in methods.items()
    ]
    assert [_code(row[column])[0] for row in _rows("Hooks")] == there


def _calls(hint: Any) -> list[Any]:
    """What the functions are called with that a value of this type may be or hold."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Callable:
        return [inner[0]]
    nested = origin in (Union, UnionType, Sequence)
    return [each for part in inner for each in _calls(part)] if nested else []


def _options(owner: Any) -> dict[str, list[Any]]:
    """Each option that takes a function, and what that is called with."""
    named = (Agent, HandoffTypes, NestedEvent, RunConfig, RunResult, Session, Trace)
    hints = get_type_hints(owner, localns={each.__name__: each for each in named})
    fields = (
        [each.name for each in dataclasses.fields(owner) if each.init] if isinstance(owner, type) else hints
    )
    called = {name: _calls(hints[name]) for name in fields if name != "return"}
    return {name: calls for name, calls in called.items() if calls}


def test_every_option_that_takes_a_function_is_there() -> None:
    rows = _rows("What functions are given")
    told = sorted((owner, option) for row in rows for owner in _code(row[0]) for option in _code(row[1]))
    assert told == sorted((name, option) for name, owner in OWNERS.items() for option in _options(owner))


def test_the_functions_are_called_with_as_much_as_the_page_says() -> None:
    wrong: list[str] = []
    for owners, options, given, _ in _rows("What functions are given"):
        (said,) = re.findall(r"^`\((.*?)\)`", given) or [None]
        for owner, option in [(owner, option) for owner in _code(owners) for option in _code(options)]:
            ways = _options(OWNERS[owner])[option]
            count = None if said is None else len([*filter(None, said.split(", "))])
            if not any(called is ... or len(called) == count for called in ways):
                wrong.append(f"{owner}.{option}: {given}")
    assert wrong == []
