"""An agent behind a URL: on routelock's own server, or any other with OpenAI's chat API."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from pydantic_core import to_jsonable_python

from routelock._tool_names import slug
from routelock.errors import ConfigError, UnreadableResponse
from routelock.handlers.events import HandlerEvent, MessageDone, ToolCallDelta
from routelock.handlers.model_settings import settings_problems
from routelock.handlers.port import Priority, Request
from routelock.history.messages import Message, calls_of
from routelock.scopes import Scope, checked_scope
from routelock.usage import Usage
from routelock_providers.chat_completions.chat import Chat
from routelock_providers.chat_completions.openai_compatible import PATH, Destination, public_address
from routelock_providers.deadlines import check_seconds
from routelock_providers.remote.http import RemoteTarget, RequestSender
from routelock_providers.remote.urls import AgentUrl, AllowList, UrlNotAllowed, completions_url
from routelock_providers.vendors import VendorRules

__all__ = ["RemoteAgent", "handoff_context", "tracking_headers", "url_in_context", "url_in_input"]


_RUN_ID = re.compile("[!-~]{1,200}")

_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
"""The form of a ``traceparent`` header, see https://www.w3.org/TR/trace-context/, section 3.2."""


def url_in_input(request: Request) -> str:
    """Return ``agent_url`` of the handoff's input, or an empty text."""
    return _found(request.handoff_input, "agent_url")


def url_in_context(request: Request) -> str:
    """Return ``handoff_agent_url`` of the run's shared memory or context, or an empty text."""
    if request.context is None:
        return ""
    key = "handoff_agent_url"
    context: object = request.context.context
    own = _found(cast("Mapping[str, Any]", context), key) if isinstance(context, Mapping) else ""
    return _found(request.context.shared_memory, key) or own


def handoff_context(request: Request) -> Mapping[str, Any]:
    """Return the data about this run and the runs before it, for the body of the request.

    Raises:
        ConfigError: the handoff's input does not fit into JSON.
    """
    before: object = _incoming_context(request).get("hops")
    passed = before if isinstance(before, int) and before > 0 else 0
    context: dict[str, Any] = {
        "run_id": "" if request.context is None else request.context.run_id,
        "agent": request.agent,
        "turn": request.turn,
        "hops": passed + 1,
    }
    if (given := _as_json(request.handoff_input)) not in (None, {}):
        context["input"] = given
    return context


def tracking_headers(request: Request) -> Mapping[str, str]:
    """Return the headers that connect the remote run with this one."""
    run_id = "" if request.context is None else request.context.run_id
    parent: object = _incoming_context(request).get("traceparent")
    headers: dict[str, str] = {}
    if _RUN_ID.fullmatch(run_id):
        headers["x-routelock-run-id"] = run_id
    if isinstance(parent, str) and _TRACEPARENT.fullmatch(parent):
        headers["traceparent"] = parent
    return headers


def _found(given: object, key: str) -> str:
    if isinstance(given, Mapping):
        found: object = cast("Mapping[str, Any]", given).get(key)
    else:
        found = getattr(given, key, None)
    return str(found) if found else ""


def _incoming_context(request: Request) -> Mapping[str, Any]:
    """Return the handoff context of the request that this run serves."""
    memory: Mapping[str, Any] = {} if request.context is None else request.context.shared_memory
    found: object = memory.get("handoff_origin")
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


def _as_json(given: object) -> object:
    try:
        value: object = to_jsonable_python(given, by_alias=False, fallback=str)
    except ValueError as error:
        raise ConfigError(f"The input of a remote handoff must fit into JSON: {error}.") from error
    if not isinstance(value, dict):
        return value
    return {key: each for key, each in cast("dict[str, Any]", value).items() if key != "agent_url"}


_ANY = "default"

_MIB = 2**20

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_VALUE = re.compile(r"[\x20-\x7e]*")

_NOT_OF_A_REPLY = ("name", "tool_call_id")
"""Keys of messages that are not replies."""

