"""The shared memory of a run in its state, and back: scopes, secrets, and the payload of a handoff."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from routelock._copies import unshared
from routelock._redaction import REDACTED
from routelock.context import PAYLOAD_KEY, MemoryScope
from routelock.run.run import Run
from routelock.state.document import RunDocument, StoredScope

__all__ = ["restore_memory", "restore_scopes", "stored_scope", "without_payload"]


def stored_scope(scope: MemoryScope) -> StoredScope:
    """Return a scope with the names of the entries that it has in common with the memory around it."""
    inner, given = without_payload(scope.inner), without_payload(scope.given)
    same = [key for key, value in inner.items() if key in scope.outer and scope.outer[key] is value]
    return StoredScope(
        keys=None if scope.keys is None else [*scope.keys],
        same=same,
        own={key: value for key, value in inner.items() if key not in same},
        given=[*given],
        unchanged=[key for key, value in given.items() if key in inner and inner[key] is value],
    )


def without_payload(memory: Mapping[str, Any]) -> dict[str, Any]:
    """Return a memory without the payload of a handoff."""
    return {key: value for key, value in memory.items() if key != PAYLOAD_KEY}


def restore_memory(run: Run, document: RunDocument) -> None:
    """Restore the memory that the run shares with the app."""
    given, deleted = run.config.shared_memory, document.deleted_keys
    kept = _with_secrets(run, document.shared_memory)
    run.memory.shared = unshared({**{key: given[key] for key in given if key not in deleted}, **kept})
    restore_scopes(run, document)


def _with_secrets(run: Run, kept: dict[str, Any]) -> dict[str, Any]:
    """Return a memory with the app's own values for secrets that were not written."""
    given = run.config.shared_memory
    memory = {key: given[key] if key in given and _is_redacted(kept[key]) else kept[key] for key in kept}
    if gone := [key for key, value in memory.items() if _is_redacted(value)]:
        run.warn(
            f"shared_memory: secrets in {', '.join(map(repr, gone)):.200} were redacted when the state was "
            "written; give them anew with RunConfig(shared_memory=...)"
        )
    return memory


def restore_scopes(run: Run, document: RunDocument) -> None:
    """Restore the part of the memory that the active agent sees, and the payload of its handoff."""
    for stored in document.memory_scopes:
        own = unshared(_with_secrets(run, stored.own))
        scope = _scope(run.memory.shared, replace(stored, own=own))
        run.memory.scopes += (scope,)
        run.memory.shared = scope.inner
    if document.active.payload is not None:
        run.memory.shared[PAYLOAD_KEY] = document.active.payload


def _scope(outer: dict[str, Any], stored: StoredScope) -> MemoryScope:
    inner = {key: outer[key] for key in stored.same if key in outer} | stored.own
    changed = object()  # stands for any value: it is compared with the present one, and never read
    given = {key: inner[key] if key in stored.unchanged and key in inner else changed for key in stored.given}
    return MemoryScope(outer, inner, given, stored.keys)


def _is_redacted(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_is_redacted, cast("dict[str, object]", value).values()))
    if isinstance(value, list):
        return any(map(_is_redacted, cast("list[object]", value)))
    return isinstance(value, str) and REDACTED in value
