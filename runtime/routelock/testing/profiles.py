"""The rules of each vendor for a list of messages, as data; `routelock.testing.assert_valid` checks them.

A profile describes chat-completions messages as they are sent to the vendor. The messages that routelock
gives to a handler follow the rules that all vendors share; the provider adapts them to the rules of its
vendor. Each rule has a source: the vendor's documentation or code, or a public issue that quotes the refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

__all__ = ["PROFILES", "Profile"]


_ALL_ROLES: Final = frozenset(("system", "user", "assistant", "tool"))

_CHAT_KEYS: Final = frozenset(("role", "content", "name", "tool_calls", "tool_call_id"))

_INPUT_KEYS: Final = frozenset(("role", "content", "name", "tool_call_id"))

_GITHUB: Final = "https://github.com/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The rules of one vendor. A field that is left out means that there is no such rule."""

    name: str
    sources: Mapping[str, str]
    """The source of each rule, by the name of its field."""
    roles: frozenset[str] = _ALL_ROLES | {"developer"}
    """The known roles."""
    starts_with: frozenset[str] | None = None
    """The roles of the first message after the system messages."""
    ends_with: frozenset[str] | None = None
    """The roles of the last message."""
    refused_order: frozenset[tuple[str, str]] = frozenset()
    """Pairs of roles that may not follow one another."""
    call_id: str | None = None
    """The pattern of a call's id; the ids of one request must always differ."""
    answers_in_order: bool = False
    """Whether results must come in the order of their calls, because the vendor's format has no ids."""
    tool_name: str | None = None
    """The pattern of the names of tools, offered and called."""
    message_name: str | None = None
    """The pattern of the ``name`` of a message, which distinguishes speakers of one role."""
    no_blank: frozenset[str] = frozenset()
    """The roles whose text may not be blank, unless it is an assistant's message with calls."""
    null_beside_calls: bool = True
    """Whether the content of a message with calls may be null."""
    text_beside_calls: bool = True
    """Whether a message with calls may have a text."""
    parts: frozenset[str] = _ALL_ROLES
    """The roles whose content may have parts that are not text, such as an image."""
    keys: frozenset[str] | None = None
    """The only keys that a message may have."""
    input_keys: frozenset[str] | None = None
    """The only keys of a message of another role than assistant."""
    call_keys: frozenset[str] | None = None
    """The only keys that a call may have."""
    thoughts: frozenset[str] = frozenset()
    """The keys with its own reasoning that it accepts. It must not get the reasoning of other vendors."""
    needs_thought: str | None = None
    """The key that every assistant message needs if the request turns thinking on, or does so by default."""
    thinks_first: str | None = None
    """The key that the message with the answered calls needs if the request turns thinking on."""
    tools_for_calls: bool = False
    """Whether a request with calls in its messages needs a list of tools."""


_NAME: Final = r"[a-zA-Z0-9_-]{1,64}"

_USER_OR_TOOL: Final = frozenset(("user", "tool"))

_USER: Final = frozenset(("user",))

_OPENAI: Final = Profile(
    name="openai",
    call_id=r"(?s).{1,40}",
    tool_name=_NAME,
    message_name=_NAME,
    parts=frozenset(("user",)),
    input_keys=_INPUT_KEYS,
    sources={
        "input_keys": _GITHUB + "adamrushy/OpenAISwift/issues/99",
        "message_name": _GITHUB + "jekalmin/extended_openai_conversation/issues/251",
        "call_id": _GITHUB + "vercel/ai/issues/5171",
        "tool_name": _GITHUB + "weave-os/router/pull/1190",
        "parts": _GITHUB + "openai/openai-node/issues/1030",
        "thoughts": "https://platform.openai.com/docs/api-reference/chat/create",
    },
)

_ANTHROPIC: Final = Profile(
    name="anthropic",
    starts_with=_USER,
    ends_with=_USER_OR_TOOL,
    call_id=r"[a-zA-Z0-9_-]+",
    tool_name=_NAME,
    no_blank=_ALL_ROLES,
    parts=frozenset(("user", "tool")),
    thoughts=frozenset(("thinking_blocks", "reasoning_content", "provider_specific_fields")),
    thinks_first="thinking_blocks",
    tools_for_calls=True,
    sources={
        "starts_with": "https://docs.litellm.ai/docs/providers/anthropic",
        "ends_with": _GITHUB + "langchain-ai/deepagents/issues/1585",
        "call_id": _GITHUB + "HKUDS/nanobot/pull/4356",
        "tool_name": _GITHUB + "apify/tester-mcp-client/issues/11",
        "no_blank": _GITHUB + "anthropics/claude-code/issues/23369",
        "parts": "https://platform.claude.com/docs/en/api/messages",
        "thoughts": "https://platform.claude.com/docs/en/build-with-claude/extended-thinking",
        "thinks_first": _GITHUB + "anomalyco/opencode/issues/3077",
        "tools_for_calls": _GITHUB + "BerriAI/litellm/issues/24712",
    },
)

