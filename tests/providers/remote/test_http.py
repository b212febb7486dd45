"""Requests to remote agents: keys, redirects, sizes, and servers that refuse."""

from __future__ import annotations

import gzip
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from answers import Answers
from remote_agents import BOTH, agent_at, answer, ask, failure, host_of, moved, request
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
    ConnectionFailed,
    InvalidRequest,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    ServerFailed,
    UnreadableResponse,
)
from routelock.handlers.events import MessageDone, TextDelta
from routelock_providers.remote.urls import UrlNotAllowed

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("answers_of_respx")]


# Which server gets the key


async def test_key_is_sent_to_the_own_url_only() -> None:
    with Answers(HELLO) as own, Answers(HELLO) as other:
        async with agent_at(own.url, allow=[host_of(other)], api_key="k", headers={"x-k": "k"}) as agent:
            for url in (own.url, other.url):
                async for _ in agent.stream(request(handoff_input={"agent_url": url})):
                    pass
    assert own.requests[0].headers["x-k"] == "k"
    assert not {"authorization", "x-k"} & other.requests[0].headers.keys()


async def test_without_url_the_key_is_sent_to_listed_urls() -> None:
    with Answers(HELLO) as server:
        asked = request(handoff_input={"agent_url": server.url})
        await ask(None, asked, allow=[host_of(server)], api_key="k")
    assert server.requests[0].headers["authorization"] == "Bearer k"


async def test_redirect_does_not_pass_the_key_to_another_server() -> None:
    with Answers(HELLO) as other, Answers(moved(f"{other.url}/x")) as first:
        await ask(first.url, allow=[host_of(other)], api_key="k", headers={"x-k": "k"})
    assert first.requests[0].headers["authorization"] == "Bearer k"
    assert not {"authorization", "x-k"} & other.requests[0].headers.keys()
    assert other.requests[0].body == first.requests[0].body


async def test_a_redirect_back_does_not_bring_the_key_back() -> None:
    """The target of a redirect must not decide where the key is used."""
    back = {"location": ""}
    with Answers(Reply((), 307, headers=back)) as other, Answers(moved(f"{other.url}/x"), HELLO) as first:
        back["location"] = f"{first.url}/admin"
        await ask(first.url, allow=[host_of(other)], api_key="k")
    assert [seen.headers.get("authorization") for seen in first.requests] == ["Bearer k", None]


async def test_no_cookie_is_kept() -> None:
    """A run must not affect the requests of the next one."""
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
    with Answers(moved("/elsewhere?v=1", status), HELLO_STREAM) as server:
        done = await answer(server.url, request(stream=watched), api_key="k")
    assert done.message.get("content") == "Hello"
    assert server.requests[1].path == "/elsewhere?v=1"
    assert server.requests[1].body == server.requests[0].body
    assert server.requests[1].headers["authorization"] == "Bearer k"


@pytest.mark.parametrize("status", [300, 301, 302, 303])
async def test_a_redirect_that_would_lose_the_body_says_the_new_url(status: int) -> None:
    with Answers(moved("/v2/chat/completions", status), HELLO) as server:
        error = await failure(server.url)
    assert type(error) is InvalidRequest
    assert error.status == status
    assert "/v2/chat/completions" in str(error)
    assert len(server.requests) == 1


@BOTH
async def test_redirect_to_another_server_is_not_followed(watched: bool) -> None:
    with Server(HELLO) as other, Server(moved(other.url)) as first:
        error = await failure(first.url, request(stream=watched))
        assert other.connections == 0
    assert type(error) is UrlNotAllowed
    assert other.url in str(error)


async def test_a_url_on_the_list_may_redirect_within_the_list_only() -> None:
    """A server may have agents that are allowed and others that are not."""
    with Answers(moved("/theirs/")) as server:
        asked = request(handoff_input={"agent_url": f"{server.url}/mine"})
        error = await failure(None, asked, allow=[f"{server.url}/mine/"])
    assert type(error) is UrlNotAllowed
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "http://u:p@x/", "http://169.254.169.254/", "//x"]
)
async def test_redirects_to_forbidden_addresses(location: str) -> None:
    with Answers(moved(location)) as server:
        error = await failure(server.url)
    assert type(error) is UrlNotAllowed


@pytest.mark.parametrize("most", [0, 3])
async def test_redirects_in_a_loop(most: int) -> None:
    with Answers(moved("/again")) as server:
        error = await failure(server.url, max_redirects=most)
    assert type(error) is UnreadableResponse
    assert not error.retryable
    assert len(server.requests) == most + 1


async def test_a_redirect_to_nowhere() -> None:
    with Answers(Reply((), 307)) as server:
        error = await failure(server.url)
    assert error.status == 307


# Sizes

LINE = b'data: {"choices": [{"delta": {"content": "' + b"x" * 900


@pytest.mark.pairwise
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
    with Answers(reply) as server:
        await ask(server.url, request(stream=watched), max_bytes=size)
    with Answers(reply) as server:
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


# What goes wrong


