"""The tools that a model is offered in a turn, and what each of its calls leads to.

Routing is a lookup of the call's name among exactly what was offered in that very turn. Text is never
searched for markers, and a name that was not offered is answered, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from routelock._text import clip
from routelock.agents.agent import Agent
from routelock.agents.offer import External, OfferedTools
from routelock.handoff_request import HandoffRequest
from routelock.handoffs.handoff import Handoff
from routelock.history.messages import ToolCall
from routelock.run.handler_selection import load
from routelock.run.handoff_attempt import HandoffAttempt
from routelock.tools.approvals import Interruption
from routelock.tools.tool import Tool

__all__ = [
    "MOST_CALLS",
    "NOT_TAKEN",
    "RoutedCalls",
    "edge_for",
    "route",
    "unknown_tool",
]


MOST_CALLS = 1000
"""The number of calls of one reply that are looked at; a model that makes more is broken or hostile."""

NOT_TAKEN = "Multiple handoffs detected, ignoring this one."

_REFUSED = "Several transfers were asked for at once, so none was made. Ask for exactly one."

_LONGEST_LIST = 400

_SHOWN_NAME = 64

_EXPLAINED = 5


@dataclass(slots=True)
class RoutedCalls:
    """The calls of a reply, sorted by what they lead to; each list is in the order of the calls."""

    tools: list[tuple[ToolCall, Tool]] = field(default_factory=lambda: [])
    handoffs: list[HandoffAttempt] = field(default_factory=lambda: [])
    """Those to a known target, chosen or not."""
    unknown: list[ToolCall] = field(default_factory=lambda: [])
    external: list[ToolCall] = field(default_factory=lambda: [])
    """Calls of the caller's own tools; the run ends with them, and the caller answers them."""
    handoff: HandoffAttempt | None = None
    """The handoff that is chosen: the turn tries it."""
    skipped: list[HandoffAttempt] = field(default_factory=lambda: [])
    """Handoffs that are answered and not tried."""
    unknown_targets: list[HandoffAttempt] = field(default_factory=lambda: [])
    """Handoffs by tools to a target that the run does not have; another handoff may still be tried."""
    declined: list[HandoffAttempt] = field(default_factory=lambda: [])
    """Handoffs that were not approved."""
    unavailable: list[HandoffAttempt] = field(default_factory=lambda: [])
    """Handoffs that the model was offered and that are disabled by now."""
    waiting: list[Interruption] = field(default_factory=lambda: [])
    """Calls that wait for approval; they have no result yet."""

    def choose(self, multiple: Literal["first", "reject"]) -> None:
        """Choose the handoff that the turn tries, see ``RunConfig.multiple_handoffs``."""
        if len(self.handoffs) > 1 and multiple == "reject":
            self.handoff, self.skipped, why = None, [*self.handoffs], _REFUSED
        elif self.handoffs:
            self.handoff, self.skipped, why = self.handoffs[0], self.handoffs[1:], NOT_TAKEN
        else:
            return
        for attempt in self.skipped:
            attempt.skip(why)

    def skip_handoff(self, why: str) -> None:
        """Do not try the chosen handoff after all."""
        if self.handoff is not None:
            self.handoff.skip(why)
            self.skipped.insert(0, self.handoff)
            self.handoff = None


def route(
    calls: Sequence[ToolCall], offered: OfferedTools, multiple: Literal["first", "reject"]
) -> RoutedCalls:
    """Sort the calls of a reply by what they lead to; see ``RunConfig.multiple_handoffs``."""
    routed = RoutedCalls()
    for call in calls:
        match offered.routes.get(call["function"].get("name") or ""):
            case Handoff() as edge:
                routed.handoffs.append(HandoffAttempt(call, edge))
            case Tool() as tool:
                routed.tools.append((call, tool))
            case External():
                routed.external.append(call)
            case None:
                routed.unknown.append(call)
    routed.choose(multiple)
    return routed


