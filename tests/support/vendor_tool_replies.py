"""Answers in which a vendor's own tools ran, whole and as the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from servers import SSE, Reply

Json = dict[str, Any]

USAGE = {"input_tokens": 5, "output_tokens": 7}

SEARCHED: Json = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "x"},
}
FOUND: Json = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "Zm9v"}
    ],
}
CITED: Json = {
    "type": "text",
    "text": "It rains",
    "citations": [
        {
            "type": "web_search_result_location",
            "url": "https://a.example",
            "title": "A",
            "cited_text": "rain",
            "encrypted_index": "YmFy",
        }
    ],
}
THOUGHT: Json = {"type": "thinking", "thinking": "Hm.", "signature": "signed"}
CALL: Json = {"type": "tool_use", "id": "toolu_1", "name": "double", "input": {"number": 2}}
CLAUDE_BLOCKS = [{"type": "text", "text": "So: "}, SEARCHED, FOUND, CITED, {"type": "text", "text": "."}]

WEB_CALL: Json = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {
        "type": "search",
        "query": "x",
        "sources": [{"type": "url", "url": "https://a.example"}, {"type": "api", "name": "weather"}],
    },
}
CODE_CALL: Json = {
    "type": "code_interpreter_call",
    "id": "ci_1",
    "status": "completed",
    "container_id": "c1",
    "code": "1 + 1",
    "outputs": [{"type": "logs", "logs": "2"}],
}
SAID: Json = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [
        {
            "type": "output_text",
            "text": "It rains.",
            "annotations": [
                {
                    "type": "url_citation",
                    "url": "https://a.example",
                    "title": "A",
                    "start_index": 0,
                    "end_index": 8,
                }
            ],
        }
    ],
}
FUNCTION_CALL: Json = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_Ab1",
    "name": "double",
    "arguments": '{"number": 2}',
    "status": "completed",
}

GEMINI_PARTS: list[Json] = [
    {"executableCode": {"language": "PYTHON", "code": "1 + 1", "id": "e1"}, "thoughtSignature": "c2ln"},
    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2\n", "id": "e1"}},
    {"text": "It rains."},
]
GROUNDING: Json = {
    "webSearchQueries": ["x"],
    "groundingChunks": [{"web": {"uri": "https://a.example", "title": "A"}}],
    "groundingSupports": [{"segment": {"startIndex": 0, "endIndex": 8}, "groundingChunkIndices": [0]}],
}
GEMINI_CALL: Json = {"functionCall": {"name": "double", "args": {"number": 2}, "id": "g1"}}


def whole(body: Json) -> Reply:
    return Reply((json.dumps(body).encode(),))


def streamed(events: Sequence[Json], *, named: bool = True) -> Reply:
    lines = [
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in events
    ]
    return Reply(tuple(line.encode() for line in lines), content_type=SSE)


def claude(blocks: Sequence[Json], *, stop: str = "end_turn", stream: bool = False, **more: Any) -> Reply:
    """Return an answer of Anthropic's."""
    head = {"id": "m1", "type": "message", "role": "assistant", "model": "m", **more}
    if not stream:
        return whole({**head, "content": [*blocks], "stop_reason": stop, "usage": USAGE})
    events: list[Json] = [
        {"type": "message_start", "message": {**head, "content": [], "stop_reason": None, "usage": USAGE}}
    ]
    for index, block in enumerate(blocks):
        events += _claude_events(index, block)
    ending = {"type": "message_delta", "delta": {"stop_reason": stop, **more}, "usage": USAGE}
    return streamed([*events, ending, {"type": "message_stop"}])


def _claude_events(index: int, block: Json) -> list[Json]:
    deltas: list[Json] = []
    begun = dict(block)
    if block["type"] == "text":
        begun = {"type": "text", "text": ""}
        deltas += [{"type": "citations_delta", "citation": each} for each in block.get("citations", ())]
        middle = len(block["text"]) // 2
        deltas += [
            {"type": "text_delta", "text": text} for text in (block["text"][:middle], block["text"][middle:])
        ]
    elif block["type"] == "thinking":
        begun = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    elif "input" in block:
        begun["input"] = {}
        deltas = [
            {"type": "input_json_delta", "partial_json": text} for text in ("", json.dumps(block["input"]))
        ]
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def responses(output: Sequence[Json], *, stream: bool = False) -> Reply:
    """Return an answer of the Responses API."""
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5", "status": "completed"}
    settings = {"tool_choice": "auto", "tools": [], "parallel_tool_calls": True}
    usage = {**USAGE, "total_tokens": 12}
    body: Json = {**head, **settings, "error": None, "output": [*output], "usage": usage}
    if not stream:
        return whole(body)
    events: list[Json] = [
        {"type": "response.created", "response": {**body, "status": "in_progress", "output": []}}
    ]
    for place, item in enumerate(output):
        where = {"output_index": place, "item_id": item["id"]}
        begun = {**item, "content": []} if item["type"] == "message" else {**item, "arguments": ""}
        begun = begun if item["type"] in ("message", "function_call") else item
        events.append({"type": "response.output_item.added", "output_index": place, "item": begun})
        for part in item.get("content", ()):
            text = {"type": "response.output_text.delta", "content_index": 0, "delta": part["text"]}
            events.append({**where, **text})
        if item["type"] == "function_call":
            delta = {"type": "response.function_call_arguments.delta", "delta": item["arguments"]}
            events.append({**where, **delta})
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    events.append({"type": "response.completed", "response": body})
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(events)]
    return streamed(numbered)


def gemini(parts: Sequence[Json], *, stream: bool = False, **more: Any) -> Reply:
    """Return an answer of Google's."""
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 7, "totalTokenCount": 12}

    def body(some: Sequence[Json], **ending: Any) -> Json:
        candidate = {"content": {"role": "model", "parts": [*some]}, "index": 0, **ending}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}

    if not stream:
        return whole(body(parts, finishReason="STOP", **more))
    events = [body([part]) for part in parts[:-1]]
    return streamed([*events, body(parts[-1:], finishReason="STOP", **more)], named=False)
