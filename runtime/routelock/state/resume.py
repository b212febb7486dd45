"""Makes a run from a `RunState`, with the agents, tools and settings that the app passes now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio

from routelock.agents.agent import Agent
from routelock.agents.hooks import RunHooks
from routelock.errors import ConfigError, HandoffError, ModelBehaviorError
from routelock.handlers.port import Handler, family_of
from routelock.handlers.structured_output import json_in
from routelock.handoff_request import HandoffRequest
from routelock.handoffs.capabilities import Capacity
from routelock.handoffs.payload import HandoffPayload
from routelock.history.compaction import ViewSize
from routelock.history.messages import RunItem, ToolCall, call_ids, calls_of, refusal_of, text_of
from routelock.history.unfinished_turn import LeftOver, left_over
from routelock.history.view import View
from routelock.run.config import RunConfig
from routelock.run.frames import Frame, Wait
from routelock.run.handler_selection import default_name, find_handler, handler_for, handlers_by_priority
from routelock.run.records import HandoffRecord
from routelock.run.run import Budget, HandoffLog, Run, SharedMemory, Transcript
from routelock.run.start import run_graph
from routelock.state.document import (
    RunDocument,
    StoredDecision,
    StoredFrame,
    StoredProgress,
    StoredSize,
    copy_document,
)
from routelock.state.memory import restore_memory, restore_scopes
from routelock.state.run_state import RunState, agent_named
from routelock.tools.approvals import Approvals, Decision, Interruption
from routelock.usage import NO_USAGE

__all__ = ["restore_run", "restore_sub_run", "settle", "state_of_sub_run"]


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
    """Return a run at the position of ``state``.

    Raises:
        ConfigError: calls still wait for an answer, or the state names something that does not exist now.
    """
    _check_can_go_on(state.document, config)
    document = copy_document(state.document)
    run = _restored(agent, document, context, max_turns, () if hooks is None else (hooks,), config, stream)
    run.open_calls.decisions = _approvals(document.decisions, state.interruptions)
    run.open_calls.interruptions = state.interruptions  # until the run reaches these calls
    restore_memory(run, document)
    _restore_turn(run, document)
    return run


def restore_sub_run(
    outer: Run,
    agent: Agent[Any],
    document: RunDocument,
    max_turns: int | None,
    config: RunConfig,
    *,
    stream: bool,
) -> Run:
    """Return a sub-run at the position of ``document``.

    Its usage begins at zero, because the outer run has counted its earlier usage.

    Raises:
        ConfigError: calls still wait for an answer, or the document names something that does not exist now.
    """
    document = copy_document(document)
    run = _restored(agent, document, outer.context, max_turns, outer.hooks, config, stream)
    run.budget.before = document.usage, document.tool_calls
    run.budget.usage, run.budget.usage_by_agent, run.budget.tool_calls = NO_USAGE, {}, 0
    run.budget.turns_counted = document.turn + document.sub_run_turns
    run.memory.shared = outer.memory.shared
    restore_scopes(run, document)
    _restore_turn(run, document)
    return run


def state_of_sub_run(run: Run, document: RunDocument) -> RunState:
    """Return the state of a restored sub-run, as if it were an outermost run.

    Args:
        run: the restored sub-run.
        document: its part of the state of the outer run.
    """
    depth = len(run.sub_runs.path)
    waiting = [replace(one, path=one.path[depth:]) for one in run.open_calls.interruptions]
    return RunState(replace(document, interruptions=waiting), {**run.graph})


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
    hooks: Sequence[RunHooks],
    config: RunConfig,
    stream: bool,
) -> Run:
    """Return the run of a document, without the memory that it shares with other runs."""
    graph = run_graph(agent, config)
    records = [_restored_record(record, document.items, graph) for record in document.handoffs]
    items = _items_by_number(document)
    *callers, active = _frames(document, items, records, graph, config)
    announced = document.announced_agent
    run = Run(
        first_agent=agent_named(graph, document.first_agent),
        graph=graph,
        config=config,
        hooks=hooks,
        is_streamed=stream,
        context=context,
        run_id=document.run_id,
        scopes=frozenset(config.scopes),
        transcript=_transcript(document, items),
        frame=active,
        callers=callers,
        budget=Budget(config.limits, max_turns),
        handoffs=HandoffLog(is_streamed=stream),
        memory=SharedMemory({}),
        turn=document.turn,
        first_of_turn=document.first_of_turn,
        announced_agent=None if announced is None else agent_named(graph, announced),
        agent_started=document.started,
        failed_handlers=frozenset(document.failed),
    )
    run.handoffs.records = records
    _restore_counts(run, document)
    return run


def _transcript(document: RunDocument, items: Mapping[int, RunItem]) -> Transcript:
    known = call_ids(item.message for item in document.items)
    summary = None if document.summary is None else items[document.summary]
    return Transcript(document.items, document.input_count, known, input_has_calls=True, summary=summary)


def _restore_counts(run: Run, document: RunDocument) -> None:
    run.budget.sub_run_turns, run.budget.tool_calls = document.sub_run_turns, document.tool_calls
    run.budget.usage, run.budget.usage_by_agent = document.usage, document.usage_by_agent
    run.handoffs.spent = document.usage_by_handoff
    run.open_calls.begun, run.open_calls.claims = set(document.begun), document.claims
    run.sub_runs.to_resume = document.sub_runs
    run.report.errors, run.report.warned_of_many = tuple(document.errors), document.warned_of_many
    run.report.guardrails = list(document.guardrails)
    run.report.repairs, run.report.warnings = tuple(document.repairs), tuple(document.warnings)
    run.report.compactions = tuple(document.compactions)
    run.report.accepted = dict(document.accepted)
    _restore_progress(run, document.progress)


def _restore_progress(run: Run, seen: StoredProgress) -> None:
    progress = run.progress
    progress.answers, progress.times, progress.transfers = seen.answers, seen.times, set(seen.edges)
    progress.refused, progress.over_limit = seen.refused, seen.over_limit
    progress.idle, progress.nudged_at = seen.idle, seen.told
    progress.names = dict.fromkeys(seen.names)
    progress.mistakes, progress.empty_replies = seen.mistakes, seen.empty_replies


def _frames(
    document: RunDocument,
    items: Mapping[int, RunItem],
    records: Sequence[HandoffRecord],
    graph: Mapping[str, Agent[Any]],
    config: RunConfig,
) -> list[Frame]:
    """Return the stack of frames, the active one at the end."""
    inputs = {record.id: record.input for record in records}
    frames = [_frame(stored, graph, items, document.failed, config) for stored in document.frames]
    for frame in frames:
        frame.handoff_input = inputs.get(frame.handoff_id or "")
    return frames


def _items_by_number(document: RunDocument) -> Mapping[int, RunItem]:
    """Return all items that a view may name: those of the transcript from 0 up, all others below 0."""
    items = dict(enumerate(document.items))
    known: dict[tuple[int, ...], tuple[RunItem, ...]] = {}
    for number, one in enumerate(document.shown_items, 1):
        covers = tuple(one.covers)
        # all messages of a summary share one tuple, which is how they are known to belong together
        covered = known.setdefault(covers, tuple(items[each] for each in covers))
        items[-number] = replace(one.item, covers=covered)
    return items


def _frame(
    stored: StoredFrame,
    graph: Mapping[str, Agent[Any]],
    items: Mapping[int, RunItem],
    failed: Collection[tuple[str, str]],
    config: RunConfig,
) -> Frame:
    agent = agent_named(graph, stored.agent)
    frame = Frame(
        agent=agent,
        handler=_handler(agent, stored, failed, config),
        default_handler=default_name(agent, config),
        view=View(items[number] for number in stored.view),
        handler_override=stored.handler_override,
        turns=stored.turns,
        handoff_id=stored.handoff_id,
        source_prompt=stored.source_prompt,
        payload_note=stored.payload_note,
    )
    frame.view.size = _restored_size(stored.size)
    if stored.call is not None:
        frame.wait = Wait(
            call=stored.call,
            seconds=stored.seconds,
            payload=stored.payload,
            memory_level=stored.scopes,
            is_standby=stored.is_standby,
        )
    return frame


def _restored_size(stored: StoredSize | None) -> ViewSize | None:
    if stored is None:
        return None
    size = ViewSize(stored.fixed, stored.tools)
    size.estimated, size.tokens, size.items = stored.estimated, stored.tokens, stored.items
    size.results, size.cut_at = stored.results, stored.cut_at
    return size


def _handler(
    agent: Agent[Any], stored: StoredFrame, failed: Collection[tuple[str, str]], config: RunConfig
) -> Handler:
    """Return the handler of an agent; the present default handler if the agent had its default then."""
    name = stored.handler
    if name == stored.default_handler:
        # an earlier failure of this handler does not count, because the run handed over to it again
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
    """Return the input of a handoff, parsed again from the model's text if the handoff has a type."""
    plain: Any = record.input
    if plain is None or record.requested_by != "model":
        return plain
    declared = [each for agent in graph.values() for each in agent.all_handoffs]
    types = (each.input_type for each in declared if each.tool_name == record.tool_name)
    input_type = next((each for each in types if each is not None), None)
    calls = (call for item in items for call in calls_of(item.message) if call["id"] == record.call_id)
    text = next((call["function"]["arguments"] for call in calls), None)
    if input_type is not None and text is not None:
        with suppress(ModelBehaviorError):  # the type has changed: the input stays plain data
            return input_type.parse(text, strict=True)
    return plain


