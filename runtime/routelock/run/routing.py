"""Which names the model may call in a turn, and what each of its calls leads to.

Routing is a lookup of the call's name among exactly what was offered in that very turn. Text is never
searched for markers, and a name that was not offered is answered, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, cast

from routelock._concurrency import Question, ask_all
from routelock._json import sendable
from routelock._text import clip
from routelock.agents.agent import Agent
from routelock.context import RunContext
from routelock.handlers.port import ToolSpec, tool_name
from routelock.handoff_request import HandoffRequest
from routelock.handoffs.handoff import Handoff
from routelock.history.messages import ToolCall
from routelock.scopes import permits
from routelock.tools.approvals import Interruption
from routelock.tools.tool import Tool

__all__ = [
    "MOST_CALLS",
    "NOT_TAKEN",
    "External",
    "OfferedTools",
    "Route",
    "RoutedCalls",
    "Wanted",
    "enabled_of",
    "offer_tools",
    "route",
    "unknown_tool",
]


MOST_CALLS = 1000
"""Of one reply, so many calls are looked at: a model that makes more has lost its way, or means harm."""

NOT_TAKEN = "Multiple handoffs detected, ignoring this one."

_REFUSED = "Several transfers were asked for at once, so none was made. Ask for exactly one."

_LONGEST_LIST = 400

_SHOWN_NAME = 64

_EXPLAINED = 5


@dataclass(frozen=True, slots=True)
class External:
    """A tool that the caller of the run carries out."""

    name: str
    spec: ToolSpec


Route = Tool | Handoff | External


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """What a model is offered in one turn: the specs it is shown, and the routes behind their names."""

    specs: tuple[ToolSpec, ...]
    routes: dict[str, Route]
    fixed: bool
    """Whether nothing in it depends on the moment, so that the next turn may use it again."""
    handoffs: int
    """How many of the routes hand over."""
    disabled: dict[str, Route] = field(default_factory=lambda: {})
    """What the agent has and is not offered now, by name."""

    def with_disabled(self) -> OfferedTools:
        """Return the offer for calls that were made earlier: what was offered then may be disabled by now."""
        return replace(self, routes={**self.disabled, **self.routes}) if self.disabled else self


class Wanted(NamedTuple):
    """A transfer that somebody wants: the model with its call, or the tool that the call ran."""

    call: ToolCall
    edge: Handoff
    request: HandoffRequest | None = None
    """What the tool returned."""


@dataclass(slots=True)
class RoutedCalls:
    """What a reply's calls lead to, each in the order in which the model made them."""

    tools: list[tuple[ToolCall, Tool]] = field(default_factory=lambda: [])
    transfers: list[Wanted] = field(default_factory=lambda: [])
    unknown: list[ToolCall] = field(default_factory=lambda: [])
    external: list[ToolCall] = field(default_factory=lambda: [])
    """Those that the caller of the run answers, after the run has ended with them."""
    transfer: Wanted | None = None
    """The one to make."""
    skipped: list[tuple[Wanted, str]] = field(default_factory=lambda: [])
    """Transfers that are answered and not tried, with the answer."""
    unknown_targets: list[tuple[Wanted, str]] = field(default_factory=lambda: [])
    """What tools asked to hand over to and the run does not have, with the reason. Others may be tried."""
    declined: list[tuple[Wanted, str]] = field(default_factory=lambda: [])
    """Those that somebody did not approve, with the answer."""
    unavailable: list[tuple[Wanted, str]] = field(default_factory=lambda: [])
    """Those that were offered and are disabled by now, with the answer."""
    waiting: list[Interruption] = field(default_factory=lambda: [])
    """Calls that wait for somebody to approve them, and are not answered."""

    def choose(self, multiple: Literal["first", "reject"]) -> None:
        """Choose among the transfers, see ``RunConfig.multiple_handoffs``."""
        wanted = self.transfers
        if len(wanted) > 1 and multiple == "reject":
            self.transfer, self.skipped = None, [(one, _REFUSED) for one in wanted]
        elif wanted:
            self.transfer, self.skipped = wanted[0], [(one, NOT_TAKEN) for one in wanted[1:]]

    def skip_handoff(self, why: str) -> None:
        """Do not make the transfer after all."""
        if self.transfer is not None:
            self.skipped.insert(0, (self.transfer, why))
            self.transfer = None


