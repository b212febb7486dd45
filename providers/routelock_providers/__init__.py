"""What talks to model vendors: litellm (the default), endpoints with OpenAI's API, remote agents.

Importing this imports none of their libraries. The others are in modules of their own:
``from routelock_providers.chat_completions.openai import OpenAI``.
"""

from routelock_providers.chat_completions.openai_compatible import OpenAICompatible
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import close_litellm, load_litellm
from routelock_providers.remote.agent import RemoteAgent

__all__ = ["LiteLLM", "OpenAICompatible", "RemoteAgent", "close_litellm", "load_litellm"]
