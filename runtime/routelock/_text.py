"""Truncation and previews: data of any size as text of bounded size, in bounded time.

A preview is one line. Text is written as JSON, so it cannot close its quotes or begin a line: data can forge
no heading, role or marker. Only the part that is shown is rendered: a document of megabytes costs as much as
its first kilobyte.
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

__all__ = ["clip", "clip_place", "dollars", "escape_control", "fit", "one_line", "plain", "preview", "shares"]


_CUT = "..."

_SHORTEST = 5
"""The least number of bytes for a member of an object or list."""

_NAME = 24
"""The least number of bytes for the name of a member."""

_LEAST = 64
"""The bytes that a long member of an object gets at least, if there is room; in a list, a quarter of it."""

_LEVEL = 12
"""The number of bytes needed to show one more level of nesting."""

_ROUNDS = 8
"""How often the room that short members leave is shared out again."""

_NO_KEY = object()

_as_json = json.JSONEncoder(ensure_ascii=False).encode

_DEEPEST = 6

_LARGEST_SET = 100

_LARGEST_INTEGER = 10**100

_CONTROLS = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Control and format characters, lone surrogates, and line and paragraph separators."""

_JOINERS = "\u200c\u200d"
"""Format characters that belong to words and emoji."""


def preview(value: object, room: int, *, markers: Collection[str] = ()) -> str:
    """Return a value as one line that reads like JSON, truncated to ``room`` bytes.

    If an object or a list does not fit, its short members stay whole and its long ones are truncated, at each
    level. Values that are no JSON are named and not shown, except dates, UUIDs, decimals, and the fields of
    dataclasses and pydantic models. Fields with ``repr=False`` are left out.

    Args:
        value: anything; only its iteration is called.
        room: the longest result, in bytes of UTF-8.
        markers: texts that must not occur in the line; texts that begin with ``<`` never do.
    """
    return clip_bytes(_guarded(_Preview(markers).of(value, room, _DEEPEST), markers), room)


def plain(text: str, room: int, *, markers: Collection[str] = ()) -> str:
    """Return text as JSON writes it, without the quotes: one line, truncated to ``room`` bytes of UTF-8."""
    inside = json.dumps(text[: max(room, 0)], ensure_ascii=False)[1:-1]
    return clip_bytes(_guarded(inside, markers) + _CUT * (len(text) > room), room)


def escape_control(text: str) -> str:
    """Return text with escapes for the control characters that a terminal would obey.

    Line feeds and tabs stay, carriage returns are removed. A text that arrives in pieces may be escaped piece
    by piece: each character is escaped by itself.
    """
    text = text.replace("\r", "")
    if text.isprintable():
        return text
    return "".join(_escaped(char) if char not in "\n\t" and _is_control(char) else char for char in text)


def one_line(text: str) -> str:
    """Return text on one line, with escapes for the control characters that a terminal would obey."""
    return " ".join(escape_control(text).split())


def clip(text: str, limit: int) -> str:
    """Return text in at most ``limit`` characters that UTF-8 can encode; a cut ends with "…"."""
    if len(text) > limit:
        text = text[: clip_place(text, limit - 1)] + "…"
    return text if text.isascii() else text.encode(errors="replace").decode()


def clip_place(text: str, limit: int) -> int:
    """Return where to cut a text that is longer than ``limit``.

    The place is the limit, or up to 20 characters before it.

    A cut never parts a letter from its accents, or an emoji from the characters joined to it.
    """
    for end in range(limit, max(0, limit - 20), -1):
        after = text[end]
        is_joined = "\u200d" in (after, text[end - 1])  # zero-width joiner
        is_skin_tone = "\U0001f3fb" <= after <= "\U0001f3ff"
        if not is_joined and not is_skin_tone and not unicodedata.category(after).startswith("M"):
            return end
    return limit


def fit(lines: Sequence[str], limit: int) -> str:
    """Return lines in at most ``limit`` bytes. Long ones are truncated so that short ones stay whole."""
    return clip_bytes("\n".join(map(clip_bytes, lines, shares(lines, limit))), limit)


