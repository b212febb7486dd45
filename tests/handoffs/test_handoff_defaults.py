"""What a handoff declares where its options are left out."""

from __future__ import annotations

import pytest

from routelock import (
    Agent,
    handoff,
)

pytestmark = pytest.mark.anyio


B = Agent("B", handoff_description="Knows about bills.")


def test_a_handoff_is_named_after_its_target() -> None:
    declared = handoff(Agent("Refund Agent"))
    assert (declared.tool_name, declared.agent_name) == ("transfer_to_refund_agent", "Refund Agent")


def test_default_description_names_the_target() -> None:
    """There is no trailing blank without a handoff_description."""
    assert handoff(Agent("B")).tool_description == "Handoff to the B agent to handle the request."


def test_description_has_the_targets_purpose() -> None:
    assert handoff(B, reason="Questions about money.").tool_description == (
        "Handoff to the B agent to handle the request. Knows about bills. Questions about money."
    )


def test_the_spec_takes_no_arguments() -> None:
    assert handoff(B).spec == {
        "type": "function",
        "function": {
            "name": "transfer_to_b",
            "description": "Handoff to the B agent to handle the request. Knows about bills.",
            "parameters": {"additionalProperties": False, "type": "object", "properties": {}, "required": []},
            "strict": True,
        },
    }


def test_asking_for_a_reason_makes_it_a_required_argument() -> None:
    assert handoff(B, ask_reason=True).spec["function"]["parameters"] == {
        "additionalProperties": False,
        "type": "object",
        "properties": {
            "reason": {"type": "string", "description": "The reason for handing off to this agent"}
        },
        "required": ["reason"],
    }
