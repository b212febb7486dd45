"""A `RunState` made of a run, and a run made of it again with the agents, tools and settings at hand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import anyio

from routelock._json import detached, unshared
from routelock._redaction import REDACTED
from routelock.agents.agent import Agent
from routelock.agents.hooks import RunHooks
from routelock.context import PAYLOAD_KEY, MemoryScope
from routelock.errors import ConfigError, HandoffError, ModelBehaviorError
from routelock.handlers.port import Handler, family_of, json_in
from routelock.handoff_request import HandoffStatus
from routelock.handoffs.capabilities import Capacity
from routelock.history.messages import RunItem, ToolCall, call_ids, refusal_of, text_of
from routelock.history.unfinished_turn import LeftOver, left_over
from routelock.history.view import View
from routelock.run.budget import Budget
from routelock.run.config import RunConfig
from routelock.run.frames import Frame, Wait
from routelock.run.handler_selection import default_name, find_handler, handler_for, handlers_by_priority
from routelock.run.handoff_records import HandoffLog
from routelock.run.loop_guard import Progress
from routelock.run.result import HandoffRecord, Problem
from routelock.run.run import Run, SharedMemory, Transcript
from routelock.run.start import run_graph
from routelock.state.document import (
    FORMAT_VERSION,
    CallerDocument,
    ItemDocument,
    NarrowedDocument,
    Position,
    ProblemDocument,
    ProgressDocument,
    RunDocument,
    approvals_of,
    decision_documents,
    interruption_document,
    items_of,
    record_document,
    record_of,
    usage_document,
    usage_of,
    view_of,
)
from routelock.state.run_state import RunState, agent_named, checked_json
from routelock.usage import NO_USAGE

__all__ = ["captured", "resumed", "resumed_within", "settle"]


_NOT_TAKEN_OVER = "the run was interrupted before the target took over"


def captured(run: Run) -> RunState:
    """Return where a run stands.

    Raises:
        ConfigError: something that it shares is no JSON, or it is a run within another one.
    """
    if run.sub_runs.depth:
        raise ConfigError(
            "This run answers a call of another run, and goes on with that one only: take the state of the "
            "outer result."
        )
    document = _document(run)
    if "decisions" in document:
        document = _without_spent(document)
    return RunState(checked_json(document), {**run.graph})


def _document(run: Run) -> RunDocument:
    narrowings, payload = run.memory.at_end or (run.memory.scopes, run.memory.shared.get(PAYLOAD_KEY))
    outermost = narrowings[0].outer if narrowings else run.memory.shared
    document: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "run_id": run.run_id,
        "stop_reason": run.ending.stop_reason,
        "error": run.ending.failure,
        "first": run.first.name,
        "speaker": None if run.announced_agent is None else run.announced_agent.name,
        "started": run.agent_started,
        "position": _position(run),
        "callers": [_caller_document(caller, run.transcript.items) for caller in run.callers],
        "turn": run.turn,
        "first_of_turn": run.first_of_turn,
        "turns_within": run.budget.turns_within,
        "mistakes": run.progress.mistakes,
        "empty_replies": run.progress.empty_replies,
        "over_limit": run.progress.over_limit,
        "warned_of_many": run.report.warned_of_many,
        "input_count": run.transcript.input_count,
        "items": [_item(item) for item in run.transcript.items],
        "pending": [cast("dict[str, Any]", call) for call in run.calls.pending],
        "begun": sorted(run.calls.begun - _answered(run)),
        "usage": usage_document(run.budget.usage),
        "usage_by_agent": {name: usage_document(usage) for name, usage in run.budget.usage_by_agent.items()},
        "spent": {name: usage_document(usage) for name, usage in run.handoffs.spent.items()},
        "handoffs": [record_document(record) for record in _reopened(run)],
        "errors": [_problem(each) for each in run.report.errors],
        "repairs": [*run.report.repairs],
        "warnings": [*run.report.warnings],
        "failed": sorted([*pair] for pair in run.failed_handlers),
        "progress": _progress_document(run),
        "shared_memory": _without_payload(outermost),
        "narrowings": [_narrowed_document(each) for each in narrowings],
        "payload": None if run.ending.stop_reason == "done" else payload,
        "tool_calls": run.budget.tool_calls,
        **_rarely(run, outermost),
    }
    return cast(RunDocument, document)


def _answered(run: Run) -> set[str]:
    """Return the ids of the calls that have an answer."""
    ids = (item.message.get("tool_call_id") for item in run.transcript.items)
    return {call_id for call_id in ids if call_id is not None}


def _rarely(run: Run, memory: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is there only if the run waited for somebody, was resumed, or deleted what it was given."""
    waiting = {call_id: _within(inner) for call_id, inner in run.sub_runs.waiting.items()}
    found: dict[str, Any] = {"within": {**run.sub_runs.to_resume, **waiting}, "claims": run.calls.claims}
    if not run.sub_runs.depth:
        found["decisions"] = decision_documents(run.calls.decisions)
        found["interruptions"] = [interruption_document(one) for one in run.calls.interruptions]
        # the app gives the same again when the run is resumed
        found["deleted"] = [key for key in run.config.shared_memory if key not in memory]
    return {name: value for name, value in found.items() if value}