@pytest.mark.pairwise
@BOTH
@pytest.mark.parametrize(
    ("reply", "kind", "retryable"),
    [
        (failed(400), InvalidRequest, False),
        (failed(401), AuthenticationFailed, False),
        (failed(403), AuthenticationFailed, False),
        (failed(404), InvalidRequest, False),
        (failed(413), InvalidRequest, False),
        (failed(429), RateLimited, True),
        (failed(500), ServerFailed, True),
        (failed(503), ServerFailed, True),
        (failed(504), ProviderTimeout, True),
        (failed(508), InvalidRequest, False),
    ],
)
async def test_error_statuses(
    reply: Reply, kind: type[ProviderError], retryable: bool, watched: bool
) -> None:
    with Answers(reply) as server:
        error = await failure(server.url, request(stream=watched))
    assert (type(error), error.status, error.retryable) == (kind, reply.status, retryable)
    assert error.provider == host_of(server)
    assert error.model == "default"
    assert len(server.requests) == 1, "retrying is the run's business"


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 508])
async def test_error_quotes_the_server(status: int) -> None:
    with Answers(failed(status, "the moon is full")) as server:
        error = await failure(server.url)
    assert "the moon is full" in str(error)
    assert host_of(server) in str(error)


@pytest.mark.pairwise
@pytest.mark.parametrize(
    "body", [b"", b"<html>", b'"m"', b'{"error": 5}', b'{"error": {"message": 5}}', b"\xff"]
)
@pytest.mark.parametrize("status", [401, 500, 508])
async def test_errors_without_a_message(status: int, body: bytes) -> None:
    with Answers(Reply((body,), status)) as server:
        error = await failure(server.url)
    assert error.status == status


async def test_an_address_without_a_version_is_named() -> None:
    with Answers(failed(404)) as server:
        error = await failure(server.url.removesuffix("/v1"))
    assert f"such as {server.url}." in str(error)


@BOTH
async def test_how_long_to_wait(watched: bool) -> None:
    with Answers(failed(429, retry_after="7")) as server:
        error = await failure(server.url, request(stream=watched))
    assert error.retry_after == 7


async def test_a_missing_key_says_how_to_pass_one() -> None:
    with Answers(failed(401)) as server:
        error = await failure(server.url)
    assert "api_key=" in str(error)
    assert "_API_KEY" not in str(error), "no variable is read"


async def test_agents_that_call_each_other_in_a_loop() -> None:
    """routelock's own server answers 508 when a request has passed too many of them."""
    with Answers(failed(508, "too many hops")) as server:
        error = await failure(server.url)
    assert "loop" in str(error)


@BOTH
async def test_refused_connection(watched: bool) -> None:
    error = await failure(refused_url(), request(stream=watched))
    assert type(error) is ConnectionFailed


@BOTH
async def test_a_server_that_does_not_answer(watched: bool) -> None:
    with Server(Reply(ending="stall")) as server:
        error = await failure(server.url, request(stream=watched), timeout=0.3)
        assert await server.all_left()
    assert type(error) is ProviderTimeout


async def test_silent_stream_times_out() -> None:
    with Server(streamed(chunk({"content": "Hel"}), done=False, ending="stall")) as server:
        error = await failure(server.url, request(stream=True), chunk_timeout=0.3)
        assert await server.client_hung_up()
    assert type(error) is ProviderTimeout


# What happens to the connection


async def test_leaving_a_stream_closes_its_connection() -> None:
    with Server(streamed(chunk({"content": "Hel"}), done=False, ending="stall")) as server:
        async with agent_at(server.url) as agent:
            async with aclosing(agent.stream(request(stream=True))) as events:
                assert await anext(events) == TextDelta("Hel")
            assert await server.client_hung_up()


@BOTH
async def test_cancelling_closes_the_connection(watched: bool) -> None:
    with Server(streamed(chunk({"content": "Hel"}), done=False, ending="stall")) as server:
        async with agent_at(server.url) as agent:

            async def run() -> None:
                async for _ in agent.stream(request(stream=watched)):
                    pass

            await server.cancels(run)
            assert await server.client_hung_up()


async def test_a_connection_is_used_again_and_closing_ends_it() -> None:
    with Server(HELLO_STREAM, HELLO) as server:
        async with agent_at(server.url) as agent:
            for watched in (True, False):
                async for _ in agent.stream(request(stream=watched)):
                    pass
            assert server.connections == 1
            await agent.aclose()
            async for _ in agent.stream(request()):
                pass
            assert server.connections == 2


async def test_two_calls_at_once_do_not_mix() -> None:
    """The handler holds nothing of a call: neither its URL nor its reply."""
    texts: dict[str, Any] = {}
    with Server(said({"content": "a"})) as a, Server(said({"content": "b"})) as b:
        async with (
            agent_at(None, allow=[host_of(a), host_of(b)]) as agent,
            anyio.create_task_group() as tasks,
        ):

            async def one(url: str) -> None:
                async for made in agent.stream(request(handoff_input={"agent_url": url})):
                    assert isinstance(made, MessageDone)
                    texts[url] = made.message.get("content")

            tasks.start_soon(one, a.url)
            tasks.start_soon(one, b.url)
    assert texts == {a.url: "a", b.url: "b"}
