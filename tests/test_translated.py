"""litellm without its wrapper: the same requests, the same replies, and the wrapper wherever it has work."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import pytest
from servers import Reply, Server, event, failed, streamed
from vendor_replies import answer

from interlock.errors import IncompleteResponse, ProviderTimeout, RateLimited
from interlock.events import MessageDone, TextDelta
from interlock.messages import Message, ToolCall, calls_of, text_of
from interlock.port import Request
from interlock_providers.litellm import LiteLLM
from interlock_providers.litellm_library import close_litellm, load_litellm
from interlock_providers.translated import Translated
from interlock_providers.translation import Chunks, can_ask

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]

CLAUDE, GEMINI = "anthropic/claude-haiku-4-5", "gemini/gemini-2.5-flash"
BEDROCK, MISTRAL = "bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0", "mistral/mistral-small-latest"
VENDOR_OF = {CLAUDE: "anthropic", GEMINI: "gemini", BEDROCK: "bedrock", MISTRAL: "mistral"}
TRANSLATED = pytest.mark.parametrize("model", [CLAUDE, GEMINI, BEDROCK])

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL: ToolCall = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Rome"}'},
}
HISTORY: list[Message] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "And in Rome?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    {"role": "user", "content": [{"type": "text", "text": "Thanks"}, {"type": "text", "text": "!"}]},
]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.3, "top_p": 0.9, "max_tokens": 77, "stop": ["END"]},
    {"tool_choice": "required", "parallel_tool_calls": False},
    {"reasoning_effort": "low"},
    {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4096},
    {"seed": 7, "user": "u1", "extra_headers": {"x-team": "desk"}},
]


@pytest.fixture(autouse=True)
async def aws(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[None]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION_NAME", "us-east-1")
    yield
    await close_litellm()


def made(handler: type[LiteLLM], model: str, server: Server, **more: Any) -> LiteLLM:
    key = None if model == BEDROCK else "test-not-a-key"
    return handler(model, api_base=server.url, api_key=key, **more)


async def done_by(handler: LiteLLM, request: Request) -> MessageDone:
    async with aclosing(handler.stream(request)) as events:
        *_, last = [event async for event in events]
    assert isinstance(last, MessageDone)
    return last


def facts(done: MessageDone) -> tuple[object, ...]:
    return done.message, done.finish_reason, done.usage


def hello(*, stream: bool = False, **settings: Any) -> Request:
    return Request(messages=[{"role": "user", "content": "Hi"}], stream=stream, settings=settings)


def claude_stream(*texts: str, end: bool = True) -> list[bytes]:
    start: dict[str, Any] = {"usage": {"input_tokens": 5, "output_tokens": 1}}
    message = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": []}
    said: list[dict[str, Any]] = [
        {"type": "message_start", "message": message | start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
            for text in texts
        ),
    ]
    if end:
        said += [
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}},
            {"type": "message_stop"},
        ]
    return [f"event: {one['type']}\n".encode() + event(one) for one in said]


@TRANSLATED
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "+".join(settings) or "none")
async def test_the_bytes_that_are_sent_are_those_of_acompletion(model: str, settings: dict[str, Any]) -> None:
    choice = settings.get("tool_choice")
    rest = {key: value for key, value in settings.items() if key != "tool_choice"}
    request = Request(messages=HISTORY, tools=[WEATHER], tool_choice=choice, settings=rest)
    with Server(answer(VENDOR_OF[model], "hm", "Hello", [])) as server:
        for handler in (LiteLLM, Translated):
            await done_by(made(handler, model, server), request)
    wrapped, bare = server.requests
    apart = {"authorization", "x-amz-date"}  # signed with the time
    assert bare.path == wrapped.path
    assert json.dumps(bare.body) == json.dumps(wrapped.body)
    assert {name: value for name, value in bare.headers.items() if name not in apart} == {
        name: value for name, value in wrapped.headers.items() if name not in apart
    }


@TRANSLATED
async def test_a_whole_reply_is_read_as_acompletion_reads_it(model: str) -> None:
    reply = answer(VENDOR_OF[model], "hm", "Hello", [("call_1", "weather", {"city": "Rome"})])
    with Server(reply) as server:
        wrapped = await done_by(made(LiteLLM, model, server), hello())
        bare = await done_by(made(Translated, model, server), hello())
    calls = [call for done in (wrapped, bare) for call in calls_of(done.message)]
    for call in calls:
        call["id"] = "made up, where the vendor gives none"
    assert facts(bare) == facts(wrapped)


async def test_a_stream_is_read_as_acompletion_reads_it() -> None:
    with Server(streamed(*claude_stream("Hel", "lo"), done=False)) as server:
        wrapped = await done_by(made(LiteLLM, CLAUDE, server), hello(stream=True))
        bare = await done_by(made(Translated, CLAUDE, server), hello(stream=True))
    assert facts(bare) == facts(wrapped)
    assert text_of(bare.message) == "Hello"
    assert bare.usage is not None
    assert bare.usage.output_tokens == 7


async def test_a_model_may_repeat_itself() -> None:
    """At the hundredth same piece litellm's wrapper gives up; a table's line of dashes has more."""
    with Server(streamed(*claude_stream(*["----"] * 300), done=False)) as server:
        done = await done_by(made(Translated, CLAUDE, server), hello(stream=True))
    assert text_of(done.message) == "-" * 1200


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", [CLAUDE, GEMINI])
async def test_a_refusal_is_the_vendors(model: str, stream: bool) -> None:
    with Server(failed(429, "slow down", **{"retry-after": "7"})) as server:
        with pytest.raises(RateLimited, match="slow down") as caught:
            await done_by(made(Translated, model, server), hello(stream=stream))
    assert len(server.requests) == 1
    assert caught.value.retry_after == 7


async def test_a_stream_that_is_cut_is_not_a_short_answer() -> None:
    with Server(streamed(*claude_stream("Hel", end=False), done=False)) as server:
        with pytest.raises(IncompleteResponse):
            await done_by(made(Translated, CLAUDE, server), hello(stream=True))


async def test_a_stream_that_stalls_ends_at_the_deadline() -> None:
    stalled = Reply(claude_stream("Hel", end=False), content_type="text/event-stream", ending="stall")
    with Server(stalled) as server:
        with pytest.raises(ProviderTimeout):
            await done_by(made(Translated, CLAUDE, server, chunk_timeout=0.2), hello(stream=True))
        assert await server.client_hung_up()


async def test_a_stream_that_nobody_reads_any_more_is_hung_up() -> None:
    stalled = Reply(claude_stream("Hel", end=False), content_type="text/event-stream", ending="stall")
    with Server(stalled) as server:
        async with aclosing(made(Translated, CLAUDE, server).stream(hello(stream=True))) as events:
            assert isinstance(await anext(events), TextDelta)
        assert await server.client_hung_up()


async def test_other_vendors_are_asked_through_acompletion() -> None:
    assert not can_ask(load_litellm(), "mistral", "mistral-small-latest")
    with Server(answer("mistral", "hm", "Hello", [])) as server:
        done = await done_by(made(Translated, MISTRAL, server), hello())
    assert text_of(done.message) == "Hello"


def switched(name: str, value: object) -> Callable[[Any], Any]:
    class Switched:
        """litellm with one thing set."""

        def __init__(self, litellm: Any) -> None:
            self._litellm = litellm

        def __getattr__(self, wanted: str) -> Any:
            return value if wanted == name else getattr(self._litellm, wanted)

    return Switched


@pytest.mark.parametrize(
    ("provider", "name", "tried"),
    [
        ("bedrock", "us.amazon.nova-lite-v1:0", True),
        ("bedrock", "converse/us.amazon.nova-2-lite-v1:0", True),
        ("bedrock", "invoke/anthropic.claude-v2", False),
        ("bedrock", "meta.llama3-70b-instruct-v1:0", False),
        ("vertex_ai", "gemini-2.5-pro", True),
        ("vertex_ai", "meta/llama-4-scout", False),
        ("openai", "gpt-4o", False),
    ],
)
async def test_only_what_was_tried_leaves_out_the_wrapper(provider: str, name: str, tried: bool) -> None:
    assert can_ask(load_litellm(), provider, name) is tried


@pytest.mark.parametrize(
    ("name", "value"),
    [("success_callback", ["langfuse"]), ("callbacks", [print]), ("cache", object()), ("max_budget", 1.5)],
)
async def test_what_an_app_has_set_in_litellm_is_not_left_out(name: str, value: object) -> None:
    litellm = load_litellm()
    assert can_ask(litellm, "anthropic", "claude-haiku-4-5")
    assert not can_ask(switched(name, value)(litellm), "anthropic", "claude-haiku-4-5")


async def test_what_litellm_sets_by_itself_is_not_the_apps() -> None:
    assert can_ask(switched("success_callback", ["cache"])(load_litellm()), "gemini", "gemini-2.5-flash")


async def test_chunks_of_litellms_older_kind_are_read_as_well() -> None:
    tool = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}, "index": 0}
    plain = {"is_finished": False, "finish_reason": "", "usage": None, "index": 0, "tool_use": None}

    async def said() -> AsyncGenerator[dict[str, Any] | None]:
        yield {**plain, "text": ""}  # the line that only names an event
        yield None
        yield {**plain, "text": "Hi"}
        yield {**plain, "text": "", "tool_use": tool}
        yield {**plain, "text": "", "finish_reason": "stop", "usage": {"prompt_tokens": 1}}

    class Wrapper:
        completion_stream = said()

    chunks = [chunk async for chunk in Chunks(Wrapper())]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas == [{"content": "Hi"}, {"tool_calls": [tool]}, {}]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"] == {"prompt_tokens": 1}
