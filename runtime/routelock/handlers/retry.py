"""Trying a model call again when that is safe. Retrying is ours alone: no client library retries too."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from types import AsyncGeneratorType
from typing import Final

import anyio

from routelock._callables import is_spurious_cancel
from routelock.errors import ConfigError, HandlerError, ProviderError
from routelock.handlers.events import AttemptFailed, HandlerEvent
from routelock.handlers.port import Handler, Request

__all__ = ["WATCHER", "Retry", "attempts"]


WATCHER: Final[ContextVar[Callable[[Request], None] | None]] = ContextVar("routelock_watcher", default=None)
"""Is shown each request on its way to a handler; `routelock.testing.watch_requests` sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When and how a failed model call is made again.

    Only errors that say ``retryable`` are retried, and never once a token was shown, unless
    ``mid_stream`` allows it: then an `AttemptFailed` event says that what was shown is void. Tools
    never run twice, because none runs before its reply is complete.
    """

    attempts: int = 3
    """How many times the call is made at most; 1 never retries."""
    first_delay: float = 0.5
    """Seconds before the second attempt; doubled for each further one."""
    longest_delay: float = 30.0
    """The longest wait in seconds. A provider that asks for more is not waited for."""
    mid_stream: bool = False
    """Whether a call may be made again after a part of the reply was shown."""
    jitter: Callable[[], float] = random.random
    """Gives a number from 0 to 1 that spreads the waits; replace it for exact tests."""
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    """Waits for some seconds; replace it for fast tests."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigError(f"Retry.attempts must be at least 1, not {self.attempts}.")

    def delay(self, attempt: int, error: ProviderError) -> float | None:
        """Return the seconds to wait after this failed attempt, or None to give up."""
        if attempt >= self.attempts or not error.retryable:
            return None
        if error.retry_after is not None:
            return max(0.0, error.retry_after) if error.retry_after <= self.longest_delay else None
        doublings = min(attempt - 1, 100)  # more would overflow, and is the longest delay anyway
        backoff: float = min(self.first_delay * 2.0**doublings, self.longest_delay)
        return backoff * (0.5 + self.jitter() / 2)


async def attempts(
    handler: Handler, request: Request, retry: Retry, begin: Callable[[], None] = lambda: None
) -> AsyncGenerator[HandlerEvent]:
    """Make a model call, and make it again as ``retry`` allows; yield what arrives.

    Args:
        handler: answers.
        request: what it is asked.
        retry: whether and when.
        begin: called before each attempt but the first.

    Raises:
        ProviderError: the last attempt's error.
        HandlerError: the handler was cancelled, and not by the run.
    """
    number = 1
    while True:
        is_shown = False
        try:
            async with aclosing(_stream_of(handler, request)) as events:
                async for event in events:
                    is_shown = True
                    yield event
            return
        except ProviderError as error:
            delay = None if is_shown and not retry.mid_stream else retry.delay(number, error)
            if delay is None:
                raise
            failed = AttemptFailed(error=error, attempt=number, delay=delay)
        except BaseException as error:
            if not is_spurious_cancel(error):
                raise
            raise HandlerError(f"Handler {handler.name!r} was cancelled from within.") from error
        yield failed
        await retry.sleep(failed.delay)
        begin()
        number += 1


def _stream_of(handler: Handler, request: Request) -> AsyncGenerator[HandlerEvent]:
    """Ask a handler; one that somebody wrote by hand may have a ``stream`` that gives something else."""
    if (watcher := WATCHER.get()) is not None:
        watcher(request)
    events = handler.stream(request)
    if isinstance(events, AsyncGeneratorType) or (hasattr(events, "__aiter__") and hasattr(events, "aclose")):
        return events
    if isinstance(events, Coroutine):
        events.close()  # or Python warns that nobody awaited it
    raise HandlerError(
        f"Handler {handler.name!r}: stream must be an async generator, `async def` with `yield`, but gave a "
        f"{type(events).__name__}. A function that returns its reply becomes one with "
        "routelock.function_handler(...)."
    )
