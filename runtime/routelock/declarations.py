"""What is checked about agents and handoffs when they are declared.

Everything that cannot work is found here, before any run, and told in one message. The declarations
are in `routelock.agents`, which this module does not import: they are typed as Any.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

from routelock._callables import name_of, takes
from routelock.errors import ConfigError
from routelock.handlers.model_settings import settings_problems
from routelock.handlers.port import OutputMode, is_handler
from routelock.hooks import AgentHooks, RunHooks
from routelock.payloads import HandoffPayload
from routelock.tools.agent_tool import AgentCall
from routelock.tools.decorators import is_function, tool
from routelock.tools.tool import Tool

__all__ = [
    "agent_problems",
    "check_handoff",
    "collected",
    "colliding_names",
    "guardrail_problems",
    "in_list",
    "in_one",
    "is_list",
    "is_seconds",
    "target_name",
    "two_of_a_name",
]

T = TypeVar("T")

LISTS = ("tools", "handlers", "skills", "handoffs", "capabilities", "input_guardrails", "output_guardrails")
HANDOFF_HOOKS = ("on_handoff_request", "on_handoff_received")


def target_name(target: object) -> str:
    """Return the name of what a handoff leads to.

    Raises:
        ConfigError: it leads nowhere.
    """
    name = target if isinstance(target, str) else getattr(target, "name", None)
    if not isinstance(name, str) or not name:
        hint = "; wrap a function with routelock.function_handler(...)" if callable(target) else ""
        raise ConfigError(
            f"A handoff leads to an Agent, a Handler or the name of an agent, not to {target!r:.80}{hint}."
        )
    leads = isinstance(target, str) or hasattr(target, "handoff_description")  # an agent
    if not leads and not callable(getattr(target, "stream", None)):
        raise ConfigError(f"A handoff leads to an Agent or a Handler; {target!r:.80} has no stream method.")
    return name


def check_handoff(edge: Any) -> None:
    """Make sure that what a handoff declares can work.

    Raises:
        ConfigError: all that cannot.
    """
    where = f"Handoff to {edge.agent_name!r}"
    wrong = [f"{where}: {message}" for holds, message in _handoff_rules(edge) if not holds]
    wrong += _bad_others(edge, where)
    if edge.on_handoff is not None:
        wrong += _bad_callback(edge, where)
    wrong += _bad_payload(edge, where)
    if wrong:
        raise ConfigError("; ".join(wrong) + ".")


def _handoff_rules(edge: Any) -> tuple[tuple[bool, str], ...]:
    return (
        (
            edge.input_filter is None or callable(edge.input_filter),
            f"input_filter must be a function, not {edge.input_filter!r:.80}",
        ),
        (
            edge.input_filter is None or edge.preserve_context,
            "use either input_filter or preserve_context=False, not both",
        ),
        (
            edge.input_type is None or not edge.ask_reason,
            "put a reason field into input_type instead of ask_reason=True",
        ),
        (
            isinstance(edge.is_enabled, bool) or callable(edge.is_enabled),
            f"is_enabled must be a bool or a function, not {edge.is_enabled!r:.80}",
        ),
        (
            isinstance(edge.needs_approval, bool) or callable(edge.needs_approval),
            f"needs_approval must be a bool or a function, not {edge.needs_approval!r:.80}",
        ),
        (
            edge.on_invoke_handoff is None or callable(edge.on_invoke_handoff),
            f"on_invoke_handoff must be a function, not {edge.on_invoke_handoff!r:.80}",
        ),
        *_asking_rules(edge),
    )


def _asking_rules(edge: Any) -> tuple[tuple[bool, str], ...]:
    return (
        (
            edge.target is not None or not edge.others,
            "the first of several agents must be one",
        ),
        (
            edge.run_timeout is None or is_seconds(edge.run_timeout),
            f"run_timeout must be seconds or None, not {edge.run_timeout!r:.80}",
        ),
        (
            edge.timeout is None or is_seconds(edge.timeout),
            f"timeout must be seconds or None, not {edge.timeout!r:.80}",
        ),
        (
            is_list(edge.capabilities_required),
            f"capabilities_required must be a list of names, not {edge.capabilities_required!r:.80}",
        ),
        (
            isinstance(edge.priority, int) and not isinstance(edge.priority, bool),
            f"priority must be a whole number, not {edge.priority!r:.80}",
        ),
        (
            isinstance(edge.metadata, Mapping),
            f"metadata must be a dict, not {edge.metadata!r:.80}",
        ),
        (
            edge.share is None or _is_names(edge.share),
            f"share must be a list of names, not {edge.share!r:.80}",
        ),
        (
            re.fullmatch("[a-zA-Z0-9_-]{1,64}", edge.tool_name) is not None,
            f"providers take a tool name of 1 to 64 of a-z, A-Z, 0-9, _ and -, not {edge.tool_name!r:.80}",
        ),
    )


def _is_names(value: Any) -> bool:
    return hasattr(value, "__len__") and is_list(value) and all(isinstance(name, str) for name in value)


def _bad_others(edge: Any, where: str) -> list[str]:
    """Return what is wrong with who is asked next: found now, not when somebody declines."""
    if not is_list(edge.others):
        return [f"{where}: others must be a list, not {edge.others!r:.80}"]
    wrong: list[str] = []
    names = [edge.agent_name]
    for each in edge.others:
        try:
            names.append(target_name(each))
        except ConfigError as error:
            wrong.append(f"{where}: {str(error).removesuffix('.')}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    return [*wrong, *(f"{where}: {name!r} is in the list twice" for name in twice)]


def _bad_payload(edge: Any, where: str) -> list[str]:
    if callable(edge.payload):
        called = f"{where}: payload {name_of(edge.payload)!r}"
        return [] if takes(edge.payload, 2) else [f"{called} must take the context and the input"]
    if isinstance(edge.payload, HandoffPayload | Mapping | None):
        return []
    kind = type(edge.payload).__name__
    return [f"{where}: payload must be a HandoffPayload, a dict or a function, not {kind}"]


def _bad_callback(edge: Any, where: str) -> list[str]:
    called = f"{where}: on_handoff {name_of(edge.on_handoff)!r}"
    assert edge.on_handoff is not None
    if edge.input_type is not None:
        return [] if takes(edge.on_handoff, 2) else [f"{called} must take the context and the input"]
    if edge.ask_reason and edge.on_handoff_takes_input:
        return []
    return [] if takes(edge.on_handoff, 1) else [f"{called} must take one argument: the context"]


def _no_tool(given: Any) -> str:
    if hasattr(given, "as_tool"):
        return f"agent {given.name!r} is not a Tool; pass its .as_tool(), or put it into handoffs"
    if is_handler(given):
        return f"{given.name!r} is a handler, not a Tool; put it into handlers or handoffs"
    if not is_function(given):
        return f"{given!r:.80} is not a Tool; wrap functions with @function_tool"
    try:
        return f"{tool(given).name!r} is a function, not a Tool"
    except ConfigError as error:
        return str(error).removesuffix(".")


def _may_watch(hooks: object) -> bool:
    """Whether an agent's hooks are any; those of a run have other names, and would never be called."""
    return not isinstance(hooks, type) and (isinstance(hooks, AgentHooks) or not isinstance(hooks, RunHooks))


