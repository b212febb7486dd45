"""How many of a reply's tools run at the same time."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from plain_and_streamed import both

from routelock import Agent, RunConfig, Runner, function_tool
from routelock.errors import ConfigError
from routelock.testing import ScriptedHandler, call

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]


class Gauge:
    """Counts how many tools are at work, and in which order they began."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.began: list[int] = []

    async def work(self, number: int) -> str:
        self.now += 1
        self.began.append(number)
        self.most = max(self.most, self.now)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        self.now -= 1
        return f"done {number}"


def desk(gauge: Gauge, *names: str) -> Agent[Any]:
    """An agent that calls, all in one reply, tools of its own and other agents that work too."""

    @function_tool
    async def work(number: int) -> str:
        """Work."""
        return await gauge.work(number)

    others = [
        Agent(name, model=ScriptedHandler([call("work", {"number": place}), "Fine."]), tools=[work]).as_tool()
        for place, name in enumerate(names)
        if name != "work"
    ]
    calls = [
        call(name, {"number": place} if name == "work" else {"input": "Go"}, id=f"c{place}")
        for place, name in enumerate(names)
    ]
    return Agent("A", model=ScriptedHandler([calls, "Done."]), tools=[work, *others])


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (2, 2), (9, 4), (None, 4)])
async def test_no_more_than_so_many(limit: int | None, most: int) -> None:
    gauge = Gauge()
    await Runner.run(desk(gauge, *["work"] * 4), "Go", run_config=RunConfig(tools_at_once=limit))
    assert gauge.most == most


@pytest.mark.parametrize("names", [["work"] * 6, ["work", "work", "b", "c", "d", "e"]])
async def test_one_at_a_time_they_begin_in_order(names: list[str]) -> None:
    """On every event loop, and streamed as well: ordinary tools first, then agents."""
    for stream in (False, True):
        gauge = Gauge()
        agent, config = desk(gauge, *names), RunConfig(tools_at_once=1)
        if stream:
            await Runner.run_streamed(agent, "Go", max_turns=30, run_config=config).drain()
        else:
            await Runner.run(agent, "Go", max_turns=30, run_config=config)
        assert (gauge.most, gauge.began) == (1, [0, 1, 2, 3, 4, 5])


async def test_agents_that_are_asked_count_as_tools() -> None:
    gauge = Gauge()
    config = RunConfig(tools_at_once=1)
    await Runner.run(desk(gauge, "b", "work", "c"), "Go", max_turns=20, run_config=config)
    assert (gauge.most, gauge.began) == (1, [1, 0, 2])


async def test_the_result_is_the_same_however_many() -> None:
    played = await both(lambda: desk(Gauge(), *["work"] * 3), tools_at_once=2)
    answers = [message.get("content") for message in played.result.messages if message["role"] == "tool"]
    assert answers == ["done 0", "done 1", "done 2"]


@pytest.mark.virtual_time
async def test_waiting_is_not_working() -> None:
    """A tool's own time begins when it does."""
    began: list[float] = []

    @function_tool(timeout=30)
    async def slow() -> str:
        """Wait."""
        began.append(anyio.current_effective_deadline() - anyio.current_time())
        await anyio.sleep(0.05)
        return "ok"

    agent = Agent("A", model=ScriptedHandler([[call("slow"), call("slow")], "Done."]), tools=[slow])
    await Runner.run(agent, "Go", run_config=RunConfig(tools_at_once=1))
    assert [round(left) for left in began] == [30, 30]


async def test_a_run_that_is_cancelled_leaves_none_behind() -> None:
    gauge = Gauge()
    with anyio.move_on_after(0):
        await Runner.run(desk(gauge, *["work"] * 4), "Go", run_config=RunConfig(tools_at_once=1))
    assert len(gauge.began) <= 1


@pytest.mark.parametrize("limit", [0, -1, 1.5])
def test_a_limit_that_cannot_be(limit: Any) -> None:
    with pytest.raises(ConfigError, match="tools_at_once must be at least 1"):
        RunConfig(tools_at_once=limit)
