"""The rules for retries of model calls. The client libraries have their own retries switched off."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from routelock.errors import ConfigError, ProviderError

__all__ = ["Retry"]


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
