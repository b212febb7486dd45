"""The agent for the user's next message: the first one again, or the last active one."""

from __future__ import annotations

from typing import Any, Literal

import anyio
import anyio.lowlevel
import pytest
from scripted_agents import HI, agent

from routelock import (
    Agent,
    HandoffRequest,
    Message,
    RunConfig,
    Runner,
    RunResult,
    function_handler,
    function_tool,
    handoff,
)
from routelock.errors import ConfigError, InvalidRequest, RoutelockError
from routelock.handlers.port import Request
from routelock.run.records import StopReason
from routelock.testing import ScriptedHandler, assert_valid, call

pytestmark = pytest.mark.anyio

Policy = Literal["reset", "sticky"]
POLICIES = pytest.mark.parametrize("policy", ["reset", "sticky"])
STREAMED = pytest.mark.parametrize("stream", [False, True])
TO_BILLING, TO_FRONT = call("transfer_to_billing"), call("transfer_to_front")


def desk(front: list[Any], billing: list[Any]) -> Agent[Any]:
    """A front desk and billing, who may hand over to each other."""
    return agent("front", *front, handoffs=[agent("billing", *billing, handoffs=["front"])])


async def run(
    first: Agent[Any], input: Any, policy: Policy, *, stream: bool = False, **more: Any
) -> RunResult[Any]:
    """Run, and take the partial result of a run that fails."""
    config = RunConfig(next_agent=policy, **more)
    try:
        if stream:
            return await Runner.run_streamed(first, input, max_turns=4, run_config=config).drain()
        return await Runner.run(first, input, max_turns=4, run_config=config)
    except RoutelockError as error:
        partial: RunResult[Any] = error.result
        return partial


async def dialogue(start: Agent[Any], policy: Policy, *, stream: bool, by_name: bool) -> list[list[str]]:
    """Say three things, and return who spoke in each run."""
    current, history, spoke = start, list[Message](), list[list[str]]()
    for word in ("One", "Two", "Three"):
        asked: list[Message] = [*history, {"role": "user", "content": word}]
        result = await run(current, asked, policy, stream=stream, agents=[start])
        assert result.stop_reason == "done"
        history, current = result.to_input_list(), result.next_agent
        assert_valid([*history, HI])
        if by_name:  # as a store of sessions does it
            current = start.graph[current.name]
        spoke.append([made.agent for made in result.calls])
    return spoke


# -- three messages --


@STREAMED
@pytest.mark.parametrize("by_name", [False, True])
async def test_reset_asks_the_first_agent_each_time(stream: bool, by_name: bool) -> None:
    """It has all its handoffs again."""
    start = desk([TO_BILLING, "Front.", TO_BILLING], ["Your bill.", "Your bill again."])
    spoke = await dialogue(start, "reset", stream=stream, by_name=by_name)
    assert spoke == [["front", "billing"], ["front"], ["front", "billing"]]


@STREAMED
@pytest.mark.parametrize("by_name", [False, True])
async def test_sticky_names_the_agent_that_answered_last(stream: bool, by_name: bool) -> None:
    """And a sticky agent hands back when it wants to."""
    start = desk([TO_BILLING, "Front."], ["Your bill.", "Your bill again.", TO_FRONT])
    spoke = await dialogue(start, "sticky", stream=stream, by_name=by_name)
    assert spoke == [["front", "billing"], ["billing"], ["billing", "front"]]


async def test_reset_is_the_default() -> None:
    start = desk([TO_BILLING], ["Your bill."])
    result = await Runner.run(start, "Hi")
    assert RunConfig().next_agent == "reset"
    assert (result.next_agent, result.last_agent.name) == (start, "billing")


@POLICIES
async def test_without_a_transfer_it_is_the_same_agent(policy: Policy) -> None:
    start = agent("A", "Hello.")
    assert (await run(start, "Hi", policy)).next_agent is start


async def test_reset_is_to_where_the_run_began() -> None:
    """An explicit start agent is kept."""
    start = desk(["Front."], [TO_FRONT])
    result = await run(start.graph["billing"], "Hi", "reset", agents=[start])
    assert (result.next_agent.name, result.last_agent.name) == ("billing", "front")


async def test_sticky_names_the_agent_after_a_handoff_back() -> None:
    start = desk([TO_BILLING, "Front."], [TO_FRONT])
    assert (await run(start, "Hi", "sticky")).next_agent is start


async def test_sticky_names_a_target_outside_the_graph() -> None:
    made = agent("made", "Here.")

    @function_tool
    def ask() -> HandoffRequest:
        """Call another agent."""
        return HandoffRequest(made)

    start = agent("A", call("ask"), tools=[ask])
    assert (await run(start, "Hi", "sticky")).next_agent is made


async def test_another_handler_is_no_other_agent() -> None:
    """The agent's default handler answers again; ``RunConfig(handler=result.last_handler)`` stays."""
    other = ScriptedHandler(["Other."], name="other")
    front = ScriptedHandler([call("transfer_to_other"), "Front."], name="front")
    start = Agent("A", handlers=[front, other], handoffs=[handoff(other)])
    result = await run(start, "Hi", "sticky")
    assert (result.next_agent, result.last_handler) == (start, "other")
    more = await run(start, [*result.to_input_list(), HI], "sticky")
    assert more.final_output == "Front."


