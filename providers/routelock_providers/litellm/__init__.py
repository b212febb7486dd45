"""LiteLLM: every model that the litellm library speaks to.

Start at `handler.py`; `exchange.py` is one call, `fixes.py` and `response_filter.py` correct what litellm
misreads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from routelock._lazy import load_late

if TYPE_CHECKING:
    from routelock_providers.litellm.handler import *
    from routelock_providers.litellm.library import *
    from routelock_providers.litellm.request import *
else:
    __getattr__ = load_late(
        __name__,
        {
            "handler": "LiteLLM",
            "library": "close_litellm load_litellm",
            "request": "as_sent",
        },
    )

__all__ = ["LiteLLM", "as_sent", "close_litellm", "load_litellm"]
