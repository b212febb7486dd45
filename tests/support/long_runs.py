"""Models with a small window, and agents that fill it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from routelock import Agent, Tool, Usage, tool
from routelock.errors import ContextTooLong
from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.handlers.port import Request
from routelock.testing import assert_valid


def tokens_of(request: Request) -> int:
    """Count tokens as a server might: four bytes of JSON each."""
    given = [json.dumps(each) for each in (*request.messages, *request.tools)]
    return sum(map(len, given)) // 4


class Window:
    """A model that counts tokens, refuses what is too long, and reads one page after the other.

    Args:
        turns: in how many replies it calls a tool; then it answers.
        size: how many tokens it takes.
        counts: whether it says how many tokens it was given.
        name: name of the handler.
    """

    def __init__(self, turns: int, size: int = 32_000, *, counts: bool = True, name: str = "window") -> None:
        self.name = name
        self.turns = turns
        self.size = size
        self.counts = counts
        self.asked: list[Sequence[Mapping[str, Any]]] = []
        """The messages of each request that it took."""
        self.sizes: list[int] = []
        """Their tokens."""
        self.refused = 0

    async def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        yield self.reply(request)

    def reply(self, request: Request) -> MessageDone:
        """Return the next reply, or refuse the request."""
        tokens = tokens_of(request)
        if tokens > self.size:
            self.refused += 1
            raise ContextTooLong(f"{tokens} tokens are more than {self.size}")
        assert_valid(request.messages)
        self.asked.append(request.messages)
        self.sizes.append(tokens)
        number = len(self.asked)
        message: Any = {"role": "assistant", "content": "I have read all."}
        if number <= self.turns:
            function = {"name": "read", "arguments": json.dumps({"page": number})}
            calls = [{"id": f"c{number}", "type": "function", "function": function}]
            message = {"role": "assistant", "content": None, "tool_calls": calls}
        usage = Usage(requests=1, input_tokens=tokens, output_tokens=20) if self.counts else None
        return MessageDone(message=message, usage=usage)


def page_reader(size: int = 800) -> Tool:
    """A tool that reads pages of so many bytes."""

    @tool
    def read(page: int) -> str:
        """Read a page."""
        return f"page {page}: ".ljust(size, "x")

    return read


def reader(model: Any, *, size: int = 800, **options: Any) -> Agent[Any]:
    """An agent that reads pages."""
    return Agent("reader", "You read.", model=model, tools=[page_reader(size)], **options)


def texts(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """What messages say, without their calls."""
    return [str(message.get("content") or "") for message in messages]


class Chronicler:
    """A function that writes summaries, and notes what it was given."""

    def __init__(self, write: Callable[[int], str] = "chapter {}".format) -> None:
        self.given: list[list[Any]] = []
        self.write = write

    def __call__(self, messages: list[Any]) -> str:
        self.given.append(messages)
        return self.write(len(self.given))
