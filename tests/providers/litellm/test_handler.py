"""The LiteLLM handler: every wire format, well-behaved and not, as answers of respx and on real sockets."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

import anyio
import pytest
from answers import Answers
from litellm_answers import served
from scripted_agents import look_up
from servers import (
    HELLO,
    JSON,
    SSE,
    USAGE,
    Reply,
    Server,
    event,
    failed,
    refused_url,
    said,
    streamed,
)
from servers import chunk as undated_chunk
from waiting import PATIENCE

from routelock import Agent, RunConfig, Runner
from routelock.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    ContextTooLong,
    IncompleteResponse,
    InvalidRequest,
    ModelBehaviorError,
    ModelNotFound,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    ServerFailed,
    UnreadableResponse,
)
from routelock.handlers.events import HandlerEvent, MessageDone, ReasoningDelta, TextDelta, ToolCallDelta
from routelock.handlers.port import Handler, OutputSchema, Request, family_of
from routelock.handlers.retry import Retry
from routelock.history.messages import calls_of
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import close_litellm

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only, pytest.mark.usefixtures("answers_of_respx")]

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
BOTH = pytest.mark.parametrize("watched", [False, True], ids=["whole", "streamed"])

CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
"""What a model says when it wants the weather."""

ANTHROPIC = "anthropic/claude-haiku-4-5"
OPENAI = "openai/gpt-4o-mini"
AZURE = "azure/gpt-4o"
MISTRAL = "mistral/mistral-small-latest"
GEMINI = "gemini/gemini-2.5-flash"
RESPONSES = "openai/responses/gpt-4o"
CHAT = [
    OPENAI,
    MISTRAL,
    "groq/llama-3.3-70b",
    "deepseek/deepseek-chat",
    "openrouter/a/b",
    "zai/glm-4.7",
    AZURE,
]


def chunk(delta: Mapping[str, Any], **more: Any) -> bytes:
    """One streamed chunk with a date, without which litellm cannot read OpenRouter's."""
    return undated_chunk(delta, created=1, **more)


HELLO_STREAM = streamed(
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo"}),
    chunk({}, finish="stop"),
    event({"id": "r1", "model": "m-1", "created": 1, "choices": [], "usage": USAGE}),
)


def request(*, stream: bool = False, **more: Any) -> Request:
    return Request(messages=[{"role": "user", "content": "Hi"}], stream=stream, **more)


@asynccontextmanager
async def served_over_sockets(*replies: Reply) -> AsyncGenerator[Server]:
    """Serve replies, and let no connection outlive the test."""
    with Server(*replies) as server:
        try:
            yield server
        finally:
            await close_litellm()


def handler_at(url: str, model: str = "openai/gpt-4o-mini", **more: Any) -> LiteLLM:
    return LiteLLM(model, api_base=url, api_key="test-not-a-key", **more)


async def events_of(handler: Handler, asked: Request) -> list[HandlerEvent]:
    async with aclosing(handler.stream(asked)) as events:
        return [event async for event in events]


async def reply_of(handler: Handler, asked: Request) -> MessageDone:
    *_, last = await events_of(handler, asked)
    assert isinstance(last, MessageDone)
    return last


def text_in(events: list[HandlerEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def anthropic_events(*blocks: dict[str, Any], end: bool = True) -> tuple[bytes, ...]:
    """The events of one text reply, or of the blocks given."""
    usage = {"input_tokens": 5, "output_tokens": 7}
    start = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": [],
        "usage": usage,
    }
    told: list[dict[str, Any]] = [{"type": "message_start", "message": start}, *blocks]
    if end:
        told += [
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}},
            {"type": "message_stop"},
        ]
    return tuple(b"event: " + one["type"].encode() + b"\n" + event(one) for one in told)


def text_block(*pieces: str) -> tuple[dict[str, Any], ...]:
    deltas = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
        for piece in pieces
    ]
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    return (start, *deltas, {"type": "content_block_stop", "index": 0})


# what it is


def test_it_is_a_handler_with_a_name_a_priority_and_a_family() -> None:
    handler = LiteLLM("openrouter/anthropic/claude-haiku-4.5")
    assert handler.name == "litellm_openrouter_anthropic_claude-haiku-4.5"
    assert handler.priority == 10
    assert family_of(handler) == "openrouter/anthropic"


def test_an_empty_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="model string"):
        LiteLLM("")


def test_a_deadline_of_no_seconds_is_refused() -> None:
    with pytest.raises(ConfigError, match="chunk_timeout"):
        LiteLLM("openai/gpt-4o", chunk_timeout=0)


# replies


@BOTH
@pytest.mark.parametrize("model", CHAT)
async def test_a_reply_is_the_same_streamed_and_whole(model: str, watched: bool) -> None:
    async with served(HELLO_STREAM if watched else HELLO) as server:
        events = await events_of(handler_at(server.url, model), request(stream=watched))
    done = events[-1]
    assert isinstance(done, MessageDone)
    assert done.message.get("content") == "Hello"
    assert done.usage is not None
    assert (done.usage.requests, done.usage.input_tokens, done.usage.output_tokens) == (1, 5, 7)
    assert done.usage.estimated is False
    assert text_in(events) == ("Hello" if watched else "")


