"""Making a run of a `RunState`, in whatever process, with the agents, tools and settings that are there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, cast

import anyio

from routelock._json import detached, unshared
from routelock._redaction import REDACTED
from routelock.agents.agent import Agent
from routelock.agents.hooks import RunHooks
from routelock.approval_documents import approvals_of
from routelock.capturing import captured
from routelock.context import PAYLOAD_KEY, Narrowed
from routelock.errors import ConfigError, HandoffError, ModelBehaviorError
from routelock.handlers.port import Handler, family_of, json_in
from routelock.handoff_documents import record_of
from routelock.handoffs.capabilities import Capacity
from routelock.history.messages import ToolCall, call_ids, refusal_of, text_of
from routelock.history.unfinished_turn import LeftOver, left_over
from routelock.history.view import View
from routelock.run.config import RunConfig
from routelock.run.frames import Caller
from routelock.run.handler_selection import find_handler, handler_for, lineup
from routelock.run.loop_guard import Progress
from routelock.run.result import Problem
from routelock.run.run import Run
from routelock.run.start import run_graph
from routelock.run_document import (
    CallerDocument,
    NarrowedDocument,
    Position,
    ProgressDocument,
    RunDocument,
    items_of,
    usage_of,
    view_of,
)
from routelock.run_state import RunState, agent_named
from routelock.usage import NO_USAGE

__all__ = ["resumed", "resumed_within", "settle"]

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
    return next((each.name for each in lineup(agent, config)), "")


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
        known = ", ".join(repr(each.name) for each in lineup(agent, config)) or "none"
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


def _narrowed(outer: dict[str, Any], document: NarrowedDocument) -> Narrowed:
    inner = {key: outer[key] for key in document["same"] if key in outer} | document["own"]
    changed = object()  # whatever it was: it is compared with what there is now, and never read
    given = {
        key: inner[key] if key in document["unchanged"] and key in inner else changed
        for key in document["given"]
    }
    return Narrowed(outer, inner, given, document["keys"])


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
    its patience again, and whoever holds a place takes one, see ``RunConfig.capacity``.

    Raises:
        HandoffError: an agent that is in charge, or waits, has no place now.
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
    """Hold a place for the agent that speaks and for each that waits; without a capacity none is counted."""
    everybody: list[Caller | Run] = [*run.callers, run]
    targets = {record.id: record.target for record in run.handoffs}
    for depth, one in enumerate(everybody):
        # whoever was handed over to holds the place, also when another handler answers in its stead
        name, place = targets.get(one.open_handoff or ""), None
        if capacity is not None and name is not None and (place := capacity.take(name)) is None:
            raise HandoffError(f"{name!r} holds as many transfers as it can. Resume the run later.")
        run.places.take_over(place, waits=depth > 0)


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
