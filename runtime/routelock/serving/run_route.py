"""The route of a protocol that answers each request with one run.

Imported when an app is made, because Starlette is an extra.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from routelock.serving.auth import AccessControl
from routelock.serving.catalog import Catalog, ServedAgent
from routelock.serving.config import ServeConfig, ServedRequest
from routelock.serving.errors import Refusal, log_refusal
from routelock.serving.http import AsciiJSON, EventStream, Incoming, attended, events_text, read_body
from routelock.serving.requests import ClientRequest
from routelock.serving.served_run import ReplyForm, ServedRun

__all__ = ["RunRoute"]


_Asked = TypeVar("_Asked", bound=ClientRequest)

_logger = logging.getLogger("routelock.serving")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRoute(Generic[_Asked]):
    """Reads requests, checks them in the same way for each protocol, and responds with their runs."""

    access: AccessControl
    catalog: Catalog
    config: ServeConfig
    parse: Callable[[bytes], _Asked]
    """Returns the request of a body."""
    start: Callable[[ServedAgent, _Asked, ServedRequest], Awaitable[tuple[ServedRun, ReplyForm]]]
    """Returns the run of a request, and what makes its reply."""
    named_by: str = ""
    """The key of an event that has its name."""

    async def respond(self, incoming: Incoming) -> None:
        """Answer one request."""
        self.access.check_content_type(incoming.request.headers.get("content-type", ""))
        with self.access.slot():
            body = await read_body(incoming.request, self.config.max_body, self.config.body_timeout)
            asked = self.parse(body)
            run, reply = await self._started(incoming, asked)
            _logger.info("%s: model %r for %s", incoming.id, run.about.model, run.about.principal)
            await self._responder(asked)(incoming, run, reply)

    async def _started(self, incoming: Incoming, asked: _Asked) -> tuple[ServedRun, ReplyForm]:
        if asked.hops > self.config.max_hops:
            raise Refusal(
                508,
                f"The request has passed {asked.hops} servers, and {self.config.max_hops} are allowed: do "
                "agents of several servers hand it to each other?",
                "too_many_hops",
                "handoff_context.hops",
                headers={"x-should-retry": "false"},
            )
        served = self.catalog.find(asked.model)
        served.check_tools(asked.tools, allowed=self.config.client_tools)
        about = incoming.about(served.agent.name, user=asked.user, handoff_context=asked.handoff_context)
        return await self.start(served, asked, about)

    def _responder(self, asked: _Asked) -> Callable[[Incoming, ServedRun, ReplyForm], Awaitable[None]]:
        return self._stream if asked.stream else self._answer

    async def _answer(self, incoming: Incoming, run: ServedRun, reply: ReplyForm) -> None:
        async def answered() -> None:
            await incoming.respond(AsciiJSON(await run.whole(reply)))

        await attended(incoming.request, answered, self.config.timeout)

    async def _stream(self, incoming: Incoming, run: ServedRun, reply: ReplyForm) -> None:
        stream = EventStream(
            partial(run.stream, reply),
            ping=self.config.ping,
            timeout=self.config.timeout,
            last=partial(self._failure, incoming.id, reply),
            named_by=self.named_by,
        )
        await incoming.respond(stream)

    def _failure(self, request_id: str, reply: ReplyForm, refusal: Refusal) -> str:
        log_refusal(request_id, refusal)
        return events_text(reply.fail(refusal, request_id), self.named_by)
