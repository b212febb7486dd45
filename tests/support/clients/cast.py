"""The agents that the clients ask: each looks at the messages to answer, so many runs may share it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import anyio

from routelock import Agent, ProviderError, function_tool, handoff
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.handlers.port import Request
from routelock.history import Citation
from routelock.history.messages import last_user_text
from routelock.testing import ScriptedHandler, call, reply
from routelock.testing.scripted import Reply

GREETING = "Hello from the greeter, my friend."
ASIDES = ("Let me look that up.", "The specialist knows more.")
ORDER = "Order 7 left on Monday."
DESK = "\n\n".join((*ASIDES, ORDER))
"""What the desk and its specialist say in one run: three texts, a blank line between them."""
FORECAST = "It is 21 degrees in Paris and in Rome."
POLYGLOT = (
    "caf\u00e9 \U0001f600 a\u2028b\u2029c \u6f22\u5b57 \x85 e\u0301 "
    '\U0001f469\u200d\U0001f469\u200d\U0001f467 "\\\n\t</script>'
)
"""Letters that some line splitter, some escaper or some cutter of bytes has got wrong before."""
BEATS = 12
PAGE = "https://weather.example"


@dataclass
class Log:
    """What happened on the server; the tests read it from another thread."""

    begun: list[str] = field(default_factory=list[str])
    """The user's words in each run that goes on without an end."""
    cancelled: list[str] = field(default_factory=list[str])
    """The user's words in each run that was cancelled half-way."""
    looked_up: list[int] = field(default_factory=list[int])
    stamped: list[str] = field(default_factory=list[str])


class Plays:
    """A handler that answers every request with what a function makes of it."""

    def __init__(
        self, name: str, part: Callable[[Request], Reply | AsyncIterator[HandlerEvent]], **options: Any
    ) -> None:
        self.name = name
        self._part = part
        self._options = options

    async def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        once = ScriptedHandler([self._part], name=self.name, **self._options)  # type: ignore[list-item]
        async with aclosing(once.stream(request)) as events:
            async for event in events:
                yield event


def asked(request: Request) -> str:
    """The last words of the user; notes of the runtime have the same role."""
    return last_user_text(request.messages)


def answered(request: Request) -> bool:
    """Whether a tool has answered since."""
    return request.messages[-1]["role"] == "tool"


def greeter() -> Agent[Any]:
    return Agent("greeter", "Greet.", model=Plays("greeter", lambda _: GREETING))


def desk(log: Log) -> Agent[Any]:
    """It uses a tool of its own and hands over, and says something before each."""

    @function_tool
    def look_up(order: int) -> str:
        log.looked_up.append(order)
        return "left on Monday"

    def part(request: Request) -> Reply:
        if answered(request):
            return reply(ASIDES[1], calls=[call("transfer_to_specialist")])
        return reply(ASIDES[0], calls=[call("look_up", {"order": 7})])

    specialist = Agent("specialist", "Answer.", model=Plays("specialist", lambda _: ORDER))
    return Agent("desk", "Serve.", model=Plays("desk", part), tools=[look_up], handoffs=[handoff(specialist)])


def forecaster(log: Log) -> Agent[Any]:
    """It calls the caller's tool, its own, and the caller's once more, all in the same breath."""

    @function_tool
    def stamp(what: str) -> str:
        log.stamped.append(what)
        return "stamped"

    def part(request: Request) -> Reply:
        if answered(request):
            return FORECAST
        paris, rome = (call("get_weather", {"city": city}) for city in ("Paris", "Rome"))
        return reply("One moment.", calls=[paris, call("stamp", {"what": asked(request)}), rome])

    return Agent("forecaster", "Forecast.", model=Plays("forecaster", part), tools=[stamp])


def broken() -> Agent[Any]:
    """Its model fails in the middle of a sentence."""

    async def part(request: Request) -> AsyncIterator[HandlerEvent]:
        yield TextDelta("Half an ")
        raise ProviderError("the model went away")

    return Agent("broken", "Break.", model=Plays("broken", part))


def endless(log: Log) -> Agent[Any]:
    """It says one word and then nothing, until somebody cancels it."""

    async def part(request: Request) -> AsyncIterator[HandlerEvent]:
        log.begun.append(asked(request))
        try:
            yield TextDelta("Tick ")
            await anyio.sleep_forever()
        finally:
            log.cancelled.append(asked(request))

    return Agent("endless", "Go on.", model=Plays("endless", part))


def slow() -> Agent[Any]:
    """Its tool takes so long that the server has to show signs of life."""

    @function_tool
    async def think() -> str:
        await anyio.sleep(0.3)
        return "done"

    def part(request: Request) -> Reply:
        return "That took a while." if answered(request) else call("think")

    return Agent("slow", "Think.", model=Plays("slow", part), tools=[think])


def polyglot() -> Agent[Any]:
    return Agent("polyglot", "Speak.", model=Plays("polyglot", lambda _: POLYGLOT, pieces=list))


def duet() -> Agent[Any]:
    """Two runs that take turns: none says its next word before the other has said one."""
    said: dict[tuple[str, int], anyio.Event] = defaultdict(anyio.Event)

    async def part(request: Request) -> AsyncIterator[HandlerEvent]:
        mine = asked(request)
        other = "right" if mine == "left" else "left"
        for beat in range(BEATS):
            if beat:
                await said[other, beat - 1].wait()
            yield TextDelta(f"{mine}{beat} ")
            said[mine, beat].set()
        words = "".join(f"{mine}{beat} " for beat in range(BEATS))
        yield MessageDone(message={"role": "assistant", "content": words})

    return Agent("duet", "Sing.", model=Plays("duet", part))


def bookkeeper() -> Agent[Any]:
    """It says something before it answers with JSON."""

    @function_tool
    def open_book() -> str:
        return "open"

    def part(request: Request) -> Reply:
        return '{"number": 7}' if answered(request) else reply("Let me see.", calls=[call("open_book")])

    return Agent("bookkeeper", "Write.", model=Plays("bookkeeper", part), tools=[open_book])


def thinker() -> Agent[Any]:
    """Its model shows its reasoning."""
    return Agent("thinker", "Think.", model=Plays("thinker", lambda _: reply("Yes.", reasoning="Hm, hm.")))


def reporter() -> Agent[Any]:
    """It cites a page in each of its two texts."""

    @function_tool
    def wait() -> str:
        return "over"

    def part(request: Request) -> Reply:
        if answered(request):
            return reply("It pours.", citations=[Citation(url=f"{PAGE}/pours", title="Now", start=3, end=8)])
        source = Citation(url=f"{PAGE}/rains", title="Before", start=3, end=8)
        return reply("It rains.", calls=[call("wait")], citations=[source])

    return Agent("reporter", "Report.", model=Plays("reporter", part), tools=[wait])


def everyone(log: Log) -> list[Agent[Any]]:
    """All agents that the scenes ask."""
    return [
        greeter(), desk(log), forecaster(log), broken(), endless(log), slow(), polyglot(), duet(),
        bookkeeper(), thinker(), reporter(),
    ]  # fmt: skip
