"""The events of a model call, and of the calls in its reply, for streamed runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from routelock._sendable import sendable
from routelock.handlers.events import HandlerEvent, MessageDone, ReasoningDelta, TextDelta, ToolCallDelta
from routelock.handlers.stream_assembler import join_surrogates
from routelock.history.messages import Message, calls_of, text_of
from routelock.run.emit import own_reply
from routelock.run.events import (
    ApprovalRequested,
    Compacted,
    EmptyReply,
    HandoffFailed,
    HandoffOccurred,
    HandoffRequested,
    Repaired,
    RunEvent,
    ToolCalled,
    ToolOutput,
)
from routelock.run.records import Compaction
from routelock.run.routing import RoutedCall, RoutedCalls
from routelock.run.run import Run

__all__ = [
    "called_event",
    "decided_events",
    "handoff_event",
    "later_events",
    "prepared_events",
    "unstreamed_events",
]


def prepared_events(run: Run, made: Sequence[Compaction], repairs: Sequence[str]) -> Sequence[RunEvent]:
    """Return the events of a view that was compacted or repaired for a model call."""
    return [*map(Compacted, made), *(Repaired(agent=run.frame.agent.name, repair=each) for each in repairs)]


def unstreamed_events(
    run: Run, reply: MessageDone, shown: Sequence[str], repairs: Sequence[str]
) -> Iterator[RunEvent]:
    """Yield the events of a reply that were not streamed while it arrived, and the reply."""
    name = run.frame.agent.name
    yield from _missing_deltas(reply.message, shown)
    for each in repairs:
        yield Repaired(agent=name, repair=each)
    yield own_reply(reply)
    if run.progress.empty_replies:
        yield EmptyReply(name)


def _missing_deltas(message: Message, shown: Sequence[str]) -> list[HandlerEvent]:
    """Return the deltas of a complete reply that the handler did not yield.

    Args:
        message: the reply.
        shown: the pieces of text that the handler yielded; empty if it yielded no delta at all.
    """
    if shown:
        text, seen = text_of(message), sendable(join_surrogates(shown))
        return [TextDelta(text[len(seen) :])] if text.startswith(seen) and text != seen else []
    return _deltas_of(message)


def _deltas_of(message: Message) -> list[HandlerEvent]:
    deltas: list[HandlerEvent] = []
    if isinstance(thoughts := message.get("reasoning_content"), str) and thoughts:
        deltas.append(ReasoningDelta(thoughts))
    if text := text_of(message):
        deltas.append(TextDelta(text))
    for index, call in enumerate(calls_of(message)):
        function = call["function"]
        deltas.append(ToolCallDelta(index, call["id"], function["name"], function["arguments"]))
    return deltas


def called_event(run: Run, call: RoutedCall) -> ToolCalled:
    """Return the event of a tool that is about to run."""
    name = run.frame.agent.name
    return ToolCalled(agent=name, call_id=call.id, name=call.name, arguments=call.arguments)


def decided_events(run: Run, routed: RoutedCalls) -> list[RunEvent]:
    """Return the events of the tools' outputs, of the handoffs that are not tried, and of the one that is."""
    done = [call for call in routed.calls if call.kind != "handoff" and not call.asks_handoff]
    events = _outputs(run, done)
    events += [_failed(run.active_name, call) for call in (*routed.skipped, *routed.refused)]
    chosen = [] if routed.handoff_call is None else [routed.handoff_call]
    events += [
        HandoffRequested(
            source=run.active_name,
            target=call.attempt.handoff.agent_name,
            call_id=call.id,
            arguments=call.arguments,
        )
        for call in (*routed.unknown_targets, *chosen)
    ]
    return events


def later_events(run: Run, routed: RoutedCalls) -> list[RunEvent]:
    """Return the events of handoffs that tools asked for, and of calls that wait for approval."""
    asked = [call for call in routed.tools if call.asks_handoff]
    events = _outputs(run, sorted(asked, key=routed.unknown_targets.__contains__))  # those come last
    events += [_failed(run.active_name, call) for call in routed.unknown_targets]
    events += [
        ApprovalRequested(agent=one.agent, call_id=one.call_id, name=one.name, arguments=one.arguments)
        for one in routed.waiting
    ]
    return events


def _outputs(run: Run, calls: Sequence[RoutedCall]) -> list[RunEvent]:
    agent = run.frame.agent.name
    return [
        ToolOutput(agent=agent, call_id=call.id, name=call.name, output=result.text, error=result.error)
        for call in calls
        if (result := call.result) is not None
    ]


def _failed(source: str, call: RoutedCall) -> HandoffFailed:
    target, reason = call.attempt.target_name, call.attempt.error or ""
    return HandoffFailed(source=source, target=target, call_id=call.id, reason=reason)


def handoff_event(call: RoutedCall) -> HandoffOccurred | HandoffFailed:
    """Return the event of the handoff that was tried: it was made, or it was not."""
    attempt = call.attempt
    if attempt.target is None:
        return _failed(attempt.source, call)
    return HandoffOccurred(
        source=attempt.source,
        target=attempt.target_name,
        call_id=call.id,
        reason=attempt.reason,
        preserve_context=attempt.handoff.preserve_context,
    )
