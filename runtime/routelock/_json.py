"""Strict JSON for data that crosses a process boundary: read back as it was written, within limits.

Python's `json` writes tuples as lists, number keys as text, and NaN, which is no JSON. It reads UTF-16, and
input of any size. Here a value that would come back as something else is refused when it is written, and
input that is too large, too deep or no strict JSON is refused when it is read.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from routelock._text import plain

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = [
    "LINE_ENDS",
    "MAX_BYTES",
    "MAX_DEPTH",
    "VERSION_KEY",
    "AnyObject",
    "AnyValue",
    "Compress",
    "OrDefault",
    "check_json",
    "check_version",
    "decode",
    "detached",
    "encode",
    "finite",
    "integral",
    "is_utf8",
    "json_line",
    "misfit_text",
    "misfits",
    "own_copy",
    "prefix_errors",
    "recordable",
    "sendable",
    "sendable_json",
    "unshared",
]


MAX_BYTES = 64 * 1024 * 1024

MAX_DEPTH = 100

Compress = bool | Literal["auto"]
"""Whether to gzip; ``"auto"`` does so above 102,400 bytes, where it begins to pay off."""

VERSION_KEY = "format_version"
"""The key of a document that says in which version of its format it is written."""

_GZIP_ABOVE = 100 * 1024

_GZIP_MAGIC = b"\x1f\x8b"

_GZIP_LEVEL = 6

_MAX_VALUES = 1_000_000
"""The limit for one document. A list of 20 million empty lists fits into 64 MB and takes 1.4 GB in memory."""

_MOST_MISFITS = 10_000

_LONGEST_PLACE = 60

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)

_FINITE = frozenset((str, int, bool, type(None)))

_Path = tuple[str | int, ...]

T = TypeVar("T")


class AnyObject:
    """In `Annotated`: let pydantic pass any JSON object here, because other code checks what is in it."""

    __slots__ = ()

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415 - see `routelock.tools.schema`

        return core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema())


class AnyValue:
    """In `Annotated`: let pydantic pass any value here, because other code checks it."""

    __slots__ = ()

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415

        return core_schema.any_schema()


class OrDefault:
    """In `Annotated`: let pydantic read a value that does not fit as ``default``.

    Args:
        default: the value to use.
        ge: the least number that fits.
    """

    __slots__ = ("_default", "_ge")

    def __init__(self, default: object, *, ge: int | None = None) -> None:
        self._default = default
        self._ge = ge

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415

        schema = handler(source) if self._ge is None else core_schema.int_schema(ge=self._ge, strict=True)
        return core_schema.with_default_schema(schema, default=self._default, on_error="default")


def encode(value: object, *, compress: Compress = "auto", max_bytes: int = MAX_BYTES) -> bytes:
    """Return ``value`` as compact JSON in UTF-8, gzipped on request. The same value gives the same bytes.

    Args:
        value: a value that passed `check_json`.
        compress: see `Compress`.
        max_bytes: the largest size of the JSON before it is compressed.

    Raises:
        ValueError: it is too large, or ``compress`` has another value.
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
        ValueError: the data is no such JSON.
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
        ValueError: it contains something else; the message says where, and shows no value.
    """
    waiting: list[tuple[object, _Path]] = [(value, ())]
    while waiting:
        node, path = waiting.pop()
        if wrong := _wrong(node):
            raise ValueError(f"{_shown(path)}: {wrong}")
        if not isinstance(node, dict | list):
            continue
        if len(path) >= max_depth:
            raise ValueError(f"{_shown(path[:5])}...: {_too_deep(max_depth)}")
        waiting += [(each, (*path, step)) for step, each in _inside(cast(Any, node)) if _is_work(each)]


def check_version(fields: Mapping[str, Any], newest: int) -> None:
    """Check that this code can read a format; a document without a version has the first.

    Args:
        fields: the document.
        newest: the highest version that this code reads.

    Raises:
        ValueError: it is a newer one, or no version at all.
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
    except (ValueError, RecursionError) as error:  # the latter with a max_depth beyond what Python can do
        raise ValueError(f"{what}: {error}.") from error