def _within(inner: Run) -> RunDocument:
    """Return where a run within another one stands; whatever they share is in the outer one."""
    document = _document(inner)
    own = bool(document["narrowings"])
    return {**document, "shared_memory": {}, "payload": document["payload"] if own else None}


def _without_spent(document: RunDocument) -> RunDocument:
    """Leave out decisions on calls that were answered or begun: each counts once."""
    said = document.get("decisions", [])
    left = [each for each in said if not (each["fingerprint"] and _is_settled(document, each["on"]))]
    rest = cast(RunDocument, {key: value for key, value in document.items() if key != "decisions"})
    return {**rest, "decisions": left} if left else rest


def _is_settled(document: RunDocument, place: Sequence[str]) -> bool:
    """Whether the call of a path and an id was answered or begun."""
    call_id, *rest = place
    answered = {item["message"].get("tool_call_id") for item in document["items"]}
    if call_id in document["begun"] or call_id in answered:
        return True
    inner = document.get("within", {}).get(call_id)
    return bool(rest) and inner is not None and _is_settled(inner, rest)


def _problem(problem: Problem) -> ProblemDocument:
    return {
        "kind": problem.kind,
        "agent": problem.agent,
        "turn": problem.turn,
        "message": problem.message,
        "call_id": problem.call_id,
    }


def _position(run: Run) -> Position:
    frame = run.frame
    made = _frame_document(frame, run.transcript.items)
    made["payload_note"] = None if run.ending.stop_reason == "done" else frame.payload_note
    made["rendered"] = frame.view.rendered_for(family_of(frame.handler), run.audience())
    return made


def _frame_document(frame: Frame, items: Sequence[RunItem]) -> Position:
    return {
        "agent": frame.agent.name,
        "handler": frame.handler.name,
        "default_handler": frame.default_handler,
        "stands_in": frame.handler_override,
        "agent_turns": frame.turns,
        "open_handoff": frame.handoff_id,
        "source_prompt": frame.source_prompt,
        "payload_note": frame.payload_note,
        "view": _shown(frame.view.items, items),
        "rendered": 0,
    }


def _caller_document(frame: Frame, items: Sequence[RunItem]) -> CallerDocument:
    wait = frame.wait
    assert wait is not None
    made: dict[str, Any] = {
        **_frame_document(frame, items),
        "call": wait.call,
        "seconds": wait.seconds,
        "payload": wait.payload,
        "narrowings": wait.memory_level,
    }
    if wait.stands_by:
        made["stands_by"] = True
    return cast(CallerDocument, made)


def _shown(view: Iterable[RunItem], items: Sequence[RunItem]) -> list[int | ItemDocument]:
    """Return the items of a view; those of the transcript by their place."""
    return [
        item.id if 0 <= item.id < len(items) and item == items[item.id] else _item(item, items)
        for item in view
    ]


def _item(item: RunItem, items: Sequence[RunItem] = ()) -> ItemDocument:
    made: ItemDocument = {"id": item.id, "kind": item.kind, "message": cast("dict[str, Any]", item.message)}
    if item.agent is not None:
        made["agent"] = item.agent
    if item.origin is not None:
        made["origin"] = item.origin
    if item.asked_by is not None:
        made["asked_by"] = item.asked_by
    if item.covers:
        made["covers"] = _shown(item.covers, items)
    if item.whole:
        made["whole"] = [cast("dict[str, Any]", message) for message in item.whole]
    return made


def _without_payload(memory: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in memory.items() if key != PAYLOAD_KEY}


def _narrowed_document(one: MemoryScope) -> NarrowedDocument:
    inner, given = _without_payload(one.inner), _without_payload(one.given)
    same = [key for key, value in inner.items() if key in one.outer and one.outer[key] is value]
    return {
        "keys": None if one.keys is None else [*one.keys],
        "same": same,
        "own": {key: value for key, value in inner.items() if key not in same},
        "given": [*given],
        "unchanged": [key for key, value in given.items() if key in inner and inner[key] is value],
    }


