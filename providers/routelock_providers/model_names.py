"""Model names that LiteLLM does not know, and the names that were meant."""

from __future__ import annotations

import re
from collections.abc import Mapping

from routelock.errors import ConfigError, ModelNotFound
from routelock_providers.vendors import split_model

__all__ = ["checked_model", "suggest_model", "unknown_provider_error"]


_PROVIDERS = frozenset(
    "a2a anthropic azure azure_ai azure_text bedrock cerebras cohere cohere_chat deepinfra deepseek "
    "fireworks_ai gemini github groq hosted_vllm huggingface litellm_proxy mistral moonshot nvidia_nim "
    "ollama ollama_chat openai openrouter perplexity replicate sagemaker sambanova together_ai "
    "vertex_ai vertex_ai_beta vllm watsonx xai".split()
)
"""Providers that people use, by LiteLLM's names; misspelt names are compared with these."""

_ALSO_KNOWN = frozenset(
    "anthropic_text azure_speech custom_openai meta_llama nvidia_riva openai_like openinfer sagemaker_chat "
    "sagemaker_nova text-completion-openai watsonx_text zai".split()
)
"""Providers whose names are similar to another provider's. They are not taken for misspelt."""

_PEERS: Mapping[str, str] = {
    "azure-openai": "azure",
    "azure_openai": "azure",
    "bedrock_converse": "bedrock/converse",
    "claude": "anthropic",
    "fireworks": "fireworks_ai",
    "fireworks-ai": "fireworks_ai",
    "google": "gemini",
    "google-gla": "gemini",
    "google-vertex": "vertex_ai",
    "google_genai": "gemini",
    "google_vertexai": "vertex_ai",
    "grok": "xai",
    "mistralai": "mistral",
    "openai-chat": "openai",
    "openai-responses": "openai/responses",
    "together": "together_ai",
    "togetherai": "together_ai",
    "vertex": "vertex_ai",
    "vertexai": "vertex_ai",
    "x-ai": "xai",
}
"""Names of providers in pydantic-ai, LangChain and OpenRouter, and LiteLLM's name of each."""

_MAKERS = (
    ("deepseek-", "deepseek"),
    ("grok-", "xai"),
    ("llama", "ollama_chat"),
    ("mistral-", "mistral"),
    ("qwen2", "ollama_chat"),
    ("qwen3", "ollama_chat"),
)
"""Prefixes of model names that LiteLLM knows only with a provider, each with such a provider."""

_NEAR = 0.75
"""How alike a misspelt name is to the right one, from 0 to 1: ``gorq`` and ``groq``."""


def checked_model(model: object, handler: str, example: str = "gpt-4o-mini") -> str:
    """Return the model of a handler after a check that it is text.

    Args:
        model: the model as the app gave it; None if it comes from a variable that is not set.
        handler: the class of the handler, for the error.
        example: a name that the handler would take, for the error.

    Raises:
        ConfigError: it is no text.
    """
    if not isinstance(model, str):
        raise ConfigError(f"{handler} needs a model string such as {example!r}, not {model!r:.80}.")
    return model


def suggest_model(model: str) -> str | None:
    """Return the name that the user probably meant, if LiteLLM does not know ``model``; None if it may.

    Nothing is loaded, so names of rare providers and rare models are not checked.
    """
    provider, mark, name = _split(model)
    if mark != "/" and (meant := _with_maker(model)) is not None:
        return meant
    if provider == "litellm":  # openai-agents writes "litellm/" before models of LiteLLM
        return suggest_model(name) or name
    if mark == "/" and provider in _PROVIDERS | _ALSO_KNOWN:
        return None
    known = provider if provider in _PROVIDERS else _PEERS.get(provider) or _nearest(provider)
    return known and f"{known}/{name}"


def _split(model: str) -> tuple[str, str, str]:
    """Return the provider, the mark behind it (``/`` or ``:``, which other libraries write) and the rest."""
    found = re.search("[/:]", model)
    return (model[: found.start()], found[0], model[found.end() :]) if found else ("", "", model)


def _with_maker(model: str) -> str | None:
    provider = next((provider for start, provider in _MAKERS if model.startswith(start)), None)
    return provider and f"{provider}/{model}"


def _nearest(provider: str) -> str | None:
    import difflib  # noqa: PLC0415 - needed for wrong names only

    near = difflib.get_close_matches(provider.lower(), sorted(_PROVIDERS), n=1, cutoff=_NEAR)
    return near[0] if near else None


def _guess(model: str) -> str | None:
    """Return the name with the provider that a new model without one is likely to have."""
    provider = "" if "/" in model else split_model(model)[0]
    return f"{'gemini' if provider == 'vertex_ai' else provider}/{model}" if provider else None


def unknown_provider_error(model: str, provider: str = "") -> ModelNotFound:
    """Return the error for a model whose provider is not known; it says how the name is written.

    Args:
        model: the name as the app wrote it.
        provider: the part of the name before the slash.
    """
    meant = suggest_model(model) or _guess(model)
    how = (
        f": write {meant!r}."
        if meant
        else ". Write it as 'provider/model', such as 'openai/gpt-4o-mini', 'anthropic/claude-haiku-4-5' or "
        "'ollama_chat/llama3'."
    )
    return ModelNotFound(f"No provider is known for model {model!r}{how}", provider=provider, model=model)
