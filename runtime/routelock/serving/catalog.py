"""The agents that an app serves, each under its name as a model id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from routelock._tool_names import transfer_tool_name
from routelock.agents.agent import Agent
from routelock.errors import ConfigError
from routelock.handlers.port import ToolSpec, tool_name
from routelock.handoffs.handoff_problems import is_list
from routelock.run.config import RunConfig
from routelock.run.start import run_graph
from routelock.serving.auth import AccessControl
from routelock.serving.completions import DeltaWriter
from routelock.serving.config import ServeConfig
from routelock.serving.errors import Refusal

__all__ = ["Catalog", "ServedAgent", "ServedApp", "app_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAgent:
    """An agent, and the facts about its graph that serving needs."""

    agent: Agent[Any]
    graph: Mapping[str, Agent[Any]]
    has_output_type: bool
    """Whether any agent of the graph has an output type."""
    run_config: RunConfig
    """The settings of its runs; a request may add to them."""
    taken: frozenset[str]
    """The names of the graph's tools and handoffs, including those that some callers are not offered."""
    transfers: frozenset[str]
    """The names of the handoffs among them."""

    def writer(self, *, json_only: bool = False) -> DeltaWriter:
        """Return a writer for the deltas of a run.

        Args:
            json_only: whether the client asked for JSON, so that only the last reply is sent.
        """
        return DeltaWriter(
            agents=self.graph.keys(), hold=self.has_output_type or json_only, json_only=json_only
        )

    def check_tools(self, tools: Sequence[ToolSpec], *, allowed: bool) -> None:
        """Refuse tools of a client if none are allowed, or if one has the name of a tool of the server.

        Raises:
            Refusal: 400.
        """
        if tools and not allowed:
            why = "This server does not accept tools of its clients. Send the request without tools."
            raise Refusal(400, why, "client_tools_not_allowed", "tools")
        for place, tool in enumerate(tools):
            if (name := tool["function"]["name"]) in self.taken:
                raise Refusal(
                    400,
                    f"Tool {name!r} has the name of a tool or handoff of this agent; give it another name.",
                    "invalid_request",
                    f"tools[{place}].function.name",
                )


class Catalog:
    """The agents of an app, by name. The first one is the default.

    Args:
        agents: one or more agents. They may hand off to each other.
        config: the settings of their runs.

    Raises:
        ConfigError: there is no agent, two have the same name, or one cannot run.
    """

    def __init__(self, agents: Agent[Any] | Sequence[Agent[Any]], config: RunConfig) -> None:
        several = cast("Sequence[Agent[Any]]", agents if is_list(agents) else (agents,))
        listed = tuple(several)
        wrong = [each for each in listed if not isinstance(cast(object, each), Agent)]
        if wrong or not listed:
            given = f"not {wrong[0]!r:.80}" if wrong else "and the list is empty"
            raise ConfigError(f"An app serves a routelock.Agent or a list of them, {given}.")
        self._served = {agent.name: _served(agent, config) for agent in listed}
        if len(self._served) < len(listed):
            raise ConfigError("Two served agents have the same name, and so the same model id; rename one.")
        self._default = self._served[listed[0].name]

    @property
    def names(self) -> list[str]:
        """The model ids, the default first."""
        return list(self._served)

    def find(self, model: str) -> ServedAgent:
        """Return an agent by its name; for an empty name or "default", the first agent.

        Raises:
            Refusal: 404.
        """
        if model in self._served:
            return self._served[model]
        if model in ("", "default"):
            return self._default
        known = ", ".join(repr(name) for name in self._served)
        raise Refusal(
            404, f"There is no model {model[:100]!r} here. Available: {known}.", "model_not_found", "model"
        )

    def at(self, path: str) -> ServedAgent:
        """Return the agent at the end of a URL's path, where some clients add a slash.

        Raises:
            Refusal: 404.
        """
        while path.endswith("/") and path not in self._served:
            path = path[:-1]
        return self.find(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedApp:
    """The parts of an app that all its protocols share."""

    catalog: Catalog
    """The served agents."""
    config: ServeConfig
    """The keys, limits and settings."""
    access: AccessControl
    """The checks of requests, and the number of runs at the same time."""


def app_of(agents: Agent[Any] | Sequence[Agent[Any]], config: ServeConfig) -> ServedApp:
    """Return the shared parts of an app that serves agents.

    Raises:
        ConfigError: the agents cannot be served.
    """
    return ServedApp(catalog=Catalog(agents, config.run_config), config=config, access=AccessControl(config))


def _served(agent: Agent[Any], config: RunConfig) -> ServedAgent:
    graph = run_graph(agent, config)
    handoffs = {handoff.tool_name for member in graph.values() for handoff in member.all_handoffs}
    tools = {tool_name(tool) for member in graph.values() for tool in member.all_tools}
    tools |= {tool_name(tool) for tool in config.external_tools}
    # an agent may have many tools only with those of a client
    searches = [each.tool_search or config.tool_search for each in graph.values()]
    tools |= {each.name for each in searches if each is not None}
    own = [each.deferrals.own for each in graph.values()]
    tools |= {each.tool.name for each in own if each is not None and each.tool is not None}
    handlers = {
        transfer_tool_name(each.name) for member in graph.values() for each in member.registered.handlers
    }
    return ServedAgent(
        agent=agent,
        graph=graph,
        # chunks that were sent cannot be taken back, and an engine finds a run by an id
        run_config=replace(config, run_id=None, executor=None, retry=replace(config.retry, mid_stream=False)),
        has_output_type=any(member.output is not None for member in graph.values()),
        taken=frozenset(handoffs | handlers | tools),
        transfers=frozenset(handoffs | handlers),
    )
