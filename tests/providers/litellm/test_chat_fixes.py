"""Forms of a chat completion that litellm misreads give the same reply as with any other handler."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from answers import Answers
from servers import USAGE, Reply, event, streamed

from routelock.handlers.events import MessageDone, TextDelta
from routelock.handlers.port import Request
from routelock_providers.litellm.fixes import as_chunk, fix_chunk, fix_completion
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import close_litellm

pytestmark = pytest.mark.usefixtures("answers_of_respx")


@pytest.fixture
async def closing() -> AsyncGenerator[None]:
    yield
    await close_litellm()


def chunk(choice: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    choices = [] if choice is None else [{"index": 0, **choice}]
    return {
        "id": "r1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": choices,
        **more,
    }


def without(key: str, value: dict[str, Any]) -> dict[str, Any]:
    return {each: inner for each, inner in value.items() if each != key}


SAID = chunk({"delta": {"role": "assistant", "content": "Hello"}})
END = chunk({"delta": {}, "finish_reason": "stop"}, usage=USAGE)
STREAMS = {
    "no delta": (SAID, chunk({"delta": None}), END),
    "no delta at the end": (SAID, {**END, "choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]}),
    "no choices": (SAID, without("choices", chunk(None)), END),
    "null for choices": (SAID, {**SAID, "choices": None}, END),
    "time in pieces of a second": ({**SAID, "created": 1.5}, END),
    "text in parts": (
        chunk({"delta": {"role": "assistant", "content": [{"type": "text", "text": "Hel"}]}}),
        chunk({"delta": {"content": [{"type": "text", "text": "lo"}]}}),
        END,
    ),
    "total of another kind": (SAID, {**END, "usage": {**USAGE, "total_tokens": "a"}}),
}
WHOLE = {"role": "assistant", "content": "Hello"}
REPLIES = {
    "no role": without("role", WHOLE),
    "text in parts": {**WHOLE, "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]},
}
MODELS = pytest.mark.parametrize(
    "model", ["openai/m", "deepseek/m", "groq/m", "openrouter/a/b", "hosted_vllm/m", "azure/m"]
)


async def done_by(model: str, reply: Reply, *, watched: bool) -> tuple[MessageDone, str]:
    with Answers(reply) as server:
        handler = LiteLLM(model, api_base=server.url, api_key="test-not-a-key")
        request = Request(messages=[{"role": "user", "content": "Hi"}], stream=watched)
        async with aclosing(handler.stream(request)) as events:
            *shown, last = [each async for each in events]
    assert isinstance(last, MessageDone)
    return last, "".join(each.text for each in shown if isinstance(each, TextDelta))


@pytest.mark.anyio
@pytest.mark.asyncio_only
@pytest.mark.usefixtures("closing")
@MODELS
@pytest.mark.parametrize("stream", STREAMS)
async def test_a_stream_of_this_kind_is_read(model: str, stream: str) -> None:
    done, text = await done_by(model, streamed(*map(event, STREAMS[stream])), watched=True)
    assert (done.message, text) == (WHOLE, "Hello")
    assert done.usage is not None
    assert (done.usage.input_tokens, done.usage.estimated) == (5, False)


@pytest.mark.anyio
@pytest.mark.asyncio_only
@pytest.mark.usefixtures("closing")
@MODELS
@pytest.mark.parametrize("reply", REPLIES)
async def test_a_whole_reply_of_this_kind_is_read(model: str, reply: str) -> None:
    choice = {"index": 0, "message": REPLIES[reply], "finish_reason": "stop"}
    body = {"id": "r1", "object": "chat.completion", "created": 1.5, "model": "m", "choices": [choice]}
    done, _ = await done_by(model, Reply((json.dumps({**body, "usage": USAGE}).encode(),)), watched=False)
    assert done.message == WHOLE


@pytest.mark.parametrize(
    "value",
    [
        SAID,
        {"type": "message_delta", "usage": {"output_tokens": 3}, "delta": None},
        {"candidates": [{"content": {"parts": [{"text": "a"}]}}], "usageMetadata": {}},
        {"choices": [{"index": 0, "delta": {"content": [{"type": "thinking", "thinking": []}]}}]},
        {"choices": "x"},
        {"choices": [None, 5]},
    ],
)
def test_other_values_stay_unchanged(value: dict[str, Any]) -> None:
    before = copy.deepcopy(value)
    assert not fix_chunk("openai", value)
    assert not fix_completion("openai", value)
    assert value == before


def test_parts_of_mistral_stay_unchanged() -> None:
    assert not fix_chunk("mistral", chunk({"delta": {"content": [{"type": "text", "text": "a"}]}}))


def test_the_calls_of_a_whole_reply_are_numbered_in_a_stream() -> None:
    made = as_chunk(
        {"choices": [{"index": 0, "message": {"tool_calls": [{"id": "a"}, {"id": "b"}]}}], "id": "r1"}
    )
    assert made == {
        "id": "r1",
        "object": "chat.completion.chunk",
        "choices": [
            {
                "index": 0,
                "delta": {"tool_calls": [{"id": "a", "index": 0}, {"id": "b", "index": 1}]},
                "finish_reason": "stop",
            }
        ],
    }