# -- however a run ended --


async def fails(request: Request) -> str:
    raise InvalidRequest("down")


def ending(how: str) -> tuple[Agent[Any], dict[str, Any]]:
    """A run that ends with billing in charge, and its settings."""
    where = {"type": "function", "function": {"name": "where", "parameters": {"type": "object"}}}
    replies: dict[str, list[Any]] = {
        "a limit": [call("nothing")] * 9,
        "a limit as a result": [call("nothing")] * 9,
        "a call of the caller's tool": [call("where")],
        "an empty reply": ["", ""],
        "a guardrail": ["Secret."],
    }
    settings: dict[str, dict[str, Any]] = {
        "a limit": {"max_mistakes": 99},
        "a limit as a result": {"max_mistakes": 99, "on_limit": "return"},
        "a call of the caller's tool": {"external_tools": [where]},
        "a guardrail": {"output_guardrails": [lambda *_: 1 / 0]},
    }
    if how == "an error":
        billing = Agent("billing", model=function_handler(fails))
    else:
        billing = agent("billing", *replies[how])
    return agent("front", TO_BILLING, handoffs=[billing]), settings.get(how, {})


ENDS: list[tuple[str, StopReason]] = [
    ("an error", "error"),
    ("a limit", "error"),
    ("a limit as a result", "limit"),
    ("a call of the caller's tool", "requires_action"),
    ("an empty reply", "error"),
    ("a guardrail", "error"),
]


@pytest.mark.pairwise
@STREAMED
@POLICIES
@pytest.mark.parametrize(("how", "reason"), ENDS)
async def test_it_is_known_however_the_run_ended(
    how: str, reason: StopReason, policy: Policy, stream: bool
) -> None:
    start, settings = ending(how)
    result = await run(start, "Hi", policy, stream=stream, **settings)
    assert result.stop_reason == reason
    assert result.next_agent.name == {"reset": "front", "sticky": "billing"}[policy]


@POLICIES
async def test_sticky_does_not_name_an_agent_that_returns(policy: Policy) -> None:
    """Not even when the run ends before the answer was there."""
    billing = Agent("billing", model=function_handler(fails))
    start = agent("front", TO_BILLING, handoffs=[handoff(billing, return_to_caller=True)])
    result = await run(start, "Hi", policy, raise_on=["failed_handoff"])
    assert (result.last_agent, result.next_agent) == (billing, start)


@POLICIES
async def test_it_is_known_of_a_stream_that_was_left(policy: Policy) -> None:
    start = desk([TO_BILLING], ["A long story."])
    async with Runner.run_streamed(start, "Hi", run_config=RunConfig(next_agent=policy)) as stream:
        async for event in stream:
            if event.type == "text_delta":
                break
    assert stream.result.stop_reason == "unfinished"
    assert stream.result.next_agent.name == {"reset": "front", "sticky": "billing"}[policy]


@POLICIES
async def test_it_is_known_of_a_stream_that_was_cancelled(policy: Policy) -> None:
    async def waits(request: Request) -> str:
        scope.cancel()
        await anyio.lowlevel.checkpoint()
        return "Never said."

    start = agent("front", TO_BILLING, handoffs=[Agent("billing", model=function_handler(waits))])
    stream = Runner.run_streamed(start, "Hi", run_config=RunConfig(next_agent=policy))
    with anyio.CancelScope() as scope:
        await stream.drain()
    await stream.aclose()
    assert scope.cancelled_caught
    assert stream.result.next_agent.name == {"reset": "front", "sticky": "billing"}[policy]


@POLICIES
async def test_next_agent_is_known_during_a_sub_run(policy: Policy) -> None:
    seen: list[str] = []

    async def look(request: Request) -> str:
        seen.append(stream.result.next_agent.name)
        return "42"

    expert = Agent("expert", model=function_handler(look)).as_tool("ask", "Ask.")
    billing = agent("billing", call("ask", {"input": "Sum?"}), "42.", tools=[expert])
    start = agent("front", TO_BILLING, handoffs=[billing])
    stream = Runner.run_streamed(start, "Hi", run_config=RunConfig(next_agent=policy))
    await stream.drain()
    assert seen == [{"reset": "front", "sticky": "billing"}[policy]]


@POLICIES
async def test_it_is_known_before_the_run_begins(policy: Policy) -> None:
    start = agent("A", "Hello.")
    stream = Runner.run_streamed(start, "Hi", run_config=RunConfig(next_agent=policy))
    assert stream.result.next_agent is start
    await stream.aclose()


async def test_refused_handoff_does_not_change_the_next_agent() -> None:
    start = agent("A", call("transfer_to_b"), "I stay.", handoffs=[agent("B")])
    result = await run(start, "Hi", "sticky", max_handoffs=0)
    assert result.next_agent is start


# -- what is wrong --


@pytest.mark.parametrize("policy", ["Sticky", "stick", "", None])
async def test_another_policy_is_refused(policy: Any) -> None:
    with pytest.raises(ConfigError, match="next_agent must be 'reset' or 'sticky'"):
        RunConfig(next_agent=policy)
