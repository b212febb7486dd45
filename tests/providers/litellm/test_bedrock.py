"""Bedrock where it passes on what a model says in the model's own words: ``bedrock/invoke/...`` and its like.

What stands in the stream is what Amazon documents for InvokeModelWithResponseStream: frames of
``application/vnd.amazon.eventstream``, and in each an event of the model in base64.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncGenerator, Sequence
from struct import pack
from typing import Any
from zlib import crc32

import pytest
from answers import Answers
from servers import JSON, Reply

from routelock import Agent, Retry, RunConfig, Runner, RunResult, function_tool
from routelock.errors import IncompleteResponse, ServerFailed
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import close_litellm

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only, pytest.mark.usefixtures("answers_of_respx")]

CLAUDE = "bedrock/invoke/anthropic.claude-3-haiku-20240307-v1:0"
LLAMA = "bedrock/invoke/meta.llama3-8b-instruct-v1:0"
NOVA = "bedrock/invoke/us.amazon.nova-micro-v1:0"
TITAN = "bedrock/amazon.titan-text-lite-v1"
MISTRAL = "bedrock/invoke/mistral.mistral-7b-instruct-v0:2"
IMPORTED = "bedrock/openai/arn:aws:bedrock:us-east-1:123456789012:imported-model/abc"

METRICS = {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 5, "outputTokenCount": 7}}
HEAD = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude"}
DONE = {"type": "message_stop", **METRICS}
COUNTED = {"input_tokens": 5, "output_tokens": 1}
ONCE = RunConfig(retry=Retry(attempts=1))


@pytest.fixture(autouse=True)
async def closing() -> AsyncGenerator[None]:
    yield
    await close_litellm()


@function_tool
def tick(note: str) -> str:
    """Tick."""
    return note


def claude(*blocks: tuple[dict[str, Any], Sequence[dict[str, Any]]], stop: str) -> list[dict[str, Any]]:
    """Return the events of a reply, given its blocks and the deltas of each."""
    said: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**HEAD, "content": [], "usage": COUNTED}}
    ]
    for index, (block, deltas) in enumerate(blocks):
        said.append({"type": "content_block_start", "index": index, "content_block": block})
        said += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        said.append({"type": "content_block_stop", "index": index})
    ended = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 7}}
    return [*said, ended, DONE]


def text(*parts: str) -> tuple[dict[str, Any], Sequence[dict[str, Any]]]:
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": part} for part in parts]


def call(*parts: str) -> tuple[dict[str, Any], Sequence[dict[str, Any]]]:
    block: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "tick", "input": {}}
    return block, [{"type": "input_json_delta", "partial_json": part} for part in parts]


def header(name: str, value: str) -> bytes:
    return bytes([len(name)]) + name.encode() + b"\x07" + pack(">H", len(value)) + value.encode()


def frame(event: dict[str, Any]) -> bytes:
    packed = b64encode(json.dumps(event).encode()).decode()
    body = json.dumps({"bytes": packed, "p": "abcd"}, separators=(",", ":")).encode()
    headers = header(":event-type", "chunk") + header(":message-type", "event")
    sizes = pack(">II", 16 + len(headers) + len(body), len(headers))
    said = sizes + pack(">I", crc32(sizes)) + headers + body
    return said + pack(">I", crc32(said))


def streamed(*events: dict[str, Any], piece: int = 50) -> Reply:
    """A stream whose bytes arrive in small pieces."""
    said = b"".join(map(frame, events))
    pieces = [said[start : start + piece] for start in range(0, len(said), piece)]
    return Reply(pieces, content_type="application/vnd.amazon.eventstream")


async def answer(model: str, server: Answers) -> RunResult[Any]:
    agent = Agent("a", model=LiteLLM(model, api_base=server.url), tools=[tick])
    async with Runner.run_streamed(agent, "Hi", run_config=ONCE) as events:
        async for _ in events:
            pass
    return events.result


REPLIES = {
    CLAUDE: claude(text("Hel", "lo"), stop="end_turn"),
    LLAMA: [
        {"generation": "Hel", "prompt_token_count": 5, "stop_reason": None},
        {"generation": "lo", "prompt_token_count": None, "stop_reason": "stop", **METRICS},
    ],
    MISTRAL: [
        {"outputs": [{"text": "Hel", "stop_reason": None}]},
        {"outputs": [{"text": "lo", "stop_reason": "stop"}], **METRICS},
    ],
    TITAN: [
        {"outputText": "Hel", "index": 0, "completionReason": None},
        {"outputText": "lo", "index": 0, "completionReason": "FINISH", **METRICS},
    ],
    NOVA: [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"delta": {"text": "Hello"}, "contentBlockIndex": 0}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"messageStop": {"stopReason": "end_turn"}},
        {"metadata": {"usage": {"inputTokens": 5, "outputTokens": 7}, "metrics": {}}, **METRICS},
    ],
}


@pytest.mark.parametrize("model", REPLIES)
async def test_streamed_text_is_the_answer(model: str) -> None:
    with Answers(streamed(*REPLIES[model])) as server:
        result = await answer(model, server)
    assert result.final_output == "Hello"


@pytest.mark.parametrize("model", REPLIES)
async def test_a_stream_without_its_end_is_half_an_answer(model: str) -> None:
    begun = next(place for place, event in enumerate(REPLIES[model]) if "Hel" in str(event))
    with (
        Answers(streamed(*REPLIES[model][: begun + 1])) as server,
        pytest.raises(IncompleteResponse, match="was cut off"),
    ):
        await answer(model, server)


async def test_error_inside_a_stream() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with (
        Answers(streamed(*REPLIES[CLAUDE][:3], error)) as server,
        pytest.raises(ServerFailed, match="Overloaded"),
    ):
        await answer(CLAUDE, server)


@pytest.mark.parametrize("piece", [1, 7, 100_000])
async def test_a_call_is_carried_out_however_its_bytes_are_cut(piece: int) -> None:
    asked = streamed(*claude(call('{"note"', ': "x"}'), stop="tool_use"), piece=piece)
    with Answers(asked, streamed(*REPLIES[CLAUDE])) as server:
        result = await answer(CLAUDE, server)
    assert [item.message.get("content") for item in result.items if item.message["role"] == "tool"] == ["x"]
    assert result.final_output == "Hello"


@pytest.mark.parametrize(("model", "counted"), [(CLAUDE, True), (NOVA, True), (LLAMA, False)])
async def test_tokens_that_litellm_guesses_are_marked_as_estimated(model: str, counted: bool) -> None:
    with Answers(streamed(*REPLIES[model])) as server:
        usage = (await answer(model, server)).usage
    assert usage.estimated is not counted
    assert ((usage.input_tokens, usage.output_tokens) == (5, 7)) is counted


async def test_an_imported_model_is_asked_for_a_whole_reply() -> None:
    """litellm reads its stream as one without a word in it."""
    said = {"role": "assistant", "content": "Hello"}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    choice = {"index": 0, "message": said, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    reply = Reply([json.dumps({**body, "choices": [choice], "usage": usage}).encode()], content_type=JSON)
    with Answers(reply) as server:
        result = await answer(IMPORTED, server)
        assert server.requests[0].path.endswith("/invoke")
    assert result.final_output == "Hello"