def unknown_tool(name: str, offered: OfferedTools, earlier: int = 0) -> str:
    """Return the answer to a call of a name that was not offered; at most 800 characters.

    Args:
        name: the name that the model called.
        offered: the tools that it was offered.
        earlier: the number of such calls before this one in the reply. The search for similar names is slow,
            so from the sixth call on the answer is short.
    """
    shown = clip(repr(name if len(name) <= _SHOWN_NAME else name[:_SHOWN_NAME] + "..."), 3 * _SHOWN_NAME)
    if earlier >= _EXPLAINED:
        return f"There is no tool named {shown}. An answer before this one says which there are."
    names = [each for each in offered.routes if each not in offered.disabled]
    known = ", ".join(names)
    if len(known) > _LONGEST_LIST:
        known = known[:_LONGEST_LIST].rsplit(",", 1)[0] + ", ..."
    import difflib  # noqa: PLC0415 - for the few runs in which a model invents a name

    near = difflib.get_close_matches(name[:_SHOWN_NAME], names, n=1)
    available = f"Available tools: {known}." if names else "No tools are available; answer in words."
    guess = f" Did you mean {near[0]!r}?" if near else ""
    return f"There is no tool named {shown}. {available}{guess}"


# -- handoffs that tools ask for --


def edge_for(agent: Agent[Any], graph: Mapping[str, Agent[Any]], request: HandoffRequest) -> Handoff | None:
    """Return the handoff to the target of a tool's request; None if there is no such target.

    A handoff that the agent declares keeps its filter and callbacks, offered or not. A target that is given
    as an object is never another one of the same name. The options of the request are added.

    Args:
        agent: the active agent.
        graph: the agents of the run.
        request: the request that the tool returned.

    Raises:
        ConfigError: the object is neither an agent nor a handler.
    """
    by_capability = request.to_agent is None
    edge = _edge_to_capable(agent, request) if by_capability else _edge_to(agent, graph, request.to_agent)
    if edge is None:
        return None
    own: dict[str, Any] = {
        name: value
        for name, value in (
            ("timeout", request.timeout),
            ("payload", request.payload),
            ("capabilities_required", _all_required(edge, request)),
        )
        if value is not None
    }
    if not request.preserve_context and edge.preserve_context:
        own |= {"preserve_context": False, "input_filter": None}
    return replace(edge, **own) if own else edge


def _all_required(edge: Handoff, request: HandoffRequest) -> Sequence[str] | None:
    """Return the capabilities of both: a tool cannot require less than the handoff declares."""
    more = [name for name in request.capabilities_required if name not in edge.capabilities_required]
    return (*edge.capabilities_required, *more) if more else None


def _edge_to_capable(agent: Agent[Any], request: HandoffRequest) -> Handoff:
    """Return the handoff to any agent with the capabilities: the one declared for exactly these, if any."""
    required = request.capabilities_required
    for edge in agent.edges:
        found_later = edge.target is None and edge.on_invoke_handoff is None
        if found_later and set(edge.capabilities_required) == set(required):
            return edge
    return Handoff(capabilities_required=required)


def _edge_to(agent: Agent[Any], graph: Mapping[str, Agent[Any]], target: Any) -> Handoff | None:
    for edge in agent.edges:
        end = graph.get(edge.target) if isinstance(edge.target, str) else edge.target
        if target == edge.agent_name if isinstance(target, str) else target is end:
            return edge
    for edge in agent.edges:  # one of several targets: the declared options hold, and only this one is asked
        for one in edge.others:
            name = one if isinstance(one, str) else one.name
            end = graph.get(one) if isinstance(one, str) else one
            if target == name if isinstance(target, str) else target is end:
                return replace(edge, target=one, others=(), agent_name="")
    if not isinstance(target, str):
        return Handoff(target=target)
    if known := agent.registered.get(target):
        return Handoff(target=load(known), scope=known.scope)
    return Handoff(target=graph[target]) if target in graph else None
