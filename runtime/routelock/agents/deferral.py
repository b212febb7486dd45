"""The deferred tools of an agent, the tool that finds them, and the offer of the tools that were found."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from routelock._sendable import sendable
from routelock.agents.offer import External, OfferedTools, enabled_of, with_more
from routelock.context import RunContext, ToolContext
from routelock.errors import ConfigError
from routelock.handlers.port import ToolSpec, tool_name
from routelock.history.messages import RunItem, calls_of, text_of
from routelock.scopes import permits
from routelock.tools.search import (
    DEFAULT_SEARCH,
    Catalogue,
    SearchedTool,
    ToolSearch,
    found_names,
    search_tool,
    searched,
)
from routelock.tools.tool import Tool

if TYPE_CHECKING:
    from routelock.agents.agent import Agent

__all__ = ["VENDOR_SEARCH", "Deferral", "Deferrals", "FoundTools", "offer_found", "offer_to_vendor"]


VENDOR_SEARCH = "tool_search"
"""The type of the spec that asks for the vendor's own search."""


@dataclass(frozen=True, slots=True, eq=False)
class Deferral:
    """The deferred tools of an agent, and the tool that finds them."""

    routes: Mapping[str, Tool | External]
    """The deferred tools by name."""
    catalogue: Catalogue
    tool: Tool | None
    """The tool that searches; None if the vendor does."""

    def route(self, name: str, scopes: Collection[str]) -> Tool | External | None:
        """Return the route of a call; None if there is no such tool, or the scopes do not permit it."""
        route = self.routes.get(name)
        return None if route is None or not _is_open(route, scopes) else route


class Deferrals:
    """The deferrals of an agent, by the settings of its runs.

    The index of the tools is built once: runs with settings of their own do not build another one.

    Args:
        agent: the agent.
    """

    def __init__(self, agent: Agent[Any]) -> None:
        self._agent = agent
        self._catalogues: dict[bool, Catalogue] = {}
        """The catalogues by whether all tools are deferred, or only those with ``deferred=True``."""
        self.own: Deferral | None = None
        """The deferral of the agent's own settings; None if it defers nothing."""
        if agent.tool_search is not None or any(tool.deferred for tool in agent.all_tools):
            self.own = self.of(agent.tool_search)

    def of(self, search: ToolSearch | None, external: Sequence[Tool | ToolSpec] = ()) -> Deferral | None:
        """Return the deferral of a run; None if nothing is deferred.

        Args:
            search: the settings; None defers only tools with ``deferred=True``.
            external: the caller's tools; they win over a tool of the agent with the same name.

        Raises:
            ConfigError: a tool or a handoff is named like the tool that searches.
        """
        agent, settings = self._agent, search or DEFAULT_SEARCH
        routes = _deferred(agent, settings, external)
        if not routes:
            return None
        taken = [each.name for each in agent.all_tools] + [each.tool_name for each in agent.all_handoffs]
        if settings.by == "routelock" and settings.name in (*taken, *map(tool_name, external)):
            raise ConfigError(
                f"Agent {agent.name!r}: a tool or handoff is named {settings.name!r}, like the tool that "
                "searches for deferred tools. Rename it, or give that tool another name: "
                "tool_search=ToolSearch(name='find_tools')."
            )
        if external:
            catalogue = Catalogue(map(_searched, routes.values()))
        else:
            defers_all = settings.defers(None, len(agent.all_tools))
            made = self._catalogues.get(defers_all) or Catalogue(map(_searched, routes.values()))
            catalogue = self._catalogues.setdefault(defers_all, made)
        by_vendor = settings.by == "vendor"
        tool = None if by_vendor else _search_tool(agent, settings, routes, catalogue)
        return Deferral(routes, catalogue, tool)


def _deferred(
    agent: Agent[Any], settings: ToolSearch, external: Sequence[Tool | ToolSpec]
) -> Mapping[str, Tool | External]:
    """Return the deferred tools of an agent and of the caller."""
    callers = {tool_name(each): each for each in external}
    own = [each for each in agent.all_tools if each.name not in callers]
    count = len(own) + len(callers)
    routes: dict[str, Tool | External] = {
        each.name: each for each in own if settings.defers(each.deferred, count)
    }
    for name, each in callers.items():
        if isinstance(each, Tool) and settings.defers(each.deferred, count):
            routes[name] = External(name, each.spec, each.origin)
        elif not isinstance(each, Tool) and settings.defers(None, count):
            routes[name] = External(name, sendable(each))
    return routes


def _searched(route: Tool | External) -> SearchedTool:
    return searched(route.spec, route.origin)


def _search_tool(
    agent: Agent[Any], settings: ToolSearch, routes: Mapping[str, Tool | External], catalogue: Catalogue
) -> Tool:
    def open_names(context: ToolContext[Any]) -> Collection[str]:
        return {name for name, route in routes.items() if _is_open(route, context.scopes)}

    async def enabled(context: ToolContext[Any], names: Sequence[str]) -> Sequence[bool]:
        return await _enabled([routes[name] for name in names], agent, context)

    public = [
        name
        for name, route in routes.items()
        if _is_open(route, ()) and (isinstance(route, External) or route.is_enabled is True)
    ]
    return search_tool(settings, catalogue, public, open_names, enabled)


