"""Retries of model calls. Only this module retries; the client libraries have retries switched off."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass
from types import AsyncGeneratorType
from typing import Final

import anyio

from routelock._callables import is_spurious_cancel
from routelock.errors import ConfigError, HandlerError, ProviderError
from routelock.handlers.events import AttemptFailed, HandlerEvent
from routelock.handlers.port import Handler, Request

__all__ = ["REQUEST_OBSERVER", "Retry", "attempts"]


REQUEST_OBSERVER: Final[ContextVar[Callable[[Request], None] | None]] = ContextVar(
    "routelock_request_observer", default=None
)
"""Called with each request before the handler gets it; `routelock.testing.watch_requests` sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The rules for retries of failed model calls: how many there are, and after which delays.

    Only errors with ``retryable`` are retried, and only before the first delta. ``mid_stream`` allows a later
    retry; an `AttemptFailed` event then says that the deltas so far are void. A retry never runs a tool
    twice, because tools run only after a complete reply.
    """

    attempts: int = 3
    """The most attempts of a call; 1 never retries."""
    first_delay: float = 0.5
    """The seconds before the second attempt; doubled for each further attempt."""
    longest_delay: float = 30.0
    """The longest delay in seconds. If a provider asks for a longer one, the call fails."""
    mid_stream: bool = False
    """Whether a call may be made again after a part of the reply was yielded."""
    jitter: Callable[[], float] = random.random
    """Returns a number from 0 to 1 that spreads the delays; replace it for exact tests."""
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    """Waits for a number of seconds; replace it for fast tests."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigError(f"Retry.attempts must be at least 1, not {self.attempts}.")

    def delay(self, attempt: int, error: ProviderError) -> float | None:
        """Return the delay in seconds after a failed attempt, or None if there is no further attempt."""
        if attempt >= self.attempts or not error.retryable:
            return None
        if error.retry_after is not None:
            return max(0.0, error.retry_after) if error.retry_after <= self.longest_delay else None
        doublings = min(attempt - 1, 100)  # more would overflow
        backoff: float = min(self.first_delay * 2.0**doublings, self.longest_delay)
        return backoff * (0.5 + self.jitter() / 2)


async def attempts(
    handler: Handler, request: Request, retry: Retry, begin: Callable[[], None] = lambda: None
) -> AsyncGenerator[HandlerEvent]:
    """Make a model call, repeat it as ``retry`` allows, and yield its events.

    Args:
        handler: the handler of the call.
        request: its request.
        retry: the rules for further attempts.
        begin: called before each attempt except the first, including those of a handler that retries itself.

    Raises:
        ProviderError: the error of the last attempt.
        HandlerError: the handler raised a cancellation although the run was not cancelled.
    """
    number = 1
    while True:
        is_shown = False
        try:
            events = _stream_of(handler, request)
            try:
                async for event in events:
                    is_shown = True
                    yield event
                    if isinstance(event, AttemptFailed):  # the handler itself makes another attempt
                        begin()
            finally:
                await events.aclose()
            return
        except ProviderError as error:
            delay = None if is_shown and not retry.mid_stream else retry.delay(number, error)
            if delay is None:
                raise
            failed = AttemptFailed(error=error, attempt=number, delay=delay)
        except BaseException as error:
            if not is_spurious_cancel(error):
                raise
            raise HandlerError(
                f"Handler {handler.name!r} raised a cancellation although nothing cancelled it."
            ) from error
        yield failed
        await retry.sleep(failed.delay)
        begin()
        number += 1


def _stream_of(handler: Handler, request: Request) -> AsyncGenerator[HandlerEvent]:
    """Return the events of a handler after a check that its ``stream`` is an async generator."""
    if (observe := REQUEST_OBSERVER.get()) is not None:
        observe(request)
    events = handler.stream(request)
    if isinstance(events, AsyncGeneratorType) or (hasattr(events, "__aiter__") and hasattr(events, "aclose")):
        return events
    if isinstance(events, Coroutine):
        events.close()  # otherwise Python warns that the coroutine was never awaited
    raise HandlerError(
        f"Handler {handler.name!r}: stream must be an async generator, `async def` with `yield`, but "
        f"returned a {type(events).__name__}. For a function that returns its reply use "
        "routelock.function_handler(...)."
    )
