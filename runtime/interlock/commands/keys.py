"""Environment variables in which vendors' keys are, by name. Values are looked at by nobody here."""

from __future__ import annotations

import os

__all__ = ["keys_present"]

KEYS = (
    "ANTHROPIC_API_KEY",
    "AZURE_API_KEY",
    "CEREBRAS_API_KEY",
    "COHERE_API_KEY",
    "DEEPSEEK_API_KEY",
    "GEMINI_API_KEY",
    "GROQ_API_KEY",
    "HUGGINGFACE_API_KEY",
    "MISTRAL_API_KEY",
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "PERPLEXITYAI_API_KEY",
    "TOGETHERAI_API_KEY",
    "XAI_API_KEY",
)

_OTHERS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS")


def keys_present() -> list[str]:
    """Return the names of those that are set: the known ones, and whatever ends like a key."""
    return sorted(
        name for name, value in os.environ.items() if value and (name.endswith("_API_KEY") or name in _OTHERS)
    )
