"""Answers every tool call of a reply exactly once, in call order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Literal

from routelock._callables import is_error
from routelock.agents.offer import OfferedTools
from routelock.errors import (
    ConfigError,
    HandoffError,
    ModelBehaviorError,
    RoutelockError,
    ToolError,
    ToolGuardrailTripped,
    ToolTimeout,
)
from routelock.handoff_request import HandoffRequest
from routelock.handoffs.handoff import Handoff
from routelock.history.content import with_media
from routelock.history.messages import Message, ToolCall
from routelock.run.approval_gate import all_waiting, hold_tools, hold_transfer, route_turn
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
from routelock.run.routing import RoutedCalls, edge_for, unknown_tool
from routelock.run.run import Run
from routelock.run.subrun import Events
from routelock.run.tool_batch import run_tools
from routelock.run.transfer import put_on_record, take_over
from routelock.run.transfer_request import begin_attempt, cut_short, try_handoff
from routelock.tools.tool import NOT_RUN, Tool, ToolOutcome

__all__ = ["Answered", "answer_calls", "asked_for", "failed_handoff"]


_DOOMED = "A call beside it stops the agent, so nothing was handed over."


_WAITS = "The caller's tools come first, so nothing was handed over. Ask again if it is still needed."


_WAITS_FOR_APPROVAL = (
    "A call beside it waits for approval, so nothing was handed over. Ask again if it is still needed."
)


_UNDECIDED = "It asked for a transfer to {target!r}, and the run ended before that was made."


@dataclass(slots=True)
class _Result:
    text: str
    kind: Literal["tool", "handoff"] = "tool"
    error: str | None = None
    mistake: bool = False
    """Whether it is the model's mistake, not the tool's."""
    problem: Literal["unknown_tool", "bad_arguments", "tool", "handoff"] | None = None
    """The kind of problem to note on the run's result."""
    exception: BaseException | None = None
    media: Sequence[Mapping[str, Any]] = ()
    request: HandoffRequest | None = None
    """The handoff that the tool asks for, until it is decided."""
    stop: RoutelockError | None = None
    """The error that ends the run once everything is recorded."""


_is_mistake = attrgetter("mistake")


class _Results:
    """The results of the calls of one turn; they are recorded in call order, however the turn ends."""

    def __init__(self, run: Run, calls: Sequence[ToolCall]) -> None:
        self.run = run
        self.calls = calls
        self.by_id: dict[str, _Result] = {}
        self.asked = False
        """Whether a tool asked for a handoff."""
        self.raised: RoutelockError | None = None
        """The first error, in call order, that ends the run."""

    def give(self, call: ToolCall, result: _Result) -> None:
        self.by_id[call["id"]] = result

    def refuse(self, call: ToolCall, text: str, error: str = "declined") -> None:
        self.give(call, _Result(text, error=error, mistake=error != "declined"))

    def not_available(self, call: ToolCall, text: str) -> None:
        self.give(call, _Result(text, error="not_available", problem="tool"))

    def record(self) -> None:
        """Append the results to the transcript; a missing one is filled in when the transcript is read.

        Problems are noted here and not when they happen: the run's result must not depend on the scheduler.
        """
        for call in self.calls:
            if (result := self.by_id.get(call["id"])) is not None:
                content = with_media(result.text, result.media) if result.media else result.text
                message: Message = {"role": "tool", "tool_call_id": call["id"], "content": content}
                self.run.add(result.kind, message)
                self.raised = self.raised or result.stop
                if result.problem is not None:
                    self.run.problem(result.problem, result.text, call_id=call["id"], error=result.exception)

    def end_run(self) -> bool:
        """Whether one of the results ends the run."""
        return any(result.stop for result in self.by_id.values())

    def only_mistakes(self) -> bool:
        return bool(self.by_id) and all(map(_is_mistake, self.by_id.values()))


@dataclass(slots=True)
class Answered:
    """The outcome of the calls of a reply, for the loop; filled in while they are answered."""

    routed: RoutedCalls | None = None
    handoff: HandoffAttempt | None = None
    """The handoff that was tried."""
    raised: RoutelockError | None = None
    """The error with which a call ends the run."""
    only_mistakes: bool = False
    """Whether every call was a mistake of the model."""


