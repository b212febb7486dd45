"""`LiteLLM`: a handler for every vendor that the litellm library knows."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from routelock._tool_names import litellm_name
from routelock.errors import ConfigError
from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.handlers.model_settings import settings_problems
from routelock.handlers.port import Request, ToolSpec, about_to_ask
from routelock_providers.deadlines import check_seconds, deadline_for
from routelock_providers.errors import cause_of, to_provider_error
from routelock_providers.http.body import MOST_BYTES
from routelock_providers.http_errors import missing_key_error
from routelock_providers.litellm.exchange import Exchange
from routelock_providers.litellm.library import (
    is_loaded,
    load_in_a_thread,
    load_litellm,
    reads_no_file,
    register_event_loop,
)
from routelock_providers.litellm.request import (
    OWN_CONNECTION,
    Target,
    asked_by_name,
    asked_model,
    call_for,
    find_target,
)
from routelock_providers.model_names import checked_model, suggest_model, unknown_provider_error
from routelock_providers.structured_output import AnswerEvents
from routelock_providers.vendor_items import Collector
from routelock_providers.vendor_tools import added_tools, check_settings
from routelock_providers.vendors import family_for, lacks_key, split_model

__all__ = ["LiteLLM"]


_ROUTE_SETTINGS = frozenset(("api_base", "base_url", "custom_llm_provider", "mock_response"))
"""Settings that may make another server or provider answer."""

_KEY_SETTINGS = _ROUTE_SETTINGS | frozenset(
    "api_key client extra_headers headers litellm_credential_name shared_session use_xai_oauth".split()
)
"""Settings that may hold a key, another address or an answer."""


_ASKED_IN_TWO_WAYS = frozenset(("openai", "azure"))
"""Providers with models that exist on the Responses API only although their names do not say so."""

_MOST_PARTS = 20
"""The most calls for one reply; Anthropic pauses after about ten searches (docs.claude.com, "Stop
reasons")."""


class LiteLLM:
    """A handler that asks one model through litellm; like litellm it runs on asyncio.

    litellm is imported at the first call, in a thread, so that the event loop is not blocked; see
    `routelock_providers.load_litellm`. The run retries; the handler does not.

    Args:
        model: litellm's model string, such as ``"anthropic/claude-haiku-4-5"`` or
            ``"openai/responses/gpt-5"``. OpenAI's models use the chat API unless the string has
            ``responses/`` in it or the model exists on the Responses API only.
        api_key: the key; default: the vendor's environment variable.
        api_base: another endpoint that speaks the vendor's protocol.
        timeout: seconds for one whole reply, streamed or not; None for no limit.
        chunk_timeout: seconds between two events of a stream; comments that keep the connection alive are not
            events. None for no limit.
        max_bytes: the largest unpacked size of one reply; None for no limit. A longer reply is an error and
            is not read to its end. The limit does not apply to the few vendors that litellm asks with a
            client of its own.
        settings: arguments of ``litellm.acompletion`` for every call; the settings of a request win.
            ``tools`` of the vendor are sent beside those of the agent. ``drop_params=False`` makes a setting
            that the vendor does not know an error.
        name: the handler's name; default ``litellm_<model>``.
        priority: the handler's place among those of an agent; the lowest number comes first.

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
        max_bytes: int | None = MOST_BYTES,
        settings: Mapping[str, Any] | None = None,
        name: str | None = None,
        priority: int = 10,
    ) -> None:
        if not checked_model(model, "LiteLLM", "openai/gpt-4o-mini"):
            raise ConfigError("LiteLLM needs a model string such as 'openai/gpt-4o-mini', not an empty one.")
        if wrong := settings_problems(settings or {}, allowed=("tools",)):
            raise ConfigError(f"LiteLLM({model!r}): {'; '.join(wrong)}.")
        check_seconds(timeout=timeout, chunk_timeout=chunk_timeout)
        self.model = model
        self.provider: str = split_model(model)[0]
        self.name: str = name or litellm_name(model)
        self.priority = priority
        self.family: str = family_for(model, api_base)
        """Only models of the same family are sent the vendor's private fields of a message."""
        self._api_key = api_key
        self._api_base = api_base
        self._limits = (timeout, chunk_timeout)
        self._max_bytes = max_bytes
        self._settings = dict(settings or {})

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        """Ask the model; stream the reply if the request asks for it.

        Raises:
            ProviderError: the call failed, see `routelock.errors`.
            ModelBehaviorError: a forced tool choice could not be sent, and the model called no tool.
            ConfigError: the event loop is not asyncio's, or the vendor has no tool that the agent declares.
        """
        about_to_ask(self.model, request)
        if not is_loaded():  # loading takes seconds, which a wrong name or a missing key makes useless
            self._check_name(request.settings)
            self._check_key(request.settings)
        await self._load()
        exchange: Exchange | None = self._exchange(request)
        parts: list[MessageDone] = []
        collectors: list[Collector] = []
        while exchange is not None:
            current, exchange = exchange, None
            try:
                events = AnswerEvents(current.call.plan.answer_tool)
                while (chunk := await current.next_chunk()) is not None:
                    for event in current.events_of(chunk):
                        shown = events.convert(event)
                        if request.stream and shown is not None:
                            yield shown
                parts.append(current.finish())
                collectors += [] if current.collector is None else [current.collector]
                if current.is_paused and len(parts) < _MOST_PARTS:
                    exchange = self._next_exchange(current)
                    continue
                done = current.joined(parts, collectors)
                yield done
                current.check_choice(done)
            finally:
                await current.close()

    def check_vendor_tools(
        self, specs: Sequence[ToolSpec], settings: Mapping[str, Any], *, functions: bool
    ) -> None:
        """Check the vendor's own tools of an agent before a run, see `routelock.Handler`.

        This does not load litellm. Only litellm knows which of OpenAI's APIs serves a model of OpenAI or
        Azure, so without litellm the tools of these models are checked with the request.

        Raises:
            ConfigError: the vendor has no such tool, or a setting asks for the same tool.
        """
        merged = {**self._settings, **settings}
        if self._api_base or not (_ROUTE_SETTINGS | OWN_CONNECTION).isdisjoint(merged):
            return
        provider, name = split_model(self.model)
        responses = name.startswith("responses/")
        if provider in _ASKED_IN_TWO_WAYS and not responses:
            if not is_loaded():
                return
            to = asked_model(self.target())
        else:
            to = asked_by_name(provider, name, responses=responses)
        check_settings(specs, added_tools(specs, to, functions=functions), merged)

    def target(self) -> Target:
        """Return where litellm would send a call. Nothing is sent. The first time it may take seconds.

        Raises:
            ModelNotFound: the name is wrong, which is seen before litellm is loaded.
        """
        if not is_loaded():
            self._check_name({})
        return find_target(load_litellm(), self.model, self._api_base, self._api_key)

    async def _load(self) -> None:
        self._check_loop()
        try:
            await load_in_a_thread()
            await register_event_loop()
        except Exception as error:
            provider_error = to_provider_error(error, provider=self.provider, model=self.model)
            raise provider_error from cause_of(provider_error, error)

    def _check_name(self, settings: Mapping[str, Any]) -> None:
        """Refuse a model name with a typical mistake, without loading litellm.

        Raises:
            ModelNotFound: the name is in the form of another library, or its provider is misspelt.
        """
        is_elsewhere = self._api_base or not _ROUTE_SETTINGS.isdisjoint([*self._settings, *settings])
        if not is_elsewhere and suggest_model(self.model) is not None:
            raise unknown_provider_error(self.model, self.provider)

    def _check_key(self, settings: Mapping[str, Any]) -> None:
        """Refuse a call that certainly has no key, without loading litellm.

        Raises:
            AuthenticationFailed: there is no key.
        """
        has_other = (
            self._api_key or self._api_base or not _KEY_SETTINGS.isdisjoint([*self._settings, *settings])
        )
        if not has_other and reads_no_file() and lacks_key(self.provider, os.environ):
            raise missing_key_error(
                self.provider, self.model, f"such as LiteLLM({self.model!r}, api_key=...)"
            )

    def _next_exchange(self, paused: Exchange) -> Exchange:
        """Prepare the call in which the vendor goes on. Nothing is sent."""
        deadline = deadline_for(*self._limits, provider=self.provider, model=self.model)
        earlier, target = sys.exception(), self.target()
        call = paused.continued_call()
        return Exchange(load_litellm(), self.model, target, call, deadline, earlier, self._max_bytes)

    def _exchange(self, request: Request) -> Exchange:
        """Prepare the call. Nothing is sent."""
        earlier, provider = sys.exception(), self.provider
        deadline = deadline_for(*self._limits, provider=provider, model=self.model)
        try:
            litellm, target = load_litellm(), self.target()
            call = call_for(litellm, target, request, self._settings)
        except ConfigError:
            raise
        except Exception as error:
            provider_error = to_provider_error(error, provider=provider, model=self.model, until=earlier)
            raise provider_error from cause_of(provider_error, error)
        return Exchange(litellm, self.model, target, call, deadline, earlier, self._max_bytes)

    def _check_loop(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError as error:
            raise ConfigError(
                f"{self.name} needs asyncio, because litellm does. Run it with asyncio, or on trio use "
                "routelock_providers.OpenAI with the vendor's base_url."
            ) from error
