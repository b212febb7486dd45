"""What talks to model vendors: litellm (the default), openai, remote agents.

Importing this imports none of their libraries. The others are in modules of their own:
``from interlock_providers.openai import OpenAI``.
"""

from interlock_providers.litellm import LiteLLM
from interlock_providers.litellm_library import close_litellm, load_litellm
from interlock_providers.remote import RemoteAgent

__all__ = ["LiteLLM", "RemoteAgent", "close_litellm", "load_litellm"]
