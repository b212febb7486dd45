"""The handlers of OpenAI's chat API before answers of respx, and real servers where the socket is the point.

There are two: one lets the openai library send, the other aiohttp, on asyncio alone. They do the same.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any
from urllib.parse import parse_qs

import anyio
import pytest
from answers import Answers, AnyServer
from servers import (
    HELLO,
    HELLO_STREAM,
    SSE,
    USAGE,
    Reply,
    Server,
    chunk,
    event,
    failed,
    refused_url,
    said,
    streamed,
)

from routelock.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    ContextTooLong,
    IncompleteResponse,
    InvalidRequest,
    ModelNotFound,
    ProviderError,
    ProviderTimeout,
    QuotaExhausted,
    RateLimited,
    ServerFailed,
    UnreadableResponse,
)
from routelock.handlers.events import HandlerEvent, MessageDone, ReasoningDelta, TextDelta, ToolCallDelta
from routelock.handlers.port import Handler, OutputSchema, Request, family_of
from routelock.usage import Usage
from routelock_providers.chat_completions.openai import OpenAI
from routelock_providers.chat_completions.openai_compatible import OpenAICompatible

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("answers_of_respx")]

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
BOTH = pytest.mark.parametrize("watched", [False, True], ids=["whole", "streamed"])


def request(*, stream: bool = False, **more: Any) -> Request:
    return Request(messages=[{"role": "user", "content": "Hi"}], stream=stream, **more)


EITHER = OpenAI | OpenAICompatible
WAYS = [
    pytest.param(OpenAI, "asyncio", id="openai-asyncio"),
    pytest.param(OpenAI, "trio", id="openai-trio"),
    pytest.param(OpenAICompatible, "asyncio", id="aiohttp-asyncio"),
]
KINDS: list[type[EITHER]] = []
"""The handler of the running test."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test with both handlers, where they can run."""
    if metafunc.definition.get_closest_marker("asyncio_only") or "anyio_backend" not in metafunc.fixturenames:
        metafunc.parametrize("handler_kind", [OpenAI, OpenAICompatible], indirect=True)
    else:
        metafunc.parametrize(
            ("handler_kind", "anyio_backend"), WAYS, indirect=["handler_kind"], scope="module"
        )


@pytest.fixture(autouse=True, scope="module")
def handler_kind(request: pytest.FixtureRequest) -> type[EITHER]:
    KINDS[:] = [request.param]
    return request.param


@asynccontextmanager
async def handler_at(url: str, **settings: Any) -> AsyncGenerator[EITHER]:
    handler = KINDS[0]("m", base_url=url, **settings)
    try:
        yield handler
    finally:
        await handler.aclose()


async def ask(server: AnyServer, asked: Request | None = None, **settings: Any) -> list[HandlerEvent]:
    async with handler_at(server.url, **settings) as handler:
        return [event async for event in handler.stream(asked or request())]


async def failure(url: str, *, watched: bool = False, **settings: Any) -> ProviderError:
    async with handler_at(url, **settings) as handler:
        with pytest.raises(ProviderError) as caught:
            async for _ in handler.stream(request(stream=watched)):
                pass
    assert caught.value.provider == "local"
    assert caught.value.model == "m"
    return caught.value


def call(arguments: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"arguments": arguments, **more}}


# What comes back


async def test_a_whole_reply() -> None:
    with Answers(HELLO) as server:
        events = await ask(server)
    assert events == [
        MessageDone(
            message={"role": "assistant", "content": "Hello"},
            usage=Usage(requests=1, input_tokens=5, output_tokens=7),
            finish_reason="stop",
            model="m-1",
            response_id="r1",
        )
    ]
    assert "stream" not in server.requests[0].body


async def test_a_streamed_reply_says_the_same() -> None:
    with Answers(HELLO_STREAM, HELLO) as server:
        async with handler_at(server.url) as handler:
            *deltas, done = [event async for event in handler.stream(request(stream=True))]
            whole = [event async for event in handler.stream(request())]
    assert deltas == [TextDelta("Hel"), TextDelta("lo")]
    assert [done] == whole
    assert server.requests[0].body["stream_options"] == {"include_usage": True}


