"""The agents that an app serves, each under its name as a model id, and a request that came in for one."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import anyio

from routelock._tool_names import transfer_tool_name
from routelock.agents.agent import Agent
from routelock.errors import ConfigError, RoutelockError
from routelock.handlers.port import ToolSpec, tool_name
from routelock.handoffs.handoff import is_list
from routelock.run.config import RunConfig
from routelock.run.start import run_graph
from routelock.serving.auth import Guards, Principal
from routelock.serving.completions import (
    AsgiReceive,
    AsgiScope,
    AsgiSend,
    ClientGone,
    headers_of,
    read_body,
    send_json,
)
from routelock.serving.config import ServedRequest
from routelock.serving.errors import Refusal

__all__ = [
    "Catalog",
    "Endpoint",
    "Handle",
    "Incoming",
    "ServedAgent",
    "ServedRoute",
    "closing",
    "log_refusal",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAgent:
    """An agent, and what serving it needs to know of its graph."""

    agent: Agent[Any]
    graph: Mapping[str, Agent[Any]]
    has_output_type: bool
    """Whether any agent of the graph gives something else than text."""
    taken: frozenset[str]
    """The names of the graph's tools and transfers, also of those that not every caller is offered."""

    def check_tools(self, tools: Sequence[ToolSpec], *, allowed: bool) -> None:
        """Refuse clients' tools where none are allowed, and one that is named like the server's.

        Raises:
            Refusal: 400.
        """
        if tools and not allowed:
            why = "This server takes no tools of its clients. Send the request without tools."
            raise Refusal(400, why, "client_tools_not_allowed", "tools")
        for place, tool in enumerate(tools):
            if (name := tool["function"]["name"]) in self.taken:
                raise Refusal(
                    400,
                    f"Tool {name!r} is named like a tool or transfer of this agent; give it another name.",
                    "invalid_request",
                    f"tools[{place}].function.name",
                )


class Catalog:
    """All agents of an app, the first being the default.

    Args:
        agents: one or more; they may hand over to each other.
        config: the settings of their runs.

    Raises:
        ConfigError: there is none, two have one name, or one cannot run.
    """

    def __init__(self, agents: Agent[Any] | Sequence[Agent[Any]], config: RunConfig) -> None:
        several = cast("Sequence[Agent[Any]]", agents if is_list(agents) else (agents,))
        listed = tuple(several)
        wrong = [each for each in listed if not isinstance(cast(object, each), Agent)]
        if wrong or not listed:
            given = f"not {wrong[0]!r:.80}" if wrong else "and there is none"
            raise ConfigError(f"An app serves a routelock.Agent or a list of them, {given}.")
        self._served = {agent.name: _served(agent, config) for agent in listed}
        if len(self._served) < len(listed):
            raise ConfigError("Two served agents have one name, and so one model id; rename one.")
        self._default = self._served[listed[0].name]

    @property
    def names(self) -> list[str]:
        """The model ids, the default first."""
        return list(self._served)

    def find(self, model: str) -> ServedAgent:
        """Return the agent of that name; of none or "default", the first.

        Raises:
            Refusal: 404.
        """
        if model in self._served:
            return self._served[model]
        if model in ("", "default"):
            return self._default
        known = ", ".join(repr(name) for name in self._served)
        raise Refusal(
            404, f"There is no model {model[:100]!r} here. There is: {known}.", "model_not_found", "model"
        )


def _served(agent: Agent[Any], config: RunConfig) -> ServedAgent:
    graph = run_graph(agent, config)
    edges = {edge.tool_name for member in graph.values() for edge in member.edges}
    tools = {tool_name(tool) for member in graph.values() for tool in member.all_tools}
    tools |= {tool_name(tool) for tool in config.external_tools}
    handlers = {
        transfer_tool_name(each.name) for member in graph.values() for each in member.registered.handlers
    }
    return ServedAgent(
        agent=agent,
        graph=graph,
        has_output_type=any(member.output is not None for member in graph.values()),
        taken=frozenset(edges | handlers | tools),
    )


_LONGEST_TRACEPARENT = 256

_SECRETS = ("authorization", "cookie", "proxy-authorization")

