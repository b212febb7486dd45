"""Records of a run are frozen, and one with a written ``__init__`` misses none of its fields."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from routelock import RunContext, RunResult
from routelock.handlers.port import Request
from routelock.handoff_request import HandoffStatus
from routelock.history.messages import RunItem
from routelock.run.records import HandoffRecord, ModelCall
from routelock.tools.outcome import ToolOutcome
from routelock.usage import Usage

FILLED = [ModelCall, Request, RunItem, ToolOutcome, Usage]

RECORDS = [*FILLED, HandoffRecord, RunContext, RunResult]


@pytest.mark.parametrize("kind", FILLED)
def test_each_field_is_an_argument_with_its_default(kind: Any) -> None:
    arguments = [*inspect.signature(kind.__init__).parameters.values()][1:]
    fields = [each for each in dataclasses.fields(kind) if each.init]
    assert [each.name for each in arguments] == [each.name for each in fields]
    for argument, declared in zip(arguments, fields, strict=True):
        if declared.default is not dataclasses.MISSING:
            assert argument.default == declared.default
        assert (argument.default is argument.empty) == (
            declared.default is declared.default_factory is dataclasses.MISSING
        )


@pytest.mark.parametrize("kind", FILLED)
def test_each_argument_is_in_its_field(kind: Any) -> None:
    given: dict[str, Any] = {each.name: object() for each in dataclasses.fields(kind) if each.init}
    made = kind(**given)
    assert {name: getattr(made, name) for name in given} == given


@pytest.mark.parametrize("kind", RECORDS)
def test_records_are_frozen(kind: Any) -> None:
    made = kind(**{each.name: None for each in dataclasses.fields(kind) if each.init})
    name = dataclasses.fields(kind)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, name, 1)


@pytest.mark.parametrize(
    ("reason", "label"), [("it is about money", "Handoff: it is about money"), (None, "Handoff to b")]
)
def test_a_handoff_has_a_label(reason: str | None, label: str) -> None:
    record = HandoffRecord(
        id="h-1",
        source="a",
        target="b",
        tool_name="transfer_to_b",
        call_id="c",
        turn=1,
        status=HandoffStatus.COMPLETED,
        reason=reason,
    )
    assert record.label == label
