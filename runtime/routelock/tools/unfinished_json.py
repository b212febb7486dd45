"""The value of a JSON text that is still being written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

__all__ = ["unfinished_value"]


_MOST_PROBLEMS = 100
"""The most problems of a value whose end may be left out. With more, the end is not the only cause."""

_Path = Sequence[int | str]
"""Keys and indexes that lead to a part of a value."""


def unfinished_value(text: str, validate: Callable[[bytes], Any]) -> Any:
    """Return the value of an unfinished JSON text, without the parts at its end that are not valid yet.

    Args:
        text: the beginning of a JSON text.
        validate: returns the value of a complete JSON text, or raises pydantic's ValidationError.

    Returns:
        the value; None if the text is complete, is not JSON, or is not valid so far.
    """
    from pydantic_core import ValidationError, from_json, to_json  # noqa: PLC0415 - see `routelock.tools.schema`

    if _is_complete(text):
        return None
    try:
        data: Any = from_json(text, allow_partial="trailing-strings")
    except ValueError:
        return None
    end = _path_of_end(data)
    if end and _is_open_number(text, data, end):
        _remove(data, end)
        end = end[:-1]
    while True:
        try:
            return validate(to_json(data, inf_nan_mode="constants"))
        except ValidationError as error:
            shared = _shared_with_all(error, end)
        except Exception:  # a validator of the app failed on half a value; it gets the whole value later
            return None
        if not shared:
            return None
        end = end[:shared]
        _remove(data, end)
        end = end[:-1]  # what comes before the removed part is complete, and stays


def _is_complete(text: str) -> bool:
    from pydantic_core import from_json  # noqa: PLC0415 - see `routelock.tools.schema`

    if not text.rstrip().endswith("}"):
        return False
    try:
        from_json(text)
    except ValueError:
        return False
    return True


def _is_open_number(text: str, data: object, end: _Path) -> bool:
    """Whether the last value of a document is a number that may go on.

    The text is read again with one more digit. A number at the end becomes another number; a key at the end
    makes no difference.
    """
    from pydantic_core import from_json  # noqa: PLC0415 - see `routelock.tools.schema`

    last: Any = data
    for step in end:
        last = last[step]
    if not isinstance(last, int | float) or text[-1] not in "0123456789":
        return False
    try:
        return bool(from_json(f"{text}1", allow_partial="trailing-strings") != data)
    except ValueError:  # one more digit is not valid, as in 01
        return True


def _path_of_end(data: Any) -> _Path:
    """Return the path of the last value of a document, which may not be complete."""
    path: list[int | str] = []
    while isinstance(data, dict | list) and data:
        parts = cast("dict[str, Any] | list[Any]", data)
        path.append(len(parts) - 1 if isinstance(parts, list) else next(reversed(parts)))
        data = cast(Any, parts)[path[-1]]
    return path


def _shared_with_all(error: Any, end: _Path) -> int:
    """Return how many steps of the path ``end`` are also on the path of each problem of a ValidationError."""
    if error.error_count() > _MOST_PROBLEMS:
        return 0
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return min(_shared(each["loc"], end) for each in found)


def _shared(where: _Path, end: _Path) -> int:
    count = 0
    for step, other in zip(where, end, strict=False):
        if step != other:
            break
        count += 1
    return count


def _remove(data: Any, path: _Path) -> None:
    for step in path[:-1]:
        data = data[step]
    del data[path[-1]]
