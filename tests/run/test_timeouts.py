"""Deadlines of a run and of a turn: whatever is under way is ended, and what there is is kept."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncGenerator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from manager_agents import Ended, ask, run
from manager_agents import both as both_managers
from plain_and_streamed import QUICK, both
from scripted_agents import agent, answers_of

from routelock import (
    Agent,
    Handoff,
    Retry,
    RunConfig,
    RunHooks,
    Runner,
    function_handler,
    function_tool,
    handoff,
)
from routelock.errors import ConfigError, ConnectionFailed, ProviderTimeout, RoutelockError, RunTimeout
from routelock.handlers.events import HandlerEvent, TextDelta
from routelock.handlers.port import Request
from routelock.history.filters import HandoffInputData
from routelock.history.validity import problems
from routelock.run.events import RunDone
from routelock.testing import ScriptedHandler, assert_valid, call
from routelock.usage import Usage

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time, pytest.mark.every_loop]

SHORT = 0.02
LONGER = 0.3
"""Time enough for all that does not stall, on a busy machine too."""
Made = Callable[[], Agent[Any]]


async def never(*given: Any) -> Any:
    await anyio.sleep_forever()


@function_tool
async def peek(at: int) -> str:
    """Look at something."""
    return f"seen {at}"


@function_tool
async def stall() -> str:
    """Never answer."""
    await anyio.sleep_forever()
    return "never"


def stalling_model() -> Agent[Any]:
    async def model(request: Request) -> AsyncGenerator[HandlerEvent]:
        yield TextDelta("So far")
        await anyio.sleep_forever()

    return Agent("A", model=function_handler(model))


def stalling_tool() -> Agent[Any]:
    return agent("A", [call("peek", {"at": 1}), call("stall")], tools=[peek, stall])


def stalling_thread() -> Agent[Any]:
    @function_tool
    def block() -> str:
        """Block a thread for longer than any timeout."""
        threading.Event().wait(0.5)
        return "late"

    return agent("A", call("block"), tools=[block])


def stalling_backoff() -> Agent[Any]:
    return agent("A", ConnectionFailed("reset"), "never")


def stalling_consent() -> Agent[Any]:
    b = agent("B", "never", on_handoff_request=never)
    return agent("A", call("transfer_to_b"), handoffs=[b])


def stalling_callback() -> Agent[Any]:
    return agent("A", call("transfer_to_b"), handoffs=[handoff(agent("B"), on_handoff=never)])


def stalling_filter() -> Agent[Any]:
    async def shape(data: HandoffInputData) -> HandoffInputData:
        await anyio.sleep_forever()
        return data

    return agent("A", call("transfer_to_b"), handoffs=[handoff(agent("B"), input_filter=shape)])


def stalling_target() -> Agent[Any]:
    declared: Handoff = handoff(agent("B", call("stall"), tools=[stall]), return_to_caller=True)
    return agent("A", call("transfer_to_b"), handoffs=[declared])


def stalling_guardrail() -> Agent[Any]:
    return agent("A", "never", input_guardrails=[never])


def stalling_output_guardrail() -> Agent[Any]:
    return agent("A", "never", output_guardrails=[never])


def stalling_helper() -> Agent[Any]:
    helper = agent("helper", [call("peek", {"at": 1}), call("stall")], tools=[peek, stall])
    return agent("A", [ask(), call("peek", {"at": 2})], tools=[helper.as_tool(), peek])


STALLING: list[Made] = [
    stalling_model,
    stalling_tool,
    stalling_thread,
    stalling_backoff,
    stalling_consent,
    stalling_callback,
    stalling_filter,
    stalling_target,
    stalling_guardrail,
    stalling_output_guardrail,
    stalling_helper,
]
SLOW = Retry(sleep=never)


async def ended(make: Made, error: type[RoutelockError] = RunTimeout, *, stream: bool, **how: Any) -> Ended:
    played = await run(make(), stream=stream, **how)
    assert type(played.error) is error
    return played


@pytest.mark.pairwise
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("make", STALLING)
async def test_a_run_ends_in_time_whatever_it_waits_for(make: Made, stream: bool) -> None:
    """The partial result is valid, every call that was begun is counted, and no task is left."""
    before = len(anyio.get_running_tasks())
    late = await ended(make, stream=stream, timeout=SHORT, retry=SLOW)
    assert re.search(r"longer than its timeout of 0\.02 s", str(late.error))
    result = late.result
    assert result.stop_reason == "error"
    assert_valid(result.to_input_list())
    begun = len(result.calls) + sum(len(inner.calls) for inner in result.nested.values())
    assert result.usage.requests == begun
    assert len(anyio.get_running_tasks()) == before


@pytest.mark.parametrize("make", [stalling_tool, stalling_consent, stalling_target, stalling_helper])
async def test_a_deadline_is_the_same_streamed_and_not(make: Made) -> None:
    late = await both_managers(make, timeout=LONGER, retry=SLOW)
    assert isinstance(late.error, RunTimeout)


@pytest.mark.parametrize("make", STALLING)
async def test_a_deadline_may_be_a_result(make: Made) -> None:
    """As any limit, see ``RunConfig.on_limit``."""
    config = RunConfig(timeout=SHORT, retry=SLOW, on_limit="return")
    result = await Runner.run(make(), "Hi", run_config=config)
    assert result.stop_reason == "limit"
    assert isinstance(result.errors[-1].error, RunTimeout)
    assert problems(result.to_input_list()) == []


async def test_on_limit_gives_the_output_of_a_late_run() -> None:
    """The function has its time: the deadline is over, and does not cancel it."""

    async def sorry(error: Any) -> str:
        await anyio.sleep(SHORT)
        return f"Sorry, {error.result.usage.requests} call was not enough."

    stream = Runner.run_streamed(stalling_tool(), "Hi", run_config=RunConfig(timeout=LONGER, on_limit=sorry))
    events = [event async for event in stream]
    assert isinstance(events[-1], RunDone)
    assert stream.final_output == "Sorry, 1 call was not enough."


async def test_what_was_done_in_time_is_kept() -> None:
    """The finished sibling is in the transcript, and its unfinished one is answered on reading."""
    late = await ended(stalling_tool, stream=True, timeout=LONGER)
    assert answers_of(late.result) == ["seen 1"]
    said = [message.get("content") for message in late.result.to_input_list()[-2:]]
    assert said == ["seen 1", "No result was recorded for this call."]


async def test_half_a_reply_is_kept() -> None:
    result = await Runner.run_streamed(
        stalling_model(), "Hi", run_config=RunConfig(timeout=LONGER, on_limit="return")
    ).drain()
    assert result.messages[-1] == {"role": "assistant", "content": "So far"}
    assert result.usage == Usage(requests=1, estimated=True)


async def test_nested_agents_have_no_more_time_than_the_run() -> None:
    late = await both_managers(stalling_helper, timeout=LONGER)
    assert answers_of(late.result) == ["seen 2"]
    (inner,) = late.result.nested.values()
    assert answers_of(inner) == ["seen 1"]


async def test_run_in_time_equals_one_without_a_timeout() -> None:
    def make() -> Agent[Any]:
        return agent("A", call("peek", {"at": 1}), "Done.", tools=[peek])

    hurried, free = await both(make, timeout=60.0, turn_timeout=60.0), await both(make)
    assert hurried.result.items == free.result.items
    assert hurried.kinds == free.kinds


async def test_what_a_slow_reader_takes_is_free() -> None:
    """Nothing happens while the reader has the event, so it is not the run's time."""
    made = agent("A", call("peek", {"at": 1}), "Done.", tools=[peek])
    async with Runner.run_streamed(made, "Hi", run_config=RunConfig(timeout=0.9)) as stream:
        async for _ in stream:
            await anyio.sleep(0.2)
    assert stream.final_output == "Done."


