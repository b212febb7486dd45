"""What commands that run agents have in common: which agent, under which settings."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Any

from routelock.agents.agent import Agent
from routelock.commands.loading import load_agents, load_object
from routelock.commands.waiting import Waiting
from routelock.errors import ConfigError
from routelock.run.config import RunConfig, listed
from routelock.run.handler_selection import lineup
from routelock.run.start import DEFAULT_MAX_TURNS
from routelock_providers.litellm.library import load_litellm

__all__ = [
    "CONFIG",
    "RunOptions",
    "declare_agent",
    "declare_run",
    "declare_trace",
    "needs_litellm",
    "port",
    "ready_litellm",
    "run_options",
    "the_agent",
    "the_config",
]

_SPEC = "an agent, a list of agents, or a function that returns them; in the current directory or installed"
_CONTEXT = "what tools and instructions are given; a function is called for it"
CONFIG = "a RunConfig with all other settings"
_LAST_PORT = 65535
_TURNS = "model calls (default: %(default)s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Who answers, and how."""

    agent: Agent[Any]
    config: RunConfig
    context: Any
    max_turns: int


def declare_agent(command: argparse.ArgumentParser) -> None:
    """Add ``module:agent``, and which of several it is."""
    add = command.add_argument
    add("spec", metavar="module:agent", help=_SPEC)
    add("--agent", metavar="NAME", help="the one that begins, if there are several (default: the first)")


def declare_run(command: argparse.ArgumentParser) -> None:
    """Add what a run can be given."""
    add = command.add_argument_group("the run").add_argument
    add("--model", metavar="MODEL", help="answers for all agents, such as openai/gpt-4o-mini")
    add("--max-turns", type=int, default=DEFAULT_MAX_TURNS, metavar="N", help=_TURNS)
    add("--context", metavar="module:object", help=_CONTEXT)
    add("--config", metavar="module:object", help=CONFIG)


def declare_trace(command: argparse.ArgumentParser) -> None:
    """Add the file that a run is written into."""
    about = "write all that happens into a file, see routelock trace"
    command.add_argument("--trace", metavar="FILE", dest="trace_to", help=about)


def port(text: str) -> int:
    """Return the number of a port.

    Raises:
        ArgumentTypeError: there is no such port.
    """
    if not text.isdecimal() or int(text) > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: it is a number from 0 to {_LAST_PORT}")
    return int(text)


def the_agent(given: argparse.Namespace) -> Agent[Any]:
    """Return the agent that begins.

    Raises:
        ConfigError: there is none, or none of that name.
    """
    return _found(given)[0]


def _found(given: argparse.Namespace) -> tuple[Agent[Any], Agent[Any]]:
    """Return the agent that begins, and the one through which it was found: its graph has them both."""
    with Waiting(f"loading {given.spec}"):
        agents = load_agents(given.spec)
    if given.agent is None:
        return agents[0], agents[0]
    known = {name: (agent, one) for one in reversed(agents) for name, agent in one.graph.items()}
    if given.agent not in known:
        raise ConfigError(f"There is no agent {given.agent!r} in {given.spec}. Known: {', '.join(known)}.")
    return known[given.agent]


def the_config(given: argparse.Namespace) -> RunConfig:
    """Return what ``--config`` stands for.

    Raises:
        ConfigError: there is no such thing, or it is no `RunConfig`.
    """
    config = RunConfig() if given.config is None else load_object(given.config, "app:config")
    if not isinstance(config, RunConfig):
        raise ConfigError(f"--config {given.config} must be a RunConfig, not {config!r:.80}.")
    return config


def run_options(given: argparse.Namespace) -> RunOptions:
    """Return what the arguments of `declare_agent` and `declare_run` ask for.

    Raises:
        ConfigError: something is not there, or is not what it should be.
    """
    agent, root = _found(given)
    config = the_config(given)
    if given.model is not None:
        config = replace(config, model=given.model)
    if (trace_to := getattr(given, "trace_to", None)) is not None:
        config = replace(config, trace=[*listed(config.trace), trace_to])
    if given.max_turns < 1:
        raise ConfigError(f"--max-turns must be at least 1, not {given.max_turns}.")
    return RunOptions(
        agent=agent,
        config=replace(config, agents=(*config.agents, agent, root)),  # who begins may name the root
        context=None if given.context is None else load_object(given.context, "app:shop"),
        max_turns=given.max_turns,
    )


def needs_litellm(options: RunOptions) -> bool:
    """Whether a model is given as a string, so that litellm answers for it."""
    graphs = (one.graph.values() for one in (options.agent, *options.config.agents))
    members = (member for graph in graphs for member in graph)
    return any(isinstance(each.handler, str) for member in members for each in lineup(member, options.config))


def ready_litellm(options: RunOptions) -> None:
    """Load litellm if a run will need it, which takes seconds, and say so."""
    if needs_litellm(options):
        with Waiting("loading litellm, once"):
            load_litellm()