async def test_streamed_tool_calls() -> None:
    reply = streamed(
        chunk({"role": "assistant", "reasoning_content": "hm"}),
        chunk({"tool_calls": [{"index": 0, "id": "a", **call("", name="weather")}]}),
        chunk({"tool_calls": [{"index": 0, **call('{"city":')}]}),
        chunk({"tool_calls": [{"index": 0, **call('"Bonn"}')}]}),
        chunk({}, finish="tool_calls"),
    )
    with Answers(reply) as server:
        *deltas, done = await ask(server, request(stream=True, tools=[WEATHER]))
    assert deltas[0] == ReasoningDelta("hm")
    assert deltas[1:] == [ToolCallDelta(0, "a", "weather", piece) for piece in ("", '{"city":', '"Bonn"}')]
    assert isinstance(done, MessageDone)
    assert done.message == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Bonn"}'}}
        ],
    }
    assert done.usage is not None
    assert done.usage.estimated, "the provider sent none"


async def test_a_stream_in_the_smallest_pieces() -> None:
    """It may be cut inside a character or a CRLF, and hold comments and U+2028."""
    line = "data: " + json.dumps({"choices": [{"delta": {"content": "é\u2028😀"}}]}, ensure_ascii=False)
    body = f": ping\r\n\r\n{line}\r\n\r\ndata: [DONE]".encode()
    pieces = [body[i : i + 1] for i in range(len(body))]
    with Answers(Reply(pieces, content_type=SSE)) as server:
        done = (await ask(server, request(stream=True)))[-1]
    assert isinstance(done, MessageDone)
    assert done.message.get("content") == "é\u2028😀"


async def test_an_endpoint_that_does_not_stream() -> None:
    with Answers(HELLO) as server:
        events = await ask(server, request(stream=True))
    assert [type(event) for event in events] == [MessageDone]


@pytest.mark.parametrize("first", [b"\xef\xbb\xbf", b"id: 1\n", b"retry: 9\n\n", b": alive\n\n"])
async def test_a_stream_under_a_wrong_name(first: bytes) -> None:
    body = first + b"".join(HELLO_STREAM.pieces)
    with Answers(Reply((body,))) as server:
        events = await ask(server, request(stream=True))
    assert events[:2] == [TextDelta("Hel"), TextDelta("lo")]


@pytest.mark.pairwise
@BOTH
@pytest.mark.parametrize("usage", ["x", ["x"], 5, {"prompt_tokens": 3, "prompt_tokens_details": "x"}])
async def test_unreadable_usage_keeps_the_reply(usage: Any, watched: bool) -> None:
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}
    body = {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": usage}
    reply = (
        streamed(chunk({"content": "Hi"}), event(last)) if watched else Reply((json.dumps(body).encode(),))
    )
    with Answers(reply) as server:
        done = (await ask(server, request(stream=watched)))[-1]
    assert isinstance(done, MessageDone)
    assert done.message.get("content") == "Hi"
    assert done.usage is not None
    assert done.usage.estimated


@BOTH
async def test_cost_of_the_server_is_used(watched: bool) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "cost": 0.25, "is_byok": False}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}
    body = {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": usage}
    reply = (
        streamed(chunk({"content": "Hi"}), event(last)) if watched else Reply((json.dumps(body).encode(),))
    )
    with Answers(reply) as server:
        done = (await ask(server, request(stream=watched)))[-1]
    assert isinstance(done, MessageDone)
    assert done.usage == Usage(requests=1, input_tokens=3, output_tokens=1, cost=0.25)


@BOTH
async def test_a_completion_labelled_as_text(watched: bool) -> None:
    with Answers(Reply(HELLO.pieces, content_type="text/plain")) as server:
        events = await ask(server, request(stream=watched))
    assert [type(event) for event in events] == [MessageDone]


async def test_a_stream_labelled_as_json_may_begin_with_a_mark() -> None:
    pieces = (b"\xef\xbb\xbf", *HELLO_STREAM.pieces)
    with Answers(Reply(pieces, content_type="application/json")) as server:
        events = await ask(server, request(stream=True))
    assert isinstance(events[-1], MessageDone)


# What goes out


async def test_the_body() -> None:
    messages: Any = [{"role": "user", "content": "Hi", "_origin": "x"}]
    asked = Request(
        messages=messages,
        tools=[WEATHER],
        tool_choice="weather",
        settings={
            "temperature": 0,
            "top_p": None,
            "parallel_tool_calls": False,
            "extra_body": {"safe": True},
        },
    )
    with Answers(HELLO) as server:
        await ask(server, asked)
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "temperature": 0,
        "parallel_tool_calls": False,
        "safe": True,
    }


