"""The loop of a run: an async generator of events, for streamed and for plain runs.

    agent, handler, view = those of the first frame    # each run starts with a new `Run`
    for each turn:
        reply = the MessageDone among handler.stream(request)
        no tool calls -> final output
        answer every call exactly once, in call order
        a handoff was carried out -> another agent, handler and view

Start at `loop`; `take_turn` is one turn. Each generator is closed by its reader, and none yields while a task
group or a cancel scope is open (https://anyio.readthedocs.io/en/stable/cancellation.html).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from routelock._callables import call_user_code, error_text
from routelock._concurrency import ask_all, in_time
from routelock._json import detached
from routelock.agents.offer import OfferedTools, offer_tools
from routelock.errors import (
    ContentRefused,
    HandlerError,
    LimitExceeded,
    LoopDetected,
    MaxHandoffsExceeded,
    ModelBehaviorError,
    RoutelockError,
    RunTimeout,
)
from routelock.guardrails import check_input, output_questions
from routelock.handlers.events import MessageDone
from routelock.handlers.port import Request, ToolChoice, family_of, json_in, model_of
from routelock.handlers.replies import (
    filtered_out,
    has_reasoning,
    missing_deltas,
    reply_problem,
    was_cut_short,
)
from routelock.handoff_request import HandoffStatus
from routelock.history.messages import Message, calls_of, refusal_of, text_of
from routelock.history.unfinished_turn import LeftOver
from routelock.run.approval_gate import all_waiting
from routelock.run.emit import (
    AgentBegins,
    AgentEnds,
    ModelCallBegins,
    ReplyTaken,
    RunBegins,
    RunEnds,
    emit,
    emit_now,
    own_reply,
)
from routelock.run.events import (
    AgentUpdated,
    EmptyReply,
    HandlerFallback,
    HandoffFailed,
    HandoffReturned,
    Repaired,
    RunDone,
    RunEvent,
)
from routelock.run.frames import asking_caller, drop_standbys, fail_frame, is_for_caller, return_answer
from routelock.run.handler_selection import next_handler
from routelock.run.handoff_attempt import HandoffAttempt
from routelock.run.model_call import Check, call_model
from routelock.run.prompt import system_message
from routelock.run.result import Shown
from routelock.run.run import Run
from routelock.run.tool_calls import Answered, answer_calls, asked_for, failed_handoff
from routelock.tools.invoke import NoTextError, to_text

__all__ = ["loop", "run_events", "take_turn"]

_MISTAKES = ("unknown_tool", "bad_arguments", "handoff")

_REPETITION_NUDGE = (
    "You are repeating yourself: the last {turns} turns returned the same results ({tools}). Use the results "
    "that you have, make another call, or answer the user."
)

_COMPLETE = ("stop", "tool_calls", None)
"""Finish reasons of complete replies; replies with another one are checked further."""

_EMPTY_REPLY_NUDGE = "Your reply was empty. Answer the user, or call a tool."


@dataclass(slots=True)
class _Turn:
    """The model call of a turn, ready to be made."""

    request: Request
    shown: Shown
    offered: OfferedTools
    repairs: Sequence[str]
    check: Check | None
    """The agent's input guardrails, if they run while the model call is made."""


async def loop(run: Run) -> AsyncGenerator[RunEvent]:
    """Carry out a run and yield its events, at the pace of the reader; the last one is `RunDone`.

    Raises:
        RoutelockError: with the partial result in ``error.result``.
    """
    raised: Exception | None = None
    try:
        await _open(run)
        rest = await _unfinished_turn(run)
        while run.ending.stop_reason == "unfinished":
            failed: HandoffFailed | None = None
            turn, rest = rest or take_turn(run), None
            try:
                async with aclosing(turn) as events:
                    async for event in events:
                        yield event
            except Exception as error:
                failed = _fail_frame(run, error)
            for each in (*run.handoffs.take_completed(), failed):
                if each is not None:
                    yield each
            if run.store is not None:
                await run.store.append(run)
    except Exception as error:
        raised = await _fail(run, error)
    finally:
        await _close(run, raised)
    for each in run.handoffs.take_completed():
        yield each
    if raised is not None:
        raise raised
    yield RunDone(run.result())


def run_events(run: Run) -> AsyncGenerator[RunEvent]:
    """Return the events of a run, which is cancelled after its ``timeout``."""
    return loop(run) if run.config.timeout is None else _in_time(run, loop(run), run.config.timeout)