_OWN_SERVER = VendorRules(
    id_pattern=re.compile("[a-zA-Z0-9_-]{1,40}"), developer=True, images_from_tools=True
)
"""The rules for the server of ``url``. Any vendor may be behind an agent, so call ids fit all vendors."""

_OTHER_SERVER = replace(
    _OWN_SERVER, message_keys=frozenset(("role", "content", "name", "tool_calls", "tool_call_id"))
)
"""The rules for any other server, which is not sent the private keys of messages."""


class RemoteAgent:
    """A handler that lets an agent behind a URL answer.

    For the run it is one model call: the conversation is sent, and the agent's answer comes back, whatever
    the agent does in between. A failure is a `ProviderError` and never text.

    **The URL** is ``agent_url`` in the handoff's input (a key or an attribute), else ``url``, else
    ``handoff_agent_url`` in the run's ``shared_memory`` or in its context if that is a mapping. Only ``url``
    is trusted. Any other one may come from a model, so it has to be in ``allow``; otherwise `UrlNotAllowed`
    is raised and nothing is sent. ``allow`` holds names: the addresses behind them are not checked.

    **The request** holds the conversation without system and developer messages, and ``handoff_context``:
    ``run_id``, ``agent`` and ``turn`` of this run, the handoff's ``input`` as JSON without ``agent_url``, and
    ``hops``, the number of servers passed, by which servers end a loop of agents (status 508). The run's id
    is also the header ``x-routelock-run-id``, and the ``traceparent`` of a served run is passed on. The
    agent's own ``model_settings`` and ``output_type`` are not sent, because they do not concern the remote
    agent. Its text is parsed for ``output_type`` nevertheless.

    **Keys.** ``api_key`` and ``headers`` are sent to the server of ``url`` (same scheme, host and port) only,
    not to the target of a redirect or another URL of ``allow``. Without ``url`` they are sent to the URL of
    the call, which is in ``allow``. Cookies are not kept.

    **The reply.** A streamed reply is complete only with a finish reason; usage and ``[DONE]`` do not prove
    it. ``[DONE]`` may be missing, because no part of the message comes after the finish reason. Redirects are
    followed for 307 and 308 only, on the server of ``url`` and to URLs of ``allow``. Tool calls are refused
    unless ``pass_tools`` is true: otherwise a remote server could use the tools of this agent. Keys that
    begin with ``x_`` or ``_`` are dropped, and keys that no reply has, such as ``name``.

    **Retries** are made by the run, see `routelock.Retry`. After a cut reply or a timeout it is unknown what
    the agent has done, so call an agent with side effects with ``Retry(attempts=1)``. Each error of
    routelock's own server says whether its agent had acted.

    Args:
        url: the address of the agent, such as ``"https://agents.example.com/v1"``; ``/chat/completions`` is
            added if it is missing, a query is kept.
        model: the agent on that server; routelock's own server takes ``"default"`` for its first agent.
        name: the handler's name; default ``remote_<host and path>``, and the model's name.
        api_key: sent as a bearer token.
        headers: sent with each request.
        allow: the other URLs that may be called, see `routelock_providers.remote.AllowList`.
        settings: further keys of the body, such as ``{"temperature": 0}`` or a ``response_format``.
        pass_tools: whether the remote agent is offered the tools of this one. It may then call them, and hand
            over with them.
        pass_instructions: whether system and developer messages are sent too.
        prompt: tells the model when to hand over to the agent.
        priority: the handler's place among those of an agent; the lowest number comes first.
        scope: the scope that a run needs to use it, see `routelock.scopes`.
        expose: whether a model is offered ``transfer_to_<name>`` without a declared handoff to it.
        timeout: seconds for one whole reply, streamed or not; None for no limit.
        chunk_timeout: seconds between two events of a stream; None for no limit.
        max_bytes: the largest size of one reply. A longer one is an error and is not read to its end.
        max_redirects: the largest number of redirects that are followed.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        model: str = _ANY,
        name: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        allow: Collection[str] = (),
        settings: Mapping[str, Any] | None = None,
        pass_tools: bool = False,
        pass_instructions: bool = False,
        prompt: str | None = None,
        priority: int = Priority.REMOTE,
        scope: Scope = "all",
        expose: bool = False,
        timeout: float | None = 600.0,
        chunk_timeout: float | None = 120.0,
        max_bytes: int = 10 * _MIB,
        max_redirects: int = 3,
    ) -> None:
        self._own_url = None if url is None else completions_url(url)
        self._allow_list = AllowList(allow)
        self.model = model
        self.name: str = name or _name_for(self._own_url, model)
        self.family: str = self.name if self._own_url is None else self._own_url.authority
        self.prompt = prompt
        self.priority = priority
        self.scope: Scope = checked_scope(scope, f"RemoteAgent {self.name!r}")
        self.expose = expose
        self._secrets = _secrets(api_key, headers or {})
        self._settings = _checked_settings(settings or {})
        self._passes = (pass_tools, pass_instructions)
        check_seconds(timeout=timeout, chunk_timeout=chunk_timeout)
        if max_bytes < 1 or max_redirects < 0:
            raise ConfigError("RemoteAgent: max_bytes must be more than 0, and max_redirects 0 or more.")
        self._limits = (timeout, chunk_timeout, max_bytes)
        self._sender = RequestSender(model=self.model, timeout=timeout, max_redirects=max_redirects)

    def destination(self) -> Destination:
        """Return where a call would go, and whether it has a key. Nothing is sent."""
        return Destination(
            provider="a remote agent",
            model=self.model,
            address="that of the handoff" if self._own_url is None else public_address(str(self._own_url)),
            key="there, passed to it" if "authorization" in self._secrets else "none, so none is sent",
        )

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        """Ask the agent; stream its reply if the request asks for it.

        Raises:
            ConfigError: there is no URL.
            UrlNotAllowed: the URL may not be called; nothing was sent.
            ProviderError: the call failed, see `routelock.errors`.
        """
        url = self._url_for(request)
        timeout, chunk_timeout, max_bytes = self._limits
        chat = Chat(
            provider=url.authority,
            model=self.model,
            rules=_OWN_SERVER if url == self._own_url else _OTHER_SERVER,
            timeout=timeout,
            chunk_timeout=chunk_timeout,
            max_bytes=max_bytes,
            needs_finish=True,
        )
        target = self._target(url, request)
        events = chat.stream(self._remote_request(request), lambda body: self._sender.post(body, target))
        async with aclosing(events):
            async for event in events:
                yield self._checked(event, url)

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The handler may be used again."""
        await self._sender.aclose()

    def _url_for(self, request: Request) -> AgentUrl:
        given = url_in_input(request)
        if not given and self._own_url is not None:
            return self._own_url
        given = given or url_in_context(request)
        if not given:
            raise ConfigError(
                "agent_url required for remote handoff. Pass url= to RemoteAgent, hand over with an input "
                "that has agent_url, or put handoff_agent_url into the run's shared_memory or context."
            )
        return self._permitted(given)

    def _permitted(self, given: str) -> AgentUrl:
        try:
            url = completions_url(given)
        except ConfigError as error:
            raise self._not_allowed(str(error)) from error
        if url != self._own_url and not self._allow_list.permits(url):
            raise self._not_allowed(f"{str(url)!r:.200} is not a URL that may be called")
        return url

    def _not_allowed(self, why: str) -> UrlNotAllowed:
        return UrlNotAllowed(
            f"RemoteAgent {self.name!r}: {why}. Nothing was sent. allow= has: {self._allow_list}.",
            model=self.model,
        )

    def _target(self, url: AgentUrl, request: Request) -> RemoteTarget:
        is_own = url == self._own_url

        def may_go_to(target: AgentUrl) -> bool:
            return (is_own and target.origin == url.origin) or self._allow_list.permits(target)

        return RemoteTarget(
            url=url,
            may_go_to=may_go_to,
            headers=tracking_headers(request),
            secrets=self._secrets,
            trusted=(self._own_url or url).origin,
        )

    def _remote_request(self, request: Request) -> Request:
        """Return the request that the remote agent gets."""
        pass_tools, pass_instructions = self._passes
        messages = [
            message
            for message in request.messages
            if pass_instructions or message["role"] not in ("system", "developer")
        ]
        extra: Mapping[str, Any] = self._settings.get("extra_body") or {}
        settings = {**self._settings, "extra_body": {**extra, "handoff_context": handoff_context(request)}}
        return replace(
            request,
            messages=messages,
            tools=request.tools if pass_tools else (),
            tool_choice=request.tool_choice if pass_tools else None,
            settings=settings,
            output_schema=None,
        )

    def _checked(self, event: HandlerEvent, url: AgentUrl) -> HandlerEvent:
        pass_tools, _ = self._passes
        if isinstance(event, MessageDone):
            calls = calls_of(event.message)
            if not calls or pass_tools:
                return _clean(event)
            name: object = calls[0]["function"]["name"]
        elif isinstance(event, ToolCallDelta) and not pass_tools:
            name = event.name
        else:
            return event
        raise UnreadableResponse(
            f"{url.authority} called tool {name!r:.80}, but it was passed no tools. Use pass_tools=True "
            "if it may call the tools of this agent.",
            provider=url.authority,
            model=self.model,
            retryable=False,
        )


