"""What is registered on an agent, beside what its declaration lists: handlers, and all that skills bring.

A `Registry` is open while an agent is made and closed before it is used: agents are immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from routelock._callables import MaybeAwaitable
from routelock._tool_names import litellm_name
from routelock.agents.hooks import AgentHooks
from routelock.errors import ConfigError
from routelock.handlers.function_handler import function_handler
from routelock.handlers.port import Handler, Priority
from routelock.scopes import Scope, checked_scope, permits
from routelock.tools.decorators import is_function
from routelock.tools.decorators import tool as tool_of
from routelock.tools.tool import Tool

__all__ = ["PromptSection", "Registered", "RegisteredHandler", "Registry", "checked_event", "register"]


_OWN = "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSection:
    """A part of the system prompt."""

    text: str | Callable[..., MaybeAwaitable[str]]
    """Text, or a sync or async function of nothing, of the context, or of the context and the agent."""
    priority: int
    scope: Scope = "all"
    name: str = ""
    """Whose it is, for messages; the handler's name if ``of_handler``."""
    of_handler: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredHandler:
    """A handler with its priority among those of one agent."""

    name: str
    handler: Handler | str
    """A model string stands for the bundled LiteLLM handler, which is loaded when it is needed."""
    priority: int
    scope: Scope = "all"
    prompt: str | None = None
    expose: bool = False
    source: str = _OWN
    """The skill that brought it, or ``agent``."""

    @property
    def section(self) -> PromptSection | None:
        """Its part of the system prompt, if it has one."""
        if not self.prompt:
            return None
        return PromptSection(
            text=self.prompt, priority=self.priority, scope=self.scope, name=self.name, of_handler=True
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What a finished `Registry` holds; each list in its order."""

    handlers: tuple[RegisteredHandler, ...] = ()
    """By priority, and then as they were registered: the first is the default."""
    tools: tuple[Tool, ...] = ()
    sections: tuple[PromptSection, ...] = ()
    """By priority; the prompts of skills and of handlers."""
    hooks: Mapping[str, tuple[Callable[..., Any], ...]] = field(
        default_factory=dict[str, tuple[Callable[..., Any], ...]]
    )
    """By event; callables of what a method of `routelock.AgentHooks` is given."""

    def get(self, name: str) -> RegisteredHandler | None:
        """Return the handler of that name."""
        return next((each for each in self.handlers if each.name == name), None)

    def opens(self, handler: Handler, granted: Collection[str]) -> bool:
        """Whether a run with these scopes may reach a handler, be it one of these or any other."""
        known = self.get(handler.name)
        scopes: list[Scope] = [getattr(handler, "scope", "all"), "all" if known is None else known.scope]
        return all(permits(scope, granted) for scope in scopes)


class Registry:
    """Collects what is registered on an agent; a skill is given it when it is initialised.

    Args:
        agent: the name of the agent.
        skills: the agent's skills by name; a skill finds those that it depends on initialised.
    """

    def __init__(self, agent: str, skills: Mapping[str, Any] | None = None) -> None:
        self.agent = agent
        self.skills: Mapping[str, Any] = skills or {}
        self._handlers: dict[str, RegisteredHandler] = {}
        self._tools: list[Tool] = []
        self._sections: list[PromptSection] = []
        self._hooks: list[tuple[int, str, Callable[..., Any]]] = []
        self._closed = False
        self._source = _OWN
        self._scope: Scope = "all"

    def speak_for(self, skill: str, scope: Scope) -> None:
        """Take what is added from now on for a skill's, open to ``scope`` unless it says otherwise."""
        self._source, self._scope = skill, scope

    def add_handler(
        self,
        handler: Handler | Callable[..., Any],
        *,
        source: str | None = None,
        scope: Scope | None = None,
    ) -> None:
        """Register a handler, or a function that becomes one.

        One with the same name from the same skill replaces the earlier one.

        Args:
            handler: its own ``priority``, ``scope``, ``prompt`` and ``expose`` count.
            source: who brings it; the skill that is being initialised when left out.
            scope: used if the handler has none of its own; the skill's when left out.

        Raises:
            ConfigError: it cannot answer, or another handler of that name comes from elsewhere.
        """
        source, scope = self._source if source is None else source, self._own(scope)
        self.add_registered(register(handler, source=source, scope=scope))

    def add_registered(self, registered: RegisteredHandler) -> None:
        """Add a handler that `register` made."""
        self._open()
        other = self._handlers.get(registered.name)
        if other is not None and other.handler != registered.handler and _both_count(other, registered):
            raise ConfigError(
                f"Agent {self.agent!r}: two handlers are named {registered.name!r}, one of {other.source!r} "
                f"and one of {registered.source!r}. Give one another name."
            )
        self._handlers[registered.name] = registered

    def get(self, name: str) -> dict[str, Any] | None:
        """Return what is known of a registered handler; None when there is none."""
        return next((each for each in self.list() if each["target"] == name), None)

    def list(self) -> list[dict[str, Any]]:
        """Return what is known of all registered handlers, in their order."""
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

        ``scope``, or else that of the skill, is used if the tool is open to all.
        """
        self._open()
        scope = self._own(scope)
        if is_function(tool):
            tool = tool_of(tool)
        if not isinstance(tool, Tool):
            raise ConfigError(f"Agent {self.agent!r}: {tool!r:.80} is not a Tool; wrap functions with @tool.")
        self._tools.append(tool if scope == "all" or tool.scope != "all" else replace(tool, scope=scope))

    def add_prompt(
        self,
        text: str | Callable[..., MaybeAwaitable[str]],
        *,
        priority: int = Priority.CUSTOM,
        scope: Scope | None = None,
        name: str = "",
    ) -> None:
        """Add a section to the system prompt: text, or a function of the context and the agent."""
        self._open()
        name = name or self._source
        scope = checked_scope(self._own(scope), f"A prompt of {name!r}")
        self._sections.append(PromptSection(text=text, priority=priority, scope=scope, name=name))

    def add_hook(self, event: str, function: Callable[..., Any], *, priority: int = Priority.CUSTOM) -> None:
        """Call ``function`` at an event, with what that method of `routelock.AgentHooks` is given.

        Raises:
            ConfigError: there is no such event.
        """
        self._open()
        self._hooks.append((priority, checked_event(event), function))

    def close(self) -> Registered:
        """Return what was collected. Nothing can be added any more."""
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

    def _own(self, scope: Scope | None) -> Scope:
        return self._scope if scope is None else scope

    def _by_priority(self) -> Sequence[RegisteredHandler]:
        return sorted(self._handlers.values(), key=lambda each: each.priority)

    def _open(self) -> None:
        if self._closed:
            raise ConfigError(
                f"Agent {self.agent!r} is finished, and agents do not change. Register in Skill.initialize, "
                "or make another agent with dataclasses.replace(agent, handlers=[...])."
            )


def checked_event(event: str) -> str:
    """Return the name of an event that hooks can be called at.

    Raises:
        ConfigError: there is no such event.
    """
    known = [name for name in vars(AgentHooks) if name.startswith("on_")]
    if event not in known:
        raise ConfigError(f"There is no hook {event!r}. There are: {', '.join(known)}.")
    return event


def _both_count(one: RegisteredHandler, other: RegisteredHandler) -> bool:
    """Whether neither may replace the other: a skill may register anew, a declaration is no sequence."""
    return one.source != other.source or one.source == _OWN


def register(
    handler: Handler | Callable[..., Any] | str,
    *,
    priority: int = Priority.CUSTOM,
    source: str = _OWN,
    scope: Scope = "all",
) -> RegisteredHandler:
    """Return a handler with its priority, scope and source.

    Args:
        handler: a handler, a function that becomes one, or a model string.
        priority: used if the handler has none of its own; ``scope`` likewise.
        source: who brings it.
        scope: see ``priority``.

    Raises:
        ConfigError: it cannot answer.
    """
    if isinstance(handler, str):
        return RegisteredHandler(
            name=litellm_name(handler), handler=handler, priority=priority, source=source
        )
    found = handler if callable(getattr(handler, "stream", None)) else _made(handler)
    name: object = getattr(found, "name", None)
    if not isinstance(name, str) or not name:
        raise ConfigError(f"A handler needs a name; {handler!r:.80} has {name!r}.")
    own = getattr(found, "scope", "all")
    return RegisteredHandler(
        name=name,
        handler=cast(Handler, found),
        priority=_number(getattr(found, "priority", None), priority, name),
        scope=checked_scope(scope if own == "all" else own, f"Handler {name!r}"),
        prompt=getattr(found, "prompt", None),
        expose=bool(getattr(found, "expose", False)),
        source=source,
    )


def _made(function: Any) -> Handler:
    if not callable(function):
        raise ConfigError(
            f"A handler has a name and a stream method, or is an async function; {function!r:.80} is neither."
        )
    return function_handler(function)


def _number(given: object, default: int, name: str) -> int:
    if given is None:
        return default
    if not isinstance(given, int):
        raise ConfigError(
            f"Handler {name!r}: priority must be a whole number, lower first, not {given!r:.80}."
        )
    return given
