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
from typing import Any

import anyio

from routelock._concurrency import open_group
from routelock._copies import detached
from routelock.errors import LoopDetected, ModelBehaviorError
from routelock.guardrails import check_input, check_output
from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.handlers.structured_output import json_in
from routelock.handoff_request import HandoffStatus
from routelock.history.messages import Message, refusal_of, text_of
from routelock.history.unfinished_turn import LeftOver
from routelock.run.call_faults import count_failed
from routelock.run.emit import AgentEnds, ReplyTaken, RunBegins, RunEnds, emit, emit_now
from routelock.run.events import AgentUpdated, RunDone, RunEvent
from routelock.run.failure import fail, fail_frame, in_run_time, keep_partial, recover
from routelock.run.frames import asking_caller, drop_standbys, is_for_caller, return_answer
from routelock.run.mistakes import check_failed_handoff, last_mistake
from routelock.run.model_call import (
    InputCheck,
    begin_call,
    note_event,
    offered_tools,
    prepare_call,
    take_reply,
)
from routelock.run.result import RunResult
from routelock.run.routing import RoutedCalls
from routelock.run.run import Run
from routelock.run.tool_calls import answer_calls
from routelock.run.unusable_output import accept_empty_reply, reject_output, replacement

__all__ = ["loop", "run_events", "run_to_end", "take_turn"]


_REPETITION_NUDGE = (
    "You are repeating yourself: the last {turns} turns returned the same results ({tools}). Use the results "
    "that you have, make another call, or answer the user."
)


async def loop(run: Run) -> AsyncGenerator[RunEvent]:
    """Carry out a run and yield its events, at the pace of the reader; the last one is `RunDone`.

    Raises:
        RoutelockError: with the partial result in ``error.result``.
    """
    raised: Exception | None = None
    try:
        left = await _open(run)
        while run.ending.stop_reason == "unfinished":
            if run.ending.stops_after_turn and not run.retakes_turn:  # else the turn has no reply yet
                run.ending.stop_reason = "stopped"
                break
            turn = take_turn(run) if left is None else _rest_of_turn(run, left)
            left = None
            try:
                async for event in turn:
                    yield event
            except Exception as error:
                if not is_for_caller(run.callers, error, run.config.raise_on):
                    raise
                fail_frame(run, error)
            finally:
                await turn.aclose()
            while run.handoffs.events:
                yield run.handoffs.events.pop(0)
            if run.store is not None:
                await run.store.append(run)
    except Exception as error:
        raised = await fail(run, error)
    finally:
        await _close(run, raised)
    while run.handoffs.events:
        yield run.handoffs.events.pop(0)
    if raised is not None:
        raise raised
    yield RunDone(run.result())


def run_events(run: Run) -> AsyncGenerator[RunEvent]:
    """Return the events of a run, which is cancelled after its ``timeout``."""
    return loop(run) if run.config.timeout is None else in_run_time(run, loop(run), run.config.timeout)


async def run_to_end(run: Run) -> RunResult[Any]:
    """Carry out a run that is not streamed, and return its result."""
    result: RunResult[Any] | None = None
    events = run_events(run)
    try:
        async for event in events:
            if isinstance(event, RunDone):
                result = event.result
    finally:
        await events.aclose()
    assert result is not None, "the last event of a run is RunDone"
    return result


async def _open(run: Run) -> LeftOver | None:
    """Load the session, start the trace and check the input; return the rest of the turn of a resumed run."""
    try:
        if run.store is not None:  # the session has the first messages, and may choose the agent
            await run.store.open(run)
    finally:
        if run.recorder is not None:
            emit_now(run, RunBegins())
    if run.turn:
        return await _restore(run)
    if run.config.input_guardrails:
        guardrails, records, shown = run.config.input_guardrails, run.report.guardrails, run.shown_next()
        await check_input(guardrails, run.current_context(), run.frame.agent, shown, records, of_run=True)
    return None


async def _restore(run: Run) -> LeftOver:
    """Restore a resumed run from its state; return the rest of its turn."""
    from routelock.state.resume import settle  # noqa: PLC0415 - only resumed runs need it

    left = settle(run)
    if run.store is not None and run.ending.stop_reason == "unfinished":
        await run.store.claim(run, left.calls)
    return left