async def test_earlier_cancellation_of_the_caller_is_not_a_run_timeout() -> None:
    with anyio.move_on_after(SHORT) as scope:
        await Runner.run(stalling_tool(), "Hi", run_config=RunConfig(timeout=60.0))
    assert scope.cancelled_caught


async def test_next_run_has_the_whole_timeout_again() -> None:
    made = agent("A", call("stall"), "Here I am.", tools=[stall])
    config = RunConfig(timeout=LONGER, on_limit="return")
    late = await Runner.run(made, "Hi", run_config=config)
    result = await Runner.run(made, late.to_input_list(), run_config=config)
    assert (late.stop_reason, result.final_output) == ("limit", "Here I am.")


class _Late(RunHooks):
    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        await anyio.sleep_forever()


async def test_late_hook_keeps_the_output_on_the_error() -> None:
    with pytest.raises(RunTimeout) as caught:
        await Runner.run(agent("A", "Hello"), "Hi", hooks=_Late(), run_config=RunConfig(timeout=LONGER))
    assert caught.value.result.final_output == "Hello"


# -- a turn --


def stalls_once() -> tuple[Agent[Any], ScriptedHandler]:
    async def model(request: Request) -> str:
        await anyio.sleep_forever()
        return "never"

    second = ScriptedHandler(["I am quicker."], name="second")
    return Agent("A", model=function_handler(model, name="first"), handlers=[second]), second


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
async def test_a_late_reply_is_the_handlers_failure(stream: bool) -> None:
    late = await ended(lambda: stalls_once()[0], ProviderTimeout, stream=stream, turn_timeout=SHORT)
    assert "'first' of agent 'A' gave no complete reply in turn 1 within 0.02 s" in str(late.error)
    assert late.result.usage == Usage(requests=1, estimated=True)


