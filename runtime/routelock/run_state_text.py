"""What of a run's document may be written down: JSON, and without secrets."""

from __future__ import annotations

from typing import Any, cast

from routelock._json import check_json, detached, sendable
from routelock._redaction import redact, redact_text
from routelock.errors import ConfigError
from routelock.history.messages import Message
from routelock.run_document import RequestDocument, ResponseDocument, RunDocument

__all__ = ["answer_as_json", "checked_json", "redacted"]


def redacted(document: RunDocument) -> RunDocument:
    """Return a document without the secrets in what it shares, and in what errors say.

    What was said stays to the letter.
    """
    callers = [{**caller, "payload": redact(caller["payload"])} for caller in document["callers"]]
    handoffs = [
        {
            **record,
            "error": _words(record["error"]),
            "request": _without(record["request"]),
            "response": _without(record["response"]),
        }
        for record in document["handoffs"]
    ]
    narrowings = [{**each, "own": redact(each["own"])} for each in document["narrowings"]]
    errors = [{**problem, "message": redact_text(problem["message"])} for problem in document["errors"]]
    hidden: dict[str, Any] = {
        "shared_memory": redact(document["shared_memory"]),
        "payload": redact(document["payload"]),
        "error": _words(document["error"]),
        "errors": errors,
        "callers": callers,
        "handoffs": handoffs,
        "narrowings": narrowings,
    }
    if inner := document.get("within"):
        hidden["within"] = {call_id: redacted(each) for call_id, each in inner.items()}
    return cast(RunDocument, {**document, **hidden})


def _words(error: str | None) -> str | None:
    return None if error is None else redact_text(error)


def _without(said: RequestDocument | ResponseDocument | None) -> dict[str, Any] | None:
    """Return a request or a response without the secrets in its metadata."""
    return None if said is None else {**said, "metadata": redact(said["metadata"])}


def checked_json(document: RunDocument) -> RunDocument:
    """Return a copy of a document that shares nothing with the run that it was made of.

    Half a surrogate pair, which models and tools now and then write, becomes U+FFFD: UTF-8 cannot hold it.

    Raises:
        ConfigError: something in it is no JSON; the message says where.
    """
    try:
        return _checked(document)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"This run has no state that another process could read: {error}. What a run shares "
            "must be JSON; keep other objects in the context."
        ) from error


def answer_as_json(place: int, message: Message) -> Message:
    """Return a copy of an answer of the caller's, as `checked_json` would.

    Raises:
        ConfigError: something in it is no JSON; the message says where.
    """
    try:
        return cast(Message, _checked(cast(Any, message)))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"Answer {place} must be JSON: {error}.") from error


def _checked(document: RunDocument) -> RunDocument:
    try:
        check_json(document)
    except ValueError as error:
        if "surrogate" not in str(error):
            raise
        document = sendable(document)
        check_json(document)
    return detached(document)
