"""Answers every tool call of a reply exactly once, in call order."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from routelock._callables import MaybeAwaitable, is_error
from routelock._concurrency import Question, ask_all
from routelock._text import clip
from routelock.agents.agent_tool import AgentCall
from routelock.agents.offer import OfferedTools, enabled_of
from routelock.errors import ConfigError, HandoffError, RoutelockError
from routelock.handoff_request import HandoffRequest
from routelock.handoffs.handoff import Handoff
from routelock.history.content import with_media
from routelock.history.messages import Message, ToolCall
from routelock.run.events import (
    ApprovalRequested,
    HandoffFailed,
    HandoffOccurred,
    HandoffRequested,
    RunEvent,
    ToolCalled,
    ToolOutput,
)
from routelock.run.handler_selection import handlers_by_priority
from routelock.run.handoff_attempt import HandoffAttempt, HandoffRefused
from routelock.run.routing import Result, RoutedCall, edge_for, unknown_tool
from routelock.run.run import Run
from routelock.run.subrun import Events
from routelock.run.tool_batch import ToolBatch, context_of, mistake_error, take_outcome
from routelock.run.transfer import put_on_record, take_over
from routelock.run.transfer_request import begin_attempt, cut_short, try_handoff
from routelock.tools.approvals import Decision, Interruption, NeedsApproval, declined_text
from routelock.tools.tool import NOT_RUN

__all__ = ["MOST_CALLS", "NOT_TAKEN", "RoutedCalls", "answer_calls", "failed_handoff"]

MOST_CALLS = 1000
"""The number of calls of one reply that are looked at; a model that makes more is broken or hostile."""

_TOO_MANY = (
    "This call was not made: the reply made {count:,} calls at once, and only the first {most:,} were "
    "considered. Make fewer calls at a time."
)

_LOST = (
    "The agent behind {name!r} had started this call and is not available any more. Its finished work is "
    "kept, and the rest was not done. Check what was done before you go on."
)

_NOT_AVAILABLE = "Tool {name!r} is not available now, so this call was not made."

_NO_TRANSFER = "The transfer to {name!r} is not available now, so it was not made."

_BY_A_TOOL = (
    "The transfer needs an approval, and a tool cannot wait for one: call {name} instead, which can wait."
)

NOT_TAKEN = "Multiple handoffs detected, ignoring this one."

_REFUSED = "Several transfers were asked for at once, so none was made. Ask for exactly one."

_DOOMED = "A call beside it stops the agent, so nothing was handed over."

_WAITS = "The caller's tools come first, so nothing was handed over. Ask again if it is still needed."

_WAITS_FOR_APPROVAL = (
    "A call beside it waits for approval, so nothing was handed over. Ask again if it is still needed."
)


@dataclass(slots=True, eq=False)
class RoutedCalls:
    """The calls of one reply in their order, and the handoff that is chosen among them."""

    offered: OfferedTools
    calls: list[RoutedCall] = field(default_factory=lambda: [])
    tools: list[RoutedCall] = field(default_factory=lambda: [])
    external: list[RoutedCall] = field(default_factory=lambda: [])
    """Calls of the caller's own tools; the run ends with them, and the caller answers them."""
    waiting: list[Interruption] = field(default_factory=lambda: [])
    """The calls that wait for approval."""
    handoff: RoutedCall | None = None
    """The call with the handoff that the turn tries."""
    skipped: Sequence[RoutedCall] = ()
    """The handoffs that are answered and not tried."""
    refused: Sequence[RoutedCall] = ()
    """The chosen handoff, if it was not approved or is disabled by now."""
    unknown_targets: list[RoutedCall] = field(default_factory=lambda: [])
    """Handoffs by tools to a target that the run does not have; another handoff may still be tried."""

    @classmethod
    def of(cls, calls: Sequence[ToolCall], offered: OfferedTools) -> RoutedCalls:
        """Route the calls of a reply by their names; those beyond `MOST_CALLS` lead nowhere."""
        reply = cls(offered)
        for place, each in enumerate(calls):
            name = each["function"].get("name") or ""
            call = RoutedCall(each, offered.routes.get(name) if place < MOST_CALLS else None)
            reply.calls.append(call)
            if call.kind == "tool":
                reply.tools.append(call)
            elif call.kind == "external":
                reply.external.append(call)
        return reply

    @property
    def stop(self) -> RoutelockError | None:
        """The first error, in call order, with which a call ends the run."""
        for call in self.calls:
            if call.result is not None and call.result.stop is not None:
                return call.result.stop
        return None

    @property
    def only_mistakes(self) -> bool:
        """Whether every call that has a result was a mistake of the model."""
        results = [call.result for call in self.calls if call.result is not None]
        return bool(results) and all(result.is_mistake for result in results)

    def choose(self, multiple: Literal["first", "reject"]) -> None:
        """Choose the handoff that the turn tries, see ``RunConfig.multiple_handoffs``."""
        handoffs = [call for call in self.calls if call.asks_handoff and call not in self.unknown_targets]
        several = len(handoffs) > 1 and multiple == "reject"
        if handoffs:
            self.handoff, self.skipped = (None, handoffs) if several else (handoffs[0], handoffs[1:])
        for call in self.skipped:
            call.attempt.skip(_REFUSED if several else NOT_TAKEN)

    def skip_handoff(self, call: RoutedCall, why: str) -> None:
        """Do not try the chosen handoff after all."""
        call.attempt.skip(why)
        self.skipped, self.handoff = (call, *self.skipped), None

    def refuse_handoff(self, call: RoutedCall, why: str, error: str) -> None:
        """Answer the chosen handoff, which was not approved or is disabled by now."""
        call.attempt.skip(why)
        call.result = Result(why, error, problem=None if error == "declined" else "handoff")
        self.refused, self.handoff = (call,), None


