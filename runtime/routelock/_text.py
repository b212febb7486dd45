"""A look at data of any size, in bounded space and time, that nothing in the data can forge.

What a model is shown of data is one line for each thing. Text is written as JSON writes it, so that it
cannot end its quotes, and so it can begin no line: no heading, no role, no marker. Nothing is
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
from typing import Any, NamedTuple, cast

__all__ = ["clip", "clip_place", "escape_control", "fit", "plain", "preview", "shares"]


_CUT = "..."

_SHORTEST = 5
"""What is left of an object at least."""

_NAME = 24
"""So much of a name is always shown."""

_LEAST = 64
"""So much of a long value in an object is shown at least; of one in a list it is a quarter of the room."""

_LEVEL = 12
"""A level of what is inside is looked at where there is so much room for it."""

_ROUNDS = 8

_NO_KEY = object()

_as_json = json.JSONEncoder(ensure_ascii=False).encode

_DEEPEST = 6

_LARGEST_SET = 100

_LARGEST_INTEGER = 10**100

_CONTROLS = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Control and format characters, lone surrogates, and line and paragraph separators."""

_JOINERS = "\u200c\u200d"
"""Format characters that words and emoji are made of."""


def preview(value: object, room: int, *, markers: Collection[str] = ()) -> str:
    """Return a value as one line that reads like JSON, cut where it does not fit.

    Where an object or a list does not fit, what is short in it stays whole and what is long is cut, at each
    level. What is no JSON is named and not shown, dates, UUIDs, decimals and the fields of dataclasses and
    pydantic models excepted. Fields that are kept out of a ``repr`` are kept out of here.

    Args:
        value: anything; nothing in it is called but what its iteration calls.
        room: the longest answer, in bytes of UTF-8.
        markers: texts that must not occur in the line, beside all that begin with ``<``.
    """
    return _clipped(_guarded(_Look(markers).at(value, room, _DEEPEST), markers), room)


def plain(text: str, room: int, *, markers: Collection[str] = ()) -> str:
    """Return text as it reads inside of quotes: on one line, and cut to ``room`` bytes of UTF-8."""
    inside = json.dumps(text[: max(room, 0)], ensure_ascii=False)[1:-1]
    return _clipped(_guarded(inside, markers) + _CUT * (len(text) > room), room)


def escape_control(text: str) -> str:
    """Return text that a terminal only shows: what could move its cursor or turn its lines is spelled out.

    Line feeds and tabs stay, carriage returns go. A text that arrives in pieces may be treated piece by
    piece: each character stands for itself.
    """
    text = text.replace("\r", "")
    if text.isprintable():
        return text
    return "".join(_escaped(char) if char not in "\n\t" and _is_control(char) else char for char in text)


def clip(text: str, limit: int) -> str:
    """Return text in at most ``limit`` characters that UTF-8 can encode; a cut ends with "…"."""
    if len(text) > limit:
        text = text[: clip_place(text, limit - 1)] + "…"
    return text if text.isascii() else text.encode(errors="replace").decode()


def clip_place(text: str, limit: int) -> int:
    """Return where to cut a text that is longer than ``limit``: at the limit, or up to 20 characters before
    it.

    A cut never parts a letter from its accents, or an emoji from what is joined to it.
    """
    for end in range(limit, max(0, limit - 20), -1):
        after = text[end]
        is_joined = "\u200d" in (after, text[end - 1])  # zero-width joiner
        is_skin_tone = "\U0001f3fb" <= after <= "\U0001f3ff"
        if not is_joined and not is_skin_tone and not unicodedata.category(after).startswith("M"):
            return end
    return limit


def fit(lines: Sequence[str], limit: int) -> str:
    """Return lines in at most ``limit`` bytes. Long ones are cut so that short ones stay whole."""
    return _clipped("\n".join(map(_clipped, lines, shares(lines, limit))), limit)


