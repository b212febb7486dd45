"""An agent behind A2A, the Agent2Agent protocol. Needs the extra ``a2a``."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from routelock._lazy import needs_extra
from routelock._sendable import integral, sendable
from routelock._tool_names import slug
from routelock.errors import (
    AuthenticationFailed,
    ConfigError,
    IncompleteResponse,
    InvalidRequest,
    ProviderError,
    ServerFailed,
    UnreadableResponse,
)
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.handlers.port import Priority, Request
from routelock.history.messages import Message, is_note, text_of
from routelock.history.nesting import default_handoff_history_mapper
from routelock.scopes import Scope, checked_scope
from routelock.usage import Usage
from routelock_providers.deadlines import check_seconds
from routelock_providers.errors import to_provider_error
from routelock_providers.http_errors import key_hint, redirect_error
from routelock_providers.remote.urls import parse_url

if TYPE_CHECKING:
    import httpx
    from a2a.client import Client
    from a2a.types import Part, StreamResponse, TaskStatus

__all__ = ["A2AAgent"]


_LONGEST = 10 * 2**20
"""The most characters of an answer."""

_CANCEL_SECONDS = 2.0
"""How long cancelling a task may take."""

_KEY_HINT = "Pass A2AAgent its api_key=."

_DONE = ("TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED")

_LOGIN = "TASK_STATE_AUTH_REQUIRED"

_ENDS = (*_DONE, _LOGIN, "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED")


class A2AAgent:
    """A handler that lets an A2A agent answer, of any framework.

    For the run it is one model call. The agent is sent the newest message of the user below a summary of the
    messages before it, without system messages, tools, images or files. Each call has a context of its own.
    The agent's text is streamed, without its progress notes; data becomes JSON text. If it asks a question
    (``input-required``), the question is the answer. A failure is a `ProviderError` and never text.

    A run that is cancelled or stops reading cancels the agent's task, if the agent streams: otherwise the id
    of the task comes with its answer. Needs asyncio, like the SDK of the protocol.

    Args:
        url: the address of the agent's card without ``/.well-known/agent-card.json``. The card is read for
            each call, and may lead to the same server only: same scheme, host and port.
        name: the handler's name; default ``a2a_<host and path>``.
        api_key: sent as a bearer token.
        prompt: tells the model when to hand over to the agent.
        priority: the handler's place among those of an agent; the lowest number comes first.
        scope: the scope that a run needs to use it, see `routelock.scopes`.
        expose: whether a model is offered ``transfer_to_<name>`` without a declared handoff to it.
        timeout: seconds between two reads from the server. ``RunConfig.turn_timeout`` limits the whole reply.

    Raises:
        MissingExtra: the protocol's SDK is not installed.
        ConfigError: an argument is invalid.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        api_key: str | None = None,
        prompt: str | None = None,
        priority: int = Priority.REMOTE,
        scope: Scope = "all",
        expose: bool = False,
        timeout: float = 120.0,
    ) -> None:
        with needs_extra("A2AAgent needs the SDK of A2A, which is not installed", "a2a"):
            import httpx  # noqa: PLC0415 - comes with the next
            from a2a.client import A2ACardResolver, ClientConfig, ClientFactory  # noqa: PLC0415 - an extra
        self._own_url = parse_url(url)
        where = re.sub("[^A-Za-z0-9]+", "_", f"{self._own_url.authority}{self._own_url.path}")
        self.name: str = name or slug(f"a2a_{where}".strip("_"))
        self.family: str = self._own_url.authority
        self.prompt = prompt
        self.priority = priority
        self.scope: Scope = checked_scope(scope, f"A2AAgent {self.name!r}")
        self.expose = expose
        check_seconds(timeout=timeout)
        if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
            raise ConfigError("A2AAgent: a header cannot carry this api_key: use printable ASCII characters.")
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        # made once: reading the certificates takes longer than a call
        tls = httpx.create_ssl_context()
        self._http = partial(httpx.AsyncClient, headers=headers, timeout=timeout, verify=tls)
        self._resolver, self._config, self._factory = A2ACardResolver, ClientConfig, ClientFactory

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        """Ask the agent, and stream its reply.

        Raises:
            ProviderError: the call failed, see `routelock.errors`.
        """
        reply = _Reply()
        async with self._http() as http:
            try:
                client = await self._client(http)
                async with aclosing(_send(client, _prompt_text(request.messages))) as events:
                    async for event in events:
                        if new_text := reply.take(event):
                            yield TextDelta(new_text)
                        if reply.is_over:
                            break
            except Exception as error:
                raise self._failure(error) from error
            finally:
                if reply.task and not reply.is_over:
                    await self._cancel(http, reply.task)
        yield self._whole(reply)

    async def _client(self, http: httpx.AsyncClient) -> Client:
        """Return a client for the interfaces of the card that are on the server of ``url``.

        Raises:
            InvalidRequest: all of them are on other servers, which get neither the key nor the conversation.
        """
        card = await self._resolver(http, str(self._own_url)).get_agent_card()
        allowed = [each for each in card.supported_interfaces if self._is_own_server(each.url)]
        if not allowed:
            raise InvalidRequest(
                f"The card of {self.name!r} leads to another server than {self._own_url.origin}; nothing was "
                "sent there. Give A2AAgent the URL of that server, if it is the right one.",
                provider=self.family,
                model=self.name,
            )
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(allowed)
        return self._factory(self._config(httpx_client=http)).create(card)

    def _is_own_server(self, url: str) -> bool:
        try:
            return parse_url(url).origin == self._own_url.origin
        except ConfigError:
            return False

    async def _cancel(self, http: httpx.AsyncClient, task: str) -> None:
        """Cancel the agent's task. If that fails, the task runs to its end."""
        from a2a.types import CancelTaskRequest  # noqa: PLC0415 - an extra

        with anyio.move_on_after(_CANCEL_SECONDS, shield=True), suppress(Exception):
            client = await self._client(http)
            await client.cancel_task(CancelTaskRequest(id=task))

    def _failure(self, error: Exception) -> ProviderError:
        from a2a.client.errors import A2AClientError  # noqa: PLC0415 - an extra
        from a2a.utils.errors import A2AError, InternalError, InvalidAgentResponseError  # noqa: PLC0415

        answer: Any = getattr(error.__cause__, "response", None)
        if answer is not None and 300 <= answer.status_code < 400:
            return redirect_error(
                answer.status_code,
                answer.headers,
                url=str(answer.url),
                provider=self.family,
                model=self.name,
                argument="url",
            )
        if not isinstance(error, A2AError) or isinstance(error, A2AClientError):
            provider_error = to_provider_error(error, provider=self.family, model=self.name)
            if isinstance(provider_error, AuthenticationFailed):
                provider_error.args = (str(provider_error).replace(key_hint(self.family), _KEY_HINT),)
            return provider_error
        is_internal = isinstance(error, InternalError | InvalidAgentResponseError)
        kind = ServerFailed if is_internal else InvalidRequest
        text = f"{self.name!r} answered with an error of the protocol, {type(error).__name__}: {error!s:.400}"
        return kind(text, provider=self.family, model=self.name)

    def _whole(self, reply: _Reply) -> MessageDone:
        where: dict[str, Any] = {"provider": self.family, "model": self.name}
        if reply.state == _LOGIN:
            raise AuthenticationFailed(f"{self.name!r} asks for a login: {reply.why:.400}", **where)
        if reply.state in _ENDS and reply.state not in _DONE:
            how = reply.state.removeprefix("TASK_STATE_").lower()
            raise ProviderError(f"{self.name!r} ended its task as {how}: {reply.why:.400}", **where)
        if not reply.is_over:
            raise IncompleteResponse(f"{self.name!r} ended its answer before its task was over.", **where)
        message: Message = {"role": "assistant", "content": reply.text}
        usage = Usage(requests=1, estimated=True)
        return MessageDone(message=message, usage=usage, response_id=reply.task or None)


