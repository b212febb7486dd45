"""The function `handoff`: what becomes of its options."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from routelock import (
    Agent,
    handoff,
)
from routelock.history.filters import remove_all_tools
from routelock.tools.schema import JsonType

pytestmark = pytest.mark.anyio


B = Agent("B", handoff_description="Knows about bills.")


class Ticket(BaseModel):
    reason: str


@dataclasses.dataclass
class TicketData:
    reason: str


class TicketDict(TypedDict):
    reason: str


@pytest.mark.parametrize("input_type", [Ticket, TicketData, TicketDict])
def test_an_input_type_gives_the_schema(input_type: type[Any]) -> None:
    parameters = handoff(B, input_type=input_type).spec["function"]["parameters"]
    assert parameters["properties"] == {"reason": {"type": "string"}}
    assert parameters["required"] == ["reason"]
    assert parameters["additionalProperties"] is False


def test_every_option_has_its_field() -> None:
    def called(context: Any, value: Any) -> None: ...
    def enabled(context: Any, agent: Any) -> bool:
        return True

    declared = handoff(
        B,
        tool_name_override="escalate",
        tool_description_override="Escalate.",
        on_handoff=called,
        input_type=Ticket,
        input_filter=remove_all_tools,
        nest_handoff_history=True,
        is_enabled=enabled,
        reason="why",
        transfer_system_message=True,
    )
    assert (declared.tool_name, declared.tool_description, declared.on_handoff) == (
        "escalate",
        "Escalate.",
        called,
    )
    assert isinstance(declared.input_type, JsonType)
    assert declared.input_type.of is Ticket
    assert (declared.input_filter, declared.nest_handoff_history, declared.is_enabled) == (
        remove_all_tools,
        True,
        enabled,
    )
    assert (declared.reason, declared.transfer_system_message) == ("why", True)
    assert handoff(B, preserve_context=False, ask_reason=True).preserve_context is False


def one(context: Any) -> None: ...


def two(context: Any, value: Any) -> None: ...


def either(context: Any, value: Any = None) -> None: ...


def anything(*args: Any) -> None: ...


class Callback:
    async def __call__(self, context: Any) -> None: ...


@pytest.mark.parametrize("called", [one, either, anything, Callback(), functools.partial(two, value=1)])
def test_without_input_a_callback_takes_the_context(called: Callable[..., Any]) -> None:
    assert handoff(B, on_handoff=called).on_handoff is called


@pytest.mark.parametrize("called", [two, either, anything, functools.partial(two)])
def test_on_handoff_with_input_takes_context_and_input(called: Callable[..., Any]) -> None:
    assert handoff(B, on_handoff=called, input_type=Ticket).on_handoff_takes_input
    assert handoff(B, on_handoff=called, ask_reason=True).on_handoff_takes_input
