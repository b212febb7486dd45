"""What each vendor demands of a request beyond what all of them do, as data; `wire` sees to it.

`routelock.testing.PROFILES` say the same from the other side, as what is accepted, and tests hold the two
together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

__all__ = ["Shape", "shape_of"]

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