async def test_a_schema() -> None:
    with Answers(HELLO) as server:
        await ask(server, request(output_schema=OutputSchema("city", {"type": "object"})))
    assert server.requests[0].body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "city", "schema": {"type": "object"}, "strict": True},
    }


async def test_a_schema_beside_tools_elsewhere_is_a_tool_too() -> None:
    """Most vendors cannot do both at once, so the answer comes as a call and reads as text."""
    call_it = {"tool_calls": [{"index": 0, "id": "a", **call('{"city": "Bonn"}', name="final_answer")}]}
    with Answers(streamed(chunk(call_it), chunk({}, finish="tool_calls"))) as server:
        asked = request(stream=True, tools=[WEATHER], output_schema=OutputSchema("city", {"type": "object"}))
        delta, done = await ask(server, asked)
    assert delta == TextDelta('{"city": "Bonn"}')
    assert isinstance(done, MessageDone)
    assert done.message == {"role": "assistant", "content": '{"city": "Bonn"}'}
    assert "response_format" not in server.requests[0].body


async def test_keys_that_openai_does_not_know_are_not_sent() -> None:
    """LiteLLM is of the same family and keeps more in a message than OpenAI takes."""
    from openai import AsyncOpenAI

    said_before: Any = {"role": "assistant", "content": "a", "provider_specific_fields": {"x": 1}}
    user: Any = {"role": "user", "content": "Hi"}
    with Answers(HELLO) as server:
        client = AsyncOpenAI(api_key="k")
        handler = OpenAI("m", client=client)
        client.base_url = server.url
        async for _ in handler.stream(Request(messages=[user, said_before, user])):
            pass
        await client.close()
    assert handler.family == "openai"
    assert server.requests[0].body["messages"][1] == {"role": "assistant", "content": "a"}


@pytest.mark.parametrize("choice", ["auto", "required", "none"])
async def test_tool_choices_that_are_not_names(choice: str) -> None:
    with Answers(HELLO) as server:
        await ask(server, request(tools=[WEATHER], tool_choice=choice))
    assert server.requests[0].body["tool_choice"] == choice


async def test_no_tool_settings_without_tools() -> None:
    with Answers(HELLO) as server:
        await ask(server, request(tool_choice="required", settings={"parallel_tool_calls": False}))
    assert set(server.requests[0].body) == {"model", "messages"}


async def test_extra_headers() -> None:
    with Answers(HELLO) as server:
        await ask(server, request(settings={"extra_headers": {"x-trace": "1"}}))
    assert server.requests[0].headers["x-trace"] == "1"


@pytest.mark.parametrize("key", ["top\nsecret", "top\rsecret", "top\0secret"])
async def test_key_that_cannot_be_sent_is_not_shown(key: str) -> None:
    with Server(HELLO) as server:
        error = await failure(server.url, api_key=key)
    assert type(error) is InvalidRequest
    assert not error.retryable
    assert "Check the key" in str(error)
    assert "secret" not in str(error)


async def test_stream_options_can_be_left_out() -> None:
    with Answers(HELLO_STREAM) as server:
        await ask(server, request(stream=True, settings={"stream_options": None}))
    assert "stream_options" not in server.requests[0].body


async def test_the_key() -> None:
    with Answers(HELLO) as server:
        await ask(server, api_key="k-1")
        await ask(server)
    first, second = [seen.headers.get("authorization", "Bearer none") for seen in server.requests]
    assert first == "Bearer k-1"
    assert second == "Bearer none", "OpenAI's key must not go to another endpoint"


async def test_a_key_that_was_read_from_a_file_may_end_with_a_newline() -> None:
    with Answers(HELLO) as server:
        await ask(server, api_key="k-1\n")
    assert server.requests[0].headers["authorization"] == "Bearer k-1"


