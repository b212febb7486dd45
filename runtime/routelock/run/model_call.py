"""One model call: its system prompt and request, the events of the handler, and what becomes of the reply."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf, isinf
from typing import Any, cast

import anyio

from routelock._callables import callback_errors, error_text, resolve, wants
from routelock._concurrency import in_time, open_group
from routelock._json import detached, recordable, sendable
from routelock.agents.offer import OfferedTools, offer_tools
from routelock.agents.registry import PromptSection
from routelock.context import PAYLOAD_KEY
from routelock.errors import (
    ContentRefused,
    HandlerError,
    HandoffTimeout,
    ProviderError,
    ProviderTimeout,
    RoutelockError,
)
from routelock.guardrails import check_input
from routelock.handlers.events import (
    AttemptFailed,
    HandlerEvent,
    MessageDone,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from routelock.handlers.function_handler import FunctionHandler
from routelock.handlers.port import (
    Handler,
    Request,
    ToolChoice,
    copy_of,
    family_of,
    model_of,
    written_name,
)
from routelock.handlers.replies import (
    filtered_out,
    is_empty,
    missing_deltas,
    reply_problem,
    was_cut_short,
    with_unique_ids,
)
from routelock.handlers.retry import attempts
from routelock.handlers.stream_assembler import join_surrogates
from routelock.handoffs.handoff import Handoff
from routelock.handoffs.payload import payload_of
from routelock.history.messages import Message, calls_of
from routelock.run.emit import (
    AgentBegins,
    ModelCallBegins,
    ModelCallEnds,
    ModelCallRetried,
    emit,
    emit_now,
    own_reply,
)
from routelock.run.events import EmptyReply, HandlerFallback, Repaired, RunEvent
from routelock.run.executor import Call, Executor
from routelock.run.frames import earliest_deadline, time_left
from routelock.run.handler_selection import next_handler
from routelock.run.result import ModelCall, Shown
from routelock.run.run import Run
from routelock.scopes import permits
from routelock.usage import Usage, is_usage

__all__ = [
    "RECOMMENDED_PROMPT_PREFIX",
    "PreparedCall",
    "call_events",
    "fall_back",
    "has_own_payload",
    "instructions",
    "keep_partial",
    "note_event",
    "offered_tools",
    "prepare_call",
    "prompt_with_handoff_instructions",
    "read_beside",
    "take_reply",
]


_Check = Callable[[], Awaitable[None]]
"""Checks the input of an agent while the model call is made; it raises if the input is refused."""

_COMPLETE = ("stop", "tool_calls", None)
"""Finish reasons of complete replies; replies with another one are checked further."""


@dataclass(slots=True)
class PreparedCall:
    """The model call of a turn, ready to be made."""

    request: Request
    shown: Shown
    offered: OfferedTools
    repairs: Sequence[str]
    check: _Check | None
    """The agent's input guardrails, if they run while the model call is made."""


async def prepare_call(run: Run) -> PreparedCall:
    """Begin a turn: start a new agent, and make the request for the model call.

    Raises:
        MaxTurnsExceeded: the run has made ``max_turns`` turns.
        BudgetExceeded: a limit of ``RunConfig.limits`` is reached.
        InputGuardrailTripped: the agent's input is refused.
    """
    run.begin_turn()
    check = None if run.agent_started else await _start_agent(run)
    frame = run.frame
    offered = frame.offered or await offered_tools(run)
    system = await _system_message(run, offered)
    run.model_call.family = family = family_of(frame.handler)
    messages, repairs = frame.view.messages(family, run.audience())
    if repairs:
        run.report.repairs += (*repairs,)
    shown = Shown(system=system, growing=messages, count=len(messages))
    request = _request(run, offered, shown)
    if run.is_observed:
        await emit(run, ModelCallBegins(request, shown))
    return PreparedCall(request=request, shown=shown, offered=offered, repairs=repairs, check=check)


async def _start_agent(run: Run) -> _Check | None:
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
    agent, now, messages = run.frame.agent, run.now(), run.shown_next()

    async def check() -> None:
        await check_input(agent.input_guardrails, now, agent, messages, run.report.guardrails)
        run.agent_started = True

    if run.config.guardrails_beside:
        return check
    await check()
    return None


