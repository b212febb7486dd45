"""A look at data of any size, in bounded space and time, that nothing in the data can forge.

What a model is shown of data is one line for each thing. Text is written as JSON writes it, so that it
cannot end its quotes, and so it can begin no line: no heading, no role, no marker (pain 25). Nothing is
rendered that is not shown: a document of megabytes costs what its first kilobyte costs.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, time
from enum import Enum
from typing import Any, cast

__all__ = ["fit", "glimpse", "inert", "plain"]

_CUT = "..."
_DEEPEST = 6
_LARGEST_SET = 100
_LARGEST_INTEGER = 10**100

_CONTROLS = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Control and format characters, lone surrogates, and line and paragraph separators."""

_JOINERS = "\u200c\u200d"
"""Format characters that words and emoji are made of."""


def glimpse(value: object, room: int, *, markers: Collection[str] = ()) -> str:
    """Return a value as one line that reads like JSON, cut where it does not fit.

    What is no JSON is named and not shown, dates, UUIDs, decimals and the fields of dataclasses and pydantic
    models excepted. Fields that are kept out of a ``repr`` are kept out of here.

    Args:
        value: anything; nothing in it is called but what its iteration calls.
        room: the longest answer, in bytes of UTF-8.
        markers: texts that must not occur in the line, beside all that begin with ``<``.
    """
    return _clipped(_guarded(_rendered(value, room, _DEEPEST), markers), room)


def plain(text: str, room: int, *, markers: Collection[str] = ()) -> str:
    """Return text as it reads inside of quotes: on one line, and cut to ``room`` bytes of UTF-8."""
    inside = json.dumps(text[: max(room, 0)], ensure_ascii=False)[1:-1]
    return _clipped(_guarded(inside, markers) + _CUT * (len(text) > room), room)


def inert(text: str) -> str:
    """Return text that a terminal only shows: what could move its cursor or turn its lines is spelled out.

    Line feeds and tabs stay, carriage returns go. A text that arrives in pieces may be treated piece by
    piece: each character stands for itself.
    """
    text = text.replace("\r", "")
    if text.isprintable():
        return text
    return "".join(_escaped(char) if char not in "\n\t" and _is_control(char) else char for char in text)


def fit(lines: Sequence[str], limit: int) -> str:
    """Return lines in at most ``limit`` bytes. Long ones are cut so that short ones stay whole."""
    sizes = [_size(line) for line in lines]
    room = limit - max(len(lines) - 1, 0)
    for left, place in zip(
        range(len(lines), 0, -1), sorted(range(len(lines)), key=sizes.__getitem__), strict=True
    ):
        sizes[place] = min(sizes[place], max(room, 0) // left)
        room -= sizes[place]
    return _clipped("\n".join(map(_clipped, lines, sizes)), limit)


def _rendered(value: object, room: int, depth: int) -> str:
    """Return a value as text that is at most a few times as long as ``room``."""
    from decimal import Decimal  # noqa: PLC0415 - like the next, for the few runs that have a payload
    from uuid import UUID  # noqa: PLC0415

    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return _quoted(value, room)
    if isinstance(value, date | time | UUID | Decimal):
        return _quoted(str(value), room)
    if value is None or isinstance(value, bool | int | float):
        return _constant(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"({len(cast('bytes', value))} bytes)"
    return _collected(value, room, depth)


def _collected(value: object, room: int, depth: int) -> str:
    named = _named(value)
    if named is not None:
        pairs = (
            f"{_rendered(key, room, 0)}: {_rendered(each, room, depth - 1)}" for key, each in named.items()
        )
        return "{" + _joined(pairs, room, depth) + "}"
    if isinstance(value, list | tuple):
        rendered = (_rendered(each, room, depth - 1) for each in cast("Sequence[object]", value))
        return "[" + _joined(rendered, room, depth) + "]"
    if isinstance(value, set | frozenset):
        return _rendered_set(cast("Collection[object]", value), room, depth)
    return f"({type(value).__name__})"


def _rendered_set(members: Collection[object], room: int, depth: int) -> str:
    """Return a set in an order that is the same in every process, which the order of a set is not."""
    if len(members) > _LARGEST_SET:
        return f"(a set of {len(members)})"
    rendered = sorted(_rendered(each, room // max(len(members), 1) + 1, depth - 1) for each in members)
    return "[" + _joined(rendered, room, depth) + "]"


def _joined(pieces: Iterable[str], room: int, depth: int) -> str:
    if depth <= 0:
        return _CUT
    shown: list[str] = []
    for piece in pieces:
        shown.append(piece)
        room -= len(piece) + 2
        if room < 0:  # the rest would be cut off anyway
            break
    return ", ".join(shown)


def _named(value: object) -> Mapping[object, Any] | None:
    """Return what has names in a value: the keys of a mapping, or the fields of an object."""
    if isinstance(value, Mapping):
        return cast("Mapping[object, Any]", value)
    declared: Iterable[tuple[str, Any]] = ()
    if is_dataclass(value) and not isinstance(value, type):
        declared = [(each.name, each) for each in fields(value)]
    elif isinstance(model_fields := getattr(type(value), "model_fields", None), dict):
        declared = cast("dict[str, Any]", model_fields).items()
    shown: dict[object, Any] = {
        name: getattr(value, name, None) for name, each in declared if getattr(each, "repr", True)
    }
    return shown if declared else None


def _constant(value: float | None) -> str:
    """Return a number, true, false or null. A huge integer takes a long time to write, so it is not."""
    if isinstance(value, float) or value is None or abs(value) < _LARGEST_INTEGER:
        return json.dumps(value)
    return f"(a whole number of about {math.floor(value.bit_length() * math.log10(2)) + 1} digits)"


def _quoted(text: str, room: int) -> str:
    return json.dumps(text[:room], ensure_ascii=False) + _CUT * (len(text) > room)


def _guarded(line: str, markers: Collection[str]) -> str:
    """Escape what could end the line, cannot be sent or seen, or begins a marker."""
    firsts = {"<", *(marker[0] for marker in markers if marker)}
    if line.isprintable() and not any(first in line for first in firsts):
        return line
    return "".join(_escaped(char) if char in firsts or _is_control(char) else char for char in line)


def _is_control(char: str) -> bool:
    return not char.isprintable() and char not in _JOINERS and unicodedata.category(char) in _CONTROLS


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if char.isascii() else json.dumps(char)[1:-1]


def _clipped(text: str, room: int) -> str:
    if _size(text) <= room:
        return text
    cut = _CUT[: max(room, 0)]
    return text.encode()[: room - len(cut)].decode(errors="ignore") + cut if room > 0 else ""


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
