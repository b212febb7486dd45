"""One model call: what is offered, the system prompt, the request, the handler's events, and the reply."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from math import isinf
from types import AsyncGeneratorType
from typing import Any, cast

from routelock._callables import error_text, is_spurious_cancel
from routelock._concurrency import in_time
from routelock._copies import detached
from routelock.agents.offer import OfferedTools, offer_tools
from routelock.context import PAYLOAD_KEY, RunContext
from routelock.errors import HandlerError, ProviderError, ProviderTimeout
from routelock.guardrails import check_input
from routelock.handlers.events import (
    AttemptFailed,
    HandlerEvent,
    MessageDone,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from routelock.handlers.finish_reasons import filtered_out, was_cut_short
from routelock.handlers.function_handler import CopyingHandler, FunctionHandler
from routelock.handlers.port import REQUEST_OBSERVER, Handler, Request, ToolChoice, family_of
from routelock.handlers.replies import is_empty, reply_problem, storable_reply
from routelock.handlers.retry import Retry
from routelock.history.messages import Message
from routelock.run.call_events import prepared_events, unstreamed_events
from routelock.run.call_faults import (
    filter_error,
    handler_label,
    log_other_text,
    void_attempt,
    warn_of_absent_choice,
    warn_of_ignored_choice,
    without_usage,
)
from routelock.run.compact import compact_view
from routelock.run.deferred_tools import deferral_of, with_found
from routelock.run.emit import AgentBegins, ModelCallBegins, ModelCallEnds, emit, emit_now
from routelock.run.events import RunEvent
from routelock.run.frames import time_left
from routelock.run.prompt import instructions, payload_note, prompt_with_handoff_instructions, sections_of
from routelock.run.records import ModelCall, Shown
from routelock.run.run import Run
from routelock.run.steps import step_events
from routelock.run.subrun import Events
from routelock.usage import Usage, is_usage

__all__ = [
    "InputCheck",
    "PreparedCall",
    "attempts",
    "begin_call",
    "end_call",
    "note_event",
    "offered_tools",
    "prepare_call",
    "record_reply",
    "take_reply",
]


InputCheck = Callable[[], Awaitable[None]]
"""Checks the input of an agent while the model call is made; it raises if the input is refused."""

_FREE_CHOICES = (None, "auto", "none")
"""Tool choices that a reply cannot ignore."""

_COMPLETE = ("stop", "tool_calls", None)
"""Finish reasons of complete replies; replies with another one are checked further."""


@dataclass(slots=True)
class PreparedCall:
    """The model call of a turn, ready to be made."""

    request: Request
    shown: Shown
    offered: OfferedTools
    events: Sequence[RunEvent]
    """How the view was compacted and repaired for the call."""
    check: InputCheck | None
    """The agent's input guardrails, if they run while the model call is made."""


async def prepare_call(run: Run, events: Events) -> PreparedCall:
    """Start an agent that is new, and make the request for the model call.

    Args:
        run: the run.
        events: carries out the sub-run of a summary.

    Raises:
        InputGuardrailTripped: the agent's input is refused.
    """
    check = None if run.agent_started else await _start_agent(run)
    frame = run.frame
    offered = frame.offered
    if offered is None or offered.deferral is not None:
        offered = await offered_tools(run)
    system = await _system_message(run, offered)
    settings = frame.agent.compact or run.config.compact
    compactions = () if settings is None else await compact_view(run, settings, system, offered, events)
    run.model_call.family = family = family_of(frame.handler)
    context, audience = run.current_context(), run.audience()
    messages, repairs = frame.view.messages(family, audience)
    if repairs:
        run.report.repairs += (*repairs,)
    shown = Shown(system=system, growing=messages, count=len(messages))
    request = _request(run, offered, context, [*messages] if system is None else [system, *messages])
    if run.is_observed:
        await emit(run, ModelCallBegins(request, shown))
    notices = prepared_events(run, compactions, repairs) if compactions or repairs else ()
    return PreparedCall(request=request, shown=shown, offered=offered, events=notices, check=check)


