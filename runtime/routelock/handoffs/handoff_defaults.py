"""The defaults of a handoff: the name of its target, the description of its tool, and the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from routelock._tool_names import capable_name
from routelock.errors import ConfigError
from routelock.handlers.port import is_handler
from routelock.handoffs.handoff_problems import is_list, target_name

if TYPE_CHECKING:
    from routelock.handoffs.handoff import Handoff

__all__ = ["default_name_of", "description_of", "schema_of"]

_ASK_REASON = "The reason for handing off to this agent"


def default_name_of(declared: Handoff) -> str:
    """Return the name of the target, or one made from the capabilities if the target is chosen later."""
    if declared.target is None and declared.on_invoke_handoff is not None and declared.agent_name:
        return declared.agent_name
    if declared.target is None and declared.capabilities_required:
        if not is_list(declared.capabilities_required):
            one: object = declared.capabilities_required
            raise ConfigError(f"Handoff: capabilities_required must be a list of names, not {one!r:.80}.")
        return capable_name(declared.capabilities_required)
    return target_name(declared.target)


def description_of(declared: Handoff) -> str:
    """Return the description of the tool, made from that of the target and the reason."""
    field_of = "prompt" if is_handler(declared.target) else "handoff_description"
    about = cast("str | None", getattr(declared.target, field_of, None))
    found_later = declared.target is None and bool(declared.capabilities_required)
    to = f"an {declared.agent_name}" if found_later else f"the {declared.agent_name} agent"
    parts = [f"Handoff to {to} to handle the request.", about, declared.reason]
    return " ".join(part for part in parts if part)


def schema_of(declared: Handoff) -> tuple[Mapping[str, Any], bool]:
    """Return the schema of what the model passes along, and whether it is strict."""
    if declared.input_type is not None:
        return declared.input_type.schema, declared.input_type.strict
    reason = {"reason": {"type": "string", "description": _ASK_REASON}} if declared.ask_reason else {}
    schema = {
        "additionalProperties": False,
        "type": "object",
        "properties": reason,
        "required": list(reason),
    }
    return schema, True
