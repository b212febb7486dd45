"""What a step gave, as JSON that a journal or an engine keeps, and back.

No exception crosses an engine: on replay it would be of another class, and the run would take another way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from routelock import errors
from routelock.errors import HandlerError, HandoffTimeout, ProviderError, RoutelockError
from routelock.handlers.events import AttemptFailed, HandlerEvent, MessageDone, TextDelta
from routelock.handlers.replies import reply_problem
from routelock.run.executor import Call
from routelock.tools.invoke import reason_of
from routelock.usage import Usage

__all__ = ["ModelStep", "recorded_error"]


@dataclass(slots=True)
class ModelStep:
    """What a model step gave, so far: all of it that a run goes on with."""

    attempts: list[tuple[ModelStep, AttemptFailed]] = field(default_factory=lambda: [])
    """Those that failed, and what each had given; all that is kept of its text is whether there was any."""
    text: list[str] = field(default_factory=lambda: [])
    """That of the attempt that goes on, in pieces; of one that comes to its end the message has it."""
    done: MessageDone | None = None
    error: Exception | None = None
    """What the step raised, as `recorded_error` returns it."""

    @classmethod
    def from_json(cls, entry: str) -> ModelStep:
        """Return the step that an entry holds."""
        return cls._from_document(json.loads(entry))

    @classmethod
    def _from_document(cls, kept: Mapping[str, Any]) -> ModelStep:
        step = cls(text=[kept["text"]] if "text" in kept else [])
        for one in kept.get("attempts", ()):
            error = _handler_error(one["err"])
            failed = AttemptFailed(error=error, attempt=one["attempt"], delay=one["delay"])
            step.attempts.append((cls._from_document(one), failed))
        if "err" in kept:
            step.error = _error_of(kept["err"])
        if "ok" in kept:
            data = dict(kept["ok"])
            usage = data.pop("usage")
            step.done = MessageDone(**data, usage=None if usage is None else Usage(**usage))
        return step

    def note(self, event: HandlerEvent) -> None:
        """Note what comes next."""
        if isinstance(event, AttemptFailed):
            before = ModelStep(text=[""] if self.text else [], done=self.done, error=event.error)
            self.attempts.append((before, event))
            self.text, self.done = [], None
        elif isinstance(event, TextDelta):
            self.text.append(event.text)
        elif isinstance(event, MessageDone):
            self.done = event
        elif not self.text:
            self.text.append("")  # nothing to keep, but something was shown

    def events(self) -> list[HandlerEvent]:
        """Return what a run is told of it before the error, if there is one."""
        events: list[HandlerEvent] = []
        for before, failed in self.attempts:
            events += [*before.events(), failed]
        events += map(TextDelta, self._unfinished())
        return events if self.done is None else [*events, self.done]

    def to_json(self) -> str:
        """Return it as JSON text."""
        return json.dumps(self._document(), default=asdict)

    def _document(self) -> dict[str, Any]:
        what: dict[str, Any] = {}
        if self.attempts:
            what["attempts"] = [
                {"attempt": failed.attempt, "delay": failed.delay, **before._document()}
                for before, failed in self.attempts
            ]
        if self.done is not None:
            what["ok"] = {each.name: getattr(self.done, each.name) for each in fields(self.done)}
        if self.error is not None:
            what["err"] = _error(self.error)
        if text := self._unfinished():
            what["text"] = "".join(text)
        return what

    def _unfinished(self) -> list[str]:
        """Return the text that no reply has: there is none, it was not the end, or it is no message."""
        whole = self.done is not None and self.error is None and not reply_problem(self.done.message)
        return [] if whole else self.text


def recorded_error(error: Exception, call: Call) -> HandlerError | HandoffTimeout | None:
    """Return an error of a model step as it is kept, if a run may go on after it, another way.

    What a handler of the app raises, or a run within it, is a failure of that handler. None: the run ends.

    Args:
        error: what the step raised.
        call: the step.
    """
    if isinstance(error, HandlerError | HandoffTimeout):
        return error
    if isinstance(error, AssertionError) or (isinstance(error, RoutelockError) and error.result is None):
        return None
    handler, agent = call.args["handler"], call.args["agent"]
    kept = HandlerError(f"Handler {handler!r} of agent {agent!r} raised {reason_of(error)}")
    kept.__cause__ = error
    return kept


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
    elif isinstance(error, HandoffTimeout):
        what |= {"call_id": error.call_id, "asked": error.asked}
    return what


def _error_of(what: Mapping[str, Any]) -> Exception:
    if what["type"] != HandoffTimeout.__name__:
        return _handler_error(what)
    late = HandoffTimeout(what["message"])
    late.call_id, late.asked = what["call_id"], what["asked"]
    return late


def _handler_error(what: Mapping[str, Any]) -> HandlerError:
    kind: object = getattr(errors, what["type"], HandlerError)
    if not (isinstance(kind, type) and issubclass(kind, HandlerError)):
        kind = HandlerError
    rest = {name: value for name, value in what.items() if name not in ("type", "message")}
    if issubclass(kind, ProviderError):
        return kind(what["message"], **rest)
    return kind(what["message"])