async def _rest_of_turn(run: Run, left: LeftOver) -> AsyncGenerator[RunEvent]:
    """Finish the turn that a resumed run stopped in."""
    if left.calls:
        routed = RoutedCalls(left.calls, (await offered_tools(run)).with_disabled())
        async with aclosing(answer_calls(run, routed, run_events)) as events:
            async for event in events:
                yield event
        _end_turn(run, routed)
    elif left.reply is not None:
        await _take_output(run, MessageDone(message=left.reply.message))


async def take_turn(run: Run) -> AsyncGenerator[RunEvent]:
    """Make one model call, and take its reply as output or answer its calls.

    Raises:
        MaxTurnsExceeded: the run has made ``max_turns`` turns.
        BudgetExceeded: a limit of ``RunConfig.limits`` is reached.
    """
    if run.note_agent_change() and run.is_streamed:
        yield AgentUpdated(run.frame.agent.name)
    run.begin_turn()
    call = await prepare_call(run, run_events)
    for notice in call.events:
        yield notice
    try:
        arriving = begin_call(run, call)
        try:
            if call.check is not None:
                for held in await _read_beside(run, arriving, call.check):
                    yield held
            async for event in arriving:  # none, if an error beside the check is kept for `take_reply`
                if note_event(run, event) and run.is_streamed:
                    yield event
        finally:
            await arriving.aclose()
        unstreamed_events, reply = take_reply(run)
    except Exception as error:
        yield await recover(run, error, run_events)
        return
    for each in unstreamed_events:
        yield each
    if run.is_observed:
        await emit(run, ReplyTaken(reply))
    if not (calls := reply.message.get("tool_calls")):
        await _take_output(run, reply)
        return
    routed = RoutedCalls(calls, call.offered)
    answering = answer_calls(run, routed, run_events)
    try:
        async for done in answering:
            yield done
    finally:
        await answering.aclose()
    _end_turn(run, routed)


def _end_turn(run: Run, routed: RoutedCalls) -> None:
    """End the run if it has to wait for the caller or makes no progress; else the next turn may begin.

    The transcript is complete at this point.

    Args:
        run: the run.
        routed: the answered calls of the reply.

    Raises:
        ModelBehaviorError: the model made nothing but mistakes for too many turns.
        HandoffError: a handoff failed, and ``raise_on`` names that.
        LimitExceeded: the model requested too many handoffs, or makes no progress.
    """
    if routed.external or routed.waiting or run.sub_runs.waiting:
        run.open_calls.pending = tuple(detached(each.tool_call) for each in routed.external)
        run.ending.stop_reason = "requires_action"
        return
    attempt = None if routed.handoff_call is None else routed.handoff_call.attempt
    if attempt is not None and attempt.error is not None:
        check_failed_handoff(run, attempt)
    handed_over = attempt is not None and attempt.target is not None
    results = [call.result for call in routed.calls if call.result is not None]
    only_mistakes = bool(results) and all(result.is_mistake for result in results)
    run.progress.mistakes = run.progress.mistakes + 1 if only_mistakes and not handed_over else 0
    if run.progress.mistakes >= run.config.max_mistakes:
        raise ModelBehaviorError(
            f"Agent {run.frame.agent.name!r} made nothing but mistakes in {run.progress.mistakes} turns in a "
            f"row, up to turn {run.turn}. The last one: {last_mistake(run)}"
        )
    is_repetition = run.progress.nudged_at is not None  # else `Progress.is_stuck` need not be asked
    if is_repetition and run.config.detect_loops and (routed.tools or routed.refused):
        _check_repetition(run)


def _check_repetition(run: Run) -> None:
    """Tell the model once if it repeats itself; end the run if it goes on after that."""
    progress = run.progress
    if progress.is_stuck:
        raise LoopDetected(
            f"Agent {run.frame.agent.name!r} was told that it repeats itself, and went on: {progress.idle} "
            f"turns in a row, up to turn {run.turn}, returned the same results ({progress.repeated_tools}). "
            "The partial result is in error.result; set RunConfig(detect_loops=False) if it is meant to."
        )
    if progress.needs_nudge:
        text = _REPETITION_NUDGE.format(tools=progress.repeated_tools, turns=progress.idle)
        run.add_problem("loop", text)
        run.add_message("nudge", {"role": "user", "content": text})


