"""The agents of `routelock.testing.executor_contract`, and the world in which they act."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, cast

import anyio

from routelock.agents.agent import Agent
from routelock.context import ToolContext
from routelock.errors import RateLimited
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.handlers.port import Request
from routelock.history.messages import Message
from routelock.testing.scripted import call, words
from routelock.tools.decorators import tool
from routelock.tools.tool import Tool
from routelock.usage import Usage

__all__ = [
    "Killed",
    "Model",
    "World",
    "answer",
    "break_off",
    "die",
    "die_after",
    "fields_of",
    "hang",
    "is_killed",
    "never",
    "paying",
    "refuse",
    "refused",
    "support_team",
    "tool_of",
    "two_at_once",
    "with_fallback",
]


class Killed(BaseException):
    """The process dies here. It is not an `Exception`, so no part of a run treats it as a failure."""


def is_killed(error: BaseException) -> bool:
    """Whether an error is `Killed`, or a group of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_killed, cast("Any", error).exceptions))
    return isinstance(error, Killed)


class World:
    """The effects of a run outside of its process; they outlive the process."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        """Each model call, such as ``"m in turn 1"``."""
        self.done: list[tuple[str, str]] = []
        """Each effect: the name of the tool, and the idempotency key without the id of the run."""
        self._keys: list[tuple[str, str]] = []

    def copy(self) -> World:
        """Return the world as it is now."""
        copied = World()
        copied.asked, copied.done = list(self.asked), list(self.done)
        return copied

    def act(self, name: str, key: str) -> None:
        """Note an effect of a tool."""
        self._keys.append((name, key))
        self.done.append((name, key.partition("/")[2] or key.partition(":")[2]))

    def keys_of(self, name: str) -> list[str]:
        """Return the idempotency keys of a tool's effects."""
        return [key for other, key in self._keys if other == name]


_Scripted = Sequence[Any] | str | Callable[[], Awaitable[Any]]
"""A reply: its text, calls, or an async function that returns either of them, or events."""


class Model:
    """A handler that answers by the number of the turn, so it needs to remember nothing.

    Args:
        world: notes its calls.
        name: its name.
        replies: its replies by turn.
        pause: seconds before each word.
    """

    def __init__(
        self, world: World, name: str, replies: Mapping[int, _Scripted], *, pause: float = 0.0
    ) -> None:
        self.name = name
        self._world = world
        self._replies = replies
        self._pause = pause

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        """Answer a request."""
        self._world.asked.append(f"{self.name} in turn {request.turn}")
        given = self._replies[request.turn]
        for event in _events(given if isinstance(given, str | Sequence) else await given()):
            if isinstance(event, BaseException):
                raise event
            if self._pause:
                await anyio.sleep(self._pause)
            yield event


def _events(reply: Any) -> Sequence[Any]:
    if isinstance(reply, tuple):
        return cast("Sequence[Any]", reply)
    texts = words(reply) if isinstance(reply, str) else ()
    return [*map(TextDelta, texts), _done(reply)]


def _done(reply: Any) -> MessageDone:
    message: Message = {"role": "assistant", "content": reply if isinstance(reply, str) else None}
    reason: Literal["stop", "tool_calls"] = "stop"
    if not isinstance(reply, str):
        message["tool_calls"], reason = list(reply), "tool_calls"
    usage = Usage(requests=1, input_tokens=7, output_tokens=3)
    return MessageDone(message=message, usage=usage, finish_reason=reason)


def tool_of(
    world: World,
    name: str,
    then: Callable[[], Awaitable[str]] | None = None,
    *,
    on_error: Literal["report", "raise"] = "report",
) -> Tool:
    """Return a tool that has an effect, and then awaits ``then`` if it is given."""

    async def act(context: ToolContext[Any]) -> str:
        world.act(name, context.idempotency_key)
        return f"{name} done" if then is None else await then()

    return tool(name=name, description=f"Do {name}.", on_error=on_error)(act)


