"""What each vendor answers on the wire: a thought with its signature, a text and calls, as one JSON body."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from servers import Reply

Calls = Sequence[tuple[str, str, dict[str, Any]]]
"""Id, name and arguments of each call."""


def answer(vendor: str, thought: str, text: str, calls: Calls) -> Reply:
    """Return a reply of a vendor's; ``thought`` also stands in the signature where there is one."""
    body = _BODIES[vendor](thought, text, calls)
    return Reply((json.dumps(body).encode(),))


def _chat(message: dict[str, Any], text: Any, calls: Calls) -> dict[str, Any]:
    made = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for call_id, name, arguments in calls
    ]
    whole = {"role": "assistant", "content": text, **message, **({"tool_calls": made} if made else {})}
    choice = {"index": 0, "message": whole, "finish_reason": "tool_calls" if made else "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    return {
        "id": "r1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }


def _openai(thought: str, text: str, calls: Calls) -> dict[str, Any]:
    return _chat({}, text or None, calls)


def _deepseek(thought: str, text: str, calls: Calls) -> dict[str, Any]:
    return _chat({"reasoning_content": thought}, text, calls)


def _mistral(thought: str, text: str, calls: Calls) -> dict[str, Any]:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": thought}]}
    return _chat({}, [thinking, {"type": "text", "text": text}] if text else [thinking], calls)


def _cohere(thought: str, text: str, calls: Calls) -> dict[str, Any]:
    message = _chat({}, None, calls)["choices"][0]["message"]
    message |= {"tool_plan": text} if calls else {"content": [{"type": "text", "text": text}]}
    tokens = {"input_tokens": 5, "output_tokens": 7}
    return {
        "id": "r1",
        "message": message,
        "finish_reason": "TOOL_CALL" if calls else "COMPLETE",
        "usage": {"billed_units": tokens, "tokens": tokens},
    }


def _anthropic(thought: str, text: str, calls: Calls) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": thought, "signature": f"signed {thought}"}
    ]
    if text:
        blocks.append({"type": "text", "text": text})
    blocks += [
        {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        for call_id, name, arguments in calls
    ]
    return {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": blocks,
        "stop_reason": "tool_use" if calls else "end_turn",
        "usage": {"input_tokens": 5, "output_tokens": 7},
    }


def _bedrock(thought: str, text: str, calls: Calls) -> dict[str, Any]:
    reasoning = {"reasoningText": {"text": thought, "signature": f"signed {thought}"}}
    blocks: list[dict[str, Any]] = [{"reasoningContent": reasoning}]
    if text:
        blocks.append({"text": text})
    blocks += [
        {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments}}
        for call_id, name, arguments in calls
    ]
    return {
        "output": {"message": {"role": "assistant", "content": blocks}},
        "stopReason": "tool_use" if calls else "end_turn",
        "usage": {"inputTokens": 5, "outputTokens": 7, "totalTokens": 12},
        "metrics": {"latencyMs": 1},
    }


def _gemini(thought: str, text: str, calls: Calls) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": thought, "thought": True}]
    if text:
        parts.append({"text": text})
    for index, (call_id, name, arguments) in enumerate(calls):
        part: dict[str, Any] = {"functionCall": {"id": call_id, "name": name, "args": arguments}}
        if not index:  # only the first of parallel calls is signed
            part["thoughtSignature"] = base64.b64encode(f"signed {thought}".encode()).decode()
        parts.append(part)
    content = {"role": "model", "parts": parts}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 7, "totalTokenCount": 12},
        "modelVersion": "m",
    }


_BODIES = {
    "openai": _openai,
    "azure": _openai,
    "anthropic": _anthropic,
    "bedrock": _bedrock,
    "gemini": _gemini,
    "mistral": _mistral,
    "deepseek": _deepseek,
    "cohere": _cohere,
    "groq": _openai,
    "xai": _deepseek,
}
