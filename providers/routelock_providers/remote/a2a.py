"""An agent that is reached by A2A, the Agent2Agent protocol: the extra ``a2a``."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from routelock._json import integral, sendable
from routelock._tool_names import slug
from routelock.errors import (
    AuthenticationFailed,
    ConfigError,
    IncompleteResponse,
    InvalidRequest,
    MissingExtra,
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
from routelock_providers.http_errors import key_hint
from routelock_providers.redirects import redirect_refused
from routelock_providers.remote.urls import parse_url

if TYPE_CHECKING:
    import httpx
    from a2a.client import Client
    from a2a.types import Part, StreamResponse, TaskStatus

__all__ = ["A2AAgent"]


_LONGEST = 10 * 2**20
"""Characters of an answer."""

_PARTING_SECONDS = 2.0

_KEY_HINT = "Pass A2AAgent the api_key= that it wants."

_DONE = ("TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED")

_LOGIN = "TASK_STATE_AUTH_REQUIRED"

_ENDS = (*_DONE, _LOGIN, "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED")


class A2AAgent:
    """A handler that lets an agent answer which speaks A2A, whichever framework it is made with.

    It is one model call to the run. The agent is sent the newest words of the user, below a summary of what
    came before; no system messages, tools, images or files. Each call is a context of its own there. What it
    writes streams through, without its notes on how far it is; data is JSON text. When it asks something
    (``input-required``), the question is the answer. Failures are `ProviderError` and never text.

    A run that is cancelled, or leaves, cancels the task there, if the agent streams: otherwise the task's id
    comes with its answer. Needs asyncio, as the protocol's SDK does.

    Args:
        url: where its card is, without ``/.well-known/agent-card.json``. The card is read for each call, and
            may lead to the same server only: same scheme, host and port.
        name: the handler's name; default ``a2a_<host and path>``.
        api_key: sent as a bearer token.
        prompt: when to use the agent, for the model that may hand over to it.
        priority: of the handlers of an agent, the lower number comes first.
        scope: who may reach it, see `routelock.scopes`.
        expose: whether a model is offered ``transfer_to_<name>`` without an edge to it.
        timeout: seconds that the server may send nothing at all. How long a reply may take in all is
            ``RunConfig.turn_timeout``.

    Raises:
        MissingExtra: the protocol's SDK is not installed.
        ConfigError: an argument that cannot work.
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
        try:
            import httpx  # noqa: PLC0415 - comes with the next
            from a2a.client import A2ACardResolver, ClientConfig, ClientFactory  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise MissingExtra(
                "A2AAgent needs the SDK of A2A, which is not installed: pip install 'routelock[a2a]'."
            ) from error
        self._home = parse_url(url)
        where = re.sub("[^A-Za-z0-9]+", "_", f"{self._home.authority}{self._home.path}")
        self.name = name or slug(f"a2a_{where}".strip("_"))
        self.family = self._home.authority
        self.prompt = prompt
        self.priority = priority
        self.scope = checked_scope(scope, f"A2AAgent {self.name!r}")
        self.expose = expose
        check_seconds(timeout=timeout)
        if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
            raise ConfigError("api_key has characters in it that a header cannot carry.")
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        # made once: to read the certificates takes longer than to ask
        tls = httpx.create_ssl_context()
        self._http = partial(httpx.AsyncClient, headers=headers, timeout=timeout, verify=tls)
        self._resolver, self._config, self._factory = A2ACardResolver, ClientConfig, ClientFactory

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        """Ask the agent; its reply streams as it comes.

        Raises:
            ProviderError: what went wrong, see `routelock.errors`.
        """
        reply = _Reply()
        async with self._http() as http:
            try:
                client = await self._client(http)
                async with aclosing(_sent(client, _words(request.messages))) as events:
                    async for event in events:
                        if fresh := reply.take(event):
                            yield TextDelta(fresh)
                        if reply.over:
                            break
            except Exception as error:
                raise self._failure(error) from error
            finally:
                if reply.task and not reply.over:
                    await self._cancel(http, reply.task)
        yield self._whole(reply)

    async def _client(self, http: httpx.AsyncClient) -> Client:
        """Return a client for what the card says, as far as that is on the server that was asked for.

        Raises:
            InvalidRequest: the card leads elsewhere: neither the key nor what is said is for there.
        """
        card = await self._resolver(http, str(self._home)).get_agent_card()
        near = [each for each in card.supported_interfaces if self._is_home(each.url)]
        if not near:
            raise InvalidRequest(
                f"The card of {self.name!r} leads to another server than {self._home.origin}; nothing was "
                "sent there. Give A2AAgent the URL of that server, if it is the right one.",
                provider=self.family,
                model=self.name,
            )
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(near)
        return self._factory(self._config(httpx_client=http)).create(card)

    def _is_home(self, url: str) -> bool:
        try:
            return parse_url(url).origin == self._home.origin
        except ConfigError:
            return False

    async def _cancel(self, http: httpx.AsyncClient, task: str) -> None:
        """Cancel a task there; if that cannot be, it goes on until it ends by itself."""
        from a2a.types import CancelTaskRequest  # noqa: PLC0415 - an extra

        with anyio.move_on_after(_PARTING_SECONDS, shield=True), suppress(Exception):
            client = await self._client(http)
            await client.cancel_task(CancelTaskRequest(id=task))

    def _failure(self, error: Exception) -> ProviderError:
        from a2a.client.errors import A2AClientError  # noqa: PLC0415 - an extra
        from a2a.utils.errors import A2AError, InternalError, InvalidAgentResponseError  # noqa: PLC0415

        answer: Any = getattr(error.__cause__, "response", None)
        if answer is not None and 300 <= answer.status_code < 400:
            return redirect_refused(
                answer.status_code,
                answer.headers,
                url=str(answer.url),
                provider=self.family,
                model=self.name,
                argument="url",
            )
        if not isinstance(error, A2AError) or isinstance(error, A2AClientError):
            meant = to_provider_error(error, provider=self.family, model=self.name)
            if isinstance(meant, AuthenticationFailed):
                meant.args = (str(meant).replace(key_hint(self.family), _KEY_HINT),)
            return meant
        its_own = isinstance(error, InternalError | InvalidAgentResponseError)
        kind = ServerFailed if its_own else InvalidRequest
        said = f"{self.name!r} answered with an error of the protocol, {type(error).__name__}: {error!s:.400}"
        return kind(said, provider=self.family, model=self.name)

    def _whole(self, reply: _Reply) -> MessageDone:
        where: dict[str, Any] = {"provider": self.family, "model": self.name}
        if reply.state == _LOGIN:
            raise AuthenticationFailed(f"{self.name!r} asks for a login: {reply.why:.400}", **where)
        if reply.state in _ENDS and reply.state not in _DONE:
            how = reply.state.removeprefix("TASK_STATE_").lower()
            raise ProviderError(f"{self.name!r} ended its task as {how}: {reply.why:.400}", **where)
        if not reply.over:
            raise IncompleteResponse(f"{self.name!r} broke off before its task was at an end.", **where)
        message: Message = {"role": "assistant", "content": reply.text}
        usage = Usage(requests=1, estimated=True)
        return MessageDone(message=message, usage=usage, response_id=reply.task or None)


