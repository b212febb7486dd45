"""The contracts of the common types of handoff, and the registry that checks payloads against them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pydantic
import pytest

from routelock.errors import ConfigError, PayloadError
from routelock.handoffs.payload import HandoffPayload, payload_of
from routelock.handoffs.payload_types import HandoffTypes, ResearchDelegation

COMMON = HandoffTypes().models
KEYS = {
    "research_delegation": ["reference_document", "referenced_files", "analysis_context", "constraints"],
    "analysis_delegation": ["content_to_analyze", "analysis_type", "criteria"],
    "generation_delegation": ["generation_context", "style_guide", "constraints"],
    "quick_lookup": ["conversation_context"],
    "analysis_request": ["story_content", "analysis_criteria"],
    "component_design": ["project_requirements", "constraints"],
}


def payload(handoff_type: str, data: dict[str, Any]) -> HandoffPayload:
    return HandoffPayload(source_agent="chat", handoff_type=handoff_type, context_data=data)


class Ticket(pydantic.BaseModel):
    number: int


def test_the_common_types_have_these_keys() -> None:
    found = {name: [each.name for each in dataclasses.fields(model)] for name, model in COMMON.items()}
    assert found == KEYS


@pytest.mark.parametrize("name", KEYS)
def test_every_declared_field_reaches_the_target(name: str) -> None:
    """A receiver that reads one field of four loses the others."""
    data = {key: f"the {key}" for key in KEYS[name]}
    memory = {"handoff_context": payload(name, data).to_dict()}
    received, _ = payload_of(memory)
    assert received is not None
    assert HandoffTypes().check(received, strict=True) == (received, None)
    assert memory["handoff_context"]["context_data"] == data
    assert dataclasses.asdict(received.data_as(COMMON[name])) == data
    assert all(f'"{key}": "the {key}"' in received.preview() for key in KEYS[name])


def test_a_payload_with_a_reference_document_fits() -> None:
    made = HandoffPayload.parse(
        {
            "source_agent": "reference_agent",
            "handoff_type": "research_delegation",
            "reference_document": {
                "content": "text",
                "type": "reference",
                "filename": "notes.md",
                "has_content": True,
            },
            "referenced_files": {},
            "analysis_context": {
                "needs_calculations": False,
                "calculation_results": None,
                "complexity": "low",
            },
        }
    )
    assert HandoffTypes().check(made, strict=True)[1] is None
    document = made.data_as(ResearchDelegation).reference_document
    assert isinstance(document, dict)
    assert document["content"] == "text"


def test_an_unknown_type_is_a_warning() -> None:
    made = payload("research_delagation", {})
    same, warning = HandoffTypes().check(made)
    assert same is made
    assert warning is not None
    assert "Unknown handoff type: research_delagation" in warning
    assert "research_delegation" in warning


def test_an_unknown_type_is_an_error_when_strict() -> None:
    with pytest.raises(PayloadError, match="Unknown handoff type: other from chat"):
        HandoffTypes().check(payload("other", {}), strict=True)
    with pytest.raises(ValueError, match="Known types: none"):
        HandoffTypes({}).check(payload("other", {}), strict=True)


def test_data_that_does_not_fit_is_a_warning_and_an_error_when_strict() -> None:
    made = payload("quick_lookup", {"question": "hunter2"})
    _, warning = HandoffTypes().check(made)
    assert warning == (
        "context_data of quick_lookup from chat is no QuickLookup: conversation_context: Field required."
    )
    with pytest.raises(PayloadError, match="conversation_context: Field required"):
        HandoffTypes().check(made, strict=True)


def test_a_validator_that_breaks_is_a_warning_too() -> None:
    class Broken(pydantic.BaseModel):
        key: str

        @pydantic.field_validator("key")
        @classmethod
        def _check(cls, value: str) -> str:
            raise KeyError(value)

    made = payload("broken", {"key": "hunter2"})
    _, warning = HandoffTypes({"broken": Broken}).check(made)
    assert warning == "Checking broken from chat raised KeyError in Broken."
    with pytest.raises(PayloadError, match="raised KeyError"):
        HandoffTypes({"broken": Broken}).check(made, strict=True)


def test_undeclared_keys_are_allowed() -> None:
    made = payload("quick_lookup", {"conversation_context": "c", "more": 1})
    assert HandoffTypes().check(made) == (made, None)


def test_a_type_of_the_apps_own_is_checked() -> None:
    types = HandoffTypes()
    types.register("ticket", Ticket)
    assert types.check(payload("ticket", {"number": 5}))[1] is None
    assert "number" in str(types.check(payload("ticket", {"number": "five"}))[1])


def test_a_registry_knows_only_its_own_types() -> None:
    """Nothing is registered for the whole process."""
    HandoffTypes().register("ticket", Ticket)
    assert "ticket" not in HandoffTypes().models
    assert dict(HandoffTypes({"ticket": Ticket}).models) == {"ticket": Ticket}


def test_models_returns_a_copy() -> None:
    types = HandoffTypes({})
    dict(types.models)["ticket"] = Ticket
    assert types.models == {}


def test_only_common_types_can_be_replaced() -> None:
    types = HandoffTypes({"ticket": Ticket})
    types.register("ticket", Ticket)
    with pytest.raises(ConfigError, match="'ticket' is already registered"):
        types.register("ticket", ResearchDelegation)
    common = HandoffTypes()
    common.register("quick_lookup", Ticket)
    assert common.models["quick_lookup"] is Ticket
    with pytest.raises(ConfigError, match="already"):
        common.register("quick_lookup", ResearchDelegation)


@pytest.mark.parametrize("name", ["", " "])
def test_a_type_needs_a_name(name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        HandoffTypes().register(name, Ticket)


def test_a_model_that_pydantic_cannot_check_is_refused() -> None:
    class Plain:
        def __init__(self, socket: object) -> None:
            self.socket = socket

    with pytest.raises(ConfigError, match="handoff type 'plain'"):
        HandoffTypes({"plain": Plain})
