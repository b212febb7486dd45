"""A remote agent over true sockets: what goes out, what comes back, and servers that misbehave."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
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

from interlock import Agent, Handler, RunConfig, RunContext, Runner, function_tool, handoff
from interlock.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    HandlerError,
    IncompleteResponse,
    InvalidRequest,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    ServerFailed,
    UnreadableResponse,
)
from interlock.events import HandlerEvent, MessageDone, ReasoningDelta, TextDelta, ToolCallDelta
from interlock.port import OutputSchema, Priority, Request, family_of
from interlock.testing import ScriptedHandler, call
from interlock.usage import Usage
from interlock_providers import RemoteAgent
from interlock_providers.remote_urls import UrlNotAllowed

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("watched", [False, True], ids=["whole", "streamed"])
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALLS = {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "weather"}}]}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def request(*, stream: bool = False, memory: Any = None, context: Any = None, **more: Any) -> Request:
    run: RunContext[Any] = RunContext(context=context, run_id="run-1", shared_memory=memory or {})
    options: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "agent": "A", **more}
    return Request(stream=stream, context=run, **options)


@asynccontextmanager
async def agent_at(url: str | None, **options: Any) -> AsyncGenerator[RemoteAgent]:
    agent = RemoteAgent(url, **options)
    try:
        yield agent
    finally:
        await agent.aclose()


async def ask(url: str | None, asked: Request | None = None, **options: Any) -> list[HandlerEvent]:
    async with agent_at(url, **options) as agent:
        return [event async for event in agent.stream(asked or request())]


async def answer(url: str | None, asked: Request | None = None, **options: Any) -> MessageDone:
    done = (await ask(url, asked, **options))[-1]
    assert isinstance(done, MessageDone)
    return done


async def failure(url: str | None, asked: Request | None = None, **options: Any) -> ProviderError:
    shown: list[HandlerEvent] = []
    with pytest.raises(ProviderError) as caught:
        async with agent_at(url, **options) as agent:
            async for event in agent.stream(asked or request()):
                shown.append(event)
    assert not any(isinstance(event, MessageDone) for event in shown)
    return caught.value


def host_of(server: Server) -> str:
    return server.url.removeprefix("http://").removesuffix("/v1")


def moved(to: str, status: int = 307) -> Reply:
    return Reply((), status, headers={"location": to})


# What comes back


@BOTH
async def test_an_answer(watched: bool) -> None:
    with Server(HELLO_STREAM if watched else HELLO) as server:
        *deltas, done = await ask(server.url, request(stream=watched))
    assert deltas == ([TextDelta("Hel"), TextDelta("lo")] if watched else [])
    assert done == MessageDone(
        message={"role": "assistant", "content": "Hello"},
        usage=Usage(requests=1, input_tokens=5, output_tokens=7),
        finish_reason="stop",
        model="m-1",
        response_id="r1",
    )


@BOTH
async def test_a_server_that_streams_all_or_nothing(watched: bool) -> None:
    with Server(HELLO if watched else HELLO_STREAM) as server:
        done = await answer(server.url, request(stream=watched))
    assert done.message["content"] == "Hello"


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "application/octet-stream"])
async def test_a_stream_under_a_wrong_name(kind: str) -> None:
    with Server(Reply(HELLO_STREAM.pieces, content_type=kind)) as server:
        events = await ask(server.url, request(stream=True))
    assert events[:2] == [TextDelta("Hel"), TextDelta("lo")]


@BOTH
async def test_the_side_channel_does_not_get_into_the_message(watched: bool) -> None:
    """interlock's own server says with x_agent who speaks; other servers say other things."""
    deltas = [
        {"role": "assistant", "content": "", "x_agent": {"agent": "Refunds"}},
        {"content": "Hello", "x_event": "e"},
    ]
    reply = streamed(*map(chunk, deltas), chunk({}, finish="stop", x_run="r"))
    whole = said({"content": "Hello", "x_agent": {"agent": "Refunds"}}, x_run="r")
    with Server(reply if watched else whole) as server:
        done = await answer(server.url, request(stream=watched))
    assert done.message == {"role": "assistant", "content": "Hello"}


