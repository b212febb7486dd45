"""A request on a closing connection is sent again, and no other request is sent twice."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from raw_server import Ending, Raw, RawServer, head, in_chunks
from servers import HELLO, HELLO_STREAM, Reply, chunk, event

from routelock import Agent, RunConfig, Runner, function_tool
from routelock.errors import ConnectionFailed, ProviderError
from routelock.handlers.port import Request
from routelock.handlers.retry import Retry
from routelock_providers import LiteLLM, OpenAICompatible, RemoteAgent, close_litellm
from routelock_providers.chat_completions.openai import OpenAI
from routelock_providers.http.client import HttpClient

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]

HANDLERS: dict[str, Callable[[str], Any]] = {
    "OpenAICompatible": lambda url: OpenAICompatible("m", base_url=url, api_key="k"),
    "OpenAI": lambda url: OpenAI("m", base_url=url, api_key="k"),
    "LiteLLM": lambda url: LiteLLM("openai/m", api_base=url, api_key="k"),
    "RemoteAgent": lambda url: RemoteAgent(url, model="m", pass_tools=True),
}
EVERY = pytest.mark.parametrize("name", HANDLERS)
WATCHED = pytest.mark.parametrize("watched", [False, True], ids=["whole", "streamed"])
ENDINGS = pytest.mark.parametrize("then", ["close", "reset"])
ONCE = RunConfig(retry=Retry(attempts=1))


@asynccontextmanager
async def handler(name: str, url: str) -> AsyncGenerator[Any]:
    made = HANDLERS[name](url)
    try:
        yield made
    finally:
        await (close_litellm() if name == "LiteLLM" else made.aclose())


async def ask(one: Any, *, watched: bool = False) -> None:
    asked = Request(messages=[{"role": "user", "content": "Hi"}], stream=watched)
    async with aclosing(one.stream(asked)) as events:
        async for _ in events:
            pass


def hello(watched: bool) -> Reply:
    return HELLO_STREAM if watched else HELLO


@pytest.mark.pairwise
@EVERY
@WATCHED
@ENDINGS
async def test_request_on_a_closing_connection_is_sent_again(name: str, watched: bool, then: Ending) -> None:
    with RawServer(hello(watched), Raw(then=then), hello(watched)) as server:
        async with handler(name, server.url) as one:
            await ask(one, watched=watched)
            await ask(one, watched=watched)
        assert server.connections == 2
        first, late, again = server.requests
        assert late.body == again.body == first.body


@pytest.mark.pairwise
@EVERY
@ENDINGS
@pytest.mark.parametrize(
    "sent",
    [b"H", b"HTTP/1.1 2", head()[:-2], b"HTTP/1.1 103 Early Hints\r\n\r\n", head(200, length=9) + b"{"],
    ids=["a byte", "half a line", "half a head", "hints", "half a body"],
)
async def test_nothing_is_sent_again_once_an_answer_has_begun(name: str, then: Ending, sent: bytes) -> None:
    with RawServer(HELLO, Raw(sent=(sent,), then=then), HELLO) as server:
        async with handler(name, server.url) as one:
            await ask(one)
            with pytest.raises(ProviderError):
                await ask(one)
        assert len(server.requests) == 2


@EVERY
@ENDINGS
async def test_a_new_connection_that_ends_is_an_error(name: str, then: Ending) -> None:
    with RawServer(Raw(then=then), HELLO) as server:
        async with handler(name, server.url) as one:
            with pytest.raises(ConnectionFailed):
                await ask(one)
        assert len(server.requests) == 1


@EVERY
@ENDINGS
async def test_request_is_sent_again_only_once(name: str, then: Ending) -> None:
    with RawServer(HELLO, Raw(then=then), Raw(then=then), HELLO) as server:
        async with handler(name, server.url) as one:
            await ask(one)
            with pytest.raises(ConnectionFailed):
                await ask(one)
        assert len(server.requests) == 3


CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "", "arguments": "{}"}}


def calling(name: str) -> tuple[bytes, ...]:
    """The whole answer of a server that silently closes the connection after each stream."""
    call = {**CALL, "function": {"name": name, "arguments": "{}"}}
    return in_chunks(
        chunk({"role": "assistant", "tool_calls": [call]}), chunk({}, finish="tool_calls"), event(b"[DONE]")
    )


@EVERY
async def test_a_server_that_closes_after_each_stream_costs_no_attempt(name: str) -> None:
    @function_tool
    async def look() -> str:
        """Look."""
        await asyncio.sleep(0)
        return "seen"

    done = in_chunks(chunk({"content": "Done."}), chunk({}, finish="stop"), event(b"[DONE]"))
    answers = [Raw(sent=each, then="close") for each in (calling("transfer_to_b"), calling("look"), done)]
    for _ in range(10):
        with RawServer(*answers) as server:
            async with handler(name, server.url) as one:
                second = Agent("b", model=one, tools=[look])
                first = Agent("a", model=one, handoffs=[second])
                run = Runner.run_streamed(first, "Hi", run_config=ONCE)
                result = await run.drain()
            assert (result.final_output, result.errors) == ("Done.", ())


@ENDINGS
async def test_a_long_body_is_sent_again_from_its_beginning(then: Ending) -> None:
    body = json.dumps({"text": "x" * 2_000_000}).encode()
    with RawServer(Reply((b"{}",)), Raw(then=then), Reply((b"{}",))) as server:
        one = HttpClient(server.url, {}, provider="p", model="m")
        for each in (b"{}", body):
            response = await one.post(each)
            assert b"".join([piece async for piece in response.aiter_bytes()]) == b"{}"
            await response.close()
        await one.aclose()
        assert [len(json.dumps(seen.body)) for seen in server.requests] == [2, len(body), len(body)]


@EVERY
def test_an_event_loop_that_ended_is_not_kept(name: str) -> None:
    """It would be with all its connections and certificates: for each `Runner.run_sync`."""
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []
    with RawServer(HELLO) as server:
        one = HANDLERS[name](server.url)

        async def ask_once() -> None:
            loops.append(weakref.ref(asyncio.get_running_loop()))
            await ask(one)

        for _ in range(3):
            asyncio.run(ask_once())
        gc.collect()
        first, second, _ = (loop() for loop in loops)
    assert (first, second) == (None, None)