async def test_key_that_cannot_be_sent_is_not_in_the_chain() -> None:
    """Neither the error nor its causes, which a traceback shows, hold it."""
    with Server(HELLO) as server:
        error = await failure(server.url, api_key="top\nsecret")
    assert type(error) is InvalidRequest
    assert not error.retryable
    assert "newline" in str(error)
    assert "secret" not in "".join(traceback.format_exception(error)).replace('api_key="top\\nsecret"', "")
    assert not server.requests


@pytest.mark.parametrize(
    "address", ["", "/", "/chat/completions", "/chat/completions/", "/chat/completions?a=1"]
)
async def test_address_may_hold_the_path(address: str) -> None:
    with Answers(HELLO) as server:
        async with handler_at(server.url + address) as handler:
            assert [each async for each in handler.stream(request())]
    assert server.requests[0].path.partition("?")[0] == "/v1/chat/completions"


def test_text_that_is_not_an_address_is_refused() -> None:
    for kind in (OpenAI, OpenAICompatible):
        with pytest.raises(ConfigError, match="must be an http or https address"):
            kind("m", base_url="localhost:8000/v1")


async def test_a_query_in_the_address_stays_at_its_end() -> None:
    with Answers(HELLO) as server:
        async with handler_at(f"{server.url}?api-version=1&x=a%20b") as handler:
            _ = [event async for event in handler.stream(request())]
    path, _, query = server.requests[0].path.partition("?")
    assert path == "/v1/chat/completions"
    assert parse_qs(query) == {"api-version": ["1"], "x": ["a b"]}


async def test_organization_is_sent_to_openai_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library sends what it finds in the environment to every endpoint."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    with Answers(HELLO) as server:
        await ask(server)
    assert not {"openai-organization", "openai-project"} & set(server.requests[0].headers)


async def test_a_missing_key_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(AuthenticationFailed, match="OPENAI_API_KEY") as caught:
        async for _ in KINDS[0]("gpt-4o").stream(request()):
            pass
    assert not caught.value.retryable


async def test_client_of_the_app_is_used_and_not_closed() -> None:
    from openai import AsyncOpenAI

    with Answers(HELLO) as server:
        client = AsyncOpenAI(base_url=server.url, api_key="mine")
        handler = OpenAI("m", client=client)
        assert [type(event) async for event in handler.stream(request())] == [MessageDone]
        await handler.aclose()
        assert not client.is_closed()
        await client.close()
    assert server.requests[0].headers["authorization"] == "Bearer mine"


async def test_azures_client_finds_the_deployment_in_the_body() -> None:
    from openai import AsyncAzureOpenAI

    with Answers(HELLO) as server:
        where = server.url.removesuffix("/v1")
        async with AsyncAzureOpenAI(azure_endpoint=where, api_version="2024-10-21", api_key="mine") as client:
            assert [each async for each in OpenAI("m", client=client).stream(request())]
    assert server.requests[0].path == "/openai/deployments/m/chat/completions?api-version=2024-10-21"
    assert server.requests[0].body["messages"] == [{"role": "user", "content": "Hi"}]


async def test_library_encodes_values_that_are_not_json() -> None:
    with Answers(HELLO) as server:
        handler = OpenAI("m", base_url=server.url, api_key="k")
        asked = request(settings={"extra_body": {"until": datetime(2027, 1, 1, tzinfo=UTC)}})
        assert [each async for each in handler.stream(asked)]
        await handler.aclose()
    assert server.requests[0].body["until"] == "2027-01-01T00:00:00+00:00"


async def test_request_has_a_json_content_type() -> None:
    with Answers(HELLO) as server:
        await ask(server, request(tools=[WEATHER]))
    assert server.requests[0].headers["content-type"] == "application/json"


# What goes wrong


