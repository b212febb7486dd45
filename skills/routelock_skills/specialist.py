"""A specialist: answers for the same agent with another system prompt and a model of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, cast

from routelock._callables import MaybeAwaitable, argument_count, callback_errors, resolve
from routelock.agents.registry import Registry
from routelock.agents.skill import Skill
from routelock.errors import ConfigError, ModelBehaviorError
from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.handlers.model_settings import settings_problems
from routelock.handlers.port import Handler, Priority, Request, family_of, is_handler
from routelock.history.messages import Message, calls_of
from routelock.scopes import Scope, checked_scope
from routelock_providers.litellm.handler import LiteLLM

__all__ = ["SpecialistSkill"]


_Instructions = str | Callable[..., MaybeAwaitable[str]]


class SpecialistSkill(Skill):
    """Lets a specialist take over the conversation, with other instructions and its own model.

    The model of the agent is offered ``transfer_to_<name>``; a tool hands over by returning
    ``HandoffRequest(name)``. The specialist then answers for the rest of the run, and the next run starts
    with the agent's default again.

    The specialist sees the whole conversation with all tool results. Its own system prompt replaces the
    prompts of the agent and its skills; without such a prompt it replaces a system message at the beginning
    of the input. It may use the agent's tools, so that it can continue the work. With ``tools=False`` it is
    offered none, and a call is a `ModelBehaviorError`. Use a `routelock.Agent` and a handoff instead if it
    needs tools of its own, or must not see everything.

    Args:
        name: the name of the skill and its handler.
        instructions: the system prompt: text, or a sync or async function that takes the context or nothing.
        model: a LiteLLM model string such as ``"openai/gpt-5"``, or any handler.
        prompt: tells the model when to hand over to it.
        priority: its place among the agent's handlers; the lowest number comes first.
        scope: the scope that a run needs to use it, see `routelock.scopes`; default: that of the class,
            ``"all"``.
        settings: settings for every call, such as ``{"temperature": 0}``. They win over the agent's own; None
            removes one of the agent's.
        tools: whether it may use the agent's tools and hand over further.
        expose: whether the model is offered ``transfer_to_<name>``; if not, only code hands over.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(
        self,
        name: str,
        instructions: str | Callable[..., MaybeAwaitable[str]],
        *,
        model: str | Handler,
        prompt: str | None = None,
        priority: int = Priority.CUSTOM,
        scope: Scope | None = None,
        settings: Mapping[str, Any] | None = None,
        tools: bool = True,
        expose: bool = True,
    ) -> None:
        _check(name, instructions, model, settings or {})
        super().__init__(name=name, scope=scope)
        self.handler: Handler = _Specialist(
            name=name,
            prompt=prompt,
            priority=priority,
            scope=checked_scope(self.scope, f"Specialist {name!r}"),
            expose=expose,
            instructions=instructions,
            inner=LiteLLM(model) if isinstance(model, str) else model,
            settings=dict(settings or {}),
            tools=tools,
        )

    def initialize(self, registry: Registry) -> None:
        """Register the specialist."""
        registry.add_handler(self.handler, source=self.name, scope=self.scope)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Specialist:
    """Asks another handler, with its own system prompt and settings."""

    name: str
    prompt: str | None
    priority: int
    scope: Scope
    expose: bool
    instructions: _Instructions
    inner: Handler
    settings: Mapping[str, Any]
    tools: bool

    @property
    def family(self) -> str:
        return family_of(self.inner)

    def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        if isinstance(self.instructions, str) and self.tools:
            return self.inner.stream(self._request(request, self.instructions))
        return self._stream(request)

    async def _stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        changed = self._request(request, await self._system_prompt(request))
        async with aclosing(self.inner.stream(changed)) as events:
            async for event in events:
                if isinstance(event, MessageDone) and not self.tools:
                    self._refuse_calls(event.message)
                yield event

    async def _system_prompt(self, request: Request) -> str:
        if isinstance(self.instructions, str):
            return self.instructions
        with callback_errors(f"The instructions of specialist {self.name!r}"):
            given = (request.context,)[: argument_count(self.instructions, 1)]
            text = cast("object", await resolve(self.instructions(*given)))
            if not isinstance(text, str | None):
                raise TypeError(f"they must be text, not {type(text).__name__}")
        return text or ""

    def _request(self, request: Request, prompt: str) -> Request:
        rest = request.messages
        if rest and rest[0]["role"] == "system":
            rest = rest[1:]
        system: list[Message] = [{"role": "system", "content": prompt}] if prompt else []
        settings = {**request.settings, **self.settings}
        return replace(
            request,
            messages=[*system, *rest],
            tools=request.tools if self.tools else (),
            tool_choice=request.tool_choice if self.tools else None,
            settings={key: value for key, value in settings.items() if value is not None},
        )

    def _refuse_calls(self, message: Message) -> None:
        """Raise for a tool call, which the run would carry out with the agent's tools."""
        if calls := calls_of(message):
            raise ModelBehaviorError(
                f"Specialist {self.name!r} called tool {calls[0]['function']['name']!r:.80}, but has none. "
                "Pass tools=True if it may use those of the agent."
            )


def _check(name: object, instructions: object, model: object, settings: Mapping[str, Any]) -> None:
    where = f"Specialist {name!r:.80}"
    rules = (
        (isinstance(name, str) and bool(name), "its name must be text that is not empty"),
        (
            isinstance(instructions, str) or callable(instructions),
            f"instructions must be text or a function, not {instructions!r:.80}",
        ),
        (
            isinstance(model, str) or is_handler(model),
            f"model must be a model string or a handler, not {model!r:.80}; wrap a function with "
            "routelock.function_handler(...)",
        ),
    )
    wrong = [message for holds, message in rules if not holds]
    if wrong := wrong + settings_problems(settings, allowed=()):
        raise ConfigError(f"{where}: {'; '.join(wrong)}.")
