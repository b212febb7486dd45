"""Replies through litellm are the same whole and streamed."""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from answers import Answers, AnyServer
from servers import HELLO, HELLO_STREAM, SSE, USAGE, Reply, Server, chunk, event, said, streamed

from routelock import Agent, RunConfig, Runner, tool
from routelock.errors import IncompleteResponse, ProviderError, ServerFailed, UnreadableResponse
from routelock.handlers.events import MessageDone, ReasoningDelta, TextDelta
from routelock.handlers.port import Request
from routelock.handlers.retry import Retry
from routelock.history.messages import Message
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import close_litellm

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only, pytest.mark.usefixtures("answers_of_respx")]

BOTH = pytest.mark.parametrize("watched", [False, True], ids=["whole", "streamed"])
ONCE = RunConfig(retry=Retry(attempts=1))
CALL = {"id": "call_1", "type": "function", "function": {"name": "tick", "arguments": '{"done": true}'}}
DETAILS = [{"type": "reasoning.encrypted", "data": "ENC", "id": "rs_1", "format": "google-gemini-v1"}]


@pytest.fixture(autouse=True)
async def closing() -> AsyncGenerator[None]:
    yield
    await close_litellm()


def made(model: str, server: AnyServer) -> LiteLLM:
    return LiteLLM(model, api_base=server.url, api_key="test-not-a-key")


async def done_by(handler: LiteLLM, *, watched: bool) -> tuple[MessageDone, str, str]:
    """Return the reply, and the text and the reasoning that were shown before it."""
    request = Request(messages=[{"role": "user", "content": "Hi"}], stream=watched)
    async with aclosing(handler.stream(request)) as events:
        *shown, last = [each async for each in events]
    assert isinstance(last, MessageDone)
    text = "".join(each.text for each in shown if isinstance(each, TextDelta))
    return last, text, "".join(each.text for each in shown if isinstance(each, ReasoningDelta))


def told(message: dict[str, Any], finish: str, *, watched: bool) -> Reply:
    """A reply with this message, streamed or whole."""
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


@pytest.mark.parametrize("ending", ["end", "cut"])
async def test_an_argument_called_done_does_not_end_a_stream(ending: Any) -> None:
    """Gemini sends arguments as an object; another call may follow."""
    ticked: list[bool] = []

    @tool
    def tick(done: bool) -> str:
        """Tick it off."""
        ticked.append(done)
        return "ok"

    call = gemini({"functionCall": {"name": "tick", "args": {"done": True, "finishReason": "STOP"}}})
    with Answers(Reply((call,), content_type=SSE, ending=ending)) as server:
        agent = Agent("a", model=made(GEMINI, server), tools=[tick])
        with pytest.raises(IncompleteResponse):
            await Runner.run_streamed(agent, "Tick both off", run_config=ONCE).drain()
    assert ticked == []


@pytest.mark.parametrize(
    ("model", "pieces"),
    [
        (GEMINI, (gemini({"text": "Send 100 "}), gemini({"text": "to Ann."}, finishReason="STOP")[:-8])),
        (CLAUDE, claude(STOP[:-8])),
    ],
    ids=["gemini", "claude"],
)
async def test_half_an_event_does_not_end_a_stream(model: str, pieces: tuple[bytes, ...]) -> None:
    with Answers(Reply(pieces, content_type=SSE)) as server:
        with pytest.raises(IncompleteResponse):
            await done_by(made(model, server), watched=True)


EXTRA = {"reasoning_details": DETAILS, "refusal": "I cannot.", "extra_content": {"google": {"a": 1}}}


@BOTH
@pytest.mark.parametrize(
    "model",
    ["openai/gpt-4o", "openrouter/a/b", "deepseek/deepseek-chat", "hosted_vllm/a", "xai/grok-4", "azure/m"],
)
async def test_unknown_fields_of_a_message_are_sent_back(model: str, watched: bool) -> None:
    reply = told({"content": None, **EXTRA, "tool_calls": [CALL]}, "tool_calls", watched=watched)
    with Answers(reply, told({"content": "ok"}, "stop", watched=watched)) as server:

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
    with Answers(reply, told({"content": "ok"}, "stop", watched=watched)) as server:
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
    with Answers(said({"content": text}, finish="length", created=1, usage=USAGE), stream) as server:
        handler = made(model, server)
        whole, _, _ = await done_by(handler, watched=False)
        watched, shown, reasoning = await done_by(handler, watched=True)
    assert whole.message == watched.message
    assert (shown, reasoning) == (rest, thought)
    kept = watched.message
    assert (kept.get("reasoning_content") or kept.get("reasoning") or "") == thought


