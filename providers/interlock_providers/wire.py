"""The last step before a request leaves: what one vendor alone refuses, made acceptable to it.

The core hands over messages that every chat API understands. Vendors differ in smaller things: the
alphabet of call ids, whether a request may end on an assistant turn, what they do with a blank text.
`prepare` mends those on the wire only. Messages that are fine go out as the very same objects, and
preparing twice is preparing once.
"""

from __future__ import annotations

import base64
import hashlib
import json
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn, cast

from interlock.messages import Message, ToolCall, calls_of
from interlock.port import ToolSpec

__all__ = ["Shape", "prepare", "shape_of", "tools_for"]

NO_OUTPUT: Final = "(no output)"
"""What a tool said that said nothing: an empty result is refused or dropped by half of the vendors."""

EMPTY_MESSAGE: Final = "(empty message)"
CONTINUE: Final[Message] = {"role": "user", "content": "Continue."}
EARLIER: Final[Message] = {"role": "user", "content": "(Earlier messages are not shown.)"}
NOTED: Final[Message] = {"role": "assistant", "content": "Noted."}

_LONGEST_RAW_ARGUMENTS = 800
_ANY_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""OpenAI and Bedrock refuse other names in the history too, and models invent such names
(mastra 13632, pydantic-ai 4585)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What one vendor demands of a request beyond what all of them do."""

    id_pattern: re.Pattern[str] = _ANY_ID
    """Call ids that match pass unchanged. Anthropic: ``^[a-zA-Z0-9_-]+$`` (nanobot pull 4356); Bedrock
    stops at 64 characters (llama_index pull 22775)."""
    id_prefix: str = "call_"
    id_length: int = 29
    """Prefix and length of the ids that replace the others."""
    ends_with_user: bool = True
    """A request may not end on an assistant turn (Claude: deepagents 1585; Gemini: crewAI pull 6973;
    Mistral: opencode 19115)."""
    starts_with_user: bool = True
    """The first turn after the system prompt is a user's (litellm refuses others for Anthropic on the
    client side; Gemini: OmniRoute pull 13573)."""
    refuses_blank: bool = True
    """Blank text is refused (Anthropic, Bedrock: claude-code 23440, hermes-agent pull 41985; Mistral
    refuses an assistant turn that says nothing: OpenHands 8685)."""
    needs_tools: bool = False
    """A history with calls needs a list of tools (Anthropic: litellm 24712; Bedrock: pentagi pull 196)."""
    strict_tools: bool = False
    """Whether a tool's spec may say ``strict`` (OpenAI's Structured Outputs); others refuse or ignore it."""
    user_after_tool: bool = True
    """A user turn may follow a tool result directly (not so on Mistral: hermes-agent pull 84944)."""
    message_keys: frozenset[str] | None = None
    """The only keys that a message may have, None for any. Some vendors refuse what they themselves
    sent before, such as ``reasoning_content`` (Groq: jan 8136; Cerebras: qwen-code 11045; Mistral:
    litellm 30835)."""


_PLAIN_KEYS: Final = frozenset(("role", "content", "name", "tool_calls", "tool_call_id"))
_CALL_KEYS: Final = frozenset(("id", "type", "function"))

_DEFAULT: Final = Shape()
_OPENAI: Final = Shape(
    # "string too long. Expected a string with maximum length 40" (vercel/ai 5171, litellm 17343)
    id_pattern=re.compile(r".{1,40}", re.DOTALL),
    ends_with_user=False,
    starts_with_user=False,
    refuses_blank=False,
    strict_tools=True,
)
_CLAUDE: Final = Shape(needs_tools=True)
_GATEWAY: Final = Shape(id_pattern=re.compile(r"[a-zA-Z0-9_-]{1,40}"))  # any vendor may be behind it
_MISTRAL: Final = Shape(
    # "must be a-z, A-Z, 0-9, with a length of 9" (opencode 1680, langchain pull 24668)
    id_pattern=re.compile(r"[a-zA-Z0-9]{9}"),
    id_prefix="",
    id_length=9,
    user_after_tool=False,
    # the name of a user is refused too (mistral-go pull 2); prefix is Mistral's own
    message_keys=_PLAIN_KEYS - {"name"} | {"prefix"},
)

_SHAPES: Final[Mapping[str, Shape]] = {
    "openai": _OPENAI,
    "azure": _OPENAI,
    "azure_ai": _GATEWAY,
    "github_copilot": _GATEWAY,
    "openrouter": _GATEWAY,
    "litellm_proxy": _GATEWAY,
    "vercel_ai_gateway": _GATEWAY,
    "anthropic": _CLAUDE,
    "bedrock": _CLAUDE,
    "bedrock_converse": _CLAUDE,
    "mistral": _MISTRAL,
    "codestral": _MISTRAL,
    "groq": Shape(message_keys=_PLAIN_KEYS),
    "cerebras": Shape(message_keys=_PLAIN_KEYS | {"reasoning"}),
}

_CLAUDE_ELSEWHERE: Final = replace(_GATEWAY, needs_tools=True)
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
    if shape.message_keys and "gpt-oss" in model:
        # these think better with their reasoning, and Groq takes it for no other model (vercel/ai pull 8057)
        return replace(shape, message_keys=shape.message_keys | {"reasoning"})
    if shape is not _MISTRAL and _MISTRAL_MODEL.search(model):
        return replace(_MISTRAL, needs_tools=shape.needs_tools)
    if not shape.needs_tools and _CLAUDE_MODEL.search(model):
        return _CLAUDE_ELSEWHERE
    return shape


def prepare(messages: Sequence[Message], shape: Shape) -> Sequence[Message]:
    """Return ``messages`` as this vendor takes them; the same object when they are fine already."""
    ids = _WireIds(shape)
    out: list[Message] = []
    changed = spoken = False
    for message in messages:
        ready = _fit(message, shape, ids)
        changed |= ready is not message
        if ready is None:
            continue
        role = ready["role"]
        if role == "user" and not shape.user_after_tool and out and out[-1]["role"] == "tool":
            out.append(NOTED)
        elif role == "assistant" and not spoken and shape.starts_with_user:
            out.append(EARLIER)
        spoken |= role not in ("system", "developer")
        out.append(ready)
    if not spoken or (shape.ends_with_user and _ends_on_assistant(out)):
        out.append(CONTINUE)
    return out if changed or len(out) != len(messages) else messages


def tools_for(messages: Sequence[Message], tools: Sequence[ToolSpec], shape: Shape) -> Sequence[ToolSpec]:
    """Return ``tools`` as the vendor takes them, or stand-ins for those in the history where it wants some.

    Args:
        messages: the messages as `prepare` returned them.
        tools: the tools that the request offers.
        shape: what the vendor demands.
    """
    if tools and not shape.strict_tools and any("strict" in tool.get("function", ()) for tool in tools):
        return [_not_strict(tool) for tool in tools]
    if tools or not shape.needs_tools:
        return tools
    names = dict.fromkeys(call["function"]["name"] for message in messages for call in calls_of(message))
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": "Was used before and is not available now: do not call it.",
                "parameters": {"type": "object", "properties": {}},
            },
        }
        for name in names
    ]


def _not_strict(tool: ToolSpec) -> ToolSpec:
    function = {key: value for key, value in tool.get("function", {}).items() if key != "strict"}
    return {**tool, "function": function} if function else tool


def _ends_on_assistant(messages: Sequence[Message]) -> bool:
    return messages[-1]["role"] == "assistant" and not calls_of(messages[-1])


def _fit(message: Message, shape: Shape, ids: _WireIds) -> Message | None:
    if message["role"] == "tool":
        return _fit_answer(message, shape, ids)
    content = _fit_content(message.get("content"), keep_blank=not shape.refuses_blank)
    if calls := calls_of(message):
        fitted = _fit_calls(calls, shape, ids)
        if fitted is not calls:
            message = {**message, "tool_calls": fitted}
    elif not content:
        content = _instead_of_nothing(message, shape)
        if content is None:
            return None
    fit = message if content is message.get("content") else cast(Message, {**message, "content": content})
    return _sendable(fit, shape)


def _fit_answer(message: Message, shape: Shape, ids: _WireIds) -> Message:
    content = _fit_content(message.get("content"), keep_blank=False) or NO_OUTPUT
    call_id = ids.of(message.get("tool_call_id") or "")
    if content is message.get("content") and call_id == message.get("tool_call_id"):
        return _sendable(message, shape)
    return _sendable({**message, "content": content, "tool_call_id": call_id}, shape)


def _instead_of_nothing(message: Message, shape: Shape) -> str | None:
    """Return what to send of a message without text or calls; None when it is no loss."""
    if not shape.refuses_blank:
        return ""  # OpenAI takes null only beside calls
    if message["role"] == "user":
        return EMPTY_MESSAGE
    return message.get("refusal") or ("" if _carries_more(message) else None)


def _sendable(message: Message, shape: Shape) -> Message:
    """Return the message without the keys that this vendor refuses, and without interlock's own.

    An empty list of calls goes as well: OpenAI takes none (openai-node pull 1341).
    """
    allowed = shape.message_keys
    for key, value in message.items():
        if key[0] == "_" or (allowed and key not in allowed) or (key == "tool_calls" and not value):
            break
    else:
        return message
    kept = {key: value for key, value in message.items() if key[0] != "_" and (not allowed or key in allowed)}
    if not kept.get("tool_calls", True):
        del kept["tool_calls"]
    return cast(Message, kept)


def _carries_more(message: Message) -> bool:
    return any(
        value for key, value in message.items() if key not in ("role", "content", "name") and key[0] != "_"
    )


def _fit_content(content: str | list[dict[str, Any]] | None, *, keep_blank: bool) -> Any:
    """Return content that can be encoded and, unless ``keep_blank``, has nothing blank in it."""
    if isinstance(content, str):
        return "" if not keep_blank and content.isspace() else _encodable(content)
    if content is None:
        return None
    parts = [_fit_part(part) for part in content if keep_blank or not _is_blank_text(part)]
    same = len(parts) == len(content) and all(map(operator.is_, parts, content))
    return content if same else parts


def _fit_part(part: dict[str, Any]) -> dict[str, Any]:
    text = part.get("text")
    if not isinstance(text, str) or (fit := _encodable(text)) is text:
        return part
    return {**part, "text": fit}


def _is_blank_text(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "text" and not str(part.get("text") or "").strip()


def _encodable(text: str) -> str:
    """Return ``text`` without lone surrogates, which no HTTP client can send (Aider 3693)."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _fit_calls(calls: list[ToolCall], shape: Shape, ids: _WireIds) -> list[ToolCall]:
    fitted = [_fit_call(call, shape, ids) for call in calls]
    return calls if all(map(operator.is_, fitted, calls)) else fitted