@BOTH
async def test_tool_calls_come_whole(watched: bool) -> None:
    function = {"name": "weather", "arguments": ""}
    pieces = streamed(
        chunk({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"city": '}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"Rome"}'}}]}),
        chunk({}, finish="tool_calls"),
        event({"id": "r1", "choices": [], "usage": USAGE}),
    )
    whole = said({"content": None, "tool_calls": [CALL]}, finish="tool_calls", usage=USAGE)
    async with served(pieces if watched else whole) as server:
        done = await reply_of(handler_at(server.url), request(stream=watched, tools=[WEATHER]))
    assert done.message.get("tool_calls") == [CALL]


async def test_anthropics_own_wire_format_streams() -> None:
    async with served(streamed(*anthropic_events(*text_block("Hel", "lo")), done=False)) as server:
        events = await events_of(handler_at(server.url, ANTHROPIC), request(stream=True))
    assert text_in(events) == "Hello"
    assert isinstance(events[-1], MessageDone)
    assert events[-1].message.get("content") == "Hello"


async def test_thinking_and_its_signature_are_kept() -> None:
    thinking = (
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s1"}},
    )
    async with served(streamed(*anthropic_events(*thinking), done=False)) as server:
        events = await events_of(handler_at(server.url, ANTHROPIC), request(stream=True))
    done = events[-1]
    assert isinstance(done, MessageDone)
    assert [event.text for event in events if isinstance(event, ReasoningDelta)] == ["Hm"]
    block = done.message.get("thinking_blocks", [{}])[0]
    assert (block.get("thinking"), block.get("signature")) == ("Hm", "s1")


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85"])
@pytest.mark.parametrize("model", [OPENAI, MISTRAL, "groq/llama-3.3-70b", "openrouter/a/b"])
async def test_unusual_line_ends_inside_a_text_lose_nothing(model: str, mark: str) -> None:
    choice = {"index": 0, "delta": {"content": f"a{mark}b"}}
    raw = json.dumps({"id": "r1", "model": "m", "created": 1, "choices": [choice]}, ensure_ascii=False)
    reply = streamed(event(raw.encode()), chunk({"content": "c"}), chunk({}, finish="stop"))
    async with served(reply) as server:
        events = await events_of(handler_at(server.url, model), request(stream=True))
    assert text_in(events) == f"a{mark}bc"


async def test_a_line_separator_does_not_end_claudes_stream() -> None:
    blocks = text_block("a\u2028b", "c")
    raw = [one.replace(rb"\u2028", "\u2028".encode()) for one in anthropic_events(*blocks)]
    async with served(streamed(*raw, done=False)) as server:
        events = await events_of(handler_at(server.url, ANTHROPIC), request(stream=True))
    assert text_in(events) == "a\u2028bc"


async def test_chunks_may_be_cut_anywhere() -> None:
    body = b"".join(HELLO_STREAM.pieces)
    pieces = [body[at : at + 7] for at in range(0, len(body), 7)]
    async with served(Reply(pieces, content_type=SSE)) as server:
        events = await events_of(handler_at(server.url, MISTRAL), request(stream=True))
    assert text_in(events) == "Hello"


# requests


def asked(server: Answers) -> dict[str, Any]:
    return server.requests[-1].body


async def test_settings_reach_the_wire_and_the_requests_own_win() -> None:
    async with served(HELLO) as server:
        handler = handler_at(server.url, settings={"temperature": 0.1, "seed": 1})
        await reply_of(handler, request(settings={"temperature": 0.9, "top_p": None}))
    assert (asked(server)["temperature"], asked(server)["seed"]) == (0.9, 1)
    assert "top_p" not in asked(server)


@pytest.mark.parametrize("model", [OPENAI, MISTRAL, ANTHROPIC, RESPONSES])
async def test_tool_settings_are_not_sent_without_tools(model: str) -> None:
    """OpenAI refuses it: "'parallel_tool_calls' is only allowed when 'tools' are specified"."""
    settings = {"parallel_tool_calls": False, "tool_choice": "auto"}
    async with served(failed(418)) as server:
        handler = handler_at(server.url, model, settings={"parallel_tool_calls": False})
        for tools in ([], [WEATHER]):
            asking = request(settings=settings, tools=tools, tool_choice="auto")
            with pytest.raises(ProviderError):
                await reply_of(handler, asking)
    bare, whole = (each.body for each in server.requests)
    assert not {"parallel_tool_calls", "tool_choice", "tools"} & bare.keys()
    assert whole["tools"]
    assert whole.get("parallel_tool_calls") == (None if model == ANTHROPIC else False)


@pytest.mark.parametrize("model", [OPENAI, MISTRAL, ANTHROPIC])
async def test_tools_reach_the_wire(model: str) -> None:
    """On litellm 1.106 to 1.108 they do not, unless the package mcp is installed."""
    async with served(failed(418)) as server:
        with pytest.raises(ProviderError):
            await reply_of(handler_at(server.url, model), request(tools=[WEATHER]))
    assert "weather" in json.dumps(asked(server)["tools"])


