"""What a model step gave, as JSON that a journal or an engine keeps, and back.

It is under ``ok`` or ``err``, as the outcome of a tool step is. No exception crosses an engine: on replay it
would be of another class, and the run would take another way.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, cast

import pydantic

from routelock import errors
from routelock.errors import HandlerError, HandoffTimeout, ProviderError, RoutelockError
from routelock.handlers.events import AttemptFailed, HandlerEvent, MessageDone, TextDelta
from routelock.handlers.replies import reply_problem
from routelock.run.executor import Call
from routelock.tools.invoke import reason_of

__all__ = ["ModelStep", "recorded_error"]


_OF_PROVIDERS = ("status", "retry_after", "provider", "model", "retryable")

_OF_TIMEOUTS = ("call_id", "asked")


def _error_data(error: Exception) -> dict[str, Any]:
    names: tuple[str, ...] = ()
    if isinstance(error, ProviderError):
        names = _OF_PROVIDERS
    elif isinstance(error, HandoffTimeout):
        names = _OF_TIMEOUTS
    known = {name: getattr(error, name) for name in names}
    return {"type": type(error).__name__, "message": str(error), **known}


def _read_error(data: Any) -> Exception:
    if isinstance(data, Exception):
        return data
    known = cast("Mapping[str, Any]", data)
    kind: object = getattr(errors, known["type"], HandlerError)
    if kind is HandoffTimeout:
        late = HandoffTimeout(known["message"])
        late.call_id, late.asked = known["call_id"], known["asked"]
        return late
    if not (isinstance(kind, type) and issubclass(kind, HandlerError)):
        kind = HandlerError
    if issubclass(kind, ProviderError):
        return kind(known["message"], **{name: known[name] for name in _OF_PROVIDERS})
    return kind(known["message"])


_Error = Annotated[Exception, pydantic.PlainValidator(_read_error), pydantic.PlainSerializer(_error_data)]


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """What one attempt at a model call gave."""

    text: list[str] = field(default_factory=lambda: [])
    """Its text, in pieces."""
    done: Annotated[MessageDone | None, pydantic.Field(alias="ok")] = None
    error: Annotated[_Error | None, pydantic.Field(alias="err")] = None

    def events(self) -> list[HandlerEvent]:
        """Return what a run is told of it before the error, if there is one."""
        events: list[HandlerEvent] = [*map(TextDelta, self._unfinished())]
        return events if self.done is None else [*events, self.done]

    def _unfinished(self) -> list[str]:
        """Return the text that no reply has: there is none, it was not the end, or it is no message."""
        whole = self.done is not None and self.error is None and not reply_problem(self.done.message)
        return [] if whole else self.text


@dataclass(slots=True, kw_only=True)
class _FailedAttempt(_Attempt):
    """An attempt after which there was another one. It keeps whether there was text, and not which."""

    attempt: int
    delay: float

    def events(self) -> list[HandlerEvent]:
        """Return what a run is told of it."""
        assert self.error is not None
        failed = AttemptFailed(error=self.error, attempt=self.attempt, delay=self.delay)
        return [*_Attempt.events(self), failed]


@dataclass(slots=True, kw_only=True)
class ModelStep(_Attempt):
    """What a model step gave, so far: all of it that a run goes on with.

    Its ``error`` is as `recorded_error` returns it.
    """

    attempts: list[_FailedAttempt] = field(default_factory=lambda: [])
    """The attempts that failed before."""

    @classmethod
    def from_json(cls, entry: str) -> ModelStep:
        """Return the step that an entry holds."""
        return _adapter().validate_python(json.loads(entry))

    def to_json(self) -> str:
        """Return it as JSON text."""
        text = self._unfinished()
        kept = replace(self, text=["".join(text)] if text else [])
        return json.dumps(_adapter().dump_python(kept, by_alias=True, exclude_defaults=True))

    def note(self, event: HandlerEvent) -> None:
        """Note what comes next."""
        if isinstance(event, AttemptFailed):
            failed = _FailedAttempt(attempt=event.attempt, delay=event.delay, error=event.error)
            failed.text, failed.done = [""] if self.text else [], self.done
            self.attempts.append(failed)
            self.text, self.done = [], None
        elif isinstance(event, TextDelta):
            self.text.append(event.text)
        elif isinstance(event, MessageDone):
            self.done = event
        elif not self.text:
            self.text.append("")  # nothing to keep, but something was shown

    def events(self) -> list[HandlerEvent]:
        """Return what a run is told of it before the error, if there is one."""
        before = [event for attempt in self.attempts for event in attempt.events()]
        return [*before, *_Attempt.events(self)]


@functools.cache
def _adapter() -> pydantic.TypeAdapter[ModelStep]:
    return pydantic.TypeAdapter(ModelStep)


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