def _reopened(run: Run) -> Iterable[HandoffRecord]:
    """Return the records as they were before the run's end closed those of who was in charge.

    A transfer to which the turn did not come is still to be made, so it has none.
    """
    still_open = {run.frame.handoff_id, *(frame.handoff_id for frame in run.callers)}
    settled = run.calls.begun | _answered(run)
    for one in run.handoffs.records:
        if one.call_id not in settled:
            continue
        if one.id in still_open:
            yield replace(one, status=HandoffStatus.ACCEPTED, error=None, ended=None, usage=None)
        elif one.status is HandoffStatus.ACCEPTED and one.id not in run.handoffs.spent:
            yield replace(one, status=HandoffStatus.FAILED, error=_NOT_TAKEN_OVER)
        else:
            yield one


def _progress_document(run: Run) -> ProgressDocument:
    seen = run.progress
    seen.read_all()
    return {
        "answers": {**seen.answers},
        "times": {**seen.times},
        "edges": sorted([*edge] for edge in seen.edges),
        "refused": seen.refused,
        "idle": seen.idle,
        "names": [*seen.names],
        "told": seen.told,
    }


_INTERRUPTED = (
    "The run was interrupted while this call was carried out. Whether it had an effect is not known, so it "
    "was not made again. Find out first, if that matters."
)


