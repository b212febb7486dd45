"""Text that can be sent: half a surrogate pair, which no HTTP client can encode, is replaced (Aider 3693)."""

from __future__ import annotations

import operator
from typing import Any, cast

__all__ = ["encodable", "encodable_within"]


def encodable(text: str) -> str:
    """Return text without lone surrogates; the same object if there are none."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def encodable_within(value: object) -> Any:
    """Return JSON data without lone surrogates anywhere; the same object if there are none."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        parts = cast("list[object]", value)
        fit = [encodable_within(part) for part in parts]
        return parts if all(map(operator.is_, fit, parts)) else fit
    if isinstance(value, dict):
        given = cast("dict[str, object]", value)
        made = {encodable(key): encodable_within(part) for key, part in given.items()}
        same = all(map(operator.is_, [*made, *made.values()], [*given, *given.values()]))
        return given if same and len(made) == len(given) else made
    return value