async def answer_calls(run: Run, reply: RoutedCalls, events: Events) -> AsyncGenerator[RunEvent]:
    """Answer a reply's calls: tools first and at the same time, then the first handoff. Yield the events.

    Args:
        run: the run.
        reply: the calls of the reply; their results are filled in.
        events: runs the agents that are called as tools.

    Raises:
        HandoffFilterError: an input filter or a history mapper failed.
        RoutelockError: a call ends the run; all are answered.
    """
    _answer_at_once(run, reply)
    reply.choose(run.config.multiple_handoffs)
    try:
        _answer_unknown(run, reply)
        if free := await _free_tools(run, reply):
            name = run.frame.agent.name
            for call in free:
                yield ToolCalled(agent=name, call_id=call.id, name=call.name, arguments=call.arguments)
            with ToolBatch(run, free, events) as batch:
                await batch.run_together()
                for one in batch.streamed:
                    async with aclosing(batch.stream(one)) as happening:
                        async for event in happening:
                            yield event
        _note_results(run, reply)
        await _choose_handoff(run, reply)
        for each in _outcomes(run, reply):
            yield each
        _refuse_unknown_targets(run, reply)
        if reply.handoff is not None:
            await _try_handoff(run, reply.handoff)
    except BaseException as error:
        _note_cut_short(run, reply, error)
        raise
    finally:
        _record(run, reply)
    _note_waiting(run, reply)
    for each in _rest(run, reply):
        yield each
    if (stop := reply.stop) is not None:
        raise stop
    if reply.handoff is not None:
        for each in await _transfer(run, reply.handoff):
            yield each


def failed_handoff(run: Run, attempt: HandoffAttempt) -> HandoffError:
    """Return the error that ends a run with a handoff that was not made, see ``RunConfig.raise_on``."""
    error = HandoffError(f"Agent {run.frame.agent.name!r}, turn {run.turn}: {attempt.answer}")
    error.__cause__ = attempt.exception
    return error


