"""The state that client and agents share, and the events of its changes. No input or output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic_core import to_jsonable_python

__all__ = ["SharedState"]


_Object = Mapping[str, object]

_Operation = Mapping[str, Any]

_REFUSED = frozenset(("__proto__", "constructor", "prototype"))
"""Names that the clients' library for JSON Patch refuses in a path."""


class _NoPatchError(Exception):
    """A change that has no patch which every client can apply."""


class SharedState:
    """The state as the client of one run knows it.

    The first change in a run is sent as the whole state, the later ones as a patch, unless that is
    longer than the state.

    Args:
        known: the state that the client sent.
    """

    def __init__(self, known: Any) -> None:
        self._known = known
        self._is_sent = False

    def change(self, state: object) -> list[dict[str, Any]]:
        """Return the event of a change; none if the client knows the state already."""
        now: Any = to_jsonable_python(state, fallback=str, inf_nan_mode="null")
        if json.dumps(now, sort_keys=True) == json.dumps(self._known, sort_keys=True):
            return []
        before, self._known = self._known, now
        patch = _patch(before, now) if self._is_sent else None
        self._is_sent = True
        if patch is None or len(json.dumps(patch)) >= len(json.dumps(now)):
            return [{"type": "STATE_SNAPSHOT", "snapshot": now}]
        return [{"type": "STATE_DELTA", "delta": patch}]


def _patch(before: Any, now: Any) -> list[_Operation] | None:
    """Return the JSON Patch (RFC 6902) from one value to another; None if the whole has to be sent."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return None
    try:
        return [*_of_objects(cast("_Object", before), cast("_Object", now), "")]
    except _NoPatchError:
        return None


def _operations(before: object, now: object, path: str) -> Iterator[_Operation]:
    if isinstance(before, dict) and isinstance(now, dict):
        yield from _of_objects(cast("_Object", before), cast("_Object", now), path)
    elif isinstance(before, list) and isinstance(now, list):
        yield from _of_lists(cast("list[object]", before), cast("list[object]", now), path)
    elif _differ(before, now):
        yield {"op": "replace", "path": path, "value": now}


def _differ(before: Any, now: Any) -> bool:
    return isinstance(before, bool) is not isinstance(now, bool) or before != now  # True == 1


def _of_objects(before: Mapping[str, object], now: Mapping[str, object], path: str) -> Iterator[_Operation]:
    for name in before:
        if name not in now:
            yield {"op": "remove", "path": _below(path, name)}
    for name, value in now.items():
        if name in before:
            yield from _operations(before[name], value, _below(path, name))
        else:
            yield {"op": "add", "path": _below(path, name), "value": value}


def _of_lists(before: Sequence[object], now: Sequence[object], path: str) -> Iterator[_Operation]:
    for place, (old, new) in enumerate(zip(before, now, strict=False)):
        yield from _operations(old, new, f"{path}/{place}")
    for place in range(len(before) - 1, len(now) - 1, -1):
        yield {"op": "remove", "path": f"{path}/{place}"}
    for value in now[len(before) :]:
        yield {"op": "add", "path": f"{path}/-", "value": value}


def _below(path: str, name: str) -> str:
    if name in _REFUSED:
        raise _NoPatchError
    return f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
