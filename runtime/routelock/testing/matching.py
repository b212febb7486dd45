"""When a request is the one that was recorded, and what differs when it is not. Pure functions."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote, urlsplit

__all__ = ["Asked", "canonical", "difference", "nearest"]

_STAGE = re.compile(r"/(v\d+)(?:alpha|beta)\d*(?=/|$)")
_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)
_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?")
_CALL_ID_KEYS = frozenset(("tool_call_id", "tool_use_id", "toolUseId", "call_id"))
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_MADE_ID = re.compile(r"^(?:call|toolu|tooluse|fc|msg|rs|resp|chatcmpl)[_-]")
_LONG = re.compile(r"(?<=.{60}\\n)|(?<=.{60}[.!?] )")
"""Where a long line is parted, which may hold a whole prompt: after a line of it, or a sentence."""

MAX_LINES = 60
"""A difference is cut after this many lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What identifies a request; secrets are scrubbed before it is made."""

    method: str
    url: str
    body: bytes = b""

    @property
    def place(self) -> tuple[str, str, str]:
        """Method, host and path, without an API's stage: ``/v1beta/`` and ``/v1alpha/`` are ``/v1/``.

        LiteLLM moves Gemini and Vertex between these from one release to the next. The query is
        left out: what it holds is keys, API versions and ``alt=sse``.
        """
        parts = urlsplit(self.url)
        return self.method.upper(), (parts.netloc.rpartition("@")[2]).lower(), _path(parts.path)

    def matches(self, recorded: Asked, *, body: bool) -> bool:
        """Whether this is the request that was recorded; ``body`` compares the canonical bodies too."""
        if self.place != recorded.place:
            return False
        return not body or self.body == recorded.body or canonical(self.body) == canonical(recorded.body)


def _path(path: str) -> str:
    return _STAGE.sub(r"/\1", unquote(path)) or "/"


def canonical(body: bytes) -> object:
    """Return a body with everything out of it that may differ from one run to the next.

    In JSON, the order of keys and of tools does not count; call ids become the number of their
    first appearance; UUIDs, ids of runs and points in time become placeholders; JSON text in ``arguments`` is
    read. What is not JSON is returned as text.
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
            return "<run>"  # which RemoteAgent sends
        if key == "arguments":
            try:
                return self.of(json.loads(value))
            except (ValueError, RecursionError):
                pass  # broken JSON is compared as it stands
        return _without_moments(value)


def _tool_name(tool: object) -> str:
    fields = cast("dict[str, Any]", tool) if isinstance(tool, dict) else {}
    function = fields.get("function")
    named = cast("dict[str, Any]", function) if isinstance(function, dict) else fields
    return f"{named.get('name', '')} {json.dumps(tool, sort_keys=True)}"


def _without_moments(text: str) -> str:
    return _MOMENT.sub("<time>", _UUID.sub("<uuid>", text))


def _lines(asked: Asked) -> list[str]:
    body = canonical(asked.body)
    shown = body if isinstance(body, str) else json.dumps(body, indent=2, ensure_ascii=False)
    return [" ".join(asked.place), *(part for line in shown.splitlines() for part in _LONG.split(line))]


def nearest(asked: Asked, recorded: Sequence[Asked]) -> int | None:
    """Return the place of the recorded request that is most like this one, or None of none."""
    wanted = _lines(asked)

    def likeness(index: int) -> tuple[int, float]:
        other = recorded[index]
        same = sum(ours == theirs for ours, theirs in zip(asked.place, other.place, strict=True))
        return same, difflib.SequenceMatcher(None, wanted, _lines(other), autojunk=False).ratio()

    return max(range(len(recorded)), key=likeness, default=None)


def difference(recorded: Asked, asked: Asked) -> str:
    """Return what differs, as a unified diff of the canonical requests; empty when nothing does."""
    compared = difflib.unified_diff(_lines(recorded), _lines(asked), "recorded", "asked", lineterm="", n=2)
    lines = list(compared)
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"... and {len(lines) - MAX_LINES} more lines"]
    return "\n".join(lines)