def _record(run: Run, reply: RoutedCalls) -> None:
    """Append the results to the transcript; a missing one is filled in when the transcript is read.

    Problems are noted here and not when they happen: the run's result must not depend on the scheduler.
    """
    _answer_skipped(run, reply)
    for call in reply.calls:
        if call.guardrails:
            run.report.guardrails.extend(call.guardrails)
        if (result := call.result) is not None:
            content = with_media(result.text, result.media) if result.media else result.text
            message: Message = {"role": "tool", "tool_call_id": call.id, "content": content}
            run.add("handoff" if call.kind == "handoff" else "tool", message)
            if result.problem is not None:
                run.problem(result.problem, result.text, call_id=call.id, error=result.exception)


# Calls that are answered or held before anything runs


def _answer_at_once(run: Run, reply: RoutedCalls) -> None:
    """Answer the calls that are not made in any case, and hold those of a resumed run without a decision."""
    if (count := len(reply.calls)) > MOST_CALLS:
        for call in reply.calls[MOST_CALLS:]:
            call.refuse(_TOO_MANY.format(count=count, most=MOST_CALLS), "too_many_calls")
        run.warn(f"turn {run.turn}: the reply made {count:,} calls, and {MOST_CALLS:,} were considered")
    if run.sub_runs.to_resume:
        _answer_lost(run, reply)
    decisions = run.calls.decisions
    if decisions.asked or decisions.by_call or decisions.by_tool:
        _apply_decisions(run, reply)


def _answer_lost(run: Run, reply: RoutedCalls) -> None:
    """Answer the calls of stored sub-runs whose agent is gone."""
    for call in reply.calls[:MOST_CALLS]:
        enabled = call.kind == "tool" and call.name not in reply.offered.disabled
        if enabled and isinstance(call.tool.on_invoke_tool, AgentCall):
            continue
        if run.sub_runs.to_resume.pop(call.id, None) is not None:
            text = _LOST.format(name=clip(call.name, 80))
            run.problem("tool", text, call_id=call.id)
            call.kind, call.asks_handoff = "unknown", False
            call.refuse(text)
    reply.tools = [call for call in reply.tools if call.kind == "tool"]
    reply.external = [call for call in reply.external if call.kind == "external"]


def _apply_decisions(run: Run, reply: RoutedCalls) -> None:
    """Hold the calls that have no decision yet, and answer those that were denied.

    To resume a run without decisions does nothing, even if ``needs_approval`` has changed meanwhile. A denial
    stands even if approval is no longer required.
    """
    for call in _open(reply.calls):
        decision = _decision(run, call)
        if decision is None:
            if (*run.sub_runs.path, call.id) in run.calls.decisions.asked:
                _hold(run, reply, call)
        elif not decision.approved and call.kind != "handoff":
            call.refuse(declined_text(decision))
    reply.external = _open(reply.external)


def _open(calls: Sequence[RoutedCall]) -> list[RoutedCall]:
    """Return those calls that neither have a result nor wait for approval."""
    return [call for call in calls if call.result is None and not call.is_held]


def _hold(run: Run, reply: RoutedCalls, call: RoutedCall) -> None:
    """Let a call wait for approval."""
    call.is_held, call.asks_handoff = True, False
    reply.waiting.append(_interruption(run, call))


def _answer_unknown(run: Run, reply: RoutedCalls) -> None:
    for place, call in enumerate(_open([call for call in reply.calls if call.kind == "unknown"])):
        text = unknown_tool(call.name, reply.offered, place)
        stop = mistake_error(run, text) if "unknown_tool" in run.config.raise_on else None
        call.result = Result(text, "unknown_tool", is_mistake=True, problem="unknown_tool", stop=stop)


# Tools


async def _free_tools(run: Run, reply: RoutedCalls) -> Sequence[RoutedCall]:
    """Return the tool calls that need no approval or have it; none in a turn that ends the run anyway.

    Raises:
        CallbackError: an ``is_enabled`` or ``needs_approval`` function raised; no call is carried out then.
    """
    calls = _open(reply.tools)
    if not calls:
        return ()
    if reply.stop is not None:
        for call in calls:
            if call.id not in run.sub_runs.to_resume:  # else it began before, and goes on with the run
                take_outcome(run, call, NOT_RUN)
        return ()
    if not all(call.tool.is_enabled is True for call in calls):
        await _answer_disabled(run, calls)
    await _hold_unapproved(run, reply, _open(calls))
    if free := _open(calls):
        run.budget.check(run.frame.agent.name, len(free))
        run.budget.tool_calls += len(free)
    return free


