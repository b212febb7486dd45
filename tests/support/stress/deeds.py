"""The tools of a random case: some do what they are asked, most have their own ideas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
from stress.speech import FOR_EVER, BrokenWords
from stress.world import World

from routelock import HandoffRequest, RunContext, Tool, ToolContext, tool
from routelock.tools.outcome import ToolResult
from routelock.usage import Usage

__all__ = ["make_tool", "now_and_then"]


class Dumb:
    """Has nothing to say."""


def make_tool(world: World, dice: Random, name: str, targets: Sequence[str]) -> Tool:
    """Return a tool; ``targets`` are whom it may hand over to."""
    work = _Work(world, name, targets)
    options: dict[str, Any] = {
        "name": name,
        "on_error": dice.choice(["report", "report", "report", "raise", work.on_error]),
        "is_enabled": dice.choice([True, True, True, now_and_then(world, f"enabled {name}")]),
        "timeout": None if world.threads else dice.choice([None, 1.0]),
    }
    if world.threads and dice.random() < 0.5:

        def in_thread(context: ToolContext[Any], x: int = 0) -> Any:
            """Work in a thread."""
            return work.at_once(context)

        return tool(**options)(in_thread)
    if dice.random() < 0.3:
        schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
        return Tool(params_json_schema=schema, on_invoke_tool=work.with_json, **options)

    async def in_loop(context: ToolContext[Any], x: int = 0) -> Any:
        """Work."""
        return await work.slowly(context)

    return tool(**options)(in_loop)


def now_and_then(world: World, what: str) -> Callable[..., Any]:
    """Return a predicate that says yes, no, or raises, depending on the turn."""

    async def answer(context: RunContext[Any], agent: Any) -> bool:
        way = world.dice(what, context.run_id, context.turn).random()
        if way < 0.01:
            raise LookupError(what)
        return way < 0.7

    return answer


class _Work:
    def __init__(self, world: World, name: str, targets: Sequence[str]) -> None:
        self.world = world
        self.name = name
        self.targets = targets

    async def with_json(self, context: ToolContext[Any], arguments: str) -> Any:
        return await self.slowly(context)

    async def slowly(self, context: ToolContext[Any]) -> Any:
        async with self._at_work():
            dice = self._begin(context)
            for _ in range(dice.choice([0, 0, 1, 3])):
                await anyio.lowlevel.checkpoint()
            way = dice.random()
            if way < 0.04 and not self.world.threads:
                await anyio.sleep(FOR_EVER)
            if way < 0.06:
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await anyio.lowlevel.checkpoint()
            elif way < 0.08 and self.world.asyncio:
                raise asyncio.CancelledError("of its own")
            return self._end(context, dice)

    def at_once(self, context: ToolContext[Any]) -> Any:
        return self._end(context, self._begin(context))

    @asynccontextmanager
    async def _at_work(self) -> AsyncGenerator[None]:
        self.world.open[self.name] += 1
        try:
            yield
        finally:
            self.world.open[self.name] -= 1

    def _begin(self, context: ToolContext[Any]) -> Random:
        self.world.begun[context.run_id, context.tool_call_id] += 1
        return self.world.dice(self.name, context.run_id, context.tool_call_id)

    def _end(self, context: ToolContext[Any], dice: Random) -> Any:
        mark = self.world.mark(self.name, context.run_id, context.tool_call_id)
        if dice.random() < 0.6:
            return f"{mark} done"
        if dice.random() < 0.3:
            raise dice.choice(
                [
                    ValueError(mark),
                    KeyError(),
                    BrokenWords(),
                    ExceptionGroup("several", [ValueError("one"), ExceptionGroup("x", [OSError("two")])]),
                    TimeoutError("late"),
                    RuntimeError("long " * 2_000),
                    ValueError("half \ud83d"),
                    StopAsyncIteration(),
                ]
            )
        return self._result(context, dice, mark)

    def _result(self, context: ToolContext[Any], dice: Random, mark: str) -> Any:
        own: list[Any] = []
        own.append(own)
        way = dice.randrange(13)
        if way < 4:
            return self._request(dice)
        if way == 4:
            usage = Usage(1, 3, 2)
            self.world.tool_usage.append(usage)
            return ToolResult(mark, usage)
        return [
            None,
            {"mark": mark, "n": float("nan"), 1: (2, {3})},
            [self._request(dice)],
            b"\xff\xfe",
            own,
            Dumb(),
            mark + "w" * 300_000,
            f"{mark} \x00\u2028 half \ud83d",
        ][way - 5]

    def _request(self, dice: Random) -> HandoffRequest:
        return HandoffRequest(
            dice.choice([*self.targets, "nobody"]),
            input=dice.choice([None, {"x": 1}]),
            reason=dice.choice([None, "the tool says so"]),
            message=dice.choice([None, None, "Over.", ""]),
            preserve_context=dice.choice([True, True, False]),
            capabilities_required=dice.choice([(), (), ("paint",)]),
            payload=dice.choice([None, None, {"nothing": "known"}]),
        )

    async def on_error(self, context: ToolContext[Any], error: Exception) -> str:
        if self.world.dice("on_error", context.run_id, context.tool_call_id).random() < 0.1:
            raise LookupError("no words for it")
        return "It did not work out."
