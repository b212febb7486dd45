"""The one loop: an async generator of what happens. Plain runs read it to its end; there is no other.

    view, handler, agent = start of the run          # in Run: the reset is structural
    for each turn:
        reply = the MessageDone among handler.stream(request)
        no tool calls -> final output
        answer every call exactly once, in call order
        a transfer was made -> the view, the agent or the handler changes

Start at `loop`; `take_turn` is one turn. Each generator is closed by the one that reads it, and none yields
while a task group or a cancel scope is open (https://anyio.readthedocs.io/en/stable/cancellation.html).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from routelock._callables import call_user_code, error_text
from routelock._concurrency import ask_all
from routelock._json import detached
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
from routelock.run.frames import asking_caller, fail_frame, is_told, return_answer, stop_all_standing_by
from routelock.run.handler_selection import next_handler
from routelock.run.handoff_attempt import HandoffAttempt
from routelock.run.model_call import Check, call_model, note
from routelock.run.prompt import system_message
from routelock.run.result import Shown
from routelock.run.routing import OfferedTools, offer_tools
from routelock.run.run import Run
from routelock.run.timeouts import in_time
from routelock.run.tool_calls import Answered, answer_calls, asked_for, failed_handoff
from routelock.tools.invoke import NoTextError, to_text

__all__ = ["loop", "run_events", "take_turn"]

_MISTAKES = ("unknown_tool", "bad_arguments", "handoff")

_REPEATS = (
    "You are going round: {what} gave the same results again, and the last {turns} turns brought nothing "
    "new. Use what you have, try something else, or answer the user."
)

_WHOLE = ("stop", "tool_calls", None)
"""The finish reasons of nearly all replies."""

_SAY_SOMETHING = "Your reply was empty. Answer the user, or call a tool."


@dataclass(slots=True)
class _Turn:
    """What a turn begins with."""

    request: Request
    shown: Shown
    offered: OfferedTools
    repairs: Sequence[str]
    check: Check | None
    """Judges the input while the model is asked."""


async def loop(run: Run) -> AsyncGenerator[RunEvent]:
    """Carry out a run and yield what happens, at the pace of the reader; the last event is `RunDone`.

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
                async with aclosing(turn) as happening:
                    async for event in happening:
                        yield event
            except Exception as error:
                failed = _tell_caller(run, error)
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
    """Return what happens in a run, for no longer than its ``timeout``."""
    return loop(run) if run.config.timeout is None else _in_time(run, loop(run), run.config.timeout)


async def _unfinished_turn(run: Run) -> AsyncGenerator[RunEvent] | None:
    """Return what is left of the turn in which a resumed run stood; None for a run that begins."""
    if run.turn:
        return _rest_of_turn(run, await _restore(run))
    await _check_run_input(run)
    return None


def _tell_caller(run: Run, error: Exception) -> HandoffFailed:
    """Let the agent that waits go on without the answer.

    Raises:
        Exception: the error itself, if it ends the run.
    """
    if not is_told(run.callers, error, run.config.raise_on):
        raise error
    return fail_frame(run, error)


async def _restore(run: Run) -> LeftOver:
    """Let a resumed run stand where its state says; return what is left of its turn."""
    from routelock.state.resume import settle  # noqa: PLC0415 - for the runs that do

    left = settle(run)
    if run.store is not None and run.ending.stop_reason == "unfinished":
        await run.store.claim(run, left.calls)
    return left


async def _rest_of_turn(run: Run, left: LeftOver) -> AsyncGenerator[RunEvent]:
    """Do what is left of the turn in which a resumed run stood."""
    if left.calls:
        offered = (await _offer(run)).with_disabled()
        answered = Answered()
        async with aclosing(answer_calls(run, offered, left.calls, run_events, answered)) as happening:
            async for event in happening:
                yield event
        _check_progress(run, answered)
    elif left.reply is not None:
        for ended in await _take_as_output(run, MessageDone(message=left.reply.message)):
            yield ended