def resumed(
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
    _check(state.document, config)
    run = _stood(agent, state.document, context, max_turns, hooks, config, stream=stream)
    run.calls.decisions = approvals_of(state.document.get("decisions", ()), state.interruptions)
    run.calls.interruptions = state.interruptions  # as long as the run does not come to them
    _remember(run, state.document)
    _stand(run, state.document)
    return run


def resumed_within(
    outer: Run, agent: Agent[Any], stood: RunDocument, max_turns: int | None, config: RunConfig
) -> Run:
    """Return a run within another one that stands where ``stood`` says.

    Its books begin anew: what it consumed before is in those of the outer run.

    Raises:
        ConfigError: it cannot go on like this.
    """
    run = _stood(agent, stood, outer.context, max_turns, outer.hooks, config, stream=outer.stream)
    run.budget.usage, run.budget.usage_by_agent, run.budget.tool_calls = NO_USAGE, {}, 0
    run.budget.turns_counted = stood["turn"] + stood["turns_within"]
    run.memory.shared = outer.memory.shared
    _narrow(run, stood)
    _stand(run, stood)
    return run


def _stood(
    agent: Agent[Any],
    stood: RunDocument,
    context: Any,
    max_turns: int | None,
    hooks: RunHooks | None,
    config: RunConfig,
    *,
    stream: bool,
) -> Run:
    """Return a run of what a document says, but for what it shares."""
    document, graph = detached(stood), run_graph(agent, config)
    items = items_of(document)
    failed = frozenset((owner, name) for owner, name in document["failed"])
    frame = _frame(graph, document["position"], items, failed, config)
    run = Run(
        first=agent_named(graph, document["first"]),
        graph=graph,
        config=config,
        hooks=hooks,
        stream=stream,
        context=context,
        run_id=document["run_id"],
        scopes=frozenset(config.scopes),
        transcript=Transcript(
            items, document["input_count"], call_ids(item.message for item in items), has_calls=True
        ),
        frame=frame,
        budget=Budget(config.limits, max_turns),
        handoffs=HandoffLog(
            document["run_id"], [record_of(record, items, graph) for record in document["handoffs"]]
        ),
        memory=SharedMemory({}),
        failed_handlers=failed,
    )
    run.sub_runs.to_resume, run.calls.claims = document.get("within", {}), document.get("claims", 0)
    _count(run, document)
    _recall(run, document)
    return run


def _check(document: RunDocument, config: RunConfig) -> None:
    if document["pending"]:
        waiting = ", ".join(repr(call["id"]) for call in document["pending"])
        raise ConfigError(
            f"The run waits for answers to its calls {waiting:.400}. Add them with "
            "state.with_answers([...]), each as a tool message."
        )
    if config.run_id not in (None, document["run_id"]):
        raise ConfigError(
            f"RunConfig(run_id={config.run_id!r:.80}): the run is called {document['run_id']!r:.80} "
            "and keeps its name. Leave run_id out."
        )


def _handler(
    agent: Agent[Any], position: Position, failed: Collection[tuple[str, str]], config: RunConfig
) -> Handler:
    """Return the handler in charge; an agent that was at its default is at what is its default now."""
    name = position["handler"]
    if name == position["default_handler"]:
        # that it failed earlier counts for nothing: it was handed over to again
        others = {handler for owner, handler in failed if owner == agent.name and handler != name}
        return handler_for(agent, config, others)
    if (found := find_handler(agent, name, config)) is None:
        known = ", ".join(repr(each.name) for each in handlers_by_priority(agent, config)) or "none"
        raise ConfigError(
            f"The RunState names the handler {name!r:.80} of agent {agent.name!r}, which is not there, or "
            f"not for whoever is asking. Known: {known:.400}."
        )
    return found


def _frame(
    graph: Mapping[str, Agent[Any]],
    stood: Position,
    items: Sequence[RunItem],
    failed: Collection[tuple[str, str]],
    config: RunConfig,
) -> Frame:
    """Return a frame that stands where a document says, but for the input of its handoff."""
    agent = agent_named(graph, stood["agent"])
    return Frame(
        agent=agent,
        handler=_handler(agent, stood, failed, config),
        default_handler=default_name(agent, config),
        view=View(view_of(stood["view"], items)),
        handler_override=stood["stands_in"],
        turns=stood["agent_turns"],
        handoff_id=stood["open_handoff"],
        source_prompt=stood["source_prompt"],
        payload_note=stood["payload_note"],
    )


def _caller(stood: CallerDocument, run: Run) -> Frame:
    frame = _frame(run.graph, stood, run.transcript.items, run.failed_handlers, run.config)
    frame.handoff_input = _given(run, frame.handoff_id)
    frame.wait = Wait(
        call=cast(ToolCall, stood["call"]),
        seconds=stood["seconds"],
        payload=stood["payload"],
        memory_level=stood["narrowings"],
        stands_by=stood.get("stands_by", False),
    )
    return frame


def _given(run: Run, handoff_id: str | None) -> Any:
    """Return what the transfer passed along that put somebody in charge."""
    return next((one.input for one in run.handoffs.records if one.id == handoff_id), None)


def _count(run: Run, document: RunDocument) -> None:
    """Fill in the budgets and the books."""
    run.progress = _progress(document["progress"])
    run.turn, run.first_of_turn = document["turn"], document["first_of_turn"]
    run.budget.turns_within = document["turns_within"]
    run.progress.mistakes, run.progress.empty_replies = document["mistakes"], document["empty_replies"]
    run.progress.over_limit, run.report.warned_of_many = document["over_limit"], document["warned_of_many"]
    run.calls.begun = set(document["begun"])
    run.budget.usage, run.budget.tool_calls = usage_of(document["usage"]), document.get("tool_calls", 0)
    run.budget.usage_by_agent = {name: usage_of(usage) for name, usage in document["usage_by_agent"].items()}
    run.handoffs.spent = {name: usage_of(usage) for name, usage in document["spent"].items()}
    run.report.errors = tuple(Problem(**cast(Any, problem)) for problem in document["errors"])
    run.report.repairs, run.report.warnings = tuple(document["repairs"]), tuple(document["warnings"])


def _progress(seen: ProgressDocument) -> Progress:
    return Progress(
        answers=seen["answers"],
        times=seen["times"],
        edges={(source, target) for source, target in seen["edges"]},
        refused=seen["refused"],
        idle=seen["idle"],
        names=dict.fromkeys(seen["names"]),
        told=seen["told"],
    )


def _recall(run: Run, document: RunDocument) -> None:
    """Fill in who speaks and who waits, and what is in the prompts."""
    speaker = document["speaker"]
    run.announced_agent = None if speaker is None else agent_named(run.graph, speaker)
    run.agent_started = document["started"]
    run.callers = [_caller(caller, run) for caller in document["callers"]]
    run.frame.handoff_input = _given(run, run.frame.handoff_id)


def _remember(run: Run, document: RunDocument) -> None:
    """Fill in what the run shares."""
    kept, deleted = _given_anew(run, detached(document["shared_memory"])), document.get("deleted", ())
    given = {key: value for key, value in run.config.shared_memory.items() if key not in deleted}
    run.memory.shared = unshared({**given, **kept})
    _narrow(run, document)


def _given_anew(run: Run, kept: dict[str, Any]) -> dict[str, Any]:
    """Return what was kept of a memory, with the app's own values for secrets that were not written."""
    given = run.config.shared_memory
    memory = {key: given[key] if key in given and _is_redacted(kept[key]) else kept[key] for key in kept}
    if gone := [key for key, value in memory.items() if _is_redacted(value)]:
        run.warn(
            f"shared_memory: secrets in {', '.join(map(repr, gone)):.200} were redacted when the state was "
            "written; give them anew with RunConfig(shared_memory=...)"
        )
    return memory


def _narrow(run: Run, document: RunDocument) -> None:
    """Let whoever speaks see of the memory what it saw, and the payload that rides along."""
    for each in detached(document["narrowings"]):
        each["own"] = unshared(_given_anew(run, each["own"]))
        run.memory.scopes += (_narrowed(run.memory.shared, each),)
        run.memory.shared = run.memory.scopes[-1].inner
    if document["payload"] is not None:
        run.memory.shared[PAYLOAD_KEY] = detached(document["payload"])


def _narrowed(outer: dict[str, Any], document: NarrowedDocument) -> MemoryScope:
    inner = {key: outer[key] for key in document["same"] if key in outer} | document["own"]
    changed = object()  # whatever it was: it is compared with what there is now, and never read
    given = {
        key: inner[key] if key in document["unchanged"] and key in inner else changed
        for key in document["given"]
    }
    return MemoryScope(outer, inner, given, document["keys"])


def _is_redacted(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_is_redacted, cast("dict[str, object]", value).values()))
    if isinstance(value, list):
        return any(map(_is_redacted, cast("list[object]", value)))
    return isinstance(value, str) and REDACTED in value


