"""A model of any vendor, as a skill."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from routelock.agents.registry import Registry
from routelock.agents.skill import Skill
from routelock.errors import ConfigError
from routelock.handlers.port import Priority
from routelock.scopes import Scope
from routelock_providers.litellm.handler import LiteLLM

__all__ = ["LiteLLMSkill"]


class LiteLLMSkill(Skill):
    """Lets a model answer, through litellm.

    It is the agent's default unless another handler has a lower priority. Several of these skills are a
    fallback chain for ``RunConfig(fallback=True)``. litellm is imported at the first call.

    Args:
        model: litellm's model string, such as ``"openai/gpt-4o"``.
        api_key: the key; default: the vendor's environment variable.
        api_base: another endpoint that speaks the vendor's protocol.
        timeout: seconds for one whole reply, streamed or not; None for no limit.
        chunk_timeout: seconds between two events of a stream; None for no limit.
        settings: settings for every call, see `routelock_providers.LiteLLM`; the agent's own win.
        name: the name of the skill and its handler; default ``litellm_<model>``.
        priority: its place among the agent's handlers; the lowest number comes first.
        scope: the scope that a run needs to use it, see `routelock.scopes`; default: that of the class,
            ``"all"``.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        api_base: str | None = None,
        timeout: float | None = 600.0,
        chunk_timeout: float | None = 120.0,
        settings: Mapping[str, Any] | None = None,
        name: str | None = None,
        priority: int = Priority.LOCAL,
        scope: Scope | None = None,
    ) -> None:
        if not isinstance(cast(object, model), str):
            raise ConfigError(
                f"LiteLLMSkill takes litellm's model string, such as 'openai/gpt-4o', not {model!r:.80}. "
                "Other settings are named: LiteLLMSkill(model, api_key=..., settings={...})."
            )
        self.handler: LiteLLM = LiteLLM(
            model,
            api_key=api_key,
            api_base=api_base,
            timeout=timeout,
            chunk_timeout=chunk_timeout,
            settings=settings,
            name=name,
            priority=priority,
        )
        super().__init__(name=self.handler.name, scope=scope)

    def initialize(self, registry: Registry) -> None:
        """Register the model."""
        registry.add_handler(self.handler, source=self.name, scope=self.scope)
