"""One call and several, streamed or not, through an executor or not, sync, async, of agents: one behaviour.

The ways are a pairwise choice of all that there are: each value of a column meets each value of every other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from routelock import Agent, RunConfig, Runner, RunResult, function_handler, function_tool
from routelock.errors import ToolError
from routelock.handlers.port import Request
from routelock.run.events import RunDone
from routelock.run.executor import InProcess
from routelock.state.journal import Journal
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio

WHO: ContextVar[str] = ContextVar("who", default="the caller")


@dataclass(frozen=True, slots=True)
class Way:
    """How the calls of a reply are carried out."""

    calls: int
    tool: str
    executor: str
    streamed: bool
    at_once: int | None = None

    def __str__(self) -> str:
        how = "streamed" if self.streamed else "plain"
        return f"{self.calls} {self.tool}, {self.executor}, {how}, {self.at_once} at once"


WAYS = [
    Way(1, "async", "none", streamed=False),
    Way(1, "sync", "in process", streamed=True),
    Way(1, "agent", "journal", streamed=False, at_once=1),
    Way(1, "async", "journal", streamed=True, at_once=2),
    Way(1, "sync", "none", streamed=False, at_once=1),
    Way(1, "agent", "none", streamed=True),
    Way(2, "async", "none", streamed=True, at_once=1),
    Way(2, "sync", "journal", streamed=False),
    Way(2, "agent", "in process", streamed=False, at_once=2),
    Way(2, "async", "in process", streamed=False),
    Way(2, "sync", "none", streamed=True, at_once=2),
    Way(2, "agent", "none", streamed=False),
    Way(2, "agent", "journal", streamed=True, at_once=1),
]
each_way = pytest.mark.parametrize("way", WAYS, ids=str)


class Abort(BaseException):
    """What is no failure of a tool: the run is not to answer it."""


def tools(kind: str, work: Any, **settings: Any) -> list[Any]:
    """Two tools of a kind that do ``work(name)``: two functions, or two agents."""

    async def asked(request: Request) -> str:
        await anyio.lowlevel.checkpoint()
        return str(work(request.agent))

    if kind == "agent":
        return [Agent(name, model=function_handler(asked)).as_tool(**settings) for name in ("a", "b")]
    made: list[Any] = []
    for name in ("a", "b"):

        async def later(input: str, name: str = name) -> str:
            await anyio.lowlevel.checkpoint()
            return str(work(name))

        def now(input: str, name: str = name) -> str:
            return str(work(name))

        function: Any = later if kind == "async" else now
        del function.__annotations__["name"]
        made.append(replace(function_tool(function, name_override=name), **settings))
    return made


def agent(way: Way, work: Any, **settings: Any) -> Agent[Any]:
    calls = [call(name, {"input": "Go"}, id=f"c-{name}") for name in "ab"[: way.calls]]
    made = tools(way.tool, work, **settings)
    return Agent("A", model=ScriptedHandler([calls, "Done."]), tools=made)


def answers(result: RunResult[Any]) -> list[Any]:
    return [message.get("content") for message in result.messages if message["role"] == "tool"]


@asynccontextmanager
async def opened(way: Way, path: Path) -> AsyncIterator[Any]:
    """Return what runs an agent that way, and gives its result."""
    settings: dict[str, Any] = {"tools_at_once": way.at_once}
    if way.executor == "in process":
        settings |= {"executor": InProcess(), "run_id": "r"}
    config = RunConfig(**settings)
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(Journal(path / "runs.db"))

        async def run(made: Agent[Any]) -> RunResult[Any]:
            if way.executor != "journal":
                if not way.streamed:
                    return await Runner.run(made, "Hi", run_config=config)
                return await Runner.run_streamed(made, "Hi", run_config=config).drain()
            if not way.streamed:
                return await journal.run(made, "Hi", run_id="r", run_config=config)
            async with aclosing(journal.stream(made, "Hi", run_id="r", run_config=config)) as events:
                ended = [event async for event in events][-1]
            assert isinstance(ended, RunDone)
            return ended.result

        yield run


@each_way
async def test_what_a_call_sets_is_seen_by_nothing_else(way: Way, tmp_path: Path) -> None:
    seen: list[str] = []

    def work(name: str) -> str:
        seen.append(WHO.get())
        WHO.set(name)
        return WHO.get()

    WHO.set("me")
    made = agent(way, work)
    async with opened(way, tmp_path) as run:
        result = await run(made)
    assert answers(result) == ["a", "b"][: way.calls]
    assert seen == ["me"] * way.calls
    assert WHO.get() == "me"


@each_way
async def test_what_is_no_failure_comes_out_as_it_is(way: Way, tmp_path: Path) -> None:
    raised = Abort("enough")

    def work(name: str) -> str:
        if name == "ab"[way.calls - 1]:
            raise raised
        return "ok"

    async with opened(way, tmp_path) as run:
        with pytest.raises(Abort) as caught:
            await run(agent(way, work))
    assert caught.value is raised
    assert WHO.get() == "the caller"


@each_way
async def test_every_call_is_answered_when_one_ends_the_run(way: Way, tmp_path: Path) -> None:
    def work(name: str) -> str:
        if name == "ab"[way.calls - 1]:
            raise LookupError("gone")
        return "ok"

    async with opened(way, tmp_path) as run:
        with pytest.raises(ToolError, match=r"LookupError.*gone") as caught:
            await run(agent(way, work, on_error="raise"))
    result = caught.value.result
    *others, last = answers(result)
    assert others == ["ok"][: way.calls - 1]
    assert "gone" in last
    sent = [{**message} for message in result.to_input_list()]
    for message in sent:
        message.pop("_agent", None)
    assert sent == result.messages  # nothing had to be repaired


@each_way
async def test_tool_disabled_after_the_offer_is_not_run(way: Way, tmp_path: Path) -> None:
    asked: list[int] = []

    async def once_each(context: Any, owner: Any) -> bool:
        await anyio.lowlevel.checkpoint()
        asked.append(context.turn)
        return len(asked) <= 2  # the offer of both

    def work(name: str) -> str:
        raise AssertionError(name)

    async with opened(way, tmp_path) as run:
        result = await run(agent(way, work, is_enabled=once_each))
    expected = [
        f"Tool {name!r} is not available now, so this call was not made." for name in "ab"[: way.calls]
    ]
    assert answers(result) == expected
    assert result.final_output == "Done."
