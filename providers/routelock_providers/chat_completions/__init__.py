"""Endpoints with OpenAI's chat completions API, over aiohttp or over the openai library, without litellm.

`litellm/` and `remote/` use its stream reader. It imports `http/` and the modules beside that. Start at
`openai_compatible.py`, then `chat.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from routelock._lazy import load_late

if TYPE_CHECKING:
    from routelock_providers.chat_completions.openai import *
    from routelock_providers.chat_completions.openai_compatible import *
else:
    __getattr__ = load_late(
        __name__,
        {
            "openai": "OpenAI",
            "openai_compatible": "OpenAICompatible",
        },
    )

__all__ = ["OpenAI", "OpenAICompatible"]
