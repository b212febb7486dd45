"""What a step gave, as JSON that a journal or an engine keeps, and back.

No exception crosses an engine: on replay it would be of another class, and the run would take another way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from interlock import errors
from interlock.errors import HandlerError, ProviderError
from interlock.events import AttemptFailed, MessageDone
from interlock.usage import Usage

__all__ = ["failure_entry", "reply_entry", "reply_of"]


def reply_entry(done: MessageDone, failed: Sequence[AttemptFailed] = ()) -> str:
    """Return a complete reply as JSON text, and the attempts that failed before it."""
    attempts = [{"attempt": one.attempt, "delay": one.delay, "error": _error(one.error)} for one in failed]
    return json.dumps({"ok": asdict(done), **({"attempts": attempts} if attempts else {})})


def failure_entry(error: Exception) -> str:
    """Return why there is no reply as JSON text."""
    return json.dumps({"err": _error(error)})


def _error(error: Exception) -> dict[str, Any]:
    what: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, ProviderError):
        what |= {
            "status": error.status,
            "retry_after": error.retry_after,
            "provider": error.provider,
            "model": error.model,
            "retryable": error.retryable,
        }
    return what


def reply_of(text: str) -> tuple[Sequence[AttemptFailed], MessageDone | HandlerError]:
    """Return the reply that an entry holds, or the error that it was, and the attempts that failed before."""
    entry: Mapping[str, Any] = json.loads(text)
    if "err" in entry:
        return (), _error_of(entry["err"])
    failed = [
        AttemptFailed(error=_error_of(one["error"]), attempt=one["attempt"], delay=one["delay"])
        for one in entry.get("attempts", ())
    ]
    data = dict(entry["ok"])
    usage = data.pop("usage")
    return failed, MessageDone(**data, usage=None if usage is None else Usage(**usage))


def _error_of(what: Mapping[str, Any]) -> HandlerError:
    kind: object = getattr(errors, what["type"], HandlerError)
    if not (isinstance(kind, type) and issubclass(kind, HandlerError)):
        kind = HandlerError
    rest = {name: value for name, value in what.items() if name not in ("type", "message")}
    if issubclass(kind, ProviderError):
        return kind(what["message"], **rest)
    return kind(what["message"])
