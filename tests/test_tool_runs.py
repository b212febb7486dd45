"""The tools of a reply, those of agents among them: what comes out when they go wrong in unusual ways."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from managers import ask, both, manager, run
from teams import agent, answers_of, look_up

from interlock import Agent, Runner, Skill, function_handler
from interlock.errors import HandlerError
from interlock.port import Request
from interlock.registry import Registry
from interlock.testing import call

pytestmark = pytest.mark.anyio


@pytest.mark.asyncio_only
async def test_a_nested_run_that_is_cancelled_from_within_is_a_failure() -> None:
    """Pain 28: nobody cancelled the run, so it must not end as if somebody had."""

    async def broken(request: Request) -> str:
        raise asyncio.CancelledError

    helper = Agent("helper", model=function_handler(broken))
    ended = await both(lambda: manager(ask(), "Ok.", helper=helper))
    assert "it was cancelled from within" in answers_of(ended.result)[0]
    assert ended.result.final_output == "Ok."


@pytest.mark.asyncio_only
async def test_a_run_can_be_cancelled_as_asyncio_does_it() -> None:
    closed: list[str] = []

    async def slow(request: Request) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            closed.append(request.agent)
        return "never"

    team = {name: Agent(name, model=function_handler(slow)) for name in ("a", "b")}
    made = manager([ask("a"), ask("b")], **team)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(Runner.run(made, "Hi"), 0.02)
    assert sorted(closed) == ["a", "b"]


async def test_several_complaints_of_a_test_come_out_together() -> None:
    async def complain(request: Request) -> str:
        try:
            await anyio.sleep(0.01 if request.agent == "b" else 0)
        finally:
            raise AssertionError(f"{request.agent} complains")

    team = {name: Agent(name, model=function_handler(complain)) for name in ("a", "b")}
    ended = await run(manager([ask("a"), ask("b")], "Ok.", **team), stream=False)
    assert isinstance(ended.error, HandlerError)
    assert isinstance(ended.error.__cause__, ExceptionGroup)
    assert sorted(map(str, ended.error.__cause__.exceptions)) == ["a complains", "b complains"]


async def test_a_skill_may_bring_an_agent_as_a_tool() -> None:
    """And its scope holds for it."""

    class Desk(Skill):
        scope = "owner"
        helper = agent("helper", "42").as_tool()

        def initialize(self, registry: Registry) -> None:
            registry.add_tool(agent("other", "43").as_tool())

    made = agent("manager", [ask(), ask("other")], "Ok.", skills=[Desk()])
    ended = await run(made, stream=True, scopes=["owner"])
    assert answers_of(ended.result) == ["42", "43"]
    stranger = await run(agent("manager", "Ok.", skills=[Desk()]), stream=True)
    assert stranger.result.calls[0].tools == ()


async def test_the_agent_of_an_offered_tool_may_go_on_to_be_handed_over_to() -> None:
    """Asking and handing over are two ways to one agent."""
    b = agent("B", "asked", "in charge")
    made = agent("A", ask("b"), call("transfer_to_b"), tools=[b.as_tool(), look_up], handoffs=[b])
    ended = await run(made, stream=False)
    assert ended.result.final_output == "in charge"
    assert ended.result.last_agent is b
    assert ended.result.usage_by_agent["B"].requests == 2