async def offer_tools(
    agent: Agent[Any],
    context: RunContext[Any],
    graph: Mapping[str, Agent[Any]] | None = None,
    *,
    handler: str = "",
    external: Sequence[Tool | ToolSpec] = (),
) -> OfferedTools:
    """Return what is enabled and in scope: an agent's tools, then its handoffs, then the caller's tools.

    Each kind stands in its declared order.

    Args:
        agent: whose turn it is.
        context: the present moment.
        graph: where handoffs that name their target find out what it is for.
        handler: the handler in charge, to which there is no handoff.
        external: the caller's tools; they win over a tool of the agent with the same name.
    """
    callers = {
        tool_name(tool): External(tool_name(tool), _spec(tool)) for tool in external if _open(tool, context)
    }
    routes: dict[str, Route] = {}
    disabled: dict[str, Route] = {}
    specs: list[ToolSpec] = []
    there = [(name, route) for name, route in _declared(agent, handler, context) if name not in callers]
    enabled = await enabled_of([route for _, route in there], agent, context)
    for (name, route), is_enabled in zip(there, enabled, strict=True):
        if not is_enabled:
            disabled[name] = route
        else:
            routes[name] = route
            specs.append(route.spec if isinstance(route, Tool) else route.described(graph or {}).spec)
    specs += [each.spec for each in callers.values()]
    routes |= callers
    handoffs = sum(isinstance(route, Handoff) for route in routes.values())
    fixed = all(isinstance(route.is_enabled, bool) for _, route in there)
    return OfferedTools(tuple(specs), routes, fixed, handoffs, disabled)


def _declared(
    agent: Agent[Any], handler: str, context: RunContext[Any]
) -> Iterator[tuple[str, Tool | Handoff]]:
    """Yield an agent's tools and then its handoffs, by name, as far as the scopes of the run allow."""
    for name, route in [(t.name, t) for t in agent.all_tools] + [(e.tool_name, e) for e in agent.edges]:
        target = route.to_handler if isinstance(route, Handoff) else None
        closed = target and (target.name == handler or not agent.registered.opens(target, context.scopes))
        if _open(route, context) and not closed:
            yield name, route


def _open(route: object, context: RunContext[Any]) -> bool:
    return permits(getattr(route, "scope", None) or "all", context.scopes)


def _spec(tool: Tool | ToolSpec) -> ToolSpec:
    return tool.spec if isinstance(tool, Tool) else sendable(tool)


async def enabled_of(
    routes: Sequence[Tool | Handoff], agent: Agent[Any], context: RunContext[Any]
) -> list[bool]:
    """Return for each tool and handoff whether it is enabled now; functions are asked at the same time.

    Raises:
        CallbackError: one of them raised.
    """
    answers = [route.is_enabled for route in routes]
    asked = [place for place, answer in enumerate(answers) if not isinstance(answer, bool)]
    if not asked:
        return cast("list[bool]", answers)
    found = await ask_all([_is_enabled(routes[place], agent, context) for place in asked])
    for place, answer in zip(asked, found, strict=True):
        answers[place] = answer
    return cast("list[bool]", answers)


def _is_enabled(route: Tool | Handoff, agent: Agent[Any], context: RunContext[Any]) -> Question[bool]:
    what = f"tool {route.name!r}" if isinstance(route, Tool) else f"the handoff to {route.agent_name!r}"
    ask = partial(cast("Callable[..., Any]", route.is_enabled), context, agent)
    return Question(f"The is_enabled function of {what} of agent {agent.name!r}", ask, bool)


def route(
    calls: Sequence[ToolCall], offered: OfferedTools, multiple: Literal["first", "reject"]
) -> RoutedCalls:
    """Sort the calls of a reply by what they lead to; see ``RunConfig.multiple_handoffs``."""
    routed = RoutedCalls()
    for call in calls:
        match offered.routes.get(call["function"].get("name") or ""):
            case Handoff() as edge:
                routed.transfers.append(Wanted(call, edge))
            case Tool() as tool:
                routed.tools.append((call, tool))
            case External():
                routed.external.append(call)
            case None:
                routed.unknown.append(call)
    routed.choose(multiple)
    return routed


def unknown_tool(name: str, offered: OfferedTools, earlier: int = 0) -> str:
    """Return the answer to a call of something that was not offered; never longer than 800 characters.

    Args:
        name: what was called.
        offered: what there is.
        earlier: how many such calls of the same reply were answered before. To look for near names takes
            long, so from the sixth one on the answer is short.
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