async def test_address_does_not_decide_whether_a_call_streams() -> None:
    """The path holds "stream", and the answer an error inside a success."""
    with Answers(said({"content": "Hello"}, created=1, usage=USAGE)) as server:
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
    with Answers(reply) as server:
        done, _, _ = await done_by(made(model, server), watched=True)
    assert done.message.get("content") == "Hello"


@pytest.mark.parametrize("model", ["openai/gpt-4o", "mistral/mistral-small-latest"])
async def test_events_may_have_no_space_after_their_name(model: str) -> None:
    pieces = (chunk({"role": "assistant", "content": "Hello"}, created=1), chunk({}, finish="stop"))
    reply = streamed(
        *(piece.replace(b"data: ", b"data:") for piece in pieces), b"data:[DONE]\n\n", done=False
    )
    with Answers(reply) as server:
        done, _, _ = await done_by(made(model, server), watched=True)
    assert done.message.get("content") == "Hello"


@pytest.mark.parametrize("model", ["openai/gpt-4o", "mistral/mistral-small-latest", "openrouter/a/b"])
@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply((b'{\n  "id": "r1",\n  "choices": []\n}',)), UnreadableResponse),
        (streamed(event({"detail": "x"})), IncompleteResponse),
        (streamed(event({"detail": "x"}), done=False), IncompleteResponse),
        (streamed(event({"text": "busy", "error_code": 50001})), ServerFailed),
        (streamed(chunk({"role": "assistant"}, created=1)), IncompleteResponse),
    ],
    ids=["no stream", "something else", "without an end", "FastChat's error", "a role"],
)
async def test_stream_without_a_reply_is_an_error(
    model: str, reply: Reply, error: type[ProviderError]
) -> None:
    with Answers(reply) as server:
        with pytest.raises(error):
            await done_by(made(model, server), watched=True)


MODELS = pytest.mark.parametrize(
    "model", ["openai/gpt-4o", "mistral/mistral-small-latest", "deepseek/m", "azure/m"]
)
BILL = event({"id": "r1", "object": "chat.completion.chunk", "choices": [], "usage": USAGE})
HEL, LO = chunk({"role": "assistant", "content": "Hel"}, created=1), chunk({"content": "lo"}, created=1)
STOPS = chunk({}, finish="stop", created=1)
DONE = event(b"[DONE]")
PIECES = (HEL, LO, STOPS, BILL)
LAST = chunk({"content": "lo"}, finish="stop", created=1, usage=USAGE)
FRAMES = {
    "data in several lines": (
        HEL.replace(b", ", b",\ndata: "),
        LO.replace(b", ", b",\r\ndata: "),
        STOPS,
        BILL,
        DONE,
    ),
    "one line end": (*(each[:-1] for each in (*PIECES, DONE)),),
    "no line end": (HEL, LAST[:-2]),
    "names, ids and times": (
        b"retry: 9\n\nevent: hi\n\nid: 0\n\n",
        *(b"id: 1\nevent: message\n" + each + b"\n" for each in PIECES),
        DONE,
    ),
    "comments": (*(b": alive\n\n" + each + b": alive\n\n" for each in PIECES), DONE),
    "empty events": (*(each + b"data:\n\ndata: {}\n\n" for each in PIECES), DONE),
    "more after the end": (*PIECES, DONE, LO),
}


@MODELS
@pytest.mark.parametrize("frame", FRAMES)
async def test_no_frame_of_a_stream_loses_text(model: str, frame: str) -> None:
    """litellm skips lines and an event without a line end, and takes a comment for the end."""
    with Answers(Reply(FRAMES[frame], content_type=SSE)) as server:
        done, text, _ = await done_by(made(model, server), watched=True)
    assert (done.message.get("content"), text) == ("Hello", "Hello")
    assert done.usage is not None
    assert (done.usage.input_tokens, done.usage.output_tokens, done.usage.estimated) == (5, 7, False)


@MODELS
async def test_a_server_that_does_not_stream_is_understood(model: str) -> None:
    message = {"content": "Hm", "tool_calls": [CALL, {**CALL, "id": "call_2"}]}
    with Answers(said(message, finish="tool_calls", created=1, usage=USAGE)) as server:
        whole, _, _ = await done_by(made(model, server), watched=False)
        watched, text, _ = await done_by(made(model, server), watched=True)
    assert watched.message == whole.message
    assert (watched.usage, text) == (whole.usage, "Hm")