async def _always_busy() -> str:
    raise RateLimited("Slow down.", status=429, retryable=False)


async def _fail() -> str:
    raise ValueError("nothing there")


def support_team(world: World) -> Agent[Any]:
    """Return a team with a fallback, concurrent tools, a tool that fails, nested runs, and a handoff."""
    stamp = {1: [call("stamp", id="s")], 2: "Stamped."}
    clerk = Agent("clerk", model=Model(world, "clerk", stamp), tools=[tool_of(world, "stamp")])
    bill = {3: [call("charge", id="x")], 4: "All is paid."}
    billing = Agent("billing", model=Model(world, "billing", bill), tools=[tool_of(world, "charge")])
    audit = Agent("audit", model=Model(world, "audit", {1: "It is right."}))
    asked = [call("clerk", {"input": "Stamp it."}, id="c"), call("audit", {"input": "Check it."}, id="a")]
    first = [call("pay", id="p"), call("look", id="l"), *asked]
    main: Any = Model(world, "main", {1: first, 2: [call("transfer_to_billing", id="t")]})
    busy: Any = Model(world, "busy", {1: _always_busy, 2: _always_busy})
    tools = [tool_of(world, "pay"), tool_of(world, "look", _fail), clerk.as_tool(), audit.as_tool()]
    return Agent("triage", handlers=[busy, main], tools=tools, handoffs=[billing])


def refused() -> RateLimited:
    """Return the error of an overloaded provider."""
    return RateLimited(
        "Slow down.", status=429, retry_after=3.0, provider="vendor", model="m", retryable=False
    )


def fields_of(error: RateLimited) -> dict[str, Any]:
    """Return the fields of the error that a record has to keep."""
    names = ("status", "retry_after", "provider", "model", "retryable")
    return {"message": str(error), **{name: getattr(error, name) for name in names}}


async def die() -> str:
    """Kill the process."""
    raise Killed


async def die_after(seconds: float) -> str:
    """Kill the process a little later."""
    await anyio.sleep(seconds)
    raise Killed


async def never() -> str:
    """Give no answer."""
    await anyio.sleep_forever()
    return ""


async def answer() -> str:
    """Give an answer that a run must not see."""
    return "It is another answer."


async def refuse() -> str:
    """Fail as an overloaded provider does."""
    raise refused()


async def break_off() -> Any:
    """Return events of a reply in whose middle the process is killed."""
    return (TextDelta("One "), TextDelta("tw"), Killed())


async def hang(scope: anyio.CancelScope, stopped: list[str], seconds: float) -> str:
    """Cancel the run, and wait for the cancellation for a number of seconds."""
    scope.cancel()
    try:
        await anyio.sleep(seconds)
    except anyio.get_cancelled_exc_class():
        stopped.append("stopped")
        raise
    return "never"


def paying(world: World, then: Callable[[], Awaitable[str]] | None = None) -> Agent[Any]:
    """Return an agent whose tool pays, and then awaits ``then`` if it is given."""
    model = Model(world, "m", {1: [call("pay", id="p")], 2: "Paid."})
    return Agent("A", model=model, tools=[tool_of(world, "pay", then)])


def with_fallback(
    world: World, first: Callable[[], Awaitable[Any]], then: Callable[[], Awaitable[str]] | None = None
) -> Agent[Any]:
    """Return an agent whose first model awaits ``first``, and whose second model pays."""
    second = Model(world, "second", {1: [call("pay", id="p")], 2: "Paid."})
    handlers = [Model(world, "first", {1: first, 2: first}), second]
    return Agent("A", handlers=cast("Any", handlers), tools=[tool_of(world, "pay", then)])


def two_at_once(world: World, then: Callable[[], Awaitable[str]] | None) -> Agent[Any]:
    """Return an agent that calls two tools in one reply."""
    model = Model(world, "m", {1: [call("quick", id="q"), call("slow", id="s")], 2: "Done."})
    return Agent("A", model=model, tools=[tool_of(world, "quick"), tool_of(world, "slow", then)])