async def _start_agent(run: Run) -> InputCheck | None:
    """Call the hooks and input guardrails of an agent that has become active.

    The agent counts as started once the guardrails have passed: a run that is resumed before runs them again.

    Returns:
        the guardrails, if they are to run while the model call is made; else None.
    """
    if run.is_observed:
        await emit(run, AgentBegins())
    if not run.frame.agent.input_guardrails:
        run.agent_started = True
        return None
    agent, now, messages = run.frame.agent, run.current_context(), run.shown_next()

    async def check() -> None:
        await check_input(agent.input_guardrails, now, agent, messages, run.report.guardrails)
        run.agent_started = True

    if run.config.guardrails_beside:
        return check
    await check()
    return None


def _request(run: Run, offered: OfferedTools, context: RunContext[Any], messages: list[Message]) -> Request:
    """Return the request for the handler."""
    frame, agent = run.frame, run.frame.agent
    settings: dict[str, Any] = {}
    choice: ToolChoice | None = None
    if run.config.model_settings or agent.model_settings:
        settings = {**run.config.model_settings, **agent.model_settings}
        choice = _tool_choice(run, offered, settings.pop("tool_choice", None))
        settings = {key: value for key, value in settings.items() if value is not None}
    return Request(
        messages=messages,
        tools=offered.specs,
        tool_choice=choice,
        settings=settings,
        output_schema=agent.output_schema,
        stream=run.is_streamed,
        agent=agent.name,
        turn=run.turn,
        context=context,
        handoff_input=frame.handoff_input,
    )


def _tool_choice(run: Run, offered: OfferedTools, choice: ToolChoice | None) -> ToolChoice | None:
    """Return the agent's tool choice; a forced tool holds for one turn, if it is offered."""
    if choice in _FREE_CHOICES:
        return choice
    if run.frame.turns > 1:
        return None
    if choice in offered.routes or choice in offered.vendor:
        return choice
    if choice == "required":
        return choice if offered.routes or offered.vendor else None
    warn_of_absent_choice(run, choice, offered)
    return None


# What is offered


async def offered_tools(run: Run) -> OfferedTools:
    """Return the tools and handoffs that the model may call; an offer that cannot change is cached."""
    offered = run.frame.offered or await _offered_at_first(run)
    if offered.fixed:
        run.frame.offered = offered
    limit = run.config.warn_handoffs_over
    if limit is not None and offered.handoffs > limit and not run.report.warned_of_many:
        run.report.warned_of_many = True
        run.warn(
            f"agent {run.frame.agent.name!r} is offered {offered.handoffs} handoffs, and models choose badly "
            f"among more than {limit}: move some to an agent of their own, or set "
            "RunConfig(warn_handoffs_over=...)"
        )
    return offered if offered.deferral is None else await with_found(run, offered)


async def _offered_at_first(run: Run) -> OfferedTools:
    """Return the tools and handoffs that the active agent is offered before it has searched for tools."""
    agent, handler, external = run.frame.agent, run.frame.handler.name, run.config.external_tools
    # the setting of the agent wins over that of the run
    is_own = run.config.tool_search is None or agent.tool_search is not None
    if is_own and not (run.scopes or external):
        fixed = agent.fixed_offers.get(handler, agent.fixed_offers[""])
        if fixed is not None:
            return fixed
    deferral = agent.deferrals.own if is_own and not external else deferral_of(run)
    return await offer_tools(
        agent, run.current_context(), run.graph, handler=handler, external=external, deferral=deferral
    )


# The system prompt


async def _system_message(run: Run, offered: OfferedTools) -> Message | None:
    """Return the active agent's system prompt, with all sections that are added to it."""
    frame, agent = run.frame, run.frame.agent
    prompt = "" if agent.instructions is None else agent.instructions
    if not isinstance(prompt, str):
        prompt = await instructions(run)
    if agent.sections:
        prompt = "\n\n".join([part for part in (prompt, *await sections_of(run, offered)) if part])
    if agent.output_prompt:
        prompt = f"{prompt}\n\n{agent.output_prompt}".lstrip()
    if offered.handoffs and run.config.handoff_prompt:
        prompt = prompt_with_handoff_instructions(prompt)
    if PAYLOAD_KEY in run.memory.shared:
        prompt = "\n\n".join([part for part in (prompt, payload_note(run)) if part])
    if frame.source_prompt:
        prompt = f"{prompt}\n\n{frame.source_prompt}".strip()
    return {"role": "system", "content": prompt} if prompt else None


