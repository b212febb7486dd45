"""Compares a request with recorded ones, and shows the difference."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import parse_qs, unquote, urlsplit

from routelock._text import preview

__all__ = ["MATCH_ON", "PARTS", "HTTPRequest", "canonical", "difference", "nearest"]


MATCH_ON: Final = ("method", "host", "port", "path", "body")
"""The parts of a request that are compared by default. The query is not among them: it holds keys, API
versions and ``alt=sse``."""

MAX_LINES: Final = 60
"""The longest difference that is shown, in lines."""

_MAX_VALUE = 400
"""Bytes of one value in a difference."""

_STAGE = re.compile(r"/(v\d+)(?:alpha|beta)\d*(?=/|$)")

_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)

_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?")

_CALL_ID_KEYS = frozenset(("tool_call_id", "tool_use_id", "toolUseId", "call_id"))

_RUN_ID = re.compile(r"[0-9a-f]{32}")

_MADE_ID = re.compile(r"^(?:call|toolu|tooluse|fc|msg|rs|resp|chatcmpl)[_-]")

_SENTENCE = re.compile(r"(?<=\n)|(?<=[.!?] )")
"""Matches the places at which a long text, such as a prompt, is broken: after a line or a sentence."""

_LONG_TEXT = 80
"""The most characters of a text that is shown whole; of longer texts only the sentences that differ are
shown."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPRequest:
    """The parts of a scrubbed request that identify it."""

    method: str
    url: str
    body: bytes = b""

    def matches(self, recorded: HTTPRequest, on: Sequence[str] = MATCH_ON) -> bool:
        """Whether these parts, which are names in `PARTS`, are equal to those of the recorded request."""
        for name in on:
            if name == "body" and self.body == recorded.body:
                continue
            if PARTS[name](self) != PARTS[name](recorded):
                return False
        return True


def _host(asked: HTTPRequest) -> str:
    return (urlsplit(asked.url).hostname or "").lower()


def _port(asked: HTTPRequest) -> int | None:
    parts = urlsplit(asked.url)
    return parts.port or _PORTS.get(parts.scheme)


def _path(asked: HTTPRequest) -> str:
    return _STAGE.sub(r"/\1", unquote(urlsplit(asked.url).path)) or "/"


def _query(asked: HTTPRequest) -> dict[str, list[str]]:
    return parse_qs(urlsplit(asked.url).query, keep_blank_values=True)


PARTS: Final[Mapping[str, Callable[[HTTPRequest], object]]] = {
    "method": lambda asked: asked.method.upper(),
    "scheme": lambda asked: urlsplit(asked.url).scheme,
    "host": _host,
    "port": _port,
    "path": _path,
    "query": _query,
    "uri": lambda asked: asked.url,
    "body": lambda asked: canonical(asked.body),
}
"""The parts of a request that can be compared, by vcrpy's names.

A path is compared without an API's stage: ``/v1beta/`` and ``/v1alpha/`` are ``/v1/``, because LiteLLM moves
Gemini and Vertex between these from one release to the next. A body is compared as `canonical` returns it.
"""


def canonical(body: bytes) -> object:
    """Return a body without everything that may differ from one run to the next.

    In JSON, keys and tools are sorted; call ids become the number of their first appearance; UUIDs, run ids
    and points in time become placeholders; JSON text in ``arguments`` is parsed. Other bodies are returned as
    text.
    """
    try:
        parsed: object = json.loads(body)
    except ValueError:
        return _without_moments(body.decode("utf-8", "replace"))
    return _Canonical().of(parsed)


class _Canonical:
    def __init__(self) -> None:
        self.ids: dict[str, str] = {}

    def of(self, value: object, key: str = "") -> object:
        if isinstance(value, dict):
            fields = cast("dict[str, object]", value)
            return {name: self.of(fields[name], name) for name in sorted(fields)}
        if isinstance(value, list):
            items = [self.of(item, key) for item in cast("list[object]", value)]
            return sorted(items, key=_tool_name) if key == "tools" else items
        return self.text(value, key) if isinstance(value, str) else value

    def text(self, value: str, key: str) -> object:
        if key in _CALL_ID_KEYS or (key == "id" and _MADE_ID.match(value)):
            return self.ids.setdefault(value, f"<id {len(self.ids) + 1}>")
        if key == "run_id" and _RUN_ID.fullmatch(value):
            return "<run>"  # RemoteAgent sends the id of the run
        if key == "arguments":
            try:
                return self.of(json.loads(value))
            except (ValueError, RecursionError):
                pass  # broken JSON is compared as text
        return _without_moments(value)