class _Reply:
    """What an agent has shown so far, put together as the protocol says."""

    def __init__(self) -> None:
        self.task = ""
        self.state = ""
        self.why = ""
        self._answer = ""
        self._artifacts: dict[str, str] = {}
        self._shown = ""

    @property
    def over(self) -> bool:
        """Whether no more is to come."""
        return self.state in _ENDS

    @property
    def text(self) -> str:
        """All that was shown; a question, or what stands for an answer, at the end.

        What a task says on its way ("Looking it up...") is neither: the answer is still to come.
        """
        asks = self.state == "TASK_STATE_INPUT_REQUIRED" or (self.over and not any(self._artifacts.values()))
        parts = [*self._artifacts.values(), self.why if asks else "", self._answer]
        return "\n\n".join(part for part in parts if part)

    def take(self, event: StreamResponse) -> str:
        """Take the next event, and return what it adds to the text."""
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
        return self._fresh()

    def _status(self, status: TaskStatus) -> None:
        from a2a.types import TaskState  # noqa: PLC0415 - an extra

        self.state, self.why = TaskState.Name(status.state), _text(status.message.parts)

    def _fresh(self) -> str:
        """Return what is new at the end; what was shown and is written anew cannot be taken back."""
        text = self.text
        if len(text) > _LONGEST:
            why = f"An answer of more than {_LONGEST} characters is not read."
            raise UnreadableResponse(why, retryable=False)
        if (self.state in _ENDS and self.state not in _DONE) or not text.startswith(self._shown):
            return ""
        fresh, self._shown = text[len(self._shown) :], text
        return fresh


async def _sent(client: Client, words: str) -> AsyncGenerator[StreamResponse]:
    from a2a.helpers import new_text_message  # noqa: PLC0415 - an extra
    from a2a.types import Role, SendMessageRequest  # noqa: PLC0415 - an extra

    message = new_text_message(words, role=Role.ROLE_USER)
    events: Any = client.send_message(SendMessageRequest(message=message))
    async with aclosing(events):
        async for event in events:
            yield event


def _words(messages: Sequence[Message]) -> str:
    """Return the newest words of the user, below what came before them."""
    said = [each for each in messages if each["role"] not in ("system", "developer")]
    own = [each for each in said if each["role"] == "user" and not is_note(each)]
    newest = own[-1:]
    before = [each for each in said if each not in newest]
    summary = [text_of(default_handoff_history_mapper(before)[0])] if before else []
    return sendable("\n\n".join([*summary, *map(text_of, newest)]))


def _text(parts: Iterable[Part]) -> str:
    from a2a.helpers import get_data_parts, get_text_parts  # noqa: PLC0415 - an extra

    every = [*parts]
    data = [json.dumps(integral(each), ensure_ascii=False) for each in get_data_parts(every)]
    return "\n".join([*get_text_parts(every), *data])
