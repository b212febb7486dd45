"""The result of a run that gave its caller none: it was cancelled, or its caller did not wait."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from scenes import facts
from scripted_agents import agent, answers_of

from routelock import Agent, RunConfig, RunHandle, Runner, RunResult, RunState, function_handler, tool
from routelock.errors import ConfigError, RoutelockError, SessionConflict
from routelock.handlers.port import Request
from routelock.sessions import InMemorySessions, Session
from routelock.testing import ScriptedHandler, assert_valid, call

pytestmark = pytest.mark.anyio


class Till:
    """Pays once it is approved; the first payment hangs when it is made."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.scope = anyio.CancelScope()

    def agent(self, *replies: Any) -> Agent[Any]:
        @tool(needs_approval=True)
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            if amount == 1:
                self.scope.cancel()
                await anyio.lowlevel.checkpoint()
            return f"paid {amount}"

        calls = [call("pay", {"amount": amount}, id=f"c{amount}") for amount in (1, 2)]
        return Agent("A", model=ScriptedHandler([calls, *replies]), tools=[pay])


async def approved(made: Agent[Any], **how: Any) -> RunState:
    state = (await Runner.run(made, "Pay 1 and 2.", **how)).state()
    for one in state.interruptions:
        state = state.approve(one)
    return state


async def cut_off(
    till: Till, made: Agent[Any], state: RunState, *, stream: bool, **how: Any
) -> RunResult[Any]:
    """Resume a state until it is cancelled in the middle of a payment, and return the result."""
    how = {"run_config": RunConfig(tools_at_once=1), **how}
    with till.scope:
        if stream:
            running = Runner.run_streamed(made, state, **how)
            async with running:
                await running.drain()
        else:
            handle = RunHandle()
            await Runner.run(made, state, handle=handle, **how)
    assert till.scope.cancelled_caught
    result = running.result if stream else handle.result
    assert result is not None
    return result


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cancelled_run_has_a_result(stream: bool) -> None:
    till = Till()
    made = till.agent("Both are paid.")
    result = await cut_off(till, made, await approved(made), stream=stream)
    assert result.stop_reason == "unfinished"
    assert result.usage.requests == 1
    assert_valid(result.to_input_list())


@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_that_was_approved_is_done_twice(stream: bool) -> None:
    """What was begun is not made again, and what was not is made without being asked for again."""
    till = Till()
    made = till.agent("Both are paid.")
    result = await cut_off(till, made, await approved(made), stream=stream)
    assert till.paid == [1]
    state = RunState.from_json(result.state().to_json(), agents=[made])
    after = await Runner.run(made, state)
    assert till.paid == [1, 2]
    assert after.final_output == "Both are paid."
    assert "interrupted while this call was carried out" in answers_of(after)[0]
    assert answers_of(after)[1] == "paid 2"


@pytest.mark.parametrize("stream", [False, True])
async def test_in_a_session_the_old_state_is_refused(stream: bool) -> None:
    """Without one it is the caller's part not to run a state twice."""
    till, session = Till(), Session("user-7", InMemorySessions())
    made = till.agent("Both are paid.")
    state = await approved(made, session=session)
    result = await cut_off(till, made, state, stream=stream, session=session)
    with pytest.raises(SessionConflict, match="resumed only once"):
        await Runner.run(made, state, session=session)
    await Runner.run(made, result.state(), session=session)
    assert till.paid == [1, 2]


async def test_plain_and_streamed_leave_the_same() -> None:
    left: list[dict[str, Any]] = []
    for stream in (False, True):
        till = Till()
        made = till.agent("Both are paid.")
        config = RunConfig(run_id="r", tools_at_once=1)
        state = await approved(made, run_config=config)
        left.append(facts(await cut_off(till, made, state, stream=stream, run_config=config)))
    assert left[0] == left[1]


async def test_a_run_that_ends_well_is_there_too() -> None:
    handle = RunHandle()
    assert handle.result is None
    result = await Runner.run(agent("A", "Hello."), "Hi", handle=handle)
    assert handle.result is not None
    assert facts(handle.result) == facts(result)


async def test_error_and_handle_have_the_same_result() -> None:
    handle = RunHandle()
    with pytest.raises(RoutelockError) as caught:
        await Runner.run(agent("A", LookupError("gone")), "Hi", handle=handle)
    assert handle.result is not None
    assert facts(handle.result) == facts(caught.value.result)


async def test_it_shows_how_far_the_run_has_come() -> None:
    handle, seen = RunHandle(), list[str]()

    async def answer(request: Request) -> str:
        assert handle.result is not None
        seen.append(handle.result.stop_reason)
        return "Hello."

    await Runner.run(Agent("A", model=function_handler(answer)), "Hi", handle=handle)
    assert seen == ["unfinished"]


async def test_a_handle_is_for_one_run() -> None:
    handle = RunHandle()
    await Runner.run(agent("A", "Hello."), "Hi", handle=handle)
    with pytest.raises(ConfigError, match="used for another run"):
        await Runner.run(agent("B", "Hello."), "Hi", handle=handle)
    assert handle.result is not None
    assert handle.result.last_agent.name == "A"


async def test_a_run_that_did_not_begin_leaves_it_free() -> None:
    handle = RunHandle()
    with pytest.raises(ConfigError):
        await Runner.run(Agent("A"), "Hi", handle=handle)
    assert handle.result is None
    await Runner.run(agent("A", "Hello."), "Hi", handle=handle)
    assert handle.result is not None


@pytest.mark.asyncio_only
async def test_a_timeout_of_asyncio_leaves_a_result() -> None:
    async def slow(request: Request) -> str:
        await anyio.sleep_forever()
        return "never"

    handle = RunHandle()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(
            Runner.run(Agent("A", model=function_handler(slow)), "Hi", handle=handle), 0.01
        )
    assert handle.result is not None
    assert [message["role"] for message in handle.result.messages] == ["user"]


def test_synchronous_code_has_it_after_an_interrupt() -> None:
    async def interrupted(request: Request) -> str:
        raise KeyboardInterrupt

    handle = RunHandle()
    with pytest.raises(KeyboardInterrupt):
        Runner.run_sync(Agent("A", model=function_handler(interrupted)), "Hi", handle=handle)
    assert handle.result is not None
    assert handle.result.messages == [{"role": "user", "content": "Hi"}]