@pytest.mark.pairwise
@BOTH
@pytest.mark.parametrize(
    ("reply", "kind", "retryable"),
    [
        (failed(400), InvalidRequest, False),
        (failed(400, "maximum context length is 8 tokens"), ContextTooLong, False),
        (failed(401), AuthenticationFailed, False),
        (failed(403), AuthenticationFailed, False),
        (failed(404, "The model `m` does not exist"), ModelNotFound, False),
        (failed(429), RateLimited, True),
        (failed(429, "You exceeded your current quota"), QuotaExhausted, False),
        (failed(500), ServerFailed, True),
        (failed(503), ServerFailed, True),
        (Reply((b"<html><title>Bad gateway</title>",), 502, "text/html"), ServerFailed, True),
    ],
)
async def test_error_statuses(
    reply: Reply, kind: type[ProviderError], retryable: bool, watched: bool
) -> None:
    with Answers(reply) as server:
        error = await failure(server.url, watched=watched)
    assert type(error) is kind
    assert error.status == reply.status
    assert error.retryable is retryable
    assert len(server.requests) == 1, "retrying is the run's business"


@BOTH
async def test_an_address_without_a_version_is_named(watched: bool) -> None:
    with Answers(failed(404, "Not Found")) as server:
        error = await failure(server.url.removesuffix("/v1"), watched=watched)
    assert type(error) is InvalidRequest
    assert f"sent to {server.url.removesuffix('/v1')}/chat/completions. Most servers" in str(error)
    assert f"such as {server.url}." in str(error)


async def test_server_stopped_inside_a_stream() -> None:
    said = {"message": "The server is shutting down.", "type": "server_error", "code": "shutting_down"}
    with Answers(streamed(chunk({"content": "Once"}), event({"error": said}))) as server:
        error = await failure(server.url, watched=True)
    assert (type(error), error.status, error.retryable) == (ServerFailed, 503, True)
    assert "answered 503 for model 'm': The server is shutting down." in str(error)


@BOTH
async def test_retry_after(watched: bool) -> None:
    with Answers(failed(429, retry_after="7")) as server:
        error = await failure(server.url, watched=watched)
    assert error.retry_after == 7


@pytest.mark.pairwise
@BOTH
@pytest.mark.parametrize(
    "reply",
    [
        Reply((b"<html>Log in</html>",), content_type="text/html"),
        Reply((b'{"choices": [',)),
        Reply(()),
        Reply((b"[]",)),
        Reply((b"Not Found",), content_type="text/plain"),
    ],
)
async def test_answers_without_a_reply(reply: Reply, watched: bool) -> None:
    with Answers(reply) as server:
        error = await failure(server.url, watched=watched)
    assert type(error) is UnreadableResponse


@pytest.mark.pairwise
@BOTH
@pytest.mark.parametrize(
    "body",
    [{"error": {"message": "no", "code": 429}}, {"error": {"message": "no", "code": 429}, "choices": []}],
)
async def test_an_error_inside_a_success(body: Any, watched: bool) -> None:
    with Answers(Reply((json.dumps(body).encode(),))) as server:
        error = await failure(server.url, watched=watched)
    assert type(error) is RateLimited


@BOTH
async def test_a_completion_without_a_reply(watched: bool) -> None:
    with Answers(Reply((b'{"choices": []}',))) as server:
        error = await failure(server.url, watched=watched)
    assert type(error) is IncompleteResponse


async def test_an_error_in_a_stream() -> None:
    broken = event({"error": {"message": "overloaded", "type": "server_error"}})
    with Answers(streamed(chunk({"content": "Hel"}), broken)) as server:
        error = await failure(server.url, watched=True)
    assert type(error) is ServerFailed


@pytest.mark.parametrize(("code", "kind"), [(429, RateLimited), (504, ProviderTimeout)])
async def test_an_error_after_the_finish_reason(code: int, kind: type[ProviderError]) -> None:
    late = event({"error": {"message": "too late", "code": code}})
    with Answers(streamed(chunk({"content": "Hel"}, finish="stop"), late)) as server:
        error = await failure(server.url, watched=True)
    assert type(error) is kind
    assert "too late" in str(error)


@BOTH
async def test_a_choice_that_failed(watched: bool) -> None:
    """OpenRouter reports the error of the vendor inside the choice."""
    choice = {"finish_reason": "error", "error": {"message": "no", "code": 429}, "delta": {}, "message": {}}
    body = {"choices": [choice]}
    reply = streamed(event(body)) if watched else Reply((json.dumps(body).encode(),))
    with Answers(reply) as server:
        error = await failure(server.url, watched=watched)
    assert type(error) is RateLimited


