"""Agents on other machines as handlers: agents with OpenAI's chat API, and A2A agents.

Start at `agent.py`; `urls.py` says which addresses may be called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from routelock._lazy import load_late

if TYPE_CHECKING:
    from routelock_providers.remote.a2a import *
    from routelock_providers.remote.agent import *
    from routelock_providers.remote.urls import *
else:
    __getattr__ = load_late(
        __name__,
        {
            "a2a": "A2AAgent",
            "agent": "RemoteAgent",
            "urls": "AllowList UrlNotAllowed",
        },
    )

__all__ = ["A2AAgent", "AllowList", "RemoteAgent", "UrlNotAllowed"]
