"""What must hold where one agent hands over to another."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manager_agents import both as both_nested
from plain_and_streamed import both
from scripted_agents import agent, answers_of, look_up, requests

from routelock import Agent, GuardrailResult, Handoff, RunConfig, Runner, function_handler, handoff
from routelock.errors import InvalidRequest, RoutelockError
from routelock.handlers.events import HandlerEvent, TextDelta
from routelock.handlers.port import Handler, Request
from routelock.handoff_request import HandoffStatus
from routelock.history.messages import calls_of, text_of
from routelock.history.notes import PREAMBLE
from routelock.run.events import HandoffCompleted, ToolOutput
from routelock.testing import call, reply
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

LOOK = call("look_up", {"order": 7})

# -- the call and result of the transfer do not confuse the target --

STEPS = st.lists(st.sampled_from(["look", "two at once"]), max_size=2)


def line(steps: list[list[str]]) -> list[Agent[Any]]:
    """Agents n0, n1, ... that each do some things with a tool of their own, and hand over to the next."""
    made: list[Agent[Any]] = [agent(f"n{len(steps)}", "Done.")]
    for place in reversed(range(len(steps))):
        own, elsewhere = replace(look_up, name=f"look_{place}"), f"elsewhere_{place}"
        look = call(own.name, {"order": 7})
        said = [look if step == "look" else [look, look] for step in steps[place]]
        away = [look, call(f"transfer_to_n{place + 1}"), call(f"transfer_to_{elsewhere}")]
        handoffs = [handoff(made[0], reason="Because."), agent(elsewhere)]
        made.insert(0, agent(f"n{place}", *said, away, tools=[own], handoffs=handoffs))
    return made


@pytest.mark.asyncio_only
@given(steps=st.lists(STEPS, min_size=1, max_size=4))
async def test_target_sees_one_note_and_the_users_message_last(
    steps: list[list[str]],
) -> None:
    """Whatever happened on the way to it."""
    team = line(steps)
    config = RunConfig(detect_loops=False)
    result = await Runner.run(team[0], "Where is it?", max_turns=None, run_config=config)
    for target in team[1:]:
        view = requests(target)[0].messages
        assert "transfer_to_" not in json.dumps(view)
        assert [text_of(message).startswith(PREAMBLE) for message in view].count(True) == 1
        assert view[-1] == {"role": "user", "content": "Where is it?"}
    made = {one.call_id for one in result.handoffs if one.taken}
    called = {each["id"] for message in result.messages for each in calls_of(message)}
    answered = {message.get("tool_call_id") for message in result.messages}
    assert len(made) == len(steps)
    assert made <= called & answered  # the history has the full pair


# -- a failure does not look like success --


def failing(when: str) -> Handler:
    """A model that fails at once, or in the middle of what it says."""

    async def answer(request: Request) -> AsyncGenerator[HandlerEvent]:
        if when == "mid-stream":
            yield TextDelta("It is al")
        raise InvalidRequest("no")

    return function_handler(answer, name="failing")


@pytest.mark.parametrize("when", ["first call", "mid-stream"])
@pytest.mark.parametrize("returns", [False, True])
async def test_a_target_that_fails_has_not_answered(when: str, returns: bool) -> None:
    """There is no output, in no form; the record, the event and the error say that it failed."""

    def make() -> Agent[Any]:
        b = Agent("B", model=failing(when))
        return agent("A", call("transfer_to_b"), handoffs=[handoff(b, return_to_caller=returns)])

    played = await both(make, raise_on=["failed_handoff"])
    assert isinstance(played.error, InvalidRequest)
    assert (played.result.final_output, played.result.stop_reason) == (None, "error")
    (record,) = played.result.handoffs
    assert (record.status, record.taken) == (HandoffStatus.FAILED, True)
    (ended,) = [event for event in played.events if isinstance(event, HandoffCompleted)]
    assert not ended.success


async def test_caller_is_told_of_a_failed_target() -> None:
    """Its call has the error as its answer, and it stays in charge."""

    def make() -> Agent[Any]:
        without_model = Agent("B", model=None)
        declared = Handoff(agent_name="B", on_invoke_handoff=lambda context, arguments: without_model)
        return agent("A", call("transfer_to_b"), "I do it myself.", handoffs=[declared])

    played = await both(make)
    assert (played.result.last_agent.name, played.result.final_output) == ("A", "I do it myself.")
    assert played.answers[0].startswith("The transfer to 'B' was not made: NoHandlerError: ")
    assert [one.status for one in played.result.handoffs] == [HandoffStatus.FAILED]


@pytest.mark.parametrize("when", ["first call", "mid-stream"])
async def test_caller_is_told_of_a_failed_agent_tool(when: str) -> None:
    """Its call has the error as its answer, and it stays in charge."""

    def make() -> Agent[Any]:
        helper = Agent("helper", model=failing(when))
        return agent("A", call("helper", {"input": "?"}, id="h"), "No luck.", tools=[helper.as_tool()])

    played = await both_nested(make)
    assert (played.result.last_agent.name, played.result.final_output) == ("A", "No luck.")
    assert answers_of(played.result)[0].startswith(
        "Tool 'helper' failed: InvalidRequest: its model cannot be asked"
    )
    assert [event.error for event in played.events if isinstance(event, ToolOutput)] == ["raised"]
    assert played.result.nested["h"].stop_reason == "error"


# -- caches stay warm, and guardrails hold at each entrance --


@pytest.mark.asyncio_only
@given(looks=st.lists(st.integers(1, 3), min_size=1, max_size=5), switched=st.booleans())
async def test_each_request_of_an_agent_extends_its_last(looks: list[int], switched: bool) -> None:
    """So a provider's prompt cache holds: the same tools, the same messages, and more at the end."""
    c = agent("C", "C.")
    to_c = handoff(c, return_to_caller=True)
    said: list[Any] = [[call("look_up", {"order": n}) for n in range(count)] for count in looks]
    said.insert(len(said) // 2, call("transfer_to_c"))
    worker = agent("W", *said, "Done.", tools=[look_up], handoffs=[to_c])
    first = (
        agent("A", [LOOK, call("transfer_to_w")], tools=[look_up], handoffs=[worker]) if switched else worker
    )
    await Runner.run(first, "Hi", max_turns=None, run_config=RunConfig(detect_loops=False))
    assert len(requests(worker)) == len(said) + 1
    for before, after in pairwise(requests(worker)):
        assert after.messages[: len(before.messages)] == before.messages
        assert (after.tools, after.settings) == (before.tools, before.settings)


async def test_cached_tokens_are_counted_per_handoff() -> None:
    cached = Usage(requests=1, input_tokens=100, cached_tokens=80)
    b = agent("B", reply("Done.", usage=cached))
    result = await Runner.run(agent("A", call("transfer_to_b"), handoffs=[b]), "Hi")
    assert result.handoffs[0].usage == cached


@pytest.mark.asyncio_only
@given(path=st.lists(st.sampled_from(["on", "back"]), max_size=5))
async def test_input_guardrails_run_at_each_entry(path: list[str]) -> None:
    """As often as it becomes the active one, and not once more."""
    seen: list[str] = []

    def watch(context: Any, who: Any, messages: Any) -> GuardrailResult:
        seen.append(who.name)
        return GuardrailResult(tripwire_triggered=False)

    says: dict[str, list[Any]] = {"A": [], "B": []}
    entered, here = ["A"], "A"
    for step in path:
        other = "B" if here == "A" else "A"
        says[here].append([call("look_up", {"order": len(entered)}), call(f"transfer_to_{other.lower()}")])
        entered.append(other)
        here = other
        if step == "back":
            break
    says[here].append("Done.")
    options: dict[str, Any] = {"input_guardrails": [watch], "tools": [look_up]}
    b = agent("B", *says["B"], handoffs=["A"], **options)
    a = agent("A", *says["A"], handoffs=[b], **options)
    config = RunConfig(max_handoffs=None, detect_loops=False)
    result = await Runner.run(a, "Hi", max_turns=None, run_config=config)
    assert result.final_output == "Done."
    assert seen == entered


async def test_guardrail_can_stop_a_target_at_its_second_entry() -> None:
    """The second time, too."""
    visits: list[int] = []

    def second(context: Any, who: Any, messages: Any) -> GuardrailResult:
        visits.append(1)
        return GuardrailResult(tripwire_triggered=len(visits) > 1)

    b = agent("B", [LOOK, call("transfer_to_a")], handoffs=["A"], tools=[look_up], input_guardrails=[second])
    a = agent("A", call("transfer_to_b"), [LOOK, call("transfer_to_b")], handoffs=[b], tools=[look_up])
    with pytest.raises(RoutelockError, match="Guardrail 'second' stopped"):
        await Runner.run(a, "Hi", run_config=RunConfig(detect_loops=False))