async def answer_calls(
    run: Run, offered: OfferedTools, calls: Sequence[ToolCall], events: Events, answered: Answered
) -> AsyncGenerator[RunEvent]:
    """Answer a reply's calls: tools first and at the same time, then the first handoff. Yield the events.

    Args:
        run: the run.
        offered: the tools that the model was offered.
        calls: the calls of the reply.
        events: runs the agents that are called as tools.
        answered: the outcome; filled in.

    Raises:
        HandoffFilterError: an input filter or a history mapper failed.
    """
    results = _Results(run, calls)
    routed = route_turn(run, calls, offered, results.refuse)
    answered.routed = routed
    try:
        _answer_unknown(run, routed, results, offered)
        free = await _free_tools(run, routed, results)
        for call, _ in free:
            yield _called(run, call)
        async with aclosing(run_tools(run, free, partial(_take_outcome, run, results), events)) as happening:
            async for event in happening:
                yield event
        _note_results(run, routed, results)
        await _choose_handoff(run, routed, calls, results)
        for each in _outcomes(run, routed, calls, results):
            yield each
        _refuse_unknown_targets(run, routed, results)
        if routed.handoff is not None:
            await _try_handoff(run, routed.handoff, results)
            answered.handoff = routed.handoff
    except BaseException as error:
        _note_cut_short(run, routed, calls, results, error)
        raise
    finally:
        _answer_skipped(run, routed, results)
        results.record()
    answered.raised, answered.only_mistakes = results.raised, results.only_mistakes()
    for each in _rest(run, routed, results):
        yield each
    if answered.handoff is not None:
        for each in await _transfer(run, answered.handoff):
            yield each


def asked_for(run: Run, mistake: str) -> ModelBehaviorError:
    """Return the error that ends a run with a mistake of the model, see ``RunConfig.raise_on``."""
    error = ModelBehaviorError(f"Agent {run.frame.agent.name!r}, turn {run.turn}: {mistake}")
    error.asked_for = True
    return error


def failed_handoff(run: Run, attempt: HandoffAttempt) -> HandoffError:
    """Return the error that ends a run with a handoff that was not made, see ``RunConfig.raise_on``."""
    error = HandoffError(f"Agent {run.frame.agent.name!r}, turn {run.turn}: {attempt.answer}")
    error.__cause__ = attempt.exception
    return error


async def _free_tools(run: Run, routed: RoutedCalls, results: _Results) -> Sequence[tuple[ToolCall, Tool]]:
    """Return the tool calls that need no approval or have it; none in a turn that ends the run anyway."""
    if not routed.tools:
        return ()
    if results.end_run():
        for call, _ in routed.tools:
            if call["id"] not in run.sub_runs.to_resume:  # else it began before, and goes on with the run
                _take_outcome(run, results, call, NOT_RUN, False)
        return ()
    free = await hold_tools(run, routed, results.refuse, results.not_available)
    if free:
        run.budget.check(run.frame.agent.name, len(free))
        run.budget.tool_calls += len(free)
    return free


async def _choose_handoff(
    run: Run, routed: RoutedCalls, calls: Sequence[ToolCall], results: _Results
) -> None:
    """Choose the handoff that the turn tries, among those of the model and of tools."""
    if routed.handoffs or results.asked:
        _take_requests(run, routed, calls, results)
        _skip_handoff(run, routed, results)
        await hold_transfer(run, routed)
        _note_declined(run, routed)


def _called(run: Run, call: ToolCall) -> ToolCalled:
    return ToolCalled(
        agent=run.frame.agent.name,
        call_id=call["id"],
        name=call["function"]["name"],
        arguments=call["function"].get("arguments") or "",
    )


def _outcomes(
    run: Run, routed: RoutedCalls, calls: Sequence[ToolCall], results: _Results
) -> Iterator[RunEvent]:
    """Yield the outputs of the tools, the handoffs that are not tried, and the one that is."""
    yield from _outputs(run, calls, results)
    for attempt in (*routed.skipped, *routed.declined, *routed.unavailable):
        yield _failed(run, attempt)
    for attempt in routed.unknown_targets:
        yield _requested(run, attempt)
    if routed.handoff is not None:
        yield _requested(run, routed.handoff)


def _rest(run: Run, routed: RoutedCalls, results: _Results) -> Iterator[RunEvent]:
    """Yield the outcome of the handoffs that tools asked for, and the calls that wait for approval."""
    asked = [*routed.handoffs, *routed.unknown_targets]
    yield from _outputs(run, [attempt.call for attempt in asked if attempt.by_tool], results)
    for attempt in routed.unknown_targets:
        yield _failed(run, attempt)
    if routed.waiting:
        run.calls.interruptions = all_waiting(run, routed)  # also for a reader that leaves at the question
    for one in routed.waiting:
        yield ApprovalRequested(agent=one.agent, call_id=one.call_id, name=one.name, arguments=one.arguments)


