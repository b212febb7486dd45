"""Reads the body of a request in any vendor's API back into chat messages, so that profiles can judge it.

What the API itself demands beyond messages, such as turns that alternate, is checked while reading.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Json = dict[str, Any]


@dataclass
class Asked:
    """A request as chat completions would put it."""

    messages: list[Any]
    tools: list[Json] = field(default_factory=list)
    thinking: bool = False


def read_body(path: str, body: Json) -> Asked:
    """Return what a request asks, whichever API its path belongs to."""
    if path.endswith("/messages"):
        return _of_anthropic(body)
    if "generatecontent" in path.lower():
        return _of_gemini(body)
    if "/converse" in path:
        return _of_bedrock(body)
    if path.endswith("/api/chat"):
        return _of_ollama(body)
    thinking = (body.get("thinking") or {}).get("type") == "enabled"
    return Asked(body["messages"], body.get("tools") or [], thinking)


def _tool(name: str, schema: Any) -> Json:
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def _call(call_id: str, name: str, arguments: Any) -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": call_id, "type": "function", "function": function}


def _said(texts: Sequence[str], calls: list[Json], **more: Any) -> Json:
    content = [{"type": "text", "text": text} for text in texts] or None
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {}), **more}


def _user(parts: list[Json]) -> Iterator[Json]:
    if parts:
        yield {"role": "user", "content": parts}


# -- Anthropic --


def _of_anthropic(body: Json) -> Asked:
    messages = _system(body.get("system"))
    for turn in _turns(body["messages"]):
        messages += _anthropic_turn(turn["role"], turn["content"])
    tools = [_tool(each["name"], each["input_schema"]) for each in body.get("tools") or ()]
    return Asked(messages, tools, (body.get("thinking") or {}).get("type") == "enabled")


def _anthropic_turn(role: str, said: list[Json] | str) -> Iterator[Json]:
    blocks = [{"type": "text", "text": said}] if isinstance(said, str) else said
    kinds = [block["type"] for block in blocks]
    if role == "assistant":
        thoughts = [block for block in blocks if "thinking" in block["type"]]
        assert all("thinking" in kind for kind in kinds[: len(thoughts)]), "thoughts come first"
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        calls = [_call(each["id"], each["name"], each["input"]) for each in blocks if "input" in each]
        yield _said(texts, calls, **({"thinking_blocks": thoughts} if thoughts else {}))
        return
    results = [block for block in blocks if block["type"] == "tool_result"]
    assert set(kinds[: len(results)]) <= {"tool_result"}, "tool results come first in a user's turn"
    for each in results:
        yield {"role": "tool", "tool_call_id": each["tool_use_id"], "content": each["content"]}
    yield from _user([block for block in blocks if block["type"] != "tool_result"])


# -- Bedrock --


def _of_bedrock(body: Json) -> Asked:
    messages = _system(body.get("system"))
    for turn in _turns(body["messages"]):
        messages += _bedrock_turn(turn["role"], turn["content"])
    specs = [each["toolSpec"] for each in body.get("toolConfig", {}).get("tools", ()) if "toolSpec" in each]
    more = body.get("additionalModelRequestFields") or {}
    tools = [_tool(spec["name"], spec["inputSchema"]) for spec in specs]
    return Asked(messages, tools, (more.get("thinking") or {}).get("type") == "enabled")


def _bedrock_turn(role: str, blocks: list[Json]) -> Iterator[Json]:
    kinds = [next(iter(block)) for block in blocks]
    if role == "assistant":
        assert "toolUse" not in kinds or "text" not in kinds[kinds.index("toolUse") :], "texts before calls"
        thoughts = [block for block in blocks if "reasoningContent" in block]
        texts = [block["text"] for block in blocks if "text" in block]
        uses = [block["toolUse"] for block in blocks if "toolUse" in block]
        calls = [_call(each["toolUseId"], each["name"], each["input"]) for each in uses]
        yield _said(texts, calls, **({"thinking_blocks": thoughts} if thoughts else {}))
        return
    for each in (block["toolResult"] for block in blocks if "toolResult" in block):
        parts = [{"type": "text", **part} for part in each["content"]]
        yield {"role": "tool", "tool_call_id": each["toolUseId"], "content": parts}
    texts = [{"type": "text", **block} for block in blocks if "text" in block]
    yield from _user([*texts, *({"type": "image_url"} for block in blocks if "image" in block)])


# -- Gemini --


def _of_gemini(body: Json) -> Asked:
    body = _snake(body)
    messages = _system((body.get("system_instruction") or {}).get("parts"))
    waiting: list[tuple[str, str]] = []
    contents = [{**turn, "parts": [_snake(part) for part in turn["parts"]]} for turn in body["contents"]]
    _check_gemini_order(contents)
    for turn in contents:
        if turn["role"] == "user":
            messages += _gemini_user(turn["parts"], waiting)
        else:
            assert not waiting, "as many responses as calls"
            messages.append(_gemini_model(turn["parts"], waiting, len(messages)))
    assert not waiting, "as many responses as calls"
    tools = [_snake(tool) for tool in body.get("tools") or ()]
    declared = [each for tool in tools for each in tool.get("function_declarations") or ()]
    return Asked(messages, [_tool(each["name"], each.get("parameters")) for each in declared])


def _snake(fields: Json) -> Json:
    """Spell the keys one way; Google takes two."""
    spelt = {
        "functionCall": "function_call",
        "functionResponse": "function_response",
        "functionDeclarations": "function_declarations",
        "systemInstruction": "system_instruction",
    }
    return {spelt.get(key, key): value for key, value in fields.items()}


def _check_gemini_order(turns: list[Json]) -> None:
    """Check where calls and responses stand (gemini-cli 11814, langchain 27799); the rest is free."""
    assert all(turn["role"] in ("user", "model") and turn["parts"] for turn in turns)
    assert not _has(turns[0], "function_call"), "a call turn follows a user's turn"
    for one, two in pairwise(turns):
        assert not _has(two, "function_call") or one["role"] == "user", "a call turn follows a user's turn"
        assert _has(one, "function_call") == _has(two, "function_response"), "responses follow their calls"


def _has(turn: Json, key: str) -> bool:
    return any(key in part for part in turn["parts"])


def _gemini_model(parts: list[Json], waiting: list[tuple[str, str]], place: int) -> Json:
    calls: list[Json] = []
    for part in parts:
        if found := part.get("function_call"):
            assert isinstance(found["args"], dict)
            call_id = found.get("id") or f"call_{place}_{len(calls)}"
            calls.append(_call(call_id, found["name"], found["args"]))
            if signature := part.get("thoughtSignature"):
                calls[-1]["provider_specific_fields"] = {"thought_signature": signature}
            waiting.append((call_id, found["name"]))
    texts = [part["text"] for part in parts if "text" in part]
    return _said(texts, calls)


_GEMINI_PARTS = {"text", "function_call", "function_response"}


def _gemini_user(parts: list[Json], waiting: list[tuple[str, str]]) -> Iterator[Json]:
    for part in parts:
        if found := part.get("function_response"):
            call_id, name = waiting.pop(0)
            assert found["name"] == name, "responses in the order of the calls"
            assert found.get("id", call_id) == call_id
            text = json.dumps(found["response"])
            yield {"role": "tool", "tool_call_id": call_id, "content": text}
    others = [{"type": "image_url"} for part in parts if not _GEMINI_PARTS & part.keys()]
    # litellm adds a blank to what has no text, because Gemini wants some
    texts = [
        {"type": "text", **part} for part in parts if "text" in part and not (others and part["text"] == " ")
    ]
    yield from _user([*texts, *others])


# -- Ollama --


def _of_ollama(body: Json) -> Asked:
    messages: list[Json] = []
    for message in body["messages"]:
        assert isinstance(message["content"], str), "the content is text (litellm 11273)"
        message = {key: value for key, value in message.items() if key != "images"}
        if calls := message.pop("tool_calls", None):
            message["tool_calls"] = [_call(*_of_function(each["function"])) for each in calls]
        messages.append(message)
    ids = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    for message in messages:
        for each in message.get("tool_calls", ()):
            each["id"] = ids.pop(0)
    return Asked(messages, body.get("tools") or [])


def _of_function(function: Json) -> tuple[str, str, Any]:
    assert isinstance(function["arguments"], dict), "arguments are an object"
    return "", function["name"], function["arguments"]


# -- what they share --


def _system(parts: list[Json] | str | None) -> list[Json]:
    if not parts:
        return []
    texts = [{"type": "text", "text": part["text"]} for part in parts if isinstance(part, dict)]
    return [{"role": "system", "content": texts or parts}]


def _turns(turns: list[Json]) -> list[Json]:
    assert all(one["role"] != two["role"] for one, two in pairwise(turns)), "turns alternate"
    assert all(turn["content"] for turn in turns), "no turn is empty"
    return turns
