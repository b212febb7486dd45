"""Tokens and cost of model calls, and their sums."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from math import inf
from operator import attrgetter
from typing import Any, TypeVar, cast

from typing_extensions import TypeIs

__all__ = ["Usage", "is_usage", "to_usage", "total_by"]

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, init=False)
class Usage:
    """Tokens and cost of one or more model calls; ``a + b`` adds two of them.

    ``cached_tokens`` and ``reasoning_tokens`` are included in the input and the output tokens. ``cost`` is in
    US dollars, or None if the price of any call is unknown: an unknown price is not zero. ``estimated`` is
    true if a provider sent no usage for a call. The tokens of the call are then estimated from the text, or
    missing.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None
    estimated: bool = False

    def __init__(
        self,
        requests: int = 0,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cached_tokens: int = 0,
        reasoning_tokens: int = 0,
        cost: float | None = None,
        estimated: bool = False,
    ) -> None:
        fields = self.__dict__  # an __init__ by dataclass takes twice as long for a frozen class
        fields["requests"] = requests
        fields["input_tokens"] = input_tokens
        fields["output_tokens"] = output_tokens
        fields["cached_tokens"] = cached_tokens
        fields["reasoning_tokens"] = reasoning_tokens
        fields["cost"] = cost
        fields["estimated"] = estimated

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        if self is NO_USAGE or (not self.requests and self == NO_USAGE):
            return other
        if not other.requests and other == NO_USAGE:
            return self
        known = self.cost is not None and other.cost is not None
        cost = (self.cost or 0.0) + (other.cost or 0.0) if known else None
        return Usage(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            cost,
            self.estimated or other.estimated,
        )


NO_USAGE = Usage()

_counts_of = attrgetter("requests", "input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
"""Returns the first five fields of a `Usage`."""


def is_usage(value: object) -> TypeIs[Usage]:
    """Whether a value is a `Usage` with valid numbers."""
    if not isinstance(value, Usage):
        return False
    try:
        total: float = sum(_counts_of(value)) + (value.cost or 0.0)
        return 0 <= total < inf
    except TypeError:
        return False


def to_usage(reported: Mapping[str, Any] | None) -> Usage | None:
    """Return the usage that a chat completion reports; None if it reports none, or no valid numbers.

    ``cached_tokens`` and ``reasoning_tokens`` come from the details; DeepSeek's ``prompt_cache_hit_tokens``
    counts as ``cached_tokens``. Few servers report a cost, see `_cost`.
    """
    if not reported:
        return None
    try:
        if not reported.get("prompt_tokens") and not reported.get("completion_tokens"):
            return None  # zeros are no count either: each request has tokens
        usage = _usage(reported)
    except (AttributeError, TypeError):  # a field is no object; the reply is still complete without usage
        return None
    return usage if is_usage(usage) else None


def _usage(reported: Mapping[str, Any]) -> Usage:
    prompt: Mapping[str, Any] = reported.get("prompt_tokens_details") or {}
    completion: Mapping[str, Any] = reported.get("completion_tokens_details") or {}
    return Usage(
        requests=1,
        input_tokens=reported.get("prompt_tokens") or 0,
        output_tokens=reported.get("completion_tokens") or 0,
        cached_tokens=prompt.get("cached_tokens") or reported.get("prompt_cache_hit_tokens") or 0,
        reasoning_tokens=completion.get("reasoning_tokens") or 0,
        cost=_cost(reported) if "cost" in reported else None,
    )


def _cost(reported: Mapping[str, Any]) -> float | None:
    """Return the cost of a call that a server reports, in US dollars.

    OpenRouter gives a number. If the caller brings a key of the upstream vendor, that vendor's cost is added
    (https://openrouter.ai/docs/use-cases/usage-accounting). Perplexity gives a breakdown.
    """
    cost, details = reported["cost"], reported.get("cost_details")
    if isinstance(cost, dict):
        cost = cast("dict[str, Any]", cost).get("total_cost")
    known = _dollars(cost)
    if known is None or not reported.get("is_byok") or not isinstance(details, dict):
        return known
    return known + (_dollars(cast("dict[str, Any]", details).get("upstream_inference_cost")) or 0.0)


def _dollars(reported: object) -> float | None:
    if not isinstance(reported, int | float) or isinstance(reported, bool):
        return None
    return float(reported) if 0 <= reported < inf else None


def total_by(*parts: Iterable[tuple[K, Usage]]) -> dict[K, Usage]:
    """Return the sum of the usage of each key."""
    totals: dict[K, Usage] = {}
    for key, usage in chain(*parts):
        totals[key] = totals.get(key, NO_USAGE) + usage
    return totals
