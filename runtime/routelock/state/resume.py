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
from routelock.run.config import RunConfig
from routelock.run.frames import Caller
from routelock.run.handler_selection import find_handler, handler_for, handlers_by_priority
from routelock.run.loop_guard import Progress
from routelock.run.result import HandoffRecord, Problem
from routelock.run.run import Run
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
    if run.depth:
        raise ConfigError(
            "This run answers a call of another run, and goes on with that one only: take the state of the "
            "outer result."
        )
    document = _document(run)
    if "decisions" in document:
        document = _without_spent(document)
    return RunState(checked_json(document), {**run.graph})


def _document(run: Run) -> RunDocument:
    narrowings, payload = run.parted or (run.narrowings, run.shared_memory.get(PAYLOAD_KEY))
    outermost = narrowings[0].outer if narrowings else run.shared_memory
    document: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "run_id": run.run_id,
        "stop_reason": run.stop_reason,
        "error": run.failure,
        "first": run.first.name,
        "speaker": None if run.speaker is None else run.speaker.name,
        "started": run.started,
        "position": _position(run),
        "callers": [_caller_document(caller, run.items) for caller in run.callers],
        "turn": run.turn,
        "first_of_turn": run.first_of_turn,
        "turns_within": run.turns_within,
        "mistakes": run.mistakes,
        "empty_replies": run.empty_replies,
        "over_limit": run.over_limit,
        "warned_of_many": run.warned_of_many,
        "input_count": run.input_count,
        "items": [_item(item) for item in run.items],
        "pending": [cast("dict[str, Any]", call) for call in run.pending],
        "begun": sorted(run.begun - {item.message.get("tool_call_id") for item in run.items}),
        "usage": usage_document(run.usage),
        "usage_by_agent": {name: usage_document(usage) for name, usage in run.usage_by_agent.items()},
        "spent": {name: usage_document(usage) for name, usage in run.spent.items()},
        "handoffs": [record_document(record) for record in _reopened(run)],
        "errors": [_problem(each) for each in run.errors],
        "repairs": [*run.repairs],
        "warnings": [*run.warnings],
        "failed": sorted([*pair] for pair in run.failed),
        "progress": _progress_document(run),
        "shared_memory": _without_payload(outermost),
        "narrowings": [_narrowed_document(each) for each in narrowings],
        "payload": None if run.stop_reason == "done" else payload,
        "tool_calls": run.tool_calls,
        **_rarely(run, outermost),
    }
    return cast(RunDocument, document)


