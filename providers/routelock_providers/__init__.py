"""Handlers for model vendors: litellm (the default), endpoints with OpenAI's API, remote agents.

Importing this imports no library of a vendor. It imports `routelock`, which imports it only for models that
are given as strings. Start at `vendors.py` for the rules of each vendor, or at the folder of a handler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from routelock._lazy import load_late

if TYPE_CHECKING:
    from routelock_providers.chat_completions.openai import OpenAI
    from routelock_providers.chat_completions.openai_compatible import OpenAICompatible
    from routelock_providers.litellm.handler import LiteLLM
    from routelock_providers.litellm.library import close_litellm, load_litellm
    from routelock_providers.remote.a2a import A2AAgent
    from routelock_providers.remote.agent import RemoteAgent

__all__ = [
    "A2AAgent",
    "LiteLLM",
    "OpenAI",
    "OpenAICompatible",
    "RemoteAgent",
    "close_litellm",
    "load_litellm",
]

_LATE = {
    "LiteLLM": "routelock_providers.litellm.handler",
    "close_litellm": "routelock_providers.litellm.library",
    "load_litellm": "routelock_providers.litellm.library",
    "OpenAICompatible": "routelock_providers.chat_completions.openai_compatible",
    "OpenAI": "routelock_providers.chat_completions.openai",
    "RemoteAgent": "routelock_providers.remote.agent",
    "A2AAgent": "routelock_providers.remote.a2a",
}


def __getattr__(name: str) -> Any:
    return load_late(__name__, _LATE, name)
