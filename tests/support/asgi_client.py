"""Requests to an app without a socket, as an ASGI server makes them; also in virtual time."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import anyio
from virtual_time import JumpingLoop
from waiting import PATIENCE

__all__ = ["Answer", "Exchange", "Leaving", "asked", "in_virtual_time"]

T = TypeVar("T")


class Answer:
    """What an app sent."""

    def __init__(self, messages: Sequence[Mapping[str, Any]]) -> None:
        assert messages, "nothing was sent"
        assert messages[0]["type"] == "http.response.start"
        self.status = int(messages[0]["status"])
        self.headers = {name.decode(): value.decode("latin-1") for name, value in messages[0]["headers"]}
        self.body = b"".join(message.get("body", b"") for message in messages[1:])
        self.has_end = not messages[-1].get("more_body", False)

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.text)


class Exchange:
    """A request to an app, and what was sent in answer so far.

    Args:
        body: what is sent; a mapping as JSON.
        takes: so many messages of the answer are taken, and then none any more; None takes all.
    """

    def __init__(self, body: bytes | Mapping[str, Any], *, takes: int | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._left = [{"type": "http.request", "body": data, "more_body": False}]
        self._takes = takes
        self._sent: list[Mapping[str, Any]] = []

    @property
    def answer(self) -> Answer:
        return Answer(self._sent)

    async def play(
        self, app: Any, path: str, *, method: str = "POST", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Make the request, and return the answer."""
        with anyio.fail_after(PATIENCE):
            await app(_scope(path, method, headers or {}), self._receive, self._send)
        assert self.answer.has_end or self._takes is not None, "the answer has no end"
        return self.answer

    async def _receive(self) -> Mapping[str, Any]:
        if self._left:
            return self._left.pop()
        await anyio.sleep_forever()
        raise AssertionError

    async def _send(self, message: Mapping[str, Any]) -> None:
        if len(self._sent) == self._takes:
            await anyio.sleep_forever()
        self._sent.append(message)


class Leaving(Exchange):
    """A request whose client leaves as soon as the answer has begun."""

    def __init__(self, body: bytes | Mapping[str, Any]) -> None:
        super().__init__(body, takes=99)
        self._begun = anyio.Event()

    async def _receive(self) -> Mapping[str, Any]:
        if self._left:
            return await super()._receive()
        await self._begun.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Mapping[str, Any]) -> None:
        await super()._send(message)
        self._begun.set()


def asked(
    app: Any,
    path: str,
    body: bytes | Mapping[str, Any],
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    before: Callable[[], object] | None = None,
    virtual: bool = False,
    takes: int | None = None,
) -> Answer:
    """Ask an app in an event loop of its own, and return its answer.

    Args:
        app: the ASGI app.
        path: where.
        body: see `Exchange`.
        method: such as ``"GET"``.
        headers: more of them.
        before: is called in the context of the app, before it.
        virtual: whether it is in virtual time, see `in_virtual_time`.
        takes: see `Exchange`.
    """

    async def play() -> Answer:
        if before is not None:
            before()
        return await Exchange(body, takes=takes).play(app, path, method=method, headers=headers)

    return in_virtual_time(play) if virtual else anyio.run(play)


def in_virtual_time(play: Callable[[], Awaitable[T]]) -> T:
    """Run a function in an event loop in which waiting takes no time; not for what needs threads."""
    return anyio.run(play, backend_options={"loop_factory": JumpingLoop})


def _scope(path: str, method: str, headers: Mapping[str, str]) -> dict[str, Any]:
    named = {"host": "localhost", "content-type": "application/json", **headers}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": quote(path, errors="surrogatepass").encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }
