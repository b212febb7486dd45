"""What is checked about agents and handoffs when they are declared.

Everything that cannot work is found here, before any run, and told in one message. The declarations
are in `routelock.agents`, which this module does not import: they are typed as Any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

from routelock._callables import name_of, takes
from routelock.errors import ConfigError
from routelock.handlers.model_settings import settings_problems
from routelock.handlers.port import OutputMode, is_handler
from routelock.handoffs.handoff import is_list
from routelock.hooks import AgentHooks, RunHooks
from routelock.tools.agent_tool import AgentCall
from routelock.tools.decorators import is_function, tool
from routelock.tools.tool import Tool

__all__ = [
    "agent_problems",
    "collected",
    "colliding_names",
    "guardrail_problems",
    "in_list",
    "in_one",
    "two_of_a_name",
]


Each = TypeVar("Each")

LISTS = ("tools", "handlers", "skills", "handoffs", "capabilities", "input_guardrails", "output_guardrails")

HANDOFF_HOOKS = ("on_handoff_request", "on_handoff_received")


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


def collected(wrong: list[ConfigError], make: Callable[[Any], Each], given: Iterable[Any]) -> list[Each]:
    """Make something of each; what cannot be made is in ``wrong`` afterwards."""
    made: list[Each] = []
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