async def test_reasoning_is_shown() -> None:
    reply = streamed(chunk({"reasoning_content": "hm"}), chunk({"content": "Hi"}, finish="stop"))
    with Server(reply) as server:
        events = await ask(server.url, request(stream=True))
    assert events[:2] == [ReasoningDelta("hm"), TextDelta("Hi")]


@pytest.mark.parametrize("usage", [{"prompt_tokens": -5, "completion_tokens": 1}, {"prompt_tokens": "5"}])
async def test_usage_that_cannot_be_true_is_not_counted(usage: Any) -> None:
    """A negative number would give the run back a budget that it has spent."""
    with Server(said({"content": "Hi"}, usage=usage)) as server:
        done = await answer(server.url)
    assert done.usage == Usage(requests=1, estimated=True)


# What goes out


async def test_the_body() -> None:
    asked = request(
        stream=True,
        messages=[
            {"role": "system", "content": "secret"},
            {"role": "user", "content": "Hi"},
            {"role": "developer", "content": "secret"},
        ],
        tools=[WEATHER],
        tool_choice="required",
        settings={"temperature": 0, "extra_body": {"a": 1}, "extra_headers": {"x-a": "1"}},
        output_schema=OutputSchema("city", {"type": "object"}),
        turn=3,
    )
    with Server(HELLO_STREAM) as server:
        await ask(server.url, asked)
    assert server.requests[0].body == {
        "model": "default",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "handoff_context": {"run_id": "run-1", "agent": "A", "turn": 3, "hops": 1},
    }
    assert "x-a" not in server.requests[0].headers


async def test_the_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment tells OpenAI, and what the library says of the machine, is for nobody else."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-secret: 1")
    monkeypatch.setenv("OPENAI_BASE_URL", refused_url())
    with Server(HELLO) as server:
        await ask(server.url)
    assert server.requests[0].path == "/v1/chat/completions"
    assert {
        name: value for name, value in server.requests[0].headers.items() if name != "content-length"
    } == {
        "host": host_of(server),
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",
        "connection": "keep-alive",
        "content-type": "application/json",
        "user-agent": "interlock",
        "x-interlock-run-id": "run-1",
    }


@pytest.mark.parametrize("end", ["", "/", "/chat/completions", "/chat/completions/"])
async def test_the_path_is_completed_once(end: str) -> None:
    with Server(HELLO) as server:
        await ask(f"{server.url}{end}?v=1&w=%20")
    assert server.requests[0].path == "/v1/chat/completions?v=1&w=%20"


async def test_what_can_be_passed() -> None:
    asked = request(messages=[{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}])
    options: Any = {"api_key": "k", "headers": {"X-Team": "t"}, "settings": {"temperature": 1}, "model": "m"}
    with Server(HELLO) as server:
        await ask(server.url, asked, pass_instructions=True, **options)
    sent = server.requests[0]
    assert [message["role"] for message in sent.body["messages"]] == ["system", "user"]
    assert (sent.body["temperature"], sent.body["model"]) == (1, "m")
    assert (sent.headers["authorization"], sent.headers["x-team"]) == ("Bearer k", "t")


async def test_a_schema_is_sent_when_the_program_says_so() -> None:
    with Server(HELLO) as server:
        await ask(server.url, settings={"response_format": {"type": "json_object"}, "extra_body": {"a": 1}})
    body = server.requests[0].body
    assert (body["response_format"], body["a"], body["handoff_context"]["hops"]) == (
        {"type": "json_object"},
        1,
        1,
    )


@pytest.mark.parametrize("model", ["default", "claude-haiku", "mistral-small"])
async def test_no_tool_is_made_up_for_a_history_with_calls(model: str) -> None:
    """Models of Claude need tools beside such a history; an agent has its own."""
    history = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call("weather", {}, id="call_1")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    with Server(HELLO) as server:
        await ask(server.url, request(messages=history, tools=[WEATHER]), model=model)
    assert server.requests[0].body["messages"] == history
    assert "tools" not in server.requests[0].body


class Transfer(BaseModel):
    order: int
    agent_url: str | None = None


@dataclass
class Plain:
    order: int
    agent_url: str | None = None


