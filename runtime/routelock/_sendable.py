"""Repairs of JSON data that cannot be sent: halves of surrogate pairs, NaN, and floats for whole numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

__all__ = ["finite", "integral", "is_utf8", "sendable", "sendable_json"]


T = TypeVar("T")

_FINITE = frozenset((str, int, bool, type(None)))


def sendable(value: T) -> T:
    """Return JSON data with U+FFFD for each half of a surrogate pair, which UTF-8 cannot encode.

    Models cut emoji in two, and file names may not be UTF-8. Data without such halves is returned unchanged.

    Raises:
        RecursionError: data with such a half refers to itself, or is nested too deep.
    """
    if isinstance(value, str):
        return cast(T, _whole_characters(value))
    return cast(T, _rebuilt(value, _whole_characters)) if _has_halves(value) else value


def _has_halves(value: object) -> bool:
    waiting: list[object] = [value]
    seen = set[int]()
    while waiting:
        node: Any = waiting.pop()
        if isinstance(node, str):
            if not is_utf8(node):
                return True
        elif isinstance(node, dict | list) and id(cast(object, node)) not in seen:
            seen.add(id(cast(object, node)))
            waiting += cast("list[object]", node)
            if isinstance(node, dict):
                waiting += cast("dict[object, object]", node).values()
    return False


def _whole_characters(value: object) -> object:
    if not isinstance(value, str) or is_utf8(value):
        return value
    # a round trip through UTF-16 joins two halves of one character
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _rebuilt(value: object, change: Callable[[object], object]) -> object:
    """Return JSON data with ``change`` applied to each value and each key."""
    if isinstance(value, dict):
        fields = cast("dict[object, object]", value)
        return {change(key): _rebuilt(each, change) for key, each in fields.items()}
    if isinstance(value, list):
        return [_rebuilt(each, change) for each in cast("list[object]", value)]
    return change(value)


def sendable_json(text: str) -> str:
    r"""Return JSON text with U+FFFD for each half of a surrogate pair, written as ``\ud83d`` or as itself.

    Python reads such an escape, and vendors refuse it. Everything else stays unchanged.
    """
    fit = _HALF_ESCAPED.sub(_kept, sendable(text))
    return text if fit == text else fit


_HALF_ESCAPED = re.compile(
    r"(\\u[dD][89aAbB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\\\)|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
"""Matches the escape of half a surrogate pair. The group matches text to keep: a whole pair, a backslash."""


def _kept(found: re.Match[str]) -> str:
    return found[1] or r"\ufffd"


def finite(value: T) -> T:
    """Return JSON data with null for NaN and infinity, which Python reads and other programs refuse.

    Data without them is returned as it is.
    """
    waiting: list[object] = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            inside = cast("dict[object, object]", node).values()
            waiting += [each for each in inside if type(each) not in _FINITE]
        elif isinstance(node, list):
            waiting += cast("list[object]", node)
        elif isinstance(node, float) and not math.isfinite(node):
            return cast(T, _rebuilt(value, _null_if_not_finite))
    return value


def _null_if_not_finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def integral(value: object) -> object:
    """Return JSON data with an int for each whole float: some readers turn 7 into 7.0."""
    return _rebuilt(value, lambda each: int(each) if isinstance(each, float) and each.is_integer() else each)


def is_utf8(text: str) -> bool:
    """Whether UTF-8 can encode a text; it cannot encode half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