async def offered_tools(run: Run) -> OfferedTools:
    """Return the tools and handoffs that the model may call; an offer that cannot change is cached."""
    agent, handler, external = run.frame.agent, run.frame.handler.name, run.config.external_tools
    offered = None if run.scopes or external else agent.fixed_offer(handler)
    if offered is None:
        offered = await offer_tools(agent, run.now(), run.graph, handler=handler, external=external)
    if offered.fixed:
        run.frame.offered = offered
    _warn_of_many(run, offered)
    return offered


def _warn_of_many(run: Run, offered: OfferedTools) -> None:
    most = run.config.warn_handoffs_over
    if most is None or offered.handoffs <= most or run.report.warned_of_many:
        return
    run.report.warned_of_many = True
    run.warn(
        f"agent {run.frame.agent.name!r} is offered {offered.handoffs} handoffs, and models choose badly "
        f"among more than {most}: move some to an agent of their own, or set "
        "RunConfig(warn_handoffs_over=...)"
    )


def _request(run: Run, offered: OfferedTools, shown: Shown) -> Request:
    """Return the request for the handler."""
    frame, agent = run.frame, run.frame.agent
    settings: dict[str, Any] = {}
    choice: ToolChoice | None = None
    if run.config.model_settings or agent.model_settings:
        settings = {**run.config.model_settings, **agent.model_settings}
        choice = _tool_choice(run, offered, settings.pop("tool_choice", None))
        settings = {key: value for key, value in settings.items() if value is not None}
    return Request(
        messages=shown.messages(),
        tools=offered.specs,
        tool_choice=choice,
        settings=settings,
        output_schema=agent.output_schema,
        stream=run.stream,
        agent=agent.name,
        turn=run.turn,
        context=run.now(),
        handoff_input=frame.handoff_input,
    )


def _tool_choice(run: Run, offered: OfferedTools, choice: ToolChoice | None) -> ToolChoice | None:
    """Return the agent's tool choice; a forced tool holds for one turn, if it is offered."""
    if choice in (None, "auto", "none"):
        return choice
    if run.frame.turns > 1 or not offered.routes:
        return None
    return choice if choice == "required" or choice in offered.routes else None


# The system prompt

RECOMMENDED_PROMPT_PREFIX = (
    "# System context\n"
    "You are one of several agents that work together on one conversation. When another agent is better "
    "suited to the request, hand over by calling its transfer tool, named transfer_to_<agent>. Transfers "
    "happen in the background: do not mention them to the user."
)
"""Prompt section that explains transfers to a model."""


def prompt_with_handoff_instructions(prompt: str) -> str:
    """Return ``prompt`` with the explanation of transfers in front."""
    return f"{RECOMMENDED_PROMPT_PREFIX}\n\n{prompt}"


async def instructions(run: Run) -> str:
    """Return the active agent's instructions; a function is called with the context of now.

    Raises:
        CallbackError: the function raised or did not return text.
    """
    if run.frame.agent.instructions is None or isinstance(run.frame.agent.instructions, str):
        return run.frame.agent.instructions or ""
    what = f"The instructions of agent {run.frame.agent.name!r}"
    with callback_errors(what):
        prompt = await run.frame.agent.get_system_prompt(run.now())
        if not isinstance(cast(object, prompt), str | None):
            raise TypeError(f"they must be text, not {type(prompt).__name__}")
    return prompt or ""


async def _system_message(run: Run, offered: OfferedTools) -> Message | None:
    """Return the active agent's system prompt, with all sections that are added to it."""
    frame, agent = run.frame, run.frame.agent
    prompt = agent.instructions if isinstance(agent.instructions, str) else await instructions(run)
    if agent.sections:
        prompt = "\n\n".join([part for part in (prompt, *await _sections(run, offered)) if part])
    if agent.output_prompt:
        prompt = f"{prompt}\n\n{agent.output_prompt}".lstrip()
    if offered.handoffs and run.config.handoff_prompt:
        prompt = prompt_with_handoff_instructions(prompt)
    if PAYLOAD_KEY in run.memory.shared:
        prompt = "\n\n".join([part for part in (prompt, _payload_note(run)) if part])
    if frame.source_prompt:
        prompt = f"{prompt}\n\n{frame.source_prompt}".strip()
    return {"role": "system", "content": prompt} if prompt else None


