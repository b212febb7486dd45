"""Every vendor that LiteLLM knows, as one handler."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from routelock._tool_names import litellm_name
from routelock.errors import ConfigError
from routelock.handlers.events import HandlerEvent
from routelock.handlers.model_settings import settings_problems
from routelock.handlers.port import Request, about_to_ask
from routelock_providers.deadlines import check_seconds, deadline_for
from routelock_providers.errors import cause_of, to_provider_error
from routelock_providers.http.body import MOST_BYTES
from routelock_providers.http_errors import no_key
from routelock_providers.litellm.exchange import Exchange
from routelock_providers.litellm.library import (
    is_loaded,
    load_in_a_thread,
    load_litellm,
    reads_no_file,
    settle_with_the_loop,
)
from routelock_providers.litellm.request import Target, call_for, find_target
from routelock_providers.structured_output import AnswerEvents
from routelock_providers.vendors import family_for, lacks_key, split_model

__all__ = ["LiteLLM"]


_ELSEWHERE = frozenset(
    "api_key api_base base_url client custom_llm_provider extra_headers headers litellm_credential_name "
    "mock_response shared_session use_xai_oauth".split()
)
"""Settings that may bring a key, another address or an answer."""


class LiteLLM:
    """A handler that asks one model through litellm; it runs on asyncio, because litellm does.

    litellm is imported at the first call, in a thread, so that the event loop goes on; see
    `routelock_providers.load_litellm`. Calls are made once: retrying is the run's.

    Args:
        model: litellm's model string, such as ``"anthropic/claude-haiku-4-5"`` or
            ``"openai/responses/gpt-5"``. OpenAI's models go to the chat API unless the string says
            ``responses/`` or the model has no other.
        api_key: the key; default: the vendor's environment variable.
        api_base: another endpoint that speaks the vendor's protocol.
        timeout: seconds for one whole reply, streamed or not; None for no limit.
        chunk_timeout: seconds that a stream may be silent once it has begun; comments that keep the
            connection alive are silence. None for no limit.
        max_bytes: what one reply may have at most, unpacked; None for no limit. A longer one is an error,
            and is not read. It holds where routelock carries the answer to litellm, which it does for all
            but a few vendors.
        settings: anything that ``litellm.acompletion`` takes, for every call; a request's own
            settings win. ``tools`` of the vendor's own stand beside the agent's. ``drop_params=False``
            makes a setting that the vendor does not know an error.
        name: the handler's name; default ``litellm_<model>``.
        priority: of the handlers of an agent, the lower number comes first.

    Raises:
        ConfigError: an argument that cannot work.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        api_base: str | None = None,
        timeout: float | None = 600.0,
        chunk_timeout: float | None = 120.0,
        max_bytes: int | None = MOST_BYTES,
        settings: Mapping[str, Any] | None = None,
        name: str | None = None,
        priority: int = 10,
    ) -> None:
        if not model:
            raise ConfigError("LiteLLM needs a model string such as 'openai/gpt-4o-mini', not an empty one.")
        if wrong := settings_problems(settings or {}, allowed=("tools",)):
            raise ConfigError(f"LiteLLM({model!r}): {'; '.join(wrong)}.")
        check_seconds(timeout=timeout, chunk_timeout=chunk_timeout)
        self.model = model
        self.provider = split_model(model)[0]
        self.name = name or litellm_name(model)
        self.priority = priority
        self.family = family_for(model, api_base)
        """Messages keep what belongs to their vendor for models of the same family only."""
        self._api_key = api_key
        self._api_base = api_base
        self._limits = (timeout, chunk_timeout)
        self._max_bytes = max_bytes
        self._settings = dict(settings or {})

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        """Ask the model; stream the reply if the request is being watched.

        Raises:
            ProviderError: whatever went wrong, see `routelock.errors`.
            ModelBehaviorError: a tool had to be called and was not, by a vendor that cannot be told.
            ConfigError: the event loop is not asyncio's.
        """
        about_to_ask(self.model, request)
        if not is_loaded():  # which takes seconds, for nothing
            self._check_key(request.settings)
        await self._load()
        exchange = self._exchange(request)
        events = AnswerEvents(exchange.call.plan.answer_tool)
        try:
            while (chunk := await exchange.next_chunk()) is not None:
                for event in exchange.told(chunk):
                    shown = events.shown(event)
                    if request.stream and shown is not None:
                        yield shown
            done = exchange.finish()
            yield done
            exchange.check_choice(done)
        finally:
            await exchange.close()

    def target(self) -> Target:
        """Return whom litellm would ask, which may take seconds the first time. Nothing is sent."""
        return find_target(load_litellm(), self.model, self._api_base, self._api_key)

    async def _load(self) -> None:
        self._check_loop()
        try:
            await load_in_a_thread()
            await settle_with_the_loop()
        except Exception as error:
            meant = to_provider_error(error, provider=self.provider, model=self.model)
            raise meant from cause_of(meant, error)

    def _check_key(self, settings: Mapping[str, Any]) -> None:
        """See whether there can be a key, before litellm is there to ask.

        Raises:
            AuthenticationFailed: there can be none.
        """
        told = self._api_key or self._api_base or not _ELSEWHERE.isdisjoint([*self._settings, *settings])
        if not told and reads_no_file() and lacks_key(self.provider, os.environ):
            raise no_key(self.provider, self.model, f"such as LiteLLM({self.model!r}, api_key=...)")

    def _exchange(self, request: Request) -> Exchange:
        """Prepare the call; nothing is sent yet."""
        earlier, provider = sys.exception(), self.provider
        deadline = deadline_for(*self._limits, provider=provider, model=self.model)
        try:
            litellm, target = load_litellm(), self.target()
            call = call_for(litellm, target, request, self._settings)
        except Exception as error:
            meant = to_provider_error(error, provider=provider, model=self.model, until=earlier)
            raise meant from cause_of(meant, error)
        return Exchange(litellm, self.model, target, call, deadline, earlier, self._max_bytes)

    def _check_loop(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError as error:
            raise ConfigError(
                f"{self.name} needs asyncio, because litellm does. Run it with asyncio, or on trio use "
                "routelock_providers.OpenAI with the vendor's base_url."
            ) from error