async def _unfinished_turn(run: Run) -> AsyncGenerator[RunEvent] | None:
    """Return the rest of the turn that a resumed run stopped in; None for a new run."""
    if run.turn:
        return _rest_of_turn(run, await _restore(run))
    await _check_run_input(run)
    return None


def _fail_frame(run: Run, error: Exception) -> HandoffFailed:
    """Report the error of the active agent to the caller that waits for it, which goes on.

    Raises:
        Exception: the error itself, if it ends the run.
    """
    if not is_for_caller(run.callers, error, run.config.raise_on):
        raise error
    return fail_frame(run, error)


async def _restore(run: Run) -> LeftOver:
    """Restore a resumed run from its state; return what is left of its turn."""
    from routelock.state.resume import settle  # noqa: PLC0415 - only resumed runs need it

    left = settle(run)
    if run.store is not None and run.ending.stop_reason == "unfinished":
        await run.store.claim(run, left.calls)
    return left


async def _rest_of_turn(run: Run, left: LeftOver) -> AsyncGenerator[RunEvent]:
    """Finish the turn that a resumed run stopped in."""
    if left.calls:
        offered = (await _offer(run)).with_disabled()
        answered = Answered()
        async with aclosing(answer_calls(run, offered, left.calls, run_events, answered)) as events:
            async for event in events:
                yield event
        _check_progress(run, answered)
    elif left.reply is not None:
        for ended in await _take_as_output(run, MessageDone(message=left.reply.message)):
            yield ended


async def take_turn(run: Run) -> AsyncGenerator[RunEvent]:
    """Make one model call, and take its reply as output or answer its calls."""
    if run.is_new_agent():
        yield AgentUpdated(run.frame.agent.name)
    turn = await _begin_turn(run)
    for repair in turn.repairs:
        yield Repaired(agent=run.frame.agent.name, repair=repair)
    accepted: MessageDone | HandlerFallback
    missing: Sequence[RunEvent] = ()
    try:
        async with aclosing(call_model(run, turn.request, turn.shown, turn.check)) as arriving:
            async for event in arriving:
                yield event
        missing, accepted = _accept(run)
    except Exception as error:
        accepted = _fall_back(run, error)
    for each in (*run.handoffs.take_completed(), *missing):
        yield each
    if isinstance(accepted, HandlerFallback):
        yield accepted
        return
    yield own_reply(accepted) if run.stream else accepted
    await emit(run, ReplyTaken(accepted))
    if run.progress.empty_replies:
        yield EmptyReply(run.frame.agent.name)
    if calls := calls_of(accepted.message):
        answered = Answered()
        async with aclosing(answer_calls(run, turn.offered, calls, run_events, answered)) as events:
            async for done in events:
                yield done
        _check_progress(run, answered)
    else:
        for ended in await _take_as_output(run, accepted):
            yield ended


async def _take_as_output(run: Run, reply: MessageDone) -> Sequence[RunEvent]:
    """Take a reply without calls as the output if it is valid; return the events of that."""
    if run.progress.empty_replies and not _is_output(run):
        return ()
    returned = await _finish(run, reply)
    completed = run.handoffs.take_completed()
    return completed if returned is None else (*completed, returned)


async def _begin_turn(run: Run) -> _Turn:
    run.begin_turn()
    check = None if run.agent_started else await _start_agent(run)
    offered = run.frame.offered or await _offer(run)
    system = await system_message(run, offered)
    messages, repairs = run.frame.view.messages(family_of(run.frame.handler), run.audience())
    if repairs:
        run.report.repairs += (*repairs,)
    shown = Shown(system=system, growing=messages, count=len(messages))
    request = _request(run, offered, shown)
    await emit(run, ModelCallBegins(request, shown))
    return _Turn(request=request, shown=shown, offered=offered, repairs=repairs, check=check)


def _is_output(run: Run) -> bool:
    """Whether an empty reply is the output; after a tool or handoff the model is called again.

    Raises:
        LoopDetected: the model was called once more, and its reply is empty again.
    """
    items, name = run.transcript.items, run.frame.agent.name
    but = " except for reasoning, which may be cut off" if has_reasoning(items[-1].message) else ""
    run.warn(f"turn {run.turn}: the reply is empty{but}")
    first = len(items) == run.transcript.input_count + 1 and items[-2].message["role"] != "tool"
    if first or run.frame.agent.output is not None or not run.config.detect_loops:
        return True
    if run.progress.empty_replies > 1:
        raise LoopDetected(
            f"Agent {name!r} gave an empty reply in turn {run.turn}, after it was told that its "
            "last one was empty. The partial result is in error.result; with RunConfig(detect_loops=False) "
            "an empty reply is the final output."
        )
    run.problem("loop", _EMPTY_REPLY_NUDGE)
    run.add("nudge", {"role": "user", "content": _EMPTY_REPLY_NUDGE})
    return False


