"""JSON as vendors write it, read leniently and written so that every reader takes it."""

from __future__ import annotations

import json
from typing import Any, Final, cast

from pydantic_core import from_json

__all__ = ["as_object", "decode_json", "encode_json", "json_object", "json_or_none"]


_LENIENT: Final = json.JSONDecoder(parse_constant=lambda _: None)
"""Reads NaN and infinity, which Python's servers write, as null: no other reader takes them."""


def decode_json(text: str | bytes) -> object:
    """Return the value of a JSON text.

    Raises:
        ValueError: the text is not JSON.
        RecursionError: the text is nested too deep.
    """
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:  # the slower reader takes half a surrogate pair, NaN and infinity as well
        return _LENIENT.decode(text if isinstance(text, str) else text.decode())


def json_or_none(text: str | bytes) -> object:
    """Return the value of a JSON text, or None if the text is not JSON."""
    try:
        return decode_json(text)
    except (ValueError, RecursionError):
        return None


def json_object(text: str | bytes) -> dict[str, Any]:
    """Return the object of a JSON text, or an empty one if the text is not a JSON object."""
    return as_object(json_or_none(text)) or {}


def as_object(value: object) -> dict[str, Any] | None:
    """Return a JSON value if it is an object, else None."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def encode_json(value: object) -> bytes:
    """Return a value as JSON in ASCII, so that half a surrogate pair can be written too."""
    return json.dumps(value).encode()