async def take_turn(run: Run) -> AsyncGenerator[RunEvent]:
    """Make one model call and do what its reply asks for."""
    if run.is_new_agent():
        yield AgentUpdated(run.frame.agent.name)
    turn = await _begin_turn(run)
    for repair in turn.repairs:
        yield Repaired(agent=run.frame.agent.name, repair=repair)
    accepted: MessageDone | HandlerFallback
    unseen: Sequence[RunEvent] = ()
    try:
        async with aclosing(call_model(run, turn.request, turn.shown, turn.check)) as arriving:
            async for event in arriving:
                if note(run, event):
                    yield event
        unseen, accepted = _accept(run)
    except Exception as error:
        accepted = _fall_back(run, error)
    for each in (*run.handoffs.take_completed(), *unseen):
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
        async with aclosing(answer_calls(run, turn.offered, calls, run_events, answered)) as happening:
            async for done in happening:
                yield done
        _check_progress(run, answered)
    else:
        for ended in await _take_as_output(run, accepted):
            yield ended


async def _take_as_output(run: Run, reply: MessageDone) -> Sequence[RunEvent]:
    """Take a reply without calls as the output, if it is one; return what happened."""
    if run.progress.empty_replies and not _is_answer(run):
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


def _is_answer(run: Run) -> bool:
    """Whether an empty reply is the final output. After a tool or a transfer the model is asked once more.

    Raises:
        LoopDetected: it was asked, and said nothing again.
    """
    items, name = run.transcript.items, run.frame.agent.name
    but = ", but for a thought, which may have been cut" if has_reasoning(items[-1].message) else ""
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
    run.problem("loop", _SAY_SOMETHING)
    run.add("nudge", {"role": "user", "content": _SAY_SOMETHING})
    return False


async def _check_run_input(run: Run) -> None:
    if run.config.input_guardrails:
        shown = run.shown_next()
        await check_input(run.config.input_guardrails, run.now(), run.frame.agent, shown, whose="the run")


async def _start_agent(run: Run) -> Check | None:
    """Run what belongs to the moment an agent becomes the active one; return what is left of it to do.

    It is behind it once the guardrails let the input pass: a run that is resumed is judged again.
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
    """Return what the model may call. What nothing can change is worked out once, for all or for this run."""
    agent, handler = run.frame.agent, run.frame.handler.name
    for_all = not (run.scopes or run.config.external_tools or run.config.agents)
    offered: OfferedTools | None = agent.cache.get((offer_tools, handler)) if for_all else None
    if offered is None:
        external = run.config.external_tools
        offered = await offer_tools(agent, run.now(), run.graph, handler=handler, external=external)
        if for_all and offered.fixed and not any(isinstance(edge.target, str) for edge in agent.edges):
            agent.cache[offer_tools, handler] = offered
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
        f"among more than {most}: put some behind an agent of their own, or set "
        "RunConfig(warn_handoffs_over=...)"
    )


def _request(run: Run, offered: OfferedTools, shown: Shown) -> Request:
    """Put together what the handler is given."""
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
    """Return the agent's tool choice where it applies: one that forces holds once, and for what is there."""
    if choice in (None, "auto", "none"):
        return choice
    if run.frame.turns > 1 or not offered.routes:
        return None
    return choice if choice == "required" or choice in offered.routes else None


def _fall_back(run: Run, error: Exception) -> HandlerFallback:
    """Put the agent's next handler in the place of one that failed before it showed anything.

    Raises:
        Exception: the error itself, when the run does not allow it or no handler is left.
    """
    excused = isinstance(error, HandlerError) or not isinstance(error, RoutelockError | AssertionError)
    if isinstance(error, RoutelockError) and error.result is not None:
        excused = True  # it ended another run, which the handler made
    arrived = run.model_call.reply is not None and not isinstance(error, ContentRefused)
    began = run.model_call.request is None or run.model_call.text or arrived
    if not excused or began or not run.config.fallback:
        raise error
    agent, failed = run.frame.agent, run.frame.handler.name
    handler = next_handler(agent, failed, run.failed_of(agent), run.config)
    if handler is None:
        raise error
    why = f"handler {failed!r} failed, {handler.name!r} answers instead: "
    why += f"{type(error).__name__}: {error_text(error)}"
    run.problem("fallback", why, error=error)
    run.replace_handler(handler, error)
    return HandlerFallback(agent=run.frame.agent.name, handler=failed, next_handler=handler.name, error=error)