# The call


def begin_call(run: Run, call: PreparedCall) -> AsyncGenerator[HandlerEvent]:
    """Begin the model call and return its events: through the executor, and within the run's time limits.

    Each event has to be given to `note_event` as soon as it arrives.

    Raises:
        HandoffTimeout: the deadline of a caller has passed, so the call is not made.
    """
    executor, request = run.config.executor, call.request
    run.model_call.request, run.model_call.shown = request, call.shown
    run.budget.in_flight = True
    if executor is None:
        return _attempts_in_time(run, request)
    # the time limits are part of the step, so that a replay has the same timeout
    return step_events(run, executor, request, lambda: _attempts_in_time(run, request))


def _attempts_in_time(run: Run, request: Request) -> AsyncGenerator[HandlerEvent]:
    """Return the events of the active handler, within ``turn_timeout`` and the deadlines of the callers."""
    handler = run.frame.handler if run.recorder is None else run.recorder.handler()
    if isinstance(run.frame.handler, FunctionHandler):
        handler = CopyingHandler(handler)
    events = attempts(handler, request, run.config.retry, run.budget.begin_attempt)
    if (limit := run.config.turn_timeout) is not None:
        too_slow = ProviderTimeout(
            f"{handler_label(run)} gave no complete reply in turn {run.turn} within {limit:g} s, the "
            "turn_timeout of the run."
        )
        events = in_time(events, limit, too_slow)
    if run.callers:
        seconds, late = time_left(run.callers, run.active_name)
        events = events if isinf(seconds) else in_time(events, seconds, late)
    return events


async def attempts(
    handler: Handler, request: Request, retry: Retry, begin: Callable[[], None] = lambda: None
) -> AsyncGenerator[HandlerEvent]:
    """Make a model call, repeat it as ``retry`` allows, and yield its events.

    Args:
        handler: the handler of the call.
        request: its request.
        retry: the rules for further attempts.
        begin: called before each attempt except the first, including those of a handler that retries itself.

    Raises:
        ProviderError: the error of the last attempt.
        HandlerError: the handler raised a cancellation although the run was not cancelled.
    """
    number = 1
    while True:
        is_shown = False
        try:
            events = _stream_of(handler, request)
            try:
                async for event in events:
                    is_shown = True
                    yield event
                    if isinstance(event, AttemptFailed):  # the handler itself makes another attempt
                        begin()
            finally:
                await events.aclose()
            return
        except ProviderError as error:
            delay = None if is_shown and not retry.mid_stream else retry.delay(number, error)
            if delay is None:
                raise
            failed = AttemptFailed(error=error, attempt=number, delay=delay)
        except BaseException as error:
            if not is_spurious_cancel(error):
                raise
            raise HandlerError(
                f"Handler {handler.name!r} of agent {request.agent!r} raised a cancellation in turn "
                f"{request.turn} although nothing cancelled it."
            ) from error
        yield failed
        await retry.sleep(failed.delay)
        begin()
        number += 1


def _stream_of(handler: Handler, request: Request) -> AsyncGenerator[HandlerEvent]:
    """Return the events of a handler after a check that its ``stream`` is an async generator."""
    if (observe := REQUEST_OBSERVER.get()) is not None:
        observe(request)
    events = handler.stream(request)
    if isinstance(events, AsyncGeneratorType) or (hasattr(events, "__aiter__") and hasattr(events, "aclose")):
        return events
    if isinstance(events, Coroutine):
        events.close()  # otherwise Python warns that the coroutine was never awaited
    raise HandlerError(
        f"Handler {handler.name!r} of agent {request.agent!r}: stream must be an async generator, `async "
        f"def` with `yield`, but returned a {type(events).__name__}. For a function that returns its reply "
        "use routelock.function_handler(...)."
    )