async def test_junk_in_a_stream() -> None:
    with Answers(streamed(event(b'{"choices": ['))) as server:
        error = await failure(server.url, watched=True)
    assert type(error) is UnreadableResponse


CUT_CALL = {"tool_calls": [{"index": 0, "id": "a", **call('{"x', name="f")}]}
WHOLE_CALL = {"tool_calls": [{"index": 0, "id": "a", **call("{}", name="f")}]}


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(streamed(chunk({"content": "Hel"}), done=False, ending="cut"), id="cut"),
        pytest.param(
            streamed(chunk({"content": "Hel"}), b'data: {"c', done=False, ending="cut"), id="cut event"
        ),
        pytest.param(streamed(chunk({"content": "Hel"}), b'data: {"cho', done=False), id="half an event"),
        pytest.param(streamed(ending="cut", done=False), id="cut at once"),
        pytest.param(streamed(chunk({"content": "Hel"}), done=False), id="text without an end"),
        pytest.param(streamed(chunk({"content": "Hel"}, usage=USAGE), done=False), id="usage on the way"),
        pytest.param(
            streamed(chunk({"content": "Hel"}, usage=USAGE), chunk({"content": "lo"}), done=False),
            id="usage before the end",
        ),
        pytest.param(streamed(chunk(CUT_CALL), done=False), id="half a call"),
        pytest.param(streamed(chunk(CUT_CALL)), id="half a call, then [DONE]"),
        pytest.param(streamed(chunk(WHOLE_CALL), done=False), id="a call that another may follow"),
        pytest.param(streamed(), id="nothing but [DONE]"),
        pytest.param(streamed(done=False), id="nothing"),
    ],
)
async def test_streams_that_end_too_early(reply: Reply) -> None:
    with Answers(reply) as server:
        error = await failure(server.url, watched=True)
    assert type(error) is IncompleteResponse
    assert error.retryable


@pytest.mark.asyncio_only
async def test_a_stream_cut_anywhere_is_never_taken_for_complete() -> None:
    """A truncated stream must not look like a complete one."""
    whole = b"".join([chunk({"content": "Hel"}), chunk(CUT_CALL), chunk({"content": "lo"}), event(b"[DONE]")])
    cuts = range(0, len(whole) - 2, 5)
    with Answers(*[Reply((whole[:cut],) if cut else (), content_type=SSE) for cut in cuts]) as server:
        async with handler_at(server.url) as handler:
            for _ in cuts:
                with pytest.raises(IncompleteResponse):
                    async for _ in handler.stream(request(stream=True)):
                        pass


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(streamed(chunk({"content": "Hi"})), id="text and [DONE]"),
        pytest.param(streamed(chunk({"content": "Hi"}), chunk({}, finish="stop"), done=False), id="finish"),
        pytest.param(streamed(chunk({"content": "Hi"}), event({"usage": USAGE}), done=False), id="usage"),
        pytest.param(streamed(chunk({"content": "Hi"}), ending="cut"), id="cut after [DONE]"),
        pytest.param(
            streamed(chunk({"tool_calls": [{"index": 0, "id": "a", **call("{}", name="f")}]})),
            id="a whole call and [DONE]",
        ),
    ],
)
async def test_streams_that_are_complete(reply: Reply) -> None:
    with Answers(reply) as server:
        events = await ask(server, request(stream=True))
    assert isinstance(events[-1], MessageDone)


@BOTH
async def test_a_whole_reply_that_is_cut(watched: bool) -> None:
    with Answers(Reply((b'{"choi',), ending="cut")) as server:
        error = await failure(server.url, watched=watched)
    assert isinstance(error, IncompleteResponse)


@BOTH
async def test_refused_connection(watched: bool) -> None:
    error = await failure(refused_url(), watched=watched)
    assert type(error) is ConnectionFailed
    assert error.retryable


@BOTH
async def test_a_server_that_does_not_answer(watched: bool) -> None:
    with Server(Reply(ending="stall")) as server:
        error = await failure(server.url, watched=watched, timeout=0.3)
        assert await server.all_left()
    assert type(error) is ProviderTimeout


