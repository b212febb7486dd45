"""Errors name who failed, and carry what was done until then."""

from __future__ import annotations

from typing import Any

import anyio.lowlevel
import pytest
from scripted_agents import outcome

from routelock import Agent, Handoff, Retry, RunConfig, Runner, handoff
from routelock.errors import (
    CallbackError,
    ConnectionFailed,
    HandlerError,
    HandoffFilterError,
    InvalidRequest,
)
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.history.messages import Message
from routelock.history.validity import problems
from routelock.testing import ScriptedHandler, call
from routelock.usage import Usage

pytestmark = pytest.mark.anyio


# -- transfers that fail --


def bad(where: str) -> Any:
    def on_handoff(context: Any) -> None:
        raise LookupError("nobody is there")

    class Mute(Handoff):
        def get_transfer_message(self, agent: Any) -> str:
            raise LookupError("no words")

    target = Agent("B", model=ScriptedHandler([InvalidRequest("not this")]))
    if where == "callback":
        return handoff(target, on_handoff=on_handoff)
    if where == "message":
        return Mute(target=target)
    if where == "self":
        return Handoff(target="X", agent_name="X", on_invoke_handoff=lambda context, text: "A")
    return Handoff(agent_name="X", on_invoke_handoff=lambda context, text: 5)


@pytest.mark.parametrize("where", ["callback", "message", "self", "no target"])
async def test_a_transfer_that_fails_leaves_the_source_in_charge(where: str) -> None:
    """The caller's call gets the error, and it is on the result."""
    declared = bad(where)
    script = ScriptedHandler([call(declared.tool_name), "Then I do it."])
    config = RunConfig(agents=[Agent("X", model=ScriptedHandler([]))])
    result = await Runner.run(Agent("A", model=script, handoffs=[declared]), "Hi", run_config=config)
    assert result.last_agent.name == "A"
    assert str(script.requests[1].messages[-1].get("content")).startswith("The transfer to ")
    assert [outcome(record) for record in result.handoffs] == ["failed"]
    assert [problem.kind for problem in result.errors] == ["handoff"]


async def test_target_that_cannot_answer_fails_the_run() -> None:
    """It never looks like an answer of the source's; the transfer is on the partial result."""
    target = Agent("B", model=ScriptedHandler([InvalidRequest("not this")]))
    agent = Agent("A", model=ScriptedHandler([call("transfer_to_b")]), handoffs=[target])
    with pytest.raises(InvalidRequest) as caught:
        await Runner.run(agent, "Hi")
    assert caught.value.result.last_agent is target
    assert [outcome(record) for record in caught.value.result.handoffs] == ["taken"]


async def test_broken_filter_ends_the_run_with_its_history() -> None:
    """Never silently the unfiltered history; the partial result is complete and valid."""

    def broken(data: Any) -> Any:
        raise KeyError("gone")

    target = Agent("B", model=ScriptedHandler([]))
    declared = handoff(target, input_filter=broken)
    agent = Agent("A", model=ScriptedHandler([call("transfer_to_b")]), handoffs=[declared])
    with pytest.raises(HandoffFilterError, match="'A' -> 'B'") as caught:
        await Runner.run(agent, "Hi")
    assert isinstance(caught.value.__cause__, KeyError)
    assert problems(caught.value.result.to_input_list()) == []
    assert [outcome(record) for record in caught.value.result.handoffs] == ["failed"]


async def test_instructions_that_raise_are_named() -> None:
    def broken() -> str:
        raise KeyError("prompt")

    with pytest.raises(CallbackError, match="instructions of agent 'A' raised KeyError"):
        await Runner.run(Agent("A", broken, model=ScriptedHandler([])), "Hi")


async def test_failing_inherited_instructions_are_named() -> None:
    """``transfer_system_message`` asks the source once more."""
    asked: list[int] = []

    def once() -> str:
        asked.append(1)
        if len(asked) > 1:
            raise KeyError("prompt")
        return "You are A."

    declared = handoff(Agent("B", model=ScriptedHandler([])), transfer_system_message=True)
    agent = Agent("A", once, model=ScriptedHandler([call("transfer_to_b")]), handoffs=[declared])
    with pytest.raises(CallbackError, match="instructions of agent 'A' raised KeyError"):
        await Runner.run(agent, "Hi")


# -- handlers that break the contract --


def events(*given: HandlerEvent | Exception) -> ScriptedHandler:
    return ScriptedHandler([list(given)], name="odd")


DONE = MessageDone(message={"role": "assistant", "content": "Hi"}, usage=Usage(requests=1, input_tokens=3))


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ([TextDelta("Hi")], "ended in turn 1 without a MessageDone"),
        ([DONE, DONE], "yielded two MessageDone in turn 1"),
        (
            [MessageDone(message={"role": "user", "content": "Hi"})],
            "role 'user' instead of 'assistant'",
        ),
        ([TypeError("boom")], "'odd' of agent 'A' raised TypeError in turn 1: boom"),
    ],
)
async def test_a_handler_that_breaks_its_contract_is_named(given: list[Any], wrong: str) -> None:
    with pytest.raises(HandlerError, match=wrong) as caught:
        await Runner.run(Agent("A", model=events(*given)), "Hi")
    assert caught.value.result.usage.requests == 1


@pytest.mark.parametrize("odd", [{"id": "c"}, {"id": "c", "function": {"name": "f", "arguments": {"a": 1}}}])
async def test_malformed_call_is_refused(odd: Any) -> None:
    message: Message = {"role": "assistant", "content": "Hm.", "tool_calls": [odd]}
    with pytest.raises(HandlerError, match="'odd' of agent 'A' gave a reply in turn 1 with") as caught:
        await Runner.run(Agent("A", model=events(MessageDone(message=message, usage=DONE.usage))), "Hi")
    assert caught.value.result.usage == DONE.usage
    assert problems(caught.value.result.to_input_list()) == []


async def test_a_handler_that_fails_after_its_reply_loses_nothing() -> None:
    """The reply is in the partial result, and what it consumed is counted."""
    with pytest.raises(ConnectionFailed) as caught:
        await Runner.run(Agent("A", model=events(TextDelta("Hi"), DONE, ConnectionFailed("late"))), "Hi")
    assert caught.value.result.messages[-1] == DONE.message
    assert caught.value.result.usage == DONE.usage


async def test_an_error_carries_the_result_of_its_own_run() -> None:
    """Design, errors: one exception object may be raised by two runs."""
    shared = InvalidRequest("no")
    agent = Agent("A", model=ScriptedHandler([shared, shared]))
    seen: list[Any] = []
    for text in ("one", "two"):
        with pytest.raises(InvalidRequest) as caught:
            await Runner.run(agent, text)
        seen.append(caught.value.result.messages[0]["content"])
    assert seen == ["one", "two"]


async def test_a_retried_reply_replaces_the_one_that_was_shown() -> None:
    """With ``mid_stream`` an attempt that failed after its complete reply is void."""
    first = [
        TextDelta("Hel"),
        MessageDone(message={"role": "assistant", "content": "Hel"}),
        ConnectionFailed("x"),
    ]
    script = ScriptedHandler([first, "Hello."])

    async def at_once(seconds: float) -> None:
        await anyio.lowlevel.checkpoint()

    config = RunConfig(retry=Retry(mid_stream=True, sleep=at_once))
    result = await Runner.run(Agent("A", model=script), "Hi", run_config=config)
    assert result.messages[1:] == [{"role": "assistant", "content": "Hello."}]
    assert result.usage.requests == 2