async def _answer_disabled(run: Run, calls: Sequence[RoutedCall]) -> None:
    """Answer the calls of tools that are disabled now; a resumed run may be days old."""
    enabled = await enabled_of([call.tool for call in calls], run.frame.agent, run.now())
    for call, is_enabled in zip(calls, enabled, strict=True):
        if not is_enabled:
            text = _NOT_AVAILABLE.format(name=call.name)
            call.result = Result(text, "not_available", problem="tool")


async def _hold_unapproved(run: Run, reply: RoutedCalls, calls: Sequence[RoutedCall]) -> None:
    """Hold the calls that need an approval and have no decision; invalid ones are not made."""
    gated = [call for call in calls if call.tool.needs_approval is not False]
    asked = [call for call in gated if call.tool.fits(call.arguments) and _decision(run, call) is None]
    if asked:
        needed = await ask_all([_needs(run, call, call.tool.needs_approval) for call in asked])
        for call, needs in zip(asked, needed, strict=True):
            if needs:
                _hold(run, reply, call)


def _note_results(run: Run, reply: RoutedCalls) -> None:
    """Note what the tools returned, for the loop guard."""
    if not reply.tools or not run.config.detect_loops or reply.stop is not None:
        return
    outputs: list[tuple[str, str, str]] = []
    requests: list[tuple[str, str, str]] = []
    for call in reply.tools:
        if call.result is not None:  # else it waits for approval
            asks = call.outcome is not None and call.outcome.handoff is not None
            (requests if asks else outputs).append((call.name, call.arguments, call.result.text))
    run.progress.tool_results(outputs, requests)


# Approvals


def _decision(run: Run, call: RoutedCall) -> Decision | None:
    """Return the decision on a call of this run. It no longer counts once the call was begun."""
    return run.calls.decisions.of(_interruption(run, call), spent=call.id in run.calls.begun)


def _interruption(run: Run, call: RoutedCall) -> Interruption:
    return Interruption(
        agent=run.frame.agent.name,
        name=call.name,
        arguments=call.arguments,
        call_id=call.id,
        path=run.sub_runs.path,
        run_id=run.sub_runs.outermost_id or run.run_id,
    )


def _needs(run: Run, call: RoutedCall, needs: NeedsApproval) -> Question[bool]:
    """Return the question whether a call needs an approval; it does if the question has no answer."""

    def ask() -> MaybeAwaitable[bool]:
        if isinstance(needs, bool):
            return needs
        try:
            given: object = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError):
            return True
        if not isinstance(given, dict):  # a tool without parameters is called with any JSON
            return True
        return needs(context_of(run, call), cast("dict[str, Any]", given))

    return Question(f"needs_approval of {call.name!r}", ask, bool)


def _note_waiting(run: Run, reply: RoutedCalls) -> None:
    """Note the calls that wait after the turn: in this run, its sub-runs, and stored sub-runs."""
    waiting, earlier, inner_runs = reply.waiting, run.calls.interruptions, run.sub_runs.waiting
    if not (waiting or earlier or inner_runs):
        return
    found = [*waiting, *(one for inner in inner_runs.values() for one in inner.calls.interruptions)]
    depth, to_resume = len(run.sub_runs.path), run.sub_runs.to_resume
    left = [one for one in earlier if len(one.path) > depth and one.path[depth] in to_resume]
    run.calls.interruptions = (*found, *(one for one in left if one not in found))


# The handoff


async def _choose_handoff(run: Run, reply: RoutedCalls) -> None:
    """Choose the handoff that the turn tries, among those of the model and of tools."""
    if requests := _requests(reply):
        for call, request in requests:
            _take_request(run, reply, call, request)
        reply.choose(run.config.multiple_handoffs)
    if (chosen := reply.handoff) is None:
        return
    if why := _why_not_tried(run, reply):
        reply.skip_handoff(chosen, why)
        return
    await _hold_handoff(run, reply, chosen)
    if reply.refused and not reply.tools and run.config.detect_loops:  # the turn brings nothing else
        refused = chosen.attempt.edge.tool_name, chosen.arguments, chosen.attempt.answer
        run.progress.tool_results([refused])


