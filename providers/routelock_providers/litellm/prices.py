"""What a call through litellm costs, by litellm's own figures and its price table."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from math import inf
from typing import Any, cast

__all__ = ["cost_of", "model_info", "price"]


def cost_of(reply: object) -> float | None:
    """Return what litellm says that a whole reply cost in US dollars; None where it does not know."""
    hidden: object = getattr(reply, "_hidden_params", None)
    cost: object = cast("dict[str, Any]", hidden).get("response_cost") if isinstance(hidden, dict) else None
    return float(cost) if isinstance(cost, int | float) and 0 < cost < inf else None


def price(litellm: Any, provider: str, model: str, usage: Mapping[str, Any]) -> float | None:
    """Return what a call cost in US dollars by litellm's price table, or None for an unknown price.

    The same tokens cost the same whether they were streamed or not, because the price is taken from
    the usage alone.
    """
    if provider in ("ollama", "ollama_chat"):
        return 0.0  # litellm says so too, once it has asked the server, four times, holding up the event loop
    if (info := model_info(litellm, provider, model)) is None:
        return None
    try:
        prompt, completion = litellm.cost_per_token(
            model=model, custom_llm_provider=provider, usage_object=litellm.Usage(**usage)
        )
    except Exception:  # an unknown model raises several things; a price is no reason to lose a reply
        return None
    cost = float(prompt) + float(completion)
    # a model that costs nothing has a price; one whose price is unknown, or whose entry was made up, has none
    known = info.get("key") in litellm.model_cost and info.get("input_cost_per_token") is not None
    return cost if cost > 0 or known else None


def model_info(litellm: Any, provider: str, model: str) -> Mapping[str, Any] | None:
    """Return what litellm's table says of a model, or None for one that is not in it."""
    return _looked_up(litellm, provider, model, len(litellm.model_cost))


@functools.lru_cache(maxsize=256)
def _looked_up(litellm: Any, provider: str, model: str, known: int) -> Mapping[str, Any] | None:
    """Look once in a table of so many entries: it takes long, longest for what is not there."""
    try:
        return cast("Mapping[str, Any]", litellm.get_model_info(model=model, custom_llm_provider=provider))
    except Exception:  # a bare one, if it is not there
        return None