def _payload_note(run: Run) -> str:
    """Return the prompt section about the handoff payload, which is written once per handoff.

    A payload that cannot be read has no section; tools find it in the shared memory. The agent that sent the
    payload gets no section either.
    """
    if run.frame.payload_note is None:
        payload, problem = payload_of(run.memory.shared)
        markers = run.config.history_wrappers or ()
        run.frame.payload_note = ""
        mine = has_own_payload(run) and run.frame.agent.handoff_note
        if payload is not None and mine and payload.source_agent != run.active_name:
            note = payload.note(markers=markers)
            run.frame.payload_note = f"{note}\n{payload.preview(markers=markers)}" if note else ""
        given = run.memory.shared[PAYLOAD_KEY]
        if problem and isinstance(given, dict) and "handoff_type" in given:
            run.warn(f"turn {run.turn}: the handoff payload cannot be read: {problem}")
    return run.frame.payload_note


def has_own_payload(run: Run) -> bool:
    """Whether the payload came with a handoff of this run, and not of its outer run."""
    if not run.sub_runs.depth:
        return True
    around = run.memory.scopes[0].outer if run.memory.scopes else run.memory.shared
    return run.memory.shared.get(PAYLOAD_KEY) is not around.get(PAYLOAD_KEY)


async def _sections(run: Run, offered: OfferedTools) -> list[str]:
    """Return the prompt sections of the agent's skills and of its other handlers.

    They do not depend on the active handler, because prompt caches need a constant prompt.
    """
    edges = [route for route in offered.routes.values() if isinstance(route, Handoff)]
    reachable = {edge.to_handler.name for edge in edges if edge.to_handler}
    reachable |= {each.name for each in run.frame.agent.registered.handlers} | {run.frame.handler.name}
    reachable.discard(run.frame.default_handler)
    return [
        await _written(run, section)
        for section in run.frame.agent.sections
        if permits(section.scope, run.scopes) and (not section.of_handler or section.name in reachable)
    ]


async def _written(run: Run, section: PromptSection) -> str:
    if isinstance(section.text, str):
        return section.text
    with callback_errors(f"A prompt of {section.name!r}, a skill of agent {run.frame.agent.name!r},"):
        text = await resolve(section.text(*(run.now(), run.frame.agent)[: wants(section.text, 2)]))
        if not isinstance(cast(object, text), str | None):
            raise TypeError(f"it must be text, not {type(text).__name__}")
    return text or ""


# The call


def call_events(run: Run, call: PreparedCall) -> AsyncGenerator[HandlerEvent]:
    """Begin the model call and return its events: through the executor, and within the run's time limits.

    Each event has to be given to `note_event` as soon as it arrives.

    Raises:
        HandoffTimeout: the deadline of a caller has passed, so the call is not made.
    """
    executor, request = run.config.executor, call.request
    run.model_call.request, run.model_call.shown = request, call.shown
    run.budget.in_flight = True
    if executor is None:
        return _attempts(run, request)
    step = Call(run.run_id, _step_key(run), "model", _step_arguments(run, request))
    return _by_executor(run, executor, step, request)


async def _by_executor(
    run: Run, executor: Executor, step: Call, request: Request
) -> AsyncGenerator[HandlerEvent]:
    """Make the model call as a step; a replayed step begins its further attempts, as a new one does."""
    is_replayed = True

    def body(_: Call) -> AsyncGenerator[HandlerEvent]:
        nonlocal is_replayed
        is_replayed = False
        # the time limit is part of the step, so that a replay has the same timeout
        return _attempts(run, request)

    async with aclosing(executor.stream(step, body)) as events:
        async for event in events:
            yield event
            if is_replayed and isinstance(event, AttemptFailed):
                _begin_attempt(run)


def _begin_attempt(run: Run) -> None:
    """Note that another attempt of the model call is in flight, see `routelock.handlers.retry`."""
    run.budget.in_flight = True


