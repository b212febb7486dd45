"""Runs in handlers of Restate, with a journal in memory; test_restate_server.py has the server."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine

import pytest

from routelock import Agent, RunConfig, Runner, function_tool
from routelock.state import StepLost
from routelock.state.restate import restate_steps
from routelock.testing import DurableExecutorContract, ScriptedHandler, call
from routelock.testing.executor_contract import Use


class Taken(Exception):
    """Restate takes the handler away."""


class Journal:
    """Finds what was returned by its position, as the context of a handler does."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.place = 0
        self.waiting = 0
        self.lost = asyncio.Event()

    async def run_typed(self, name: str, action: Callable[[], Coroutine[None, None, str]], /) -> str:
        self.waiting += 1
        assert self.waiting == 1, "a context is for one task"
        try:
            self.place += 1
            if self.place > len(self.texts):
                self.texts.append(await self._text(action))
            return self.texts[self.place - 1]
        finally:
            self.waiting -= 1

    async def _text(self, action: Callable[[], Coroutine[None, None, str]]) -> str:
        text, lost = asyncio.create_task(action()), asyncio.create_task(self.lost.wait())
        await asyncio.wait([text, lost], return_when=asyncio.FIRST_COMPLETED)
        lost.cancel()
        if self.lost.is_set():
            text.cancel()
            raise Taken
        return await text


class TestRestate(DurableExecutorContract):
    every = 2

    @pytest.fixture(autouse=True)
    def make(self) -> None:
        self.journals: defaultdict[str, list[str]] = defaultdict(list)

    async def live(self, run_id: str, use: Use) -> None:
        async with restate_steps(Journal(self.journals[run_id])) as executor:
            await use(executor)


def config(executor: object) -> RunConfig:
    return RunConfig(executor=executor, run_id="r")  # type: ignore[arg-type]


def test_the_context_is_free_before_and_after_the_block() -> None:
    texts: list[str] = []

    async def handler() -> list[str | None]:
        ctx, outputs = Journal(texts), list[str | None]()

        async def own() -> str:
            return "own"

        for place in range(2):
            await ctx.run_typed("own", own)
            async with restate_steps(ctx) as executor:
                agent = Agent("A", model=ScriptedHandler([f"Run {place}."]))
                result = await Runner.run(agent, "Hi", run_config=config(executor))
            outputs.append(result.final_output)
        await ctx.run_typed("own", own)
        return outputs

    first = asyncio.run(handler())
    count = len(texts)
    assert asyncio.run(handler()) == first == ["Run 0.", "Run 1."]
    assert len(texts) == count, "the second attempt finds all of it"


def test_a_run_that_was_ended_before_by_other_agents_is_not_made_anew() -> None:
    texts: list[str] = []

    async def handler(name: str) -> None:
        async with restate_steps(Journal(texts)) as executor:
            await Runner.run(Agent(name, model=ScriptedHandler(["Hi."])), "Hi", run_config=config(executor))

    asyncio.run(handler("A"))
    with pytest.raises(StepLost) as lost:
        asyncio.run(handler("B"))
    assert "the agents have changed since" in str(lost.value.__cause__)


def test_a_handler_that_is_taken_away_stops_its_tool_and_says_why() -> None:
    stopped: list[str] = []

    async def handler() -> None:
        ctx = Journal([])

        @function_tool
        async def hang() -> str:
            """Hang."""
            ctx.lost.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stopped.append("stopped")
                raise
            return "never"

        agent = Agent("A", model=ScriptedHandler([call("hang")]), tools=[hang])
        async with restate_steps(ctx) as executor:
            await Runner.run(agent, "Hi", run_config=config(executor))

    with pytest.raises(Taken):
        asyncio.run(handler())
    assert stopped == ["stopped"]


def test_a_cancelled_handler_is_cancelled() -> None:
    async def handler() -> None:
        async with restate_steps(Journal([])):
            await asyncio.Event().wait()

    async def cancel() -> bool:
        task = asyncio.create_task(handler())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(cancel())
