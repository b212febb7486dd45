"""Agents on other machines as handlers: agents with OpenAI's chat API, and A2A agents.

Start at `agent.py`; `urls.py` says which addresses may be called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from routelock._lazy import load_late

if TYPE_CHECKING:
    from routelock_providers.remote.a2a import A2AAgent
    from routelock_providers.remote.agent import RemoteAgent
    from routelock_providers.remote.urls import AllowList

__all__ = ["A2AAgent", "AllowList", "RemoteAgent"]

_LATE = {
    "RemoteAgent": "routelock_providers.remote.agent",
    "A2AAgent": "routelock_providers.remote.a2a",
    "AllowList": "routelock_providers.remote.urls",
}


def __getattr__(name: str) -> Any:
    return load_late(__name__, _LATE, name)
