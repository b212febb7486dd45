"""A model server in a process of its own, so that what it needs is not taken for what its clients need.

It speaks chat completions. It asks for the tool ``note`` first, and answers with the user's own mark then;
a user who says ``stall`` is answered with half a sentence, and nothing more.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["MARK", "echo_server"]

MARK = re.compile(r"<run-\d+>")
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


@contextmanager
def echo_server() -> Generator[str]:
    """Run the server, and give its base URL."""
    command = [sys.executable, __file__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


def _reply(body: dict[str, Any]) -> dict[str, Any]:
    """Return the message that answers a request."""
    messages = body["messages"]
    users = [str(message["content"]) for message in messages if message["role"] == "user"]
    mark = MARK.findall(" ".join(users))[-1]
    if messages[-1]["role"] == "tool" or not body.get("tools"):
        return {"role": "assistant", "content": f"{mark} is noted, and here are a few more words."}
    function = {"name": "note", "arguments": json.dumps({"mark": mark})}
    call = {"id": f"call_{mark.strip('<>')}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _chunks(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for word in re.findall(r"\s*\S+", message["content"] or ""):
        yield {"content": word}
    for index, made in enumerate(message.get("tool_calls") or ()):
        arguments = made["function"]["arguments"]
        yield {"tool_calls": [{"index": index, **made, "function": {**made["function"], "arguments": ""}}]}
        for part in (arguments[:5], arguments[5:]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}


def _finish(message: dict[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _event(**data: Any) -> bytes:
    head = {"id": "r", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + json.dumps({**head, **data}).encode() + b"\n\n"


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while await reader.readline():
            size = 0
            while (line := (await reader.readline()).strip()) != b"":
                name, _, value = line.partition(b":")
                size = int(value) if name.lower() == b"content-length" else size
            await _answer(json.loads(await reader.readexactly(size)), reader, writer)
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def _answer(body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    message = _reply(body)
    stalls = message["content"] and "stall" in str(body["messages"])
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": _finish(message)}
        whole = {"id": "r", "object": "chat.completion", "created": 1, "model": "m"}
        text = json.dumps({**whole, "choices": [choice], "usage": USAGE}).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
        if stalls:
            await reader.read(1)
            return
        writer.write(head.encode() + text)
        await writer.drain()
        return
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    pieces = [_event(choices=[{"index": 0, "delta": delta}]) for delta in _chunks(message)]
    end = [{"index": 0, "delta": {}, "finish_reason": _finish(message)}]
    rest = [_event(choices=end), _event(choices=[], usage=USAGE), b"data: [DONE]\n\n"]
    for piece in pieces[:4] if stalls else [*pieces, *rest]:
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    if stalls:
        await writer.drain()
        await reader.read(1)  # until the client hangs up
        return
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, backlog=4096, limit=2**22)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
