"""What each call of a model leads to.

Routing is a lookup of the call's name among exactly what was offered in that very turn. Text is never
searched for markers, and a name that was not offered is answered, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, Literal

from anyio import CancelScope

from routelock._text import clip
from routelock.agents.agent import Agent
from routelock.agents.offer import OfferedTools, Route
from routelock.errors import RoutelockError
from routelock.guardrails import GuardrailRecord
from routelock.handoff_request import HandoffRequest
from routelock.handoffs.handoff import Handoff
from routelock.history.messages import ToolCall
from routelock.run.handler_selection import load
from routelock.run.handoff_attempt import HandoffAttempt
from routelock.tools.tool import Tool, ToolOutcome

__all__ = ["Result", "RoutedCall", "edge_for", "unknown_tool"]


_LONGEST_LIST = 400

_SHOWN_NAME = 64

_EXPLAINED = 5


@dataclass(slots=True)
class Result:
    """What answers a call."""

    text: str
    error: str | None = None
    is_mistake: bool = False
    """Whether it is the model's mistake, not the tool's."""
    problem: Literal["unknown_tool", "bad_arguments", "tool", "handoff"] | None = None
    """The kind of problem to note on the run's result."""
    exception: BaseException | None = None
    media: Sequence[Mapping[str, Any]] = ()
    stop: RoutelockError | None = None
    """The error that ends the run once everything is recorded."""


@dataclass(slots=True, eq=False)
class RoutedCall:
    """One call of a reply, from its route to its result.

    A call is held until it is approved, or free; a free call of a tool runs and has an outcome. What answers
    it is its result.
    """

    call: ToolCall
    route: InitVar[Route | None]
    is_held: bool = False
    """Whether the call waits for approval: it has no result then."""
    is_skipped: bool = False
    """Whether another call ended the run before this one could start."""
    scope: CancelScope | None = None
    """Set while the call is running beside others."""
    outcome: ToolOutcome | None = None
    result: Result | None = None
    guardrails: list[GuardrailRecord] | None = None
    """What the guardrails of the tool have found so far; None without guardrails."""
    asks_handoff: bool = False
    """Whether there is a handoff for the turn to decide."""
    attempt: HandoffAttempt = field(init=False)
    """The handoff that the model or the tool asks for; not set unless ``asks_handoff``."""
    tool: Tool = field(init=False)
    """What a call of kind ``"tool"`` runs; not set for others."""
    kind: Literal["tool", "handoff", "external", "unknown"] = field(init=False)
    id: str = field(init=False)
    name: str = field(init=False)
    arguments: str = field(init=False)

    def __post_init__(self, route: Route | None) -> None:
        self.id, function = self.call["id"], self.call["function"]
        self.name, self.arguments = function.get("name") or "", function.get("arguments") or ""
        if isinstance(route, Tool):
            self.kind, self.tool = "tool", route
            if route.input_guardrails or route.output_guardrails:
                self.guardrails = []
        elif isinstance(route, Handoff):
            self.kind = "handoff"
            self.ask_handoff(route)
        else:
            self.kind = "unknown" if route is None else "external"

    def ask_handoff(self, edge: Handoff, request: HandoffRequest | None = None) -> None:
        """Ask for a handoff: by the model, or by the tool that has run and returned a request."""
        self.attempt, self.asks_handoff = HandoffAttempt(self.call, edge, request), True

    def refuse(self, text: str, error: str = "declined") -> None:
        """Answer the call instead of making it."""
        self.result = Result(text, error, is_mistake=error != "declined")


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
    more = [name for name in request.capabilities_required if name not in edge.capabilities_required]
    options = {
        "timeout": request.timeout,
        "payload": request.payload,
        # a tool cannot require less than the handoff declares
        "capabilities_required": (*edge.capabilities_required, *more) if more else None,
    }
    own: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if not request.preserve_context and edge.preserve_context:
        own |= {"preserve_context": False, "input_filter": None}
    return replace(edge, **own) if own else edge


def _edge_to_capable(agent: Agent[Any], request: HandoffRequest) -> Handoff:
    """Return the handoff to any agent with the capabilities: the one declared for exactly these, if any."""
    required = request.capabilities_required
    for edge in agent.edges:
        found_later = edge.target is None and edge.on_invoke_handoff is None
        if found_later and set(edge.capabilities_required) == set(required):
            return edge
    return Handoff(capabilities_required=required)


def _edge_to(agent: Agent[Any], graph: Mapping[str, Agent[Any]], target: Any) -> Handoff | None:
    def leads(end: Any, name: str) -> bool:
        if isinstance(target, str):
            return target == name
        return target is (graph.get(end) if isinstance(end, str) else end)

    for edge in agent.edges:
        if leads(edge.target, edge.agent_name):
            return edge
    for edge in agent.edges:  # one of several targets: the declared options hold, and only this one is asked
        for one in edge.others:
            if leads(one, one if isinstance(one, str) else one.name):
                return replace(edge, target=one, others=(), agent_name="")
    if not isinstance(target, str):
        return Handoff(target=target)
    if known := agent.registered.get(target):
        return Handoff(target=load(known), scope=known.scope)
    return Handoff(target=graph[target]) if target in graph else None
