"""Which names the model may call in a turn, and what each of its calls leads to.

Routing is a lookup of the call's name among exactly what was offered in that very turn. Text is never
searched for markers, and a name that was not offered is answered, never guessed (design, section 5).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from interlock.agents import Agent, Handoff
from interlock.callables import resolve, users_code
from interlock.context import RunContext
from interlock.messages import ToolCall
from interlock.port import ToolSpec
from interlock.schema import clip
from interlock.tools import Tool

__all__ = ["NOT_TAKEN", "Offer", "Plan", "Route", "offer", "plan", "unknown_tool"]

NOT_TAKEN = "Multiple handoffs detected, ignoring this one."
_REFUSED = "Several transfers were asked for at once, so none was made. Ask for exactly one."
_LONGEST_LIST = 400
_SHOWN_NAME = 64

Route = Tool | Handoff


@dataclass(frozen=True, slots=True)
class Offer:
    """What a model is offered in one turn: the specs it is shown, and the routes behind their names."""

    specs: tuple[ToolSpec, ...]
    routes: dict[str, Route]
    fixed: bool
    """Whether nothing in it depends on the moment, so that the next turn may use it again."""


@dataclass(slots=True)
class Plan:
    """What a reply's calls lead to, each in the order in which the model made them."""

    tools: list[tuple[ToolCall, Tool]]
    transfer: tuple[ToolCall, Handoff] | None
    not_taken: list[tuple[ToolCall, Handoff, str]]
    """Transfers that are answered and not tried, with the answer."""
    unknown: list[ToolCall]


async def offer(
    agent: Agent[Any], context: RunContext[Any], graph: Mapping[str, Agent[Any]] | None = None
) -> Offer:
    """Return the enabled tools and then the enabled handoffs of an agent, in their declared order.

    ``graph`` is where handoffs that name their target find out what it is for.
    """
    routes: dict[str, Route] = {}
    specs: list[ToolSpec] = []
    fixed = True
    for name, route in [(t.name, t) for t in agent.tools] + [(e.tool_name, e) for e in agent.edges]:
        fixed = fixed and isinstance(route.is_enabled, bool)
        if await _enabled(route, agent, context):
            routes[name] = route
            specs.append(route.spec if isinstance(route, Tool) else route.described(graph or {}).spec)
    return Offer(tuple(specs), routes, fixed)


async def _enabled(route: Route, agent: Agent[Any], context: RunContext[Any]) -> bool:
    asked = route.is_enabled
    if isinstance(asked, bool):
        return asked
    what = f"tool {route.name!r}" if isinstance(route, Tool) else f"the handoff to {route.agent_name!r}"
    with users_code(f"The is_enabled function of {what} of agent {agent.name!r}"):
        return bool(await resolve(asked(context, agent)))


def plan(calls: Sequence[ToolCall], offered: Offer, multiple: Literal["first", "reject"]) -> Plan:
    """Sort the calls of a reply by what they lead to; see ``RunConfig.multiple_handoffs``."""
    planned = Plan([], None, [], [])
    transfers: list[tuple[ToolCall, Handoff]] = []
    for call in calls:
        route = offered.routes.get(call["function"].get("name") or "")
        if isinstance(route, Handoff):
            transfers.append((call, route))
        elif route is None:
            planned.unknown.append(call)
        else:
            planned.tools.append((call, route))
    if len(transfers) > 1 and multiple == "reject":
        planned.not_taken = [(call, edge, _REFUSED) for call, edge in transfers]
    elif transfers:
        planned.transfer = transfers[0]
        planned.not_taken = [(call, edge, NOT_TAKEN) for call, edge in transfers[1:]]
    return planned


def unknown_tool(name: str, offered: Offer) -> str:
    """Return the answer to a call of something that was not offered; never longer than 800 characters."""
    names = list(offered.routes)
    known = ", ".join(names)
    if len(known) > _LONGEST_LIST:
        known = known[:_LONGEST_LIST].rsplit(",", 1)[0] + ", ..."
    near = difflib.get_close_matches(name[:_SHOWN_NAME], names, n=1)
    shown = repr(name if len(name) <= _SHOWN_NAME else name[:_SHOWN_NAME] + "...")
    available = f"Available tools: {known}." if names else "No tools are available; answer in words."
    guess = f" Did you mean {near[0]!r}?" if near else ""
    return f"There is no tool named {clip(shown, 3 * _SHOWN_NAME)}. {available}{guess}"