async def _take_output(run: Run, reply: MessageDone) -> None:
    """Turn a reply without calls into an output, or tell the model why it is not valid.

    The output is the final one, or the answer to the caller that waits for it.
    """
    if run.progress.empty_replies and not accept_empty_reply(run):
        return
    text = text_of(reply.message) or refusal_of(reply.message)
    output: Any = text
    if _is_refused(run, reply.message, text):
        refused = ModelBehaviorError(f"The model of agent {run.frame.agent.name!r} refused: {text}")
        await _end_with_output(run, await replacement(run, "on_refusal", refused))
        return
    if run.frame.agent.output is not None:
        try:
            output = run.frame.agent.output.parse(json_in(text))
        except ModelBehaviorError as error:
            await _refuse_output(run, str(error))
            return
    if run.frame.agent.output_guardrails or run.config.output_guardrails:
        if (wrong := await _check_output(run, output)) is not None:
            await _refuse_output(run, wrong)
            return
    if run.callers and asking_caller(run.callers) is not None:
        await emit(run, AgentEnds(output))
        return_answer(run, text)
        return
    await _end_with_output(run, output)


async def _refuse_output(run: Run, wrong: str) -> None:
    """Have the model answer again; or end the run with the output that the app gives in its place."""
    if (invalid := reject_output(run, wrong)) is not None:
        await _end_with_output(run, await replacement(run, "on_invalid_output", invalid))


async def _end_with_output(run: Run, output: Any) -> None:
    """End the run with its final output."""
    run.ending.final_output = output
    run.ending.stop_reason = "done"
    run.close_handoff(HandoffStatus.COMPLETED)
    if run.callers:
        drop_standbys(run)
    if run.is_observed:
        await emit(run, AgentEnds(output))


def _is_refused(run: Run, message: Message, text: str) -> bool:
    """Whether the model refused to answer, and the refusal is not to be the output."""
    if run.frame.agent.output is None and (
        run.config.on_refusal == "raise" or asking_caller(run.callers) is not None
    ):
        return False
    return bool(text) and refusal_of(message) == text


async def _check_output(run: Run, output: Any) -> str | None:
    """Call the output guardrails of the agent, and those of the run if the output is the final one.

    Returns:
        what is wrong with the output if the model is to answer again.
    """
    is_final = not run.callers or asking_caller(run.callers) is None
    agent, records = run.frame.agent, run.report.guardrails
    of_run = run.config.output_guardrails if is_final else ()
    return await check_output(agent.output_guardrails, of_run, run.current_context(), agent, output, records)


async def _close(run: Run, raised: Exception | None) -> None:
    """Store the rest of a run and end its trace, for whatever reason it ended."""
    if run.model_call.request is not None:
        keep_partial(run)
    run.close()
    if run.store is not None:
        await run.store.close(run)
    # a cancelled run may have been timed out, and then `in_run_time` ends the trace
    is_over = run.config.timeout is None or run.ending.stop_reason != "unfinished"
    if is_over and run.recorder is not None:
        emit_now(run, RunEnds(raised))


async def _read_beside(
    run: Run, events: AsyncGenerator[HandlerEvent], check: InputCheck
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
            group.start_soon(_run_check, check, checked, refusals, group.cancel_scope)
            try:
                while not checked.is_set() and (event := await anext(events, None)) is not None:
                    held += [event] if note_event(run, event) else []
            except Exception as error:  # the check goes on and may refuse the input
                run.model_call.error = error
                await events.aclose()  # if `note_event` raised the error, the generator is still open
        if refusals:
            raise refusals[0]
    except BaseException:
        if run.model_call.reply is not None:
            count_failed(run, None)
        run.model_call.forget_reply()
        raise
    return held


async def _run_check(
    check: InputCheck, checked: anyio.Event, refusals: list[Exception], reading: anyio.CancelScope
) -> None:
    try:
        await check()
    except Exception as error:  # a task group would wrap it in an exception group
        refusals.append(error)
        reading.cancel()
    checked.set()
