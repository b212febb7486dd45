"""Finds what is wrong with the declaration of an agent; one error lists all of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, get_args

from routelock._callables import name_of, takes
from routelock.agents.hooks import AgentHooks, are_hooks
from routelock.errors import ConfigError, NoHandlerError
from routelock.handlers.model_settings import settings_problems
from routelock.handlers.port import OutputMode, is_handler
from routelock.handoffs.handoff import Handoff
from routelock.handoffs.handoff_problems import is_list
from routelock.history.compaction import Compact
from routelock.tools.decorators import is_function, tool
from routelock.tools.invoke import PythonCall
from routelock.tools.search import ToolSearch
from routelock.tools.tool import Tool
from routelock.tools.vendor_tool import VendorTool, spec_problem

if TYPE_CHECKING:
    from routelock.agents.agent import Agent

__all__ = [
    "HANDOFF_HOOKS",
    "LISTS",
    "agent_problems",
    "as_list",
    "check_model",
    "colliding_names",
    "combine_errors",
    "duplicate_name_error",
    "guardrail_problems",
]


LISTS = ("tools", "handlers", "skills", "handoffs", "capabilities", "input_guardrails", "output_guardrails")


_MODEL_NAME = re.compile(r"[a-z_-]+[:/][^\s/]\S*")
"""A name such as ``openai:gpt-4o``, which is the first argument of agents in other libraries."""


HANDOFF_HOOKS = ("on_handoff_request", "on_handoff_received")


def _tool_problem(given: Any) -> str:
    if isinstance(given, Mapping):
        return spec_problem(cast(object, given))
    if hasattr(given, "as_tool"):
        return f"agent {given.name!r} is not a Tool; pass its .as_tool(), or put it into handoffs"
    if is_handler(given):
        return f"{given.name!r} is a handler, not a Tool; put it into handlers or handoffs"
    if isinstance(given, Handoff):
        return f"a handoff to {given.agent_name!r} is not a Tool; put it into handoffs"
    if not is_function(given):
        return f"{given!r:.80} is not a Tool; pass a function, a method, or an object in function_tool(...)"
    try:
        return f"{tool(given).name!r} is a function, not a Tool"
    except ConfigError as error:
        return str(error).removesuffix(".")


def agent_problems(agent: Any) -> list[ConfigError]:
    """Return the errors in an agent's own fields, except its handoffs, handlers and skills."""
    if not isinstance(agent.name, str) or not agent.name:
        wrong = [f"An agent's name must be text, not {agent.name!r}"]
    else:
        wrong = []
    where = f"Agent {agent.name!r}"
    lists = [(name, getattr(agent, name)) for name in LISTS]
    wrong += [
        f"{where}: {name} must be a list, {_list_problem(name, each)}"
        for name, each in lists
        if not is_list(each)
    ]
    wrong += _tool_problems(agent, where) + [f"{where}: {each}" for each in guardrail_problems(agent)]
    wrong += [
        f"{where}: capabilities are names, not {each!r:.80}"
        for each in as_list(agent.capabilities)
        if not isinstance(each, str)
    ]
    if not isinstance(agent.instructions, str | None) and not callable(agent.instructions):
        wrong.append(f"{where}: instructions must be text or a function, not {agent.instructions!r:.80}")
    if (hooks := agent.hooks) is not None and not are_hooks(hooks, AgentHooks):
        wrong.append(f"{where}: hooks must be an AgentHooks, not {hooks!r:.80}; RunHooks are for Runner.run")
    if not isinstance(agent.tool_search, ToolSearch | None):
        wrong.append(f"{where}: tool_search must be a ToolSearch, not {agent.tool_search!r:.80}")
    if not isinstance(agent.compact, Compact | None):
        wrong.append(f"{where}: compact must be a Compact, not {agent.compact!r:.80}")
    wrong += _hook_problems(agent, where)
    if agent.output_mode not in (modes := get_args(OutputMode)):
        wrong.append(f"{where}: output_mode must be one of {modes}, not {agent.output_mode!r:.80}")
    wrong += [f"{where}: {problem}" for problem in settings_problems(agent.model_settings)]
    try:
        _ = agent.output
    except ConfigError as error:
        wrong.append(f"{where}: output_type {str(error).rstrip('.')}")
    return [ConfigError(f"{each}.") for each in wrong]


def _hook_problems(agent: Any, where: str) -> list[str]:
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
    """Return one line for each guardrail of an agent or a run that cannot be called as one."""
    return [
        f"{name}_guardrails {problem}"
        for name in ("input", "output")
        for guardrail in as_list(getattr(declared, f"{name}_guardrails"))
        if (problem := _guardrail_problem(guardrail, name))
    ]


