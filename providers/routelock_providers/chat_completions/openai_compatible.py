"""Chat completions over aiohttp: OpenAI and every endpoint with the same API.

No other library handles the request or the reply. For trio, or with a client of the app,
`routelock_providers.OpenAI` does the same over the openai library.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from routelock._lazy import needs_extra
from routelock._redaction import redact_text
from routelock.errors import ConfigError
from routelock.handlers.events import HandlerEvent
from routelock.handlers.port import Request, ToolSpec
from routelock_providers.chat_completions.chat import Chat
from routelock_providers.chat_completions.request_cache import body_as_json
from routelock_providers.deadlines import check_seconds
from routelock_providers.http.body import ACCEPTED, MOST_BYTES
from routelock_providers.http_errors import missing_key_error
from routelock_providers.model_names import checked_model
from routelock_providers.vendors import VendorRules, provider_at, vendor_rules

if TYPE_CHECKING:
    from routelock_providers.http.client import HttpClient, HttpResponse

__all__ = [
    "OPENAI",
    "PATH",
    "Destination",
    "OpenAICompatible",
    "chat_url",
    "family_at",
    "host_of",
    "key_of",
    "key_source",
    "key_variable",
    "public_address",
    "rules_at",
]


OPENAI = "https://api.openai.com/v1"

PATH = "/chat/completions"

_OPENAI_KEYS = frozenset(
    "role content name tool_calls tool_call_id refusal audio function_call annotations".split()
)
"""The keys of OpenAI's own messages. LiteLLM, which has the same family, may have kept more keys in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The destination of a handler's calls, to be shown to people: it holds no secret."""

    provider: str
    model: str
    address: str
    key: str
    """Where the key comes from; never the key itself."""
    ready: bool = True
    """False if a required key is missing, so that a call would fail."""


def chat_url(base_url: str) -> str:
    """Return the address of an endpoint with ``/chat/completions`` at the end of its path.

    Raises:
        ConfigError: ``base_url`` is not an address.
    """
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            "The base_url of an OpenAI-compatible endpoint must be an http or https address, such as "
            f"'http://localhost:8000/v1', not {base_url!r}."
        )
    path = parts.path.rstrip("/").removesuffix(PATH)
    return urlunsplit(parts._replace(path=path + PATH, fragment=""))


def public_address(url: str) -> str:
    """Return an address without user, password and other secrets."""
    parts = urlsplit(url)
    return redact_text(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))


def key_source(provider: str, passed: str | None) -> str:
    """Return where the key for a vendor comes from, in words."""
    if passed and passed.strip():
        return "there, passed as api_key"
    variable = key_variable(provider)
    if key_of(provider):
        return f"there, from {variable}"
    if provider == "openai":
        return f"missing: set {variable}"
    return f"none, so none is sent ({variable} is not set)"


def host_of(base_url: str) -> str:
    """Return the host of an address, or the text itself if it has none."""
    return urlsplit(base_url).hostname or base_url


def family_at(host: str) -> str:
    """Return the family of the models at a host, see `routelock_providers.vendors.family_for`."""
    return "openai" if provider_at(host) == "openai" else host


def rules_at(host: str, model: str) -> VendorRules:
    """Return the rules of the vendor at a host for messages to ``model``."""
    provider = provider_at(host)
    rules = vendor_rules(provider, model)
    return replace(rules, message_keys=_OPENAI_KEYS) if provider in ("openai", "azure") else rules


def key_of(provider: str, passed: str | None = None) -> str | None:
    """Return the key that was passed, or that of the environment, such as ``GROQ_API_KEY``, or None.

    A newline at its end comes from a file and is removed. A blank key counts as none: some programs pass on
    an unset variable as an empty one.
    """
    return (passed or "").strip() or os.environ.get(key_variable(provider), "").strip() or None


def key_variable(provider: str) -> str:
    """Return the name of the environment variable for a vendor's key."""
    return f"{provider.upper()}_API_KEY"