def _requests(reply: RoutedCalls) -> list[tuple[RoutedCall, HandoffRequest]]:
    """Return the requests that tools returned, with their calls."""
    done = [(call, call.outcome) for call in reply.tools if call.outcome is not None]
    return [(call, outcome.handoff) for call, outcome in done if outcome.handoff is not None]


def _take_request(run: Run, reply: RoutedCalls, call: RoutedCall, request: HandoffRequest) -> None:
    """Put the handoff that a tool asked for among the model's own."""
    found = _edge_or_problem(run, request)
    if isinstance(found, Handoff):
        call.ask_handoff(found, request)
        return
    call.ask_handoff(Handoff(target=request.target_name), request)
    call.attempt.fail(HandoffRefused(found))
    reply.unknown_targets.append(call)


def _edge_or_problem(run: Run, request: HandoffRequest) -> Handoff | str:
    """Return the handoff to the target of a tool's request, or why there is none."""
    try:
        edge = edge_for(run.frame.agent, run.graph, request)
    except ConfigError as error:
        return str(error)
    if edge is not None:
        return edge
    every = {*(each.name for each in handlers_by_priority(run.frame.agent, run.config)), *run.graph}
    others = sorted(every - {run.frame.agent.name, run.frame.handler.name})
    known = f"There are: {', '.join(others)}." if others else "There is no other."
    return f"Handoff target {request.target_name!r} was not found. {known}"


def _why_not_tried(run: Run, reply: RoutedCalls) -> str | None:
    """Return why no target is asked in a turn that ends or pauses the run: it would not go on."""
    if reply.stop is not None or (reply.unknown_targets and "failed_handoff" in run.config.raise_on):
        return _DOOMED
    if reply.external:
        return _WAITS
    return _WAITS_FOR_APPROVAL if reply.waiting or run.sub_runs.waiting else None


async def _hold_handoff(run: Run, reply: RoutedCalls, call: RoutedCall) -> None:
    """Remove the chosen handoff if it is disabled now, waits for an approval, or was denied.

    Raises:
        CallbackError: its ``is_enabled`` or ``needs_approval`` function raised.
    """
    edge, decisions = call.attempt.edge, run.calls.decisions
    if call.attempt.by_tool:  # it may ask for a disabled one
        if edge.needs_approval is not False:
            reply.skip_handoff(call, _BY_A_TOOL.format(name=edge.tool_name))
        return
    decision = _decision(run, call) if decisions.by_call or decisions.by_tool else None
    if decision is not None and not decision.approved:
        reply.refuse_handoff(call, declined_text(decision), "declined")
    elif edge.is_enabled is not True and not all(await enabled_of([edge], run.frame.agent, run.now())):
        reply.refuse_handoff(call, _NO_TRANSFER.format(name=edge.agent_name), "not_available")
    elif decision is None and edge.needs_approval is not False:
        (needed,) = await ask_all([_needs(run, call, edge.needs_approval)])
        if needed:
            _hold(run, reply, call)
            reply.handoff = None


async def _try_handoff(run: Run, call: RoutedCall) -> None:
    """Run the checks of the chosen handoff, answer its call, and put it on record."""
    attempt = call.attempt
    run.calls.begun.add(call.id)
    await try_handoff(run, attempt)
    if attempt.exception is not None and not is_error(attempt.exception):
        put_on_record(run, attempt)
        raise attempt.exception
    if attempt.target is not None:
        run.handoffs.hold(attempt.id, attempt.slot)
    call.result = Result(attempt.answer, attempt.error, exception=attempt.exception)
    if attempt.returns:
        call.result = None  # the target's output will answer it
    elif attempt.error is not None:
        call.result.is_mistake, call.result.problem = not attempt.by_tool, "handoff"
    put_on_record(run, attempt)


