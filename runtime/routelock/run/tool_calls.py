"""Answering every tool call of a reply exactly once, in call order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Literal

from routelock._callables import is_error
from routelock._text import clip
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
from routelock.run.approval_gate import all_waiting, hold_tools, hold_transfer, plan_turn
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
from routelock.run.routing import OfferedTools, RoutedCalls, Wanted, unknown_tool
from routelock.run.run import Run
from routelock.run.subrun import Events
from routelock.run.tool_batch import run_tools
from routelock.run.transfer import put_on_record, take_over
from routelock.run.transfer_request import (
    LONGEST_REASON,
    Transfer,
    cut_short,
    edge_for,
    passed_over,
    refused,
    try_transfer,
)
from routelock.tools.tool import NOT_RUN, Tool, ToolOutcome

__all__ = ["Answered", "answer_calls", "asked_for", "failed_handoff"]


_DOOMED = "A call beside it stops the agent, so nothing was handed over."


_WAITS = "The caller's tools come first, so nothing was handed over. Ask again if it is still needed."


_WAITS_FOR_APPROVAL = (
    "A call beside it waits for approval, so nothing was handed over. Ask again if it is still needed."
)


_UNDECIDED = "It asked for a transfer to {target!r}, and the run ended before that was made."


@dataclass(slots=True)
class _Answer:
    text: str
    kind: Literal["tool", "handoff"] = "tool"
    error: str | None = None
    mistake: bool = False
    """Whether the model is to blame, not the tool."""
    problem: Literal["unknown_tool", "bad_arguments", "tool", "handoff"] | None = None
    """What to note on the result, if anything."""
    exception: BaseException | None = None
    media: Sequence[Mapping[str, Any]] = ()
    request: HandoffRequest | None = None
    """A handoff that the tool asks for, as long as its fate is open."""
    stop: RoutelockError | None = None
    """Ends the run, once everything is recorded."""


_is_mistake = attrgetter("mistake")


class _Answers:
    """The answers of one turn. They go into the transcript in call order, however the turn ends."""

    def __init__(self, run: Run, calls: Sequence[ToolCall]) -> None:
        self.run = run
        self.calls = calls
        self.by_id: dict[str, _Answer] = {}
        self.asked = False
        """Whether a tool asked for a handoff."""
        self.raised: RoutelockError | None = None
        """The first error, in call order, that is to end the run."""

    def give(self, call: ToolCall, answer: _Answer) -> None:
        self.by_id[call["id"]] = answer

    def refuse(self, call: ToolCall, text: str, error: str = "declined") -> None:
        self.give(call, _Answer(text, error=error, mistake=error != "declined"))

    def not_available(self, call: ToolCall, text: str) -> None:
        self.give(call, _Answer(text, error="not_available", problem="tool"))

    def record(self) -> None:
        """Append the answers that there are. Those that were never given are filled in on reading.

        Problems are noted here and not when they happen: a result must not depend on the scheduler.
        """
        for call in self.calls:
            if (answer := self.by_id.get(call["id"])) is not None:
                content = with_media(answer.text, answer.media) if answer.media else answer.text
                message: Message = {"role": "tool", "tool_call_id": call["id"], "content": content}
                self.run.add(answer.kind, message)
                self.raised = self.raised or answer.stop
                if answer.problem is not None:
                    self.run.problem(answer.problem, answer.text, call_id=call["id"], error=answer.exception)

    def end_run(self) -> bool:
        """Whether the run ends with one of them."""
        return any(answer.stop for answer in self.by_id.values())

    def only_mistakes(self) -> bool:
        return bool(self.by_id) and all(map(_is_mistake, self.by_id.values()))


@dataclass(slots=True)
class Answered:
    """What comes of the calls of a reply, for the loop to judge; filled in while they are answered."""

    routed: RoutedCalls | None = None
    """What they lead to."""
    transfer: Transfer | None = None
    """The one that was tried."""
    raised: RoutelockError | None = None
    """What a call ended the run with."""
    only_mistakes: bool = False
    """Whether every call was one."""


async def answer_calls(
    run: Run, offered: OfferedTools, calls: Sequence[ToolCall], events: Events, answered: Answered
) -> AsyncGenerator[RunEvent]:
    """Answer a reply's calls: tools first and at the same time, then the first transfer. Yield what happens.

    Args:
        run: the run.
        offered: what the model was offered.
        calls: what it calls.
        events: carries out the runs of agents that are called as tools.
        answered: what comes of them; filled in.

    Raises:
        HandoffFilterError: an input filter, or what maps the history, broke.
    """
    answers = _Answers(run, calls)
    routed = plan_turn(run, calls, offered, answers.refuse)
    answered.routed = routed
    try:
        _answer_unknown(run, routed, answers, offered)
        free = await _free_tools(run, routed, answers)
        for call, _ in free:
            yield _called(run, call)
        async with aclosing(run_tools(run, free, partial(_take_outcome, run, answers), events)) as happening:
            async for event in happening:
                yield event
        _note_results(run, routed, answers)
        await _choose_transfer(run, routed, calls, answers)
        for each in _outcomes(run, routed, calls, answers):
            yield each
        _refuse_unknown_targets(run, routed, answers)
        if routed.transfer is not None:
            answered.transfer = await _transfer(run, routed.transfer, answers)
    except BaseException as error:
        _note_cut_short(run, routed, calls, answers, error)
        raise
    finally:
        _answer_not_taken(run, routed, answers)
        answers.record()
    answered.raised, answered.only_mistakes = answers.raised, answers.only_mistakes()
    for each in _rest(run, routed, answers):
        yield each
    if answered.transfer is not None:
        for each in await _switch(run, answered.transfer):
            yield each


def asked_for(run: Run, mistake: str) -> ModelBehaviorError:
    """Return the error that ends a run with a mistake, because ``RunConfig.raise_on`` names it."""
    error = ModelBehaviorError(f"Agent {run.frame.agent.name!r}, turn {run.turn}: {mistake}")
    error.asked_for = True
    return error


def failed_handoff(run: Run, transfer: Transfer) -> HandoffError:
    """Return the error that ends a run with a transfer that was not made, see ``RunConfig.raise_on``."""
    error = HandoffError(f"Agent {run.frame.agent.name!r}, turn {run.turn}: {transfer.answer}")
    error.__cause__ = transfer.exception
    return error


async def _free_tools(run: Run, routed: RoutedCalls, answers: _Answers) -> Sequence[tuple[ToolCall, Tool]]:
    """Return the tool calls that need no approval, or have it; none in a turn that ends the run anyway."""
    if not routed.tools:
        return ()
    if answers.end_run():
        for call, _ in routed.tools:
            if call["id"] not in run.sub_runs.to_resume:  # else it began before, and goes on with the run
                _take_outcome(run, answers, call, NOT_RUN, False)
        return ()
    free = await hold_tools(run, routed, answers.refuse, answers.not_available)
    if free:
        run.budget.check(run.frame.agent.name, len(free))
        run.budget.tool_calls += len(free)
    return free


async def _choose_transfer(
    run: Run, routed: RoutedCalls, calls: Sequence[ToolCall], answers: _Answers
) -> None:
    """Find the transfer that the turn makes, if it makes one."""
    if routed.transfers or answers.asked:
        _take_requests(run, routed, calls, answers)
        _skip_handoff(run, routed, answers)
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
    run: Run, routed: RoutedCalls, calls: Sequence[ToolCall], answers: _Answers
) -> Iterator[RunEvent]:
    """Yield what the tools gave, which transfers are not tried, and which one will be."""
    yield from _outputs(run, calls, answers)
    for wanted, why in (*routed.skipped, *routed.declined, *routed.unavailable):
        yield _failed(run, wanted.call, wanted.edge.agent_name, why)
    for wanted, _ in routed.unknown_targets:
        yield _requested(run, wanted)
    if routed.transfer is not None:
        yield _requested(run, routed.transfer)


def _rest(run: Run, routed: RoutedCalls, answers: _Answers) -> Iterator[RunEvent]:
    """Yield what the transfer that tools asked for came to, and what waits for an approval."""
    asked = [*routed.transfers, *(wanted for wanted, _ in routed.unknown_targets)]
    yield from _outputs(run, [wanted.call for wanted in asked if wanted.request], answers)
    for wanted, why in routed.unknown_targets:
        yield _failed(run, wanted.call, wanted.edge.agent_name, why)
    if routed.waiting:
        run.calls.interruptions = all_waiting(run, routed)  # also for a reader that leaves at the question
    for one in routed.waiting:
        yield ApprovalRequested(agent=one.agent, call_id=one.call_id, name=one.name, arguments=one.arguments)


def _take_requests(run: Run, routed: RoutedCalls, calls: Sequence[ToolCall], answers: _Answers) -> None:
    """Let the handoffs that tools asked for stand in line with the model's own, in call order."""
    if not answers.asked:
        return
    asked = {call_id: answer.request for call_id, answer in answers.by_id.items() if answer.request}
    by_call = {wanted.call["id"]: wanted for wanted in routed.transfers}
    for call in calls:
        if (request := asked.get(call["id"])) is None:
            continue
        found = _way(run, request)
        if isinstance(found, str):
            wanted = Wanted(call, Handoff(target=request.target_name), request)
            routed.unknown_targets.append((wanted, clip(found, LONGEST_REASON)))
        else:
            by_call[call["id"]] = Wanted(call, found, request)
    routed.transfers = [by_call[call["id"]] for call in calls if call["id"] in by_call]
    routed.choose(run.config.multiple_handoffs)


