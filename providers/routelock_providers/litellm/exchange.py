"""One call to litellm, from its arguments to the end of its reply."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import anyio

from routelock.errors import (
    IncompleteResponse,
    ModelBehaviorError,
    ProviderDefect,
    ProviderError,
    ProviderTimeout,
    UnreadableResponse,
)
from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.handlers.stream_assembler import Assembler, why_incomplete
from routelock.history.messages import calls_of
from routelock.history.repair import says_nothing
from routelock.usage import Usage
from routelock_providers.chat_completions.stream_reader import MISSHAPEN
from routelock_providers.chat_completions.thinking_tags import LeadingThought
from routelock_providers.deadlines import Deadline
from routelock_providers.errors import cause_of, to_provider_error
from routelock_providers.http_errors import error_from_answer, shortened, who
from routelock_providers.litellm.fixes import Echoes, set_aside, unshield
from routelock_providers.litellm.library import as_dict
from routelock_providers.litellm.prices import cost_of, price
from routelock_providers.litellm.request import Call, Target
from routelock_providers.litellm.response_filter import ResponseFilter
from routelock_providers.redirects import redirect_refused
from routelock_providers.structured_output import as_answer
from routelock_providers.usage_estimates import estimated_usage
from routelock_providers.vendors import ignores_tool_choice

__all__ = ["Exchange"]


T = TypeVar("T")

_CLOSING = 5.0
"""Seconds after which a connection that does not close is given up."""

_OWN_CONNECTION = frozenset(("client", "shared_session", "ssl_verify"))
"""Settings with which an app brings a connection of its own: such calls are not filtered."""

_CALLED_STOP = ("MODEL_ARMOR", "ERROR_TOXIC")
"""Google's and Cohere's words for a filter that some releases of litellm call an ordinary end."""


class Exchange:
    """The state of one call. Where the route allows it, a `ResponseFilter` reads what the vendor sends."""

    def __init__(
        self,
        litellm: Any,
        model: str,
        target: Target,
        call: Call,
        deadline: Deadline,
        earlier: BaseException | None,
        max_bytes: int | None,
    ) -> None:
        self.call = call
        self._litellm = litellm
        self._model = model
        self._target = target
        self._deadline = deadline
        self._earlier = earlier
        self._max_bytes = max_bytes
        self._filter: ResponseFilter | None = None
        self._line: Any = None
        self._ongoing: Any = None
        self._sent = False
        self._reply: Any = None
        self._url = target.given.get("api_base", "")
        self._who = who(target.provider, self._url)
        self._usage: Mapping[str, Any] = {}
        self._cost: float | None = None
        self._assembler = Assembler()
        self._echoes = Echoes()
        self._thought = LeadingThought()
        # imports litellm and httpx, which are not loaded before the first call
        self._client_module: Any = importlib.import_module("routelock_providers.litellm.client")

    async def next_chunk(self) -> object:
        """Return the next chunk of the reply, or None at its end. A whole reply is one chunk.

        Raises:
            ProviderError: whatever went wrong, see `routelock.errors`.
        """
        if not self._sent:
            self._sent = True
            try:
                arguments = self._arguments()
            except Exception as error:  # Azure's client is made here, and not without a key
                meant = self._meant(error)
                raise meant from cause_of(meant, error)
            reply = await self._guarded(self._deadline.first, lambda: self._litellm.acompletion(**arguments))
            if not hasattr(reply, "__aiter__"):
                self._cost = cost_of(reply)
                return reply
            self._reply = reply
            return await self._guarded(self._deadline.first, lambda: anext(reply, None))
        if self._reply is None:
            return None
        try:
            chunk = await self._guarded(self._deadline.next, lambda: anext(self._reply, None))
        except ProviderTimeout:
            if self._filter is None or not self._filter.is_complete or self._filter.answer is not None:
                raise
            chunk = None  # the message is whole: what is missing is how many tokens it had
        if chunk is None and (held := self._thought.rest()):
            return {"choices": [{"index": 0, "delta": held}]}
        return chunk

    def told(self, chunk: object) -> list[HandlerEvent]:
        """Take in a chunk, and return what it says.

        Raises:
            UnreadableResponse: it has another shape than any reply.
        """
        try:
            return self._assembler.feed(self._noted(chunk))
        except MISSHAPEN as error:
            raise self._misshapen(error) from error

    def _noted(self, chunk: object) -> dict[str, Any]:
        plain = as_dict(chunk)
        self._usage = plain.get("usage") or self._usage
        for choice in plain.get("choices") or ():
            delta, message = choice.get("delta"), choice.get("message")
            self._echoes.take_out(delta or message or {})
            if choice.get("index"):
                continue
            if message and not delta:
                if self._filter is not None:
                    unshield(message)
                self._lift(message)
                self._thought.move_all(message)
            elif delta:
                self._thought.move(delta)
            if self._target.provider == "groq":
                _as_groq_says(delta or message or {})
        return plain

    def _lift(self, message: dict[str, Any]) -> None:
        """Put what litellm does not know back to where the vendor said it; in a stream it stays there."""
        if self._target.is_translated:
            return
        fields: Mapping[str, Any] = message.pop("provider_specific_fields", None) or {}
        for key, value in fields.items():
            # named anew by litellm, in streams as well; not for OpenRouter
            renamed = key == "reasoning" and message.get("reasoning_content")
            if value is not None and not (renamed and self._target.provider != "openrouter"):
                message.setdefault(key, value)

    def finish(self) -> MessageDone:
        """Return the complete reply with what it cost, or raise for one that is none.

        Raises:
            ProviderError: the vendor reported an error within its reply, or the reply is incomplete.
        """
        try:
            done = self._assembler.done()
        except MISSHAPEN as error:
            raise self._misshapen(error) from error
        if self._filter is not None and self._filter.answer is not None:
            answer = self._filter.answer
            url = self._url
            raise error_from_answer(answer, provider=self._target.provider, model=self._model, url=url)
        self._check_complete(done)
        done = self._explained(done)
        if self.call.plan.answer_tool is not None:
            done = as_answer(done, self.call.plan.answer_tool)
        return replace(done, usage=self._counted(done))

    async def close(self) -> None:
        """Give up whatever of the reply was not read. litellm 1.105 leaves some connections open."""
        self._deadline.close()
        reply, line = self._reply, self._line
        self._reply = self._line = None  # they lead back to here, and would wait for the garbage collector
        if reply is not None or (line is not None and line.is_open):
            with anyio.move_on_after(_CLOSING, shield=True):
                if reply is not None:
                    with suppress(Exception):
                        await reply.aclose()
                if line is not None:
                    await line.hang_up()
        if self._ongoing is not None:
            self._ongoing.line = None

    def _arguments(self) -> dict[str, Any]:
        connection = self._connection()
        arguments: dict[str, Any] = {"model": self._model, **connection, **self.call.arguments}
        if self._filter is not None and self._target.provider != "bedrock":  # which signs what it sends
            arguments["messages"], self._line.parts = set_aside(arguments["messages"])
        return arguments

    def _connection(self) -> Mapping[str, Any]:
        """Return the arguments that say where and by whom the request is sent."""
        target, client_module = self._target, self._client_module
        connection: dict[str, Any] = dict(target.given)
        if not _OWN_CONNECTION.isdisjoint(self.call.arguments):
            return connection
        route = client_module.Route(
            provider=target.provider,
            responses=target.responses,
            api_base=target.api_base,
            api_key=target.api_key,
            given=self.call.arguments,
        )
        if (client := client_module.filtered_client(route)) is not None:
            response_filter = ResponseFilter(target.provider, streams=bool(self.call.arguments.get("stream")))
            self._line = client_module.Line(
                response_filter, self._max_bytes, self._unreadable, self._moved, route.is_filtered
            )
            self._ongoing = client_module.Ongoing(self._line)
            self._filter = response_filter if route.is_filtered else None
            connection |= client
        return connection

    async def _guarded(
        self, wait: Callable[[Callable[[], Awaitable[T]]], Awaitable[T]], work: Callable[[], Awaitable[T]]
    ) -> T:
        """Await one step of the call within its time; its errors become ours."""
        token = None if self._ongoing is None else self._client_module.listen(self._ongoing)
        try:
            return await wait(work)
        except ProviderError:
            raise
        except Exception as error:
            meant = self._meant(error)
            raise meant from cause_of(meant, error)
        finally:
            if token is not None:
                self._client_module.stop_listening(token)

    def _meant(self, error: Exception) -> ProviderError:
        """Return what an exception of litellm's means."""
        response_filter = self._filter
        meant = to_provider_error(
            error,
            provider=self._target.provider,
            model=self._model,
            answer=None if response_filter is None else response_filter.answer,
            until=self._earlier,
            began=None if self._line is None else self._line.response is not None,
            url=self._url,
        )
        if not isinstance(meant, ProviderDefect) or response_filter is None:
            return meant
        if response_filter.strange is not None:
            said = shortened(response_filter.strange.decode("utf-8", "replace"), 200)
            return self._unreadable(f"{said!r} is no reply", True)
        return self._incomplete("nothing of a reply came") if response_filter.said_nothing else meant

    def _unreadable(self, why: str, again: bool) -> UnreadableResponse:
        advice = " Check that api_base is that of the API; the same request may pass later." if again else ""
        return UnreadableResponse(
            f"The reply of {self._who} for model {self._model!r} cannot be read: {why}.{advice}",
            provider=self._target.provider,
            model=self._model,
            retryable=again,
        )

    def _moved(self, status: int, headers: Mapping[str, str], url: str) -> ProviderError:
        who = {"provider": self._target.provider, "model": self._model}
        return redirect_refused(status, headers, url=url, argument="api_base", **who)

    def _misshapen(self, error: Exception) -> UnreadableResponse:
        return self._unreadable(f"it has another shape than any ({shortened(str(error), 200)})", True)

    def _check_complete(self, done: MessageDone) -> None:
        """Tell a reply that was cut from a short one: litellm gives both a finish reason."""
        if self._reply is None:
            why = "nothing of a reply came" if self._is_nothing(done) else None
        elif self._filter is None:
            seen = getattr(self._reply, "received_finish_reason", True)
            why = None if seen else why_incomplete(replace(done, finish_reason=None, usage=None))
        elif self._filter.said_nothing and not self._filter.was_silent:
            raise UnreadableResponse(
                f"{self._who} answered with a stream in which there is no reply (model "
                f"{self._model!r}). Check that api_base is that of the API.",
                provider=self._target.provider,
                model=self._model,
            )
        elif self._filter.gave_no_reason:
            counted = done.usage if self._filter.usage_seen else None
            why = why_incomplete(replace(done, finish_reason=None, usage=counted), ended=True)
        else:
            why = "its end is missing" if self._filter.was_cut or self._filter.said_nothing else None
        if why is not None:
            raise self._incomplete(why)

    def _explained(self, done: MessageDone) -> MessageDone:
        """Return a reply of which a filter left nothing with the vendor's reason, which litellm drops."""
        why = "" if self._filter is None else self._filter.why_ended
        filtered = done.finish_reason == "content_filter" or why in _CALLED_STOP
        if not (why and filtered and says_nothing(done.message)):
            return done
        message: Any = {**done.message, "refusal": f"{self._target.provider} calls it {why}"}
        return replace(done, message=message, finish_reason="content_filter")

    def _is_nothing(self, done: MessageDone) -> bool:
        """Whether a whole reply says nothing at all; litellm makes up a reason and a bill if need be."""
        response_filter = self._filter
        if (
            response_filter is not None
            and response_filter.status is not None
            and not (response_filter.is_complete or response_filter.usage_seen)
        ):
            done = replace(done, finish_reason=None, usage=None)
        return why_incomplete(done, ended=True) == "nothing"

    def _incomplete(self, why: str) -> IncompleteResponse:
        return IncompleteResponse(
            f"The reply of {self._who} was cut off (model {self._model!r}): {why}. What came "
            "is not a shorter answer but a part of one; the run may ask again.",
            provider=self._target.provider,
            model=self._model,
        )

    def check_choice(self, done: MessageDone) -> None:
        """See to a forced tool choice where litellm leaves it out of the request without a word.

        Args:
            done: the reply, which the run has by now: what the model said, and what it cost, is not lost.

        Raises:
            ModelBehaviorError: a tool had to be called and was not.
        """
        choice = self.call.plan.tool_choice
        forced = choice not in (None, "auto", "none") and self.call.plan.answer_tool is None
        if not forced or not ignores_tool_choice(self._target.provider):
            return
        called = [call["function"]["name"] for call in calls_of(done.message)]
        if not called or (choice != "required" and choice not in called):
            wanted = "a tool" if choice == "required" else f"the tool {choice!r}"
            raise ModelBehaviorError(
                f"{self._model} was to call {wanted} and did not: litellm cannot make "
                f"{self._target.provider} do it. Use tool_choice='auto' there, or another model."
            )

    def _counted(self, done: MessageDone) -> Usage:
        """Return the usage with its price, and with the truth about who counted the tokens.

        The vendor knows best what it takes, where it says so. Else litellm has worked it out for this call,
        a streamed one as well, or there is its table.
        """
        usage, by_vendor = done.usage, self._vendor_counted()
        if usage is None or not (by_vendor or usage.total_tokens):  # litellm estimates those of streams alone
            asked = self.call.arguments
            usage = estimated_usage(asked["messages"], asked.get("tools", ()), done.message)
            counts = (usage.input_tokens, usage.output_tokens, usage.total_tokens)
            self._usage = dict(
                zip(("prompt_tokens", "completion_tokens", "total_tokens"), counts, strict=True)
            )
            self._cost = None
        cost = self._cost if usage.cost is None else usage.cost
        if cost is None:
            cost = price(self._litellm, self._target.provider, self._target.name, self._usage)
        return Usage(
            usage.requests,
            usage.input_tokens,
            usage.output_tokens,
            usage.cached_tokens,
            usage.reasoning_tokens,
            cost,
            estimated=not by_vendor,
        )

    def _vendor_counted(self) -> bool:
        if self._filter is not None:
            return self._filter.usage_seen
        # litellm counts by itself, and does not say so, when a stream brings no usage
        chunks: list[Any] = getattr(self._reply, "chunks", [])
        return self._reply is None or any(getattr(chunk, "usage", None) for chunk in chunks)


def _as_groq_says(message: dict[str, Any]) -> None:
    """Name a thought as Groq does, and takes it back; litellm calls it something else in streams."""
    if thought := message.pop("reasoning_content", None):
        message.setdefault("reasoning", thought)