async def test_silent_stream_times_out() -> None:
    with Server(streamed(chunk({"content": "Hel"}), done=False, ending="stall")) as server:
        error = await failure(server.url, watched=True, chunk_timeout=0.3)
        assert await server.client_hung_up()
    assert type(error) is ProviderTimeout


async def test_comments_do_not_keep_a_stream_alive() -> None:
    pings = [chunk({"content": "x"}), *[b": ping\n\n"] * 100]
    with Server(streamed(*pings, delay=0.1)) as server:
        error = await failure(server.url, watched=True, chunk_timeout=0.5)
    assert type(error) is ProviderTimeout


async def test_first_piece_may_take_longer() -> None:
    with Server(streamed(chunk({"content": "x"}, finish="stop"), done=False, delay=0.7)) as server:
        events = await ask(server, request(stream=True), chunk_timeout=0.6)
    assert events[0] == TextDelta("x")


async def test_a_trickling_stream_meets_the_deadline_of_the_call() -> None:
    with Server(streamed(*[chunk({"content": "x"})] * 100, delay=0.1)) as server:
        error = await failure(server.url, watched=True, timeout=0.7)
    assert type(error) is ProviderTimeout


async def test_without_limits() -> None:
    with Answers(HELLO_STREAM) as server:
        events = await ask(server, request(stream=True), timeout=None, chunk_timeout=None)
    assert isinstance(events[-1], MessageDone)


# What happens to the connection


async def test_leaving_a_stream_closes_its_connection() -> None:
    with Server(streamed(chunk({"content": "Hel"}), done=False, ending="stall")) as server:
        async with handler_at(server.url) as handler:
            async with aclosing(handler.stream(request(stream=True))) as events:
                assert await anext(events) == TextDelta("Hel")
            assert await server.client_hung_up()


@BOTH
async def test_cancelling_closes_the_connection(watched: bool) -> None:
    with Server(streamed(chunk({"content": "Hel"}), done=False, ending="stall")) as server:
        async with handler_at(server.url) as handler:

            async def ask() -> None:
                async for _ in handler.stream(request(stream=watched)):
                    pass

            await server.cancels(ask)
            assert await server.client_hung_up()


async def test_a_connection_is_used_again() -> None:
    with Server(HELLO_STREAM, HELLO) as server:
        async with handler_at(server.url) as handler:
            for watched in (True, False, False):
                async for _ in handler.stream(request(stream=watched)):
                    pass
    assert server.connections == 1


async def test_two_calls_at_once_do_not_mix() -> None:
    replies = [said({"content": text}) for text in ("a", "b")]
    texts: list[Any] = []
    with Answers(*replies) as server:
        async with handler_at(server.url) as handler, anyio.create_task_group() as tasks:

            async def one() -> None:
                async for made in handler.stream(request()):
                    assert isinstance(made, MessageDone)
                    texts.append(made.message.get("content"))

            tasks.start_soon(one)
            tasks.start_soon(one)
    assert sorted(texts) == ["a", "b"]


async def test_handlers_of_one_name_have_their_own_connections() -> None:
    """anyio before 4.10 tells run variables apart by name: the second would ask the first one's server."""
    with Server(HELLO) as first, Server(HELLO) as second:
        async with (
            handler_at(first.url, api_key="k-1") as one,
            handler_at(second.url, api_key="k-2") as other,
        ):
            for handler in (one, other):
                async for _ in handler.stream(request()):
                    pass
    assert first.requests[0].headers["authorization"] == "Bearer k-1"
    assert second.requests[0].headers["authorization"] == "Bearer k-2"


async def test_after_closing_the_handler_opens_anew() -> None:
    with Server(HELLO) as server:
        async with handler_at(server.url) as handler:
            for _ in range(2):
                async for _ in handler.stream(request()):
                    pass
                await handler.aclose()
    assert server.connections == 2


# Names