def _accept(run: Run) -> tuple[Sequence[RunEvent], MessageDone]:
    """Take the complete reply; return what of it nobody has seen yet, what was repaired in it, and itself."""
    reply = run.model_call.reply
    if reply is None:
        raise HandlerError(
            f"Handler {run.frame.handler.name!r} ended in turn {run.turn} without a MessageDone. "
            "Every handler must yield exactly one, with the complete message."
        )
    if wrong := reply_problem(reply.message):
        name = run.frame.handler.name
        raise HandlerError(f"Handler {name!r} gave a reply in turn {run.turn} with {wrong}.")
    if reply.finish_reason not in _WHOLE and was_cut_short(reply.finish_reason):
        if why := filtered_out(reply):
            raise _refused(run, reply, why)
        run.warn(f"turn {run.turn}: the reply was cut short ({reply.finish_reason})")
    _check_choice(run, reply)
    shown, known = run.model_call.text.copy() if run.stream else (), len(run.report.repairs)
    reply = run.accept(reply)
    repaired = [Repaired(agent=run.frame.agent.name, repair=each) for each in run.report.repairs[known:]]
    return [*missing_deltas(reply.message, shown), *repaired] if run.stream else repaired, reply


def _check_choice(run: Run, reply: MessageDone) -> None:
    """Warn of a forced tool choice that was not kept: some servers take it and do as they like."""
    request = run.model_call.request
    if request is None or request.tool_choice in (None, "auto", "none"):
        return
    choice, called = request.tool_choice, [call["function"].get("name") for call in calls_of(reply.message)]
    kept = bool(called) if choice == "required" else choice in called
    if not kept and request.output_schema is None:  # else the answer may have come by a tool of its own
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
    """Turn a reply without calls into an output, or tell the model what is wrong with it.

    The output is the final one, or goes back to the agent that waits for it.
    """
    text = text_of(reply.message) or refusal_of(reply.message)
    output: Any = text
    if run.frame.agent.output is not None:
        if (refusal := refusal_of(reply.message)) and text == refusal:
            raise ModelBehaviorError(f"The model of agent {run.frame.agent.name!r} refused: {refusal}")
        try:
            output = run.frame.agent.output.parse(json_in(text))
        except ModelBehaviorError as error:
            _ask_again(run, str(error))
            return None
    if run.frame.agent.output_guardrails or run.config.output_guardrails:
        await _guard(run, output)
    if run.callers and asking_caller(run.callers) is not None:
        await emit(run, AgentEnds(output))
        return return_answer(run, text)
    run.ending.final_output = output
    run.ending.stop_reason = "done"
    run.close_handoff(HandoffStatus.COMPLETED)
    stop_all_standing_by(run)
    await emit(run, AgentEnds(output))
    return None


async def _guard(run: Run, output: Any) -> None:
    """Ask the guardrails of the agent, and of the run if the output is its final one."""
    is_final = not run.callers or asking_caller(run.callers) is None
    agent, now = run.frame.agent, run.now()
    of_run = run.config.output_guardrails if is_final else ()
    asked = output_questions(agent.output_guardrails, now, agent, output, whose=f"agent {agent.name!r}")
    await ask_all([*asked, *output_questions(of_run, now, agent, output, whose="the run")])


def _ask_again(run: Run, wrong: str) -> None:
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
    """Open the books of a run: its trace, and its session."""
    emit_now(run, RunBegins())
    if run.store is not None:
        await run.store.open(run)


async def _in_time(run: Run, events: AsyncGenerator[RunEvent], seconds: float) -> AsyncGenerator[RunEvent]:
    """Carry out a run that is cancelled when its time is up, which is the end of it as any limit is."""
    setting = run.budget.set_by("seconds", seconds, "RunConfig(timeout=...)")
    late = RunTimeout(
        f"The run took longer than its timeout of {seconds:g} s: agent {run.first.name!r} began it. Raise "
        f"{setting}, or take what there is from error.result."
    )
    raised: Exception | None = None
    try:
        async with aclosing(in_time(events, seconds, late)) as in_due_time:
            async for event in in_due_time:
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
    """Close the books of a run, however it ended."""
    run.keep_partial()
    run.close()
    if run.store is not None:
        await run.store.close(run)
    # what was cancelled may be so because its time is up, which `_in_time` knows
    if run.config.timeout is None or run.ending.stop_reason != "unfinished":
        emit_now(run, RunEnds(raised))


