"""Text for terminals: of errors, and of what models and tools write."""

from __future__ import annotations

import json
from typing import Any, cast

from routelock._callables import words_of
from routelock._text import inert
from routelock.errors import CassetteMiss, RoutelockError
from routelock.testing.cassette import UnplayedInteractions
from routelock.usage import Usage

__all__ = ["bounded", "call_arguments", "money", "told", "usage_line"]

_DIFFERENCES = (CassetteMiss, UnplayedInteractions)
"""What they say is a difference, which takes lines."""


def told(error: BaseException) -> str:
    """Return what an error says, on one line; errors of the program itself say so."""
    if isinstance(error, _DIFFERENCES):
        return inert(words_of(error))
    said = words_of(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        said = f"{error.filename} could not be opened: {error.strerror}."
    text = " ".join(inert(said).split()) or type(error).__name__
    if isinstance(error, RoutelockError | OSError):
        return text
    return f"{type(error).__name__}: {text} (--verbose shows where)"


def bounded(text: str, room: int) -> str:
    """Return text on one line of at most ``room`` characters that no terminal obeys."""
    line = " ".join(inert(text[: room * 2]).split())
    return line if len(line) <= room and len(text) <= room * 2 else f"{line[: max(room - 3, 0)].rstrip()}..."


def call_arguments(text: str, room: int) -> str:
    """Return the JSON arguments of a call as ``name=value, ...``; what is no JSON object as it stands."""
    try:
        values: object = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return bounded(text, room)
    if not isinstance(values, dict):
        return bounded(text, room)
    named = cast("dict[str, Any]", values).items()
    return bounded(", ".join(f"{name}={json.dumps(each, ensure_ascii=False)}" for name, each in named), room)


def usage_line(usage: Usage) -> str:
    """Return tokens and cost of some calls: ``812 in (300 cached), 45 out, $0.0012``."""
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    guessed = "about " if usage.estimated else ""
    return f"{guessed}{usage.input_tokens:,} in{cached}, {usage.output_tokens:,} out, {money(usage.cost)}"


def money(dollars: float | None) -> str:
    """Return US dollars with as many places as small amounts need."""
    if dollars is None:
        return "cost unknown"
    return f"${dollars:.2f}" if dollars >= 1 or not dollars else f"${dollars:.4f}"
