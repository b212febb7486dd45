"""Recorded steps of a run: their JSON, the executor that replays them, and one for any durable engine.

The record of a model step has ``ok`` or ``err``, as the outcome of a tool step has. No exception crosses an
engine: on replay it would be of another class, and the run would continue in another way.
"""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, cast

import pydantic

from routelock import errors
from routelock._json import recordable
from routelock.errors import HandlerError, HandoffTimeout, ProviderError, RoutelockError
from routelock.handlers.events import AttemptFailed, HandlerEvent, MessageDone, TextDelta
from routelock.handlers.replies import reply_problem
from routelock.run.executor import Call, Executor, InProcess, Outcome
from routelock.tools.failures import reason_for_model, reason_of
from routelock.tools.outcome import LOST
from routelock.usage import Usage, is_usage

__all__ = ["ModelStep", "ReplayedSteps", "Show", "Step", "StepExecutor", "StepLost", "recorded_error"]


_OF_PROVIDERS = ("status", "retry_after", "provider", "model", "retryable")

_OF_TIMEOUTS = ("call_id", "asked")

_NO_USAGE = Usage(requests=-1)
"""Stands for a usage that is not valid; a run that reads it warns and counts the call as estimated."""

_LOST: Outcome = {**LOST.envelope(), "stop": False}


def _error_data(error: Exception) -> dict[str, Any]:
    names: tuple[str, ...] = ()
    if isinstance(error, ProviderError):
        names = _OF_PROVIDERS
    elif isinstance(error, HandoffTimeout):
        names = _OF_TIMEOUTS
    known = {name: getattr(error, name) for name in names}
    if isinstance(error, HandlerError) and error.raised:
        known["raised"] = error.raised
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
    failed = kind(known["message"])
    failed.raised = known.get("raised", "")
    return failed


_Error = Annotated[Exception, pydantic.PlainValidator(_read_error), pydantic.PlainSerializer(_error_data)]


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """The result of one attempt at a model call."""

    text: list[str] = field(default_factory=lambda: [])
    """The text of the reply, in pieces."""
    done: Annotated[MessageDone | None, pydantic.Field(alias="ok")] = None
    error: Annotated[_Error | None, pydantic.Field(alias="err")] = None

    def events(self) -> list[HandlerEvent]:
        """Return the events before the error, if there is one."""
        events: list[HandlerEvent] = [*map(TextDelta, self._unfinished())]
        return events if self.done is None else [*events, self.done]

    def _unfinished(self) -> list[str]:
        """Return the text that no complete and valid reply repeats."""
        whole = self.done is not None and self.error is None and not reply_problem(self.done.message)
        return [] if whole else self.text


@dataclass(slots=True, kw_only=True)
class _FailedAttempt(_Attempt):
    """An attempt that failed before another one. It keeps whether there was text, not the text itself."""

    attempt: int
    delay: float

    def events(self) -> list[HandlerEvent]:
        """Return the events of the attempt, its failure at the end."""
        assert self.error is not None
        failed = AttemptFailed(error=self.error, attempt=self.attempt, delay=self.delay)
        return [*_Attempt.events(self), failed]


@dataclass(slots=True, kw_only=True)
class ModelStep(_Attempt):
    """The result of a model step so far: everything that the run needs to continue.

    Its ``error`` is one that `recorded_error` returns.
    """

    attempts: list[_FailedAttempt] = field(default_factory=lambda: [])
    """The attempts that failed before."""

    @classmethod
    def from_json(cls, entry: str) -> ModelStep:
        """Return the step that an entry holds."""
        return _adapter().validate_python(json.loads(entry))

    def to_json(self) -> str:
        """Return the step as JSON text."""
        text = self._unfinished()
        kept = replace(self, text=["".join(text)] if text else [])
        return json.dumps(_adapter().dump_python(kept, by_alias=True, exclude_defaults=True), default=str)

    def note(self, event: HandlerEvent) -> None:
        """Add the next event."""
        if isinstance(event, AttemptFailed):
            failed = _FailedAttempt(attempt=event.attempt, delay=event.delay, error=event.error)
            failed.text, failed.done = [""] if self.text else [], self.done
            self.attempts.append(failed)
            self.text.clear()
            self.done = None
        elif isinstance(event, TextDelta):
            self.text.append(event.text)
        elif isinstance(event, MessageDone):
            self.done = _recordable_reply(event)
        elif not self.text:
            self.text.append("")  # an event without text was shown

    def events(self) -> list[HandlerEvent]:
        """Return the events before the error, if there is one."""
        before = [event for attempt in self.attempts for event in attempt.events()]
        return [*before, *_Attempt.events(self)]