@pytest.mark.parametrize(
    "passed", [{"order": 7, "agent_url": None}, Transfer(order=7, agent_url=""), Plain(order=7)], ids=repr
)
async def test_the_input_of_the_transfer_goes_along(passed: Any) -> None:
    with Server(HELLO) as server:
        await ask(server.url, request(handoff_input=passed))
    assert server.requests[0].body["handoff_context"]["input"] == {"order": 7}


@pytest.mark.parametrize(("passed", "sent"), [("refund", "refund"), (None, None), ({}, None), (0, 0)])
async def test_any_input_goes_along(passed: Any, sent: Any) -> None:
    with Server(HELLO) as server:
        await ask(server.url, request(handoff_input=passed))
    assert server.requests[0].body["handoff_context"].get("input") == sent


async def test_an_input_that_does_not_fit_into_json() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ConfigError, match="must fit into JSON"):
        await ask(refused_url(), request(handoff_input=circle))


async def test_a_served_run_counts_the_servers_and_passes_the_trace_on() -> None:
    memory = {"handoff_context": {"hops": 2, "traceparent": PARENT, "run_id": "other"}}
    with Server(HELLO) as server:
        await ask(server.url, request(memory=memory))
    assert server.requests[0].body["handoff_context"]["hops"] == 3
    assert server.requests[0].body["handoff_context"]["run_id"] == "run-1"
    assert server.requests[0].headers["traceparent"] == PARENT


@pytest.mark.parametrize(
    "context", [{"hops": "2", "traceparent": "x\r\ny: z"}, {"hops": -1, "traceparent": 5}, "text", None]
)
async def test_a_context_that_came_in_broken(context: Any) -> None:
    """It is text of a stranger's: it must neither stop the run nor get into a header."""
    with Server(HELLO) as server:
        await ask(server.url, request(memory={"handoff_context": context}))
    assert server.requests[0].body["handoff_context"]["hops"] == 1
    assert "traceparent" not in server.requests[0].headers


async def test_without_a_run() -> None:
    with Server(HELLO) as server:
        await ask(server.url, Request(messages=[{"role": "user", "content": "Hi"}]))
    assert server.requests[0].body["handoff_context"] == {"run_id": "", "agent": "", "turn": 1, "hops": 1}
    assert "x-interlock-run-id" not in server.requests[0].headers


async def test_what_the_agent_wrote_for_itself_goes_back_to_it_alone() -> None:
    mine = {"role": "assistant", "content": "a", "reasoning_content": "thought"}
    history = [{"role": "user", "content": "Hi"}, mine, {"role": "user", "content": "Go on"}]
    with Server(HELLO) as home, Server(HELLO) as other:
        for passed in (None, {"agent_url": other.url}):
            asked = request(messages=history, handoff_input=passed)
            await ask(home.url, asked, allow=[host_of(other)])
    assert home.requests[0].body["messages"][1] == mine
    assert other.requests[0].body["messages"][1] == {"role": "assistant", "content": "a"}


# Which URL


@pytest.mark.parametrize(
    "wrap", [lambda url: {"agent_url": url}, lambda url: Transfer(order=1, agent_url=url)]
)
async def test_the_input_of_the_transfer_comes_first(wrap: Any) -> None:
    with Server(HELLO) as asked_for, Server(HELLO) as own:
        asked = request(handoff_input=wrap(asked_for.url), memory={"handoff_agent_url": own.url})
        await ask(own.url, asked, allow=[host_of(asked_for)])
    assert (len(asked_for.requests), len(own.requests)) == (1, 0)


async def test_then_its_own() -> None:
    with Server(HELLO) as own, Server(HELLO) as other:
        await ask(own.url, request(memory={"handoff_agent_url": other.url}), allow=[host_of(other)])
    assert (len(own.requests), len(other.requests)) == (1, 0)


@pytest.mark.parametrize("where", ["memory", "context"])
async def test_then_that_of_the_run(where: str) -> None:
    with Server(HELLO) as server:
        asked = request(**{where: {"handoff_agent_url": server.url}})
        await ask(None, asked, allow=[host_of(server)])
    assert len(server.requests) == 1


async def test_no_url_at_all() -> None:
    with pytest.raises(ConfigError, match="agent_url required for remote handoff") as caught:
        await ask(None)
    assert isinstance(caught.value, ValueError)
    for way in ("url=", "agent_url", "handoff_agent_url"):
        assert way in str(caught.value)