# -- where it stood --


def settle(run: Run) -> LeftOver:
    """Let a resumed run begin, and return what is left to do of its turn.

    No call is made twice: one that was begun and has no answer is answered by a note. Whoever waits has all
    its patience again, and whoever held a slot takes one, see ``RunConfig.capacity``.

    Raises:
        HandoffError: an agent that is in charge, or waits, has no slot now.
    """
    left = _left_of_turn(run)
    unknown = [call for call in left.calls if call["id"] in run.calls.begun]
    for call in unknown:
        text = _unknown(run, call)
        run.add("tool", {"role": "tool", "tool_call_id": call["id"], "content": text})
        run.problem("tool", text, call_id=call["id"])
    for frame in run.callers:
        if frame.wait is not None and frame.wait.seconds is not None:
            frame.wait.until = anyio.current_time() + frame.wait.seconds
    if run.ending.stop_reason == "unfinished":
        _take_places(run, run.config.capacity)
    return replace(left, calls=[call for call in left.calls if call not in unknown])


def _unknown(run: Run, call: ToolCall) -> str:
    """Say what is known of a call that was begun and has no answer."""
    errors = (one.error for one in run.handoffs.records if one.call_id == call["id"])
    failed = next(filter(None, errors), None)
    return _INTERRUPTED if failed is None else f"The transfer was not made: {failed}"


def _take_places(run: Run, capacity: Capacity | None) -> None:
    """Hold a slot for the agent that speaks and for each that waits; without a capacity none is counted."""
    if capacity is None:
        return
    for frame in (*run.callers, run.frame):
        # the target of the handoff holds the slot, also when another handler answers in its place
        if (record := run.handoffs.get(frame.handoff_id)) is None:
            continue
        if (slot := capacity.take(record.target)) is None:
            raise HandoffError(f"{record.target!r} holds as many transfers as it can. Resume the run later.")
        run.handoffs.hold(record.id, slot)


def _left_of_turn(run: Run) -> LeftOver:
    waiting = {frame.waits_for["id"] for frame in run.callers}
    return left_over(run.transcript.items, run.first_of_turn, run.turn, waiting)


def _stand(run: Run, document: RunDocument) -> None:
    """Let the run be in the middle of its turn, or at the end of it, as it was."""
    left = _left_of_turn(run)
    run.retakes_turn = left.call_again
    if left.cut_off:
        cut_off = {id(item) for item in left.cut_off}
        run.frame.view.replace([item for item in run.frame.view.items if id(item) not in cut_off])
    _show_again(run, document["position"]["rendered"])
    if document["stop_reason"] == "done":
        run.ending.stop_reason = "done"
        run.ending.final_output = _output(run)


def _show_again(run: Run, count: int) -> None:
    """Render what a model was shown already, so that what had to be repaired in it is not reported again."""
    if not count:
        return
    items = run.frame.view.items
    run.frame.view = View(items[:count])
    run.frame.view.messages(family_of(run.frame.handler), run.audience())
    for item in items[count:]:
        run.frame.view.add(item)


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
