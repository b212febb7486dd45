"""One call to litellm, from its arguments to the end of its reply."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import Any, TypeVar, cast

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
from routelock.history.messages import Message, calls_of
from routelock.history.validity import says_nothing
from routelock.usage import Usage
from routelock_providers.chat_completions.stream_reader import MISSHAPEN
from routelock_providers.deadlines import Deadline
from routelock_providers.errors import cause_of, to_provider_error
from routelock_providers.http_errors import error_from_answer, redirect_error, shorten, vendor_label
from routelock_providers.litellm.fixes import mark_parts, unprotect_arguments
from routelock_providers.litellm.library import as_dict
from routelock_providers.litellm.prices import cost_of, price
from routelock_providers.litellm.request import OWN_CONNECTION, Call, Target
from routelock_providers.litellm.response_filter import ResponseFilter
from routelock_providers.litellm.thoughts import LeadingThought, RepeatedThoughts
from routelock_providers.litellm.wire import WireChanges, paused_turn
from routelock_providers.structured_output import as_answer
from routelock_providers.usage_estimates import completed_usage
from routelock_providers.vendor_items import Collector, collector_for, noted
from routelock_providers.vendor_tools import AddedTools
from routelock_providers.vendors import ignores_tool_choice

__all__ = ["Exchange"]


T = TypeVar("T")

_CLOSE_SECONDS = 5.0
"""How long closing a connection may take."""

_FILTERS_CALLED_STOP = ("MODEL_ARMOR", "ERROR_TOXIC")
"""Google's and Cohere's reasons for a filtered reply that some releases of litellm report as ``stop``."""


class Exchange:
    """The state of one call. A `ResponseFilter` reads the answer first, if the route allows it."""

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
        self.collector: Collector | None = collector_for(call.api) if call.collects else None
        """Keeps the items of the vendor's own tools; None if no tool is offered."""
        self._filter: ResponseFilter | None = None
        self._connection: Any = None
        self._active_call: Any = None
        self._sent = False
        self._reply: Any = None
        self._url = target.given.get("api_base", "")
        self._usage: Mapping[str, Any] = {}
        self._cost: float | None = None
        self._assembler = Assembler()
        self._repeated_thoughts = RepeatedThoughts()
        self._leading_thought = LeadingThought()
        # imports litellm and httpx, so it is loaded at the first call
        self._client_module: Any = importlib.import_module("routelock_providers.litellm.client")

    async def next_chunk(self) -> object:
        """Return the next chunk of the reply, or None at its end. A whole reply is one chunk.

        Raises:
            ProviderError: the call failed, see `routelock.errors`.
        """
        if not self._sent:
            self._sent = True
            try:
                arguments = self._arguments()
            except Exception as error:  # Azure's client is made here and needs a key
                provider_error = self._error_for(error)
                raise provider_error from cause_of(provider_error, error)
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
            chunk = None  # the message is whole: only its usage is missing
        if chunk is None and (held := self._leading_thought.rest()):
            return {"choices": [{"index": 0, "delta": held}]}
        return chunk

    @property
    def is_paused(self) -> bool:
        """Whether the vendor has stopped in the middle of its work, and continues when it is asked again."""
        return self.collector is not None and self.collector.is_paused

    def joined(self, parts: Sequence[MessageDone], collectors: Sequence[Collector]) -> MessageDone:
        """Return the reply that these answers make up, with the calls of the vendor's own tools.

        Args:
            parts: the answers; several if the vendor has paused.
            collectors: their collectors; none if no tool of the vendor was offered.

        Raises:
            UnreadableResponse: an item of the tools has a shape that no vendor sends.
        """
        done = reduce(_join, parts)
        if not collectors:
            return done
        reason = "pause_turn" if collectors[-1].is_paused else done.finish_reason
        try:
            return replace(done, message=noted(done.message, collectors), finish_reason=reason)
        except MISSHAPEN as error:
            raise self._misshapen(error) from error

    def continued_call(self) -> Call:
        """Return the call with which a paused vendor continues: the same call plus the answer so far."""
        assert self.collector is not None
        mark, turn = paused_turn(self.collector.items)
        messages = [*self.call.arguments["messages"], {"role": "assistant", "content": mark}]
        rest = {key: value for key, value in self.call.arguments.items() if key != "tool_choice"}
        added = self.call.added or AddedTools()
        fields = {key: value for key, value in added.fields.items() if key != "tool_choice"}
        return replace(
            self.call,
            arguments={**rest, "messages": messages},
            turns={**self.call.turns, mark: turn},
            added=replace(added, fields={**fields, **self.collector.continuation}),
        )

    def events_of(self, chunk: object) -> list[HandlerEvent]:
        """Take in a chunk and return its events.

        Raises:
            UnreadableResponse: the chunk has a shape that no reply has.
        """
        try:
            return self._assembler.feed(self._fixed(chunk))
        except MISSHAPEN as error:
            raise self._misshapen(error) from error

    def _fixed(self, chunk: object) -> dict[str, Any]:
        """Return a chunk as a dict, as the vendor sent it; record its usage."""
        plain = as_dict(chunk)
        self._usage = plain.get("usage") or self._usage
        for choice in plain.get("choices") or ():
            delta, message = choice.get("delta"), choice.get("message")
            self._repeated_thoughts.remove(delta or message or {})
            if choice.get("index"):
                continue
            if message and not delta:
                if self._filter is not None:
                    unprotect_arguments(message)
                self._restore_fields(message)
                self._leading_thought.move_all(message)
            elif delta:
                self._leading_thought.move(delta)
            if self._target.provider == "groq":
                _with_groq_key(delta or message or {})
        return plain

    def _restore_fields(self, message: dict[str, Any]) -> None:
        """Move fields that litellm does not know back to the top level, where streams have them."""
        if self._target.is_translated:
            return
        fields: Mapping[str, Any] = message.pop("provider_specific_fields", None) or {}
        for key, value in fields.items():
            # litellm renames it, in streams too, except for OpenRouter
            renamed = key == "reasoning" and message.get("reasoning_content")
            if value is not None and not (renamed and self._target.provider != "openrouter"):
                message.setdefault(key, value)

    def finish(self) -> MessageDone:
        """Return the complete reply with its cost.

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
        """Close the reply and the connection. litellm 1.105 leaves some connections open."""
        self._deadline.close()
        reply, connection = self._reply, self._connection
        self._reply = self._connection = None  # both refer back to this object
        if reply is not None or (connection is not None and connection.is_open):
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                if reply is not None:
                    with suppress(Exception):
                        await reply.aclose()
                if connection is not None:
                    await connection.close()
        if self._active_call is not None:
            self._active_call.connection = None

    def _arguments(self) -> dict[str, Any]:
        call = self.call
        arguments: dict[str, Any] = {"model": self._model, **self._route(), **call.arguments}
        if self._filter is not None and self._target.provider != "bedrock":  # requests to Bedrock are signed
            arguments["messages"], parts = mark_parts(arguments["messages"])
            self._connection.changes = WireChanges(
                api=call.api, parts=parts, turns=call.turns, added=call.added
            )
        elif call.added is not None:
            arguments |= call.added.fields
            arguments["tools"] = [*arguments.get("tools", ()), *call.added.tools]
            if call.added.betas:
                headers = {"anthropic-beta": ",".join(call.added.betas)}
                arguments["extra_headers"] = {**headers, **arguments.get("extra_headers", {})}
        return arguments

    def _route(self) -> Mapping[str, Any]:
        """Return the arguments with the address, the key and the HTTP client."""
        target, client_module = self._target, self._client_module
        given: dict[str, Any] = dict(target.given)
        if not OWN_CONNECTION.isdisjoint(self.call.arguments):
            return given
        route = client_module.Route(
            provider=target.provider,
            responses=target.responses,
            api_base=target.api_base,
            api_key=target.api_key,
            given=self.call.arguments,
        )
        if (client := client_module.filtered_client(route)) is not None:
            response_filter = ResponseFilter(
                target.provider,
                streams=bool(self.call.arguments.get("stream")),
                collector=self.collector,
            )
            self._connection = client_module.CallConnection(
                response_filter, self._max_bytes, self._unreadable, self._redirected, route.is_filtered
            )
            self._active_call = client_module.ActiveCall(self._connection)
            self._filter = response_filter if route.is_filtered else None
            given |= client
        return given

    async def _guarded(
        self, wait: Callable[[Callable[[], Awaitable[T]]], Awaitable[T]], work: Callable[[], Awaitable[T]]
    ) -> T:
        """Await one step of the call within its time limit, and raise its errors as errors of routelock."""
        token = None if self._active_call is None else self._client_module.enter_call(self._active_call)
        try:
            return await wait(work)
        except ProviderError:
            raise
        except Exception as error:
            provider_error = self._error_for(error)
            raise provider_error from cause_of(provider_error, error)
        finally:
            if token is not None:
                self._client_module.exit_call(token)

    def _error_for(self, error: Exception) -> ProviderError:
        """Return the error for an exception of litellm."""
        response_filter = self._filter
        provider_error = to_provider_error(
            error,
            provider=self._target.provider,
            model=self._model,
            answer=None if response_filter is None else response_filter.answer,
            until=self._earlier,
            began=None if self._connection is None else self._connection.response is not None,
            url=self._url,
        )
        if not isinstance(provider_error, ProviderDefect) or response_filter is None:
            return provider_error
        if response_filter.unreadable is not None:
            data = shorten(response_filter.unreadable.decode("utf-8", "replace"), 200)
            return self._unreadable(f"{data!r} is not a reply", True)
        return self._incomplete("no part of a reply came") if response_filter.has_no_reply else provider_error

    def _unreadable(self, why: str, again: bool) -> UnreadableResponse:
        advice = " Check that api_base is that of the API; the same request may pass later." if again else ""
        return UnreadableResponse(
            f"The reply of {self._vendor_label()} for model {self._model!r} cannot be read: {why}.{advice}",
            provider=self._target.provider,
            model=self._model,
            retryable=again,
        )

    def _redirected(self, status: int, headers: Mapping[str, str], url: str) -> ProviderError:
        provider, model = self._target.provider, self._model
        return redirect_error(status, headers, url=url, provider=provider, model=model, argument="api_base")

    def _vendor_label(self) -> str:
        return vendor_label(self._target.provider, self._url)

    def _misshapen(self, error: Exception) -> UnreadableResponse:
        return self._unreadable(f"it has a shape that no reply has ({shorten(str(error), 200)})", True)

    def _check_complete(self, done: MessageDone) -> None:
        """Raise for a reply that was cut: litellm gives it a finish reason like a complete one."""
        if self._reply is None:
            why = "no part of a reply came" if self._is_empty(done) else None
        elif self._filter is None:
            seen = getattr(self._reply, "received_finish_reason", True)
            why = None if seen else why_incomplete(replace(done, finish_reason=None, usage=None))
        elif self._filter.has_no_reply and not self._filter.was_empty:
            raise UnreadableResponse(
                f"{self._vendor_label()} answered with a stream without a reply (model "
                f"{self._model!r}). Check that api_base is that of the API.",
                provider=self._target.provider,
                model=self._model,
            )
        elif self._filter.ended_without_reason:
            counted = done.usage if self._filter.usage_seen else None
            why = why_incomplete(replace(done, finish_reason=None, usage=counted), ended=True)
        else:
            why = "its end is missing" if self._filter.was_cut or self._filter.has_no_reply else None
        if why is not None:
            raise self._incomplete(why)

    def _explained(self, done: MessageDone) -> MessageDone:
        """Add the vendor's reason, which litellm drops, to a reply that a content filter emptied."""
        why = "" if self._filter is None else self._filter.end_reason
        filtered = done.finish_reason == "content_filter" or why in _FILTERS_CALLED_STOP
        if not (why and filtered and says_nothing(done.message)):
            return done
        message: Any = {**done.message, "refusal": f"{self._target.provider} calls it {why}"}
        return replace(done, message=message, finish_reason="content_filter")

    def _is_empty(self, done: MessageDone) -> bool:
        """Return whether a whole reply is empty; litellm invents a finish reason and usage for it."""
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
            f"The reply of {self._vendor_label()} was cut off (model {self._model!r}): {why}. "
            "What arrived is only a part of the reply; the run may ask again.",
            provider=self._target.provider,
            model=self._model,
        )

    def check_choice(self, done: MessageDone) -> None:
        """Check a forced tool choice that litellm silently left out of the request.

        Args:
            done: the reply, which the run has received already, so that neither it nor its cost is lost.

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
                f"{self._model} had to call {wanted} and did not, because litellm cannot pass the choice to "
                f"{self._target.provider}. Use tool_choice='auto', or another model."
            )

    def _counted(self, done: MessageDone) -> Usage:
        """Return the usage with its cost, marked as an estimate unless the vendor counted the tokens.

        The cost is the vendor's if it sends one, else litellm's for this call, else that of litellm's table.
        """
        counted, by_vendor, asked = done.usage, self._vendor_counted(), self.call.arguments
        if not (by_vendor or (counted is not None and counted.total_tokens)):
            counted = None  # litellm estimates those of streams alone
        usage = completed_usage(counted, asked["messages"], asked.get("tools", ()), done.message)
        if usage is not counted:
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
            estimated=usage.estimated or not by_vendor,
        )

    def _vendor_counted(self) -> bool:
        if self._filter is not None:
            return self._filter.usage_seen
        # litellm silently counts the tokens itself if a stream has no usage
        chunks: list[Any] = getattr(self._reply, "chunks", [])
        return self._reply is None or any(getattr(chunk, "usage", None) for chunk in chunks)


def _join(first: MessageDone, second: MessageDone) -> MessageDone:
    message: dict[str, Any] = {**first.message, **second.message}
    for key in ("content", "reasoning_content", "thinking_blocks"):
        before: Any = first.message.get(key)
        if before and message.get(key) is not before:
            message[key] = before + message[key] if message.get(key) else before
    usage = first.usage + second.usage if first.usage and second.usage else None
    return replace(second, message=cast(Message, message), usage=usage)


def _with_groq_key(message: dict[str, Any]) -> None:
    """Give a thought the key that Groq uses and takes back; litellm renames it in streams."""
    if thought := message.pop("reasoning_content", None):
        message.setdefault("reasoning", thought)