def _attempts(run: Run, request: Request) -> AsyncGenerator[HandlerEvent]:
    """Return the events of the active handler, within ``turn_timeout`` and the deadlines of the callers."""
    handler = run.frame.handler if run.recorder is None else run.recorder.handler()
    if isinstance(run.frame.handler, FunctionHandler):
        handler = _CopyingHandler(handler)
    events = attempts(handler, request, run.config.retry, partial(_begin_attempt, run))
    if (seconds := run.config.turn_timeout) is not None:
        late = ProviderTimeout(
            f"Handler {run.frame.handler.name!r} gave no complete reply in turn {run.turn} within "
            f"{seconds:g} s, the turn_timeout of the run."
        )
        events = in_time(events, seconds, late)
    if run.callers:
        left, over = time_left(run.callers, run.active_name)
        events = events if isinf(left) else in_time(events, left, over)
    return events


@dataclass(frozen=True, slots=True)
class _CopyingHandler:
    """A handler that gets a copy of each request, so that it cannot change the run."""

    inner: Handler

    @property
    def name(self) -> str:
        """Name of the handler."""
        return self.inner.name

    def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        """Return the events of the handler."""
        return self.inner.stream(copy_of(request))


def _step_key(run: Run) -> str:
    key = f"t{run.turn}.model.{run.frame.agent.name}"
    if earliest_deadline(run.callers) < inf:  # a step that times out is no turn: the next needs another key
        key = f"{key}~{len(run.callers)}"
    return f"{key}.{run.frame.handler.name}" if run.failed_handlers else key


def _step_arguments(run: Run, request: Request) -> dict[str, Any]:
    output = request.output_schema
    args: dict[str, Any] = {
        "agent": request.agent,
        "handler": run.frame.handler.name,
        "messages": request.messages,
        "tools": request.tools,
        "tool_choice": request.tool_choice,
        "settings": request.settings,
        "output_schema": None if output is None else asdict(output),
    }
    if request.handoff_input is not None:
        args["handoff_input"] = recordable(request.handoff_input)
    return args


async def read_beside(
    run: Run, events: AsyncGenerator[HandlerEvent], check: _Check
) -> Sequence[HandlerEvent]:
    """Run a check beside the model call; return the events to stream that arrived until it passed.

    Only this task reads the events, because cancel scopes in their generator belong to the task that started
    it. An error of the handler is kept for `take_reply`, because what arrived before it is streamed first.

    Raises:
        Exception: the error of the check.
    """
    held: list[HandlerEvent] = []
    refusals: list[Exception] = []
    checked = anyio.Event()
    try:
        async with open_group() as group:
            group.start_soon(_check, check, checked, refusals, group.cancel_scope)
            try:
                while not checked.is_set() and (event := await anext(events, None)) is not None:
                    held += [event] if note_event(run, event) else []
            except Exception as error:  # the check goes on and may refuse the input
                run.model_call.error = error
                await events.aclose()  # it may come from `note_event`: then there are more events
        if refusals:
            raise refusals[0]
    except BaseException:
        if run.model_call.reply is not None:
            _count_failed(run, None)
        run.model_call.forget_reply()
        raise
    return held


async def _check(
    check: _Check, checked: anyio.Event, refusals: list[Exception], reading: anyio.CancelScope
) -> None:
    try:
        await check()
    except Exception as error:  # a task group would wrap it in an exception group
        refusals.append(error)
        reading.cancel()
    checked.set()


def note_event(run: Run, event: HandlerEvent) -> bool:
    """Note an event in the run, so that a cut-off call loses nothing; return whether it is streamed."""
    if isinstance(event, TextDelta):
        return _note_text(run, event.text)
    if isinstance(event, MessageDone):
        if run.model_call.reply is not None:
            name = run.frame.handler.name
            raise HandlerError(f"Handler {name!r} yielded two MessageDone in turn {run.turn}.")
        if isinstance(run.frame.handler, FunctionHandler):  # the app may keep the message and edit it
            event = replace(event, message=detached(event.message))
        if event.usage is not None and not is_usage(event.usage):
            event = _without_usage(run, event)
        run.model_call.reply = event
        return False
    if isinstance(event, AttemptFailed):
        text = f"attempt {event.attempt} failed: {error_text(event.error)}"
        run.problem("provider", text, error=event.error)
        _void_attempt(run, event)
    elif not isinstance(cast(object, event), ReasoningDelta | ToolCallDelta):
        raise HandlerError(
            f"Handler {run.frame.handler.name!r} yielded a {type(event).__name__} in turn {run.turn}, not "
            "a routelock event. routelock.function_handler converts text, chunks and messages to events."
        )
    elif not run.model_call.text:
        run.model_call.text.append("")  # marks that a delta was shown
    return True


