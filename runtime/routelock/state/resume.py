"""A run made of a `RunState`, with the agents, tools and settings at hand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import anyio

from routelock.agents.agent import Agent
from routelock.agents.hooks import RunHooks
from routelock.errors import ConfigError, HandoffError, ModelBehaviorError
from routelock.handlers.port import Handler, family_of, json_in
from routelock.handoff_request import HandoffRequest
from routelock.handoffs.capabilities import Capacity
from routelock.handoffs.payload import HandoffPayload
from routelock.history.messages import RunItem, ToolCall, call_ids, calls_of, refusal_of, text_of
from routelock.history.unfinished_turn import LeftOver, left_over
from routelock.history.view import View
from routelock.run.config import RunConfig
from routelock.run.frames import Caller
from routelock.run.handler_selection import find_handler, handler_for, handlers_by_priority
from routelock.run.loop_guard import Progress
from routelock.run.result import HandoffRecord
from routelock.run.run import Run
from routelock.run.start import run_graph
from routelock.state.capture import capture
from routelock.state.document import (
    RunDocument,
    StoredDecision,
    StoredFrame,
    copy_document,
)
from routelock.state.memory import restore_memory, restore_scopes
from routelock.state.run_state import RunState, agent_named
from routelock.tools.approvals import Approvals, Decision, Interruption
from routelock.usage import NO_USAGE

__all__ = ["restore_run", "restore_sub_run", "settle"]


_INTERRUPTED = (
    "The run was interrupted while this call was carried out. Whether it had an effect is not known, so it "
    "was not made again. Find out first, if that matters."
)


def restore_run(
    agent: Agent[Any],
    state: RunState,
    context: Any,
    max_turns: int | None,
    hooks: RunHooks | None,
    config: RunConfig,
    *,
    stream: bool,
) -> Run:
    """Return a run that stands where ``state`` says.

    Raises:
        ConfigError: it cannot go on like this: calls wait for an answer, or it names what is not there.
    """
    _check_can_go_on(state.document, config)
    document = copy_document(state.document)
    run = _restored(agent, document, context, max_turns, hooks, config, stream=stream)
    run.approvals = _approvals(document.decisions, state.interruptions)
    run.interruptions = state.interruptions  # as long as the run does not come to them
    restore_memory(run, document)
    _restore_turn(run, document)
    return run


def restore_sub_run(
    outer: Run, agent: Agent[Any], document: RunDocument, max_turns: int | None, config: RunConfig
) -> Run:
    """Return a run within another one that stands where ``document`` says.

    Its usage begins at zero: what it consumed before is counted in the outer run.

    Raises:
        ConfigError: it cannot go on like this.
    """
    document = copy_document(document)
    run = _restored(agent, document, outer.context, max_turns, outer.hooks, config, stream=outer.stream)
    run.usage, run.usage_by_agent, run.tool_calls = NO_USAGE, {}, 0
    run.turns_counted = document.turn + document.sub_run_turns
    run.shared_memory = outer.shared_memory
    restore_scopes(run, document)
    _restore_turn(run, document)
    return run


def _check_can_go_on(document: RunDocument, config: RunConfig) -> None:
    if document.pending:
        waiting = ", ".join(repr(call["id"]) for call in document.pending)
        raise ConfigError(
            f"The run waits for answers to its calls {waiting:.400}. Add them with "
            "state.with_answers([...]), each as a tool message."
        )
    if config.run_id not in (None, document.run_id):
        raise ConfigError(
            f"RunConfig(run_id={config.run_id!r:.80}): the run is called {document.run_id!r:.80} "
            "and keeps its name. Leave run_id out."
        )


def _restored(
    agent: Agent[Any],
    document: RunDocument,
    context: Any,
    max_turns: int | None,
    hooks: RunHooks | None,
    config: RunConfig,
    *,
    stream: bool,
) -> Run:
    """Return a run of a document, without the memory that it shares."""
    graph = run_graph(agent, config)
    active, items = document.active, _items_by_number(document)
    failed = frozenset(document.failed)
    run = Run(
        first=agent_named(graph, document.first_agent),
        agent=agent_named(graph, active.agent),
        handler=_handler(active, graph, failed, config),
        default_handler=_default_handler(agent_named(graph, active.agent), config),
        graph=graph,
        config=config,
        hooks=hooks,
        max_turns=max_turns,
        stream=stream,
        context=context,
        run_id=document.run_id,
        items=document.items,
        view=View(items[number] for number in active.view),
        input_count=document.input_count,
        scopes=frozenset(config.scopes),
        failed=failed,
        call_ids=call_ids(item.message for item in document.items),
        capture=capture,
        handoffs=[_restored_record(record, document.items, graph) for record in document.handoffs],
    )
    run.to_resume, run.claims = document.sub_runs, document.claims
    run.callers = tuple(_caller(frame, run, items) for frame in document.waiting)
    _restore_counts(run, document)
    _restore_active(run, document)
    return run


def _restore_counts(run: Run, document: RunDocument) -> None:
    run.turn, run.first_of_turn = document.turn, document.first_of_turn
    run.turns_within = document.sub_run_turns
    run.mistakes, run.empty_replies = document.mistakes, document.empty_replies
    run.over_limit, run.warned_of_many = document.over_limit, document.warned_of_many
    run.begun, run.read_calls = set(document.begun), True
    run.usage, run.tool_calls = document.usage, document.tool_calls
    run.usage_by_agent, run.spent = document.usage_by_agent, document.usage_by_handoff
    run.errors = tuple(document.errors)
    run.repairs, run.warnings = tuple(document.repairs), tuple(document.warnings)
    seen = document.progress
    run.looked_at = Progress(
        answers=seen.answers,
        times=seen.times,
        edges=set(seen.edges),
        refused=seen.refused,
        idle=seen.idle,
        names=dict.fromkeys(seen.names),
        told=seen.told,
    )


def _restore_active(run: Run, document: RunDocument) -> None:
    """Restore what the run knows of its active agent."""
    active, announced = document.active, document.announced_agent
    run.speaker = None if announced is None else agent_named(run.graph, announced)
    run.started, run.stands_in = document.started, active.handler_override
    run.agent_turns, run.open_handoff = active.agent_turns, active.open_handoff
    run.handoff_input = _handoff_input(run, active)
    run.source_prompt, run.payload_note = active.source_prompt, active.payload_note


def _items_by_number(document: RunDocument) -> Mapping[int, RunItem]:
    """Return all items that a view may name: the transcript from 0 up, what only models saw below 0."""
    items = dict(enumerate(document.items))
    known: dict[tuple[int, ...], tuple[RunItem, ...]] = {}
    for number, one in enumerate(document.shown_items, 1):
        covers = tuple(one.covers)
        # all messages of a summary share one tuple, which is how they are known to belong together
        covered = known.setdefault(covers, tuple(items[each] for each in covers))
        items[-number] = replace(one.item, covers=covered)
    return items


def _caller(frame: StoredFrame, run: Run, items: Mapping[int, RunItem]) -> Caller:
    agent = agent_named(run.graph, frame.agent)
    return Caller(
        agent=agent,
        handler=_handler(frame, run.graph, run.failed, run.config),
        default_handler=_default_handler(agent, run.config),
        stands_in=frame.handler_override,
        agent_turns=frame.agent_turns,
        handoff_input=_handoff_input(run, frame),
        source_prompt=frame.source_prompt,
        view=View(items[number] for number in frame.view),
        call=cast(ToolCall, frame.call),
        seconds=frame.seconds,
        open_handoff=frame.open_handoff,
        payload=frame.payload,
        payload_note=frame.payload_note,
        narrowings=frame.scopes,
        stands_by=frame.stands_by,
    )


def _handoff_input(run: Run, frame: StoredFrame) -> Any:
    """Return the input of the handoff that made an agent active."""
    return next((one.input for one in run.handoffs if one.id == frame.open_handoff), None)


def _default_handler(agent: Agent[Any], config: RunConfig) -> str:
    return next((each.name for each in handlers_by_priority(agent, config)), "")


def _handler(
    frame: StoredFrame,
    graph: Mapping[str, Agent[Any]],
    failed: Collection[tuple[str, str]],
    config: RunConfig,
) -> Handler:
    """Return the handler of an agent; one that was at its default handler is at the default of today."""
    agent, name = agent_named(graph, frame.agent), frame.handler
    if name == frame.default_handler:
        # that it failed earlier counts for nothing: it was handed over to again
        others = {handler for owner, handler in failed if owner == agent.name and handler != name}
        return handler_for(agent, config, others)
    if (found := find_handler(agent, name, config)) is None:
        known = ", ".join(repr(each.name) for each in handlers_by_priority(agent, config)) or "none"
        raise ConfigError(
            f"The RunState names the handler {name!r:.80} of agent {agent.name!r}, which is not there, or "
            f"not with the scopes of this run. Known: {known:.400}."
        )
    return found


def _restored_record(
    record: HandoffRecord, items: Sequence[RunItem], graph: Mapping[str, Agent[Any]]
) -> HandoffRecord:
    given = _record_input(record, items, graph)
    request = None if record.request is None else _restored_request(record.request, given)
    return replace(record, input=given, request=request, passed_over=tuple(record.passed_over))


def _restored_request(request: HandoffRequest, given: Any) -> HandoffRequest:
    payload = None if request.payload is None else HandoffPayload.parse(request.payload)
    return replace(request, input=given, payload=payload)


def _record_input(record: HandoffRecord, items: Sequence[RunItem], graph: Mapping[str, Agent[Any]]) -> Any:
    """Return what was passed along, parsed again from the model's text if the handoff has a type."""
    plain: Any = record.input
    if plain is None or record.requested_by != "model":
        return plain
    edges = (edge for agent in graph.values() for edge in agent.edges if edge.tool_name == record.tool_name)
    input_type = next((edge.input_type for edge in edges if edge.input_type is not None), None)
    calls = (call for item in items for call in calls_of(item.message) if call["id"] == record.call_id)
    text = next((call["function"]["arguments"] for call in calls), None)
    if input_type is not None and text is not None:
        with suppress(ModelBehaviorError):  # another version of the type: then it stays plain data
            return input_type.parse(text, strict=True)
    return plain