def _way(run: Run, request: HandoffRequest) -> Handoff | str:
    """Return the way to what a tool asks to hand over to, or why there is none."""
    try:
        edge = edge_for(run, request)
    except ConfigError as error:
        return str(error)
    if edge is not None:
        return edge
    every = {*(each.name for each in handlers_by_priority(run.frame.agent, run.config)), *run.graph}
    others = sorted(every - {run.frame.agent.name, run.frame.handler.name})
    known = f"There are: {', '.join(others)}." if others else "There is no other."
    return f"Handoff target {request.target_name!r} was not found. {known}"


def _skip_handoff(run: Run, routed: RoutedCalls, answers: _Answers) -> None:
    """Do not make a transfer in a turn that ends the run: nobody would go on after it."""
    if routed.transfer is None:
        return
    doomed = routed.unknown_targets and "failed_handoff" in run.config.raise_on
    if doomed or answers.end_run():
        routed.skip_handoff(_DOOMED)
    elif routed.external:
        routed.skip_handoff(_WAITS)
    elif routed.waiting or run.sub_runs.waiting:
        routed.skip_handoff(_WAITS_FOR_APPROVAL)


def _note_results(run: Run, routed: RoutedCalls, answers: _Answers) -> None:
    """Let the run see whether it gets anywhere."""
    if routed.tools and run.config.detect_loops and not answers.end_run():
        results: list[tuple[str, str, str]] = []
        requests: list[tuple[str, str, str]] = []
        for call, tool in routed.tools:
            if (answer := answers.by_id.get(call["id"])) is None:
                continue  # it waits for an approval
            made = (tool.name, call["function"].get("arguments") or "", answer.text)
            (results if answer.request is None else requests).append(made)
        run.progress.tool_results(results, requests)


