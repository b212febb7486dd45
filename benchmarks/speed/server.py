"""A model server that costs next to nothing: what it says is written before it is asked.

It keeps nothing between requests. What it answers depends on the body alone:

* a tool named ``transfer_to_...`` (agno's has another name) is offered and was not called: a call of it;
* ``lookup`` is offered and was called less often than the marker says: a call of it;
* else text, in as many chunks as the marker says when a stream is asked for.

The marker stands in the user's text: ``[turns=3 chunks=100 wait=50 pace=5]``, with ``wait`` in milliseconds,
and ``pace``, which may be left out, in milliseconds between two chunks.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

Answer = Callable[[bytes], tuple[tuple[bytes, ...], float, float]]
"""Gives the pieces of the answer to a body, and the seconds before them and between them."""

_MARKER = re.compile(rb"\[turns=(\d+) chunks=(\d+) wait=(\d+)(?: pace=(\d+))?\]")
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_LOOKUP = re.compile(rb'"name": ?"lookup"')
_STREAM = re.compile(rb'"stream": ?true')
_TRANSFER = re.compile(
    rb'"name": ?"(transfer_to_\w+|delegate_task_to_member)", ?"description"'  # a spec, not a call
)
_ASKS_WHY = re.compile(rb'"required": ?\["reason"\]')
_USAGE = {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60}
_HEAD = {"id": "chatcmpl-0123456789abcdef", "created": 1_700_000_000, "model": "gpt-4o-mini-2024-07-18"}


def marker(turns: int = 1, chunks: int = 1, wait: int = 0, pace: int = 0) -> str:
    """Return the text that tells the server what to do."""
    paced = f" pace={pace}" if pace else ""
    return f"[turns={turns} chunks={chunks} wait={wait}{paced}] What is the answer?"


def answer(body: bytes) -> tuple[tuple[bytes, ...], float, float]:
    """Return the pieces of the answer to a request, and the seconds before them and between them."""
    found = _MARKER.search(body)
    turns, chunks, wait, pace = (int(each or 0) for each in found.groups()) if found else (1, 10, 0, 0)
    transfer = _transfer_in(body)
    looked_up = len(_LOOKUP.findall(body)) - 1  # the tool's own spec says the name once
    message: dict[str, Any] = {"role": "assistant", "content": "The answer is 42."}
    if transfer or 0 <= looked_up < turns:
        name, arguments = transfer or ("lookup", json.dumps({"key": f"k{looked_up}"}))
        function = {"name": name, "arguments": arguments}
        call = {"id": f"call_{max(0, looked_up)}_{name}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    said = _streamed(message, chunks) if _STREAM.search(body) else (whole(message),)
    return said if pace else (b"".join(said),), wait / 1000, pace / 1000


def _transfer_in(body: bytes) -> tuple[str, str] | None:
    """Return name and arguments of the transfer that is to be made, if there is one."""
    offered = _TRANSFER.search(body)
    if offered is None or len(re.findall(rb'"name": ?"%s"' % offered[1], body)) > 1:
        return None
    given: dict[str, str] = {"reason": "It has to be looked up."} if _ASKS_WHY.search(body) else {}
    if offered[1] == b"delegate_task_to_member":
        given = {"member_id": "specialist", "task": "Look it up."}
    return offered[1].decode(), json.dumps(given)


def whole(message: dict[str, Any], usage: dict[str, int] | None = None) -> bytes:
    """Return an answer in one piece."""
    finish = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "message": {**message, "refusal": None}, "logprobs": None, "finish_reason": finish}
    return as_json({**_HEAD, "object": "chat.completion", "choices": [choice], "usage": usage or _USAGE})


def as_json(said: Any, status: str = "200 OK") -> bytes:
    """Return an answer with a head."""
    body = json.dumps(said).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _streamed(message: dict[str, Any], chunks: int) -> tuple[bytes, ...]:
    if "tool_calls" in message:
        return _events([{**message, "tool_calls": [{"index": 0, **message["tool_calls"][0]}]}], "tool_calls")
    return _text(chunks)


@lru_cache
def _text(chunks: int) -> tuple[bytes, ...]:
    texts = [f"tok{number % 10} " for number in range(chunks)] if chunks > 1 else ["The answer is 42."]
    pieces = ({"content": text} for text in texts)
    return _events([{"role": "assistant", "content": ""}, *pieces], "stop")


def _events(deltas: list[dict[str, Any]], finish: str) -> tuple[bytes, ...]:
    chunks = [
        _chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]) for delta in deltas
    ]
    chunks.append(_chunk([{"index": 0, "delta": {}, "logprobs": None, "finish_reason": finish}]))
    chunks.append(_chunk([], usage=_USAGE))
    first, *lines = [b"%x\r\n%s\r\n" % (len(each), each) for each in (*chunks, b"data: [DONE]\n\n")]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return (head + first, *lines[:-1], lines[-1] + b"0\r\n\r\n")


def _chunk(choices: list[Any], usage: Any = None) -> bytes:
    said = {**_HEAD, "object": "chat.completion.chunk", "system_fingerprint": "fp_b", "choices": choices}
    if usage:
        said["usage"] = usage
    return b"data: " + json.dumps(said, separators=(",", ":")).encode() + b"\n\n"


class _Connection(asyncio.Protocol):
    """One client: requests come one after another."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._received = bytearray()
        self._wanted = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < self._wanted:
            return
        head, _, body = bytes(self._received).partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        self._wanted = len(head) + 4 + (int(length[1]) if length else 0)
        if len(self._received) < self._wanted:
            return
        self._received.clear()
        self._wanted = 0
        pieces, wait, pace = self._answer(body)
        if not wait and not pace:
            self._transport.write(pieces[0])
            return
        loop = asyncio.get_running_loop()
        for place, piece in enumerate(pieces):
            loop.call_later(wait + place * pace, self._transport.write, piece)


async def serve(how: Answer = answer) -> None:
    """Serve on a free port, and print it."""

    def connection() -> _Connection:
        return _Connection(how)

    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
