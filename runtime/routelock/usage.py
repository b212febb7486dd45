"""Tokens and money, added up over the calls of a run."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Any, TypeVar, cast

from typing_extensions import TypeIs

__all__ = ["Usage", "is_usage", "to_usage", "total_by"]

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Usage:
    """What one or more model calls consumed; ``a + b`` adds two of them.

    ``cached_tokens`` and ``reasoning_tokens`` are parts of the input and the output tokens, not
    additions to them. ``cost`` is in US dollars, or None as soon as one call's price is unknown:
    an unknown price is not zero. ``estimated`` is true when a provider sent no usage and the
    tokens of at least one call are therefore estimated from the text, or missing.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None
    estimated: bool = False

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
        return Usage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost=(self.cost or 0.0) + (other.cost or 0.0) if known else None,
            estimated=self.estimated or other.estimated,
        )


NO_USAGE = Usage()


def is_usage(value: object) -> TypeIs[Usage]:
    """Whether it is a usage, and all numbers in it are such."""
    if not isinstance(value, Usage):
        return False
    try:
        tokens = value.input_tokens + value.output_tokens + value.cached_tokens + value.reasoning_tokens
        return 0 <= tokens + value.requests + (value.cost or 0.0) < inf
    except TypeError:
        return False


def to_usage(told: Mapping[str, Any] | None) -> Usage | None:
    """Return the usage of one chat completion, or None when there is none, or something else than numbers.

    ``cached_tokens`` and ``reasoning_tokens`` come from the details; DeepSeek's
    ``prompt_cache_hit_tokens`` counts as the former. Few servers say what a call cost, see `_cost`.
    """
    if not told:
        return None
    try:
        if told.get("prompt_tokens") is None and told.get("completion_tokens") is None:
            return None
        made = _usage(told)
    except (AttributeError, TypeError):  # no object where one should be: the reply is whole without its bill
        return None
    return made if is_usage(made) else None


def _usage(told: Mapping[str, Any]) -> Usage:
    prompt: Mapping[str, Any] = told.get("prompt_tokens_details") or {}
    completion: Mapping[str, Any] = told.get("completion_tokens_details") or {}
    return Usage(
        requests=1,
        input_tokens=told.get("prompt_tokens") or 0,
        output_tokens=told.get("completion_tokens") or 0,
        cached_tokens=prompt.get("cached_tokens") or told.get("prompt_cache_hit_tokens") or 0,
        reasoning_tokens=completion.get("reasoning_tokens") or 0,
        cost=_cost(told) if "cost" in told else None,
    )


def _cost(told: Mapping[str, Any]) -> float | None:
    """Return what a server says that a call cost, in US dollars.

    OpenRouter gives a number, to which comes what the upstream vendor takes where that has a key of the
    caller's own (https://openrouter.ai/docs/use-cases/usage-accounting). Perplexity gives a breakdown.
    """
    cost, details = told["cost"], told.get("cost_details")
    if isinstance(cost, dict):
        cost = cast("dict[str, Any]", cost).get("total_cost")
    known = _dollars(cost)
    if known is None or not told.get("is_byok") or not isinstance(details, dict):
        return known
    return known + (_dollars(cast("dict[str, Any]", details).get("upstream_inference_cost")) or 0.0)


def _dollars(told: object) -> float | None:
    if not isinstance(told, int | float) or isinstance(told, bool):
        return None
    return float(told) if 0 <= told < inf else None


def total_by(*parts: Iterable[tuple[K, Usage]]) -> dict[K, Usage]:
    """Return what was consumed under each key, added up."""
    used: dict[K, Usage] = {}
    for key, usage in chain(*parts):
        used[key] = used.get(key, NO_USAGE) + usage
    return used
