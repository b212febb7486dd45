"""Many clients at once, in a process of its own: tasks come as lines of JSON, and so do the measurements.

{"port": 8000, "head": "POST ...", "body": "{...}", "expected": "42", "clients": 500, "requests": 5}
{"seconds": from the first request to the last answer, "latencies": seconds of each request}

Each client has a connection of its own, and sends its next request when it has the answer to the last one.
They read no more of HTTP than the end of an answer, so they take less time than the server that they ask.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from typing import Any

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class _Client(asyncio.Protocol):
    """One client with its requests one after another."""

    def __init__(self, request: bytes, expected: bytes, count: int) -> None:
        self._request, self._expected, self._left = request, expected, count
        self._received = bytearray()
        self._size: int | None = None
        """The length of the whole answer; 0 if it comes in chunks, None until its head is known."""
        self._began = 0.0
        self.latencies: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(f"the server has closed the connection: {exc}"))

    def ask(self) -> None:
        """Send the next request."""
        self._began = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._size is None and (end := self._received.find(b"\r\n\r\n")) >= 0:
            found = _LENGTH.search(self._received, 0, end)
            self._size = end + 4 + int(found[1]) if found else 0
        if self._size is None or (self._size and len(self._received) < self._size):
            return
        if not self._size and not self._received.endswith(b"0\r\n\r\n"):
            return
        self._answered()

    def _answered(self) -> None:
        self.latencies.append(time.perf_counter() - self._began)
        said, self._size, self._left = bytes(self._received), None, self._left - 1
        self._received.clear()
        if self._expected not in said or not said.startswith(b"HTTP/1.1 200"):
            self.done.set_exception(RuntimeError(f"not the answer: {said!r:.600}"))
        elif self._left:
            self.ask()
        else:
            self.done.set_result(None)


async def measured(task: dict[str, Any]) -> dict[str, Any]:
    """Ask by all clients at once, and return how long it took."""
    body = task["body"].encode()
    request = f"{task['head']}\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    clients: list[_Client] = []

    def made() -> _Client:
        clients.append(_Client(request, task["expected"].encode(), task["requests"]))
        return clients[-1]

    loop = asyncio.get_running_loop()
    transports = [
        (await loop.create_connection(made, "127.0.0.1", task["port"]))[0] for _ in range(task["clients"])
    ]
    began = time.perf_counter()
    for client in clients:
        client.ask()
    try:
        await asyncio.gather(*(client.done for client in clients))
        seconds = time.perf_counter() - began
    finally:
        for transport in transports:
            transport.close()
    return {"seconds": seconds, "latencies": [each for client in clients for each in client.latencies]}


def main() -> None:
    """Measure each task that comes."""
    for line in sys.stdin:
        try:
            said = asyncio.run(measured(json.loads(line)))
        except (OSError, RuntimeError) as error:
            said = {"error": str(error)}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
