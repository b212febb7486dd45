"""From recorded requests in the vendors' own formats to calls in chat-completions terms.

For sets that describe no calls. What chat completions cannot express is left out: a replay matches
requests by their path, so nothing depends on it, and what comes back is compared in full.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from replay.replies import Expected, read_reply
from replay.tape import Interaction

Json = dict[str, Any]

_VENDOR_OF_HOST = {
    "api.openai.com": "openai",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral",
    "api.deepseek.com": "deepseek",
    "api.cerebras.ai": "cerebras",
    "api.perplexity.ai": "perplexity",
    "openrouter.ai": "openrouter",
    "router.huggingface.co": "huggingface",
}
_PLAIN_SETTINGS = ("temperature", "top_p", "max_tokens", "seed", "stop", "n", "thinking", "background")


def derive_calls(interactions: Sequence[Interaction], model: str | None, provider: str | None) -> list[Json]:
    """Return the fields of a `Call` for each model call; a failure that was asked again is one call."""
    asking = [one for one in interactions if one.asks_a_model]
    calls: list[Json] = []
    attempts = 1
    for number, one in enumerate(asking):
        following = asking[number + 1] if number + 1 < len(asking) else None
        if following is not None and _is_retried(one, following):
            attempts += 1
            continue
        calls.append(_call(one, model, attempts))
        attempts = 1
    return calls


def dialect_of(one: Interaction) -> str:
    """Return the wire format of a request."""
    path = one.path.rstrip("/")
    if "enerateContent" in path:
        return "gemini"
    if path.endswith("/chat/completions"):
        return "chat"
    if path.endswith("/messages"):
        return "anthropic"
    return "responses" if path.endswith("/responses") else "cohere"


def _is_retried(one: Interaction, following: Interaction) -> bool:
    return one.status >= 400 and _kind(one)[1] and one.asked == following.asked


def _call(one: Interaction, model: str | None, attempts: int) -> Json:
    dialect = dialect_of(one)
    asked = one.request
    named, connect = _model(one, dialect)
    messages, tools, choice = _TRANSLATORS[dialect](asked)
    return {
        "model": model or named,
        "connect": connect if model is None else {},
        "messages": messages,
        "tools": tools,
        "tool_choice": choice,
        "settings": {key: asked[key] for key in _PLAIN_SETTINGS if asked.get(key) is not None},
        "stream": bool(asked.get("stream")) or "streamGenerate" in one.path,
        "attempts": attempts,
        "expected": _with_kind(read_reply(dialect, one), one),
    }


def _model(one: Interaction, dialect: str) -> tuple[str, Json]:
    name = str(one.request.get("model") or one.path.rpartition("/")[2].partition(":")[0])
    if dialect == "gemini":
        return f"gemini/{name}", {}
    if dialect == "anthropic":
        return f"anthropic/{name}", {}
    if dialect == "cohere":
        return f"cohere_chat/{name}", {}
    address = one.url.partition("?")[0]
    vendor = _VENDOR_OF_HOST.get(one.host)
    if dialect == "responses":
        base = {} if vendor == "openai" else {"api_base": address.removesuffix("/responses")}
        return f"openai/responses/{name}", base
    if vendor == "huggingface":
        return f"huggingface/{name}", {"api_base": address}
    if vendor is None:
        return f"openai/{name}", {"api_base": address.removesuffix("/chat/completions")}
    return f"{vendor}/{name}", {}


def _with_kind(expected: Expected, one: Interaction) -> Expected:
    """Say which class of error is right, and whether to try again, from the answer alone."""
    if not expected.failed or expected.kind:
        return expected
    kind, retryable = _kind(one)
    return replace(expected, kind=kind, retryable=retryable)


def _kind(one: Interaction) -> tuple[str | None, bool]:
    body = one.body.decode("utf-8", "replace")
    if one.status == 429:
        return ("QuotaExhausted", False) if "insufficient_quota" in body else ("RateLimited", True)
    if one.status >= 500 or "overloaded_error" in body:
        return "ServerFailed", True
    if one.status in (401, 403):
        return "AuthenticationFailed", False
    if one.status >= 400:
        return None, False
    return ("UnreadableResponse", True) if not body.strip() else (None, False)


_Translated = tuple[list[Json], list[Json], Any]


def _chat(asked: Json) -> _Translated:
    messages = [
        {key: value for key, value in message.items() if value is not None} for message in asked["messages"]
    ]
    tools = [{"type": "function", **tool} for tool in asked.get("tools") or ()]
    return messages, tools, asked.get("tool_choice")


def _anthropic(asked: Json) -> _Translated:
    messages: list[Json] = []
    if system := asked.get("system"):
        messages.append({"role": "system", "content": system})
    for message in asked["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        messages += _from_blocks(message["role"], blocks)
    tools = [
        _function(tool["name"], tool.get("description"), tool["input_schema"])
        if "input_schema" in tool
        else tool
        for tool in asked.get("tools") or ()
    ]
    choice = asked.get("tool_choice") or {}
    kinds = {"auto": "auto", "any": "required", "none": "none", "tool": choice.get("name")}
    return messages, tools, kinds.get(choice.get("type", ""))


def _from_blocks(role: str, blocks: list[Json]) -> list[Json]:
    text = [block for block in blocks if block["type"] in ("text", "image")]
    calls = [
        _tool_call(block["id"], block["name"], block["input"])
        for block in blocks
        if block["type"] == "tool_use"
    ]
    results = [
        {"role": "tool", "tool_call_id": block["tool_use_id"], "content": block.get("content") or ""}
        for block in blocks
        if block["type"] == "tool_result"
    ]
    if role == "assistant":
        message: Json = {"role": role, "content": "".join(block["text"] for block in text) or None}
        return [message | ({"tool_calls": calls} if calls else {})]
    return [*results, *([{"role": role, "content": text}] if text else [])]


def _responses(asked: Json) -> _Translated:
    items = asked["input"]
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    messages: list[Json] = []
    if asked.get("instructions"):
        messages.append({"role": "system", "content": asked["instructions"]})
    for item in items:
        messages += _from_item(item)
    tools = [
        _function(tool["name"], tool.get("description"), tool.get("parameters") or {})
        if tool.get("type") == "function"
        else tool
        for tool in asked.get("tools") or ()
    ]
    return messages, tools, asked.get("tool_choice")


def _from_item(item: Json) -> list[Json]:
    match item.get("type", "message"):
        case "message":
            content = item["content"]
            if isinstance(content, list):
                content = "".join(part.get("text") or "" for part in content)
            return [{"role": item["role"], "content": content}]
        case "function_call":
            call = _tool_call(item["call_id"], item["name"], item["arguments"])
            return [{"role": "assistant", "content": None, "tool_calls": [call]}]
        case "function_call_output":
            return [{"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}]
    return []


def _gemini(asked: Json) -> _Translated:
    roles = {"model": "assistant"}
    messages = [
        {
            "role": roles.get(content.get("role", "user"), "user"),
            "content": "".join(part.get("text") or "" for part in content.get("parts") or ()),
        }
        for content in asked["contents"]
    ]
    return messages, [], None


def _function(name: str, description: str | None, parameters: Json) -> Json:
    function = {"name": name, "description": description or "", "parameters": parameters}
    return {"type": "function", "function": function}


def _tool_call(call_id: str, name: str, arguments: Any) -> Json:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


_TRANSLATORS: dict[str, Callable[[Json], _Translated]] = {
    "chat": _chat,
    "cohere": _chat,
    "anthropic": _anthropic,
    "responses": _responses,
    "gemini": _gemini,
}
