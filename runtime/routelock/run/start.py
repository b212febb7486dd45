"""Starts a run: checks its arguments, collects the graph of its agents, and makes the `Run`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import TypeIs

from routelock._copies import unshared
from routelock.agents.agent import Agent
from routelock.agents.agent_problems import combine_errors
from routelock.agents.checked_graph import checked_graph
from routelock.agents.hooks import RunHooks, are_hooks
from routelock.errors import ConfigError
from routelock.handlers.port import Handler
from routelock.handoffs.handoff import Handoff
from routelock.history.input import to_messages
from routelock.history.marked import item_of
from routelock.history.messages import Message, RunInput, RunItem, call_ids
from routelock.history.view import View
from routelock.run.config import RunConfig
from routelock.run.frames import Frame
from routelock.run.handler_selection import handler_for, handlers_by_priority, load, named
from routelock.run.run import Budget, HandoffLog, Run, SharedMemory, Transcript
from routelock.tools.tool import Tool

if TYPE_CHECKING:
    from routelock.run.store import RunStore
    from routelock.run.stream import RunHandle
    from routelock.sessions.session import Session
    from routelock.state.run_state import RunState

__all__ = [
    "DEFAULT_MAX_TURNS",
    "input_items",
    "is_state",
    "replace_input",
    "run_graph",
    "smaller",
    "start",
    "with_trace",
]


DEFAULT_MAX_TURNS = 10

N = TypeVar("N", int, float)

_DEFAULTS = RunConfig()


def start(
    agent: Agent[Any],
    input: RunInput | RunState,
    context: Any,
    max_turns: int | None,
    hooks: RunHooks | None,
    config: RunConfig | None,
    *,
    stream: bool,
    session: Session | None = None,
    handle: RunHandle | None = None,
) -> Run:
    """Return a new or restored run, after all checks that need no model call.

    Raises:
        ConfigError: an argument, a setting or an agent is wrong; the message lists all problems of agents.
    """
    _check_arguments(agent, max_turns, hooks, config)
    config, max_turns = _limited(config or _DEFAULTS, max_turns)
    if isinstance(input, str) or not is_state(input):
        run = _new_run(agent, input, context, max_turns, hooks, config, stream=stream)
    else:
        from routelock.state.resume import restore_run  # noqa: PLC0415

        run = restore_run(agent, input, context, max_turns, hooks, config, stream=stream)
    run = with_trace(run)
    if session is not None:
        run.store = _store_of(session, input)
    if handle is not None:
        if isinstance(handle, type) or not hasattr(handle, "hold"):
            raise ConfigError(f"handle must be a RunHandle of its own for each run, not {handle!r:.80}.")
        handle.hold(run)
    return run


def _new_run(
    agent: Agent[Any],
    input: RunInput,
    context: Any,
    max_turns: int | None,
    hooks: RunHooks | None,
    config: RunConfig,
    *,
    stream: bool,
) -> Run:
    items, known = _first_items(input)
    run_id = config.run_id or _random_id(config)
    return Run(
        first_agent=agent,
        graph=run_graph(agent, config),
        config=config,
        hooks=() if hooks is None else (hooks,),
        is_streamed=stream,
        context=context,
        run_id=run_id,
        scopes=frozenset(config.scopes),
        transcript=Transcript(items, len(items), known, bool(known)),
        frame=_first_frame(agent, config, items),
        budget=Budget(config.limits, max_turns),
        handoffs=HandoffLog(is_streamed=stream),
        memory=SharedMemory(unshared(dict(config.shared_memory)) if config.shared_memory else {}),
    )


def _store_of(session: Session, input: RunInput | RunState) -> RunStore:
    if not hasattr(session, "store_of_run"):
        raise ConfigError(
            f"session must be a Session, such as Session('user-7', SQLiteSessions('chats.db')), not "
            f"{session!r:.80}. See routelock.sessions."
        )
    return session.store_of_run(input if is_state(input) else None)


def _random_id(config: RunConfig) -> str:
    if config.executor is not None:
        raise ConfigError(
            "RunConfig: a run with an executor needs a run_id of its own, such as the number of an order or "
            "the id of the engine's workflow. With a random id, each process that takes up the run would "
            "find no records and pass other idempotency keys, so a payment would be made twice."
        )
    return os.urandom(16).hex()


def _first_frame(agent: Agent[Any], config: RunConfig, items: Iterable[RunItem]) -> Frame:
    """Return the frame of the agent that a run begins with."""
    default = handler_for(agent, config)
    handler = default if config.handler is None else named(agent, config.handler, config)
    return Frame(agent=agent, handler=handler, default_handler=default.name, view=View(items))


def is_state(input: object) -> TypeIs[RunState]:
    """Whether the input of a run is a `RunState`.

    A RunState can exist only if its module was imported, so this checks `sys.modules`.
    """
    states = sys.modules.get("routelock.state.run_state")
    return states is not None and isinstance(input, states.RunState)


def with_trace(run: Run) -> Run:
    """Return the run, with a recorder if its settings have a trace.

    Raises:
        ConfigError: a trace file cannot be written.
    """
    if run.config.trace is None:
        return run
    from routelock.tracing.recorder import traced  # noqa: PLC0415

    return traced(run)


def _limited(config: RunConfig, max_turns: int | None) -> tuple[RunConfig, int | None]:
    """Return the settings and ``max_turns``, each as `smaller` chooses between limit and option."""
    if (limits := config.limits) is None:
        return config, max_turns
    handoffs = smaller(limits.handoffs, config.max_handoffs, _DEFAULTS.max_handoffs)
    timeout = smaller(limits.seconds, config.timeout)
    turns = smaller(limits.turns, max_turns, DEFAULT_MAX_TURNS)
    return replace(config, max_handoffs=handoffs, timeout=timeout), turns


def smaller(limit: N | None, option: N | None, default: N | None = None) -> N | None:
    """Return the smaller of a limit and an option. An option at its default counts as not set."""
    if limit is None:
        return option
    return limit if option is None or option == default else min(limit, option)


def replace_input(run: Run, input: RunInput) -> None:
    """Give a run that has not begun another input.

    Raises:
        ConfigError: it is empty, or has something that is no message.
    """
    items, known = _first_items(input)
    run.transcript, run.frame.view = Transcript(items, len(items), known, bool(known)), View(items)


def _first_items(input: RunInput) -> tuple[list[RunItem], set[str]]:
    """Return the items of the input, and the ids of the calls in them."""
    if isinstance(input, str):
        return [RunItem(0, "input", {"role": "user", "content": input})], set()
    if not (items := input_items(to_messages(input))):
        raise ConfigError("Input is empty: pass the user's text, or a list with at least one message.")
    return items, call_ids([item.message for item in items])


def run_graph(agent: Agent[Any], config: RunConfig) -> Mapping[str, Agent[Any]]:
    """Return every agent of the run by name, after a check of each.

    Raises:
        ConfigError: as `checked_graph` says, or an agent declares a tool of the vendor's own that its model
            does not have.
    """
    if config.compact is not None and config.compact.agent is not None:
        checked_graph(config.compact.agent, config.model)
    graph: Mapping[str, Agent[Any]]
    if config.model is None and config.tool_search is None and not (config.agents or config.external_tools):
        graph, users = agent.checked_graph, agent.vendor_tool_users
    else:
        graph = checked_graph(agent, config.model, config.agents, config.external_tools, config.tool_search)
        users = [each for each in graph.values() if each.fixed_vendor_tools]
    if users:
        errors = [_vendor_tool_error(each, config) for each in users]
        if wrong := [error for error in errors if error is not None]:
            raise combine_errors(wrong)
    return graph


def input_items(messages: Iterable[Message]) -> list[RunItem]:
    """Return input messages as items; those of an earlier run keep provider family and kind."""
    return [item_of(message, place, "input") for place, message in enumerate(messages)]


def _check_arguments(agent: object, max_turns: object, hooks: object, config: object) -> None:
    if not isinstance(agent, Agent):
        raise ConfigError(f"Runner needs a routelock.Agent to start with, not {type(agent).__name__}.")
    if config is not None and not isinstance(config, RunConfig):
        raise ConfigError(f"run_config must be a RunConfig, not {type(config).__name__}.")
    if isinstance(hooks, type):
        raise ConfigError(f"hooks must be an object: pass {hooks.__name__}(), not the class.")
    if hooks is not None and not are_hooks(hooks, RunHooks):
        given = f"{hooks!r:.80}; an AgentHooks belongs to Agent(hooks=...)"
        raise ConfigError(f"hooks must be a RunHooks, not {given}.")
    if max_turns is not None and (type(max_turns) is not int or max_turns < 1):
        raise ConfigError(f"max_turns must be at least 1, or None for no limit, not {max_turns!r}.")


def _vendor_tool_error(agent: Agent[Any], config: RunConfig) -> ConfigError | None:
    """Return why none of the handlers that may answer for an agent takes its vendor's tools.

    Two mistakes are found only when the model is called: a vendor's tool that some runs are not offered, and
    one that a handler does not take to which a handoff switches.
    """
    if any(handoff.to_handler is not None for handoff in agent.all_handoffs):
        return None
    errors = [_handler_refusal(load(each), agent, config) for each in handlers_by_priority(agent, config)]
    return errors[0] if all(errors) and errors else None


def _handler_refusal(handler: Handler, agent: Agent[Any], config: RunConfig) -> ConfigError | None:
    if (check := getattr(handler, "check_vendor_tools", None)) is None:
        return None
    specs = [each.spec for each in agent.fixed_vendor_tools]
    settings = {**config.model_settings, **agent.model_settings}
    routes: list[Tool | Handoff] = [*agent.all_tools, *agent.all_handoffs]
    try:
        check(specs, settings, functions=any(map(_is_fixed, routes)))
    except ConfigError as error:
        return ConfigError(f"Agent {agent.name!r}: {error}")
    return None


def _is_fixed(route: Tool | Handoff) -> bool:
    """Whether every run offers a tool or a handoff; that of a handoff without a target is not known."""
    is_open = route.is_enabled is True and route.scope == "all"
    return is_open and (isinstance(route, Tool) or route.target is not None)