def _refuse_unknown_targets(run: Run, reply: RoutedCalls) -> None:
    """Answer, and put on record, the handoffs by tools to targets that the run does not have."""
    for call in reply.unknown_targets:
        begin_attempt(run, call.attempt)
        stop = failed_handoff(run, call.attempt) if "failed_handoff" in run.config.raise_on else None
        call.result = Result(call.attempt.answer, "handoff", problem="handoff", stop=stop)
        put_on_record(run, call.attempt)


def _note_cut_short(run: Run, reply: RoutedCalls, error: BaseException) -> None:
    """Put on record the handoffs that were asked for and not decided when the turn ended."""
    undecided = [] if reply.handoff is None else [reply.handoff]
    for call, request in _requests(reply):
        if not call.asks_handoff:
            call.ask_handoff(Handoff(target=request.target_name), request)
        if call not in (reply.handoff, *reply.skipped):
            undecided.append(call)
    recorded = {one.call_id for one in run.handoffs.records}
    for call in undecided:
        if call.id not in recorded:
            cut_short(run, call.attempt, error)
            put_on_record(run, call.attempt)


def _answer_skipped(run: Run, reply: RoutedCalls) -> None:
    """Answer, and put on record, the handoffs that are not tried."""
    for call in reply.skipped:
        is_mistake = reply.handoff is None and call.kind == "handoff"
        call.result = Result(call.attempt.answer, call.attempt.error, is_mistake)
    for call in (*reply.skipped, *reply.refused):
        begin_attempt(run, call.attempt)
        put_on_record(run, call.attempt)
    if reply.skipped:
        run.warn(f"turn {run.turn}: {len(reply.skipped)} of the reply's transfers were not taken")


async def _transfer(run: Run, call: RoutedCall) -> Sequence[RunEvent]:
    """Carry out the handoff if its target has accepted, and return the events."""
    attempt = call.attempt
    if attempt.target is None:
        return (_failed(run, call),)
    source = run.active_name
    await take_over(run, attempt)
    occurred = HandoffOccurred(
        source=source,
        target=attempt.target_name,
        call_id=call.id,
        reason=attempt.reason,
        preserve_context=attempt.edge.preserve_context,
    )
    return *run.handoffs.take_events(), occurred


# Events


def _outcomes(run: Run, reply: RoutedCalls) -> list[RunEvent]:
    """Return the outputs of the tools, the handoffs that are not tried, and the one that is."""
    done = [call for call in reply.calls if call.kind != "handoff" and not call.asks_handoff]
    events = _outputs(run, done)
    events += [_failed(run, call) for call in (*reply.skipped, *reply.refused)]
    chosen = [] if reply.handoff is None else [reply.handoff]
    events += [
        HandoffRequested(
            source=run.active_name,
            target=call.attempt.edge.agent_name,
            call_id=call.id,
            arguments=call.arguments,
        )
        for call in (*reply.unknown_targets, *chosen)
    ]
    return events


def _rest(run: Run, reply: RoutedCalls) -> list[RunEvent]:
    """Return the outcome of the handoffs that tools asked for, and the calls that wait for approval."""
    asked = [call for call in reply.tools if call.asks_handoff]
    events = _outputs(run, sorted(asked, key=reply.unknown_targets.__contains__))  # those come last
    events += [_failed(run, call) for call in reply.unknown_targets]
    events += [
        ApprovalRequested(agent=one.agent, call_id=one.call_id, name=one.name, arguments=one.arguments)
        for one in reply.waiting
    ]
    return events


def _outputs(run: Run, calls: Sequence[RoutedCall]) -> list[RunEvent]:
    agent = run.frame.agent.name
    return [
        ToolOutput(agent=agent, call_id=call.id, name=call.name, output=result.text, error=result.error)
        for call in calls
        if (result := call.result) is not None
    ]


def _failed(run: Run, call: RoutedCall) -> HandoffFailed:
    target, reason = call.attempt.target_name, call.attempt.error or ""
    return HandoffFailed(source=run.active_name, target=target, call_id=call.id, reason=reason)