def shares(lines: Sequence[str], limit: int) -> list[int]:
    """Return the number of bytes that `fit` gives to each line."""
    sizes = [size_of(line) for line in lines]
    room = limit - max(len(lines) - 1, 0)
    for left, index in zip(
        range(len(lines), 0, -1), sorted(range(len(lines)), key=sizes.__getitem__), strict=True
    ):
        sizes[index] = min(sizes[index], max(room, 0) // left)
        room -= sizes[index]
    return sizes


class _Preview:
    """Renders one value: short members stay whole, long ones are truncated.

    No member is measured beyond the room it may take, so the time depends on the room and not on the data.
    """

    def __init__(self, markers: Collection[str]) -> None:
        self._markers = markers

    def of(self, value: object, room: int, depth: int, *, is_member: bool = False) -> str:
        """Return a value in about ``room`` bytes.

        Args:
            value: anything.
            room: the bytes it may take.
            depth: how many levels of it are shown.
            is_member: whether it is a part of another value; if not, the caller truncates the result.
        """
        value = value.value if isinstance(value, Enum) else value
        text = _rendered(value, room, depth)
        if self._size(text) <= room:
            return text
        depth = min(depth, room // _LEVEL)
        if depth > 0 and (inside := _inside(value)) is not None:
            cut, is_row = self._cut(*inside, room, depth - 1)
            return text if is_row and not is_member else cut
        if not is_member:
            return text
        return self._quoted(value if isinstance(value, str) else str(value), room) if text[0] == '"' else _CUT

    def _cut(self, ends: str, members: _Members, room: int, depth: int) -> tuple[str, bool]:
        """Return a value with the members that fit, and whether all are short and some were left out."""
        room -= len(ends)
        chosen, more = self._chosen(members, room, depth)
        if more:
            room -= len(_CUT) + 2
            while chosen and sum(each.least for each in chosen) - 2 > room:
                chosen.pop()
        left = room - sum(self._size(each.head) + 2 for each in chosen) + 2
        pieces = [
            each.head + self.of(each.value, share, depth, is_member=True)
            for each, share in zip(chosen, self._shares(chosen, left, depth), strict=True)
        ]
        text = ", ".join([*pieces, _CUT] if more else pieces)
        return f"{ends[0]}{text}{ends[1]}", more and all(each.size is not None for each in chosen)

    def _chosen(self, members: _Members, room: int, depth: int) -> tuple[list[_Member], bool]:
        """Return the first members that fit with their least size, and whether others were left out."""
        longest = max(room // 2, _NAME)
        of_object, of_list = (max(each, _SHORTEST) for each in (min(room // 8, _LEAST), room // 4))
        chosen: list[_Member] = []
        for key, value in members:
            short = of_list if key is _NO_KEY else of_object
            head = "" if key is _NO_KEY else f"{self.of(key, longest, 0, is_member=True)}: "
            size = self._measured(value, short, depth)
            least = self._size(head) + min(size, short) + 2
            room -= least
            if room < -2:
                return chosen, True
            chosen.append(_Member(head, value, least, size if size <= short else None))
        return chosen, False

    def _shares(self, members: Sequence[_Member], room: int, depth: int) -> list[int]:
        """Return the room of each member: as much as it needs, or an equal share of the rest."""
        sizes = {index: each.size for index, each in enumerate(members) if each.size is not None}
        room -= sum(sizes.values())
        long = [index for index, each in enumerate(members) if each.size is None]
        for _ in range(_ROUNDS):
            share = room // max(len(long), 1)
            measured = {index: self._measured(members[index].value, share, depth) for index in long}
            short = {index: size for index, size in measured.items() if size <= share}
            if not short:
                break
            sizes |= short
            room -= sum(short.values())
            long = [index for index in long if index not in short]
        share = room // max(len(long), 1)
        return [sizes.get(index, share) for index in range(len(members))]

    def _measured(self, value: object, room: int, depth: int) -> int:
        """Return the size of a value, or a number above ``room`` if it is larger."""
        return self._size(_rendered(value, room, depth))

    def _quoted(self, text: str, room: int) -> str:
        """Return the beginning of a text in closed quotes, so that its end is visible."""
        kept = min(len(text), room)
        while kept > 0:
            shown = _as_json(text[:kept]) + _CUT
            if (size := self._size(shown)) <= room:
                return shown
            kept = min(kept - 1, kept * room // size)
        return _CUT

    def _size(self, text: str) -> int:
        return size_of(_guarded(text, self._markers))


_Members = Iterable[tuple[object, object]]
"""The members of a value, each with its name or `_NO_KEY`."""


class _Member(NamedTuple):
    head: str
    """The name, as it is written before the value."""
    value: object
    least: int
    """The least number of bytes it takes."""
    size: int | None
    """The size in bytes; None if the value is long."""


def _inside(value: object) -> tuple[str, _Members] | None:
    """Return the brackets and the members of a value; None if it has none."""
    named = _named(value)
    if named is not None:
        return "{}", named.items()
    if isinstance(value, list | tuple):
        return "[]", ((_NO_KEY, each) for each in cast("Sequence[object]", value))
    if not isinstance(value, set | frozenset) or len(cast("Collection[object]", value)) > _LARGEST_SET:
        return None
    members = sorted(cast("Collection[object]", value), key=lambda each: _rendered(each, _NAME, 1))
    return "[]", ((_NO_KEY, each) for each in members)


def _rendered(value: object, room: int, depth: int) -> str:
    """Return a value as text of at most a few times ``room`` bytes."""
    from decimal import Decimal  # noqa: PLC0415 - like the next, only runs with a payload need it
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
    """Return a set in a stable order: its own order differs from process to process."""
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
        if room < 0:  # the rest would be truncated anyway
            break
    return ", ".join(shown)


def _named(value: object) -> Mapping[object, Any] | None:
    """Return the named members of a value: the items of a mapping, or the fields of an object."""
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
    """Return a number, true, false or null as text; a huge integer, which is slow to write, as its length."""
    if isinstance(value, float) or value is None or abs(value) < _LARGEST_INTEGER:
        return json.dumps(value)
    return f"(a whole number of about {math.floor(value.bit_length() * math.log10(2)) + 1} digits)"


def _quoted(text: str, room: int) -> str:
    return _as_json(text[:room]) + _CUT * (len(text) > room)


def _guarded(line: str, markers: Collection[str]) -> str:
    """Return a line with escapes for invisible characters, line ends, half pairs and starts of markers."""
    firsts = {"<", *(marker[0] for marker in markers if marker)}
    if line.isprintable() and not any(first in line for first in firsts):
        return line
    return "".join(_escaped(char) if char in firsts or _is_control(char) else char for char in line)


def _is_control(char: str) -> bool:
    return not char.isprintable() and char not in _JOINERS and unicodedata.category(char) in _CONTROLS


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if char.isascii() else json.dumps(char)[1:-1]


def clip_bytes(text: str, limit: int, mark: str = _CUT) -> str:
    """Return text truncated to ``limit`` bytes of UTF-8, with ``mark`` at its end where it was cut."""
    if size_of(text) <= limit:
        return text
    data, mark = _bytes(text), mark[: max(limit, 0)]
    end = max(limit - len(mark), 0)
    while 0 < end and data[end] & 0xC0 == 0x80:
        end -= 1  # do not cut a character
    return data[:end].decode("utf-8", "surrogatepass") + mark


def size_of(text: str) -> int:
    """Return the size of text in bytes of UTF-8; half a surrogate pair counts as three."""
    return len(text) if text.isascii() else len(_bytes(text))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


_LEAST_DOLLARS, _MOST_PLACES = 0.0001, 9


def dollars(amount: float) -> str:
    """Return US dollars as text: four decimal places below a dollar, and more if they are all zero."""
    if amount >= 1 or not amount:
        return f"${amount:.2f}"
    places = 4 if amount >= _LEAST_DOLLARS else min(1 - math.floor(math.log10(amount)), _MOST_PLACES)
    return f"${amount:.{places}f}"