def _rarely(run: Run, memory: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is there only if the run waited for somebody, was resumed, or deleted what it was given."""
    within = {**run.to_resume, **{call_id: _within(inner) for call_id, inner in run.kept.items()}}
    said = [] if run.depth else decision_documents(run.approvals)
    interruptions = [] if run.depth else [interruption_document(one) for one in run.interruptions]
    found: dict[str, Any] = {"within": within, "decisions": said, "interruptions": interruptions}
    found["claims"] = run.claims
    # the app gives the same again when the run is resumed
    found["deleted"] = [] if run.depth else [key for key in run.config.shared_memory if key not in memory]
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
    return {
        "agent": run.agent.name,
        "handler": run.handler.name,
        "default_handler": run.default_handler,
        "stands_in": run.stands_in,
        "agent_turns": run.agent_turns,
        "open_handoff": run.open_handoff,
        "source_prompt": run.source_prompt,
        "payload_note": None if run.stop_reason == "done" else run.payload_note,
        "view": _shown(run.view.items, run.items),
        "rendered": run.view.rendered_for(family_of(run.handler), run.reader()),
    }


def _caller_document(caller: Caller, items: Sequence[RunItem]) -> CallerDocument:
    made: CallerDocument = {
        "agent": caller.agent.name,
        "handler": caller.handler.name,
        "default_handler": caller.default_handler,
        "stands_in": caller.stands_in,
        "agent_turns": caller.agent_turns,
        "open_handoff": caller.open_handoff,
        "source_prompt": caller.source_prompt,
        "payload_note": caller.payload_note,
        "call": cast("dict[str, Any]", caller.call),
        "seconds": caller.seconds,
        "payload": caller.payload,
        "narrowings": caller.narrowings,
        "view": _shown(caller.view.items, items),
        "rendered": 0,
    }
    if caller.stands_by:
        made["stands_by"] = True
    return made


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
    still_open = {run.open_handoff, *(caller.open_handoff for caller in run.callers)}
    settled = run.begun | {item.message.get("tool_call_id") for item in run.items}
    for one in run.handoffs:
        if one.call_id not in settled:
            continue
        if one.id in still_open:
            yield replace(one, status=HandoffStatus.ACCEPTED, error=None, ended=None, usage=None)
        elif one.status is HandoffStatus.ACCEPTED and one.id not in run.spent:
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
    run.approvals = approvals_of(state.document.get("decisions", ()), state.interruptions)
    run.interruptions = state.interruptions  # as long as the run does not come to them
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
    run.usage, run.usage_by_agent, run.tool_calls = NO_USAGE, {}, 0
    run.turns_counted = stood["turn"] + stood["turns_within"]
    run.shared_memory = outer.shared_memory
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
    active = agent_named(graph, document["position"]["agent"])
    run = Run(
        first=agent_named(graph, document["first"]),
        agent=active,
        handler=_handler(active, document["position"], failed, config),
        default_handler=_default(active, config),
        graph=graph,
        config=config,
        hooks=hooks,
        max_turns=max_turns,
        stream=stream,
        context=context,
        run_id=document["run_id"],
        items=items,
        view=View(view_of(document["position"]["view"], items)),
        input_count=document["input_count"],
        scopes=frozenset(config.scopes),
        failed=failed,
        call_ids=call_ids(item.message for item in items),
        capture=captured,
        handoffs=[record_of(record, items, graph) for record in document["handoffs"]],
    )
    run.to_resume, run.claims = document.get("within", {}), document.get("claims", 0)
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


def _default(agent: Agent[Any], config: RunConfig) -> str:
    return next((each.name for each in handlers_by_priority(agent, config)), "")


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


def _caller(caller: CallerDocument, run: Run) -> Caller:
    agent = agent_named(run.graph, caller["agent"])
    return Caller(
        agent=agent,
        handler=_handler(agent, caller, run.failed, run.config),
        default_handler=_default(agent, run.config),
        stands_in=caller["stands_in"],
        agent_turns=caller["agent_turns"],
        handoff_input=_given(run, caller["open_handoff"]),
        source_prompt=caller["source_prompt"],
        view=View(view_of(caller["view"], run.items)),
        call=cast(ToolCall, caller["call"]),
        seconds=caller["seconds"],
        open_handoff=caller["open_handoff"],
        payload=caller["payload"],
        payload_note=caller["payload_note"],
        narrowings=caller["narrowings"],
        stands_by=caller.get("stands_by", False),
    )


def _given(run: Run, handoff_id: str | None) -> Any:
    """Return what the transfer passed along that put somebody in charge."""
    return next((one.input for one in run.handoffs if one.id == handoff_id), None)


def _count(run: Run, document: RunDocument) -> None:
    """Fill in the budgets and the books."""
    position = document["position"]
    run.turn, run.first_of_turn = document["turn"], document["first_of_turn"]
    run.turns_within, run.agent_turns = document["turns_within"], position["agent_turns"]
    run.mistakes, run.empty_replies = document["mistakes"], document["empty_replies"]
    run.over_limit, run.warned_of_many = document["over_limit"], document["warned_of_many"]
    run.begun, run.read_calls = set(document["begun"]), True
    run.usage, run.tool_calls = usage_of(document["usage"]), document.get("tool_calls", 0)
    run.usage_by_agent = {name: usage_of(usage) for name, usage in document["usage_by_agent"].items()}
    run.spent = {name: usage_of(usage) for name, usage in document["spent"].items()}
    run.errors = tuple(Problem(**cast(Any, problem)) for problem in document["errors"])
    run.repairs, run.warnings = tuple(document["repairs"]), tuple(document["warnings"])
    run.looked_at = _progress(document["progress"])


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
    position, speaker = document["position"], document["speaker"]
    run.speaker = None if speaker is None else agent_named(run.graph, speaker)
    run.callers = tuple(_caller(caller, run) for caller in document["callers"])
    run.started, run.stands_in = document["started"], position["stands_in"]
    run.open_handoff = position["open_handoff"]
    run.handoff_input = _given(run, run.open_handoff)
    run.source_prompt, run.payload_note = position["source_prompt"], position["payload_note"]


def _remember(run: Run, document: RunDocument) -> None:
    """Fill in what the run shares."""
    kept, deleted = _given_anew(run, detached(document["shared_memory"])), document.get("deleted", ())
    given = {key: value for key, value in run.config.shared_memory.items() if key not in deleted}
    run.shared_memory = unshared({**given, **kept})
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
        run.narrowings += (_narrowed(run.shared_memory, each),)
        run.shared_memory = run.narrowings[-1].inner
    if document["payload"] is not None:
        run.shared_memory[PAYLOAD_KEY] = detached(document["payload"])


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
    unknown = [call for call in left.calls if call["id"] in run.begun]
    for call in unknown:
        text = _unknown(run, call)
        run.add("tool", {"role": "tool", "tool_call_id": call["id"], "content": text})
        run.problem("tool", text, call_id=call["id"])
    run.callers = tuple(_patient(caller) for caller in run.callers)
    if run.stop_reason == "unfinished":
        _take_places(run, run.config.capacity)
    return replace(left, calls=[call for call in left.calls if call not in unknown])


def _patient(caller: Caller) -> Caller:
    """Return a caller who begins to wait now."""
    if caller.seconds is None:
        return caller
    return replace(caller, until=anyio.current_time() + caller.seconds)


def _unknown(run: Run, call: ToolCall) -> str:
    """Say what is known of a call that was begun and has no answer."""
    failed = next((one.error for one in run.handoffs if one.call_id == call["id"] and one.error), None)
    return _INTERRUPTED if failed is None else f"The transfer was not made: {failed}"


def _take_places(run: Run, capacity: Capacity | None) -> None:
    """Hold a slot for the agent that speaks and for each that waits; without a capacity none is counted."""
    everybody: list[Caller | Run] = [*run.callers, run]
    targets = {record.id: record.target for record in run.handoffs}
    for depth, one in enumerate(everybody):
        # whoever was handed over to holds the slot, also when another handler answers in its stead
        name, place = targets.get(one.open_handoff or ""), None
        if capacity is not None and name is not None and (place := capacity.take(name)) is None:
            raise HandoffError(f"{name!r} holds as many transfers as it can. Resume the run later.")
        run.places.acquire(place, waits=depth > 0)


def _left_of_turn(run: Run) -> LeftOver:
    waiting = {caller.call["id"] for caller in run.callers}
    return left_over(run.items, run.first_of_turn, run.turn, waiting)


def _stand(run: Run, document: RunDocument) -> None:
    """Let the run be in the middle of its turn, or at the end of it, as it was."""
    left = _left_of_turn(run)
    run.again = left.call_again
    if left.cut_off:
        cut_off = {id(item) for item in left.cut_off}
        run.view.replace([item for item in run.view.items if id(item) not in cut_off])
    _show_again(run, document["position"]["rendered"])
    if document["stop_reason"] == "done":
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