def _approvals(decisions: Iterable[StoredDecision], asked: Iterable[Interruption]) -> Approvals:
    """Return the decisions of a state; of two on the same call the later one counts.

    Args:
        decisions: what was decided.
        asked: calls for which a decision was requested.
    """
    by_call: dict[tuple[str, ...], Decision] = {}
    by_tool: dict[tuple[str, str], Decision] = {}
    for one in decisions:
        if one.decision.fingerprint:
            by_call[one.on] = one.decision
        else:
            by_tool[one.on[0], one.on[1]] = one.decision
    return Approvals(by_call, by_tool, frozenset((*one.path, one.call_id) for one in asked))


# -- the turn in which it stood --


def settle(run: Run) -> LeftOver:
    """Let a resumed run begin, and return what is left to do of its turn.

    No call is made twice: one that was begun and has no answer is answered by a note. Agents that wait have
    their full time again, and agents that held a slot take one, see ``RunConfig.capacity``.

    Raises:
        HandoffError: an agent that is active, or waits, has no slot now.
    """
    left = _left_of_turn(run)
    unknown = [call for call in left.calls if call["id"] in run.begun]
    for call in unknown:
        text = _unknown(run, call)
        run.add("tool", {"role": "tool", "tool_call_id": call["id"], "content": text})
        run.problem("tool", text, call_id=call["id"])
    run.callers = tuple(_waiting_anew(caller) for caller in run.callers)
    if run.stop_reason == "unfinished":
        _take_slots(run, run.config.capacity)
    return replace(left, calls=[call for call in left.calls if call not in unknown])