def _take_requests(run: Run, routed: RoutedCalls, calls: Sequence[ToolCall], results: _Results) -> None:
    """Put the handoffs that tools asked for among the model's own, in call order."""
    if not results.asked:
        return
    asked = {call_id: result.request for call_id, result in results.by_id.items() if result.request}
    by_call = {attempt.call["id"]: attempt for attempt in routed.handoffs}
    for call in calls:
        if (request := asked.get(call["id"])) is None:
            continue
        found = _edge_or_problem(run, request)
        if isinstance(found, str):
            attempt = HandoffAttempt(call, Handoff(target=request.target_name), request)
            attempt.fail(HandoffRefused(found))
            routed.unknown_targets.append(attempt)
        else:
            by_call[call["id"]] = HandoffAttempt(call, found, request)
    routed.handoffs = [by_call[call["id"]] for call in calls if call["id"] in by_call]
    routed.choose(run.config.multiple_handoffs)


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


def _skip_handoff(run: Run, routed: RoutedCalls, results: _Results) -> None:
    """Skip the chosen handoff in a turn with which the run ends or pauses: its target would not go on."""
    if routed.handoff is None:
        return
    doomed = routed.unknown_targets and "failed_handoff" in run.config.raise_on
    if doomed or results.end_run():
        routed.skip_handoff(_DOOMED)
    elif routed.external:
        routed.skip_handoff(_WAITS)
    elif routed.waiting or run.sub_runs.waiting:
        routed.skip_handoff(_WAITS_FOR_APPROVAL)


def _note_results(run: Run, routed: RoutedCalls, results: _Results) -> None:
    """Note what the tools returned, for the loop guard."""
    if routed.tools and run.config.detect_loops and not results.end_run():
        outputs: list[tuple[str, str, str]] = []
        requests: list[tuple[str, str, str]] = []
        for call, tool in routed.tools:
            if (result := results.by_id.get(call["id"])) is None:
                continue  # it waits for approval
            made = (tool.name, call["function"].get("arguments") or "", result.text)
            (outputs if result.request is None else requests).append(made)
        run.progress.tool_results(outputs, requests)


def _note_declined(run: Run, routed: RoutedCalls) -> None:
    """Note for the loop guard that the turn brings nothing but a declined or disabled handoff."""
    refused = [*routed.declined, *routed.unavailable]
    if refused and not routed.tools and run.config.detect_loops:
        run.progress.tool_results(
            (one.edge.tool_name, one.call["function"].get("arguments") or "", one.error or "")
            for one in refused
        )


def _take_outcome(run: Run, results: _Results, call: ToolCall, outcome: ToolOutcome, stop: bool) -> bool:
    """Answer a call with the outcome of its tool; return whether the run ends with it."""
    result = _Result(
        text=outcome.output, error=outcome.error, exception=outcome.exception, media=outcome.media
    )
    if outcome.handoff is not None:
        result.text = _UNDECIDED.format(target=outcome.handoff.target_name)
        result.request = outcome.handoff
        results.asked = True
    results.give(call, result)
    if outcome.usage is not None:
        run.count(outcome.usage)
    if outcome.error == "arguments":
        result.mistake, result.problem = True, "bad_arguments"
        if "bad_arguments" in run.config.raise_on:
            result.stop = asked_for(run, outcome.output)
    elif outcome.error is not None:
        result.problem = "tool"
        result.stop = _stopping(outcome) if stop else None
    return result.stop is not None


def _stopping(outcome: ToolOutcome) -> RoutelockError:
    """Return the error with which a tool ends the run; it is made anew when an engine replays the step."""
    if isinstance(outcome.exception, RoutelockError):
        return outcome.exception
    if outcome.error == "guardrail":
        return ToolGuardrailTripped(outcome.output)
    return (ToolTimeout if outcome.error == "timeout" else ToolError)(outcome.output)


def _answer_unknown(run: Run, routed: RoutedCalls, results: _Results, offered: OfferedTools) -> None:
    for place, call in enumerate(routed.unknown):
        text = unknown_tool(call["function"].get("name") or "", offered, place)
        result = _Result(text, error="unknown_tool", mistake=True, problem="unknown_tool")
        results.give(call, result)
        if "unknown_tool" in run.config.raise_on:
            result.stop = asked_for(run, text)


def _outputs(run: Run, calls: Sequence[ToolCall], results: _Results) -> Iterator[ToolOutput]:
    for call in calls:
        result = results.by_id.get(call["id"])
        if result is not None and result.request is None:
            yield ToolOutput(
                agent=run.frame.agent.name,
                call_id=call["id"],
                name=call["function"].get("name") or "",
                output=result.text,
                error=result.error,
            )


