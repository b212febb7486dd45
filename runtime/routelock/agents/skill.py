"""Skills: tools, handlers, prompts and hooks that are registered on an agent together.

    class Weather(Skill):
        @tool
        def forecast(self, city: str) -> str: ...

        @prompt
        def style(self) -> str: ...

    Agent("helper", model=..., skills=[Weather()])

What a skill brings is registered while the agent is made, see `registry.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar, cast, overload

from routelock._callables import MaybeAwaitable, name_of
from routelock.agents.registry import Registered, Registry, checked_event, register
from routelock.errors import ConfigError, SkillInitError
from routelock.handlers.function_handler import FunctionHandler
from routelock.handlers.port import Handler, Priority, is_handler
from routelock.handoff_request import HandoffRequest
from routelock.scopes import Scope, checked_scope
from routelock.tools.tool import Tool

__all__ = ["Hook", "Prompt", "Skill", "hook", "prompt", "register_all"]


_INSTEAD: Mapping[str, str] = {
    "register_handoff": "registry.add_handler",
    "register_hook": "registry.add_hook",
    "register_prompt": "registry.add_prompt",
    "register_tool": "registry.add_tool",
}
"""What a method of webagents is called here."""


class Skill:
    """A bundle of tools, handlers, prompts and hooks.

    Methods decorated with `routelock.tool`, `routelock.handler`, `prompt` and `hook` are registered on
    each agent that has the skill. What is made anew for each agent belongs into `initialize`. A skill
    holds nothing of a run: it may serve many at once.

    Args:
        config: settings of the skill's own, as it documents them.
        name: what it is called; the class's name when left out. Each skill of an agent has its own.
        scope: who may use what it brings, unless a part has a scope of its own.
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
        """Prepare the skill for one agent, and register what no decorator can.

        Called while the agent is made, after the skills that this one depends on (``registry.skills``),
        and never during a run. What has to be opened and closed, such as a connection, is opened before.
        """

    def request_handoff(self, target_name: str, input: Any = None) -> HandoffRequest:
        """Return what a tool of the skill returns to hand over, as webagents spells it.

        Args:
            target_name: a handler or an agent, see `routelock.HandoffRequest`.
            input: given to the target, which finds it as ``Request.handoff_input``.
        """
        return HandoffRequest(target_name, input=input)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A function that writes a section of the system prompt; made by `prompt`."""

    function: Callable[..., MaybeAwaitable[str]]
    priority: int
    scope: Scope

    def __call__(self, *args: Any) -> MaybeAwaitable[str]:
        """Write the section, as the plain function would."""
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
        """Do what the plain function does."""
        return self.function(*args)

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Hook:
        return _bound(self, instance)


Part = TypeVar("Part", Prompt, Hook)


def _bound(part: Part, instance: object | None) -> Part:
    """Return a part that was made in the body of a class, bound to the instance it is taken from."""
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

    It returns text, sync or async, and may take the run's context, and the agent after it. It is asked
    before each model call: text that stays the same keeps a provider's prompt cache warm.

    Args:
        function: the method.
        priority: sections stand in this order, lower first.
        scope: who is to see it, see `routelock.scopes`.
    """

    def make(function: Callable[..., MaybeAwaitable[str]]) -> Prompt:
        where = f"Prompt {name_of(function)!r}"
        return Prompt(function=function, priority=priority, scope=checked_scope(scope, where))

    return make if function is None else make(function)


def hook(event: str, /, *, priority: int = Priority.CUSTOM) -> Callable[[Callable[..., Any]], Hook]:
    """Call a method of a skill at an event of the agent: ``@hook("on_tool_end")``.

    Args:
        event: a method of `routelock.AgentHooks`; the method is given what that one is given.
        priority: hooks of one event are called in this order, lower first.

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
    """Register an agent's model, its handlers and its skills, and return what comes of it.

    Skills are initialised only if nothing is wrong before.

    Args:
        agent: the agent's name.
        model: its model; one that is neither text nor a handler is told when a run begins.
        handlers: its handlers.
        skills: its skills.
        wrong: what is wrong with the agent. More is added: names that clash, a handler that cannot answer, a
            dependency that is missing or goes round in a circle, a skill that could not be initialised.
    """
    by_name = _by_name(agent, skills, wrong)
    registry = Registry(agent, by_name)
    with _telling(wrong):
        if isinstance(model, str) or is_handler(model):
            registry.add_registered(register(model, priority=Priority.LOCAL))
    for handler in handlers:
        if handler is None or handler is not model:
            with _telling(wrong):
                registry.add_handler(handler)
    for name in _in_order(agent, by_name, wrong):
        with _telling(wrong):
            _register(registry, name, by_name[name])
            if not wrong:
                _initialize(registry, name, by_name[name])
    return registry.close()


@contextmanager
def _telling(wrong: list[ConfigError]) -> Generator[None]:
    try:
        yield
    except ConfigError as error:
        wrong.append(error)


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
    """Return the names in their declared order, but each after those that it depends on."""
    order: list[str] = []
    seen: set[str] = set()

    def tell(what: str) -> None:
        wrong.append(ConfigError(f"Agent {agent!r}: {what}."))

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = " -> ".join([*path[path.index(name) :], name])
            tell(f"skills depend on each other in a circle: {circle}")
        if name in seen:
            return
        seen.add(name)
        for needed in _needs(skills[name]):
            if needed in skills:
                visit(needed, (*path, name))
            else:
                has = f"It has: {', '.join(skills)}"
                tell(f"skill {name!r} depends on {needed!r}, which the agent does not have. {has}")
        order.append(name)

    for name in skills:
        visit(name, ())
    return order


def _register(registry: Registry, name: str, skill: Skill) -> None:
    """Register the decorated methods of a skill."""
    registry.speak_for(name, checked_scope(skill.scope, f"Skill {name!r}"))
    for part in _parts(skill):
        if isinstance(part, Tool):
            registry.add_tool(part)
        elif isinstance(part, Prompt):
            own = None if part.scope == "all" else part.scope
            registry.add_prompt(part.function, priority=part.priority, scope=own)
        elif isinstance(part, Hook):
            registry.add_hook(part.event, part.function, priority=part.priority)
        else:
            registry.add_handler(part)


def _initialize(registry: Registry, name: str, skill: Skill) -> None:
    """Let a skill register what no decorator can."""
    initialize: Callable[[Registry], object] = skill.initialize
    try:
        given = initialize(registry)
    except Exception as error:
        instead = _INSTEAD.get(error.name or "") if isinstance(error, AttributeError) else None
        raise SkillInitError(
            f"Agent {registry.agent!r}: skill {name!r} could not be initialised: "
            f"{type(error).__name__}: {error}" + (f". Here it is {instead}(...)." if instead else "")
        ) from error
    if given is not None:
        is_async = inspect.isawaitable(given) or inspect.isasyncgen(given)
        if inspect.iscoroutine(given):
            given.close()
        raise SkillInitError(
            f"Agent {registry.agent!r}: initialize of skill {name!r} "
            + ("is async" if is_async else f"returned a {type(given).__name__} instead of nothing")
            + ". An agent is made without an event loop: open what has to be awaited before, and pass it in."
        )


def _parts(skill: Skill) -> Iterator[Any]:
    """Yield what the decorators made of a skill's methods, bound to it, in the order of the class body."""
    names = dict.fromkeys(name for owner in reversed(type(skill).__mro__) for name in vars(owner))
    for name in names:
        declared: object = inspect.getattr_static(skill, name)
        if isinstance(declared, Tool | Prompt | Hook | FunctionHandler):
            yield getattr(skill, name)