def _fit_call(call: ToolCall, shape: Shape, ids: _WireIds) -> ToolCall:
    function = call["function"]
    call_id = ids.of(call.get("id") or "")
    name = _fit_name(function["name"])
    arguments = _fit_arguments(function["arguments"])
    if shape.message_keys is not None and not call.keys() <= _CALL_KEYS:
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    if name != function["name"] or arguments is not function["arguments"]:
        return {**call, "id": call_id, "function": {**function, "name": name, "arguments": arguments}}
    return call if call_id == call.get("id") else {**call, "id": call_id}


def _fit_name(name: str) -> str:
    if _TOOL_NAME.fullmatch(name):
        return name
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unknown_tool"


def _fit_arguments(arguments: str) -> str:
    """Return a JSON object: the same text if it is one, else one that quotes the beginning of it.

    Anthropic and Gemini refuse anything else in the history (pain 12, claude-code 6696). The run has
    told the model what was wrong; the transcript keeps the text as it came.
    """
    if not arguments:
        return "{}"
    try:
        value = _STRICT_JSON.decode(arguments)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return _encodable(arguments)
    return json.dumps({"_invalid_arguments": _encodable(arguments)[:_LONGEST_RAW_ARGUMENTS]})


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")  # Python reads NaN and Infinity, vendors do not


_STRICT_JSON: Final = json.JSONDecoder(parse_constant=_refuse_constant)


class _WireIds:
    """The call ids of one request: deterministic, unique, and the same for a call and its answer."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.wire: dict[str, str] = {}
        self.taken: set[str] = set()

    def of(self, call_id: str) -> str:
        if (known := self.wire.get(call_id)) is not None:
            return known
        wire, tries = call_id, 0
        if not self.shape.id_pattern.fullmatch(call_id):
            wire = self._made_from(call_id)
        while wire in self.taken:
            tries += 1
            wire = self._made_from(f"{call_id} {tries}")
        self.wire[call_id] = wire
        self.taken.add(wire)
        return wire

    def _made_from(self, text: str) -> str:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        made = self.shape.id_prefix + base64.b32encode(digest).decode().lower()
        return made[: self.shape.id_length]