def _requested(run: Run, attempt: HandoffAttempt) -> HandoffRequested:
    return HandoffRequested(
        source=run.active_name,
        target=attempt.edge.agent_name,
        call_id=attempt.call["id"],
        arguments=attempt.call["function"].get("arguments") or "",
    )


def _failed(run: Run, attempt: HandoffAttempt) -> HandoffFailed:
    return HandoffFailed(
        source=run.active_name,
        target=attempt.target_name,
        call_id=attempt.call["id"],
        reason=attempt.error or "",
    )


def _refuse_unknown_targets(run: Run, routed: RoutedCalls, results: _Results) -> None:
    """Answer, and put on record, the handoffs by tools to targets that the run does not have."""
    for attempt in routed.unknown_targets:
        begin_attempt(run, attempt)
        result = _Result(attempt.answer, error="handoff", problem="handoff")
        if "failed_handoff" in run.config.raise_on:
            result.stop = failed_handoff(run, attempt)
        results.give(attempt.call, result)
        put_on_record(run, attempt)


async def _try_handoff(run: Run, attempt: HandoffAttempt, results: _Results) -> None:
    """Run the checks of the chosen handoff, answer its call, and put it on record."""
    run.calls.begun.add(attempt.call["id"])
    await try_handoff(run, attempt)
    if attempt.exception is not None and not is_error(attempt.exception):
        put_on_record(run, attempt)
        raise attempt.exception
    if attempt.target is not None:
        run.handoffs.hold(attempt.id, attempt.slot)
    kind: Literal["tool", "handoff"] = "tool" if attempt.by_tool else "handoff"
    result = _Result(text=attempt.answer, kind=kind, error=attempt.error, exception=attempt.exception)
    if attempt.returns:
        results.by_id.pop(attempt.call["id"], None)  # the target's output will answer it
    else:
        results.give(attempt.call, result)
    if attempt.error is not None:
        result.mistake, result.problem = not attempt.by_tool, "handoff"
    put_on_record(run, attempt)


def _note_cut_short(
    run: Run, routed: RoutedCalls, calls: Sequence[ToolCall], results: _Results, error: BaseException
) -> None:
    """Put on record the handoffs that were asked for and not decided when the turn ended."""
    undecided = [] if routed.handoff is None else [routed.handoff]
    known = {one.call_id for one in run.handoffs.records}
    known |= {attempt.call["id"] for attempt in routed.handoffs}
    for call in calls:
        asked = results.by_id[call["id"]].request if call["id"] in results.by_id else None
        if asked is not None and call["id"] not in known:  # by a tool that is done
            undecided.append(HandoffAttempt(call, Handoff(target=asked.target_name), asked))
    for attempt in undecided:
        if all(one.call_id != attempt.call["id"] for one in run.handoffs.records):
            cut_short(run, attempt, error)
            put_on_record(run, attempt)


def _answer_skipped(run: Run, routed: RoutedCalls, results: _Results) -> None:
    """Answer, and put on record, the handoffs that are not tried."""
    for attempt in routed.skipped:
        kind: Literal["tool", "handoff"] = "tool" if attempt.by_tool else "handoff"
        mistake = routed.handoff is None and not attempt.by_tool
        _skip(run, attempt, results, _Result(attempt.answer, kind, attempt.error, mistake=mistake))
    for attempt in routed.declined:
        _skip(run, attempt, results, _Result(attempt.answer, "handoff", "declined"))
    for attempt in routed.unavailable:
        result = _Result(attempt.answer, "handoff", "not_available", problem="handoff")
        _skip(run, attempt, results, result)
    if routed.skipped:
        run.warn(f"turn {run.turn}: {len(routed.skipped)} of the reply's transfers were not taken")


def _skip(run: Run, attempt: HandoffAttempt, results: _Results, result: _Result) -> None:
    results.give(attempt.call, result)
    begin_attempt(run, attempt)
    put_on_record(run, attempt)


async def _transfer(run: Run, attempt: HandoffAttempt) -> Sequence[RunEvent]:
    """Carry out the handoff if its target has accepted, and return the events."""
    if attempt.target is None:
        return (_failed(run, attempt),)
    source = run.active_name
    await take_over(run, attempt)
    occurred = HandoffOccurred(
        source=source,
        target=attempt.target_name,
        call_id=attempt.call["id"],
        reason=attempt.reason,
        preserve_context=attempt.edge.preserve_context,
    )
    return *run.handoffs.take_completed(), occurred
