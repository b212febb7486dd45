"""LiteLLM: every model that the litellm library speaks to.

Start at `handler.py`; `exchange.py` is one call, `fixes.py` and `response_filter.py` correct what litellm
misreads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from routelock._lazy import load_late

if TYPE_CHECKING:
    from routelock_providers.litellm.handler import LiteLLM
    from routelock_providers.litellm.library import close_litellm, load_litellm
    from routelock_providers.litellm.request import as_sent

__all__ = ["LiteLLM", "as_sent", "close_litellm", "load_litellm"]

_LATE = {
    "LiteLLM": "routelock_providers.litellm.handler",
    "close_litellm": "routelock_providers.litellm.library",
    "load_litellm": "routelock_providers.litellm.library",
    "as_sent": "routelock_providers.litellm.request",
}


def __getattr__(name: str) -> Any:
    return load_late(__name__, _LATE, name)