class OpenAICompatible:
    """A handler that asks one model of an endpoint with OpenAI's chat API; it runs on asyncio.

    It behaves like `routelock_providers.OpenAI` and takes a fraction of its time. It needs aiohttp, which
    comes with litellm and with the extra ``routelock[direct]``.

    A streamed reply is complete with a finish reason, with usage after everything else, or with ``[DONE]`` at
    the end of the stream. A stream that ends without these, or within the arguments of a call, raises
    `IncompleteResponse`. Otherwise cut text would pass for complete text, and a call that has only begun for
    a call without arguments.

    Args:
        model: the endpoint's name for the model, such as ``"gpt-4o-mini"``.
        base_url: the endpoint, such as ``"https://api.groq.com/openai/v1"``; default: OpenAI's.
            ``/chat/completions`` is added if it is missing; a query such as Azure's ``api-version`` stays.
        api_key: the key. Default: the environment variable named after the endpoint, such as
            ``OPENAI_API_KEY`` or, for ``api.groq.com``, ``GROQ_API_KEY``. OpenAI's key is never sent to
            another endpoint unless it is passed here. Without a key none is sent.
        headers: sent with each request; one named ``authorization`` replaces the key.
        timeout: seconds for one whole reply, streamed or not; None for no limit.
        chunk_timeout: seconds between two events of a stream; comments that keep the connection alive are not
            events. None for no limit.
        max_bytes: the largest unpacked size of one reply; None for no limit. A longer reply is an error and
            is not read to its end.
        name: the handler's name; default ``<vendor>_<model>``.
        priority: the handler's place among those of an agent; the lowest number comes first.

    Settings are passed to the API. ``None`` leaves a key out, also ``stream_options=None`` for endpoints that
    refuse it. ``extra_headers`` and ``extra_body`` are added to headers and body. Redirects are not followed.
    Proxies are those of the environment. The run retries; the handler does not.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = 600.0,
        chunk_timeout: float | None = 120.0,
        max_bytes: int | None = MOST_BYTES,
        name: str | None = None,
        priority: int = 10,
    ) -> None:
        check_seconds(timeout=timeout, chunk_timeout=chunk_timeout)
        self._url = chat_url(base_url or OPENAI)
        host = host_of(self._url)
        self.model: str = checked_model(model, "OpenAICompatible")
        self.provider: str = provider_at(host)
        self.family: str = family_at(host)
        self.name: str = name or f"{self.provider}_{model.replace('/', '_')}"
        self.priority = priority
        self._api_key = api_key
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        self._client: HttpClient | None = None
        self._chat = Chat(
            provider=self.provider,
            model=model,
            rules=rules_at(host, model),
            timeout=timeout,
            chunk_timeout=chunk_timeout,
            max_bytes=max_bytes,
            url=self._url,
        )

    def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        """Ask the model; stream the reply if the request asks for it.

        Raises:
            ProviderError: the call failed, see `routelock.errors`.
            ConfigError: the event loop is not asyncio's.
            MissingExtra: aiohttp is not installed.
        """
        self._check_loop()
        client = self._client or self._open_client()
        headers = request.settings.get("extra_headers")
        return self._chat.stream(request, partial(self._post, client, headers))

    def check_vendor_tools(
        self, specs: Sequence[ToolSpec], settings: Mapping[str, Any], *, functions: bool
    ) -> None:
        """Check the vendor's own tools of an agent before a run, see `routelock.Handler`.

        Raises:
            ConfigError: the vendor has no such tool, or a setting asks for the same tool.
        """
        self._chat.check_vendor_tools(specs, settings, functions=functions)

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The handler may be used again."""
        if self._client is not None:
            await self._client.aclose()

    def destination(self) -> Destination:
        """Return where a call would go and where its key comes from. Nothing is sent."""
        own = next((name for name in ("authorization", "api-key") if name in self._headers), None)
        key = key_source(self.provider, self._api_key) if own is None else f"there, in headers as {own}"
        return Destination(
            provider=self.provider,
            model=self.model,
            address=public_address(self._url),
            key=key,
            ready=not key.startswith("missing"),
        )

    def _post(
        self, client: HttpClient, headers: Mapping[str, str] | None, body: Mapping[str, Any]
    ) -> Awaitable[HttpResponse]:
        return client.post(body_as_json(body), headers)

    def _check_loop(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError as error:
            raise ConfigError(
                f"{self.name} needs asyncio, because aiohttp does. Run it with asyncio, or on trio use "
                "routelock_providers.OpenAI with the same base_url."
            ) from error

    def _open_client(self) -> HttpClient:
        with needs_extra(
            "OpenAICompatible needs aiohttp, which is not installed", "direct", missing=ImportError
        ):
            http_client: Any = importlib.import_module("routelock_providers.http.client")
        client: HttpClient = http_client.HttpClient(
            self._url, self._request_headers(), provider=self.provider, model=self.model
        )
        self._client = client
        return client

    def _request_headers(self) -> Mapping[str, str]:
        """Return the headers of each request."""
        headers = {**_OURS, **self._headers}
        if "authorization" in headers or "api-key" in headers:
            return headers
        key = key_of(self.provider, self._api_key)
        if key is not None:
            # Azure takes keys in its own header, and tokens in the usual one
            own = {"api-key": key} if self.provider == "azure" else {"authorization": f"Bearer {key}"}
            return headers | own
        if self.provider == "openai":
            raise missing_key_error("openai", self.model, f"OpenAICompatible({self.model!r}, api_key=...)")
        return headers


_OURS = {
    "accept": "application/json, text/event-stream",
    "accept-encoding": ACCEPTED,
    "content-type": "application/json",
    "user-agent": "routelock",
}
