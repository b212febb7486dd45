"""Endpoints with OpenAI's chat completions API, over aiohttp or over the openai library, without litellm.

`litellm/` and `remote/` use its stream reader. It imports `http/` and the modules beside that. Start at
`openai_compatible.py`, then `chat.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from routelock._lazy import load_late

if TYPE_CHECKING:
    from routelock_providers.chat_completions.openai import OpenAI
    from routelock_providers.chat_completions.openai_compatible import OpenAICompatible

__all__ = ["OpenAI", "OpenAICompatible"]

_LATE = {
    "OpenAICompatible": "routelock_providers.chat_completions.openai_compatible",
    "OpenAI": "routelock_providers.chat_completions.openai",
}


def __getattr__(name: str) -> Any:
    return load_late(__name__, _LATE, name)
