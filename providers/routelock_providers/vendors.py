"""Vendors: the rules of their APIs as data, and their names, families and keys.

This module sends nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

__all__ = [
    "VendorRules",
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
    "vendor_rules",
]


_ANY_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")

_ANY_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorRules:
    """The rules of one vendor for requests, beyond those that all vendors share."""

    id_pattern: re.Pattern[str] = _ANY_ID
    """Call ids that match stay unchanged. Anthropic: ``^[a-zA-Z0-9_-]+$`` (nanobot pull 4356); Bedrock
    takes 64 characters (llama_index pull 22775), and OpenAI, which may be behind any gateway, 40."""
    id_prefix: str = "call_"
    id_length: int = 29
    """Prefix and length of the ids that replace those that do not match."""
    name_pattern: re.Pattern[str] = _ANY_NAME
    """Tool names in the history. OpenAI and Bedrock refuse others there too, and models invent such names
    (mastra 13632, pydantic-ai 4585); on Gemini they begin with a letter (ccs 25)."""
    ends_with_user: bool = True
    """A request may not end on an assistant turn (Claude: deepagents 1585; Gemini: crewAI pull 6973;
    Mistral: opencode 19115)."""
    starts_with_user: bool = True
    """The first turn after the system prompt is a user turn (litellm itself refuses others for Anthropic;
    Gemini: OmniRoute pull 13573)."""
    refuses_blank: bool = True
    """Blank text is refused (Anthropic, Bedrock: claude-code 23440, hermes-agent pull 41985; Mistral
    refuses an empty assistant turn: OpenHands 8685)."""
    takes_null: bool = True
    """The content may be null beside calls (not on xAI: langchain 34140)."""
    needs_tools: bool = False
    """A history with calls needs a list of tools (Anthropic: litellm 24712; Bedrock: pentagi pull 196)."""
    strict_tools: bool = False
    """Whether a tool's spec may say ``strict`` (OpenAI's Structured Outputs); others refuse or ignore it."""
    developer: bool = False
    """Whether the role ``developer`` exists (on OpenAI alone; DeepSeek refuses it: pi 1048)."""
    user_after_tool: bool = True
    """A user turn may follow a tool result directly (not so on Mistral: hermes-agent pull 84944)."""
    late_system: bool = True
    """A system message may follow an assistant turn or a tool result (not so on Mistral: SurfSense 287)."""
    answers_in_order: bool = False
    """Results are matched to calls by their order: litellm sends Gemini and Ollama no ids (Gemini,
    "Function calling"; ollama 6708)."""
    same_calls: bool = True
    """One turn may hold two equal calls. litellm (1.105) merges them for Gemini, which has no ids up to
    version 2, and keeps both results, which Gemini refuses."""
    reads_results: bool = False
    """litellm (1.110) reads a tool result that is JSON text, and sends Gemini the object. Half a surrogate
    pair or NaN in it then breaks the request, and so does JSON that is nested too deep."""
    images_from_tools: bool = False
    """A tool result may hold more than text (on Claude and Gemini; OpenAI: "Image URLs are only
    allowed for messages with role 'user'", OpenHands 7700; Mistral: LibreChat agents 344)."""
    media: frozenset[str] | None = None
    """The types of parts besides text that the vendor receives, None for any; a note replaces the others.
    DeepSeek's API refuses all of them (Zoo-Code 1106). litellm silently drops sound for Claude, Nova, Mistral
    and OpenAI's Responses API, all but images for Ollama, and everything for DeepSeek."""
    text_beside_calls: bool = True
    """Whether a turn with calls may have text. Some of Mistral's models take only one of the two (langchain
    21196, mistral-common 186), and join consecutive assistant turns."""
    plan_key: str | None = None
    """The key for the text beside calls, if it is not ``content`` (Cohere: vercel/ai 5794)."""
    needs_reasoning: bool = False
    """Every assistant turn needs reasoning, at least a blank one (DeepSeek when it thinks, which is the
    default of its newer models: craft-agents-oss 703, Zoo-Code 201)."""
    message_keys: frozenset[str] | None = None
    """The only keys that a message may have, None for any. Some vendors refuse keys that they sent
    themselves, such as ``reasoning_content`` (Groq: jan 8136; Cerebras: qwen-code 11045; Mistral:
    litellm 30835), and Cohere refuses every unknown key (litellm 24031)."""


_PLAIN_KEYS: Final = frozenset(("role", "content", "name", "tool_calls", "tool_call_id"))

_DEFAULT: Final = VendorRules()

_OPENAI: Final = VendorRules(
    # "string too long. Expected a string with maximum length 40" (vercel/ai 5171, litellm 17343)
    id_pattern=re.compile("[^\ud800-\udfff]{1,40}"),
    ends_with_user=False,
    starts_with_user=False,
    refuses_blank=False,
    strict_tools=True,
    developer=True,
)

_SEEN: Final = frozenset(("image_url", "file"))

_CLAUDE: Final = VendorRules(needs_tools=True, images_from_tools=True, media=_SEEN)

_GEMINI: Final = VendorRules(
    name_pattern=re.compile("[a-zA-Z_][a-zA-Z0-9_-]{0,63}"),
    images_from_tools=True,
    answers_in_order=True,
    same_calls=False,
    reads_results=True,
)

_MISTRAL: Final = VendorRules(
    # "must be a-z, A-Z, 0-9, with a length of 9" (opencode 1680, langchain pull 24668)
    id_pattern=re.compile(r"[a-zA-Z0-9]{9}"),
    id_prefix="",
    id_length=9,
    user_after_tool=False,
    late_system=False,
    text_beside_calls=False,
    # the name of a user is refused too (mistral-go pull 2); prefix is Mistral's own
    message_keys=_PLAIN_KEYS - {"name"} | {"prefix"},
    media=_SEEN,
)

_OLLAMA: Final = VendorRules(answers_in_order=True, media=frozenset(("image_url",)))

_COHERE: Final = VendorRules(
    plan_key="tool_plan", message_keys=_PLAIN_KEYS - {"name"} | {"tool_plan", "citations"}
)

_RULES: Final[Mapping[str, VendorRules]] = {
    "openai": _OPENAI,
    "azure": _OPENAI,
    "anthropic": _CLAUDE,
    "bedrock": _CLAUDE,
    "bedrock_converse": _CLAUDE,
    "gemini": _GEMINI,
    "vertex_ai": _GEMINI,
    "mistral": _MISTRAL,
    "codestral": _MISTRAL,
    "cohere": _COHERE,
    "cohere_chat": _COHERE,
    "deepseek": VendorRules(needs_reasoning=True, media=frozenset()),
    "ollama": _OLLAMA,
    "ollama_chat": _OLLAMA,
    "xai": VendorRules(takes_null=False),
    "groq": VendorRules(message_keys=_PLAIN_KEYS),
    "cerebras": VendorRules(message_keys=_PLAIN_KEYS | {"reasoning"}),
}

_CLAUDE_ELSEWHERE: Final = VendorRules(needs_tools=True, media=_SEEN)

_RESPONSES: Final = replace(_OPENAI, media=_SEEN)

_CLAUDE_MODEL = re.compile("claude", re.IGNORECASE)

_MISTRAL_MODEL = re.compile("(mis|minis|magis|codes|devs)tral|mixtral", re.IGNORECASE)


def vendor_rules(provider: str, model: str = "") -> VendorRules:
    """Return the rules of a provider; an unknown one gets rules that suit nearly all.

    Args:
        provider: LiteLLM's name of the provider, such as ``"bedrock"``.
        model: the model's name. Models keep their maker's rules on other platforms (Mistral's:
            charmbracelet/crush 279; Claude's: litellm 24712).
    """
    rules = _RULES.get(provider.lower(), _DEFAULT)
    if rules is _OPENAI and model.startswith("responses/"):
        return _RESPONSES
    if "voxtral" in model:
        return replace(rules, media=None)
    if rules.message_keys and "gpt-oss" in model:
        # these models do better with their reasoning, and Groq takes it for them alone (vercel/ai pull 8057)
        return replace(rules, message_keys=rules.message_keys | {"reasoning"})
    if rules is not _MISTRAL and _MISTRAL_MODEL.search(model):
        return replace(_MISTRAL, needs_tools=rules.needs_tools)
    if not rules.needs_tools and _CLAUDE_MODEL.search(model):
        return _CLAUDE_ELSEWHERE
    return rules


_CLAUDE_PLATFORMS = frozenset(("anthropic", "bedrock", "vertex_ai", "azure_ai"))
"""The providers of Claude. A signature of its thinking is valid on each of them (Anthropic's documentation,
"Extended thinking")."""

_GATEWAYS = frozenset(
    ("openrouter", "bedrock", "vertex_ai", "azure_ai", "litellm_proxy", "vercel_ai_gateway")
)
"""Platforms that offer models of several makers."""

_PREFIXES = (("gpt", "openai"), ("chatgpt", "openai"), ("claude", "anthropic"), ("gemini", "vertex_ai"))

_IGNORES_CHOICE = frozenset("mistral codestral cohere cohere_chat ollama ollama_chat".split())

_KEY_VARIABLES: Mapping[str, tuple[str, ...]] = {
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
"""Vendors whose only credential is a key, with the prefixes of the environment variables that litellm reads
for them: keys, tokens, other addresses."""


def has_one_key(provider: str) -> bool:
    """Return whether a key is the only credential, as it is not for Azure, Bedrock and Vertex."""
    return provider in _KEY_VARIABLES


def lacks_key(provider: str, environment: Mapping[str, str]) -> bool:
    """Return whether the vendor needs a key and no variable of the environment can be one."""
    if provider not in _KEY_VARIABLES or environment.get(f"{provider.upper()}_API_KEY"):
        return False
    prefixes = _KEY_VARIABLES[provider]
    return not any(value and name.startswith(prefixes) for name, value in environment.items())


def split_model(model: str) -> tuple[str, str]:
    """Return provider and name of ``"provider/name"``.

    For a bare name the provider is guessed as litellm does it.
    """
    provider, slash, name = model.partition("/")
    if slash:
        return provider, name
    known = next((vendor for start, vendor in _PREFIXES if model.startswith(start)), None)
    return known or ("openai" if model[:1] == "o" and model[1:2].isdigit() else ""), model


def family_for(model: str, api_base: str | None = None) -> str:
    """Return the family of a model: models of one family can read each other's private fields.

    * Claude is one family on Anthropic, Bedrock, Vertex and Azure, because its signatures are valid on each.
    * OpenAI's chat and Responses APIs are two families: only the second has encrypted reasoning.
    * On a gateway, each maker is a family: OpenRouter passes on the maker's own reasoning details.
    * An address of the app's own (``api_base``) is a family, since any model may answer there.
    * Every other provider is one family.
    """
    provider, name = split_model(model)
    host = urlsplit(api_base).hostname if api_base else None
    if host and provider.partition("_")[0] in host.split("."):
        host = None  # the vendor's own address, such as https://api.deepseek.com
    if provider in _CLAUDE_PLATFORMS and "claude" in name and not host:
        return "anthropic"
    parts = [provider or name]
    if name.startswith("responses/"):
        parts.append("responses")
    if provider in _GATEWAYS:
        parts.append(_maker(name))
    family = "/".join(part for part in parts if part)
    return f"{family}@{host}" if host else family


def _maker(name: str) -> str:
    """Return the maker of a model.

    It is ``anthropic`` in ``anthropic/claude-x`` and in ``us.anthropic.claude-x``.
    """
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
    """Return whether litellm cannot read a model's streams (1.105 to 1.109).

    It cannot read those of Cohere and of models that were imported into Bedrock.
    """
    return provider in ("cohere", "cohere_chat") or (provider == "bedrock" and name.startswith("openai/"))


def ignores_tool_choice(provider: str) -> bool:
    """Return whether litellm silently drops a forced tool choice for this provider."""
    return provider in _IGNORES_CHOICE


def takes_schema(provider: str, name: str, *, with_tools: bool) -> bool:
    """Return whether a model takes a schema for its reply; with ``with_tools``, whether beside tools too.

    DeepSeek refuses every schema (litellm 7580, inspect_ai 4916), and Groq takes one for newer models only
    (GroqDocs, "Structured Outputs"). OpenAI, Azure, xAI and, from version 3 on, Gemini take one beside tools.
    The other vendors refuse, or litellm forces them to answer at once, without any tool or handoff
    (openai-agents 1575, 2140).
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
    """Return whether a model can be forced to call a tool.

    Claude cannot while it thinks, and DeepSeek-R1 never can.

    Args:
        name: the name of the model.
        settings: the settings of the request.
    """
    if "claude" in name:
        return not any(settings.get(each) for each in ("thinking", "reasoning_effort"))
    return "deepseek-reasoner" not in name and "deepseek-r1" not in name.lower()


def thinks_before_calls(name: str) -> bool:
    """Return whether Claude, with thinking on, needs the thought before its calls in the history.

    Versions up to 4.5 do; later ones decide when to think (Anthropic, "Adaptive thinking").
    """
    version = _CLAUDE_VERSION.search(name)
    return version is not None and (int(version[1]), int(version[2] or 0)) < (4, 6)


_CLAUDE_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[.-](\d{1,2})(?!\d))?")
"""The version in the name of a Claude. Older names end with a date, such as ``claude-sonnet-4-20250514``."""


def provider_at(host: str) -> str:
    """Return the short name of the vendor at this host, such as ``"groq"`` for ``api.groq.com``."""
    known = {"azure": "azure", "googleapis": "gemini", "x": "xai"}
    labels = host.split(".")
    if len(labels) < 2 or _is_address(host) or (labels[-2] == "openai" and labels[-1] != "com"):
        return "local"  # so that OpenAI's key and organization are not sent to a host that only has its name
    return known.get(labels[-2], labels[-2])


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
