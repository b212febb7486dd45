"""Values that arrive in pieces: kept whole whatever their keys, and in linear time.

A provider must get back what it sent, also under keys that routelock does not know. Pieces of text
are joined, lists grow, dicts are merged, and of anything else the last value stands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeGuard, cast

__all__ = ["Pieces", "add_blocks", "continues", "joined", "merge", "merge_others", "own", "together"]

_Json = Mapping[str, Any]

_LABELS = frozenset(
    ("id", "type", "role", "name", "index", "format", "status", "signature", "channel", "phase", "object")
)
"""Strings under these keys are said again rather than continued."""

_GROWING = frozenset(("thinking", "reasoning.text", "reasoning.summary"))
"""Blocks of these types arrive in pieces; any other block is whole."""


class Pieces(list[str]):
    """Text that is still growing. It is joined once, at the end: long streams stay linear."""

    __slots__ = ()


def merge(into: dict[str, Any], key: str, value: object) -> None:
    """Add one more piece of a value to what ``into`` holds of it. Empty pieces say nothing."""
    if not value and value in (None, "", [], {}):
        return
    held: object = into.get(key)
    if isinstance(value, Mapping):
        branch = dict(cast("_Json", held)) if isinstance(held, dict) else {}
        merge_others(branch, cast("_Json", value))
        if not branch:  # {"refusal": None}, which litellm adds to whole replies and not to streamed ones
            return
        value = branch
    elif _is_list(value):
        if _is_list(held):
            held.extend(value)
            return
        value = [*value]
    elif isinstance(value, str) and key not in _LABELS and isinstance(held, str | Pieces):
        value = _continued(held, value)
    into[key] = value


def merge_others(into: dict[str, Any], source: _Json, known: Collection[str] = ()) -> None:
    """Merge every key of ``source`` that is not among ``known``."""
    for key, value in source.items():
        if key not in known:
            merge(into, key, value)


def add_blocks(blocks: list[dict[str, Any]], more: Iterable[_Json] | None, text: str) -> str:
    """Add reasoning blocks to ``blocks``, joining the pieces of one.

    Args:
        blocks: what was kept until now; it grows.
        more: the new blocks, or None.
        text: the key under which such a block carries its text.

    Returns:
        The text that was new.
    """
    fresh = ""
    for block in more or ():
        fresh += str(block.get(text) or "")
        if blocks and continues(blocks[-1], block):
            merge_others(blocks[-1], block)
        else:
            blocks.append(own(block))
    return fresh


def continues(last: _Json, block: _Json) -> bool:
    """Whether ``block`` is the next piece of ``last``. A signature closes its block."""
    same = last.get("type") == block.get("type") and last.get("index") == block.get("index")
    return same and block.get("type") in _GROWING and not last.get("signature")


def own(block: _Json) -> dict[str, Any]:
    """Return a copy that may grow: the lists of a chunk belong to whoever sent it."""
    return {key: [*part] if isinstance(part, list) else part for key, part in block.items()}


def together(pieces: Iterable[str]) -> str:
    """Return text that came in pieces. A character that was cut in two is whole again.

    Servers that cut by UTF-16 units send one half of an emoji (U+D83D) and the other with the next piece.
    Half a pair that stays alone is left as it is.
    """
    text = "".join(pieces)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def joined(value: _Json) -> dict[str, Any]:
    """Return a plain dict with all text joined."""
    return {key: _join(part) for key, part in value.items()}


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and not isinstance(value, Pieces)


def _join(value: object) -> object:
    if isinstance(value, Pieces):
        return together(value)
    return joined(cast("_Json", value)) if isinstance(value, dict) else value


def _continued(held: str | Pieces, value: str) -> Pieces:
    pieces = held if isinstance(held, Pieces) else Pieces((held,))
    pieces.append(value)
    return pieces
