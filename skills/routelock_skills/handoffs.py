"""Handlers in the spelling of webagents: the `handoff` decorator, and `Handoff` with its metadata."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast, overload

from routelock._hints import hint_keywords
from routelock._peer_names import HANDLER_KEYWORDS
from routelock.errors import ConfigError
from routelock.handlers.events import HandlerEvent
from routelock.handlers.function_handler import FunctionHandler, function_handler
from routelock.handlers.port import Priority, Request, copy_of
from routelock.scopes import Scope

__all__ = ["Handoff", "handoff"]

_TO_AGENTS = "A handoff to an agent is made by routelock.handoff(agent)."

_OFFERED = "nothing: the model is always offered transfer_to_<name>"


@overload
def handoff(
    function: Callable[..., Any],
    /,
    *,
    name: str | None = None,
    family: str | None = None,
    priority: int = Priority.CUSTOM,
    scope: Scope = "all",
    prompt: str | None = None,
) -> FunctionHandler: ...


@overload
def handoff(
    *,
    name: str | None = None,
    family: str | None = None,
    priority: int = Priority.CUSTOM,
    scope: Scope = "all",
    prompt: str | None = None,
) -> Callable[[Callable[..., Any]], FunctionHandler]: ...


@hint_keywords({**HANDLER_KEYWORDS, "auto_tool": _OFFERED, "expose": _OFFERED})
def handoff(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    family: str | None = None,
    priority: int = Priority.CUSTOM,
    scope: Scope = "all",
    prompt: str | None = None,
) -> FunctionHandler | Callable[[Callable[..., Any]], FunctionHandler]:
    """Make a handler that the model may hand over to: ``@handoff`` or ``@handoff(prompt="...")``.

    It is `routelock.handler` with ``expose=True``: the model is offered ``transfer_to_<name>``, with
    ``prompt`` as its description. A handler made with `routelock.handler` is not offered to the model; it is
    used by its priority, as a fallback, or by a `routelock.HandoffRequest`.

    Args:
        function: an async function or async generator, see `routelock.handlers.function_handler`.
        name: its name; default: that of the function.
        family: the family whose private fields it can read, see `routelock.handlers.family_of`.
        priority: the handler of an agent with the lowest number is its default, with which each run begins.
            While another handler is active, the model is offered a handoff back to it.
        scope: the scope that a run needs to use it, see `routelock.scopes`.
        prompt: tells the model when to hand over to it. The docstring is never shown.

    Raises:
        ConfigError: the function cannot be a handler, or an option is of the wrong type.
    """

    def make(function: Callable[..., Any]) -> FunctionHandler:
        if not callable(cast(object, function)):
            raise ConfigError(
                f"routelock_skills.handoff makes a handler of a function, not of {function!r:.80}. "
                f"{_TO_AGENTS}"
            )
        return function_handler(
            function, name=name, family=family, priority=priority, scope=scope, prompt=prompt, expose=True
        )

    return make if function is None else make(function)


@dataclass(frozen=True)
class Handoff:
    """A handler as webagents declares it, for ``Agent(handlers=[...])``.

    It answers with ``metadata["function"]``. New code writes `handoff` or `routelock.handler` instead.

    Args:
        target: the handler's name.
        description: tells the model when to use it.
        scope: the scope that a run needs to use it, see `routelock.scopes`.
        metadata: ``function``, an async function or async generator; ``priority``, default 50; ``auto_tool``,
            whether the model is offered ``transfer_to_<target>``. ``is_generator`` is ignored, and other keys
            are kept without effect.

    Raises:
        ConfigError: there is no function, or the function cannot be a handler.
    """

    target: str
    description: str = ""
    scope: Scope = "all"
    metadata: Mapping[str, Any] | None = None
    _handler: FunctionHandler = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(cast(object, self.target), str):
            raise ConfigError(
                "The target of routelock_skills.Handoff is the name of a handler, not "
                f"{self.target!r:.80}. {_TO_AGENTS}"
            )
        known = dict(self.metadata or {})
        function: object = known.get("function")
        if function is None:
            raise ConfigError(
                f"No function for handoff: {self.target}. Put the function that answers into its metadata: "
                "Handoff(target, metadata={'function': answer}), where answer is an async function."
            )
        made = function_handler(
            cast("Callable[..., Any]", function),
            name=self.target,
            priority=known.get("priority", Priority.CUSTOM),
            scope=self.scope,
            prompt=self.description or None,
            expose=known.get("auto_tool", False),
        )
        vars(self).update(metadata=known, scope=made.scope, _handler=made)

    @property
    def name(self) -> str:
        """The target."""
        return self.target

    @property
    def family(self) -> str:
        """The family whose private fields it can read: its own."""
        return self._handler.family

    @property
    def priority(self) -> int:
        """The place among the agent's handlers; the lowest number comes first."""
        return self._handler.priority

    @property
    def prompt(self) -> str | None:
        """The description, if there is one."""
        return self._handler.prompt

    @property
    def expose(self) -> bool:
        """Whether the model is offered ``transfer_to_<target>``."""
        return self._handler.expose

    def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        """Answer with the function."""
        return self._handler.stream(copy_of(request))