async def test_another_handler_may_answer_for_a_late_one() -> None:
    played = await both(lambda: stalls_once()[0], turn_timeout=LONGER, fallback=True)
    assert played.result.final_output == "I am quicker."
    assert isinstance(played.result.errors[0].error, ProviderTimeout)


async def test_retries_are_within_the_time_of_the_turn() -> None:
    with pytest.raises(ProviderTimeout):
        await Runner.run(stalling_backoff(), "Hi", run_config=RunConfig(turn_timeout=SHORT, retry=SLOW))


async def test_tools_are_not_within_the_time_of_the_turn() -> None:
    @function_tool
    async def slow() -> str:
        """Take longer than a reply may."""
        await anyio.sleep(0.7)
        return "done"

    result = await Runner.run(
        agent("A", call("slow"), "Done.", tools=[slow]), "Hi", run_config=RunConfig(turn_timeout=0.5)
    )
    assert answers_of(result) == ["done"]


async def test_nested_agents_have_the_same_time_for_each_turn() -> None:
    helper, _ = stalls_once()
    made = agent("manager", ask(), "Ok.", tools=[helper.as_tool("helper")])
    result = await Runner.run(made, "Hi", run_config=RunConfig(turn_timeout=LONGER, retry=QUICK))
    assert "within 0.3 s" in result.errors[0].message
    assert result.final_output == "Ok."


@pytest.mark.parametrize("seconds", [0, -1.0, "5"])
@pytest.mark.parametrize("name", ["timeout", "turn_timeout"])
def test_a_deadline_is_some_time(name: str, seconds: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be more than 0 seconds, or None for no limit"):
        RunConfig(**{name: seconds})


async def test_a_run_without_any_time_ends_well_or_late() -> None:
    played = await run(agent("A", "Hello"), stream=False, timeout=1e-9)
    assert played.error is None or isinstance(played.error, RunTimeout)
    assert_valid([*played.result.to_input_list(), {"role": "user", "content": "Go on."}])
