"""The fields of a context snapshot: their checks, and their JSON schema."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import NoneType
from typing import Any, cast

from routelock._json_document import VERSION_KEY
from routelock.errors import ConfigError
from routelock.history.input import checked_message

__all__ = [
    "check_fields",
    "check_history",
    "context_schema",
    "kind_of",
    "utc_text",
]


FIELDS: Mapping[str, type[Any]] = {"conversation_history": list, "tool_state": dict, "metadata": dict}
"""The three fields and their types."""

FORMAT_VERSION = 1
"""The version that is written. A higher version is for a form that this code would misread."""


_DAY = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"

_TIME = "([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.,][0-9]+)?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?"

_TIMESTAMP = f"^{_DAY}([T ]{_TIME})?$"
"""ISO 8601, as https://datatracker.ietf.org/doc/html/rfc3339 has it, or without the time, seconds or zone."""


def check_fields(fields: Mapping[str, Any]) -> None:
    """Check the fields that are present. They hold JSON data.

    Raises:
        ValueError: a field has the wrong type, or a message is invalid.
    """
    for name, kind in FIELDS.items():
        if name in fields and not isinstance(fields[name], kind):
            wanted = "a list" if kind is list else "an object"
            raise ValueError(f"{name} must be {wanted}, not {kind_of(fields[name])}")
    check_history(fields.get("conversation_history", []))


def check_history(history: Sequence[object]) -> None:
    """Check that each entry is a message that a run accepts as input.

    Raises:
        ValueError: an entry is not; the error names its place and the key.
    """
    for index, entry in enumerate(history):
        try:
            known = cast("dict[str, Any]", checked_message(index, entry))
        except ConfigError as error:
            raise ValueError(f"conversation_history[{index}]: {str(error).rstrip('.')}") from error
        for key, kind in (("timestamp", str), ("metadata", dict), ("tool_calls", (list, NoneType))):
            if key in known and not isinstance(known[key], kind):
                raise ValueError(f"conversation_history[{index}].{key} must not be {kind_of(known[key])}")
        if "timestamp" in known and re.fullmatch(_TIMESTAMP.rstrip("$"), known["timestamp"]) is None:
            example = "such as 2025-01-15T10:30:00Z"
            raise ValueError(f"conversation_history[{index}].timestamp must be ISO 8601, {example}")


def context_schema() -> dict[str, Any]:
    """Return the JSON schema (draft-07) of a snapshot; all data that passes the checks fits it."""
    spoken = {"properties": {"role": {"enum": ["user", "system", "developer"]}}, "required": ["role"]}
    function = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "arguments": {"description": "JSON as text"}},
        "required": ["name"],
    }
    call = {
        "type": "object",
        "properties": {"id": {"type": ["string", "null"]}, "function": function},
        "required": ["function"],
    }
    entry = {
        "type": "object",
        "properties": {
            "role": {"type": "string", "enum": ["system", "developer", "user", "assistant", "tool"]},
            "content": {"type": ["string", "array", "null"], "items": {"type": "object"}},
            "name": {"type": ["string", "null"]},
            "tool_calls": {"type": ["array", "null"], "items": call},
            "tool_call_id": {"type": ["string", "null"]},
            "timestamp": {"type": "string", "pattern": _TIMESTAMP},
            "metadata": {"type": "object", "additionalProperties": True},
        },
        "required": ["role"],
        "if": spoken,
        "then": {"properties": {"content": {"type": ["string", "array"]}}, "required": ["content"]},
    }
    anything = {"type": "object", "additionalProperties": True}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "HandoffContext",
        "type": "object",
        "properties": {
            "conversation_history": {"type": "array", "items": entry},
            "tool_state": anything,
            "metadata": dict(anything),
            VERSION_KEY: {"type": "integer", "minimum": 1},
        },
        "required": list(FIELDS),
    }


def kind_of(value: object) -> str:
    """Return the JSON name of a value's type."""
    name = type(value).__name__
    kinds = {"dict": "an object", "list": "a list", "str": "text", "bool": "a bool", "NoneType": "null"}
    return kinds.get(name, "a number" if isinstance(value, int | float) else name)


def utc_text(moment: datetime | str) -> str:
    """Return a time as ISO 8601 in UTC, such as ``2025-01-15T10:30:00Z``.

    Raises:
        ValueError: the time has no time zone, or is text in another format.
    """
    wrong = "created_at must be a datetime or ISO 8601, such as 2025-01-15T10:30:00Z."
    try:
        known = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError as error:
        raise ValueError(wrong) from error
    if not isinstance(cast(object, known), datetime):
        raise ValueError(wrong)
    if known.tzinfo is None:
        raise ValueError("created_at must have a time zone, such as datetime.now(UTC).")
    return known.astimezone(UTC).isoformat().replace("+00:00", "Z")