@BOTH
async def test_a_url_that_is_not_on_the_list_gets_nothing(watched: bool) -> None:
    with Server(HELLO) as server:
        asked = request(stream=watched, handoff_input={"agent_url": server.url})
        error = await failure("https://agents.example.com/v1", asked, allow=["agents.example.org"])
        assert server.connections == 0
    assert type(error) is UrlNotAllowed
    assert "agents.example.org" in str(error)
    assert not error.retryable


@pytest.mark.parametrize("where", ["memory", "context"])
async def test_a_url_of_the_run_is_not_trusted_either(where: str) -> None:
    with Server(HELLO) as server:
        error = await failure(None, request(**{where: {"handoff_agent_url": server.url}}))
        assert server.connections == 0
    assert type(error) is UrlNotAllowed


@pytest.mark.parametrize("url", ["file:///etc/passwd", "not a url", "http://a@b/", 5])
async def test_a_url_that_is_none_is_refused_as_well(url: Any) -> None:
    error = await failure("https://agents.example.com", request(handoff_input={"agent_url": url}))
    assert type(error) is UrlNotAllowed


async def test_its_own_url_may_be_asked_for() -> None:
    with Server(HELLO) as server:
        await ask(server.url, request(handoff_input={"agent_url": f"{server.url}/chat/completions"}))
    assert len(server.requests) == 1


# Whom the key is shown


async def test_the_key_is_for_its_own_url() -> None:
    with Server(HELLO) as own, Server(HELLO) as other:
        async with agent_at(own.url, allow=[host_of(other)], api_key="k", headers={"x-k": "k"}) as agent:
            for url in (own.url, other.url):
                async for _ in agent.stream(request(handoff_input={"agent_url": url})):
                    pass
    assert own.requests[0].headers["x-k"] == "k"
    assert not {"authorization", "x-k"} & other.requests[0].headers.keys()


async def test_without_a_url_of_its_own_the_key_is_for_the_list() -> None:
    with Server(HELLO) as server:
        asked = request(handoff_input={"agent_url": server.url})
        await ask(None, asked, allow=[host_of(server)], api_key="k")
    assert server.requests[0].headers["authorization"] == "Bearer k"


async def test_a_redirect_does_not_carry_the_key_elsewhere() -> None:
    with Server(HELLO) as other, Server(moved(f"{other.url}/x")) as first:
        await ask(first.url, allow=[host_of(other)], api_key="k", headers={"x-k": "k"})
    assert first.requests[0].headers["authorization"] == "Bearer k"
    assert not {"authorization", "x-k"} & other.requests[0].headers.keys()
    assert other.requests[0].body == first.requests[0].body


async def test_no_cookie_is_kept() -> None:
    """One run must leave nothing behind that the next one sends."""
    with Server(Reply(HELLO.pieces, headers={"set-cookie": "user=1; Path=/"})) as server:
        async with agent_at(server.url) as agent:
            for _ in range(2):
                async for _ in agent.stream(request()):
                    pass
    assert "cookie" not in server.requests[1].headers


# Redirects


@BOTH
@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_within_the_server_is_followed(status: int, watched: bool) -> None:
    with Server(moved("/elsewhere?v=1", status), HELLO_STREAM) as server:
        done = await answer(server.url, request(stream=watched), api_key="k")
    assert done.message["content"] == "Hello"
    assert server.requests[1].path == "/elsewhere?v=1"
    assert server.requests[1].body == server.requests[0].body
    assert server.requests[1].headers["authorization"] == "Bearer k"


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_that_would_lose_the_body_says_the_new_url(status: int) -> None:
    with Server(moved("/v2/chat/completions", status), HELLO) as server:
        error = await failure(server.url)
    assert type(error) is InvalidRequest
    assert error.status == status
    assert "/v2/chat/completions" in str(error)
    assert len(server.requests) == 1


@BOTH
async def test_a_redirect_elsewhere_is_not_followed(watched: bool) -> None:
    with Server(HELLO) as other, Server(moved(other.url)) as first:
        error = await failure(first.url, request(stream=watched))
        assert other.connections == 0
    assert type(error) is UrlNotAllowed
    assert other.url in str(error)