def note_event(run: Run, event: HandlerEvent) -> bool:
    """Note an event in the run, so that a cut-off call loses nothing; return whether it is streamed."""
    if isinstance(event, TextDelta):
        return _note_text(run, event.text)
    if isinstance(event, MessageDone):
        if run.model_call.reply is not None:
            raise HandlerError(f"{handler_label(run)} yielded two MessageDone in turn {run.turn}; yield one.")
        if isinstance(run.frame.handler, FunctionHandler):  # the app may keep the message and edit it
            event = replace(event, message=detached(event.message))
        if event.usage is not None and not is_usage(event.usage):
            event = without_usage(run, event)
        run.model_call.reply = event
        return False
    if isinstance(event, AttemptFailed):
        text = f"attempt {event.attempt} failed: {error_text(event.error)}"
        run.add_problem("provider", text, error=event.error)
        void_attempt(run, event)
    elif not isinstance(cast(object, event), ReasoningDelta | ToolCallDelta):
        raise HandlerError(
            f"{handler_label(run)} yielded a {type(event).__name__} in turn {run.turn}, not an event of "
            "routelock. routelock.function_handler converts text, chunks and messages to events."
        )
    elif not run.model_call.text:
        run.model_call.text.append("")  # marks that a delta was shown
    return True


def _note_text(run: Run, text: object) -> bool:
    if text is None:  # the content of some vendors' chunks
        return False
    if not isinstance(text, str):
        raise HandlerError(
            f"{handler_label(run)} yielded a TextDelta in turn {run.turn} whose text is {text!r:.80}: it "
            "must be a str."
        )
    run.model_call.text.append(text)
    return True


# The reply


def take_reply(run: Run) -> tuple[Iterable[RunEvent], MessageDone]:
    """Take the complete reply; return the events that were not streamed yet, and the reply."""
    call = run.model_call
    if call.error is not None:
        raise call.error
    if (reply := call.reply) is None:
        raise HandlerError(
            f"{handler_label(run)} ended in turn {run.turn} without a MessageDone. Every handler must yield "
            "exactly one, with the complete message."
        )
    if wrong := reply_problem(reply.message):
        raise HandlerError(f"{handler_label(run)} gave a reply in turn {run.turn} with {wrong}.")
    if reply.finish_reason not in _COMPLETE and was_cut_short(reply.finish_reason):
        if why := filtered_out(reply):
            raise filter_error(run, reply, why)
        run.warn(f"turn {run.turn}: the reply was cut short ({reply.finish_reason})")
    if call.request is not None and call.request.tool_choice not in _FREE_CHOICES:
        warn_of_ignored_choice(run, call.request, reply)
    if call.text:
        log_other_text(run, reply.message)
    streamed_text = call.text.copy()
    reply, repairs = storable_reply(reply, run.turn, run.transcript.call_ids)
    record_reply(run, reply, repairs)
    return unstreamed_events(run, reply, streamed_text, repairs) if run.is_streamed else (), reply


def record_reply(run: Run, reply: MessageDone, repairs: Sequence[str]) -> None:
    """Add a complete reply to the transcript, and its usage to the run.

    Args:
        run: the run.
        reply: the reply, with ids that no other call has.
        repairs: what was repaired in it.
    """
    if repairs:
        run.report.repairs += (*repairs,)
    end_call(run, reply)
    run.budget.in_flight = False
    run.add_usage(reply.usage or Usage(requests=1, estimated=True))
    run.model_call.forget_reply()
    run.add_message("model", reply.message, origin=run.model_call.family)
    made_calls = bool(reply.message.get("tool_calls"))
    run.progress.empty_replies = (
        0 if made_calls or not is_empty(reply.message) else run.progress.empty_replies + 1
    )


def end_call(run: Run, reply: MessageDone | None, error: BaseException | None = None) -> None:
    """Add the model call in progress to the report, with its reply if it has one."""
    request, shown = run.model_call.request, run.model_call.shown
    assert request is not None
    assert shown is not None
    if run.is_observed:
        emit_now(run, ModelCallEnds(reply, error))
    run.model_call.request = None
    run.report.model_calls.append(
        ModelCall(
            request.agent,
            run.frame.handler.name,
            request.turn,
            shown,
            request.tools,
            request.tool_choice,
            request.settings,
            reply,
        )
    )
