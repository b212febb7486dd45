"""What comes of a reply between litellm and the run, on a true socket: whole or streamed, it is the same."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from servers import SSE, USAGE, Reply, Server, chunk, event, said, streamed

from interlock import Agent, RunConfig, Runner, tool
from interlock.attempts import Retry
from interlock.errors import IncompleteResponse, ProviderError, UnreadableResponse
from interlock.events import MessageDone, ReasoningDelta, TextDelta
from interlock.messages import Message
from interlock.port import Request
from interlock_providers.litellm import LiteLLM
from interlock_providers.litellm_library import close_litellm
from interlock_providers.translated import Translated

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]

BOTH = pytest.mark.parametrize("watched", [False, True], ids=["whole", "streamed"])
ONCE = RunConfig(retry=Retry(attempts=1))
CALL = {"id": "call_1", "type": "function", "function": {"name": "tick", "arguments": '{"done": true}'}}
DETAILS = [{"type": "reasoning.encrypted", "data": "ENC", "id": "rs_1", "format": "google-gemini-v1"}]


@pytest.fixture(autouse=True)
async def closing() -> AsyncGenerator[None]:
    yield
    await close_litellm()


def made(model: str, server: Server, kind: type[LiteLLM] = LiteLLM) -> LiteLLM:
    return kind(model, api_base=server.url, api_key="test-not-a-key")


async def done_by(handler: LiteLLM, *, watched: bool) -> tuple[MessageDone, str, str]:
    """Return the reply, and the text and the reasoning that were shown before it."""
    request = Request(messages=[{"role": "user", "content": "Hi"}], stream=watched)
    async with aclosing(handler.stream(request)) as events:
        *shown, last = [each async for each in events]
    assert isinstance(last, MessageDone)
    text = "".join(each.text for each in shown if isinstance(each, TextDelta))
    return last, text, "".join(each.text for each in shown if isinstance(each, ReasoningDelta))


def told(message: dict[str, Any], finish: str, *, watched: bool) -> Reply:
    """A reply whose message is this one, as it is asked for."""
    if not watched:
        return said(message, finish=finish, created=1, usage=USAGE)
    calls = [{"index": place, **call} for place, call in enumerate(message.get("tool_calls") or ())]
    delta = {"role": "assistant", **message, **({"tool_calls": calls} if calls else {})}
    return streamed(chunk(delta, created=1), chunk({}, finish=finish, created=1))


def gemini(*parts: dict[str, Any], **more: Any) -> bytes:
    return event({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0, **more}]})


def claude(*last: bytes) -> tuple[bytes, ...]:
    message = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": []}
    told: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "usage": {"input_tokens": 5, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
        {"type": "content_block_stop", "index": 0},
    ]
    return (*(f"event: {each['type']}\n".encode() + event(each) for each in told), *last)


GEMINI, CLAUDE = "gemini/gemini-2.5-flash", "anthropic/claude-haiku-4-5"
STOP = event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 900}})
KINDS = pytest.mark.parametrize("kind", [LiteLLM, Translated])


@KINDS
@pytest.mark.parametrize("ending", ["end", "cut"])
async def test_an_argument_called_done_does_not_end_a_stream(kind: type[LiteLLM], ending: Any) -> None:
    """Gemini's arguments are an object on the wire; another call may have been to come."""
    ticked: list[bool] = []

    @tool
    def tick(done: bool) -> str:
        """Tick it off."""
        ticked.append(done)
        return "ok"

    call = gemini({"functionCall": {"name": "tick", "args": {"done": True, "finishReason": "STOP"}}})
    with Server(Reply((call,), content_type=SSE, ending=ending)) as server:
        agent = Agent("a", model=made(GEMINI, server, kind), tools=[tick])
        with pytest.raises(IncompleteResponse):
            await Runner.run_streamed(agent, "Tick both off", run_config=ONCE).drain()
    assert ticked == []


@KINDS
@pytest.mark.parametrize(
    ("model", "pieces"),
    [
        (GEMINI, (gemini({"text": "Send 100 "}), gemini({"text": "to Ann."}, finishReason="STOP")[:-8])),
        (CLAUDE, claude(STOP[:-8])),
    ],
    ids=["gemini", "claude"],
)
async def test_half_an_event_does_not_end_a_stream(
    kind: type[LiteLLM], model: str, pieces: tuple[bytes, ...]
) -> None:
    with Server(Reply(pieces, content_type=SSE)) as server:
        with pytest.raises(IncompleteResponse):
            await done_by(made(model, server, kind), watched=True)


EXTRA = {"reasoning_details": DETAILS, "refusal": "I cannot.", "extra_content": {"google": {"a": 1}}}