_GEMINI: Final = Profile(
    name="gemini",
    starts_with=_USER,
    ends_with=_USER_OR_TOOL,
    answers_in_order=True,
    tool_name=r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}",
    no_blank=_ALL_ROLES,
    parts=frozenset(("user", "tool")),
    thoughts=frozenset(("thinking_blocks", "reasoning_content", "provider_specific_fields")),
    sources={
        "starts_with": _GITHUB + "google-gemini/gemini-cli/issues/11814",
        "ends_with": _GITHUB + "crewAIInc/crewAI/pull/6973",
        "answers_in_order": "https://ai.google.dev/gemini-api/docs/function-calling",
        "tool_name": _GITHUB + "kaitranntt/ccs/issues/25",
        "no_blank": _GITHUB + "epam/ai-dial-adapter-vertexai/pull/164",
        "parts": "https://ai.google.dev/gemini-api/docs/function-calling",
        "thoughts": "https://ai.google.dev/gemini-api/docs/thought-signatures",
    },
)

_MISTRAL: Final = Profile(
    name="mistral",
    roles=_ALL_ROLES,
    ends_with=_USER_OR_TOOL,
    refused_order=frozenset(
        {
            *(("system", "tool"), ("user", "tool")),
            *(("assistant", "system"), ("tool", "system"), ("tool", "user")),
        }
    ),
    call_id=r"[a-zA-Z0-9]{9}",
    tool_name=_NAME,
    no_blank=frozenset(("assistant",)),
    text_beside_calls=False,
    parts=frozenset(("user", "assistant")),
    keys=_CHAT_KEYS - {"name"} | {"prefix"},
    call_keys=frozenset(("id", "type", "function")),
    sources={
        "roles": _GITHUB + "aliou/pi-neuralwatt/issues/12",
        "ends_with": _GITHUB + "anomalyco/opencode/issues/19115",
        # the order that Mistral's own library enforces, and an issue that quotes the API
        "refused_order": _GITHUB
        + "mistralai/mistral-common/blob/main/src/mistral_common/protocol/instruct/validator.py; "
        + _GITHUB
        + "avante-corp/avante.nvim/issues/2562; "
        + _GITHUB
        + "MODSetter/SurfSense/issues/287",
        "call_id": _GITHUB + "anomalyco/opencode/issues/1680",
        "tool_name": _GITHUB
        + "mistralai/mistral-common/blob/main/src/mistral_common/protocol/instruct/validator.py",
        "no_blank": _GITHUB + "OpenHands/OpenHands/issues/8685",
        "text_beside_calls": _GITHUB + "langchain-ai/langchain/issues/21196",
        "parts": _GITHUB + "LibreChat-AI/agents/issues/344",
        "keys": _GITHUB + "BerriAI/litellm/issues/30835",
        "call_keys": _GITHUB + "BerriAI/litellm/issues/30835",
    },
)

_GROQ: Final = Profile(
    name="groq",
    keys=_CHAT_KEYS | {"reasoning"},
    call_keys=frozenset(("id", "type", "function")),
    thoughts=frozenset(("reasoning",)),
    sources={
        "keys": _GITHUB + "janhq/jan/issues/8136",
        "call_keys": _GITHUB + "janhq/jan/issues/8136",
        "thoughts": _GITHUB + "vercel/ai/pull/8057",
    },
)

_DEEPSEEK: Final = Profile(
    name="deepseek",
    roles=_ALL_ROLES,
    parts=frozenset(),
    thoughts=frozenset(("reasoning_content",)),
    needs_thought="reasoning_content",
    sources={
        "roles": _GITHUB + "earendil-works/pi/issues/1048",
        "parts": _GITHUB + "Zoo-Code-Org/Zoo-Code/issues/1106",
        "thoughts": "https://api-docs.deepseek.com/guides/thinking_mode",
        "needs_thought": _GITHUB + "craft-ai-agents/craft-agents-oss/issues/703",
    },
)

