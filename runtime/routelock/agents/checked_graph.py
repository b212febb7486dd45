"""The agents of a run by name, each checked before the run begins."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from routelock.agents.agent_problems import check_model, combine_errors, duplicate_name_error
from routelock.agents.agent_tool import AgentCall
from routelock.agents.registry import collect, collect_errors
from routelock.errors import ConfigError
from routelock.handlers.port import ToolSpec, is_handler, tool_name
from routelock.tools.search import ToolSearch
from routelock.tools.tool import Tool

if TYPE_CHECKING:
    from routelock.agents.agent import Agent

__all__ = ["agent_tools", "checked_graph", "connected", "find_agent", "reachable"]


def checked_graph(
    agent: Agent[Any],
    model: object = None,
    others: Iterable[Agent[Any]] = (),
    external: Sequence[Tool | ToolSpec] = (),
    search: ToolSearch | None = None,
) -> dict[str, Agent[Any]]:
    """Return every agent of a run by name, after a check of each.

    Agents that are called as tools are checked as well. They are not in the graph, because they have runs of
    their own.

    Args:
        agent: the first agent of the run.
        model: the model of the run; None for those of the agents.
        others: more agents of the run.
        external: the tools of the caller.
        search: how the run defers tools.

    Raises:
        ConfigError: two agents have the same name, an agent has no model, a handoff names an unknown agent,
            or a tool is named like a handoff or like the tool that searches. One message lists all problems.
    """
    wrong: list[ConfigError] = []
    graph: dict[str, Agent[Any]] = {}
    taken = {tool_name(each) for each in external}
    unknown: set[tuple[str, str]] = set()
    roots = [(agent, model, others)]
    for root, model_of_run, others_of_run in roots:
        found, same_names = _connected(root, others_of_run)
        wrong += same_names
        graph = graph or found
        for member in found.values():
            with collect_errors(wrong):
                check_model(member, model_of_run)
            _check_handoffs(member, found, taken if found is graph else (), wrong, unknown)
            if search is not None or external:
                callers = external if found is graph else ()
                with collect_errors(wrong):
                    member.deferrals.of(member.tool_search or search, callers)
            for _, call in agent_tools(member):
                settings = call.settings
                own = settings.get("model", model_of_run), settings.get("agents", others_of_run)
                roots += [(call.agent, *own)] if (call.agent, *own) not in roots else []
            if member.compact is not None and (writer := member.compact.agent) is not None:
                inner = writer, model_of_run, others_of_run
                roots += [inner] if inner not in roots else []
    if wrong:
        raise combine_errors(wrong)
    return graph


def agent_tools(agent: Agent[Any]) -> list[tuple[str, AgentCall]]:
    """Return the tools of an agent that call other agents: the name of each, and its call."""
    tools = [(tool.name, tool.on_invoke_tool) for tool in agent.all_tools]
    return [(name, call) for name, call in tools if isinstance(call, AgentCall)]


def _check_handoffs(
    member: Agent[Any],
    graph: Mapping[str, Agent[Any]],
    taken: Collection[str],
    wrong: list[ConfigError],
    unknown: set[tuple[str, str]],
) -> None:
    """Add what is wrong with the handoffs of an agent; an unknown name counts once, also in two graphs."""
    for handoff in member.all_handoffs:
        names = [target for target in (handoff.target, *handoff.others) if isinstance(target, str)]
        new = [name for name in names if (member.name, name) not in unknown]
        unknown.update((member.name, name) for name in new if name not in graph)
        collect(wrong, lambda name: find_agent(graph, name, member.name), new)
        if handoff.tool_name in taken:
            wrong.append(
                ConfigError(
                    f"The external tool {handoff.tool_name!r} is named like a handoff of agent "
                    f"{member.name!r}; give it another name."
                )
            )


def connected(agent: Agent[Any], others: Iterable[Agent[Any]] = ()) -> dict[str, Agent[Any]]:
    """Return all agents that a run can reach by handoffs, by name; the nearest first.

    Args:
        agent: the first agent of the run.
        others: more agents of the run, see ``RunConfig.agents``.

    Raises:
        ConfigError: two agents have one name.
    """
    graph, same_names = _connected(agent, others)
    if same_names:
        raise combine_errors(same_names)
    return graph


def _connected(
    agent: Agent[Any], others: Iterable[Agent[Any]]
) -> tuple[dict[str, Agent[Any]], list[ConfigError]]:
    """Return the agents of `connected`, and an error for each name that two of them have."""
    graph: dict[str, Agent[Any]] = {}
    twice: dict[str, None] = {}
    for one in (agent, *others):
        try:
            found = one.graph
        except ConfigError:
            found, within = reachable(one)
            twice |= within
        twice |= {name: None for name, other in found.items() if graph.setdefault(name, other) is not other}
    return graph, [duplicate_name_error(name) for name in twice]


def reachable(agent: Agent[Any]) -> tuple[dict[str, Agent[Any]], dict[str, None]]:
    """Return the agents that are reachable through agent objects, and the names that two of them have.

    Of two agents with one name, the nearest one is returned.
    """
    found: dict[str, Agent[Any]] = {}
    twice: dict[str, None] = {}
    waiting = deque([agent])
    while waiting:
        one = waiting.popleft()
        if found.setdefault(one.name, one) is one:
            targets: list[Any] = [end for each in one.all_handoffs for end in (each.target, *each.others)]
            waiting += [
                each
                for each in targets
                if not (each is None or isinstance(each, str) or is_handler(each))
                if each is not found.get(each.name)
            ]
        else:
            twice[one.name] = None
    return found, twice


def find_agent(graph: Mapping[str, Agent[Any]], name: str, wanted_by: str) -> Agent[Any]:
    """Return the agent with a name in the run's graph.

    Raises:
        ConfigError: there is no such agent; the message lists the names.
    """
    try:
        return graph[name]
    except KeyError:
        known = ", ".join(sorted(graph.keys() - {wanted_by})) or "none"
        raise ConfigError(
            f"Agent {wanted_by!r} hands off to {name!r}, which is no agent of this run. Known: {known}. "
            "Put the agent itself into handoffs, or add it to RunConfig(agents=[...])."
        ) from None