async def _check_run_input(run: Run) -> None:
    if run.config.input_guardrails:
        shown = run.shown_next()
        await check_input(run.config.input_guardrails, run.now(), run.frame.agent, shown, whose="the run")


async def _start_agent(run: Run) -> Check | None:
    """Call the hooks and input guardrails of an agent that has become active.

    The agent counts as started once the guardrails have passed: a run that is resumed before runs them again.

    Returns:
        the guardrails, if they are to run while the model call is made; else None.
    """
    await emit(run, AgentBegins())
    if not run.frame.agent.input_guardrails:
        run.agent_started = True
        return None
    agent, now, messages = run.frame.agent, run.now(), run.shown_next()

    async def check() -> None:
        await check_input(agent.input_guardrails, now, agent, messages, whose=f"agent {agent.name!r}")
        run.agent_started = True

    if run.config.guardrails_beside:
        return check
    await check()
    return None


async def _offer(run: Run) -> OfferedTools:
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
    settings: dict[str, Any] = {}
    choice: ToolChoice | None = None
    if run.config.model_settings or run.frame.agent.model_settings:
        settings = {**run.config.model_settings, **run.frame.agent.model_settings}
        choice = _tool_choice(run, offered, settings.pop("tool_choice", None))
        settings = {key: value for key, value in settings.items() if value is not None}
    return Request(
        messages=shown.messages(),
        tools=offered.specs,
        tool_choice=choice,
        settings=settings,
        output_schema=run.frame.agent.output_schema,
        stream=run.stream,
        agent=run.frame.agent.name,
        turn=run.turn,
        context=run.now(),
        handoff_input=run.frame.handoff_input,
    )


def _tool_choice(run: Run, offered: OfferedTools, choice: ToolChoice | None) -> ToolChoice | None:
    """Return the agent's tool choice; a forced tool holds for one turn, if it is offered."""
    if choice in (None, "auto", "none"):
        return choice
    if run.frame.turns > 1 or not offered.routes:
        return None
    return choice if choice == "required" or choice in offered.routes else None


def _fall_back(run: Run, error: Exception) -> HandlerFallback:
    """Replace a handler that failed before it showed anything with the agent's next one.

    Raises:
        Exception: the error itself, if the run does not allow a fallback or no handler is left.
    """
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
    text = f"handler {failed!r} failed, {handler.name!r} answers instead: "
    text += f"{type(error).__name__}: {error_text(error)}"
    run.problem("fallback", text, error=error)
    run.replace_handler(handler, error)
    return HandlerFallback(agent=run.frame.agent.name, handler=failed, next_handler=handler.name, error=error)


def _accept(run: Run) -> tuple[Sequence[RunEvent], MessageDone]:
    """Take the complete reply; return the events that were not streamed yet, and the reply."""
    reply = run.model_call.reply
    if reply is None:
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
    shown, known = run.model_call.text.copy() if run.stream else (), len(run.report.repairs)
    reply = run.accept(reply)
    repaired = [Repaired(agent=run.frame.agent.name, repair=each) for each in run.report.repairs[known:]]
    return [*missing_deltas(reply.message, shown), *repaired] if run.stream else repaired, reply


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


async def _finish(run: Run, reply: MessageDone) -> HandoffReturned | None:
    """Turn a reply without calls into an output, or tell the model why it is not valid.

    The output is the final one, or the answer to the caller that waits for it.
    """
    text = text_of(reply.message) or refusal_of(reply.message)
    output: Any = text
    if run.frame.agent.output is not None:
        if (refusal := refusal_of(reply.message)) and text == refusal:
            raise ModelBehaviorError(f"The model of agent {run.frame.agent.name!r} refused: {refusal}")
        try:
            output = run.frame.agent.output.parse(json_in(text))
        except ModelBehaviorError as error:
            _reject_output(run, str(error))
            return None
    if run.frame.agent.output_guardrails or run.config.output_guardrails:
        await _check_output(run, output)
    if run.callers and asking_caller(run.callers) is not None:
        await emit(run, AgentEnds(output))
        return return_answer(run, text)
    run.ending.final_output = output
    run.ending.stop_reason = "done"
    run.close_handoff(HandoffStatus.COMPLETED)
    drop_standbys(run)
    await emit(run, AgentEnds(output))
    return None