class _Reply:
    """The reply of an agent, joined from its events as the protocol says."""

    def __init__(self) -> None:
        self.task = ""
        self.state = ""
        self.why = ""
        self._answer = ""
        self._artifacts: dict[str, str] = {}
        self._shown = ""

    @property
    def is_over(self) -> bool:
        """Whether the task is over."""
        return self.state in _ENDS

    @property
    def text(self) -> str:
        """The text of the reply, with the question of the agent or its final status at the end.

        Status messages before the end ("Looking it up...") are not part of it.
        """
        asks = self.state == "TASK_STATE_INPUT_REQUIRED" or (
            self.is_over and not any(self._artifacts.values())
        )
        parts = [*self._artifacts.values(), self.why if asks else "", self._answer]
        return "\n\n".join(part for part in parts if part)

    def take(self, event: StreamResponse) -> str:
        """Take in the next event and return the text that it adds."""
        match event.WhichOneof("payload"):
            case "message":
                self._answer, self.state = _text(event.message.parts), _DONE[0]
            case "task":
                self.task = event.task.id
                self._status(event.task.status)
                self._artifacts |= {each.artifact_id: _text(each.parts) for each in event.task.artifacts}
            case "status_update":
                self._status(event.status_update.status)
            case "artifact_update":
                one = event.artifact_update.artifact
                before = self._artifacts.get(one.artifact_id, "") if event.artifact_update.append else ""
                self._artifacts[one.artifact_id] = before + _text(one.parts)
            case _:
                pass
        return self._new_text()

    def _status(self, status: TaskStatus) -> None:
        from a2a.types import TaskState  # noqa: PLC0415 - an extra

        self.state, self.why = TaskState.Name(status.state), _text(status.message.parts)

    def _new_text(self) -> str:
        """Return the new text at the end; text that was shown cannot be changed."""
        text = self.text
        if len(text) > _LONGEST:
            why = f"An answer of more than {_LONGEST} characters is not read."
            raise UnreadableResponse(why, retryable=False)
        if (self.state in _ENDS and self.state not in _DONE) or not text.startswith(self._shown):
            return ""
        new_text, self._shown = text[len(self._shown) :], text
        return new_text


async def _send(client: Client, text: str) -> AsyncGenerator[StreamResponse]:
    from a2a.helpers import new_text_message  # noqa: PLC0415 - an extra
    from a2a.types import Role, SendMessageRequest  # noqa: PLC0415 - an extra

    message = new_text_message(text, role=Role.ROLE_USER)
    events: Any = client.send_message(SendMessageRequest(message=message))
    async with aclosing(events):
        async for event in events:
            yield event


def _prompt_text(messages: Sequence[Message]) -> str:
    """Return the newest message of the user below a summary of the messages before it."""
    shown = [each for each in messages if each["role"] not in ("system", "developer")]
    own = [each for each in shown if each["role"] == "user" and not is_note(each)]
    newest = own[-1:]
    before = [each for each in shown if each not in newest]
    summary = [text_of(default_handoff_history_mapper(before)[0])] if before else []
    return sendable("\n\n".join([*summary, *map(text_of, newest)]))


def _text(parts: Iterable[Part]) -> str:
    from a2a.helpers import get_data_parts, get_text_parts  # noqa: PLC0415 - an extra

    every = [*parts]
    data = [json.dumps(integral(each), ensure_ascii=False) for each in get_data_parts(every)]
    return "\n".join([*get_text_parts(every), *data])