@MODELS
@pytest.mark.parametrize("end", [event(b"[DONE]"), b"data:[DONE]", b"\n"])
async def test_a_server_that_always_streams_is_understood(model: str, end: bytes) -> None:
    calls = [
        chunk({"tool_calls": [{"index": 0, **CALL}]}, created=1),
        chunk({}, finish="tool_calls", created=1),
    ]
    with Answers(streamed(b": alive\n\n", HEL, LO, *calls, BILL, end, done=False)) as server:
        whole, _, _ = await done_by(made(model, server), watched=False)
        watched, _, _ = await done_by(made(model, server), watched=True)
    assert whole.message == watched.message
    assert whole.usage == watched.usage
    assert whole.message.get("content") == "Hello"


@MODELS
@pytest.mark.parametrize("pieces", [(HEL,), (HEL, b'data: {"id": "r1", "choi\n\n', LO, event(b"[DONE]"))])
async def test_part_of_a_stream_is_not_a_whole_reply(model: str, pieces: tuple[bytes, ...]) -> None:
    with Answers(streamed(*pieces, done=False)) as server:
        with pytest.raises(UnreadableResponse):
            await done_by(made(model, server), watched=False)


@MODELS
async def test_a_refusal_in_pieces_is_whole(model: str) -> None:
    pieces = [chunk({"refusal": each}, created=1) for each in ("I ", "can", "not.")]
    with Answers(
        streamed(chunk({"role": "assistant", "content": ""}, created=1), *pieces, STOPS, BILL)
    ) as server:
        done, _, _ = await done_by(made(model, server), watched=True)
    assert done.message.get("refusal") == "I cannot."


@BOTH
@MODELS
async def test_reasoning_tokens_are_the_vendors(model: str, watched: bool) -> None:
    thought = {"content": "Hello", "reasoning_content": "Hm, hm, hm."}
    with Answers(
        told(thought, "stop", watched=watched)
        if not watched
        else streamed(chunk({"role": "assistant", **thought}, created=1), STOPS, BILL)
    ) as server:
        done, _, _ = await done_by(made(model, server), watched=watched)
    assert done.usage is not None
    assert (done.usage.output_tokens, done.usage.reasoning_tokens) == (7, 0)


@pytest.mark.pairwise
@BOTH
@MODELS
@pytest.mark.parametrize("bill", ["x", [1], 5, {"prompt_tokens": "a"}, {"prompt_tokens": None}, {}])
async def test_unreadable_usage_keeps_the_reply(model: str, bill: Any, watched: bool) -> None:
    last = chunk({}, finish="stop", created=1, usage=bill)
    reply = streamed(HEL, LO, last) if watched else said({"content": "Hello"}, created=1, usage=bill)
    with Answers(reply) as server:
        done, _, _ = await done_by(made(model, server), watched=watched)
    assert done.message.get("content") == "Hello"
    assert done.usage is not None
    assert done.usage.estimated


@MODELS
@pytest.mark.parametrize("body", [{"choices": []}, {"choices": [], "id": "r1", "model": "m"}])
async def test_empty_whole_reply_is_an_error(model: str, body: dict[str, Any]) -> None:
    with Answers(Reply((json.dumps(body).encode(),))) as server:
        with pytest.raises(IncompleteResponse, match="no part of a reply came"):
            await done_by(made(model, server), watched=False)


@BOTH
@pytest.mark.parametrize("model", ["openai/gpt-4o", "deepseek/m"])
async def test_a_key_and_an_address_are_taken_as_people_have_them(
    model: str, watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key with the newline of its file, an address with what is asked there."""
    monkeypatch.setenv("OPENAI_API_KEY", "test-not-a-key\n")
    with Answers(HELLO_STREAM if watched else HELLO) as server:
        for address in ("", "/", "/chat/completions", "/chat/completions/"):
            await done_by(
                LiteLLM(model, api_base=server.url + address, api_key="test-not-a-key\n"), watched=watched
            )
        await done_by(LiteLLM("openai/m", api_base=server.url), watched=watched)
    assert {each.path for each in server.requests} == {"/v1/chat/completions"}
    assert {each.headers["authorization"] for each in server.requests} == {"Bearer test-not-a-key"}


def alive() -> list[int]:
    """The number of live objects of calls."""
    counts = Counter(type(each).__name__ for each in gc.get_objects())
    return [counts[name] for name in ("Exchange", "CallConnection", "ResponseFilter", "Sent")]


@BOTH
async def test_finished_call_leaves_no_objects(watched: bool) -> None:
    """litellm logs later, and keeps the context of each call until then."""
    with Server(*[HELLO_STREAM if watched else HELLO] * 10) as server:
        handler = made("openai/gpt-4o", server)

        async def ask() -> None:
            await done_by(handler, watched=watched)

        gc.collect()
        before = alive()
        gc.disable()  # nor is anything left for it
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(ask)
            after = alive()
        finally:
            gc.enable()
    assert after == before
