"""What ``on_limit`` answers is a part of the conversation, as any answer is."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from scripted_agents import agent, look_up, shown

from routelock import Agent, Message, RunConfig, Runner, RunResult, RunState, function_tool, handoff
from routelock.errors import LimitExceeded
from routelock.run.limits import Limits
from routelock.sessions import InMemorySessions, Session
from routelock.testing import ScriptedHandler, assert_valid, call

pytestmark = pytest.mark.anyio

SORRY: Message = {"role": "assistant", "content": "I ran out of time."}
each_way = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])


def sorry(error: LimitExceeded) -> str:
    return "I ran out of time."


async def run(
    made: Agent[Any], input: Any = "Hi", *, stream: bool, session: Any = None, **how: Any
) -> RunResult[Any]:
    turns = how.pop("max_turns", 10)
    settings: Any = {"max_turns": turns, "session": session, "run_config": RunConfig(**how)}
    if stream:
        return await Runner.run_streamed(made, input, **settings).drain()
    return await Runner.run(made, input, **settings)


def digging(*last: str) -> Agent[Any]:
    return agent("A", call("look_up", {"order": 1}), call("look_up", {"order": 2}), *last, tools=[look_up])


async def waits() -> str:
    """Wait for ever."""
    await anyio.sleep_forever()
    return "never"


def too_slow() -> Agent[Any]:
    return agent("A", call("waits", id="w"), tools=[function_tool(waits)])


LIMITS: dict[str, tuple[Any, dict[str, Any]]] = {
    "turns": (digging, {"max_turns": 2}),
    "tokens": (digging, {"limits": Limits(tokens=1)}),
    "calls": (digging, {"limits": Limits(tool_calls=1)}),
    "time": (too_slow, {"timeout": 0.01}),
    "loop": (lambda: agent("A", *[call("look_up", {"order": 1})] * 9, tools=[look_up]), {}),
}


@each_way
@pytest.mark.parametrize("limit", LIMITS)
async def test_it_is_the_end_of_the_conversation(limit: str, stream: bool) -> None:
    make, how = LIMITS[limit]
    session = Session("user-7", InMemorySessions())
    result = await run(make(), stream=stream, session=session, on_limit=sorry, **how)
    assert (result.stop_reason, result.final_output) == ("limit", "I ran out of time.")
    assert result.to_input_list()[-1] == SORRY
    assert result.new_items[-1].agent == "A"
    assert (await session.load()).messages[-1] == SORRY
    assert_valid(result.to_input_list())


@each_way
async def test_the_next_run_knows_what_the_user_was_told(stream: bool) -> None:
    session = Session("user-7", InMemorySessions())
    await run(digging(), stream=stream, session=session, max_turns=2, on_limit=sorry)
    after = agent("A", "As I said.", tools=[look_up])
    await run(after, "Why?", stream=stream, session=session)
    assert shown(after)[-2:] == [SORRY, {"role": "user", "content": "Why?"}]


@each_way
@pytest.mark.parametrize("limit", ["turns", "calls"])
async def test_a_run_that_goes_on_is_not_shown_it(limit: str, stream: bool) -> None:
    """It goes on where it stood; in the transcript it stays, because the user was told it."""
    made = digging("Done.")
    how = LIMITS[limit][1]
    result = await run(made, stream=stream, on_limit=sorry, **how)
    state = RunState.from_json(result.state().to_json(), agents=[made])
    after = await run(made, state, stream=stream)
    assert after.final_output == "Done."
    assert SORRY not in shown(made, -1)
    assert SORRY in after.messages
    assert_valid(after.to_input_list())


async def test_a_value_is_shown_as_json() -> None:
    class Report(BaseModel):
        found: int

    result = await run(digging(), stream=False, max_turns=2, on_limit=lambda error: Report(found=2))
    assert result.final_output == Report(found=2)
    assert result.to_input_list()[-1] == {"role": "assistant", "content": '{"found":2}'}


@pytest.mark.parametrize("nothing", [None, "", "  "])
async def test_no_answer_is_no_message(nothing: Any) -> None:
    result = await run(digging(), stream=False, max_turns=2, on_limit=lambda error: nothing)
    assert result.to_input_list()[-1]["role"] == "tool"


async def test_a_value_that_is_no_text_is_told_of() -> None:
    value = object()
    result = await run(digging(), stream=False, max_turns=2, on_limit=lambda error: value)
    assert result.final_output is value
    assert result.to_input_list()[-1]["role"] == "tool"
    assert "the output of on_limit is not in the conversation" in result.warnings[-1]


@each_way
async def test_output_is_the_runs_answer_below_a_caller_too(stream: bool) -> None:
    """So it is not left out with how that agent came to its own."""
    expert = agent("B", call("look_up", {"order": 1}), tools=[look_up])
    made = agent("A", call("transfer_to_b"), handoffs=[handoff(expert, return_to_caller=True)])
    result = await run(made, stream=stream, max_turns=2, on_limit=sorry)
    assert result.to_input_list()[-1] == SORRY
    assert result.new_items[-1].asked_by is None


async def test_resumed_run_takes_an_unchecked_output() -> None:
    async def slow(context: Any, owner: Any, output: Any) -> Any:
        await anyio.sleep_forever()

    held = Agent("A", model=ScriptedHandler(["Hello."]), output_guardrails=[slow])
    result = await run(held, stream=False, timeout=0.01, on_limit=sorry)
    free = Agent("A", model=ScriptedHandler([]))
    after = await run(free, RunState.from_json(result.state().to_json(), agents=[free]), stream=False)
    assert after.final_output == "Hello."