def shares(lines: Sequence[str], limit: int) -> list[int]:
    """Return how many bytes each line has when they are to `fit`."""
    sizes = [_size(line) for line in lines]
    room = limit - max(len(lines) - 1, 0)
    for left, place in zip(
        range(len(lines), 0, -1), sorted(range(len(lines)), key=sizes.__getitem__), strict=True
    ):
        sizes[place] = min(sizes[place], max(room, 0) // left)
        room -= sizes[place]
    return sizes


class _Look:
    """A look at one value, in which what is long is cut so that what is short stays whole.

    Nothing is measured beyond the room that it may have, so the time depends on the room and not on the data.
    """

    def __init__(self, markers: Collection[str]) -> None:
        self._markers = markers

    def at(self, value: object, room: int, depth: int, *, within: bool = False) -> str:
        """Return a value in about so many bytes.

        Args:
            value: anything.
            room: in bytes.
            depth: how many levels of it are shown.
            within: whether it is a part of something; if not, what is too long is cut off afterwards.
        """
        value = value.value if isinstance(value, Enum) else value
        text = _rendered(value, room, depth)
        if self._size(text) <= room:
            return text
        depth = min(depth, room // _LEVEL)
        if depth > 0 and (inside := _inside(value)) is not None:
            cut, is_row = self._cut(*inside, room, depth - 1)
            return text if is_row and not within else cut
        if not within:
            return text
        return self._ended(value if isinstance(value, str) else str(value), room) if text[0] == '"' else _CUT

    def _cut(self, ends: str, members: _Members, room: int, depth: int) -> tuple[str, bool]:
        """Return a value with the members that there is room for, and whether there are merely too many."""
        room -= len(ends)
        chosen, more = self._chosen(members, room, depth)
        if more:
            room -= len(_CUT) + 2
            while chosen and sum(each.least for each in chosen) - 2 > room:
                chosen.pop()
        left = room - sum(self._size(each.head) + 2 for each in chosen) + 2
        pieces = [
            each.head + self.at(each.value, share, depth, within=True)
            for each, share in zip(chosen, self._shares(chosen, left, depth), strict=True)
        ]
        text = ", ".join([*pieces, _CUT] if more else pieces)
        return f"{ends[0]}{text}{ends[1]}", more and all(each.size is not None for each in chosen)

    def _chosen(self, members: _Members, room: int, depth: int) -> tuple[list[_Member], bool]:
        """Return the members of which there is room for the least, and whether there are more."""
        longest = max(room // 2, _NAME)
        of_object, of_list = (max(each, _SHORTEST) for each in (min(room // 8, _LEAST), room // 4))
        chosen: list[_Member] = []
        for key, value in members:
            short = of_list if key is _NO_KEY else of_object
            head = "" if key is _NO_KEY else f"{self.at(key, longest, 0, within=True)}: "
            size = self._measured(value, short, depth)
            least = self._size(head) + min(size, short) + 2
            room -= least
            if room < -2:
                return chosen, True
            chosen.append(_Member(head, value, least, size if size <= short else None))
        return chosen, False

    def _shares(self, members: Sequence[_Member], room: int, depth: int) -> list[int]:
        """Share room out: to each as much as it takes, or as much as to any other that takes more."""
        sizes = {place: each.size for place, each in enumerate(members) if each.size is not None}
        room -= sum(sizes.values())
        long = [place for place, each in enumerate(members) if each.size is None]
        for _ in range(_ROUNDS):
            share = room // max(len(long), 1)
            measured = {place: self._measured(members[place].value, share, depth) for place in long}
            short = {place: size for place, size in measured.items() if size <= share}
            if not short:
                break
            sizes |= short
            room -= sum(short.values())
            long = [place for place in long if place not in short]
        share = room // max(len(long), 1)
        return [sizes.get(place, share) for place in range(len(members))]

    def _measured(self, value: object, room: int, depth: int) -> int:
        """Return how long a value is, or more than ``room``."""
        return self._size(_rendered(value, room, depth))

    def _ended(self, text: str, room: int) -> str:
        """Return the beginning of a text in quotes that are closed, so that it is plain where it ends."""
        kept = min(len(text), room)
        while kept > 0:
            shown = _as_json(text[:kept]) + _CUT
            if (size := self._size(shown)) <= room:
                return shown
            kept = min(kept - 1, kept * room // size)
        return _CUT

    def _size(self, text: str) -> int:
        return _size(_guarded(text, self._markers))


_Members = Iterable[tuple[object, object]]
"""What is inside of a value, by name."""


class _Member(NamedTuple):
    head: str
    """Its name, as it stands before it."""
    value: object
    least: int
    """How much of the room it takes at least."""
    size: int | None
    """How long it is; None if it is long."""


def _inside(value: object) -> tuple[str, _Members] | None:
    """Return the brackets of a value that has others in it, and those."""
    named = _named(value)
    if named is not None:
        return "{}", named.items()
    if isinstance(value, list | tuple):
        return "[]", ((_NO_KEY, each) for each in cast("Sequence[object]", value))
    if not isinstance(value, set | frozenset) or len(cast("Collection[object]", value)) > _LARGEST_SET:
        return None
    return "[]", ((_NO_KEY, each) for each in sorted(cast("Collection[object]", value), key=_first_look))


def _first_look(value: object) -> str:
    return _rendered(value, _NAME, 1)


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
    return _as_json(text[:room]) + _CUT * (len(text) > room)


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