async def test_private_keys_and_empty_answers_do_not_reach_the_wire() -> None:
    messages: Any = [
        {"role": "user", "content": "Hi", "_origin": "x"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": ""},
    ]
    async with served(HELLO) as server:
        await reply_of(handler_at(server.url, MISTRAL), Request(messages=messages, tools=[WEATHER]))
    assert "_origin" not in json.dumps(asked(server))
    assert asked(server)["messages"][2]["content"]


@pytest.mark.parametrize("model", [OPENAI, "openai/gpt-5.4"])
async def test_chat_models_stay_on_the_chat_api(model: str) -> None:
    async with served(HELLO) as server:
        await reply_of(handler_at(server.url, model), request(tools=[WEATHER]))
    assert server.requests[-1].path.endswith("/chat/completions")


async def test_responses_models_go_to_the_responses_api() -> None:
    async with served(failed(400)) as server:
        with pytest.raises(InvalidRequest):
            await reply_of(handler_at(server.url, RESPONSES), request())
    assert server.requests[-1].path.endswith("/responses")


async def test_part_of_the_vendor_reaches_the_wire() -> None:
    part = {"type": "document_url", "document_url": "https://example.com/a.pdf"}
    content = [{"type": "text", "text": "Read:"}, part]
    messages: Any = [{"role": "user", "content": content}]
    async with served(HELLO) as server:
        await reply_of(handler_at(server.url, MISTRAL), Request(messages=messages))
    assert asked(server)["messages"][0]["content"] == content


async def test_a_vendors_own_tools_join_the_others() -> None:
    async with served(failed(400)) as server:
        asking = request(
            tools=[WEATHER], settings={"tools": [{"type": "web_search_20250305", "name": "web_search"}]}
        )
        with pytest.raises(InvalidRequest):
            await reply_of(handler_at(server.url, ANTHROPIC), asking)
    assert [tool["name"] for tool in asked(server)["tools"]] == ["weather", "web_search"]


async def test_drop_params_decides_on_unknown_settings() -> None:
    settings = {"reasoning_effort": "low"}
    async with served(HELLO) as server:
        await reply_of(handler_at(server.url, OPENAI), request(settings=settings))
        assert "reasoning_effort" not in asked(server)
        strict = handler_at(server.url, OPENAI, settings={"drop_params": False})
        with pytest.raises(InvalidRequest):
            await reply_of(strict, request(settings=settings))


async def test_client_of_the_app_is_used() -> None:
    from openai import AsyncOpenAI

    async with served(HELLO) as server:
        async with AsyncOpenAI(api_key="k", base_url=server.url, max_retries=0) as client:
            done = await reply_of(handler_at(server.url, settings={"client": client}), request())
    assert done.message.get("content") == "Hello"


async def test_keys_of_litellm_are_not_sent_to_other_vendors() -> None:
    call = {**CALL, "provider_specific_fields": {"thought_signature": "s"}}
    message = {"role": "assistant", "content": "x", "reasoning_content": "r", "tool_calls": [call]}
    message |= {"provider_specific_fields": {"a": 1}, "thinking_blocks": [{"type": "thinking"}]}
    answer = {"role": "tool", "tool_call_id": "call_1", "content": "Sunny"}
    messages: Any = [{"role": "user", "content": "Hi"}, message, answer]
    async with served(HELLO) as server:
        await reply_of(handler_at(server.url, "zai/glm-4.7"), Request(messages=messages, tools=[WEATHER]))
    sent = asked(server)["messages"][1]
    assert sent == {"role": "assistant", "content": "x", "reasoning_content": "r", "tool_calls": [CALL]}


async def test_a_signed_thought_goes_back_to_claude() -> None:
    block = {"type": "thinking", "thinking": "Hm", "signature": "s1"}
    message = {"role": "assistant", "content": None, "thinking_blocks": [block], "tool_calls": [CALL]}
    answer = {"role": "tool", "tool_call_id": "call_1", "content": "Sunny"}
    messages: Any = [{"role": "user", "content": "Hi"}, message, answer]
    async with served(failed(400)) as server:
        with pytest.raises(InvalidRequest):
            await reply_of(handler_at(server.url, ANTHROPIC), Request(messages=messages, tools=[WEATHER]))
    assert asked(server)["messages"][1]["content"][0] == block


# structured output

SCHEMA = OutputSchema(
    "answer", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
)


async def test_openai_is_bound_to_a_schema_natively_with_tools_or_without() -> None:
    async with served(said({"content": '{"n": 1}'})) as server:
        done = await reply_of(handler_at(server.url), request(output_schema=SCHEMA, tools=[WEATHER]))
    assert done.message.get("content") == '{"n": 1}'
    assert asked(server)["response_format"]["json_schema"]["name"] == "answer"
    assert len(asked(server)["tools"]) == 1


@BOTH
async def test_answer_is_a_tool_if_a_schema_would_stop_the_tools(watched: bool) -> None:
    function = {"name": "final_answer", "arguments": '{"n": 1}'}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    pieces = streamed(chunk({"tool_calls": [call]}), chunk({}, finish="tool_calls"))
    async with served(pieces if watched else said({"content": None, "tool_calls": [call]})) as server:
        handler = handler_at(server.url, MISTRAL)
        events = await events_of(handler, request(stream=watched, output_schema=SCHEMA, tools=[WEATHER]))
    done = events[-1]
    assert isinstance(done, MessageDone)
    assert done.message == {"role": "assistant", "content": '{"n": 1}'}
    assert text_in(events) == ('{"n": 1}' if watched else "")
    assert not any(isinstance(event, ToolCallDelta) for event in events)
    assert [tool["function"]["name"] for tool in asked(server)["tools"]] == ["weather", "final_answer"]
    assert "response_format" not in asked(server)


async def test_a_vendor_that_refuses_schemas_is_given_the_tool() -> None:
    """litellm's table says that DeepSeek takes one; it answers with 400 (inspect_ai 4916)."""
    function = {"name": "final_answer", "arguments": '{"n": 1}'}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    async with served(said({"content": None, "tool_calls": [call]})) as server:
        handler = handler_at(server.url, "deepseek/deepseek-chat")
        await events_of(handler, request(output_schema=SCHEMA))
    assert [tool["function"]["name"] for tool in asked(server)["tools"]] == ["final_answer"]
    assert "response_format" not in asked(server)


async def test_ollama_is_given_the_schema() -> None:
    body = {"model": "qwen3", "message": {"role": "assistant", "content": '{"n": 1}'}, "done": True}
    async with served(Reply((json.dumps(body).encode(),))) as server:
        done = await reply_of(handler_at(server.url, "ollama_chat/qwen3"), request(output_schema=SCHEMA))
    assert done.message.get("content") == '{"n": 1}'
    chat = next(each for each in server.requests if each.path.endswith("/chat"))
    assert chat.body["format"] == SCHEMA.schema


async def test_model_without_tools_gets_the_schema_as_text() -> None:
    async with served(said({"content": '{"n": 1}'})) as server:
        await events_of(handler_at(server.url, "perplexity/sonar"), request(output_schema=SCHEMA))
    system = asked(server)["messages"][0]
    assert system["role"] == "system"
    assert '"type":"object"' in system["content"]
    assert not {"tools", "response_format"} & asked(server).keys()


@pytest.mark.parametrize(
    ("choice", "message", "is_obeyed"),
    [
        ("required", {"content": "No."}, False),
        ("required", {"content": None, "tool_calls": [CALL]}, True),
        ("other", {"content": None, "tool_calls": [CALL]}, False),
        ("auto", {"content": "No."}, True),
    ],
)
async def test_uncalled_forced_tool_is_an_error(
    choice: str, message: dict[str, Any], is_obeyed: bool
) -> None:
    async with served(said(message)) as server:
        handler = handler_at(server.url, MISTRAL)
        asked = request(tools=[WEATHER], tool_choice=choice)
        if is_obeyed:
            await reply_of(handler, asked)
            return
        with pytest.raises(ModelBehaviorError, match="mistral"):
            await reply_of(handler, asked)


@BOTH
async def test_a_reply_that_called_no_forced_tool_is_kept_with_its_usage(watched: bool) -> None:
    """The run ends with it, plain and streamed."""
    reply = HELLO_STREAM if watched else HELLO
    async with served(reply) as server:
        agent = Agent(
            "A",
            model=handler_at(server.url, MISTRAL),
            tools=[look_up],
            model_settings={"tool_choice": "required"},
        )
        running = Runner.run_streamed(agent, "Hi").drain() if watched else Runner.run(agent, "Hi")
        with pytest.raises(ModelBehaviorError, match="had to call a tool and did not") as raised:
            await running
    result = raised.value.result
    assert result is not None
    assert [message.get("content") for message in result.messages] == ["Hi", "Hello"]
    assert (result.usage.input_tokens, result.usage.output_tokens, result.usage.estimated) == (5, 7, False)


DEEP = "[" * 1500 + "]" * 1500
ODD_ARGUMENTS = {
    "deep": f'{{"x": {DEEP}}}',
    "deep and no object": DEEP,
    "a list": "[1]",
    "text": '"x"',
    "null": "null",
    "no number": '{"x": NaN}',
    "a long number": f'{{"x": {"9" * 5000}}}',
    "broken": '{"x": ',
    "marked": '\ufeff{"order": 1}',
    "fine": '{"order": 1}',
}


@pytest.mark.pairwise
@pytest.mark.parametrize("model", [OPENAI, MISTRAL, "groq/llama-3.3-70b", "openrouter/a/b"])
@pytest.mark.parametrize("arguments", ODD_ARGUMENTS.values(), ids=ODD_ARGUMENTS)
@pytest.mark.parametrize("name", ["look_up", "multi_tool_use.parallel"])
async def test_odd_arguments_stay_unchanged(model: str, arguments: str, name: str) -> None:
    """litellm reads those of a whole reply, and fails of some, or makes other calls of them."""
    gc.collect()  # else a finalizer of an earlier test may run where the stack is almost full
    made = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    whole = said({"content": None, "tool_calls": [made]}, finish="tool_calls", usage=USAGE)
    pieces = streamed(
        chunk({"role": "assistant", "content": None, "tool_calls": [{**made, "index": 0}]}),
        chunk({}, finish="tool_calls"),
        event({"id": "r1", "model": "m-1", "created": 1, "choices": [], "usage": USAGE}),
    )
    async with served(whole, pieces) as server:
        handler = handler_at(server.url, model)
        for stream in (False, True):
            done = await reply_of(handler, request(stream=stream))
            (call,) = calls_of(done.message)
            assert call["function"] == {"name": name, "arguments": arguments}
            assert call["id"] == "call_1"


OTHER = {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("choice", "names", "sent"),
    [("weather", ["weather"], "any"), ("none", [], None), ("required", ["weather", "other"], "any")],
)
async def test_dropped_tool_choice_is_expressed_by_the_tools(
    choice: str, names: list[str], sent: str | None
) -> None:
    reply = said({"content": None, "tool_calls": [CALL]}) if names else HELLO
    async with served(reply) as server:
        asking = request(tools=[WEATHER, OTHER], tool_choice=choice)
        await reply_of(handler_at(server.url, MISTRAL), asking)
    assert [tool["function"]["name"] for tool in asked(server).get("tools", [])] == names
    assert asked(server).get("tool_choice") == sent


# what goes wrong


@pytest.mark.pairwise
@BOTH
@pytest.mark.parametrize("model", [*CHAT, ANTHROPIC, GEMINI, RESPONSES])
@pytest.mark.parametrize(
    ("status", "words", "want"),
    [
        (401, "bad key", AuthenticationFailed),
        (400, "prompt is too long: 9 tokens > 8 maximum", ContextTooLong),
        (404, "the model `x` does not exist", ModelNotFound),
        (413, "too big", InvalidRequest),
        (429, "slow down", RateLimited),
        (500, "oops", ServerFailed),
        (529, "overloaded", ServerFailed),
    ],
)
async def test_errors_keep_their_status_on_every_route(
    model: str, watched: bool, status: int, words: str, want: type[ProviderError]
) -> None:
    async with served(failed(status, words, retry_after="7")) as server:
        with pytest.raises(ProviderError) as caught:
            await reply_of(handler_at(server.url, model), request(stream=watched))
    assert type(caught.value) is want
    assert (caught.value.status, caught.value.retry_after) == (status, 7.0)
    assert words in str(caught.value)
    assert len(server.requests) == 1


@BOTH
@pytest.mark.parametrize("model", [*CHAT, ANTHROPIC, GEMINI, RESPONSES])
async def test_a_refused_connection_is_a_failed_connection(model: str, watched: bool) -> None:
    with pytest.raises(ConnectionFailed) as caught:
        await reply_of(handler_at(refused_url(), model), request(stream=watched))
    assert caught.value.retryable


@pytest.mark.parametrize("model", [OPENAI, ANTHROPIC, GEMINI, "azure/gpt-4o", "cerebras/x"])
async def test_a_missing_key_names_the_variable(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = model.partition("/")[0].upper()
    for name in ("OPENAI", "ANTHROPIC", "GEMINI", "AZURE", "CEREBRAS"):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
    with pytest.raises(AuthenticationFailed, match=f"{provider}_API_KEY"):
        await reply_of(LiteLLM(model, api_base=refused_url() if provider == "AZURE" else None), request())


@pytest.mark.parametrize("model", ["unknown/nothing", "whatever"])
async def test_unknown_provider_shows_the_form_of_a_model_string(model: str) -> None:
    with pytest.raises(ModelNotFound, match="provider/model"):
        await reply_of(LiteLLM(model), request())


@pytest.mark.parametrize("model", [OPENAI, MISTRAL, "groq/llama-3.3-70b"])
async def test_a_stream_that_just_ends_is_not_a_short_answer(model: str) -> None:
    async with served(streamed(chunk({"content": "Hel"}), done=False)) as server:
        with pytest.raises(IncompleteResponse) as caught:
            await reply_of(handler_at(server.url, model), request(stream=True))
    assert caught.value.retryable


@pytest.mark.parametrize("model", [OPENAI, MISTRAL])
async def test_a_connection_that_breaks_within_a_stream_is_not_a_short_answer(model: str) -> None:
    async with served(streamed(chunk({"content": "Hel"}), done=False, ending="cut")) as server:
        with pytest.raises(IncompleteResponse):
            await reply_of(handler_at(server.url, model), request(stream=True))


@pytest.mark.parametrize("model", [OPENAI, MISTRAL, ANTHROPIC])
async def test_a_connection_that_breaks_within_a_whole_reply_is_not_asked_again(model: str) -> None:
    """litellm would send the same request once more by itself, and pay for it twice."""
    async with served(Reply((b'{"id": "r1", ',), ending="cut")) as server:
        with pytest.raises(IncompleteResponse):
            await reply_of(handler_at(server.url, model), request())
    assert len(server.requests) == 1


async def test_claudes_stream_without_its_end_is_not_a_short_answer() -> None:
    async with served(streamed(*anthropic_events(*text_block("Hel"), end=False), done=False)) as server:
        with pytest.raises(IncompleteResponse):
            await reply_of(handler_at(server.url, ANTHROPIC), request(stream=True))


@pytest.mark.parametrize("model", [OPENAI, MISTRAL, "openrouter/a/b"])
async def test_a_stream_that_says_it_is_done_is_complete_without_a_finish_reason(model: str) -> None:
    async with served(streamed(chunk({"content": "Hello"}))) as server:
        done = await reply_of(handler_at(server.url, model), request(stream=True))
    assert done.message.get("content") == "Hello"


@pytest.mark.parametrize("model", [OPENAI, MISTRAL, "groq/llama-3.3-70b", "openrouter/a/b"])
async def test_an_error_event_in_a_stream_is_that_error(model: str) -> None:
    said_so = event({"error": {"message": "Overloaded", "type": "overloaded_error"}})
    async with served(streamed(chunk({"content": "Hel"}), said_so, done=False)) as server:
        with pytest.raises(ServerFailed) as caught:
            await reply_of(handler_at(server.url, model), request(stream=True))
    assert caught.value.status == 529


async def test_an_error_inside_a_success_is_that_error() -> None:
    body = json.dumps({"error": {"code": 502, "message": "Provider returned error"}}).encode()
    async with served(Reply((body,))) as server:
        with pytest.raises(ServerFailed) as caught:
            await reply_of(handler_at(server.url, "openrouter/a/b"), request())
    assert caught.value.status == 502


@pytest.mark.parametrize("body", [b"", b"<html><title>Hello</title></html>", b'{"choices"'])
@pytest.mark.parametrize("model", [OPENAI, MISTRAL, ANTHROPIC])
async def test_answer_that_is_not_a_reply_is_unreadable(model: str, body: bytes) -> None:
    async with served(
        Reply((body,) if body else (), content_type="text/html" if b"<" in body else JSON)
    ) as server:
        with pytest.raises(UnreadableResponse):
            await reply_of(handler_at(server.url, model), request())


@pytest.mark.parametrize("model", [OPENAI, MISTRAL])
async def test_empty_stream_is_incomplete(model: str) -> None:
    async with served(Reply((b": hello\n\n",), content_type=SSE)) as server:
        with pytest.raises(IncompleteResponse):
            await reply_of(handler_at(server.url, model), request(stream=True))


async def test_retry_of_the_run_starts_anew() -> None:
    async def at_once(seconds: float) -> None:
        pass

    async with served(failed(429), failed(503), HELLO) as server:
        agent = Agent("a", model=handler_at(server.url))
        config = RunConfig(retry=Retry(attempts=3, sleep=at_once))
        result = await Runner.run(agent, "Hi", run_config=config)
    assert result.final_output == "Hello"
    assert len(server.requests) == 3


# time


@pytest.mark.parametrize("model", [OPENAI, MISTRAL, ANTHROPIC])
async def test_a_whole_reply_has_a_deadline(model: str) -> None:
    async with served_over_sockets(Reply((b"{",), ending="stall")) as server:
        with pytest.raises(ProviderTimeout) as caught:
            await reply_of(handler_at(server.url, model, timeout=0.3), request())
        assert await server.all_left()
    assert caught.value.retryable


async def test_a_reply_that_trickles_has_the_same_deadline() -> None:
    chunks = [chunk({"content": "a"})] * 100
    async with served_over_sockets(streamed(*chunks, delay=0.1)) as server:
        with pytest.raises(ProviderTimeout):
            await reply_of(handler_at(server.url, timeout=0.5), request(stream=True))


@pytest.mark.parametrize("model", [OPENAI, MISTRAL])
async def test_silence_inside_a_stream_has_its_own_deadline(model: str) -> None:
    async with served_over_sockets(
        streamed(chunk({"content": "Hel"}), chunk({"content": "lo"}), done=False, ending="stall")
    ) as server:
        with pytest.raises(ProviderTimeout, match="in the middle"):
            await reply_of(handler_at(server.url, model, chunk_timeout=0.3), request(stream=True))
        assert await server.client_hung_up()


ENDLESS = tuple(chunk({"content": "a"}) for _ in range(3))
ROUTES = pytest.mark.parametrize(
    ("model", "pieces"),
    [
        (OPENAI, ENDLESS),
        (MISTRAL, ENDLESS),
        ("groq/llama-3.3-70b", ENDLESS),
        (ANTHROPIC, anthropic_events(*text_block("a", "b", "c"), end=False)),
    ],
)


@ROUTES
async def test_leaving_a_stream_closes_its_connection(model: str, pieces: tuple[bytes, ...]) -> None:
    """litellm 1.105 leaves Claude's open."""
    async with served_over_sockets(streamed(*pieces, done=False, ending="stall")) as server:
        async with aclosing(handler_at(server.url, model).stream(request(stream=True))) as events:
            async for _ in events:
                break
        assert await server.client_hung_up()


@ROUTES
async def test_cancelling_a_stream_closes_its_connection(model: str, pieces: tuple[bytes, ...]) -> None:
    async with served_over_sockets(streamed(*pieces, done=False, ending="stall")) as server:
        with anyio.CancelScope() as scope:
            async for _ in handler_at(server.url, model).stream(request(stream=True)):
                asyncio.get_running_loop().call_soon(scope.cancel)
        assert scope.cancelled_caught
        assert await server.client_hung_up()


@BOTH
async def test_replies_that_were_read_to_their_end_share_one_connection(watched: bool) -> None:
    async with served_over_sockets(HELLO_STREAM if watched else HELLO) as server:
        for _ in range(4):
            await reply_of(handler_at(server.url), request(stream=watched))
        assert server.connections == 1


async def test_concurrent_calls_do_not_mix() -> None:
    good, bad = streamed(chunk({"content": "Hi"}), chunk({}, finish="stop")), failed(429, retry_after="3")
    async with served_over_sockets(good) as fine, served_over_sockets(bad) as busy:
        outcomes: dict[int, Any] = {}

        async def call(number: int, url: str) -> None:
            try:
                outcomes[number] = (await reply_of(handler_at(url), request(stream=True))).message.get(
                    "content"
                )
            except RateLimited as error:
                outcomes[number] = error.retry_after

        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(call, number, busy.url if number % 2 else fine.url)
    assert outcomes == {number: 3.0 if number % 2 else "Hi" for number in range(10)}


def test_one_handler_serves_one_event_loop_after_the_other() -> None:
    """A loop's id comes back when it is gone; a connection of the old one must not."""
    with Server(HELLO_STREAM) as server:
        handlers = [handler_at(server.url, model) for model in (OPENAI, MISTRAL)]

        async def once() -> list[object]:
            try:
                return [
                    (await reply_of(one, request(stream=True))).message.get("content") for one in handlers
                ]
            finally:
                await close_litellm()

        for _ in range(3):
            assert asyncio.run(once()) == ["Hello", "Hello"]


def test_error_on_trio_gives_advice() -> None:
    async def call() -> None:
        await reply_of(LiteLLM(OPENAI), request())

    with pytest.raises(ConfigError, match="asyncio"):
        anyio.run(call, backend="trio")


async def test_local_server_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    async with served(HELLO) as server:
        done = await reply_of(LiteLLM("openai/qwen3", api_base=server.url), request())
    assert done.message.get("content") == "Hello"


@pytest.mark.parametrize("model", ["openai/gpt-4o-mini", "anthropic/claude-haiku-4-5"])
async def test_no_cookie_goes_from_one_run_to_another(model: str) -> None:
    refused = Reply(status=401, headers={"set-cookie": "user=1; Path=/"})
    async with served(refused, refused) as server:
        for _ in range(2):
            with pytest.raises(ProviderError):
                await reply_of(handler_at(server.url, model), request())
    assert "cookie" not in server.requests[1].headers


# usage and cost


@BOTH
async def test_a_known_model_has_a_price_and_it_is_the_same_streamed_and_whole(watched: bool) -> None:
    async with served(HELLO_STREAM if watched else HELLO) as server:
        done = await reply_of(handler_at(server.url), request(stream=watched))
    assert done.usage is not None
    assert done.usage.cost == pytest.approx(5 * 0.15e-6 + 7 * 0.6e-6)


def answered(watched: bool, model: str, **bill: Any) -> Reply:
    """A reply of this model, which says what it took."""
    usage = {**USAGE, **bill}
    if not watched:
        return said({"content": "Hello"}, usage=usage, model=model, created=1)
    told = chunk({"role": "assistant", "content": "Hello"}, model=model)
    end = event({"id": "r1", "model": model, "created": 1, "choices": [], "usage": usage})
    return streamed(told, chunk({}, finish="stop", model=model), end)


@BOTH
@pytest.mark.parametrize("model", ["openrouter/anthropic/claude-haiku-4.5", "openai/unknown-model", OPENAI])
async def test_cost_of_the_vendor_is_used(model: str, watched: bool) -> None:
    async with served(answered(watched, "m-1", cost=0.25)) as server:
        done = await reply_of(handler_at(server.url, model), request(stream=watched))
    assert done.usage is not None
    assert done.usage.cost == 0.25


@BOTH
async def test_the_price_is_that_of_the_model_that_answered(watched: bool) -> None:
    """A deployment of Azure's, or an alias, has a name of its own."""
    async with served(answered(watched, "gpt-4o-mini-2024-07-18")) as server:
        done = await reply_of(handler_at(server.url, "openai/our-own-alias"), request(stream=watched))
    assert done.usage is not None
    assert done.usage.cost == pytest.approx(5 * 0.15e-6 + 7 * 0.6e-6)


async def test_an_unknown_model_has_no_price() -> None:
    async with served(HELLO) as server:
        done = await reply_of(handler_at(server.url, "openai/unknown-model"), request())
    assert done.usage is not None
    assert done.usage.cost is None


async def test_tokens_that_the_vendor_did_not_count_are_called_estimated() -> None:
    async with served(streamed(chunk({"content": "Hello"}), chunk({}, finish="stop"))) as server:
        done = await reply_of(handler_at(server.url), request(stream=True))
    assert done.usage is not None
    assert done.usage.estimated


async def test_groqs_usage_of_a_stream_is_used() -> None:
    end = chunk({}, finish="stop", x_groq={"id": "x", "usage": USAGE})
    async with served(streamed(chunk({"content": "Hello"}), end)) as server:
        done = await reply_of(handler_at(server.url, "groq/llama-3.3-70b"), request(stream=True))
    assert done.usage is not None
    assert (done.usage.input_tokens, done.usage.output_tokens, done.usage.estimated) == (5, 7, False)


# Loading litellm

FIRST_CALL = """
import asyncio, sys, threading
from routelock.handlers.port import Request
from routelock_providers.litellm.handler import LiteLLM

importers, asked = set(), Request(messages=[{"role": "user", "content": "Hi"}])

def watch(event, args):
    if event == "import" and args[0].split(".")[0] == "litellm":
        importers.add(threading.current_thread() is threading.main_thread())

sys.addaudithook(watch)

async def ask():
    try:
        async for _ in LiteLLM("openai/m", api_base="http://127.0.0.1:1", api_key="k").stream(asked):
            pass
    except Exception as error:
        print(type(error).__name__, end=" ")

async def main():
    first, second = asyncio.create_task(ask()), asyncio.create_task(ask())
    while not importers:
        await asyncio.sleep(0.001)
    print(first.done(), importers, end=" ")
    importers.clear()
    await asyncio.gather(first, second)

asyncio.run(main())
"""


def test_the_event_loop_goes_on_while_litellm_is_imported() -> None:
    """Also when a second call comes meanwhile. Both go on once it is there, and are told what is wrong."""
    command = [sys.executable, "-c", FIRST_CALL]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.split() == ["False", "{False}", "ConnectionFailed", "ConnectionFailed"], done.stderr


@BOTH
@pytest.mark.parametrize(
    "model", [GEMINI, ANTHROPIC, "bedrock/converse/anthropic.claude-3-haiku-20240307-v1:0"]
)
async def test_image_that_litellm_cannot_fetch_is_an_invalid_request(model: str, watched: bool) -> None:
    """litellm takes no image from this machine, whatever answers there."""
    image = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/cat.png"}}
    asked = Request(messages=[{"role": "user", "content": [image]}], stream=watched)
    async with served(HELLO) as server:
        with pytest.raises(InvalidRequest, match=r"could not be fetched.*127\.0\.0\.1.*data: URL") as caught:
            await reply_of(handler_at(server.url, model), asked)
        assert server.requests == []
    assert not caught.value.retryable


# OpenRouter's signatures

SIGNED_DETAIL = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
ENCRYPTED = {
    "type": "reasoning.encrypted",
    "data": "ZW5j",
    "format": "google-gemini-v1",
    "index": 0,
    "id": "t",
}


def openrouter_says(*details: dict[str, Any]) -> list[bytes]:
    """A delta for each detail of a thought, as OpenRouter sends them."""
    return [
        chunk(
            {
                "role": "assistant",
                "content": "",
                "reasoning": detail.get("text"),
                "reasoning_details": [detail],
            }
        )
        for detail in details
    ]


@pytest.mark.parametrize(
    "model", ["openrouter/anthropic/claude-sonnet-4.5", "openrouter/google/gemini-3-pro"]
)
@pytest.mark.parametrize(
    ("details", "kept"),
    [
        (
            [
                {**SIGNED_DETAIL, "text": "Let me "},
                {**SIGNED_DETAIL, "text": "see."},
                {**SIGNED_DETAIL, "signature": "c2ln"},
            ],
            [{**SIGNED_DETAIL, "text": "Let me see.", "signature": "c2ln"}],
        ),
        ([{**SIGNED_DETAIL, "text": "Hm."}, ENCRYPTED], [{**SIGNED_DETAIL, "text": "Hm."}, ENCRYPTED]),
        ([ENCRYPTED], [ENCRYPTED]),
    ],
    ids=["signature", "encrypted after text", "encrypted alone"],
)
@pytest.mark.parametrize(
    "said_last", [{"content": "Hello"}, {"tool_calls": [{**CALL, "index": 0}]}], ids=["text", "call"]
)
async def test_a_signature_that_comes_alone_is_kept(
    model: str, details: list[dict[str, Any]], kept: list[dict[str, Any]], said_last: dict[str, Any]
) -> None:
    """litellm drops a delta that has nothing else in it, and the thought is refused without it."""
    reply = streamed(
        *openrouter_says(*details),
        chunk(said_last),
        chunk({}, finish="stop"),
        event({"id": "r1", "model": "m-1", "created": 1, "choices": [], "usage": USAGE}),
    )
    async with served(reply) as server:
        handler = handler_at(server.url, model)
        done = await reply_of(handler, request(stream=True, tools=[WEATHER]))
        answers: list[Any] = [
            {"role": "tool", "tool_call_id": each["id"], "content": "ok"} for each in calls_of(done.message)
        ]
        hi: Any = {"role": "user", "content": "Hi"}
        again = Request(messages=[hi, done.message, *answers, hi], tools=[WEATHER], stream=True)
        await reply_of(handler, again)
    assert cast(Any, done.message)["reasoning_details"] == kept
    assert server.requests[1].body["messages"][1]["reasoning_details"] == kept
