"""The aiohttp handler alone; test_openai tests what it shares with the other handler."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio
import yaml
from answers import Answers
from servers import HELLO, HELLO_STREAM, SSE, USAGE, Reply, Server, chunk, said, streamed
from waiting import PATIENCE

from routelock import Agent, Runner, function_tool
from routelock.errors import AuthenticationFailed, ConfigError, InvalidRequest, ProviderError, RateLimited
from routelock.handlers.events import MessageDone, TextDelta
from routelock.handlers.port import Request
from routelock.testing import call, use_cassette
from routelock_providers import OpenAICompatible

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only, pytest.mark.usefixtures("answers_of_respx")]


def request(**more: Any) -> Request:
    return Request(messages=[{"role": "user", "content": "Hi"}], **more)


async def ask(handler: OpenAICompatible, asked: Request | None = None) -> Any:
    """Return the last event of a reply, and close the connections."""
    try:
        return [event async for event in handler.stream(asked or request())][-1]
    finally:
        await handler.aclose()


# Where it goes


@pytest.mark.parametrize(
    ("ending", "path"),
    [
        ("", "/v1/chat/completions"),
        ("/", "/v1/chat/completions"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/deployments/a%2Fb?api-version=1", "/v1/deployments/a%2Fb/chat/completions?api-version=1"),
    ],
)
async def test_the_address(ending: str, path: str) -> None:
    with Answers(HELLO) as server:
        await ask(OpenAICompatible("m", base_url=server.url + ending))
    assert server.requests[0].path == path


@pytest.mark.parametrize("url", ["api.groq.com/openai/v1", "ftp://x.org", "http://"])
def test_text_that_is_not_an_address(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        OpenAICompatible("m", base_url=url)


async def test_a_redirect_is_not_followed() -> None:
    """The key would be sent to the redirect's address."""
    with Answers(HELLO) as other:
        moved = Reply(status=308, headers={"location": f"{other.url}/chat/completions"})
        with Answers(moved) as server:
            with pytest.raises(InvalidRequest, match="base_url") as caught:
                await ask(OpenAICompatible("m", base_url=server.url, api_key="k"))
    assert caught.value.status == 308
    assert not other.requests


async def test_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(HELLO) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        await ask(OpenAICompatible("m", base_url="http://models.invalid/v1"))
    assert proxy.requests[0].path == "http://models.invalid/v1/chat/completions"


async def test_a_proxy_without_a_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(HELLO) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1").removeprefix("http://"))
        await ask(OpenAICompatible("m", base_url="http://models.invalid/v1"))
    assert len(proxy.requests) == 1


async def test_a_long_header_is_read() -> None:
    with Server(Reply(pieces=HELLO.pieces, headers={"x-policy": "a" * 20_000})) as server:
        assert isinstance(await ask(OpenAICompatible("m", base_url=server.url)), MessageDone)


async def test_a_connection_does_not_keep_the_refusals_that_came_over_it() -> None:
    late = Reply((b'{"error": {"message":', b' "no"}}'), status=429, delay=0.01)
    before = set(map(id, responses()))
    with Server(late) as server:
        handler = OpenAICompatible("m", base_url=server.url)
        for _ in range(5):
            with pytest.raises(RateLimited):
                async for _ in handler.stream(request()):
                    pass
        kept = [each for each in responses() if id(each) not in before]
        await handler.aclose()
    assert server.connections == 1
    assert kept == []


def responses() -> list[object]:
    """The answers that are still referenced."""
    gc.collect()
    return [each for each in gc.get_objects() if type(each).__name__ == "HttpResponse"]


async def test_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(HELLO) as server:
        monkeypatch.setenv("http_proxy", "http://proxy.invalid")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        await ask(OpenAICompatible("m", base_url=server.url))
    assert server.requests[0].path == "/v1/chat/completions"


# Headers


async def test_the_headers() -> None:
    with Server(HELLO) as server:
        handler = OpenAICompatible("m", base_url=server.url, headers={"X-Title": "a"})
        await ask(handler, request(settings={"extra_headers": {"x-trace": "b"}}))
    headers = server.requests[0].headers
    assert headers["content-type"] == "application/json"
    assert (headers["x-title"], headers["x-trace"]) == ("a", "b")
    assert "cookie" not in headers


async def test_header_replaces_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with Answers(HELLO) as server:
        handler = OpenAICompatible(
            "m", base_url=server.url, api_key="k", headers={"Authorization": "Basic abc"}
        )
        await ask(handler)
    assert server.requests[0].headers["authorization"] == "Basic abc"