def _approvals(decisions: Iterable[StoredDecision], asked: Iterable[Interruption]) -> Approvals:
    """Return the decisions of a state; of two on the same call the later one counts.

    Args:
        decisions: the decisions, oldest first.
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


# -- the unfinished turn --


def settle(run: Run) -> LeftOver:
    """Prepare a resumed run, and return the steps that its turn still needs.

    No call is made twice: one that was begun and has no answer is answered by a note. Agents that wait have
    their full time again, and agents that held a slot take one, see ``RunConfig.capacity``.

    Raises:
        HandoffError: the active agent, or one that waits, has no slot now.
    """
    left = _left_of_turn(run)
    unknown = [call for call in left.calls if call["id"] in run.open_calls.begun]
    for call in unknown:
        text = _unknown(run, call)
        run.add_message("tool", {"role": "tool", "tool_call_id": call["id"], "content": text})
        run.add_problem("tool", text, call_id=call["id"])
    for frame in run.callers:
        if frame.wait is not None and frame.wait.seconds is not None:
            frame.wait.until = anyio.current_time() + frame.wait.seconds
    if run.ending.stop_reason == "unfinished":
        _take_slots(run, run.config.capacity)
    return replace(left, calls=[call for call in left.calls if call not in unknown])


def _unknown(run: Run, call: ToolCall) -> str:
    """Return the text that answers a call that was begun and has no result."""
    errors = (one.error for one in run.handoffs.records if one.call_id == call["id"])
    failed = next(filter(None, errors), None)
    return _INTERRUPTED if failed is None else f"The transfer was not made: {failed}"


def _take_slots(run: Run, capacity: Capacity | None) -> None:
    """Take a capacity slot for the active agent and for each that waits, if the run has a capacity."""
    if capacity is None:
        return
    for frame in (*run.callers, run.frame):
        # the target of the handoff holds the slot, also when another handler answers in its place
        if (record := run.handoffs.get(frame.handoff_id)) is None:
            continue
        if (slot := capacity.take(record.target)) is None:
            raise HandoffError(
                f"{record.target!r} has no free slot in RunConfig(capacity=...). Resume the run later."
            )
        run.handoffs.hold(record.id, slot)


def _left_of_turn(run: Run) -> LeftOver:
    waiting = {frame.waits_for["id"] for frame in run.callers}
    return left_over(run.transcript.items, run.first_of_turn, run.turn, waiting)


def _restore_turn(run: Run, document: RunDocument) -> None:
    """Restore the position of the run: in the middle of its turn, or at its end."""
    left = _left_of_turn(run)
    run.retakes_turn = left.call_again
    if left.cut_off:
        cut_off, view = {id(item) for item in left.cut_off}, run.frame.view
        size = view.size
        view.replace([item for item in view.items if id(item) not in cut_off])
        view.size = None if size is None or size.items > len(view.items) else size
    _show_again(run, document.active.rendered)
    if document.stop_reason == "done":
        run.ending.stop_reason = "done"
        run.ending.final_output = _output(run)


def _show_again(run: Run, count: int) -> None:
    """Render the items that a model was shown already, so that their repairs are not reported again."""
    if not count:
        return
    items, size = run.frame.view.items, run.frame.view.size
    run.frame.view = View(items[:count])
    run.frame.view.size = size
    run.frame.view.messages(family_of(run.frame.handler), run.audience())
    for item in items[count:]:
        run.frame.view.items.append(item)


def _output(run: Run) -> Any:
    """Return the final output of a run that is complete, as its agent reads it."""
    message = run.transcript.items[-1].message
    text = text_of(message) or refusal_of(message)
    if run.frame.agent.output is None:
        return text
    try:
        return run.frame.agent.output.parse(json_in(text))
    except ModelBehaviorError as error:
        raise ConfigError(
            f"The run is complete, and its output does not fit agent {run.frame.agent.name!r} as it is now: "
            f"{error}"
        ) from error