def _note_text(run: Run, text: object) -> bool:
    if text is None:  # the content of some vendors' chunks
        return False
    if not isinstance(text, str):
        raise HandlerError(
            f"Handler {run.frame.handler.name!r} yielded a TextDelta in turn {run.turn} whose text is "
            f"{text!r:.80}."
        )
    run.model_call.text.append(text)
    return True


def _without_usage(run: Run, done: MessageDone) -> MessageDone:
    """Return a reply without its usage, which is not valid: the message must not be lost."""
    run.warn(
        f"turn {run.turn}: handler {run.frame.handler.name!r} gave {done.usage!r:.80} as usage, which is not "
        "a routelock.Usage of numbers, so the usage of the call is unknown"
    )
    return replace(done, usage=None)


# The reply


def take_reply(run: Run) -> tuple[Iterable[RunEvent], MessageDone]:
    """Take the complete reply; return the events that were not streamed yet, and the reply."""
    call = run.model_call
    if call.error is not None:
        raise call.error
    if (reply := call.reply) is None:
        raise HandlerError(
            f"Handler {run.frame.handler.name!r} ended in turn {run.turn} without a MessageDone. "
            "Every handler must yield exactly one, with the complete message."
        )
    if wrong := reply_problem(reply.message):
        name = run.frame.handler.name
        raise HandlerError(f"Handler {name!r} gave a reply in turn {run.turn} with {wrong}.")
    if reply.finish_reason not in _COMPLETE and was_cut_short(reply.finish_reason):
        if why := filtered_out(reply):
            raise _refused(run, reply, why)
        run.warn(f"turn {run.turn}: the reply was cut short ({reply.finish_reason})")
    _check_choice(run, reply)
    shown = call.text.copy()
    reply, repairs = _accept(run, reply)
    return _unseen_events(run, reply, shown, repairs) if run.stream else (), reply


def _unseen_events(
    run: Run, reply: MessageDone, shown: Sequence[str], repairs: Sequence[str]
) -> Iterator[RunEvent]:
    """Yield the events of a reply that were not streamed while it arrived, and the reply."""
    name = run.frame.agent.name
    yield from missing_deltas(reply.message, shown)
    for each in repairs:
        yield Repaired(agent=name, repair=each)
    yield own_reply(reply)
    if run.progress.empty_replies:
        yield EmptyReply(name)


def _accept(run: Run, reply: MessageDone) -> tuple[MessageDone, Sequence[str]]:
    """Add a complete reply to the transcript; return it with unique call ids, and what was repaired."""
    done, repairs = with_unique_ids(reply, run.turn, run.transcript.call_ids)
    if repairs:
        run.report.repairs += (*repairs,)
    _end_call(run, done)
    run.budget.in_flight = False
    run.count(reply.usage or Usage(requests=1, estimated=True))
    run.model_call.forget_reply()
    run.add("model", done.message, origin=run.model_call.family)
    run.progress.empty_replies = run.progress.empty_replies + 1 if is_empty(done.message) else 0
    return done, repairs


def keep_partial(run: Run, error: BaseException | None = None) -> None:
    """Add a partial reply to the transcript when the model call is cut off, and count the call."""
    if run.model_call.request is None:
        return
    reply, text = run.model_call.reply, sendable(join_surrogates(run.model_call.text))
    refused = isinstance(error, ContentRefused)  # vendors refuse a history with a refused reply in it
    if reply is not None and not refused and not reply_problem(reply.message):
        _accept(run, reply)
        return
    _end_call(run, reply if refused else None, error)
    if run.budget.in_flight:
        _count_failed(run, error)
    if not text and run.model_call.text:
        run.warn(f"turn {run.turn}: the reply was cut off before it had any text")
    run.model_call.forget_reply()
    if text:
        run.add("model", {"role": "assistant", "content": text})
        run.warn(f"turn {run.turn}: the reply was cut off after {len(text)} characters")


def _discard_call(run: Run, error: HandoffTimeout) -> None:
    """Remove a model call that was noted and never made."""
    run.model_call.request, run.budget.in_flight = None, False
    run.model_call.forget_reply()
    emit_now(run, ModelCallEnds(None, error))