def _name_for(url: AgentUrl | None, model: str) -> str:
    where = "agent" if url is None else f"{url.authority}{url.path.removesuffix(PATH)}"
    plain = re.sub("[^A-Za-z0-9]+", "_", f"remote_{where}_{'' if model == _ANY else model}").strip("_")
    return slug(plain)


def _secrets(api_key: str | None, headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers that are sent to one server only, with names in lower case."""
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ConfigError(
                f"RemoteAgent: headers: {name!r:.80} is not the name of a header, or its value is not plain "
                "ASCII."
            )
    if api_key is not None and not _VALUE.fullmatch(api_key):
        raise ConfigError("RemoteAgent: a header cannot carry this api_key: use printable ASCII characters.")
    bearer = {"authorization": f"Bearer {api_key}"} if api_key else {}
    return bearer | {name.lower(): value for name, value in headers.items()}


def _checked_settings(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    if "extra_headers" in settings:
        raise ConfigError(
            "RemoteAgent: settings: pass headers= instead of extra_headers, so that they are sent to url= "
            "only."
        )
    if wrong := settings_problems(settings, allowed=()):
        raise ConfigError(f"RemoteAgent: {'; '.join(wrong)}.")
    return dict(settings)


def _clean(done: MessageDone) -> MessageDone:
    """Return the reply without private keys of the server, and with values of the right type only."""
    kept = {key: value for key, value in done.message.items() if _is_reply_key(key, value)}
    return replace(
        done,
        message=cast(Message, kept),
        usage=_checked_usage(done.usage),
        finish_reason=_text_or_none(done.finish_reason),
        model=_text_or_none(done.model),
        response_id=_text_or_none(done.response_id),
    )


def _is_reply_key(key: str, value: object) -> bool:
    """Return whether a key is part of a reply: vendors refuse a history with other keys."""
    if key.startswith(("x_", "_")) or key in _NOT_OF_A_REPLY:
        return False
    return key != "refusal" or isinstance(value, str)


def _checked_usage(usage: Usage | None) -> Usage:
    """Return the usage if it holds valid numbers; a negative one would raise the budget of a run."""
    if usage is not None:
        counts = (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens)
        if all(type(count) is int and count >= 0 for count in cast("tuple[object, ...]", counts)):
            return usage
    return Usage(requests=1, estimated=True)


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None