def _tool_name(tool: object) -> str:
    fields = cast("dict[str, Any]", tool) if isinstance(tool, dict) else {}
    function = fields.get("function")
    named = cast("dict[str, Any]", function) if isinstance(function, dict) else fields
    return f"{named.get('name', '')} {json.dumps(tool, sort_keys=True)}"


def _without_moments(text: str) -> str:
    return _MOMENT.sub("<time>", _UUID.sub("<uuid>", text))


def nearest(asked: HTTPRequest, recorded: Sequence[HTTPRequest]) -> int | None:
    """Return the index of the recorded request that is most like this one; None without any."""
    wanted = _lines(asked)

    def likeness(index: int) -> tuple[int, float]:
        other = recorded[index]
        same = sum(PARTS[name](asked) == PARTS[name](other) for name in ("method", "host", "path"))
        return same, difflib.SequenceMatcher(None, wanted, _lines(other), autojunk=False).ratio()

    return max(range(len(recorded)), key=likeness, default=None)


def _lines(asked: HTTPRequest) -> list[str]:
    body = canonical(asked.body)
    shown = body if isinstance(body, str) else json.dumps(body, indent=1)
    return [part for line in shown.splitlines() for part in re.split(r"(?<=\\n)|(?<=[.!?] )", line)]


def difference(recorded: HTTPRequest, asked: HTTPRequest, on: Sequence[str] = MATCH_ON) -> str:
    """Return what differs, one value below another; empty if the requests match.

    Each value stands below its name, or below its path in the body, such as ``$.messages[1].content``. The
    recorded value follows ``-``, the value of the new request ``+``.
    """
    lines: list[str] = []
    for name in on:
        ours, theirs = PARTS[name](asked), PARTS[name](recorded)
        if ours != theirs:
            for path, old, new in _changes(theirs, ours, "$" if name == "body" else name):
                lines += [path, *(f"  - {one}" for one in old), *(f"  + {one}" for one in new)]
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"... and {len(lines) - MAX_LINES} more lines"]
    return "\n".join(lines)


_Change = tuple[str, list[str], list[str]]
"""A path, the recorded values there, and those that were asked."""


def _changes(old: object, new: object, path: str) -> Iterator[_Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _changed_fields(cast("dict[str, object]", old), cast("dict[str, object]", new), path)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _changed_items(cast("list[object]", old), cast("list[object]", new), path)
    elif isinstance(old, str) and isinstance(new, str):
        yield path, *_changed_text(old, new)
    else:
        yield path, [_shown(old)], [_shown(new)]


def _changed_fields(old: dict[str, object], new: dict[str, object], path: str) -> Iterator[_Change]:
    for key in sorted(old.keys() | new.keys()):
        here = f"{path}.{key}" if _PLAIN_KEY.fullmatch(key) else f"{path}[{json.dumps(key)}]"
        if key not in new:
            yield here, [_shown(old[key])], []
        elif key not in old:
            yield here, [], [_shown(new[key])]
        elif old[key] != new[key]:
            yield from _changes(old[key], new[key], here)


def _changed_items(old: list[object], new: list[object], path: str) -> Iterator[_Change]:
    """Yield the items that were changed, removed or added; a removed item has its index in the recording."""
    for _, first, end, start, stop in _edits([*map(json.dumps, old)], [*map(json.dumps, new)]):
        both = min(end - first, stop - start)
        for ahead in range(both):
            yield from _changes(old[first + ahead], new[start + ahead], f"{path}[{start + ahead}]")
        for index in range(first + both, end):
            yield f"{path}[{index}]", [_shown(old[index])], []
        for index in range(start + both, stop):
            yield f"{path}[{index}]", [], [_shown(new[index])]


def _changed_text(old: str, new: str) -> tuple[list[str], list[str]]:
    """Return the texts, or those of their sentences that differ if they are long."""
    if max(len(old), len(new)) <= _LONG_TEXT:
        return [_shown(old)], [_shown(new)]
    before, after = _SENTENCE.split(old), _SENTENCE.split(new)
    gone: list[str] = []
    come: list[str] = []
    for _, first, end, start, stop in _edits(before, after):
        gone += [_shown(part) for part in before[first:end]]
        come += [_shown(part) for part in after[start:stop]]
    return gone, come


def _edits(old: list[str], new: list[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield the edits that turn the old list into the new one."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return (edit for edit in matcher.get_opcodes() if edit[0] != "equal")


def _shown(value: Any) -> str:
    # a developer reads it, and no model that would take a tag for one of the runtime's
    return preview(value, _MAX_VALUE).replace("\\u003c", "<")