async def _check_output(run: Run, output: Any) -> None:
    """Call the output guardrails of the agent, and those of the run if the output is the final one."""
    is_final = not run.callers or asking_caller(run.callers) is None
    agent, now = run.frame.agent, run.now()
    of_run = run.config.output_guardrails if is_final else ()
    asked = output_questions(agent.output_guardrails, now, agent, output, whose=f"agent {agent.name!r}")
    await ask_all([*asked, *output_questions(of_run, now, agent, output, whose="the run")])


def _reject_output(run: Run, wrong: str) -> None:
    """Tell the model why its output is not valid; the next turn is for the corrected one.

    Raises:
        ModelBehaviorError: there were ``max_mistakes`` turns in a row with nothing but mistakes.
    """
    run.progress.mistakes += 1
    run.problem("output", wrong)
    if run.progress.mistakes >= run.config.max_mistakes:
        raise ModelBehaviorError(
            f"Agent {run.frame.agent.name!r} gave no valid final output in {run.progress.mistakes} turns in "
            f"a row: {wrong}"
        )
    text = f"Your answer is not valid: {wrong} Answer again with nothing but the corrected JSON."
    nudge: Message = {"role": "user", "content": text}
    run.add("nudge", nudge)


async def _open(run: Run) -> None:
    """Start the trace of a run, and load its session."""
    emit_now(run, RunBegins())
    if run.store is not None:
        await run.store.open(run)


async def _in_time(run: Run, events: AsyncGenerator[RunEvent], seconds: float) -> AsyncGenerator[RunEvent]:
    """Carry out a run and cancel it when its time is over, which ends it like any other limit."""
    setting = run.budget.set_by("seconds", seconds, "RunConfig(timeout=...)")
    late = RunTimeout(
        f"The run that agent {run.first.name!r} began took longer than its timeout of {seconds:g} s. Raise "
        f"{setting}, or use the partial result in error.result."
    )
    raised: Exception | None = None
    try:
        async with aclosing(in_time(events, seconds, late)) as limited:
            async for event in limited:
                yield event
        return
    except RunTimeout as error:
        if error is not late:
            raise
        raised = await _fail(run, late)
    finally:
        emit_now(run, RunEnds(raised))
    for event in run.handoffs.take_completed():
        yield event
    if raised is not None:
        raise raised
    yield RunDone(run.result())


async def _close(run: Run, raised: Exception | None) -> None:
    """Store what is left of a run and end its trace, for whatever reason it ended."""
    run.keep_partial()
    run.close()
    if run.store is not None:
        await run.store.close(run)
    # a cancelled run may have been timed out, and then `_in_time` ends the trace
    if run.config.timeout is None or run.ending.stop_reason != "unfinished":
        emit_now(run, RunEnds(raised))


async def _fail(run: Run, error: Exception) -> Exception | None:
    """End the run with an error.

    Returns:
        the error to raise, with the partial result; None if a limit ended the run and is not to be raised.
    """
    run.keep_partial(error)
    if run.store is not None:
        await run.store.close(run, error)
    run.ending.stop_reason, run.ending.failure = "error", f"{type(error).__name__}: {error_text(error)}"
    is_own_limit = isinstance(error, LimitExceeded) and error.result is None  # not that of a sub-run
    if is_own_limit:
        run.close()
    else:
        run.close(HandoffStatus.FAILED, run.ending.failure)
    if is_own_limit and run.config.on_limit != "raise":
        return await _end_at_limit(run, cast(LimitExceeded, error))
    if isinstance(error, RoutelockError):
        error.result = run.result()
        return error
    if isinstance(error, AssertionError):  # a test failed within a callback: the handler did not
        return error
    raised = HandlerError(
        f"Handler {run.frame.handler.name!r} of agent {run.frame.agent.name!r} raised {type(error).__name__} "
        f"in turn {run.turn}: {error_text(error)}"
    )
    raised.result, raised.__cause__ = run.result(), error
    return raised


