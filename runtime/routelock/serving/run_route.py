"""The route of a protocol that answers each request with one run.

Imported when an app is made, because Starlette is an extra.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from routelock.serving.catalog import ServedAgent, ServedApp
from routelock.serving.config import ServedRequest
from routelock.serving.errors import Refusal, log_refusal
from routelock.serving.http import AsciiJSON, EventStream, Incoming, attended, events_text, read_body
from routelock.serving.requests import ClientRequest
from routelock.serving.served_run import ServedReply

__all__ = ["RunRoute"]


_Asked = TypeVar("_Asked", bound=ClientRequest)

_logger = logging.getLogger("routelock.serving")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRoute(Generic[_Asked]):
    """Reads requests, checks them in the same way for each protocol, and responds with their runs."""

    app: ServedApp
    parse: Callable[[bytes], _Asked]
    """Returns the request of a body."""
    start: Callable[[ServedAgent, _Asked, ServedRequest], Awaitable[ServedReply]]
    """Returns the ways to answer a request of an agent."""
    named_by: str = ""
    """The key of an event that has its name."""

    async def respond(self, incoming: Incoming) -> None:
        """Answer one request. Until its response begins, an error has a status."""
        self.app.access.check_content_type(incoming.headers.get("content-type", ""))
        path: str | None = incoming.request.path_params.get("agent")
        served = None if path is None else self.app.catalog.at(path)
        with self.app.access.slot():
            body = await read_body(incoming.request, self.app.config.max_body, self.app.config.body_timeout)
            asked = self.parse(body)
            reply = await self._started(incoming, served, asked)
            if asked.stream or reply.whole is None:
                await incoming.respond(self._stream(incoming.id, reply))
            else:
                answered = partial(self._answer, incoming, reply.whole)
                await attended(incoming.request, answered, self.app.config.timeout)

    async def _started(self, incoming: Incoming, served: ServedAgent | None, asked: _Asked) -> ServedReply:
        if asked.hops > (most := self.app.config.max_hops):
            raise Refusal(
                508,
                f"The request has passed {asked.hops} servers, and {most} are allowed: do "
                "agents of several servers hand it to each other?",
                "too_many_hops",
                "handoff_context.hops",
                headers={"x-should-retry": "false"},
            )
        served = served or self.app.catalog.find(asked.model)
        served.check_tools(asked.tools, allowed=self.app.config.client_tools)
        about = incoming.about(served.agent.name, user=asked.user, handoff_context=asked.handoff_context)
        reply = await self.start(served, asked, about)
        _logger.info("%s: model %r for %s", incoming.id, about.model, about.principal)
        return reply

    async def _answer(self, incoming: Incoming, whole: Callable[[], Awaitable[Mapping[str, object]]]) -> None:
        await incoming.respond(AsciiJSON(await whole()))

    def _stream(self, request_id: str, reply: ServedReply) -> EventStream:
        def last(refusal: Refusal) -> str:
            log_refusal(request_id, refusal)
            return events_text(reply.fail(refusal, request_id), self.named_by)

        config = self.app.config
        return EventStream(
            reply.stream, ping=config.ping, timeout=config.timeout, last=last, named_by=self.named_by
        )
