"""Skills: bundles of tools, handlers, prompts and hooks for an agent.

    class Weather(Skill):
        @tool
        def forecast(self, city: str) -> str: ...

        @prompt
        def style(self) -> str: ...

    Agent("helper", model=..., skills=[Weather()])

The parts of a skill are registered while the agent is made, see `registry.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar, cast, overload

from routelock._callables import MaybeAwaitable, name_of
from routelock._hints import hint_attributes, hint_keywords
from routelock._peer_names import SKILL
from routelock.agents.registry import Registered, Registry, checked_event, collect_errors, register
from routelock.errors import ConfigError, SkillInitError
from routelock.handlers.function_handler import FunctionHandler
from routelock.handlers.port import Handler, Priority, is_handler
from routelock.handoff_request import HandoffRequest
from routelock.scopes import Scope, checked_scope
from routelock.tools.decorators import is_tool
from routelock.tools.tool import Tool

__all__ = ["Hook", "Prompt", "Skill", "hook", "prompt", "register_all"]


@hint_attributes(SKILL)
class Skill:
    """A bundle of tools, handlers, prompts and hooks.

    Methods decorated with `routelock.tool`, `routelock.handler`, `prompt` and `hook` are registered on each
    agent that has the skill. Put what each agent needs anew into `initialize`. A skill has no state of a run,
    because several runs may use it at the same time.

    Args:
        config: settings of the skill.
        name: the name, unique among the skills of an agent; by default the name of the class.
        scope: which runs may use the parts of the skill that have no scope of their own.
        dependencies: names of skills that are initialised before this one.
    """

    name: str = ""
    scope: Scope = "all"
    dependencies: Sequence[str] = ()
    config: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        name: str = "",
        scope: Scope | None = None,
        dependencies: Sequence[str] | None = None,
    ) -> None:
        self.name = name or self.name or type(self).__name__
        if not isinstance(cast(object, config), Mapping | None):
            raise ConfigError(f"Skill {self.name!r}: config must be a dict, not {config!r:.80}.")
        self.config = dict(config or {})
        self.scope = self.scope if scope is None else scope
        needed = self.dependencies if dependencies is None else dependencies
        if isinstance(needed, str):
            raise ConfigError(
                f"Skill {self.name!r}: dependencies must be a list of names, not {needed!r:.80}."
            )
        self.dependencies = tuple(needed)

    def initialize(self, registry: Registry) -> None:
        """Prepare the skill for one agent, and register parts that have no decorator.

        Called while the agent is made, after the dependencies of the skill (``registry.skills``), and never
        during a run. Open resources such as connections before the agent is made.
        """

    @hint_keywords({"agent_url": "input={'agent_url': ...}"})
    def request_handoff(self, target_name: str, input: Any = None) -> HandoffRequest:
        """Return a handoff request for a tool of the skill to return; the method is named as in webagents.

        Args:
            target_name: the name of a handler or an agent, see `routelock.HandoffRequest`.
            input: the value of ``Request.handoff_input`` in the requests of the target.
        """
        return HandoffRequest(target_name, input=input)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A function that writes a section of the system prompt; made by `prompt`."""

    function: Callable[..., MaybeAwaitable[str]]
    priority: int
    scope: Scope

    def __call__(self, *args: Any) -> MaybeAwaitable[str]:
        """Call the plain function."""
        return self.function(*args)

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Prompt:
        return _bound(self, instance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A function that is called at an event; made by `hook`."""

    event: str
    function: Callable[..., Any]
    priority: int

    def __call__(self, *args: Any) -> Any:
        """Call the plain function."""
        return self.function(*args)

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Hook:
        return _bound(self, instance)


Part = TypeVar("Part", Prompt, Hook)


def _bound(part: Part, instance: object | None) -> Part:
    """Return the part of a method, bound to the instance that it was taken from."""
    return part if instance is None else replace(part, function=cast(Any, part.function).__get__(instance))


@overload
def prompt(function: Callable[..., MaybeAwaitable[str]], /) -> Prompt: ...


@overload
def prompt(
    *, priority: int = Priority.CUSTOM, scope: Scope = "all"
) -> Callable[[Callable[..., MaybeAwaitable[str]]], Prompt]: ...


def prompt(
    function: Callable[..., MaybeAwaitable[str]] | None = None,
    /,
    *,
    priority: int = Priority.CUSTOM,
    scope: Scope = "all",
) -> Prompt | Callable[[Callable[..., MaybeAwaitable[str]]], Prompt]:
    """Make a method of a skill a section of the system prompt: ``@prompt`` or ``@prompt(priority=10)``.

    The method is sync or async, returns text, and may take the run's context, and then the agent. It is
    called before each model call. Text that stays the same keeps the provider's prompt cache valid.

    Args:
        function: the method.
        priority: the order of sections, lower first.
        scope: which runs have the section in their prompt, see `routelock.scopes`.
    """

    def make(function: Callable[..., MaybeAwaitable[str]]) -> Prompt:
        where = f"Prompt {name_of(function)!r}"
        return Prompt(function=function, priority=priority, scope=checked_scope(scope, where))

    return make if function is None else make(function)


def hook(event: str, /, *, priority: int = Priority.CUSTOM) -> Callable[[Callable[..., Any]], Hook]:
    """Call a method of a skill at an event of the agent: ``@hook("on_tool_end")``.

    Args:
        event: the name of a method of `routelock.AgentHooks`; the hook gets the same arguments.
        priority: the order of hooks of one event, lower first.

    Raises:
        ConfigError: there is no such event.
    """
    checked_event(event)

    def make(function: Callable[..., Any]) -> Hook:
        return Hook(event=event, function=function, priority=priority)

    return make


def register_all(
    agent: str,
    model: str | Handler | None,
    handlers: Sequence[Handler | Callable[..., Any]],
    skills: Sequence[Skill],
    wrong: list[ConfigError],
) -> Registered:
    """Register an agent's model, handlers and skills, and return everything that is registered.

    A skill is initialised only if no error was found before.

    Args:
        agent: the name of the agent.
        model: its model. A model that is neither text nor a handler is reported when a run begins.
        handlers: its handlers.
        skills: its skills.
        wrong: the errors of the agent so far. This function appends an error for each name that occurs twice,
            each invalid handler, each missing or circular dependency, and each skill whose initialisation
            failed.
    """
    by_name = _by_name(agent, skills, wrong)
    registry = Registry(agent, by_name)
    with collect_errors(wrong):
        if isinstance(model, str) or is_handler(model):
            registry.add_registered(register(model, priority=Priority.LOCAL))
    for handler in handlers:
        if handler is None or handler is not model:
            with collect_errors(wrong):
                registry.add_handler(handler)
    for name in _in_order(agent, by_name, wrong):
        with collect_errors(wrong):
            _register(registry, name, by_name[name])
            if not wrong:
                _initialize(registry, name, by_name[name])
    return registry.close()


def _name(skill: Skill) -> str:
    return skill.name or type(skill).__name__


def _by_name(agent: str, skills: Sequence[Skill], wrong: list[ConfigError]) -> dict[str, Skill]:
    found: dict[str, Skill] = {}
    for skill in skills:
        if not isinstance(cast(object, skill), Skill):
            made = f"; pass {skill.__name__}()" if isinstance(skill, type) else ""
            wrong.append(ConfigError(f"Agent {agent!r}: {skill!r:.80} is not a Skill{made}."))
        elif found.setdefault(_name(skill), skill) is not skill:
            wrong.append(
                ConfigError(f"Agent {agent!r} has two skills named {_name(skill)!r}; give one another name.")
            )
        elif isinstance(skill.dependencies, str):
            what = f"dependencies of skill {_name(skill)!r} must be a list of names"
            wrong.append(ConfigError(f"Agent {agent!r}: {what}."))
    return found


def _needs(skill: Skill) -> Sequence[str]:
    return () if isinstance(skill.dependencies, str) else skill.dependencies


def _in_order(agent: str, skills: Mapping[str, Skill], wrong: list[ConfigError]) -> list[str]:
    """Return the names in their declared order, each after its dependencies."""
    order: list[str] = []
    seen: set[str] = set()

    def report(what: str) -> None:
        wrong.append(ConfigError(f"Agent {agent!r}: {what}."))

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = " -> ".join([*path[path.index(name) :], name])
            report(f"skills depend on each other in a circle: {circle}")
        if name in seen:
            return
        seen.add(name)
        for needed in _needs(skills[name]):
            if needed in skills:
                visit(needed, (*path, name))
            else:
                has = f"It has: {', '.join(skills)}"
                report(f"skill {name!r} depends on {needed!r}, which the agent does not have. {has}")
        order.append(name)

    for name in skills:
        visit(name, ())
    return order


def _register(registry: Registry, name: str, skill: Skill) -> None:
    """Register the decorated methods of a skill."""
    registry.begin_skill(name, checked_scope(skill.scope, f"Skill {name!r}"))
    for part in _parts(skill):
        if is_tool(part):
            registry.add_tool(part)
        elif isinstance(part, Prompt):
            own = None if part.scope == "all" else part.scope
            registry.add_prompt(part.function, priority=part.priority, scope=own)
        elif isinstance(part, Hook):
            registry.add_hook(part.event, part.function, priority=part.priority)
        else:
            registry.add_handler(part)


def _initialize(registry: Registry, name: str, skill: Skill) -> None:
    """Call `Skill.initialize`."""
    initialize: Callable[[Registry], object] = skill.initialize
    try:
        given = initialize(registry)
    except Exception as error:
        raise SkillInitError(
            f"Agent {registry.agent!r}: skill {name!r} could not be initialised: "
            f"{type(error).__name__}: {error}"
        ) from error
    if given is not None:
        is_async = inspect.isawaitable(given) or inspect.isasyncgen(given)
        if inspect.iscoroutine(given):
            given.close()
        raise SkillInitError(
            f"Agent {registry.agent!r}: initialize of skill {name!r} "
            + ("is async" if is_async else f"returned a {type(given).__name__} instead of nothing")
            + ". There is no event loop while an agent is made: await what you need before, and pass it in."
        )


def _parts(skill: Skill) -> Iterator[Any]:
    """Yield the decorated methods of a skill, bound to it, in the order of the class body."""
    names = dict.fromkeys(name for owner in reversed(type(skill).__mro__) for name in vars(owner))
    for name in names:
        declared: object = inspect.getattr_static(skill, name)
        if isinstance(declared, Tool | Prompt | Hook | FunctionHandler):
            yield getattr(skill, name)
