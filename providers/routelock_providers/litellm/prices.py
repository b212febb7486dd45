"""Costs of calls, from litellm's own figures and its price table."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from math import inf
from typing import Any, cast

__all__ = ["cost_of", "model_info", "price"]


def cost_of(reply: object) -> float | None:
    """Return litellm's figure for the cost of a whole reply in US dollars, or None if it has none."""
    hidden: object = getattr(reply, "_hidden_params", None)
    cost: object = cast("dict[str, Any]", hidden).get("response_cost") if isinstance(hidden, dict) else None
    return float(cost) if isinstance(cost, int | float) and 0 < cost < inf else None


def price(litellm: Any, provider: str, model: str, usage: Mapping[str, Any]) -> float | None:
    """Return the cost of a call in US dollars by litellm's price table, or None for an unknown price.

    Streamed and whole replies cost the same, because the cost depends on the usage alone.
    """
    if provider in ("ollama", "ollama_chat"):
        return 0.0  # litellm finds the same with four requests that block the event loop
    if (info := model_info(litellm, provider, model)) is None:
        return None
    try:
        prompt, completion = litellm.cost_per_token(
            model=model, custom_llm_provider=provider, usage_object=litellm.Usage(**usage)
        )
    except Exception:  # litellm raises several errors for an unknown model; a price must not fail a reply
        return None
    cost = float(prompt) + float(completion)
    # a free model has a price of 0; a model whose entry litellm invented has no known price
    known = info.get("key") in litellm.model_cost and info.get("input_cost_per_token") is not None
    return cost if cost > 0 or known else None


def model_info(litellm: Any, provider: str, model: str) -> Mapping[str, Any] | None:
    """Return the entry of a model in litellm's table, or None."""
    return _looked_up(litellm, provider, model, len(litellm.model_cost))


@functools.lru_cache(maxsize=256)
def _looked_up(litellm: Any, provider: str, model: str, known: int) -> Mapping[str, Any] | None:
    """Return the entry of a model, or None.

    The result is cached per size of the table, because a search takes long, above all for an unknown model.
    """
    try:
        return cast("Mapping[str, Any]", litellm.get_model_info(model=model, custom_llm_provider=provider))
    except Exception:  # a bare Exception if the model is not in the table
        return None