async def _fail(run: Run, error: Exception) -> Exception | None:
    """End the run; return the error to raise, with the partial result. None: the limit is to be a result."""
    run.keep_partial(error)
    if run.store is not None:
        await run.store.close(run, error)
    run.ending.stop_reason, run.ending.failure = "error", f"{type(error).__name__}: {error_text(error)}"
    fresh = isinstance(error, LimitExceeded) and error.result is None  # not that of a run within this one
    if fresh:
        run.close()
    else:
        run.close(HandoffStatus.FAILED, run.ending.failure)
    if fresh and run.config.on_limit != "raise":
        return await _end_at_limit(run, cast(LimitExceeded, error))
    if isinstance(error, RoutelockError):
        error.result = run.result()
        return error
    if isinstance(error, AssertionError):  # a test's own complaint is not the handler's fault
        return error
    raised = HandlerError(
        f"Handler {run.frame.handler.name!r} of agent {run.frame.agent.name!r} raised {type(error).__name__} "
        f"in turn {run.turn}: {error_text(error)}"
    )
    raised.result, raised.__cause__ = run.result(), error
    return raised


async def _end_at_limit(run: Run, error: LimitExceeded) -> RoutelockError | None:
    """Take the limit as the end of the run; the app may say what its final output is."""
    run.ending.stop_reason = "limit"
    run.problem("limit", str(error), error=error)
    if not callable(run.config.on_limit):
        return None
    error.result = run.result()
    try:
        what = "The on_limit function of the run"
        run.ending.final_output = await call_user_code(what, run.config.on_limit, error)
        await _put_in(run, run.ending.final_output)
    except RoutelockError as failed:
        run.ending.stop_reason = "error"
        failed.result = run.result()
        return failed
    return None


async def _put_in(run: Run, output: object) -> None:
    """Make the answer of ``on_limit`` a part of the conversation: it is what the user is told."""
    try:
        text = to_text(output)
    except NoTextError as error:
        run.warn(f"what on_limit answered is not in the conversation: {error}")
        return
    if text.strip():
        run.add("model", {"role": "assistant", "content": text}, final=True)
        if run.store is not None:
            await run.store.close(run)


def _check_progress(run: Run, turn: Answered) -> None:
    """End the run if the turn calls for it. Everything that happened is in the transcript by now.

    Args:
        run: the run.
        turn: what came of the calls of a reply.

    Raises:
        ModelBehaviorError: nothing but mistakes for too many turns.
        HandoffError: as ``raise_on`` says.
        LimitExceeded: too many transfers, or going round without progress.
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
            f"row. The last: {_last_mistake(run)}"
        )
    if (planned.tools or planned.declined or planned.unavailable) and run.config.detect_loops:
        _check_repetition(run)


def _last_mistake(run: Run) -> str:
    """Return what the model is to blame for in this turn: hooks and limits are among the errors, too."""
    of_turn = [each for each in run.report.errors if each.turn == run.turn]
    mistakes = [each.message for each in of_turn if each.kind in _MISTAKES]
    return mistakes[-1] if mistakes else "several transfers at once"


def _check_failed_transfer(run: Run, transfer: HandoffAttempt) -> None:
    if transfer.refused_by == "arguments" and "bad_arguments" in run.config.raise_on:
        raise asked_for(run, transfer.answer)
    if "failed_handoff" in run.config.raise_on:
        raise failed_handoff(run, transfer)
    again = f"Agent {run.frame.agent.name!r} asked again after it was told: {transfer.answer}."
    if transfer.refused_by == "limit":
        run.progress.over_limit += 1
        if run.progress.over_limit > 1:
            raise MaxHandoffsExceeded(again)
    elif transfer.refused_by == "loop":
        run.progress.refused += 1
        if run.progress.refused > 1:
            raise LoopDetected(again)


def _check_repetition(run: Run) -> None:
    seen = run.progress
    if seen.is_stuck:
        raise LoopDetected(
            f"Agent {run.frame.agent.name!r} was told that it repeats itself, and went on: {seen.idle} turns "
            f"in a row with the same results as before ({seen.what}). The partial result is in error.result; "
            "set RunConfig(detect_loops=False) if that is what it is for."
        )
    if seen.needs_nudge:
        text = _REPEATS.format(what=seen.what, turns=seen.idle)
        run.problem("loop", text)
        run.add("nudge", {"role": "user", "content": text})