def agent_problems(agent: Any) -> list[ConfigError]:
    """Return what cannot work about an agent's own fields, but for its handoffs, handlers and skills."""
    if not isinstance(agent.name, str) or not agent.name:
        wrong = [f"An agent's name must be text, not {agent.name!r}"]
    else:
        wrong = []
    where = f"Agent {agent.name!r}"
    lists = [(name, getattr(agent, name)) for name in LISTS]
    wrong += [
        f"{where}: {name} must be a list, {_no_list(each)}" for name, each in lists if not is_list(each)
    ]
    wrong += _tool_problems(agent, where) + [f"{where}: {each}" for each in guardrail_problems(agent)]
    if not isinstance(agent.instructions, str | None) and not callable(agent.instructions):
        wrong.append(f"{where}: instructions must be text or a function, not {agent.instructions!r:.80}")
    if (hooks := agent.hooks) is not None and not _may_watch(hooks):
        wrong.append(f"{where}: hooks must be an AgentHooks, not {hooks!r:.80}; RunHooks are for Runner.run")
    wrong += _bad_hooks(agent, where)
    if agent.output_mode not in (modes := get_args(OutputMode)):
        wrong.append(f"{where}: output_mode must be one of {modes}, not {agent.output_mode!r:.80}")
    wrong += [f"{where}: {problem}" for problem in settings_problems(agent.model_settings)]
    try:
        _ = agent.output
    except ConfigError as error:
        wrong.append(f"{where}: output_type {str(error).rstrip('.')}")
    return [ConfigError(f"{each}.") for each in wrong]