_COHERE: Final = Profile(
    name="cohere",
    roles=_ALL_ROLES,
    text_beside_calls=False,
    keys=frozenset(("role", "content", "tool_calls", "tool_call_id", "tool_plan", "citations")),
    call_keys=frozenset(("id", "type", "function")),
    sources={
        "roles": "https://docs.cohere.com/reference/chat",
        "text_beside_calls": _GITHUB + "vercel/ai/issues/5794",
        "keys": _GITHUB + "agno-agi/agno/issues/3503",
        "call_keys": _GITHUB + "BerriAI/litellm/issues/24031",
    },
)

_BEDROCK: Final = Profile(
    name="bedrock",
    starts_with=_USER,
    ends_with=_USER_OR_TOOL,
    call_id=_NAME,
    tool_name=_NAME,
    no_blank=_ALL_ROLES - {"tool"},
    parts=frozenset(("user", "tool")),
    thoughts=frozenset(("thinking_blocks", "reasoning_content", "provider_specific_fields")),
    thinks_first="thinking_blocks",
    tools_for_calls=True,
    sources={
        "starts_with": _GITHUB + "langchain-ai/langchain-aws/issues/238",
        "ends_with": _GITHUB + "langchain-ai/deepagents/issues/1585",
        "call_id": _GITHUB + "run-llama/llama_index/pull/22775",
        "tool_name": _GITHUB + "mastra-ai/mastra/issues/13632",
        "no_blank": _GITHUB + "NousResearch/hermes-agent/issues/55092",
        "parts": "https://docs.aws.amazon.com/bedrock/latest/APIReference/"
        "API_runtime_ToolResultContentBlock.html",
        "thoughts": "https://docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-extended-thinking.html",
        "thinks_first": _GITHUB + "anomalyco/opencode/issues/3077",
        "tools_for_calls": _GITHUB + "vxcontrol/pentagi/pull/196",
    },
)

_OLLAMA: Final = Profile(
    name="ollama",
    answers_in_order=True,
    thoughts=frozenset(("reasoning_content", "reasoning", "thinking")),
    sources={
        "answers_in_order": _GITHUB + "ollama/ollama/issues/6708",
        "thoughts": "https://docs.ollama.com/capabilities/thinking",
    },
)

_XAI: Final = Profile(
    name="xai",
    null_beside_calls=False,
    no_blank=frozenset(("user", "assistant")),
    thoughts=frozenset(("reasoning_content",)),
    sources={
        "null_beside_calls": _GITHUB + "langchain-ai/langchain/issues/34140",
        "no_blank": _GITHUB + "langbot-app/LangBot/issues/1205",
        "thoughts": "https://docs.x.ai/docs/guides/reasoning",
    },
)

_AZURE: Final = replace(
    _OPENAI,
    name="azure",
    sources={
        "input_keys": _OPENAI.sources["input_keys"],
        "message_name": _GITHUB + "danny-avila/LibreChat/issues/1075",
        "call_id": _GITHUB + "BerriAI/litellm/issues/17343",
        "tool_name": "https://learn.microsoft.com/azure/ai-services/openai/reference",
        "parts": "https://learn.microsoft.com/azure/ai-services/openai/reference",
        "thoughts": "https://learn.microsoft.com/azure/ai-services/openai/reference",
    },
)

_OPENROUTER: Final = Profile(
    name="openrouter",
    starts_with=_USER,
    ends_with=_USER_OR_TOOL,
    call_id=r"[a-zA-Z0-9_-]{1,40}",
    tool_name=_NAME,
    message_name=_NAME,
    no_blank=_ALL_ROLES,
    parts=_USER,
    input_keys=_INPUT_KEYS | {"cache_control"},
    thoughts=frozenset(("reasoning", "reasoning_content", "reasoning_details")),
    # any vendor may be behind a gateway, so these are the rules of all vendors
    sources={
        "input_keys": _GITHUB + "NousResearch/hermes-agent/issues/47868",
        "starts_with": _ANTHROPIC.sources["starts_with"],
        "ends_with": _ANTHROPIC.sources["ends_with"],
        "call_id": _GITHUB + "BerriAI/litellm/issues/11392",
        "tool_name": _OPENAI.sources["tool_name"],
        "message_name": _OPENAI.sources["message_name"],
        "no_blank": _ANTHROPIC.sources["no_blank"],
        "parts": _OPENAI.sources["parts"],
        "thoughts": "https://openrouter.ai/docs/use-cases/reasoning-tokens",
    },
)

PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        *(_OPENAI, _AZURE, _ANTHROPIC, _GEMINI, _MISTRAL, _GROQ),
        *(_DEEPSEEK, _COHERE, _BEDROCK, _OLLAMA, _XAI, _OPENROUTER),
    )
}
"""The profiles by vendor name."""