def _note_declined(run: Run, routed: RoutedCalls) -> None:
    """Let the run see that a transfer was declined or is disabled, which is all that the turn brings."""
    refused = [*routed.declined, *routed.unavailable]
    if refused and not routed.tools and run.config.detect_loops:
        run.progress.tool_results(
            (wanted.edge.tool_name, wanted.call["function"].get("arguments") or "", why)
            for wanted, why in refused
        )


def _take_outcome(run: Run, answers: _Answers, call: ToolCall, outcome: ToolOutcome, stop: bool) -> bool:
    """Answer a call with what came of it; return whether the run ends with that."""
    answer = _Answer(
        text=outcome.output, error=outcome.error, exception=outcome.exception, media=outcome.media
    )
    if outcome.handoff is not None:
        answer.text = _UNDECIDED.format(target=outcome.handoff.target_name)
        answer.request = outcome.handoff
        answers.asked = True
    answers.give(call, answer)
    if outcome.usage is not None:
        run.count(outcome.usage)
    if outcome.error == "arguments":
        answer.mistake, answer.problem = True, "bad_arguments"
        if "bad_arguments" in run.config.raise_on:
            answer.stop = asked_for(run, outcome.output)
    elif outcome.error is not None:
        answer.problem = "tool"
        answer.stop = _stopping(outcome) if stop else None
    return answer.stop is not None


def _stopping(outcome: ToolOutcome) -> RoutelockError:
    """Return the error that a tool ended the run with; made anew when an engine replays the step."""
    if isinstance(outcome.exception, RoutelockError):
        return outcome.exception
    if outcome.error == "guardrail":
        return ToolGuardrailTripped(outcome.output)
    return (ToolTimeout if outcome.error == "timeout" else ToolError)(outcome.output)


def _answer_unknown(run: Run, routed: RoutedCalls, answers: _Answers, offered: OfferedTools) -> None:
    for place, call in enumerate(routed.unknown):
        text = unknown_tool(call["function"].get("name") or "", offered, place)
        answer = _Answer(text, error="unknown_tool", mistake=True, problem="unknown_tool")
        answers.give(call, answer)
        if "unknown_tool" in run.config.raise_on:
            answer.stop = asked_for(run, text)