@pytest.mark.parametrize(
    ("url", "name", "family"),
    [
        (None, "openai_gpt-4o", "openai"),
        ("https://api.openai.com/v1", "openai_gpt-4o", "openai"),
        ("https://api.groq.com/openai/v1", "groq_gpt-4o", "api.groq.com"),
        ("https://openrouter.ai/api/v1", "openrouter_gpt-4o", "openrouter.ai"),
        ("https://me.openai.azure.com/openai/v1", "azure_gpt-4o", "me.openai.azure.com"),
        ("https://openai.example.net/v1", "example_gpt-4o", "openai.example.net"),
        ("https://openai.internal/v1", "local_gpt-4o", "openai.internal"),
        ("http://localhost:11434/v1", "local_gpt-4o", "localhost"),
        ("http://10.0.0.1:8000/v1", "local_gpt-4o", "10.0.0.1"),
    ],
)
def test_names_and_families(url: str | None, name: str, family: str) -> None:
    handler: Handler = KINDS[0]("gpt-4o", base_url=url)
    assert handler.name == name
    assert family_of(handler) == family


def test_name_of_the_app() -> None:
    handler = KINDS[0]("openai/gpt-oss-20b", base_url="https://api.groq.com/openai/v1")
    assert handler.name == "groq_openai_gpt-oss-20b"
    assert KINDS[0]("m", name="small", priority=3).name == "small"


@pytest.mark.parametrize("end", [b"data: [DONE] \n\n", b"data:[DONE]\r\n\r\n", b"data: \n\ndata: [DONE]\n\n"])
async def test_the_end_mark_and_signs_of_life_may_have_spaces(end: bytes) -> None:
    alive = b"data:\n\n"
    with Answers(
        streamed(alive, chunk({"content": "Hel"}), b"data: \n\n", chunk({"content": "lo"}), end, done=False)
    ) as server:
        *_, done = await ask(server, request(stream=True))
    assert isinstance(done, MessageDone)
    assert done.message.get("content") == "Hello"


WHOLLY_ERRORS = pytest.mark.parametrize(
    ("error", "words"),
    [
        ({"object": "error", "message": "Too busy", "type": "server_error", "code": 503}, "Too busy"),
        ({"text": "Out of memory", "error_code": 50002}, "Out of memory"),
    ],
    ids=["Mistral's", "FastChat's"],
)


@pytest.mark.pairwise
@BOTH
@WHOLLY_ERRORS
async def test_an_answer_that_is_all_error_is_that_error(error: Any, words: str, watched: bool) -> None:
    """With the end mark after it, the text before it would pass for the whole reply."""
    reply = (
        streamed(chunk({"content": "The first half"}), event(error))
        if watched
        else Reply((json.dumps(error).encode(),))
    )
    with Answers(reply) as server:
        assert words in str(failed := await failure(server.url, watched=watched))
    assert type(failed) is ServerFailed


async def test_object_that_is_not_a_completion_is_quoted() -> None:
    with Answers(Reply((b'{"detail": "No such route"}',))) as server:
        error = await failure(server.url)
    assert type(error) is UnreadableResponse
    assert "No such route" in str(error)


# How it gets there


async def test_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch, anyio_backend_name: str) -> None:
    is_httpx = KINDS[0] is OpenAI and anyio_backend_name == "trio"
    if is_httpx and version("openai") < "3":
        pytest.skip("respx, which this module uses, misreads httpcore's requests to a proxy")
    with Server(HELLO) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        async with handler_at("http://models.invalid/v1") as handler:
            assert [event async for event in handler.stream(request())]
    assert proxy.requests[0].path == "http://models.invalid/v1/chat/completions"


async def test_no_proxy_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(HELLO) as server:
        monkeypatch.setenv("http_proxy", "http://proxy.invalid")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert await ask(server)


async def test_a_proxy_of_another_kind_is_not_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(HELLO) as server:
        monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:1")
        await failure(server.url)
    assert server.requests == []


async def test_what_a_proxy_of_another_kind_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    if KINDS[0] is OpenAICompatible:
        pytest.skip("aiohttp speaks to no such proxy")
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:1")
    error = await failure("http://127.0.0.1:9/v1")
    if find_spec("socksio"):
        assert isinstance(error, ConnectionFailed)
    else:
        assert "needs a package that is not there: Using SOCKS proxy, but the 'socksio' package" in str(error)
        assert str(error).endswith(
            "`pip install httpx[socks]`. Install it, or a version of the library that works without it."
        )
