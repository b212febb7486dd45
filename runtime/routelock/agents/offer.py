"""The tools and handoffs that an agent offers its model in a turn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from routelock._concurrency import Question, ask_all
from routelock._sendable import sendable
from routelock.context import RunContext
from routelock.handlers.port import ToolSpec, tool_name, vendor_specs
from routelock.handoffs.handoff import Handoff
from routelock.scopes import permits
from routelock.tools.tool import Tool
from routelock.tools.vendor_tool import VendorTool

if TYPE_CHECKING:
    from routelock.agents.agent import Agent
    from routelock.agents.deferral import Deferral

__all__ = ["External", "OfferedTools", "Route", "enabled_of", "fixed_offer", "offer_tools", "with_more"]


@dataclass(frozen=True, slots=True)
class External:
    """A tool of the caller: a call of it ends the run, and the caller carries it out."""

    name: str
    spec: ToolSpec
    origin: str | None = None
    """See ``Tool.origin``."""


Route = Tool | Handoff | External


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools that a model is offered in one turn: their specs, and the route behind each name."""

    specs: tuple[ToolSpec, ...]
    routes: dict[str, Route]
    fixed: bool
    """Whether the next turn may use the same offer, because no ``is_enabled`` is a function."""
    handoffs: int
    """The number of handoffs among the routes."""
    disabled: dict[str, Route] = field(default_factory=lambda: {})
    """The agent's tools and handoffs that are disabled now, by name."""
    vendor: frozenset[str] = frozenset()
    """The names of the vendor's own tools, whose specs stand last; the run answers no call of them."""
    deferral: Deferral | None = None
    """The tools that the model has to find first; None if there are none."""
    scopes: Collection[str] = ()
    """The scopes of the run."""

    def with_disabled(self) -> OfferedTools:
        """Return the tools for earlier calls: a tool that is disabled now may have been offered then."""
        return replace(self, routes={**self.disabled, **self.routes}) if self.disabled else self


async def offer_tools(
    agent: Agent[Any],
    context: RunContext[Any],
    graph: Mapping[str, Agent[Any]] | None = None,
    *,
    handler: str = "",
    external: Sequence[Tool | ToolSpec] = (),
    deferral: Deferral | None = None,
) -> OfferedTools:
    """Return the tools that are enabled and in scope.

    The agent's own tools come first, then its handoffs, the caller's tools, and the tools that the vendor
    runs.

    Each kind is in its declared order. Deferred tools are left out, and the tool that finds them stands last.

    Args:
        agent: the active agent.
        context: the context of this turn.
        graph: the agents of the run; a handoff that names its target takes the description from it.
        handler: the active handler, to which no handoff is offered.
        external: the caller's tools; they win over a tool of the agent with the same name.
        deferral: the tools to leave out; None if there are none.
    """
    scopes = context.scopes
    callers = {
        tool_name(tool): External(tool_name(tool), _spec(tool)) for tool in external if _is_open(tool, scopes)
    }
    declared = [(name, route) for name, route in _declared(agent, handler, scopes) if name not in callers]
    if deferral is not None:
        declared = [(name, route) for name, route in declared if name not in deferral.routes]
        callers = {name: route for name, route in callers.items() if name not in deferral.routes}
    of_vendor = _vendor_tools(agent, scopes)
    enabled = await enabled_of([*(route for _, route in declared), *of_vendor], agent, context)
    return _with_search(_offered(declared, enabled, graph or {}, callers, of_vendor), deferral, scopes)


def fixed_offer(agent: Agent[Any], handler: str) -> OfferedTools | None:
    """Return the offer of every run without scopes and external tools; None if it depends on the run.

    Args:
        agent: the agent.
        handler: the active handler, to which no handoff is offered.
    """
    declared, of_vendor = [*_declared(agent, handler, ())], _vendor_tools(agent, ())
    if (deferral := agent.deferrals.own) is not None:
        declared = [(name, route) for name, route in declared if name not in deferral.routes]
    answers = [each.is_enabled for each in (*(route for _, route in declared), *of_vendor)]
    enabled = [answer for answer in answers if isinstance(answer, bool)]
    # only the run knows the description of a target that is given by its name
    by_name = any(isinstance(handoff.target, str) for handoff in agent.all_handoffs)
    if by_name or len(enabled) < len(answers):
        return None
    return _with_search(_offered(declared, enabled, {}, {}, of_vendor), deferral, ())