def _end_call(run: Run, reply: MessageDone | None, error: BaseException | None = None) -> None:
    """Add the model call in progress to the report, with its reply if it has one."""
    request, shown = run.model_call.request, run.model_call.shown
    assert request is not None
    assert shown is not None
    if run.is_observed:
        emit_now(run, ModelCallEnds(reply, error))
    run.model_call.request = None
    run.report.calls.append(
        ModelCall(
            agent=request.agent,
            handler=run.frame.handler.name,
            turn=request.turn,
            shown=shown,
            tools=request.tools,
            tool_choice=request.tool_choice,
            settings=request.settings,
            reply=reply,
        )
    )


def _void_attempt(run: Run, failed: AttemptFailed) -> None:
    """Count a failed attempt and drop its reply, before the next attempt.

    Raises:
        BudgetExceeded: the budget does not allow another attempt.
    """
    _count_failed(run, failed.error)
    emit_now(run, ModelCallRetried(failed))
    run.model_call.forget_reply()
    run.budget.check(run.frame.agent.name)


def _count_failed(run: Run, error: BaseException | None) -> None:
    """Count a call without a complete reply; it is free if the provider refused it."""
    run.budget.in_flight = False
    reply = run.model_call.reply
    if reply is not None and reply.usage is not None:
        run.count(reply.usage)
        return
    refused = isinstance(error, ProviderError) and not isinstance(error, ProviderTimeout)
    nothing_came = reply is None and not run.model_call.text
    free = refused and nothing_came
    run.count(Usage(requests=1, cost=0.0) if free else Usage(requests=1, estimated=True))


def _check_choice(run: Run, reply: MessageDone) -> None:
    """Warn if the reply ignores a forced tool choice: some servers accept the setting and ignore it."""
    request = run.model_call.request
    if request is None or request.tool_choice in (None, "auto", "none"):
        return
    choice, called = request.tool_choice, [call["function"].get("name") for call in calls_of(reply.message)]
    kept = bool(called) if choice == "required" else choice in called
    if not kept and request.output_schema is None:  # with one, a tool of the provider may carry the output
        run.warn(
            f"turn {run.turn}: the model was to call {'a tool' if choice == 'required' else 'one tool'} "
            f"(tool_choice={choice!r}) and did not: the provider, or the model, ignores it"
        )


def _refused(run: Run, reply: MessageDone, why: str) -> ContentRefused:
    return ContentRefused(
        f"The provider's content filter left nothing of the reply of agent {run.frame.agent.name!r} in turn "
        f"{run.turn} ({why}). The same request will be refused again: change what is asked, or use another "
        "model.",
        provider=model_of(run.frame.handler)["provider"] or "",
        model=reply.model or "",
    )


def fall_back(run: Run, error: Exception) -> HandlerFallback:
    """Replace a handler that failed before it showed anything with the agent's next one.

    Raises:
        Exception: the error itself, if the run does not allow a fallback or no handler is left.
    """
    if isinstance(error, HandoffTimeout) and not error.asked and error.result is None:
        _discard_call(run, error)
    from_handler = isinstance(error, HandlerError) or not isinstance(error, RoutelockError | AssertionError)
    if isinstance(error, RoutelockError) and error.result is not None:
        from_handler = True  # it ended another run, which the handler had started
    arrived = run.model_call.reply is not None and not isinstance(error, ContentRefused)
    began = run.model_call.request is None or run.model_call.text or arrived
    if not from_handler or began or not run.config.fallback:
        raise error
    agent, failed = run.frame.agent, run.frame.handler.name
    handler = next_handler(agent, failed, run.failed_of(agent), run.config)
    if handler is None:
        raise error
    text = f"handler {written_name(run.frame.handler)!r} failed, {written_name(handler)!r} answers instead: "
    text += f"{type(error).__name__}: {error_text(error)}"
    run.problem("fallback", text, error=error)
    _end_call(run, run.model_call.reply, error)
    if run.budget.in_flight:
        _count_failed(run, error)
    run.model_call.forget_reply()
    run.replace_handler(handler)
    return HandlerFallback(agent=run.frame.agent.name, handler=failed, next_handler=handler.name, error=error)