def _outputs(run: Run, calls: Sequence[ToolCall], answers: _Answers) -> Iterator[ToolOutput]:
    for call in calls:
        answer = answers.by_id.get(call["id"])
        if answer is not None and answer.request is None:
            yield ToolOutput(
                agent=run.frame.agent.name,
                call_id=call["id"],
                name=call["function"].get("name") or "",
                output=answer.text,
                error=answer.error,
            )


def _requested(run: Run, wanted: Wanted) -> HandoffRequested:
    return HandoffRequested(
        source=run.active_name,
        target=wanted.edge.agent_name,
        call_id=wanted.call["id"],
        arguments=wanted.call["function"].get("arguments") or "",
    )


def _failed(run: Run, call: ToolCall, target: str, why: str) -> HandoffFailed:
    return HandoffFailed(source=run.active_name, target=target, call_id=call["id"], reason=why)


def _refuse_unknown_targets(run: Run, routed: RoutedCalls, answers: _Answers) -> None:
    """Put on record, and answer, what tools asked to hand over to and the run does not have."""
    for wanted, why in routed.unknown_targets:
        transfer = refused(run, wanted, why)
        answer = _Answer(transfer.answer, error="handoff", problem="handoff")
        if "failed_handoff" in run.config.raise_on:
            answer.stop = failed_handoff(run, transfer)
        answers.give(wanted.call, answer)
        put_on_record(run, transfer)


async def _transfer(run: Run, wanted: Wanted, answers: _Answers) -> Transfer:
    run.calls.begun.add(wanted.call["id"])
    transfer = await try_transfer(run, wanted)
    if transfer.exception is not None and not is_error(transfer.exception):
        put_on_record(run, transfer)
        raise transfer.exception
    if transfer.target is not None:
        run.handoffs.hold(transfer.request.request_id, transfer.place)
    kind: Literal["tool", "handoff"] = "tool" if transfer.by_tool else "handoff"
    answer = _Answer(text=transfer.answer, kind=kind, error=transfer.error, exception=transfer.exception)
    if transfer.returns:
        answers.by_id.pop(wanted.call["id"], None)  # the target's output will answer it
    else:
        answers.give(wanted.call, answer)
    if transfer.error is not None:
        answer.mistake, answer.problem = not transfer.by_tool, "handoff"
    put_on_record(run, transfer)
    return transfer


def _note_cut_short(
    run: Run, routed: RoutedCalls, calls: Sequence[ToolCall], answers: _Answers, error: BaseException
) -> None:
    """Put on record the transfers to which the turn did not come, as it ended before."""
    undecided = [] if routed.transfer is None else [routed.transfer]
    known = {one.call_id for one in run.handoffs.records}
    known |= {wanted.call["id"] for wanted in routed.transfers}
    for call in calls:
        asked = answers.by_id[call["id"]].request if call["id"] in answers.by_id else None
        if asked is not None and call["id"] not in known:  # by a tool that is done
            undecided.append(Wanted(call, Handoff(target=asked.target_name), asked))
    for wanted in undecided:
        if all(one.call_id != wanted.call["id"] for one in run.handoffs.records):
            put_on_record(run, cut_short(run, wanted, error))


def _answer_not_taken(run: Run, routed: RoutedCalls, answers: _Answers) -> None:
    for wanted, why in routed.skipped:
        by_tool = wanted.request is not None
        mistake = routed.transfer is None and not by_tool
        answers.give(wanted.call, _Answer(why, "tool" if by_tool else "handoff", why, mistake=mistake))
        put_on_record(run, passed_over(run, wanted, why))
    for wanted, why in routed.declined:
        answers.give(wanted.call, _Answer(why, "handoff", "declined"))
        put_on_record(run, passed_over(run, wanted, why))
    for wanted, why in routed.unavailable:
        answers.give(wanted.call, _Answer(why, "handoff", "not_available", problem="handoff"))
        put_on_record(run, passed_over(run, wanted, why))
    if routed.skipped:
        run.warn(f"turn {run.turn}: {len(routed.skipped)} of the reply's transfers were not taken")


async def _switch(run: Run, transfer: Transfer) -> Sequence[RunEvent]:
    """Make the transfer, and return what became of it."""
    if transfer.target is None:
        return (_failed(run, transfer.call, transfer.target_name, transfer.error or ""),)
    source = run.active_name
    await take_over(run, transfer)
    occurred = HandoffOccurred(
        source=source,
        target=transfer.target_name,
        call_id=transfer.call["id"],
        reason=transfer.reason,
        preserve_context=transfer.edge.preserve_context,
    )
    return *run.handoffs.take_completed(), occurred
