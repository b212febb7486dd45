"""What the snapshot of a context must look like: as checks, and as a JSON schema."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import NoneType
from typing import Any, cast

from routelock.errors import ConfigError
from routelock.history.messages import checked_message

__all__ = [
    "check_fields",
    "check_history",
    "check_version",
    "context_schema",
    "failing_as",
    "kind_of",
    "utc_text",
]


FIELDS = {"conversation_history": list, "tool_state": dict, "metadata": dict}
"""The three fields, each with its type."""

VERSION_KEY = "format_version"

FORMAT_VERSION = 1
"""What is written. A higher one is for a form that this code would misread."""


@contextmanager
def failing_as(what: str) -> Generator[None]:
    """Turn what goes wrong inside into a `ValueError` that begins with ``what``."""
    try:
        yield
    except (ValueError, RecursionError) as error:  # the latter with a max_depth beyond what Python can do
        raise ValueError(f"{what}: {error}.") from error


def check_fields(fields: Mapping[str, Any]) -> None:
    """Check the fields that are there. They hold JSON data.

    Raises:
        ValueError: a field has the wrong type, or a message cannot be one.
    """
    for name, kind in FIELDS.items():
        if name in fields and not isinstance(fields[name], kind):
            wanted = "a list" if kind is list else "an object"
            raise ValueError(f"{name} must be {wanted}, not {kind_of(fields[name])}")
    check_history(fields.get("conversation_history", []))


def check_history(history: Sequence[object]) -> None:
    """Check that each entry is a message that a run takes as input.

    Raises:
        ValueError: one is not; the error names its place and the key.
    """
    for index, entry in enumerate(history):
        try:
            known = cast("dict[str, Any]", checked_message(index, entry))
        except ConfigError as error:
            raise ValueError(f"conversation_history[{index}]: {str(error).rstrip('.')}") from error
        for key, kind in (("timestamp", str), ("metadata", dict), ("tool_calls", (list, NoneType))):
            if key in known and not isinstance(known[key], kind):
                raise ValueError(f"conversation_history[{index}].{key} must not be {kind_of(known[key])}")


def check_version(fields: Mapping[str, Any], newest: int) -> None:
    """Check that this code can read a format; one that says nothing of a version is the first.

    Args:
        fields: the document.
        newest: the highest version that this code reads.

    Raises:
        ValueError: it is a newer one, or no version at all.
    """
    version: object = fields.get(VERSION_KEY, 1)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"{VERSION_KEY} must be a whole number from 1 on")
    if version > newest:
        raise ValueError(
            f"it has {VERSION_KEY} {version!s:.20}, and this routelock reads up to {newest}; "
            "update routelock here, or have the sender write the older format"
        )


def context_schema() -> dict[str, Any]:
    """Return the JSON schema (draft-07) of a snapshot; whatever the checks admit fits it."""
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
            "timestamp": {"type": "string", "format": "date-time"},
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
    """Return what JSON calls a value's type."""
    name = type(value).__name__
    kinds = {"dict": "an object", "list": "a list", "str": "text", "bool": "a bool", "NoneType": "null"}
    return kinds.get(name, "a number" if isinstance(value, int | float) else name)


def utc_text(moment: datetime | str) -> str:
    """Return a moment as ISO 8601 in UTC, such as ``2025-01-15T10:30:00Z``.

    Raises:
        ValueError: it has no time zone, or is text of another form.
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
