"""Strict JSON for data that crosses a process boundary: read back as it was written, within limits.

Python's `json` writes tuples as lists, number keys as text, and NaN, which is no JSON. It reads UTF-16, and
input of any size. Here a value that would come back as something else is refused when it is written. Input
that is too large, too deep or not strict JSON is refused when it is read.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

from routelock._sendable import is_utf8
from routelock._text import plain

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "VERSION_KEY",
    "Compress",
    "check_json",
    "check_version",
    "decode",
    "encode",
    "misfit_text",
    "misfits",
    "prefix_errors",
]


MAX_BYTES = 64 * 1024 * 1024


MAX_DEPTH = 100


Compress = bool | Literal["auto"]
"""Whether to gzip; ``"auto"`` does so above 102,400 bytes, where it begins to pay off."""


VERSION_KEY = "format_version"
"""The key for the version of a document's format."""


_GZIP_ABOVE = 100 * 1024


_GZIP_MAGIC = b"\x1f\x8b"


_GZIP_LEVEL = 6


_MAX_VALUES = 1_000_000
"""The most values in one document. 20 million empty lists fit into 64 MB and take 1.4 GB in memory."""


_MOST_MISFITS = 10_000


_LONGEST_PLACE = 60


_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


_Path = tuple[str | int, ...]


def encode(value: object, *, compress: Compress = "auto", max_bytes: int = MAX_BYTES) -> bytes:
    """Return ``value`` as compact JSON in UTF-8, gzipped on request. The same value gives the same bytes.

    Args:
        value: a value that passed `check_json`.
        compress: see `Compress`.
        max_bytes: the largest size of the JSON before it is compressed.

    Raises:
        ValueError: the JSON is too large, or ``compress`` is none of the values of `Compress`.
    """
    if compress not in ("auto", True, False):
        raise ValueError(f"compress must be 'auto', True or False, not {compress!r:.40}")
    data = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    _check_size(data, max_bytes)
    if compress is True or (compress == "auto" and len(data) > _GZIP_ABOVE):
        return gzip.compress(data, _GZIP_LEVEL, mtime=0)
    return data


def decode(
    data: bytes | bytearray | memoryview,
    *,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
    unique_keys: bool = True,
) -> object:
    """Return the value of JSON bytes, gzipped or not.

    Args:
        data: JSON in UTF-8, plain or gzipped.
        max_bytes: the largest size, both compressed and decompressed.
        max_depth: how many lists and dicts may be nested.
        unique_keys: whether to refuse an object with a key that occurs twice; otherwise the last one counts.

    Raises:
        ValueError: the data is not JSON, or exceeds a limit.
    """
    if not isinstance(cast(object, data), bytes | bytearray | memoryview):
        raise ValueError(f"expected bytes, not {type(data).__name__}")
    if max_bytes < 1:
        raise ValueError(f"max_bytes must be at least 1, not {max_bytes}")
    if len(data) > max_bytes:
        raise ValueError(_too_long(max_bytes))
    raw = bytes(data)
    if raw.startswith(_GZIP_MAGIC):
        raw = _unzipped(raw, max_bytes)
    _check_size(raw, max_bytes)
    try:
        value: object = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique if unique_keys else None)
    except RecursionError as error:
        raise ValueError(_too_deep(max_depth)) from error
    check_json(value, max_depth)
    return value


def check_json(value: object, max_depth: int = MAX_DEPTH) -> None:
    """Check that JSON gives back exactly this value.

    Args:
        value: dicts with text as keys, lists, text, finite numbers, bools and None pass.
        max_depth: how many lists and dicts may be nested.

    Raises:
        ValueError: the value contains something else; the message says where, and shows no value.
    """
    waiting: list[tuple[object, _Path]] = [(value, ())]
    while waiting:
        node, path = waiting.pop()
        if wrong := _problem(node):
            raise ValueError(f"{_shown(path)}: {wrong}")
        if not isinstance(node, dict | list):
            continue
        if len(path) >= max_depth:
            raise ValueError(f"{_shown(path[:5])}...: {_too_deep(max_depth)}")
        waiting += [(each, (*path, step)) for step, each in _inside(cast(Any, node)) if _needs_check(each)]