@BOTH
@pytest.mark.parametrize(
    "model", ["openai/gpt-4o", "openrouter/a/b", "deepseek/deepseek-chat", "hosted_vllm/a", "xai/grok-4"]
)
async def test_what_litellm_does_not_know_of_a_message_is_kept_and_goes_back(
    model: str, watched: bool
) -> None:
    reply = told({"content": None, **EXTRA, "tool_calls": [CALL]}, "tool_calls", watched=watched)
    with Server(reply, told({"content": "ok"}, "stop", watched=watched)) as server:

        @tool
        def tick(done: bool) -> str:
            """Tick it off."""
            return "ok"

        agent = Agent("a", model=made(model, server), tools=[tick])
        stream = Runner.run_streamed(agent, "Hi") if watched else None
        await (stream.drain() if stream else Runner.run(agent, "Hi"))
        sent = next(each for each in server.requests[1].body["messages"] if each["role"] == "assistant")
    assert {key: sent.get(key) for key in EXTRA} == EXTRA
    assert "provider_specific_fields" not in sent


@BOTH
async def test_groqs_reasoning_goes_back_under_its_own_name(watched: bool) -> None:
    model = "groq/openai/gpt-oss-20b"
    reply = told({"content": None, "reasoning": "Hm", "tool_calls": [CALL]}, "tool_calls", watched=watched)
    with Server(reply, told({"content": "ok"}, "stop", watched=watched)) as server:
        handler = made(model, server)
        done, _, shown = await done_by(handler, watched=watched)
        assert shown == ("Hm" if watched else "")
        answer: Message = {"role": "tool", "tool_call_id": "call_1", "content": "ok"}
        history: list[Message] = [{"role": "user", "content": "Hi"}, done.message, answer]
        async with aclosing(handler.stream(Request(messages=history, stream=watched))) as events:
            assert [each async for each in events]
        sent = server.requests[1].body["messages"][1]
    assert sent["reasoning"] == "Hm"
    assert "reasoning_content" not in sent


@pytest.mark.parametrize(
    ("text", "thought", "rest"),
    [
        ("<think>I reckon a <", "I reckon a <", ""),
        ("<think>Hm</think>Yes", "Hm", "Yes"),
        ("<thin", "", "<thin"),
    ],
)
@pytest.mark.parametrize("model", ["openai/gpt-4o", "hosted_vllm/a", "groq/qwen-3"])
async def test_a_thought_in_the_text_is_the_same_either_way(
    model: str, text: str, thought: str, rest: str
) -> None:
    pieces = [chunk({"role": "assistant", "content": each}, created=1) for each in text]
    stream = streamed(*pieces, chunk({}, finish="length", created=1))
    with Server(said({"content": text}, finish="length", created=1, usage=USAGE), stream) as server:
        handler = made(model, server)
        whole, _, _ = await done_by(handler, watched=False)
        watched, shown, reasoning = await done_by(handler, watched=True)
    assert whole.message == watched.message
    assert (shown, reasoning) == (rest, thought)
    kept = watched.message
    assert (kept.get("reasoning_content") or kept.get("reasoning") or "") == thought


async def test_a_plain_call_is_one_whatever_the_address_is_called() -> None:
    """The path has "stream" in it, and the answer an error inside a success."""
    with Server(said({"content": "Hello"}, created=1, usage=USAGE)) as server:
        url = server.url.replace("/v1", "/upstream/v1")
        handler = LiteLLM("openai/gpt-4o", api_base=url, api_key="test-not-a-key")
        done, _, _ = await done_by(handler, watched=False)
    assert done.message.get("content") == "Hello"
    assert done.usage is not None
    assert not done.usage.estimated


@pytest.mark.parametrize("model", ["openai/gpt-4o", "mistral/mistral-small-latest"])
async def test_a_byte_order_mark_swallows_nothing(model: str) -> None:
    first = chunk({"role": "assistant", "content": "Hel"}, created=1)
    reply = streamed(b"\xef\xbb\xbf" + first, chunk({"content": "lo"}, created=1), chunk({}, finish="stop"))
    with Server(reply) as server:
        done, _, _ = await done_by(made(model, server), watched=True)
    assert done.message.get("content") == "Hello"


@pytest.mark.parametrize("model", ["openai/gpt-4o", "mistral/mistral-small-latest"])
async def test_events_may_have_no_space_after_their_name(model: str) -> None:
    pieces = (chunk({"role": "assistant", "content": "Hello"}, created=1), chunk({}, finish="stop"))
    reply = streamed(
        *(piece.replace(b"data: ", b"data:") for piece in pieces), b"data:[DONE]\n\n", done=False
    )
    with Server(reply) as server:
        done, _, _ = await done_by(made(model, server), watched=True)
    assert done.message.get("content") == "Hello"


@pytest.mark.parametrize("model", ["openai/gpt-4o", "mistral/mistral-small-latest", "openrouter/a/b"])
@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (said({"content": "Hello"}, created=1, usage=USAGE), UnreadableResponse),
        (streamed(event({"detail": "x"})), IncompleteResponse),
        (streamed(event({"detail": "x"}), done=False), IncompleteResponse),
        (streamed(event({"text": "busy", "error_code": 50001})), IncompleteResponse),
        (streamed(chunk({"role": "assistant"}, created=1)), IncompleteResponse),
    ],
    ids=["a whole reply", "something else", "without an end", "FastChat's error", "a role"],
)
async def test_a_stream_without_a_reply_in_it_is_no_empty_success(
    model: str, reply: Reply, error: type[ProviderError]
) -> None:
    with Server(reply) as server:
        with pytest.raises(error):
            await done_by(made(model, server), watched=True)