_logger = logging.getLogger("routelock.serving")


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A request that may be answered."""

    scope: AsgiScope
    receive: AsgiReceive
    send: AsgiSend
    request_id: str
    headers: Mapping[str, str]
    principal: Principal

    @property
    def own_headers(self) -> dict[str, str]:
        """What every response to it carries."""
        return {"x-request-id": self.request_id}

    def about(
        self, model: str, *, user: str | None = None, handoff_context: Mapping[str, Any] | None = None
    ) -> ServedRequest:
        """Return what the app's own code is told of it."""
        context = dict(handoff_context or {})
        if trace := self.headers.get("traceparent", "")[:_LONGEST_TRACEPARENT]:
            context["traceparent"] = trace
        return ServedRequest(
            request_id=self.request_id,
            model=model,
            principal=self.principal.name,
            scopes=self.principal.scopes,
            user=user,
            headers={name: value for name, value in self.headers.items() if name not in _SECRETS},
            handoff_context=context,
        )

    async def reply(self, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        """Answer.

        Args:
            body: what is sent as JSON.
            headers: more headers than every response carries.
        """
        await send_json(self.send, 200, body, {**self.own_headers, **(headers or {})})

    async def read(self, limit: int, seconds: float) -> bytes:
        """Return the body.

        Raises:
            Refusal: 413 when it is longer than the limit, 408 when it takes longer than that.
            ClientGone: it broke off.
        """
        with anyio.move_on_after(seconds):
            return await read_body(self.receive, limit, self.headers.get("content-length"))
        raise Refusal(
            408, "The body did not arrive in time.", "body_timeout", headers={"connection": "close"}
        )


Handle = Callable[[Incoming], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ServedRoute:
    """A route of an app."""

    path: str
    handle: Handle
    method: str
    open: bool = False
    """Whether a request needs no key."""
    refused: Callable[[Refusal, str], Mapping[str, Any]] = Refusal.body
    """Makes the body of a refusal, of it and of the request's id, as this route's clients read it."""


class Endpoint:
    """Answers the requests that may be made. A class, so that Starlette takes it for an app.

    Args:
        guards: who may ask.
        route: what answers, and in which form it refuses.
    """

    def __init__(self, guards: Guards, route: ServedRoute) -> None:
        self._guards = guards
        self._route = route

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Answer one request, as an ASGI app does."""
        request_id, headers = f"req_{uuid.uuid4().hex}", headers_of(scope)
        started = False

        async def tracked(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)

        def incoming() -> Incoming:
            self._guards.check_host(headers.get("host", ""))
            return Incoming(
                scope=scope,
                receive=receive,
                send=tracked,
                request_id=request_id,
                headers=headers,
                principal=self._principal(headers),
            )

        try:
            await self._route.handle(incoming())
        except ClientGone:
            _logger.info("%s: the client has left", request_id)
        except (asyncio.CancelledError, Exception) as error:
            if not started:
                await self._refuse(_refusal_of(error), request_id, send)
            elif not isinstance(error, asyncio.CancelledError):
                raise
            # servers on asyncio cancel what still runs when they end; to pass it on would only be logged

    async def _refuse(self, refusal: Refusal, request_id: str, send: AsgiSend) -> None:
        log_refusal(request_id, refusal)
        shown = {"x-request-id": request_id, **refusal.headers}
        await send_json(send, refusal.status, self._route.refused(refusal, request_id), shown)

    def _principal(self, headers: Mapping[str, str]) -> Principal:
        if self._route.open:
            return self._guards.anonymous
        return self._guards.authenticate(headers.get("authorization", ""))


def _refusal_of(error: BaseException) -> Refusal:
    """Return what a client is told about an error that no answer was made of."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, asyncio.CancelledError):
        return closing()
    refusal = Refusal(500, "The server failed.", "internal_error")
    refusal.__cause__ = error
    return refusal


def closing() -> Refusal:
    """Return what clients are told whose runs the end of the server cancels."""
    return Refusal(503, "The server is shutting down.", "shutting_down", headers={"x-should-retry": "false"})


def log_refusal(request_id: str, refusal: Refusal) -> None:
    """Tell the server's owner what the client is told, and what the client is not told: the cause."""
    cause = refusal.__cause__
    if refusal.status >= 500:
        _logger.error("%s: %s", request_id, refusal, exc_info=cause)
    elif isinstance(cause, RoutelockError):
        _logger.warning("%s: %s (%s: %s)", request_id, refusal, type(cause).__name__, cause)
    elif refusal.for_log:
        _logger.warning("%s: %s (%s)", request_id, refusal, refusal.for_log)
    else:
        _logger.info("%s: %s", request_id, refusal)
