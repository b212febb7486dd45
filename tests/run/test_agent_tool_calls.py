"""The tools of a reply, those of agents among them: what comes out when they go wrong in unusual ways."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from manager_agents import ask, both, manager, run
from scripted_agents import agent, answers_of, look_up

from routelock import Agent, Handoff, Runner, Skill, function_handler, handoff
from routelock.agents.registry import Registry
from routelock.errors import ConnectionFailed, LoopDetected
from routelock.handlers.port import Request
from routelock.run.events import NestedEvent
from routelock.testing import call, reply

pytestmark = pytest.mark.anyio


@pytest.mark.asyncio_only
async def test_sub_run_cancelled_from_within_is_a_failure() -> None:
    """The run was not cancelled, so it must not end as if it was."""

    async def broken(request: Request) -> str:
        raise asyncio.CancelledError

    helper = Agent("helper", model=function_handler(broken))
    ended = await both(lambda: manager(ask(), "Ok.", helper=helper))
    assert "raised a cancellation" in answers_of(ended.result)[0]
    assert ended.result.final_output == "Ok."


@pytest.mark.virtual_time
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


@pytest.mark.virtual_time
async def test_first_failed_assertion_in_call_order_is_raised() -> None:
    """The others are its notes: nothing is swallowed."""

    async def complain(request: Request) -> str:
        try:
            await anyio.sleep(0 if request.agent == "b" else 0.01)
        finally:
            raise AssertionError(f"{request.agent} complains")

    team = {name: Agent(name, model=function_handler(complain)) for name in ("a", "b")}
    with pytest.raises(AssertionError, match="a complains") as caught:
        await run(manager([ask("a"), ask("b")], "Ok.", **team), stream=False)
    assert "AssertionError: b complains" in caught.value.__notes__[0]


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


async def test_agent_tool_may_be_a_handoff_target_too() -> None:
    """Asking and handing over are two ways to one agent."""
    b = agent("B", "asked", "in charge")
    made = agent("A", ask("b"), call("transfer_to_b"), tools=[b.as_tool(), look_up], handoffs=[b])
    ended = await run(made, stream=False)
    assert ended.result.final_output == "in charge"
    assert ended.result.last_agent is b
    assert ended.result.usage_by_agent["B"].requests == 2


async def test_agent_tool_beside_a_handoff_is_answered_first() -> None:
    def make() -> Agent[Any]:
        boss = agent("boss", "I take over.")
        calls = [call("transfer_to_boss"), ask("helper")]
        return agent("manager", calls, tools=[agent("helper", "42").as_tool()], handoffs=[boss])

    ended = await both(make)
    assert answers_of(ended.result)[1] == "42"
    assert ended.result.final_output == "I take over."


async def test_agent_tool_beside_an_external_tool_is_answered_first() -> None:
    mine = {"type": "function", "function": {"name": "mine", "parameters": {}}}
    calls = [call("mine", id="m"), ask("helper")]
    ended = await both(lambda: manager(calls, helper=agent("helper", "42")), external_tools=[mine])
    assert ended.result.stop_reason == "requires_action"
    assert answers_of(ended.result) == ["42"]
    assert [each["id"] for each in ended.result.pending] == ["m"]


async def test_a_handoff_that_returns_may_happen_on_either_side() -> None:
    """The expert is handed over to and asks; and what is asked hands over and is given back."""

    def make() -> Agent[Any]:
        clerk = agent("clerk", "stamped")
        helper = agent("helper", call("transfer_to_clerk"), "clerk says", handoffs=[back(clerk)])
        expert = agent("expert", ask("helper"), "expert says", tools=[helper.as_tool()])
        return agent("host", call("transfer_to_expert"), "host says", handoffs=[back(expert)])

    def back(to: Agent[Any]) -> Handoff:
        return handoff(to, return_to_caller=True)

    ended = await both(make)
    (inner,) = ended.result.nested.values()
    assert answers_of(ended.result) == ["clerk says", "expert says"]
    assert answers_of(inner) == ["stamped"]
    assert ended.result.final_output == "host says"
    assert ended.result.usage.requests == 7


async def test_retry_in_a_sub_run_is_shown_and_counted() -> None:
    ended = await both(lambda: manager(ask(), "Ok.", helper=agent("helper", ConnectionFailed("reset"), "42")))
    (inner,) = ended.result.nested.values()
    assert "attempt_failed" in [e.event.type for e in ended.events if isinstance(e, NestedEvent)]
    assert [problem.kind for problem in inner.errors] == ["provider"]
    assert ended.result.errors == ()
    assert ended.result.usage.requests == 3 + (inner.usage.requests - 1)


async def test_manager_with_repeated_answers_is_nudged() -> None:
    """Loop safety sees agents like other tools."""

    def make() -> Agent[Any]:
        return manager(*[ask(id=f"c{n}") for n in range(9)], helper=agent("helper", *["42"] * 9))

    ended = await both(make, max_turns=40)
    assert isinstance(ended.error, LoopDetected)
    assert len(ended.result.nested) < 9


async def test_two_concurrent_runs_may_use_one_manager() -> None:
    """Nothing of a run is on an agent or its tool."""

    async def echo(request: Request) -> str:
        await anyio.lowlevel.checkpoint()
        return f"echo {request.messages[-1].get('content')}"

    async def decide(request: Request) -> Any:
        if request.messages[-1]["role"] == "tool":
            return request.messages[-1].get("content")
        return reply(calls=[ask(text=str(request.messages[-1].get("content")))]).message

    helper = Agent("helper", model=function_handler(echo))
    made = Agent("manager", model=function_handler(decide), tools=[helper.as_tool()])
    outputs: dict[str, Any] = {}

    async def one(text: str) -> None:
        outputs[text] = (await Runner.run(made, text)).final_output

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(one, f"q{number}")
    assert outputs == {f"q{number}": f"echo q{number}" for number in range(20)}
