"""What can go wrong between a provider and its server, each with the one error that it means.

`FAULTS` is the table: a new failure is one line in it. docs/errors.md tells it to readers.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from raw_server import SHOWN, Raw, body, head, in_chunks
from servers import JSON, SSE, USAGE, Reply, chunk, event

from routelock.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    IncompleteResponse,
    InvalidRequest,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    ServerFailed,
    UnreadableResponse,
)

KEY = "sk-this-must-never-be-seen-0123456789"

# What is said when all is well


def said(delta: dict[str, Any], **more: Any) -> bytes:
    """One streamed chunk with a date, without which litellm cannot read some vendors'."""
    return chunk(delta, created=1, **more)


USED = event({"id": "r1", "model": "m-1", "created": 1, "choices": [], "usage": USAGE})
HEL = said({"role": "assistant", "content": "Hel"})
LO = said({"content": "lo"})
STREAM = (HEL, LO, said({}, finish="stop"), USED, event(b"[DONE]"))
REPLY: dict[str, Any] = {
    "index": 0,
    "message": {"role": "assistant", "content": "Hello"},
    "finish_reason": "stop",
}
COMPLETION = {"id": "r1", "object": "chat.completion", "created": 1, "model": "m-1", "choices": [REPLY]}
WHOLE = json.dumps({**COMPLETION, "usage": USAGE}).encode()


def hello(watched: bool) -> Raw:
    """A reply, as it is asked for."""
    return Raw(sent=in_chunks(*STREAM)) if watched else body(WHOLE)


# What is said when it is not


@dataclass(frozen=True)
class Fault:
    """One failure: what the server does, and the one error that it means."""

    name: str
    error: type[ProviderError]
    answer: Callable[[bool], Reply]
    """What the server says to a plain request, or to a streamed one."""
    status: int | None = None
    text: str = ""
    """What was shown before it failed, in a streamed run."""
    streamed_only: bool = False
    retryable: bool | None = None
    """Where it is not what the class says."""
    limits: tuple[float, float] = (20.0, 20.0)
    """Seconds for the call, and for a silence."""
    says: str = ""

    @property
    def may_pass(self) -> bool:
        """Whether the error says that the same request may succeed later."""
        return self.error.retryable if self.retryable is None else self.retryable


def same(reply: Raw) -> Callable[[bool], Raw]:
    """The same to both."""
    return lambda watched: reply


def raw(*sent: bytes, then: Any = "close") -> Callable[[bool], Raw]:
    """These bytes."""
    return same(Raw(sent=sent, then=then))


def refusal(status: int, message: str = "no", **headers: str) -> Callable[[bool], Raw]:
    """An error as OpenAI words it."""
    return same(body({"error": {"message": message, "type": "t", "code": None}}, status, **headers))


def cut(then: Any) -> Callable[[bool], Raw]:
    """An answer that breaks in its middle."""

    def answer(watched: bool) -> Raw:
        if watched:
            return Raw(sent=in_chunks(HEL, end=False), then=then)
        return Raw(sent=(head(length=len(WHOLE)), WHOLE[:40]), then=then)

    return answer


def stream(*pieces: bytes, then: Any = "keep") -> Callable[[bool], Raw]:
    """A stream that ends in good order, or not."""
    return raw(*in_chunks(*pieces, end=then == "keep"), then=then)


def either(whole: bytes, streamed: bytes) -> Callable[[bool], Raw]:
    """This reply, or this stream."""
    return lambda watched: Raw(sent=in_chunks(streamed)) if watched else body(whole, kind=JSON)


def broken_chunks(watched: bool) -> Raw:
    """Chunks of HTTP that are none."""

    # or aiohttp refuses the whole answer
    return Raw(sent=(*in_chunks(HEL, end=False), SHOWN, b"not a number\r\n"), then="close")