def _recordable_reply(done: MessageDone) -> MessageDone:
    """Return a reply in JSON types; a replay finds the same defects in it."""
    if reply_problem(message := done.message) is not None:
        changed: Any = recordable(message)
        message = changed if reply_problem(changed) else cast(Any, repr(message))
    return MessageDone(
        message=message,
        usage=done.usage if done.usage is None or is_usage(done.usage) else _NO_USAGE,
        finish_reason=_text(done.finish_reason),
        model=_text(done.model),
        response_id=_text(done.response_id),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


@functools.cache
def _adapter() -> pydantic.TypeAdapter[ModelStep]:
    return pydantic.TypeAdapter(ModelStep)


def recorded_error(error: Exception, call: Call) -> HandlerError | HandoffTimeout | None:
    """Return the error of a model step as it is recorded; None if it ends the run.

    A run may continue after a recorded error, for example with another handler. An error that a handler of
    the app raises, or a run inside that handler, is recorded as a failure of the handler.

    Args:
        error: the exception of the step.
        call: the step.
    """
    if isinstance(error, HandlerError | HandoffTimeout):
        return error
    if isinstance(error, AssertionError) or (isinstance(error, RoutelockError) and error.result is None):
        return None
    handler, agent, reason = call.args["handler"], call.args["agent"], reason_of(error)
    kept = HandlerError(f"Handler {handler!r} of agent {agent!r} raised {reason}")
    kept.__cause__, kept.raised = error, reason_for_model(error)
    return kept


class ReplayedSteps:
    """The `routelock.run.Executor` of a run that was recorded: steps with a record are replayed.

    Args:
        entries: the records by key, in the order in which they were written.
        new: carries out the steps without a record.
    """

    def __init__(self, entries: Mapping[str, str], new: Executor) -> None:
        self._entries = dict(entries)
        self._new = new
        self._open: dict[str, str] = {}
        """Records of tool steps whose turn is not complete, so that the run has not received them yet."""
        self._has_new_step = False
        """Whether a step without a record was carried out."""

    @property
    def left(self) -> dict[str, str]:
        """The records that the run has not used, for the run that continues from its end.

        Once the run has carried out a new step, unused records count no more: the run took another course.
        """
        return {**self._open, **({} if self._has_new_step else self._entries)}

    async def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        """Replay a model step, or carry it out."""
        if (kept := self._entries.pop(call.key, None)) is not None:
            step = ModelStep.from_json(kept)
            if step.error is None or self._entries:  # further records: the run continued after the error
                for event in step.events():
                    yield event
                if step.error is not None:
                    raise step.error
                return
        try:
            async with aclosing(self._new.stream(call, body)) as events:
                async for event in events:
                    self._has_new_step |= isinstance(event, MessageDone)
                    yield event
        except (HandlerError, HandoffTimeout):  # these errors are recorded, so the step counts as carried out
            self._has_new_step = True
            raise

    async def gather(
        self, calls: Sequence[Call], body: Callable[[Call], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        """Replay tool steps, and carry out those without a record.

        If one of the records ended the run, no step is carried out: a step without a record was cut off.
        """

        async def noted(call: Call) -> Outcome:
            outcome = await body(call)
            self._has_new_step = True
            return outcome

        kept = {call.key: self._entries.pop(call.key) for call in calls if call.key in self._entries}
        self._open |= kept
        new = [call for call in calls if call.key not in kept]
        ended = any(json.loads(entry).get("stop") for entry in kept.values())
        given = [_LOST] * len(new) if ended else await self._new.gather(new, noted) if new else ()
        made = dict(zip((call.key for call in new), given, strict=True))
        for key in kept:
            del self._open[key]
        return [made[call.key] if call.key in made else json.loads(kept[call.key]) for call in calls]


class StepLost(BaseException):
    """The result of a step could not be recorded, so the run stops as if the process had died.

    It is not an `Exception`, because the run would then use another handler, or report it to the model. Its
    cause is the error of the engine.
    """


Step = Callable[[Call, Callable[[], Awaitable[str]]], Awaitable[str]]
"""The one function of a durable engine that a `StepExecutor` needs, such as ``step(call, work)``.

If a text is recorded for this ``call.run_id`` and ``call.key``, it returns that text. Otherwise it awaits
``work()``, records the text that it returns, and only then returns it. An exception of ``work`` is raised and
not recorded: it ends the run."""

Show = Callable[[Call, HandlerEvent], None]
"""Called with each event of a model call when it arrives, for example to send text to a page."""


class StepExecutor:
    """The `routelock.run.Executor` for a durable engine that can run a function once and record its result.

    A model call is completed before its reply is yielded as a whole. If two processes run the same run, the
    one whose result was not recorded stops.

    Args:
        step: runs the work of one step, or returns its record.
        show: called with each event of a model call that is made; a replayed call has none.

    Raises:
        StepLost: from the run, if ``step`` raised an exception of its own or returned another text than that
            of the work. The run can be begun again, with the same id.
    """

    def __init__(self, step: Step, show: Show | None = None) -> None:
        self._step = step
        self._show = show
        self._tools = InProcess()

    async def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        """Make a model call as a step, and yield its reply."""
        made: list[ModelStep] = []

        async def work() -> str:
            made.append(await self._model_step(call, body))
            return made[-1].to_json()

        entry = await self._entry(call, work)
        step = made[-1] if made else ModelStep.from_json(entry)
        for event in step.events():
            yield event
        if step.error is not None:
            raise step.error

    async def gather(
        self, calls: Sequence[Call], body: Callable[[Call], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        """Run tools as steps at the same time; each is recorded as soon as it completes."""

        async def outcome(call: Call) -> Outcome:
            async def work() -> str:
                return json.dumps(await body(call))

            made: Outcome = json.loads(await self._entry(call, work))
            return made

        return await self._tools.gather(calls, outcome)

    async def _model_step(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> ModelStep:
        step = ModelStep()
        try:
            async with aclosing(body(call)) as events:
                async for event in events:
                    if self._show is not None:
                        self._show(call, event)
                    step.note(event)
        except Exception as error:
            step.error = recorded_error(error, call)
            if step.error is None:
                raise
        return step

    async def _entry(self, call: Call, work: Callable[[], Awaitable[str]]) -> str:
        """Return the record of a step, made by ``work`` or by an earlier process."""
        made: list[str] = []
        failed: list[Exception] = []

        async def tried() -> str:
            try:
                made.append(await work())
            except Exception as error:
                failed.append(error)
                raise
            return made[-1]

        try:
            entry = await self._step(call, tried)
        except Exception as error:
            if failed and not made:  # the engine may have wrapped the error
                raise failed[-1] from failed[-1].__cause__
            raise StepLost(f"Step {call.key!r} of the run {call.run_id!r:.80} was not recorded.") from error
        if made and entry != made[-1]:
            raise StepLost(
                f"Step {call.key!r} of the run {call.run_id!r:.80} has another result in the engine than in "
                "this process: another process has the run."
            )
        return entry
