"""Handlers for model vendors: litellm (the default), endpoints with OpenAI's API, remote agents.

Importing this package loads no library of a vendor. The package imports `routelock`; `routelock` imports this
package only for models that are given as strings. Start at `vendors.py` for the rules of each vendor, or at
the folder of a handler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from routelock._lazy import load_late

if TYPE_CHECKING:
    from routelock_providers.chat_completions.openai import *
    from routelock_providers.chat_completions.openai_compatible import *
    from routelock_providers.litellm.handler import *
    from routelock_providers.litellm.library import *
    from routelock_providers.remote.a2a import *
    from routelock_providers.remote.agent import *
else:
    __getattr__ = load_late(
        __name__,
        {
            "chat_completions.openai": "OpenAI",
            "chat_completions.openai_compatible": "OpenAICompatible",
            "litellm.handler": "LiteLLM",
            "litellm.library": "close_litellm load_litellm",
            "remote.a2a": "A2AAgent",
            "remote.agent": "RemoteAgent",
        },
    )

__all__ = [
    "A2AAgent",
    "LiteLLM",
    "OpenAI",
    "OpenAICompatible",
    "RemoteAgent",
    "close_litellm",
    "load_litellm",
]
