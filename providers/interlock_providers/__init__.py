"""What talks to model vendors: LiteLLM (the default), OpenAI, remote agents.

Importing this imports none of them.
"""

__all__: list[str] = []