async def _end_at_limit(run: Run, error: LimitExceeded) -> RoutelockError | None:
    """End the run at a limit without raising; an ``on_limit`` function gives the final output."""
    run.ending.stop_reason = "limit"
    run.problem("limit", str(error), error=error)
    if not callable(run.config.on_limit):
        return None
    error.result = run.result()
    try:
        what = "The on_limit function of the run"
        run.ending.final_output = await call_user_code(what, run.config.on_limit, error)
        await _add_output(run, run.ending.final_output)
    except RoutelockError as failed:
        run.ending.stop_reason = "error"
        failed.result = run.result()
        return failed
    return None


async def _add_output(run: Run, output: object) -> None:
    """Add the output of ``on_limit`` to the conversation: the user sees it."""
    try:
        text = to_text(output)
    except NoTextError as error:
        run.warn(f"the output of on_limit is not in the conversation: {error}")
        return
    if text.strip():
        run.add("model", {"role": "assistant", "content": text}, final=True)
        if run.store is not None:
            await run.store.close(run)


def _check_progress(run: Run, turn: Answered) -> None:
    """End the run if it has to wait for the caller or makes no progress.

    The transcript is complete at this point.

    Args:
        run: the run.
        turn: the answered calls of the reply.

    Raises:
        ModelBehaviorError: the model made nothing but mistakes for too many turns.
        HandoffError: a handoff failed, and ``raise_on`` names that.
        LimitExceeded: the model requested too many handoffs, or makes no progress.
    """
    planned, transfer = turn.routed, turn.handoff
    assert planned is not None
    if planned.waiting or run.sub_runs.waiting or run.calls.interruptions:
        run.calls.interruptions = all_waiting(run, planned)
    if turn.raised is not None:
        raise turn.raised
    if planned.external or planned.waiting or run.sub_runs.waiting:
        run.calls.pending = tuple(detached(call) for call in planned.external)
        run.ending.stop_reason = "requires_action"
        return
    if transfer is not None and transfer.error is not None:
        _check_failed_transfer(run, transfer)
    handed_over = transfer is not None and transfer.target is not None
    run.progress.mistakes = run.progress.mistakes + 1 if turn.only_mistakes and not handed_over else 0
    if run.progress.mistakes >= run.config.max_mistakes:
        raise ModelBehaviorError(
            f"Agent {run.frame.agent.name!r} made nothing but mistakes in {run.progress.mistakes} turns in a "
            f"row. The last one: {_last_mistake(run)}"
        )
    if (planned.tools or planned.declined or planned.unavailable) and run.config.detect_loops:
        _check_repetition(run)


def _last_mistake(run: Run) -> str:
    """Return the last mistake of the model in this turn; problems of hooks and limits are none."""
    of_turn = [each for each in run.report.errors if each.turn == run.turn]
    mistakes = [each.message for each in of_turn if each.kind in _MISTAKES]
    return mistakes[-1] if mistakes else "several transfers at once"


def _check_failed_transfer(run: Run, transfer: HandoffAttempt) -> None:
    """End the run if ``raise_on`` says so, or if the model repeats a request that was refused."""
    if transfer.refused_by == "arguments" and "bad_arguments" in run.config.raise_on:
        raise asked_for(run, transfer.answer)
    if "failed_handoff" in run.config.raise_on:
        raise failed_handoff(run, transfer)
    again = (
        f"Agent {run.frame.agent.name!r} requested the handoff again after it was told: {transfer.answer}."
    )
    if transfer.refused_by == "limit":
        run.progress.over_limit += 1
        if run.progress.over_limit > 1:
            raise MaxHandoffsExceeded(again)
    elif transfer.refused_by == "loop":
        run.progress.refused += 1
        if run.progress.refused > 1:
            raise LoopDetected(again)


def _check_repetition(run: Run) -> None:
    """Tell the model that it repeats itself, or end the run if it was told before."""
    seen = run.progress
    if seen.is_stuck:
        raise LoopDetected(
            f"Agent {run.frame.agent.name!r} was told that it repeats itself, and went on: {seen.idle} turns "
            f"in a row returned the same results ({seen.repeated_tools}). The partial result is in "
            "error.result; set RunConfig(detect_loops=False) if the agent is meant to repeat calls."
        )
    if seen.needs_nudge:
        text = _REPETITION_NUDGE.format(tools=seen.repeated_tools, turns=seen.idle)
        run.problem("loop", text)
        run.add("nudge", {"role": "user", "content": text})
