"""The registry of an agent: its handlers, and the tools, prompts and hooks of its skills.

A `Registry` is open while the agent is made, and closed before the agent is used, because agents are
immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from routelock._callables import MaybeAwaitable
from routelock._hints import hint_attributes
from routelock._peer_names import HOOKS, REGISTRY
from routelock._tool_names import litellm_name
from routelock.agents.hooks import AgentHooks
from routelock.errors import ConfigError
from routelock.handlers.function_handler import function_handler
from routelock.handlers.port import Handler, Priority, written_name
from routelock.scopes import Scope, checked_scope, permits
from routelock.tools.decorators import is_function, is_tool
from routelock.tools.decorators import tool as tool_of
from routelock.tools.tool import Tool

__all__ = [
    "PromptSection",
    "Registered",
    "RegisteredHandler",
    "Registry",
    "checked_event",
    "collect",
    "collect_errors",
    "register",
]


Each = TypeVar("Each")


_AGENT_ITSELF = "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSection:
    """A section of the system prompt."""

    text: str | Callable[..., MaybeAwaitable[str]]
    """Text, or a sync or async function of (), (context) or (context, agent)."""
    priority: int
    scope: Scope = "all"
    name: str = ""
    """The name of the skill, for errors; the name of the handler if ``of_handler``."""
    of_handler: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredHandler:
    """A handler of an agent, with its priority."""

    name: str
    handler: Handler | str
    """The handler, or a model string for the bundled LiteLLM handler, which is imported when it is used."""
    priority: int
    scope: Scope = "all"
    prompt: str | None = None
    expose: bool = False
    source: str = _AGENT_ITSELF
    """The name of the skill that added the handler, or ``agent``."""

    @property
    def written(self) -> str:
        """The name to show: the model as the user wrote it, or the name if the user gave one."""
        return self.handler if isinstance(self.handler, str) else written_name(self.handler)

    @property
    def section(self) -> PromptSection | None:
        """The section of the system prompt with the handler's ``prompt``; None if it has none."""
        if not self.prompt:
            return None
        return PromptSection(
            text=self.prompt, priority=self.priority, scope=self.scope, name=self.name, of_handler=True
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The contents of a closed `Registry`, in the order in which they apply."""

    handlers: tuple[RegisteredHandler, ...] = ()
    """The handlers by priority, then by registration; the first is the default."""
    tools: tuple[Tool, ...] = ()
    sections: tuple[PromptSection, ...] = ()
    """The prompts of skills and of handlers, by priority."""
    hooks: Mapping[str, tuple[Callable[..., Any], ...]] = field(default_factory=lambda: {})
    """The hooks by event; each takes the arguments of that method of `routelock.AgentHooks`."""

    def get(self, name: str) -> RegisteredHandler | None:
        """Return the handler with that name."""
        return next((each for each in self.handlers if each.name == name), None)

    def opens(self, handler: Handler, granted: Collection[str]) -> bool:
        """Whether a run with these scopes may use a handler, registered or not."""
        known = self.get(handler.name)
        scopes: list[Scope] = [getattr(handler, "scope", "all"), "all" if known is None else known.scope]
        return all(permits(scope, granted) for scope in scopes)


@hint_attributes(REGISTRY)
class Registry:
    """Collects the handlers, tools, prompts and hooks of an agent; passed to `Skill.initialize`.

    Args:
        agent: the name of the agent.
        skills: the agent's skills by name. The dependencies of a skill are initialised before the skill.
    """

    def __init__(self, agent: str, skills: Mapping[str, Any] | None = None) -> None:
        self.agent = agent
        self.skills: Mapping[str, Any] = skills or {}
        self._handlers: dict[str, RegisteredHandler] = {}
        self._tools: list[Tool] = []
        self._sections: list[PromptSection] = []
        self._hooks: list[tuple[int, str, Callable[..., Any]]] = []
        self._closed = False
        self._source = _AGENT_ITSELF
        self._scope: Scope = "all"

    def begin_skill(self, skill: str, scope: Scope) -> None:
        """Attribute all later additions to a skill, with ``scope`` as their default scope."""
        self._source, self._scope = skill, scope

    def add_handler(
        self,
        handler: Handler | Callable[..., Any],
        *,
        source: str | None = None,
        scope: Scope | None = None,
    ) -> None:
        """Register a handler, or a function that becomes one.

        It replaces an earlier handler of the same name from the same skill.

        Args:
            handler: the handler, with its own ``priority``, ``scope``, ``prompt`` and ``expose``.
            source: the name of its skill; by default the skill that is being initialised.
            scope: the scope of a handler that has none; by default that of the skill.

        Raises:
            ConfigError: the object is not a handler, or another source has registered a handler of that name.
        """
        source, scope = self._source if source is None else source, self._scope_or_default(scope)
        self.add_registered(register(handler, source=source, scope=scope))

    def add_registered(self, registered: RegisteredHandler) -> None:
        """Add a handler that `register` returned."""
        self._open()
        other = self._handlers.get(registered.name)
        if other is not None and other.handler != registered.handler and _conflict(other, registered):
            raise ConfigError(
                f"Agent {self.agent!r}: two handlers are named {registered.name!r}, one from "
                f"{other.source!r} and one from {registered.source!r}. Rename one of them."
            )
        self._handlers[registered.name] = registered

    def get(self, name: str) -> dict[str, Any] | None:
        """Return the description of a registered handler, as `list` does; None if there is none."""
        return next((each for each in self.list() if each["target"] == name), None)

    def list(self) -> list[dict[str, Any]]:
        """Return a description of each registered handler as a dict, in their order."""
        return [
            {
                "target": each.name,
                "description": each.prompt,
                "priority": each.priority,
                "source": each.source,
                "scope": each.scope,
            }
            for each in self._by_priority()
        ]

    def add_tool(self, tool: Tool | Callable[..., Any], *, scope: Scope | None = None) -> None:
        """Add a tool, or a plain function that becomes one.

        Args:
            tool: the tool.
            scope: the scope of the tool, if it has none of its own; by default that of the skill.
        """
        self._open()
        scope = self._scope_or_default(scope)
        made: Any = tool_of(tool) if is_function(tool) else tool
        if not is_tool(made):
            raise ConfigError(f"Agent {self.agent!r}: {made!r:.80} is not a Tool; wrap functions with @tool.")
        self._tools.append(made if scope == "all" or made.scope != "all" else replace(made, scope=scope))

    def add_prompt(
        self,
        text: str | Callable[..., MaybeAwaitable[str]],
        *,
        priority: int = Priority.CUSTOM,
        scope: Scope | None = None,
        name: str = "",
    ) -> None:
        """Add a section to the system prompt.

        Args:
            text: the text, or a sync or async function of the context and the agent that returns it.
            priority: the order of sections, lower first.
            scope: which runs have the section; by default the scope of the skill.
            name: the name of the section, for errors; by default that of the skill.

        Raises:
            ConfigError: the scope is neither a name nor a list of names, or the priority no whole number.
        """
        self._open()
        name = name or self._source
        priority = _checked_priority(priority, f"A prompt of {name!r}")
        scope = checked_scope(self._scope_or_default(scope), f"A prompt of {name!r}")
        self._sections.append(PromptSection(text=text, priority=priority, scope=scope, name=name))

    def add_hook(self, event: str, function: Callable[..., Any], *, priority: int = Priority.CUSTOM) -> None:
        """Call ``function`` at an event, with the arguments of that method of `routelock.AgentHooks`.

        Args:
            event: the name of a method of `routelock.AgentHooks`.
            function: the sync or async function to call.
            priority: the order of hooks of one event, lower first.

        Raises:
            ConfigError: there is no such event, or the priority is no whole number.
        """
        self._open()
        priority = _checked_priority(priority, f"A hook of {self._source!r}")
        self._hooks.append((priority, checked_event(event), function))

    def close(self) -> Registered:
        """Close the registry and return its contents."""
        self._open()
        self._closed = True
        handlers = self._by_priority()
        prompts = [section for each in handlers if (section := each.section)]
        hooks: dict[str, tuple[Callable[..., Any], ...]] = {}
        for _, event, function in sorted(self._hooks, key=lambda hook: hook[0]):
            hooks[event] = (*hooks.get(event, ()), function)
        return Registered(
            handlers=tuple(handlers),
            tools=tuple(self._tools),
            sections=tuple(sorted([*self._sections, *prompts], key=lambda section: section.priority)),
            hooks=hooks,
        )

    def _scope_or_default(self, scope: Scope | None) -> Scope:
        return self._scope if scope is None else scope

    def _by_priority(self) -> Sequence[RegisteredHandler]:
        return sorted(self._handlers.values(), key=lambda each: each.priority)

    def _open(self) -> None:
        if self._closed:
            raise ConfigError(
                f"Agent {self.agent!r} is made already, and agents are immutable. Register in "
                "Skill.initialize, or make another agent with dataclasses.replace(agent, handlers=[...])."
            )


@contextmanager
def collect_errors(wrong: list[ConfigError]) -> Generator[None]:
    """Append a ConfigError of the block to ``wrong`` instead of raising it."""
    try:
        yield
    except ConfigError as error:
        wrong.append(error)


def collect(wrong: list[ConfigError], make: Callable[[Any], Each], given: Iterable[Any]) -> list[Each]:
    """Return what ``make`` returns for each element, and append its ConfigErrors to ``wrong``."""
    made: list[Each] = []
    for each in given:
        with collect_errors(wrong):
            made.append(make(each))
    return made


def checked_event(event: str) -> str:
    """Return the name of an event after a check that hooks have it.

    Raises:
        ConfigError: there is no such event.
    """
    known = [name for name in vars(AgentHooks) if name.startswith("on_")]
    if event in HOOKS:
        raise ConfigError(f"There is no hook {event!r}: write {HOOKS[event]}.")
    if event not in known:
        raise ConfigError(f"There is no hook {event!r}. There are: {', '.join(known)}.")
    return event


def _conflict(one: RegisteredHandler, other: RegisteredHandler) -> bool:
    """Whether two handlers of one name conflict; only a skill may replace its own handler."""
    return one.source != other.source or one.source == _AGENT_ITSELF


def register(
    handler: Handler | Callable[..., Any] | str,
    *,
    priority: int = Priority.CUSTOM,
    source: str = _AGENT_ITSELF,
    scope: Scope = "all",
) -> RegisteredHandler:
    """Return a handler with its priority, scope and source.

    Args:
        handler: a handler, a function that becomes one, or a model string.
        priority: the priority of a handler that has none.
        source: the name of its skill, or ``agent``.
        scope: the scope of a handler that has none.

    Raises:
        ConfigError: the object is not a handler.
    """
    if isinstance(handler, str):
        return RegisteredHandler(
            name=litellm_name(handler), handler=handler, priority=priority, source=source
        )
    found = handler if callable(getattr(handler, "stream", None)) else _handler_of(handler)
    name: object = getattr(found, "name", None)
    if not isinstance(name, str) or not name:
        raise ConfigError(f"A handler needs a name; {handler!r:.80} has {name!r}.")
    own, given = getattr(found, "scope", "all"), getattr(found, "priority", None)
    return RegisteredHandler(
        name=name,
        handler=cast(Handler, found),
        priority=_checked_priority(priority if given is None else given, f"Handler {name!r}"),
        scope=checked_scope(scope if own == "all" else own, f"Handler {name!r}"),
        prompt=getattr(found, "prompt", None),
        expose=bool(getattr(found, "expose", False)),
        source=source,
    )


def _handler_of(function: Any) -> Handler:
    if not callable(function):
        raise ConfigError(
            f"{function!r:.80} is not a handler. Pass an object with a name and a stream method, or an async "
            "function."
        )
    return function_handler(function)


def _checked_priority(given: object, where: str) -> int:
    if not isinstance(given, int):
        raise ConfigError(f"{where}: priority must be a whole number, lower first, not {given!r:.80}.")
    return given
