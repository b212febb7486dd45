"""Whether all vendors would take what the runs of any test show a model, as it is and as it would be sent."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import cast

from routelock.handlers.port import Request, ToolSpec
from routelock.history.messages import Message
from routelock.history.portable import portable
from routelock.history.repair import repair
from routelock.testing import PROFILES, refusals
from routelock_providers.litellm.request import as_sent

MODELS = {
    "openai": "openai/gpt-4o-mini",
    "azure": "azure/gpt-4o-mini",
    "anthropic": "anthropic/claude-haiku-4-5",
    "bedrock": "bedrock/anthropic.claude-haiku-4-5-20251001-v1:0",
    "gemini": "gemini/gemini-2.5-flash",
    "mistral": "mistral/mistral-small-latest",
    "groq": "groq/llama-3.3-70b-versatile",
    "deepseek": "deepseek/deepseek-chat",
    "cohere": "cohere_chat/command-a-03-2025",
    "ollama": "ollama_chat/qwen3",
    "xai": "xai/grok-4",
    "openrouter": "openrouter/openai/gpt-4o-mini",
}
"""A model of each vendor's, as litellm names it."""

_LONG = 50


class Views:
    """Takes notes of what would be refused."""

    def __init__(self) -> None:
        self._refused: list[str] = []
        self.fine: set[int] = set()
        """What was looked at, and found to be accepted by all."""

    def look(self, request: Request) -> None:
        """Check a request of a run; of long conversations, which grow by little, only some."""
        messages = request.messages
        if len(messages) >= _LONG and len(messages) % _LONG > 1:
            return
        seen = hash(repr(([_outline(message) for message in messages], request.tools)))
        if seen not in self.fine:  # every test comes twice, and many are alike but for what is said
            tracing = sys.gettrace()  # for coverage, which this says nothing about
            sys.settrace(None)
            try:
                refused = refused_by(messages, request.tools)
            finally:
                sys.settrace(tracing)
            self._refused += refused
            if not refused:
                self.fine.add(seen)

    def take(self) -> list[str]:
        """Return what was noted since the last time."""
        refused, self._refused = self._refused, []
        return refused


def refused_by(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[str]:
    """Return who would refuse these messages, and why: as they are, or as each vendor would be sent them.

    What a model thought is shown to it alone, so another vendor would be shown the rest.
    """
    refused = [f"anyone: {each}" for each in refusals(messages)]
    shown, _ = repair([portable(each) if each["role"] == "assistant" else each for each in messages])
    for vendor, profile in PROFILES.items():
        sent, offered = as_sent(MODELS[vendor], shown, tools)
        thinks = profile.needs_thought is not None  # what it needs then, it is always sent
        found = refusals(sent, profile, tools=offered, thinking=thinks)
        refused += [f"{vendor}: {each}" for each in found]
    return refused


def _outline(message: Message) -> Message:
    """Return a message without its words, which no vendor minds as long as there are any."""
    content = message.get("content")
    said = isinstance(content, str) and content.strip()
    return cast(Message, {**message, "content": "..."}) if said else message