async def test_azures_key_has_its_own_header(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(HELLO) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        monkeypatch.setenv("AZURE_API_KEY", "k")
        await ask(OpenAICompatible("m", base_url="http://me.openai.azure.com/openai/v1"))
    headers = proxy.requests[0].headers
    assert headers["api-key"] == "k"
    assert "authorization" not in headers


async def test_the_key_of_the_vendor(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(HELLO) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        monkeypatch.setenv("GROQ_API_KEY", "k")
        await ask(OpenAICompatible("m", base_url="http://api.groq.com/openai/v1"))
    assert proxy.requests[0].headers["authorization"] == "Bearer k"


async def test_cookies_are_not_kept() -> None:
    reply = said({"content": "a"})
    with Server(Reply(reply.pieces, headers={"set-cookie": "a=b"})) as server:
        handler = OpenAICompatible("m", base_url=server.url)
        for _ in range(2):
            async for _ in handler.stream(request()):
                pass
        await handler.aclose()
    assert "cookie" not in server.requests[1].headers


async def test_long_conversation_gives_no_warning() -> None:
    with Answers(HELLO) as server:
        long = Request(messages=[{"role": "user", "content": "é" * 2**20}])
        await ask(OpenAICompatible("m", base_url=server.url), long)
    assert server.requests[0].body["messages"] == long.messages


# Connections


async def test_hundreds_at_once() -> None:
    """aiohttp alone would let a hundred calls through at a time, and the others wait."""
    all_there = threading.Barrier(150)

    class Together(tuple[bytes, ...]):
        def __iter__(self) -> Iterator[bytes]:
            all_there.wait(PATIENCE)
            return super().__iter__()

    with Server(Reply(Together(HELLO_STREAM.pieces), content_type=SSE)) as server:
        handler = OpenAICompatible("m", base_url=server.url)

        async def one() -> None:
            first, *_ = [event async for event in handler.stream(request(stream=True))]
            assert first == TextDelta("Hel")

        async with anyio.create_task_group() as tasks:
            for _ in range(150):
                tasks.start_soon(one)
        await handler.aclose()
    assert server.connections == 150


async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    with Server(HELLO) as server:
        handler = OpenAICompatible("m", base_url=server.url)
        async for _ in handler.stream(request()):
            pass
        server.hang_up()
        await anyio.sleep(0.05)
        await ask(handler)
    assert server.connections == 2


async def test_an_empty_error_body_that_is_cut() -> None:
    with Server(Reply((b"no",), 500, ending="cut")) as server:
        with pytest.raises(ProviderError, match="no") as caught:
            await ask(OpenAICompatible("m", base_url=server.url))
    assert caught.value.status == 500


def test_each_event_loop_has_its_own_connections_and_closes_them() -> None:
    """Nothing has to be closed, and aiohttp does not warn."""
    with Server(HELLO) as server, warnings.catch_warnings():
        warnings.simplefilter("error")
        handler = OpenAICompatible("m", base_url=server.url)
        agent = Agent("a", model=handler)
        for _ in range(3):
            assert Runner.run_sync(agent, "Hi").final_output == "Hello"
        gc.collect()
    assert server.connections == 3
    assert server.hung_up.is_set()
    assert handler._client is not None
    assert handler._client._pools == {}, "the loops that ended are forgotten"


def test_a_handler_that_is_dropped_leaves_nothing_open() -> None:
    async def drop() -> bool:
        with Server(HELLO) as server:
            agent = Agent("a", model=OpenAICompatible("m", base_url=server.url))
            await Runner.run(agent, "Hi")
            del agent
            gc.collect()
            return await server.client_hung_up()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert asyncio.run(drop())


# Other libraries


def test_error_on_trio_names_the_other_handler() -> None:
    async def ask_on_trio() -> None:
        with pytest.raises(ConfigError, match=r"routelock_providers\.OpenAI"):
            async for _ in OpenAICompatible("m", base_url="http://127.0.0.1:1").stream(request()):
                pass

    trio.run(ask_on_trio)


async def test_missing_key_sends_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(AuthenticationFailed, match="OPENAI_API_KEY"):
        async for _ in OpenAICompatible("m").stream(request()):
            pass


def test_without_aiohttp_the_extra_is_named() -> None:
    code = """
import asyncio, sys
sys.modules["aiohttp"] = None
from routelock import Agent, Runner, function_tool
from routelock.errors import MissingExtra
from routelock_providers import OpenAICompatible
try:
    Runner.run_sync(Agent("a", model=OpenAICompatible("m", base_url="http://127.0.0.1:1")), "Hi")
except MissingExtra as error:
    print(error)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=PATIENCE
    )
    assert "routelock[direct]" in done.stdout, done.stderr


# Cassettes


@pytest.mark.parametrize("watched", [False, True])
async def test_it_is_answered_from_a_cassette(tmp_path: Path, watched: bool) -> None:
    reply = HELLO_STREAM if watched else HELLO
    asked: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}]}
    if watched:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    recorded = {
        "request": {
            "method": "POST",
            "uri": "https://api.openai.com/v1/chat/completions",
            "body": json.dumps(asked),
            "headers": {},
        },
        "response": {
            "status": {"code": 200, "message": "OK"},
            "headers": {"content-type": [reply.content_type]},
            "body": {"string": b"".join(reply.pieces).decode()},
        },
    }
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump({"version": 1, "interactions": [recorded]}))
    with use_cassette(path):
        done = await ask(OpenAICompatible("gpt-4o"), request(stream=watched))
    assert isinstance(done, MessageDone)
    assert done.message.get("content") == "Hello"


# What it sends is what comes back


NOT_A_NUMBER = {"reasoning_details": [{"type": "x", "score": float("nan")}], "rank": float("inf")}


@pytest.mark.parametrize("watched", [False, True])
async def test_nan_is_not_sent_back(watched: bool) -> None:
    """Python's servers write NaN. The tool has run, so the next request has to be one that can be sent."""
    asked = {"tool_calls": [{"index": 0, **call("pay")}], **NOT_A_NUMBER}
    whole = [said(asked, usage=USAGE), HELLO]
    parts = [streamed(chunk(asked), chunk({}, finish="tool_calls")), HELLO_STREAM]
    with Answers(*(parts if watched else whole)) as server:
        handler = OpenAICompatible("m", base_url=server.url)
        agent = Agent("a", model=handler, tools=[function_tool(lambda: "paid", name_override="pay")])
        if watched:
            async with Runner.run_streamed(agent, "Hi") as stream:
                async for _ in stream:
                    pass
            result = stream.result
        else:
            result = await Runner.run(agent, "Hi")
        result.state().to_json()
        await Runner.run(agent, result.to_input_list())
        await handler.aclose()
    assert [part["reasoning_details"] for part in server.requests[1].body["messages"][1:2]] == [
        [{"type": "x", "score": None}]
    ]


async def test_infinity_is_not_sent_back() -> None:
    reply = Reply((said({"content": "Hi", "x": {"y": 7}}).pieces[0].replace(b"7}", b"1e999}"),))
    with Answers(reply, HELLO) as server:
        handler = OpenAICompatible("m", base_url=server.url)
        result = await Runner.run(Agent("a", model=handler), "Hi")
        await Runner.run(Agent("a", model=handler), result.to_input_list())
        await handler.aclose()
    assert server.requests[1].body["messages"][1]["x"] == {"y": None}


@pytest.mark.parametrize("blank", ["", "  ", "\n"])
async def test_blank_key_counts_as_none(blank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose files pass on an unset variable as an empty one."""
    monkeypatch.setenv("OPENAI_API_KEY", blank)
    monkeypatch.setenv("LOCAL_API_KEY", blank)
    asked = Request(messages=[{"role": "user", "content": "Hi"}])
    for passed in (None, blank):
        with pytest.raises(AuthenticationFailed, match="There is no key for openai"):
            _ = [event async for event in OpenAICompatible("m", api_key=passed).stream(asked)]
        with Answers(HELLO) as server:
            handler = OpenAICompatible("m", base_url=server.url, api_key=passed)
            assert handler.destination().key.startswith("none, so none is sent")
            _ = [event async for event in handler.stream(asked)]
            await handler.aclose()
        assert "authorization" not in server.requests[0].headers


@dataclass
class City:
    name: str
    sights: list[str] = field(default_factory=lambda: [])


@pytest.mark.parametrize("mode", ["native", "tool", "prompted"])
async def test_an_output_is_given_while_it_comes_in_each_mode(mode: Any) -> None:
    pieces = ['{"name": "Bo', 'nn", "sights": ["Mün', 'ster", "R', 'hine"]}']
    if mode == "tool":
        parts: list[dict[str, Any]] = [{"name": "final_answer", "arguments": ""}]
        parts += [{"arguments": piece} for piece in pieces]
        calls = [{"tool_calls": [{"index": 0, "id": "a", "function": part}]} for part in parts]
        answer = streamed(*map(chunk, calls), chunk({}, finish="tool_calls"))
    else:
        answer = streamed(*[chunk({"content": piece}) for piece in pieces], chunk({}, finish="stop"))
    with Answers(answer) as server:
        handler = OpenAICompatible("m", base_url=server.url)
        agent = Agent("A", model=handler, output_type=City, output_mode=mode)
        async with Runner.run_streamed(agent, "Hi") as stream:
            found = [each async for each in stream.partial_output()]
        await handler.aclose()
    assert found == [
        City("Bo"),
        City("Bonn", ["Mün"]),
        City("Bonn", ["Münster", "R"]),
        City("Bonn", ["Münster", "Rhine"]),
    ]
