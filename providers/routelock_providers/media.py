"""Images, sound and files in messages: what a vendor cannot be shown, it is told of. Pure functions.

Some vendors refuse a request for such a part, and for others litellm leaves the part out without a word.
Then the model would answer as if there were nothing, so it reads a note instead. The transcript has the part.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

__all__ = ["NOT_SHOWN", "not_again", "only"]

NOT_SHOWN: Final = {"type": "text", "text": "(Something other than text, which is not shown again.)"}
"""Stands for an image or a sound that a model made: no chat API takes one back from the assistant."""

_NAMES: Final = {
    "image_url": "An image",
    "input_audio": "A sound",
    "file": "A file",
    "video_url": "A video",
}


def not_again(parts: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return what an assistant said without what cannot go back to one; the same object where that is all."""
    return _same([NOT_SHOWN if part.get("type") in _NAMES else part for part in parts], parts)


def only(parts: Sequence[dict[str, Any]], taken: Collection[str]) -> Sequence[dict[str, Any]]:
    """Return the parts with a note for each whose kind is not ``taken``; the same object where all are."""
    return _same([_noted(part, taken) for part in parts], parts)


def _noted(part: dict[str, Any], taken: Collection[str]) -> dict[str, Any]:
    kind: Any = part.get("type")
    if kind in taken or kind == "text" or (taken and kind not in _NAMES):
        return part
    what = _NAMES.get(kind, "Something")  # to who takes text alone, nothing else is sent, known or not
    return {"type": "text", "text": f"({what} that this model cannot be shown{_named(part)}.)"}


def _named(part: Mapping[str, Any]) -> str:
    match part:
        case {"file": {"filename": str(name)}}:
            return f": {name[:80]!r}"
        case _:
            return ""


def _same(made: list[dict[str, Any]], parts: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    return parts if all(map(operator.is_, made, parts)) else made
