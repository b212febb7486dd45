"""What has to be known about vendors before litellm is loaded, read from the model string alone."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

__all__ = [
    "can_be_forced",
    "cannot_stream",
    "family_for",
    "has_one_key",
    "ignores_tool_choice",
    "lacks_key",
    "provider_at",
    "split_model",
    "takes_schema",
    "thinks_before_calls",
]

_CLAUDE_DOORS = frozenset(("anthropic", "bedrock", "vertex_ai", "azure_ai"))
"""Signatures of Claude's thinking hold on each of these (Anthropic's documentation, "Extended thinking")."""

_MAKERS_BEHIND = frozenset(
    ("openrouter", "bedrock", "vertex_ai", "azure_ai", "litellm_proxy", "vercel_ai_gateway")
)
"""Doors behind which models of several makers stand."""

_BARE = (("gpt", "openai"), ("chatgpt", "openai"), ("claude", "anthropic"), ("gemini", "vertex_ai"))

_IGNORES_CHOICE = frozenset("mistral codestral cohere cohere_chat ollama ollama_chat".split())


_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_",),
    "cerebras": ("CEREBRAS_",),
    "cohere": ("COHERE_", "CO_"),
    "cohere_chat": ("COHERE_", "CO_"),
    "deepseek": ("DEEPSEEK_",),
    "fireworks_ai": ("FIREWORKS",),
    "gemini": ("GEMINI_", "GOOGLE_"),
    "groq": ("GROQ_",),
    "mistral": ("MISTRAL_",),
    "openai": ("OPENAI_",),
    "openrouter": ("OPENROUTER_", "OR_"),
    "perplexity": ("PERPLEXITY",),
    "together_ai": ("TOGETHER",),
    "xai": ("XAI_",),
}
"""Vendors that want a key and nothing else, and how the names begin of the variables of the environment that
litellm reads for them: keys, tokens, other addresses."""


def has_one_key(provider: str) -> bool:
    """Whether a key is the one way to be let in, as it is not for Azure, Bedrock and Vertex."""
    return provider in _VARIABLES


def lacks_key(provider: str, environment: Mapping[str, str]) -> bool:
    """Whether nothing in the environment may be a key for a vendor that wants one."""
    if provider not in _VARIABLES or environment.get(f"{provider.upper()}_API_KEY"):
        return False
    begins = _VARIABLES[provider]
    return not any(value and name.startswith(begins) for name, value in environment.items())


def split_model(model: str) -> tuple[str, str]:
    """Return provider and name of ``"provider/name"``; a bare name's provider is guessed as litellm does."""
    provider, slash, name = model.partition("/")
    if slash:
        return provider, name
    known = next((vendor for start, vendor in _BARE if model.startswith(start)), None)
    return known or ("openai" if model[:1] == "o" and model[1:2].isdigit() else ""), model


def family_for(model: str, api_base: str | None = None) -> str:
    """Return the family of a model: those whose private fields it can read, and they its.

    * Claude is one family on Anthropic, Bedrock, Vertex and Azure, because its signatures hold on each.
    * OpenAI's chat and Responses APIs are two: encrypted reasoning exists in the second alone.
    * Behind a gateway, each maker is a family: OpenRouter's reasoning details are the maker's own.
    * An address of one's own (``api_base``) is a family, since anything may answer there.
    * Any other provider is one family.
    """
    provider, name = split_model(model)
    host = urlsplit(api_base).hostname if api_base else None
    if host and provider.partition("_")[0] in host.split("."):
        host = None  # the vendor's own, such as https://api.deepseek.com
    if provider in _CLAUDE_DOORS and "claude" in name and not host:
        return "anthropic"
    parts = [provider or name]
    if name.startswith("responses/"):
        parts.append("responses")
    if provider in _MAKERS_BEHIND:
        parts.append(_maker(name))
    family = "/".join(part for part in parts if part)
    return f"{family}@{host}" if host else family


def _maker(name: str) -> str:
    """Return who made the model: ``anthropic`` in ``anthropic/claude-x`` and in ``us.anthropic.claude-x``."""
    routes = ("converse/", "invoke/", "responses/", "converse_like/")
    for route in routes:
        name = name.removeprefix(route)
    if "/" in name:
        return name.partition("/")[0]
    labels = name.split(".")
    if labels[0] in ("us", "eu", "apac", "global", "jp", "au", "us-gov") and len(labels) > 1:
        labels = labels[1:]
    return labels[0].partition("-")[0]


def cannot_stream(provider: str, name: str) -> bool:
    """Whether litellm cannot read a model's streams (1.105 to 1.109).

    It reads none of Cohere's, and nothing in those of a model that was imported into Bedrock.
    """
    return provider in ("cohere", "cohere_chat") or (provider == "bedrock" and name.startswith("openai/"))


def ignores_tool_choice(provider: str) -> bool:
    """Whether litellm drops a forced tool choice for this provider without a word."""
    return provider in _IGNORES_CHOICE


def takes_schema(provider: str, name: str, *, with_tools: bool) -> bool:
    """Whether a reply may be bound to a schema, and call tools in the same request where it is to.

    DeepSeek refuses every schema (litellm 7580, inspect_ai 4916), and Groq takes one for newer models only
    (GroqDocs, "Structured Outputs"). With tools: OpenAI, Azure and xAI do; Gemini does from version 3 on.
    Everyone else either refuses or, through litellm, is forced to answer at once and never calls a tool or
    transfers (openai-agents 1575, 2140).
    """
    if not with_tools:
        old = provider == "groq" and not any(each in name for each in ("gpt-oss", "llama-4", "kimi-k2"))
        return not old and provider != "deepseek"
    if provider in ("openai", "azure", "xai"):
        return True
    return (
        provider in ("gemini", "vertex_ai")
        and name.removeprefix("gemini-")[:1].isdigit()
        and (int(name.removeprefix("gemini-")[0]) >= 3)
    )


def can_be_forced(name: str, settings: Mapping[str, Any]) -> bool:
    """Whether a model can be made to call a tool; Claude cannot while it thinks, and DeepSeek-R1 never.

    Args:
        name: the model's.
        settings: those of the request.
    """
    if "claude" in name:
        return not any(settings.get(each) for each in ("thinking", "reasoning_effort"))
    return "deepseek-reasoner" not in name and "deepseek-r1" not in name.lower()


def thinks_before_calls(name: str) -> bool:
    """Whether a Claude that thinks must have thought before the calls that are being answered.

    So it is up to 4.5; later ones decide by themselves when to think (Anthropic, "Adaptive thinking").
    """
    version = _CLAUDE_VERSION.search(name)
    return version is not None and (int(version[1]), int(version[2] or 0)) < (4, 6)


_CLAUDE_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[.-](\d{1,2})(?!\d))?")
"""Older names end with a date, such as ``claude-sonnet-4-20250514``."""


def provider_at(host: str) -> str:
    """Return the short name of the vendor at this host, such as ``"groq"`` for ``api.groq.com``."""
    known = {"azure": "azure", "googleapis": "gemini", "x": "xai"}
    labels = host.split(".")
    if len(labels) < 2 or _is_address(host) or (labels[-2] == "openai" and labels[-1] != "com"):
        return "local"  # OpenAI's key and organization go to nobody who only has the name
    return known.get(labels[-2], labels[-2])


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