def misfits(error: ValidationError) -> list[str]:
    """Return what pydantic found wrong: the place of each value and why it does not fit, but no value.

    This goes to logs.
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
    # what a validator of the app says, or pydantic about a tag, may quote the value
    quotes = kind in ("value_error", "assertion_error") or "tag" in kind
    return kind.replace("_", " ") if quotes else plain(message, 100)


def sendable(value: T) -> T:
    """Return JSON data with U+FFFD for each half of a surrogate pair, which UTF-8 cannot encode.

    Models cut emoji in two, and file names may be no UTF-8. Data without such halves is returned as it is.

    Raises:
        RecursionError: data with such a half refers to itself, or is nested too deep.
    """
    if isinstance(value, str):
        return cast(T, _whole_characters(value))
    return cast(T, _rebuilt(value, _whole_characters)) if _has_halves(value) else value


def _has_halves(value: object) -> bool:
    if not isinstance(value, dict | list):
        return False
    try:
        # Python shows each half as an escape, in C; what holds these letters otherwise is read below
        if r"\ud" not in repr(cast(object, value)):
            return False
    except Exception:  # nested too deep, or an object that cannot be shown
        pass
    waiting: list[object] = [cast(object, value)]
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
    # by way of UTF-16, where two halves that fit are one character
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _rebuilt(value: object, change: Callable[[object], object]) -> object:
    """Return JSON data with each value and each key as ``change`` returns it."""
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
"""Half a pair as an escape. The group matches what looks like one and is none: a whole pair, a backslash."""


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


def json_line(value: object) -> str:
    """Return data as one line of JSON, in which no text can begin another line.

    Line separators of Unicode are escaped, and what has no JSON form is written as its ``str``.
    """
    line = _to_json(value)
    return line if line.isascii() else line.translate(LINE_ENDS)


_to_json = json.JSONEncoder(ensure_ascii=False, default=str).encode

LINE_ENDS = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}
"""The letters that some readers take for the end of a line, with their escapes in JSON."""


def recordable(value: object) -> Any:
    """Return a value as JSON data, for a journal. A value without a JSON form becomes text."""
    from pydantic_core import from_json, to_json  # noqa: PLC0415 - see `routelock.tools.schema`

    try:
        return from_json(to_json(value, fallback=str, inf_nan_mode="strings"))
    except ValueError:  # it refers to itself, or has text that is no valid Unicode
        return repr(value)


def integral(value: object) -> object:
    """Return JSON data with an int for each whole float: some readers turn 7 into 7.0."""
    return _rebuilt(value, lambda each: int(each) if isinstance(each, float) and each.is_integer() else each)


def _inside(node: dict[str, object] | list[object]) -> Iterable[tuple[str | int, object]]:
    return node.items() if isinstance(node, dict) else enumerate(node)


def _is_work(value: object) -> bool:
    """Whether a value needs a check; most values are plain text."""
    return not (value is None or (type(value) is str and value.isascii()) or type(value) in (bool, int))


def _wrong(value: object) -> str:
    """Say what JSON would change or refuse about one value, without the values inside of it."""
    if isinstance(value, dict):
        return next((wrong for key in cast("dict[object, object]", value) if (wrong := _wrong_key(key))), "")
    if isinstance(value, str):
        return "" if is_utf8(value) else "half a surrogate pair cannot be sent as UTF-8"
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{value} is no JSON number"
    if value is None or isinstance(value, list | int):
        return ""
    kind = type(value).__name__
    return f"{kind} is no JSON type{'; use a list' if kind in ('tuple', 'set', 'frozenset') else ''}"


def _wrong_key(key: object) -> str:
    if not isinstance(key, str):
        return f"a key must be text, not {type(key).__name__}"
    return "" if is_utf8(key) else "half a surrogate pair in a key cannot be sent as UTF-8"


def is_utf8(text: str) -> bool:
    """Whether UTF-8 can encode a text; it cannot encode half a surrogate pair."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True


def _shown(path: _Path) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{ascii(step)[1:-1]:.60}" for step in path)
    return "".join(steps).lstrip(".") or "the whole"


def _check_size(raw: bytes, max_bytes: int) -> None:
    if len(raw) > max_bytes:
        raise ValueError(_too_long(max_bytes))
    if _values(raw) > _MAX_VALUES and _values(_STRING.sub(b"", raw)) > _MAX_VALUES:
        raise ValueError(f"more than {_MAX_VALUES} values")


def _values(raw: bytes) -> int:
    """Count separators of values, which is cheap; those inside of strings are counted as well."""
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
        raise ValueError("something follows the gzip data")
    return raw


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        [(double, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {double!a:.60} is there twice")
    return found


def _too_long(max_bytes: int) -> str:
    return f"more than {max_bytes} bytes"


def _too_deep(max_depth: int) -> str:
    return f"more than {max_depth} lists and objects inside one another"


# -- copies --

# There are three, because their data differ. In JSON data every mapping becomes a dict. In data of the app
# an object stays itself, such as a connection or a mapping of its own. Of a result that code of the app may
# edit, the objects are copied as well.


def detached(value: T) -> T:
    """Return a copy of JSON data that shares no dict and no list with it; any mapping becomes a dict."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return cast(T, {key: detached(each) for key, each in fields.items()})
    if isinstance(value, list):
        return cast(T, [detached(each) for each in cast("list[Any]", value)])
    return value


def own_copy(value: T) -> T:
    """Return a copy of a value of the app for code that may edit it; objects are copied too.

    An object that cannot be copied is returned as it is.
    """
    if isinstance(value, str):
        return value
    try:
        return deepcopy(value)
    except Exception:  # whatever the app's own types raise
        return unshared(value)


def unshared(value: T) -> T:
    """Return a copy of data that shares no dict, list or set with it; other objects are not copied.

    The data may refer to itself. Data that is nested deeper than Python can follow is returned as it is.
    """
    try:
        return cast(T, _unshared(value, {}))
    except RecursionError:
        return value


def _unshared(value: object, known: dict[int, object]) -> object:
    place = id(value)
    if place in known:
        return known[place]
    if isinstance(value, dict):
        mapping = known[place] = copy(cast("dict[object, object]", value))
        mapping.update({key: _unshared(each, known) for key, each in mapping.items()})
        return mapping
    if isinstance(value, list):
        made = known[place] = copy(cast("list[object]", value))
        made[:] = [_unshared(each, known) for each in made]
        return made
    if type(value) is tuple:
        return tuple(_unshared(each, known) for each in cast("tuple[object, ...]", value))
    return set(cast("set[object]", value)) if type(value) is set else value