async def test_a_url_on_the_list_may_redirect_within_the_list_only() -> None:
    """Under one roof there may be agents that are allowed and others that are not."""
    with Server(moved("/theirs/")) as server:
        asked = request(handoff_input={"agent_url": f"{server.url}/mine"})
        error = await failure(None, asked, allow=[f"{server.url}/mine/"])
    assert type(error) is UrlNotAllowed
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "http://u:p@x/", "http://169.254.169.254/", "//x"]
)
async def test_redirects_to_where_nothing_is_to_be_sent(location: str) -> None:
    with Server(moved(location)) as server:
        error = await failure(server.url)
    assert type(error) is UrlNotAllowed


@pytest.mark.parametrize("most", [0, 3])
async def test_redirects_in_a_circle(most: int) -> None:
    with Server(moved("/again")) as server:
        error = await failure(server.url, max_redirects=most)
    assert type(error) is UnreadableResponse
    assert not error.retryable
    assert len(server.requests) == most + 1


async def test_a_redirect_to_nowhere() -> None:
    with Server(Reply((), 307)) as server:
        error = await failure(server.url)
    assert error.status == 307


# Sizes

LINE = b'data: {"choices": [{"delta": {"content": "' + b"x" * 900


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(Reply([b"x" * 1000] * 100), id="whole"),
        pytest.param(Reply([chunk({"content": "x" * 900})] * 100, content_type=SSE), id="streamed"),
        pytest.param(Reply([LINE] * 100, content_type=SSE), id="one line"),
        pytest.param(Reply([b": " + b"x" * 998 + b"\n"] * 100, content_type=SSE), id="comments"),
        pytest.param(Reply([b"\n" * 1000] * 100, content_type=SSE), id="nothing"),
        pytest.param(Reply([b"data: x\n" * 100] * 100, content_type=SSE), id="one event"),
    ],
)
@BOTH
async def test_a_reply_that_is_too_long_is_not_read(reply: Reply, watched: bool) -> None:
    endless = Reply(reply.pieces, content_type=reply.content_type, ending="stall")
    with Server(endless) as server:
        error = await failure(server.url, request(stream=watched), max_bytes=50_000)
        assert await server.client_hung_up()
    assert type(error) is UnreadableResponse
    assert "50000 bytes" in str(error)
    assert not error.retryable


@BOTH
async def test_a_reply_of_just_that_size(watched: bool) -> None:
    reply = HELLO_STREAM if watched else HELLO
    size = sum(map(len, reply.pieces))
    with Server(reply) as server:
        await ask(server.url, request(stream=watched), max_bytes=size)
    with Server(reply) as server:
        asked = request(stream=watched)
        if watched:  # the message is whole before [DONE]
            asked = request(stream=watched)
            size -= len(event(b"[DONE]")) + len(
                event({"id": "r1", "model": "m-1", "choices": [], "usage": USAGE})
            )
        error = await failure(server.url, asked, max_bytes=size - 1)
    assert type(error) is UnreadableResponse


@pytest.mark.parametrize("ending", ["end", "stall"])
async def test_an_error_of_any_size(ending: Any) -> None:
    with Server(Reply([b"x" * 10_000] * 100, 500, ending=ending)) as server:
        error = await failure(server.url, max_bytes=50_000)
        if ending == "stall":
            assert await server.client_hung_up()
    assert type(error) is ServerFailed
    assert len(str(error)) < 1000


@BOTH
async def test_a_compressed_reply_is_refused(watched: bool) -> None:
    """A few bytes may unpack to gigabytes, and the library unpacks before it can be counted."""
    bomb = gzip.compress(b" " * 10_000_000)
    with Server(Reply((bomb,), headers={"content-encoding": "gzip"})) as server:
        error = await failure(server.url, request(stream=watched), max_bytes=50_000)
    assert type(error) is UnreadableResponse
    assert "compressed" in str(error)


async def test_a_compressed_error_keeps_its_status() -> None:
    bomb = gzip.compress(b" " * 10_000_000)
    with Server(Reply((bomb,), 503, headers={"content-encoding": "gzip"})) as server:
        error = await failure(server.url)
    assert (type(error), error.status) == (ServerFailed, 503)