class FoundTools:
    """The tools that were found or called in a run, in the order of finding. It reads each item once.

    The transcript is the only record of the found tools. So a run that is resumed or replayed offers the same
    tools, and so does the next run of a session, even if a view leaves messages out.
    """

    __slots__ = ("_count", "_found", "_searches", "deferrals")

    def __init__(self) -> None:
        self.deferrals: dict[str, Deferral | None] = {}
        """The deferred tools of each agent, where they depend on the settings of the run."""
        self._count = 0
        """How many items were read."""
        self._found: dict[tuple[str | None, str], None] = {}
        """The agent and the name of each tool; None stands for all agents."""
        self._searches: dict[str, str | None] = {}
        """The agent of each search that is not answered yet, by the id of its call."""

    def read(self, items: Sequence[RunItem], searches: Collection[str]) -> None:
        """Read the items that are new.

        Args:
            items: the transcript.
            searches: the names of the tools that search.
        """
        for item in items[self._count :]:
            for call in calls_of(item.message):
                name = call["function"].get("name") or ""
                if name in searches:
                    self._searches[call.get("id") or ""] = item.agent
                else:
                    # an agent is shown the calls that others make, so it may make them, too
                    self._found[None, name] = None
            answered = item.message.get("tool_call_id")
            if answered is not None and answered in self._searches:
                agent = self._searches.pop(answered)
                self._found |= dict.fromkeys((agent, name) for name in found_names(text_of(item.message)))
        self._count = len(items)

    def names(self, agent: str) -> list[str]:
        """Return the names of the tools that an agent has found, or that were called, oldest first."""
        return [*dict.fromkeys(name for finder, name in self._found if finder in (agent, None))]


async def offer_found(
    offered: OfferedTools, names: Iterable[str], agent: Agent[Any], context: RunContext[Any]
) -> OfferedTools:
    """Return an offer with the found tools added at its end, in the order of ``names``.

    So the beginning of the prompt stays the same, and vendors can cache it.

    Args:
        offered: the offer without them.
        names: the found tools; those that are not deferred, out of scope or not enabled are left out.
        agent: the active agent.
        context: the context of this turn.
    """
    deferral = offered.deferral
    assert deferral is not None
    routes = {name: each for name in names if (each := deferral.route(name, context.scopes)) is not None}
    if not routes:
        return offered
    answers = await _enabled([*routes.values()], agent, context)
    found: dict[str, Tool | External] = {}
    disabled: dict[str, Tool | External] = {}
    for (name, route), is_enabled in zip(routes.items(), answers, strict=True):
        (found if is_enabled else disabled)[name] = route
    return replace(
        offered,
        specs=with_more(offered.specs, [route.spec for route in found.values()]),
        routes={**offered.routes, **found},
        disabled={**offered.disabled, **disabled},
        fixed=offered.fixed and all(map(_is_fixed, routes.values())),
    )


async def offer_to_vendor(offered: OfferedTools, agent: Agent[Any], context: RunContext[Any]) -> OfferedTools:
    """Return an offer with all deferred tools that are open and enabled, for the search of the vendor.

    The last spec of the offer holds all of them; a provider spells it for its vendor. If there are none, the
    spec is left out, because OpenAI refuses a search without tools.

    Args:
        offered: the offer without them.
        agent: the active agent.
        context: the context of this turn.
    """
    deferral = offered.deferral
    assert deferral is not None
    names = [name for name in deferral.routes if name not in offered.routes]
    routes = [each for name in names if (each := deferral.route(name, context.scopes)) is not None]
    answers = await _enabled(routes, agent, context)
    specs = [route.spec for route, is_enabled in zip(routes, answers, strict=True) if is_enabled]
    fixed = offered.fixed and all(map(_is_fixed, routes))
    if not specs:
        return replace(offered, fixed=fixed)
    return replace(
        offered,
        specs=(*offered.specs, {"type": VENDOR_SEARCH, "tools": specs}),
        vendor=offered.vendor | {VENDOR_SEARCH},
        fixed=fixed,
    )


def _is_fixed(route: Tool | External) -> bool:
    return isinstance(route, External) or isinstance(route.is_enabled, bool)


async def _enabled(
    routes: Sequence[Tool | External], agent: Agent[Any], context: RunContext[Any]
) -> Sequence[bool]:
    """Return for each tool whether it is enabled now; the caller's tools always are."""
    own = [route for route in routes if isinstance(route, Tool)]
    answers = iter(await enabled_of(own, agent, context))
    return [next(answers) if isinstance(route, Tool) else True for route in routes]


def _is_open(route: Tool | External, scopes: Collection[str]) -> bool:
    return isinstance(route, External) or permits(route.scope, scopes)