def _guardrail_problem(guardrail: object, checked: str) -> str:
    if not callable(guardrail):
        return f"are functions, not {guardrail!r:.80}"
    if takes(guardrail, 3):
        return ""
    return f"{name_of(guardrail)!r} must take three arguments: the context, the agent and the {checked}"


def _tool_problems(agent: Any, where: str) -> list[str]:
    tools: list[Any] = as_list(agent.tools)
    wrong = [f"{where}: {_tool_problem(tool)}" for tool in tools if not isinstance(tool, Tool | VendorTool)]
    wrong += [
        f"{where}: tool {tool.name!r} would ask the model for context_variables, which Swarm fills in; take "
        "a parameter ctx: RunContext instead, and read ctx.context"
        for tool in tools
        if isinstance(tool, Tool) and isinstance(tool.on_invoke_tool, PythonCall)
        if "context_variables" in tool.params_json_schema["properties"]
    ]
    return wrong


def _list_problem(name: str, given: object) -> str:
    if isinstance(given, Mapping):
        return "not a dict: pass its values"
    return "not None" if given is None else f"not {type(given).__name__}: write {name}=[...]"


def as_list(given: Any) -> list[Any]:
    """Return the elements of a declared list.

    A value that is not a list gives an empty list; other code reports it.
    """
    return list(given) if is_list(given) else []


def combine_errors(wrong: Sequence[ConfigError]) -> ConfigError:
    """Return one error with the texts of all errors; a single error is returned as it is."""
    if len(wrong) == 1:
        return wrong[0]
    kinds = {type(each) for each in wrong}
    texts = dict.fromkeys(str(each).removesuffix(".") for each in wrong)
    error = (kinds.pop() if len(kinds) == 1 else ConfigError)(f"{'; '.join(texts)}.")
    error.__cause__ = next((each.__cause__ for each in wrong if each.__cause__ is not None), None)
    return error


def duplicate_name_error(name: str) -> ConfigError:
    """Return the error for two different agents with the same name."""
    return ConfigError(f"Two different agents are named {name!r}; give each its own name.")


def colliding_names(agent: str, tools: Sequence[Any], handoffs: Sequence[Any]) -> list[ConfigError]:
    """Return an error for each tool name that a model would be offered twice.

    Args:
        agent: the name of the agent.
        tools: its tools and those of its skills.
        handoffs: its handoffs.
    """
    where = f"Agent {agent!r}"
    wrong = [f"{where} hands off to {what}" for each in handoffs if (what := _same_name_target(agent, each))]
    owners = [(tool.name, _tool_phrase(tool)) for tool in tools]
    owners += [(each.tool_name, f"handoff to {each.agent_name!r}") for each in handoffs]
    for name, count in Counter(name for name, _ in owners).items():
        if count > 1:
            both = " and ".join(owner for tool_name, owner in owners if tool_name == name)
            wrong.append(f"{where}: {both} are all offered as {name!r}; rename one or use tool_name_override")
    return [ConfigError(f"{each}.") for each in wrong]


def _tool_phrase(tool: Any) -> str:
    """Return the name of a tool, and where it comes from; a vendor's own tool does not say."""
    origin = getattr(tool, "origin", None)
    return f"tool {tool.name!r}" if origin is None else f"tool {tool.name!r} of {origin!r}"


def _same_name_target(agent: str, handoff: Any) -> str:
    """Return a phrase for the target of a handoff that has the agent's own name; empty if none has."""
    for end in (handoff.target, *handoff.others):
        if end is not None and getattr(end, "name", end) == agent:
            if isinstance(end, str):
                return "itself"
            kind = "agent" if hasattr(end, "handoff_description") else "handler"
            return f"another {kind} that is also named {agent!r}; give each its own name"
    return "itself" if handoff.agent_name == agent else ""


def check_model(agent: Agent[Any], model: object = None) -> None:
    """Check that an agent has a model or a handler.

    Args:
        agent: the agent.
        model: the model of the run; None for the agent's own.

    Raises:
        NoHandlerError: neither the agent nor the run has one.
        ConfigError: the model is neither a model string nor a handler.
    """
    model = agent.model if model is None else model
    if model is None and not agent.registered.handlers:
        swapped = " The first argument of Agent is its name." if _MODEL_NAME.fullmatch(agent.name) else ""
        raise NoHandlerError(
            f"Agent {agent.name!r} has no model. Give it one, such as Agent(..., model='openai/gpt-4o'), "
            f"or handlers=[...], or set RunConfig(model=...) for the whole run.{swapped}"
        )
    if not (model is None or isinstance(model, str) or is_handler(model)):
        given, cure = f"{model!r:.80}", "Wrap a function with routelock.function_handler(...)"
        if isinstance(model, type):
            given, cure = f"the class {model.__name__}", "Make an object of it"
        raise ConfigError(
            f"The model of agent {agent.name!r} must be a model string or a handler, not {given}. {cure}."
        )