def _with_search(offered: OfferedTools, deferral: Deferral | None, scopes: Collection[str]) -> OfferedTools:
    """Return an offer with the tool that finds deferred tools; the same offer if none is deferred."""
    if deferral is None:
        return offered
    if deferral.tool is None:
        return replace(offered, deferral=deferral, scopes=scopes)
    specs = with_more(offered.specs, [deferral.tool.spec])
    routes = {**offered.routes, deferral.tool.name: deferral.tool}
    return replace(offered, specs=specs, routes=routes, deferral=deferral, scopes=scopes)


def with_more(specs: Sequence[ToolSpec], more: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Return specs with more functions behind the others, and in front of the tools that the vendor runs."""
    count = len(specs) - len(vendor_specs(specs))
    return (*specs[:count], *more, *specs[count:])


def _offered(
    declared: Sequence[tuple[str, Tool | Handoff]],
    enabled: Sequence[bool],
    graph: Mapping[str, Agent[Any]],
    callers: Mapping[str, External],
    of_vendor: Sequence[VendorTool],
) -> OfferedTools:
    routes: dict[str, Route] = {}
    disabled: dict[str, Route] = {}
    specs: list[ToolSpec] = []
    for (name, route), is_enabled in zip(declared, enabled, strict=False):
        if not is_enabled:
            disabled[name] = route
        else:
            routes[name] = route
            specs.append(route.spec if isinstance(route, Tool) else route.described(graph).spec)
    specs += [each.spec for each in callers.values()]
    routes |= callers
    handoffs = sum(isinstance(route, Handoff) for route in routes.values())
    fixed = all(isinstance(each.is_enabled, bool) for each in (*(one for _, one in declared), *of_vendor))
    enabled_of_vendor = [each for each, on in zip(of_vendor, enabled[len(declared) :], strict=True) if on]
    specs += [each.spec for each in enabled_of_vendor]
    vendor = frozenset([each.name for each in enabled_of_vendor])
    return OfferedTools(tuple(specs), routes, fixed, handoffs, disabled, vendor)


def _vendor_tools(agent: Agent[Any], scopes: Collection[str]) -> list[VendorTool]:
    """Return the agent's tools that the vendor runs, as far as the scopes of the run allow."""
    return [each for each in agent.tools if isinstance(each, VendorTool) and _is_open(each, scopes)]


def _declared(
    agent: Agent[Any], handler: str, scopes: Collection[str]
) -> Iterator[tuple[str, Tool | Handoff]]:
    """Yield an agent's tools and then its handoffs, by name, as far as the scopes of the run allow."""
    named = [(h.tool_name, h) for h in agent.all_handoffs]
    for name, route in [(t.name, t) for t in agent.all_tools] + named:
        target = route.to_handler if isinstance(route, Handoff) else None
        closed = target and (target.name == handler or not agent.registered.opens(target, scopes))
        if _is_open(route, scopes) and not closed:
            yield name, route


def _is_open(route: object, scopes: Collection[str]) -> bool:
    return permits(getattr(route, "scope", None) or "all", scopes)


def _spec(tool: Tool | ToolSpec) -> ToolSpec:
    return tool.spec if isinstance(tool, Tool) else sendable(tool)


async def enabled_of(
    routes: Sequence[Tool | Handoff | VendorTool], agent: Agent[Any], context: RunContext[Any]
) -> list[bool]:
    """Return for each tool and handoff whether it is enabled now; functions are called at the same time.

    Raises:
        CallbackError: an ``is_enabled`` function raised.
    """
    answers = [route.is_enabled for route in routes]
    asked = [place for place, answer in enumerate(answers) if not isinstance(answer, bool)]
    if not asked:
        return cast("list[bool]", answers)
    found = await ask_all([_is_enabled(routes[place], agent, context) for place in asked])
    for place, answer in zip(asked, found, strict=True):
        answers[place] = answer
    return cast("list[bool]", answers)


def _is_enabled(
    route: Tool | Handoff | VendorTool, agent: Agent[Any], context: RunContext[Any]
) -> Question[bool]:
    what = f"the handoff to {route.agent_name!r}" if isinstance(route, Handoff) else f"tool {route.name!r}"
    ask = partial(cast("Callable[..., Any]", route.is_enabled), context, agent)
    return Question(f"The is_enabled function of {what} of agent {agent.name!r}", ask, bool)