def _bad_hooks(agent: Any, where: str) -> list[str]:
    wrong: list[str] = []
    for name in HANDOFF_HOOKS:
        hook = getattr(agent, name)
        if hook is not None and not callable(hook):
            wrong.append(f"{where}: {name} must be a function, not {hook!r:.80}")
        elif hook is not None and not (takes(hook, 1) or takes(hook, 2)):
            called = f"{where}: {name} {name_of(hook)!r}"
            wrong.append(f"{called} must take one argument, or two with the context of the run")
    return wrong


def guardrail_problems(declared: Any) -> list[str]:
    """Return what cannot work about the guardrails of an agent or of a run."""
    return [
        f"{name} are functions, not {guardrail!r:.80}"
        for name in ("input_guardrails", "output_guardrails")
        for guardrail in in_list(getattr(declared, name))
        if not callable(guardrail)
    ]


def _tool_problems(agent: Any, where: str) -> list[str]:
    tools: list[Any] = in_list(agent.tools)
    wrong = [f"{where}: {_no_tool(tool)}" for tool in tools if not isinstance(tool, Tool)]
    return wrong + [
        f"{where}: tool {tool.name!r} asks an agent: give the guardrails to that agent"
        for tool in tools
        if isinstance(tool, Tool) and isinstance(tool.on_invoke_tool, AgentCall)
        if tool.input_guardrails or tool.output_guardrails
    ]


def _no_list(given: object) -> str:
    return "not a dict: pass its values" if isinstance(given, Mapping) else f"not {given!r:.80}"


def in_list(given: Any) -> list[Any]:
    """Return what is in a list of a declaration; nothing if it is none, which is told elsewhere."""
    return list(given) if is_list(given) else []


def collected(wrong: list[ConfigError], make: Callable[[Any], T], given: Iterable[Any]) -> list[T]:
    """Make something of each; what cannot be made is in ``wrong`` afterwards."""
    made: list[T] = []
    for each in given:
        try:
            made.append(make(each))
        except ConfigError as error:
            wrong.append(error)
    return made


def in_one(wrong: Sequence[ConfigError]) -> ConfigError:
    """Return one error that says all that is wrong; a single problem is the error itself."""
    if len(wrong) == 1:
        return wrong[0]
    kinds = {type(each) for each in wrong}
    texts = dict.fromkeys(str(each).removesuffix(".") for each in wrong)
    error = (kinds.pop() if len(kinds) == 1 else ConfigError)(f"{'; '.join(texts)}.")
    error.__cause__ = next((each.__cause__ for each in wrong if each.__cause__ is not None), None)
    return error


def two_of_a_name(name: str) -> ConfigError:
    """Return the error that two different agents have one name."""
    return ConfigError(f"Two different agents are named {name!r}; give each its own name.")


def is_seconds(value: object) -> bool:
    """Whether a value is a time to wait; infinity is one."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def is_list(value: object) -> bool:
    """Whether a value can stand for a list in a declaration; text and a dict cannot."""
    return isinstance(value, Iterable) and not isinstance(value, str | Mapping)


def colliding_names(agent: str, tools: Sequence[Tool], edges: Sequence[Any]) -> list[ConfigError]:
    """Return which of the names that a model would be offered are not unique.

    Args:
        agent: the agent's name.
        tools: its tools, and those of its skills.
        edges: its handoffs.
    """
    where = f"Agent {agent!r}"
    wrong = [f"{where} hands off to {what}" for edge in edges if (what := _of_its_name(agent, edge))]
    owners = [(tool.name, f"tool {tool.name!r}") for tool in tools]
    owners += [(edge.tool_name, f"handoff to {edge.agent_name!r}") for edge in edges]
    for name, count in Counter(name for name, _ in owners).items():
        if count > 1:
            both = " and ".join(owner for tool_name, owner in owners if tool_name == name)
            wrong.append(f"{where}: {both} are all offered as {name!r}; rename one or use tool_name_override")
    return [ConfigError(f"{each}.") for each in wrong]


def _of_its_name(agent: str, edge: Any) -> str:
    """Return to what a handoff leads that has the agent's own name; nothing if it does not."""
    for end in (edge.target, *edge.others):
        if end is not None and getattr(end, "name", end) == agent:
            if isinstance(end, str):
                return "itself"
            kind = "agent" if hasattr(end, "handoff_description") else "handler"
            return f"another {kind} that is named {agent!r}, too; give each its own name"
    return "itself" if edge.agent_name == agent else ""