def check_version(fields: Mapping[str, Any], newest: int) -> None:
    """Check that this code can read a format; a document without a version has the first.

    Args:
        fields: the document.
        newest: the highest version that this code reads.

    Raises:
        ValueError: the version is newer, or is not a whole number from 1 on.
    """
    version: object = fields.get(VERSION_KEY, 1)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"{VERSION_KEY} must be a whole number from 1 on")
    if version > newest:
        raise ValueError(
            f"it has {VERSION_KEY} {version!s:.20}, and this routelock reads up to {newest}; "
            "update routelock here, or have the sender write the older format"
        )


@contextmanager
def prefix_errors(what: str) -> Generator[None]:
    """Turn a `ValueError` or a `RecursionError` inside into a `ValueError` that begins with ``what``."""
    try:
        yield
    except (ValueError, RecursionError) as error:  # RecursionError: max_depth is above Python's own limit
        raise ValueError(f"{what}: {error}.") from error


def misfits(error: ValidationError) -> list[str]:
    """Return what pydantic found wrong: where each value is, and why it does not fit.

    The values themselves are left out, because the text goes to logs.
    """
    if error.error_count() > _MOST_MISFITS:  # to list them takes longer than to read the data
        return [f"{error.error_count()} values do not fit"]
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [f"{_place(each['loc'])}: {_complaint(each['type'], each['msg'])}" for each in found]


def misfit_text(error: ValidationError, most: int = 5) -> str:
    """Return the first misfits as one line, and how many more there are."""
    found = misfits(error)
    more = len(found) - most
    return "; ".join([*found[:most], f"and {more} more"] if more > 0 else found)


def _place(path: Iterable[int | str]) -> str:
    return plain(".".join(map(str, path)), _LONGEST_PLACE) or "the whole"


def _complaint(kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return "there is no such field"
    # messages of the app's validators, and pydantic's messages about a tag, may quote the value
    quotes = kind in ("value_error", "assertion_error") or "tag" in kind
    return kind.replace("_", " ") if quotes else plain(message, 100)


def _inside(node: dict[str, object] | list[object]) -> Iterable[tuple[str | int, object]]:
    return node.items() if isinstance(node, dict) else enumerate(node)


def _needs_check(value: object) -> bool:
    """Whether a value needs a check; most values are plain text."""
    return not (value is None or (type(value) is str and value.isascii()) or type(value) in (bool, int))


def _problem(value: object) -> str:
    """Return what JSON would change or refuse about one value; an empty text if nothing.

    The values inside a list or a dict are checked on their own.
    """
    if isinstance(value, dict):
        return next(
            (wrong for key in cast("dict[object, object]", value) if (wrong := _key_problem(key))), ""
        )
    if isinstance(value, str):
        return "" if is_utf8(value) else "half a surrogate pair cannot be sent as UTF-8"
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{value} is no JSON number"
    if value is None or isinstance(value, list | int):
        return ""
    kind = type(value).__name__
    return f"{kind} is no JSON type{'; use a list' if kind in ('tuple', 'set', 'frozenset') else ''}"


def _key_problem(key: object) -> str:
    if not isinstance(key, str):
        return f"a key must be text, not {type(key).__name__}"
    return "" if is_utf8(key) else "half a surrogate pair in a key cannot be sent as UTF-8"


def _shown(path: _Path) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{ascii(step)[1:-1]:.60}" for step in path)
    return "".join(steps).lstrip(".") or "the whole"


def _check_size(raw: bytes, max_bytes: int) -> None:
    if len(raw) > max_bytes:
        raise ValueError(_too_long(max_bytes))
    if _most_values(raw) > _MAX_VALUES and _most_values(_STRING.sub(b"", raw)) > _MAX_VALUES:
        raise ValueError(f"more than {_MAX_VALUES} values")


def _most_values(raw: bytes) -> int:
    """Return the most values that JSON may hold, by a cheap count of separators, also inside strings."""
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def _unzipped(data: bytes, max_bytes: int) -> bytes:
    unzip = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        raw = unzip.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise ValueError(f"the gzip data is broken: {error}") from error
    if len(raw) > max_bytes:
        raise ValueError(_too_long(max_bytes))
    if not unzip.eof:
        raise ValueError("the gzip data ends too early")
    if unzip.unused_data:
        raise ValueError("more bytes follow the gzip data")
    return raw


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        [(double, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {double!a:.60} occurs twice")
    return found


def _too_long(max_bytes: int) -> str:
    return f"more than {max_bytes} bytes"


def _too_deep(max_depth: int) -> str:
    return f"lists and objects are nested more than {max_depth} deep"
