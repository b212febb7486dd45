"""What each vendor is and demands, as data, read from the model string alone."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

__all__ = [
    "Shape",
    "can_be_forced",
    "cannot_stream",
    "family_for",
    "has_one_key",
    "ignores_tool_choice",
    "lacks_key",
    "provider_at",
    "shape_of",
    "split_model",
    "takes_schema",
    "thinks_before_calls",
]


_ANY_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")

_ANY_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What one vendor demands of a request beyond what all of them do."""

    id_pattern: re.Pattern[str] = _ANY_ID
    """Call ids that match pass unchanged. Anthropic: ``^[a-zA-Z0-9_-]+$`` (nanobot pull 4356); Bedrock
    stops at 64 characters (llama_index pull 22775), and OpenAI, which may be behind any gateway, at 40."""
    id_prefix: str = "call_"
    id_length: int = 29
    """Prefix and length of the ids that replace the others."""
    name_pattern: re.Pattern[str] = _ANY_NAME
    """Names of tools in the history. OpenAI and Bedrock refuse others there too, and models invent such
    names (mastra 13632, pydantic-ai 4585); Gemini's begin with a letter (ccs 25)."""
    ends_with_user: bool = True
    """A request may not end on an assistant turn (Claude: deepagents 1585; Gemini: crewAI pull 6973;
    Mistral: opencode 19115)."""
    starts_with_user: bool = True
    """The first turn after the system prompt is a user's (litellm refuses others for Anthropic on the
    client side; Gemini: OmniRoute pull 13573)."""
    refuses_blank: bool = True
    """Blank text is refused (Anthropic, Bedrock: claude-code 23440, hermes-agent pull 41985; Mistral
    refuses an assistant turn that says nothing: OpenHands 8685)."""
    takes_null: bool = True
    """Beside calls the content may be null (not on xAI: langchain 34140)."""
    needs_tools: bool = False
    """A history with calls needs a list of tools (Anthropic: litellm 24712; Bedrock: pentagi pull 196)."""
    strict_tools: bool = False
    """Whether a tool's spec may say ``strict`` (OpenAI's Structured Outputs); others refuse or ignore it."""
    developer: bool = False
    """Whether there is a developer's role (OpenAI's alone; DeepSeek refuses it: pi 1048)."""
    user_after_tool: bool = True
    """A user turn may follow a tool result directly (not so on Mistral: hermes-agent pull 84944)."""
    late_system: bool = True
    """A system message may follow an assistant turn or a tool result (not so on Mistral: SurfSense 287)."""
    answers_in_order: bool = False
    """Which call a result answers is known by its place alone: litellm sends Gemini and Ollama no ids
    (Gemini, "Function calling"; ollama 6708)."""
    same_calls: bool = True
    """Two calls of one turn may be the same. litellm (1.105) makes one of them for Gemini, which has no ids
    up to version 2, and keeps both results, which Gemini refuses."""
    images_from_tools: bool = False
    """A tool result may hold more than text (Claude's and Gemini's may; OpenAI: "Image URLs are only
    allowed for messages with role 'user'", OpenHands 7700; Mistral: LibreChat agents 344)."""
    media: frozenset[str] | None = None
    """The parts besides text that arrive, None for any; a note takes the place of others. DeepSeek's API
    refuses all of them (Zoo-Code 1106), and litellm sends Claude, Nova and Mistral no sound, Ollama no more
    than images, OpenAI's Responses API no sound, and DeepSeek nothing, each without a word."""
    text_beside_calls: bool = True
    """Whether a turn with calls may have a text. Some of Mistral's models take either alone (langchain 21196,
    mistral-common 186), and consecutive turns of an assistant are one turn to them."""
    plan_key: str | None = None
    """Where the text beside calls goes, if not into the content (Cohere: vercel/ai 5794)."""
    needs_reasoning: bool = False
    """Every assistant turn has its reasoning, blank if need be (DeepSeek, as soon as it thinks, which is
    the default of its newer models: craft-agents-oss 703, Zoo-Code 201)."""
    message_keys: frozenset[str] | None = None
    """The only keys that a message may have, None for any. Some vendors refuse what they themselves
    sent before, such as ``reasoning_content`` (Groq: jan 8136; Cerebras: qwen-code 11045; Mistral:
    litellm 30835), and Cohere every key that it does not know (litellm 24031)."""


_PLAIN_KEYS: Final = frozenset(("role", "content", "name", "tool_calls", "tool_call_id"))

_DEFAULT: Final = Shape()

_OPENAI: Final = Shape(
    # "string too long. Expected a string with maximum length 40" (vercel/ai 5171, litellm 17343)
    id_pattern=re.compile("[^\ud800-\udfff]{1,40}"),
    ends_with_user=False,
    starts_with_user=False,
    refuses_blank=False,
    strict_tools=True,
    developer=True,
)

_SEEN: Final = frozenset(("image_url", "file"))

_CLAUDE: Final = Shape(needs_tools=True, images_from_tools=True, media=_SEEN)

_GEMINI: Final = Shape(
    name_pattern=re.compile("[a-zA-Z_][a-zA-Z0-9_-]{0,63}"),
    images_from_tools=True,
    answers_in_order=True,
    same_calls=False,
)

_MISTRAL: Final = Shape(
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

_OLLAMA: Final = Shape(answers_in_order=True, media=frozenset(("image_url",)))

_COHERE: Final = Shape(plan_key="tool_plan", message_keys=_PLAIN_KEYS - {"name"} | {"tool_plan", "citations"})

_SHAPES: Final[Mapping[str, Shape]] = {
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
    "deepseek": Shape(needs_reasoning=True, media=frozenset()),
    "ollama": _OLLAMA,
    "ollama_chat": _OLLAMA,
    "xai": Shape(takes_null=False),
    "groq": Shape(message_keys=_PLAIN_KEYS),
    "cerebras": Shape(message_keys=_PLAIN_KEYS | {"reasoning"}),
}

_CLAUDE_ELSEWHERE: Final = Shape(needs_tools=True, media=_SEEN)

_RESPONSES: Final = replace(_OPENAI, media=_SEEN)

_CLAUDE_MODEL = re.compile("claude", re.IGNORECASE)

_MISTRAL_MODEL = re.compile("(mis|minis|magis|codes|devs)tral|mixtral", re.IGNORECASE)


def shape_of(provider: str, model: str = "") -> Shape:
    """Return what this provider demands; an unknown one gets what suits nearly all.

    Args:
        provider: LiteLLM's name of the provider, such as ``"bedrock"``.
        model: the model's name. Models keep their maker's rules behind other doors (Mistral's:
            charmbracelet/crush 279; Claude's: litellm 24712).
    """
    shape = _SHAPES.get(provider.lower(), _DEFAULT)
    if shape is _OPENAI and model.startswith("responses/"):
        return _RESPONSES
    if "voxtral" in model:
        return replace(shape, media=None)
    if shape.message_keys and "gpt-oss" in model:
        # these think better with their reasoning, and Groq takes it for no other model (vercel/ai pull 8057)
        return replace(shape, message_keys=shape.message_keys | {"reasoning"})
    if shape is not _MISTRAL and _MISTRAL_MODEL.search(model):
        return replace(_MISTRAL, needs_tools=shape.needs_tools)
    if not shape.needs_tools and _CLAUDE_MODEL.search(model):
        return _CLAUDE_ELSEWHERE
    return shape


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
