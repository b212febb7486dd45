"""Chat completions over the openai library: OpenAI, Azure, and every endpoint with the same API.

The library only sends the request: the body is encoded here and chunks are read as plain dicts. The typed
layer of the library walks over every message of each call and builds a model of every chunk; without it, a
call with 101 messages takes a fifteenth of the CPU time and a chunk a twelfth. On asyncio, aiohttp carries
the requests of httpx: a chunk then takes a third of the CPU time, and a run among 500 concurrent runs takes
half.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from routelock.errors import ProviderError
from routelock.handlers.events import HandlerEvent
from routelock.handlers.port import Request, ToolSpec
from routelock_providers.chat_completions.chat import Chat, Response
from routelock_providers.chat_completions.httpx_client import ClientPerLoop, encoded, httpx_client
from routelock_providers.chat_completions.openai_compatible import (
    OPENAI,
    PATH,
    Destination,
    chat_url,
    family_at,
    host_of,
    key_of,
    key_source,
    public_address,
    rules_at,
)
from routelock_providers.deadlines import check_seconds
from routelock_providers.http.body import ACCEPTED, MOST_BYTES, read_error_body
from routelock_providers.http_errors import Answer, error_from_answer, missing_key_error, redirect_error
from routelock_providers.model_names import checked_model
from routelock_providers.vendors import provider_at

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream

__all__ = ["OpenAI"]


class OpenAI:
    """A handler that asks one model of OpenAI, or of any endpoint with the same API.

    A streamed reply is complete with a finish reason, with usage after everything else, or with ``[DONE]`` at
    the end of the stream. A stream that ends without these, or within the arguments of a call, raises
    `IncompleteResponse`. Otherwise cut text would pass for complete text, and a call that has only begun for
    a call without arguments.

    Args:
        model: the endpoint's name for the model, such as ``"gpt-4o-mini"``.
        base_url: another endpoint, such as ``"http://localhost:11434/v1"``; default: OpenAI's.
            ``/chat/completions`` is added if it is missing; a query such as Azure's ``api-version`` stays.
        api_key: the key. Default: the environment variable named after the endpoint, such as
            ``OPENAI_API_KEY`` or, for ``api.groq.com``, ``GROQ_API_KEY``. OpenAI's key is never sent to
            another endpoint unless it is passed here.
        client: a client of the app, such as an ``AsyncAzureOpenAI``. The app closes it.
        timeout: seconds for one whole reply, streamed or not; None for no limit.
        chunk_timeout: seconds between two events of a stream; comments that keep the connection alive are not
            events. None for no limit.
        max_bytes: the largest unpacked size of one reply; None for no limit. A longer reply is an error and
            is not read to its end.
        name: the handler's name; default ``openai_<model>``.
        priority: the handler's place among those of an agent; the lowest number comes first.

    Settings are passed to the API. ``None`` leaves a key out, also ``stream_options=None`` for endpoints that
    refuse it. ``extra_headers`` and ``extra_body`` work as in the openai library. The run retries; the
    library does not.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: AsyncOpenAI | None = None,
        timeout: float | None = 600.0,
        chunk_timeout: float | None = 120.0,
        max_bytes: int | None = MOST_BYTES,
        name: str | None = None,
        priority: int = 10,
    ) -> None:
        check_seconds(timeout=timeout, chunk_timeout=chunk_timeout)
        endpoint = str(client.base_url) if client is not None else base_url or OPENAI
        host = host_of(endpoint)
        self.model: str = checked_model(model, "OpenAI")
        self.provider: str = provider_at(host)
        self.family: str = family_at(host)
        self.name: str = name or f"{self.provider}_{model.replace('/', '_')}"
        self.priority = priority
        self._base_url = base_url
        self._url = chat_url(endpoint)
        self._api_key = api_key
        self._client = client
        self._timeout = timeout
        self._chat = Chat(
            provider=self.provider,
            model=model,
            rules=rules_at(host, model),
            timeout=timeout,
            chunk_timeout=chunk_timeout,
            max_bytes=max_bytes,
            url=self._url,
        )
        self._clients = ClientPerLoop()

    def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        """Ask the model; stream the reply if the request asks for it.

        Raises:
            ProviderError: the call failed, see `routelock.errors`.
        """
        return self._chat.stream(request, partial(self._post, request))

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
        await self._clients.aclose()

    def destination(self) -> Destination:
        """Return where a call would go and where its key comes from. Nothing is sent."""
        if self._client is not None:
            address, key = str(self._client.base_url), "that of the client"
        else:  # the library reads the environment, too
            address = self._base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI
            key = key_source(self.provider, self._api_key)
        return Destination(
            provider=self.provider,
            model=self.model,
            address=public_address(address),
            key=key,
            ready=not key.startswith("missing"),
        )

    async def _post(self, request: Request, body: Mapping[str, Any]) -> AsyncStream[object]:
        if self.provider == "openai" and self._client is None and not key_of("openai", self._api_key):
            raise missing_key_error("openai", self.model, f"OpenAI({self.model!r}, api_key=...)")
        import openai  # noqa: PLC0415 - openai costs 0.7 s to import

        client = self._client or self._clients.get(self._new_client)
        # other clients read the body: Azure's takes the address from it
        content = encoded(body) if type(client) is openai.AsyncOpenAI else None
        post: Any = client.post  # the stream class of the client is the fastest, and it is not typed
        try:
            incoming: AsyncStream[object] = await post(
                PATH,
                cast_to=object,
                body=body if content is None else None,
                content=content,
                options=self._options(request),
                stream=True,  # the body is read here, whether it streams or not
            )
            return incoming
        except openai.APIStatusError as error:  # only a client of the app raises this error
            if error.status_code < 400:
                raise self._redirected(error.status_code, error.response.headers) from None
            raise
        except Exception as error:
            if isinstance(error.__cause__, ProviderError):
                raise error.__cause__ from None  # the cause is the error of _check_answer
            raise

    def _options(self, request: Request) -> Any:
        headers: Mapping[str, str] = request.settings.get("extra_headers") or {}
        headers = {"accept-encoding": ACCEPTED, **headers}
        return {"headers": headers, "timeout": self._timeout, "max_retries": 0, "follow_redirects": False}

    def _new_client(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI  # noqa: PLC0415 - openai costs 0.7 s to import

        key = key_of(self.provider, self._api_key)
        if self._base_url is not None:
            key = key or "none"  # a local server needs no key; any other answers 401
        address, query = _without_query(self._base_url)
        http_client = httpx_client(self._check_answer)
        client = AsyncOpenAI(
            api_key=key, base_url=address, default_query=query, max_retries=0, http_client=http_client
        )
        if self.provider != "openai":
            client.organization = client.project = None  # read from OPENAI_ORG_ID, for OpenAI alone
        return client

    async def _check_answer(self, response: Response) -> None:
        """Raise an error for a redirect or an error status, before the library reads the whole body."""
        if 300 <= response.status_code < 400:
            raise self._redirected(response.status_code, response.headers)
        if response.status_code >= 400:
            body = (await read_error_body(response)).decode("utf-8", "replace")
            answer = Answer(response.status_code, response.headers, body)
            raise error_from_answer(answer, provider=self.provider, model=self.model, url=self._url)

    def _redirected(self, status: int, headers: Mapping[str, str]) -> ProviderError:
        return redirect_error(status, headers, url=self._url, provider=self.provider, model=self.model)


def _without_query(base_url: str | None) -> tuple[str | None, Mapping[str, object]]:
    """Return an address and its query: the library would append the path to the query."""
    if base_url is None:
        return None, {}
    address, _, query = chat_url(base_url).partition("?")
    return address.removesuffix(PATH), dict(parse_qsl(query, keep_blank_values=True))
