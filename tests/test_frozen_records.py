"""The frozen dataclasses of which each turn makes several have an ``__init__`` written by hand."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, FrozenInstanceError, fields, replace
from typing import Any

import pytest

from routelock.handlers import Request
from routelock.history import RunItem
from routelock.run.records import ModelCall, Shown
from routelock.tools import ToolOutcome
from routelock.usage import Usage

MADE: list[Any] = [
    Request(messages=[{"role": "user", "content": "Hi"}]),
    RunItem(0, "input", {"role": "user", "content": "Hi"}),
    ModelCall("desk", "model", 1, Shown(None, [], 0), (), None, {}),
    ToolOutcome("ok"),
    Usage(),
]


def named(made: object) -> str:
    return type(made).__name__


@pytest.mark.parametrize("made", MADE, ids=named)
def test_the_arguments_are_the_fields_in_order(made: Any) -> None:
    assert [*inspect.signature(type(made)).parameters] == [each.name for each in fields(made)]


@pytest.mark.parametrize("made", MADE, ids=named)
def test_each_field_is_set(made: Any) -> None:
    assert vars(made).keys() == {each.name for each in fields(made)}


@pytest.mark.parametrize("made", MADE, ids=named)
def test_an_argument_becomes_the_field_of_its_name(made: Any) -> None:
    values = {each.name: object() for each in fields(made)}
    assert vars(type(made)(**values)) == values


@pytest.mark.parametrize("made", MADE, ids=named)
def test_a_field_has_the_same_default_as_the_argument(made: Any) -> None:
    shown = inspect.signature(type(made)).parameters
    defaults = {each.name: each.default for each in fields(made) if each.default is not MISSING}
    assert {name: shown[name].default for name in defaults} == defaults


@pytest.mark.parametrize("made", MADE, ids=named)
def test_a_field_cannot_be_assigned(made: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(made, fields(made)[0].name, "other")


@pytest.mark.parametrize("made", MADE, ids=named)
def test_a_copy_is_equal(made: Any) -> None:
    assert replace(made) == made


@pytest.mark.parametrize("made", MADE, ids=named)
def test_an_unknown_argument_is_an_error(made: Any) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        type(made)(**vars(made), colour="red")