def _waiting_anew(caller: Caller) -> Caller:
    """Return a caller whose time begins now."""
    if caller.seconds is None:
        return caller
    return replace(caller, until=anyio.current_time() + caller.seconds)


def _unknown(run: Run, call: ToolCall) -> str:
    """Say what is known of a call that was begun and has no answer."""
    failed = next((one.error for one in run.handoffs if one.call_id == call["id"] and one.error), None)
    return _INTERRUPTED if failed is None else f"The transfer was not made: {failed}"


def _take_slots(run: Run, capacity: Capacity | None) -> None:
    """Take a slot for the active agent and for each that waits; without a capacity none is counted."""
    frames: list[Caller | Run] = [*run.callers, run]
    targets = {record.id: record.target for record in run.handoffs}
    for depth, one in enumerate(frames):
        # the target of the handoff holds the slot, also when another handler answers in its stead
        name, slot = targets.get(one.open_handoff or ""), None
        if capacity is not None and name is not None and (slot := capacity.take(name)) is None:
            raise HandoffError(f"{name!r} holds as many transfers as it can. Resume the run later.")
        run.places.acquire(slot, waits=depth > 0)


def _left_of_turn(run: Run) -> LeftOver:
    waiting = {caller.call["id"] for caller in run.callers}
    return left_over(run.items, run.first_of_turn, run.turn, waiting)


def _restore_turn(run: Run, document: RunDocument) -> None:
    """Put the run in the middle of its turn, or at the end of it, as it was."""
    left = _left_of_turn(run)
    run.again = left.call_again
    if left.cut_off:
        cut_off = {id(item) for item in left.cut_off}
        run.view.replace([item for item in run.view.items if id(item) not in cut_off])
    _show_again(run, document.active.rendered)
    if document.stop_reason == "done":
        run.stop_reason = "done"
        run.final_output = _output(run)


def _show_again(run: Run, count: int) -> None:
    """Render what a model was shown already, so that what had to be repaired in it is not reported again."""
    if not count:
        return
    items = run.view.items
    run.view = View(items[:count])
    run.view.messages(family_of(run.handler), run.reader())
    for item in items[count:]:
        run.view.add(item)


def _output(run: Run) -> Any:
    """Return the final output of a run that is complete, as its agent reads it."""
    message = run.items[-1].message
    text = text_of(message) or refusal_of(message)
    if run.agent.output is None:
        return text
    try:
        return run.agent.output.parse(json_in(text))
    except ModelBehaviorError as error:
        raise ConfigError(
            f"The run is complete, and its output is none for agent {run.agent.name!r} as it is now: {error}"
        ) from error