def endless(first: bytes, piece: bytes, kind: str = SSE) -> Callable[[bool], Raw]:
    """As much as anyone takes, up to 100 MB."""

    def sending() -> Iterable[bytes]:
        yield head(200, kind) + b"%x\r\n%s\r\n" % (len(first), first)
        one = b"%x\r\n%s\r\n" % (len(piece), piece)
        for _ in range(100_000_000 // len(piece)):
            yield one

    return same(Raw(sent=sending, then="stall"))


def packed(encoding: str) -> Callable[[bool], Raw]:
    """A few kilobytes that unpack to far more than anyone would read."""
    data = b" " * 20_000_000
    for _ in encoding.split(", "):
        data = gzip.compress(data)
    return lambda watched: body(data, kind=SSE if watched else JSON, content_encoding=encoding)


def squeezed(status: int) -> Callable[[bool], Raw]:
    """An answer in Brotli, whether or not anything here could read it."""
    return same(body(b"\x0b\x02\x80{}\n\x03", status, content_encoding="br"))


PLAIN_GZIP = body(WHOLE, content_encoding="gzip")
LATE, SOON, SILENT = (0.5, 20.0), (0.15, 20.0), (20.0, 0.3)
OVERLOADED = event({"error": {"message": "Overloaded, try later", "type": "overloaded_error"}})
NO_ROOM = b'{"error": {"message": "no", "code": 429}}'
ADD = {"index": 0, "id": "c", "function": {"name": "add", "arguments": '{"a": 1'}}
HALF_CALL = said({"tool_calls": [ADD]})
CALL_ALONE = said({"tool_calls": [{**ADD, "function": {"name": "add", "arguments": ""}}]})
"""How OpenAI begins each call."""
ONE_CALL = said({"tool_calls": [{**ADD, "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}]})
DONE = event(b"[DONE]")


def both_ways(finish: str, said: dict[str, Any], **more: Any) -> Callable[[bool], Raw]:
    """A reply that ends with a choice, whole or as the last event of a stream."""
    choice = {"index": 0, "finish_reason": finish, **more}
    streamed = {**COMPLETION, "object": "chat.completion.chunk", "choices": [{**choice, "delta": said}]}
    whole = {**choice, "message": {"role": "assistant", "content": None, **said}}
    body = json.dumps({**COMPLETION, "choices": [whole], "usage": USAGE}).encode()
    return either(body, HEL + event(streamed) + DONE)


GIVEN_UP = both_ways("error", {"content": ""}, error={"code": 502, "message": "The upstream broke"})
NUMBERED = both_ways(
    "tool_calls", {"tool_calls": [{"index": 0, "id": 7, "type": "function", "function": ADD["function"]}]}
)
PAGE = b"<html><title>Log in</title></html>"
HALF_EVENT = b'data: {"choices": [{"ind\n\n'
HALF_CHARACTER = b'data: {"choices": [{"index": 0, "delta": {"content": "\xc3'
NOT_UTF8 = LO.replace(b"lo", b"\xff\xfe")
PINGS, XS = b": ping\n\n" * 5000, b"x" * 60_000
DEEP = b"[" * 200_000

streamed = partial(Fault, streamed_only=True, text="Hel")
too_much = partial(Fault, error=UnreadableResponse, retryable=False, says="max_bytes")

FAULTS = (
    # the connection
    Fault("reset at once", ConnectionFailed, raw(then="reset")),
    Fault("closed before headers", ConnectionFailed, raw()),
    Fault("closed in the status line", ConnectionFailed, raw(b"HTTP/1.1 2")),
    Fault("closed in the headers", ConnectionFailed, raw(head()[:30])),
    Fault("reset after headers", IncompleteResponse, raw(head(), then="reset")),
    Fault("closed after headers", IncompleteResponse, raw(head())),
    Fault("closed in the body", IncompleteResponse, cut("close"), text="Hel"),
    Fault("reset in the body", IncompleteResponse, cut("reset"), text="Hel"),
    streamed("cut in an event", IncompleteResponse, stream(HEL, LO[:40], then="close")),
    streamed("cut in a character", IncompleteResponse, stream(HEL, HALF_CHARACTER, then="reset")),
    # time
    Fault("silent before headers", ProviderTimeout, raw(then="stall"), limits=SOON),
    Fault("silent in the headers", ProviderTimeout, raw(head()[:30], then="stall"), limits=SOON),
    Fault("silent after headers", ProviderTimeout, raw(head(), then="stall"), limits=SOON),
    Fault("silent in a whole body", ProviderTimeout, cut("stall"), text="Hel", limits=LATE),
    streamed("silent in a stream", ProviderTimeout, cut("stall"), limits=SILENT),
    # HTTP
    Fault("not HTTP", UnreadableResponse, raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")),
    Fault("an endless header", UnreadableResponse, raw(b"HTTP/1.1 200 OK\r\nx: " + b"x" * 200_000)),
    streamed("broken chunks", IncompleteResponse, broken_chunks),
    Fault("an empty body", UnreadableResponse, same(body(b""))),
    Fault("an empty stream", IncompleteResponse, stream(), streamed_only=True),
    Fault("no content", UnreadableResponse, raw(b"HTTP/1.1 204 No Content\r\n\r\n", then="keep")),
    # refusals
    Fault("400", InvalidRequest, refusal(400), 400),
    Fault("401", AuthenticationFailed, refusal(401), 401),
    Fault("401 that repeats the key", AuthenticationFailed, refusal(401, f"bad key {KEY}"), 401),
    Fault("403", AuthenticationFailed, refusal(403), 403),
    Fault("404", InvalidRequest, refusal(404), 404),
    Fault("408", ProviderTimeout, refusal(408), 408),
    Fault("409", InvalidRequest, refusal(409), 409, retryable=True),
    Fault("413", InvalidRequest, refusal(413), 413),
    Fault("422", InvalidRequest, refusal(422), 422),
    Fault("429", RateLimited, refusal(429), 429),
    Fault("500", ServerFailed, refusal(500), 500),
    Fault("501", ServerFailed, refusal(501), 501, retryable=False),
    Fault("502", ServerFailed, refusal(502), 502),
    Fault("503", ServerFailed, refusal(503), 503),
    Fault("504", ProviderTimeout, refusal(504), 504),
    Fault("529", ServerFailed, refusal(529), 529),
    Fault("an error page", ServerFailed, same(body(b"<html><title>Bad gateway", 502, "text/html")), 502),
    Fault("an error without a body", ServerFailed, same(body(b"", 500)), 500),
    Fault("a cut error body", ServerFailed, raw(head(500, length=1000), b'{"error": {"mess'), 500),
    Fault("an error inside a success", RateLimited, either(NO_ROOM, event(NO_ROOM)), 429),
    Fault("a refusal in an unknown encoding", AuthenticationFailed, squeezed(401), 401),
    streamed("an error in a stream", ServerFailed, stream(HEL, OVERLOADED), 529),
    streamed("an error right behind text", ServerFailed, stream(HEL + OVERLOADED, then="stall"), 529),
    Fault("an error in a choice", ServerFailed, GIVEN_UP, 502, text="Hel"),
    # what is no reply
    Fault("an HTML page", UnreadableResponse, same(body(PAGE, kind="text/html"))),
    Fault("truncated JSON", UnreadableResponse, either(WHOLE[:-30], HEL + HALF_EVENT), text="Hel"),
    Fault("a list", UnreadableResponse, either(b"[]", event(b"[1]"))),
    Fault("a number", UnreadableResponse, either(b"5", event(b"5"))),
    Fault("null", UnreadableResponse, either(b"null", event(b"null"))),
    Fault("nested too deep", UnreadableResponse, either(DEEP, HEL + event(DEEP)), text="Hel"),
    Fault("an image", UnreadableResponse, same(body(b"\x89PNG\r\n\x1a\n\x00", kind="image/png"))),
    Fault("not UTF-8", UnreadableResponse, either(WHOLE.replace(b"lo", b"\xff"), HEL + NOT_UTF8), text="Hel"),
    Fault("a number for an id", UnreadableResponse, NUMBERED, text="Hel"),
    # streams that end too early, in good order
    streamed("an end marker and nothing else", IncompleteResponse, stream(DONE), text=""),
    streamed("events without a reply", IncompleteResponse, stream(event({"detail": "x"}), DONE), text=""),
    streamed("text without an end", IncompleteResponse, stream(HEL)),
    streamed("half an event", IncompleteResponse, stream(HEL, LO[:30])),
    streamed("half a call", IncompleteResponse, stream(HEL, HALF_CALL)),
    streamed("a call before its arguments", IncompleteResponse, stream(HEL, CALL_ALONE)),
    streamed("one of two calls", IncompleteResponse, stream(HEL, ONE_CALL)),
    # too much
    too_much("a body that is too long", answer=endless(b'{"x": "', XS, JSON)),
    too_much("an endless stream", answer=endless(HEL, PINGS), text="Hel", streamed_only=True),
    too_much("an endless line", answer=endless(HEL + b"data: ", XS), text="Hel", streamed_only=True),
    too_much("a gzip bomb", answer=packed("gzip"), says=""),
    Fault("a gzip bomb in a gzip bomb", UnreadableResponse, packed("gzip, gzip"), retryable=False),
    Fault("an unknown encoding", UnreadableResponse, packed("compress"), retryable=False),
    Fault("an encoding that was not accepted", UnreadableResponse, squeezed(200), retryable=False),
    Fault("plain bytes labelled gzip", UnreadableResponse, same(PLAIN_GZIP), retryable=False),
)  # fmt: skip
