"""MCP over standard input and output, with pipes in their place."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
from scripted_agents import agent

from routelock import ConfigError
from routelock.serving import MCP, ServeConfig, serve_stdio
from routelock.serving.mcp.stdio import ProtocolStreams, protocol_streams

pytest.importorskip("mcp_types", reason="version 2 of the mcp package serves")

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def lines(*said: Any) -> io.TextIOWrapper:
    """A standard input that has these messages."""
    bodies = [each if isinstance(each, str) else json.dumps({"jsonrpc": "2.0", **each}) for each in said]
    return io.TextIOWrapper(io.BytesIO("".join(f"{body}\n" for body in bodies).encode()), encoding="utf-8")


def call_of(request_id: float, said: str) -> str:
    """A call of an agent; the text is written as it is."""
    params = f'{{"name": "a", "arguments": {{"input": "{said}"}}}}'
    return f'{{"jsonrpc": "2.0", "id": {request_id}, "method": "tools/call", "params": {params}}}'


async def answers(*said: Any) -> list[Any]:
    """What the server writes for these messages."""
    streams: ProtocolStreams = (lines(*said), io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    with anyio.fail_after(60):
        await serve_stdio(agent("A"), ServeConfig(mcp=MCP(instructions="Ask A.")), streams)
    streams[1].flush()
    written: Any = streams[1].buffer
    return [json.loads(line) for line in written.getvalue().splitlines()]


@pytest.mark.anyio
async def test_it_serves_until_the_input_ends() -> None:
    [answer] = await answers({"id": 1, "method": "initialize", "params": HELLO})
    assert (answer["result"]["serverInfo"]["name"], answer["result"]["instructions"]) == ("A", "Ask A.")


ODD: Mapping[str, tuple[str, int, int | None]] = {
    # a line, the code of the error, the id that it has
    "half of a character": (call_of(7, r"\ud83d"), -32700, 7),
    "no JSON": ("{nope", -32700, None),
    "nested too deeply": (call_of(7, "x").replace('"x"', "[" * 900 + "]" * 900), -32700, 7),
    "a number that is none": (call_of(7, "x").replace('"x"', "NaN"), -32700, 7),
    "several requests": (f"[{call_of(7, 'x')}]", -32600, None),
    "an id of another type": (call_of(1.5, "x"), -32600, None),
    "no version": ('{"id": 7, "method": "ping"}', -32600, 7),
}


@pytest.mark.anyio
@pytest.mark.parametrize("what", ODD)
async def test_a_line_that_cannot_be_read_is_answered(what: str) -> None:
    """Its client would wait for ever: JavaScript writes half of a character as an escape."""
    line, code, request_id = ODD[what]
    refused, welcome = await answers(line, {"id": 1, "method": "initialize", "params": HELLO})
    assert (refused["error"]["code"], refused["id"]) == (code, request_id)
    assert welcome["id"] == 1, "the connection goes on"


@pytest.mark.anyio
async def test_an_empty_line_is_no_message() -> None:
    hello = {"id": 1, "method": "initialize", "params": HELLO}
    assert [each["id"] for each in await answers("", hello)] == [1]


@pytest.mark.anyio
async def test_agents_that_cannot_be_served_are_an_error() -> None:
    streams: ProtocolStreams = (lines(), lines())
    with pytest.raises(ConfigError, match="are the same MCP tool"):
        await serve_stdio([agent("a b"), agent("a-b")], streams=streams)


@contextmanager
def descriptors() -> Iterator[tuple[int, int]]:
    """Put pipes in the place of standard input and output; yields their other ends."""
    kept = [os.dup(number) for number in (0, 1)]
    (source, to_source), (from_target, target) = os.pipe(), os.pipe()
    os.dup2(source, 0)
    os.dup2(target, 1)
    os.close(source)
    os.close(target)
    try:
        yield to_source, from_target
    finally:
        for number, descriptor in enumerate(kept):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(from_target)


def test_what_else_is_printed_does_not_reach_the_protocol(capfd: pytest.CaptureFixture[str]) -> None:
    with capfd.disabled(), descriptors() as (to_source, from_target):
        os.write(to_source, b"asked\n")
        os.close(to_source)
        with protocol_streams() as (source, target):
            os.write(1, b"")
            assert os.read(0, 9) == b"", "nothing else reads what the client says"
            assert source.readline() == "asked\n"
            target.write("answered\n")
            target.flush()
        sys.stdout.flush()
        os.write(1, b"after\n")
        assert os.read(from_target, 99) == b"answered\nafter\n"
