"""JSON: parts of foreign data, a line of it, what a journal records, and values that pydantic lets pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from routelock._sendable import sendable

__all__ = [
    "LINE_ENDS",
    "AnyObject",
    "AnyValue",
    "OrDefault",
    "dicts_in",
    "json_line",
    "list_of",
    "recordable",
]


class AnyObject:
    """In `Annotated`: let pydantic pass any JSON object here, because other code checks its content."""

    __slots__ = ()

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415 - see `routelock.tools.schema`

        return core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema())


class AnyValue:
    """In `Annotated`: let pydantic pass any value here, because other code checks it."""

    __slots__ = ()

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415

        return core_schema.any_schema()


class OrDefault:
    """In `Annotated`: let pydantic read a value that does not fit as ``default``.

    Args:
        default: the value to use.
        ge: the least number that fits.
    """

    __slots__ = ("_default", "_ge")

    def __init__(self, default: object, *, ge: int | None = None) -> None:
        self._default = default
        self._ge = ge

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415

        schema = handler(source) if self._ge is None else core_schema.int_schema(ge=self._ge, strict=True)
        return core_schema.with_default_schema(schema, default=self._default, on_error="default")


def list_of(value: object) -> list[object]:
    """Return a value of foreign data if it is a list, else an empty list."""
    return cast("list[object]", value) if isinstance(value, list) else []


def dicts_in(value: object) -> list[dict[str, Any]]:
    """Return the dicts in a value of foreign data; none if it is not a list."""
    return [cast("dict[str, Any]", each) for each in list_of(value) if isinstance(each, dict)]


def json_line(value: object) -> str:
    """Return data as JSON on one line.

    Line separators of Unicode are escaped, so text in the data cannot begin a line. A value without a JSON
    form is written as its ``str``.
    """
    line = _to_json(value)
    return line if line.isascii() else line.translate(LINE_ENDS)


_to_json = json.JSONEncoder(ensure_ascii=False, default=str).encode

LINE_ENDS = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}
"""The characters that some readers take for the end of a line, with their escapes in JSON."""


def recordable(value: object) -> Any:
    """Return a value as JSON data, for a journal, with U+FFFD for each half of a surrogate pair.

    A value without a JSON form becomes text.
    """
    from pydantic_core import from_json, to_json  # noqa: PLC0415 - see `routelock.tools.schema`

    try:
        return from_json(to_json(value, fallback=str, inf_nan_mode="strings"))
    except ValueError:
        return _whole(value)


def _whole(value: object) -> Any:
    """Return a value with half a surrogate pair as JSON data; one that refers to itself becomes text."""
    from pydantic_core import from_json, to_json, to_jsonable_python  # noqa: PLC0415

    try:
        # before and after: pydantic refuses a key with such a half, and only it reads objects
        plain = sendable(to_jsonable_python(sendable(value), fallback=str))
        return from_json(to_json(plain, inf_nan_mode="strings"))
    except (ValueError, RecursionError):
        return repr(value)
