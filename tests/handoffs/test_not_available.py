"""``is_enabled`` is checked again before a call: a tool disabled since the offer is not used."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from plain_and_streamed import both
from scripted_agents import agent, answers_of, requests, statuses

from routelock import Agent, RunConfig, Runner, RunState, tool
from routelock import handoff as make_handoff
from routelock.errors import CallbackError
from routelock.handlers.events import HandlerEvent
from routelock.handlers.port import Request
from routelock.run.events import HandoffFailed
from routelock.run.executor import InProcess
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio

NOT_NOW = "Tool {!r} is not available now, so this call was not made."
NO_TRANSFER = "The transfer to 'B' is not available now, so it was not made."


class Switch:
    """Says whether something is enabled, and how often it was asked."""

    def __init__(self, *, on: bool = True) -> None:
        self.on = on
        self.asked = 0
        self.done: list[str] = []

    def __call__(self, context: Any, owner: Any) -> bool:
        self.asked += 1
        return self.on

    def tool(self, name: str = "work", **settings: Any) -> Any:
        def work() -> str:
            self.done.append(name)
            return f"{name} is done"

        return tool(work, name=name, **{"is_enabled": self, **settings})


class Flipping(ScriptedHandler):
    """A model that takes its time: a switch is turned off before the first reply is there."""

    def __init__(self, switch: Switch, *replies: Any) -> None:
        super().__init__(replies)
        self.switch = switch

    async def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        async for event in super().stream(request):
            self.switch.on = False
            yield event


@pytest.mark.parametrize("executor", [None, InProcess()])
@pytest.mark.parametrize("names", [["work"], ["work", "other"]])
async def test_tool_disabled_meanwhile_is_not_run(names: list[str], executor: Any) -> None:
    switch = Switch()

    def make() -> Agent[Any]:
        switch.on, switch.done = True, []
        calls = [call(name, id=f"c-{name}") for name in names]
        tools = [switch.tool(), switch.tool("other", is_enabled=True)]
        return Agent("A", model=Flipping(switch, calls, "Then not."), tools=tools)

    played = await both(make, executor=executor, raise_on={"unknown_tool"}, max_mistakes=1)
    assert played.answers == [NOT_NOW.format("work"), "other is done"][: len(names)]
    assert played.result.final_output == "Then not."
    assert switch.done == names[1:]
    assert [(each.kind, each.message) for each in played.result.errors] == [("tool", NOT_NOW.format("work"))]


async def test_agent_tool_disabled_meanwhile_is_not_run() -> None:
    switch = Switch()
    helper = agent("helper", "never")

    def make() -> Agent[Any]:
        switch.on = True
        asking = Flipping(switch, call("helper", {"input": "Go"}), "Then not.")
        return Agent("A", model=asking, tools=[helper.as_tool(is_enabled=switch)])

    played = await both(make)
    assert played.answers == [NOT_NOW.format("helper")]
    assert requests(helper) == []


async def test_a_handoff_that_was_disabled_meanwhile_is_not_made() -> None:
    switch = Switch()

    def make() -> Agent[Any]:
        switch.on = True
        declared = make_handoff(agent("B", "never"), is_enabled=switch)
        return Agent("A", model=Flipping(switch, call("transfer_to_b"), "Then I do it."), handoffs=[declared])

    played = await both(make, max_mistakes=1)
    assert played.answers == [NO_TRANSFER]
    assert statuses(played.result) == [("A", "B", "not_taken")]
    assert [event.reason for event in played.events if isinstance(event, HandoffFailed)] == [NO_TRANSFER]
    assert played.result.last_agent.name == "A"


async def test_a_tool_of_the_same_reply_may_disable_a_handoff() -> None:
    switch = Switch()

    @tool
    def close() -> str:
        """Close the way."""
        switch.on = False
        return "closed"

    def make() -> Agent[Any]:
        switch.on = True
        declared = make_handoff(agent("B", "never"), is_enabled=switch)
        return agent(
            "A", [call("close"), call("transfer_to_b")], "Then I do it.", tools=[close], handoffs=[declared]
        )

    assert (await both(make)).answers == ["closed", NO_TRANSFER]


@pytest.mark.parametrize("later", [False, Switch(on=False)], ids=["constant", "function"])
async def test_approved_tool_disabled_meanwhile_is_not_run(later: Any) -> None:
    """A person may take days."""
    switch = Switch()
    first = agent("A", call("work", id="c"), tools=[switch.tool(needs_approval=True)])
    state = (await Runner.run(first, "Hi")).state()
    (one,) = state.interruptions
    text = state.approve(one).to_json()
    now = agent("A", "Then not.", tools=[switch.tool(needs_approval=True, is_enabled=later)])
    config = RunConfig(raise_on={"unknown_tool"}, max_mistakes=1)
    result = await Runner.run(now, RunState.from_json(text, agents=[now]), run_config=config)
    assert answers_of(result) == [NOT_NOW.format("work")]
    assert switch.done == []


async def test_approved_handoff_disabled_meanwhile_is_not_made() -> None:
    switch = Switch()
    declared = make_handoff(agent("B", "never"), is_enabled=switch, needs_approval=True)
    made = agent("A", call("transfer_to_b"), "Then I do it.", handoffs=[declared])
    state = (await Runner.run(made, "Hi")).state()
    switch.on = False
    result = await Runner.run(made, state.approve(state.interruptions[0]))
    assert answers_of(result) == [NO_TRANSFER]
    assert result.last_agent is made


async def test_rejection_stands_for_a_disabled_tool() -> None:
    switch = Switch()
    made = agent("A", call("work"), "Then not.", tools=[switch.tool(needs_approval=True)])
    state = (await Runner.run(made, "Hi")).state()
    switch.on = False
    result = await Runner.run(made, state.reject(state.interruptions[0], message="Too late."))
    assert answers_of(result) == ["This call was not approved: Too late."]


async def test_disabled_tool_waits_for_no_approval() -> None:
    switch = Switch()
    work = switch.tool(needs_approval=True)
    result = await Runner.run(
        Agent("A", model=Flipping(switch, call("work"), "Then not."), tools=[work]), "Hi"
    )
    assert result.interruptions == ()
    assert answers_of(result) == [NOT_NOW.format("work")]


async def test_pending_call_keeps_waiting_when_its_tool_is_disabled() -> None:
    """There was no decision."""
    switch = Switch()
    made = agent("A", call("work"), "Then not.", tools=[switch.tool(needs_approval=True)])
    state = (await Runner.run(made, "Hi")).state()
    switch.on = False
    result = await Runner.run(made, state)
    assert [one.name for one in result.interruptions] == ["work"]


async def test_is_enabled_is_called_for_the_offer_and_for_the_call() -> None:
    switch = Switch()
    made = agent("A", call("work"), "Done.", tools=[switch.tool()])
    assert (await Runner.run(made, "Hi")).final_output == "Done."
    assert switch.asked == 3  # two turns and a call
    assert switch.done == ["work"]


async def test_error_in_is_enabled_ends_the_run_before_any_call() -> None:
    switch = Switch()

    def broken(context: Any, owner: Any) -> bool:
        if not switch.on:
            raise KeyError("gone")
        return True

    tools = [switch.tool(is_enabled=broken), switch.tool("other", is_enabled=True)]
    made = Agent("A", model=Flipping(switch, [call("work"), call("other")]), tools=tools)
    with pytest.raises(
        CallbackError, match="is_enabled function of tool 'work' of agent 'A' raised KeyError"
    ):
        await Runner.run(made, "Hi")
    assert switch.done == []


async def test_missing_tool_is_not_reported_as_disabled() -> None:
    switch = Switch()
    first = agent("A", call("work", id="c"), tools=[switch.tool(needs_approval=True)])
    state = (await Runner.run(first, "Hi")).state()
    text = state.approve(state.interruptions[0]).to_json()
    now = agent("A", "Then not.", tools=[switch.tool("other", is_enabled=False)])
    result = await Runner.run(now, RunState.from_json(text, agents=[now]))
    assert answers_of(result) == ["There is no tool named 'work'. No tools are available; answer in words."]


async def test_started_agent_tool_disabled_meanwhile_is_reported_as_lost() -> None:
    switch = Switch()
    pay = tool(lambda: switch.done.append("pay"), name="pay", needs_approval=True)
    helper = agent("helper", call("pay"), "Paid.", tools=[pay])
    made = agent("A", call("helper", {"input": "Go"}), "Then not.", tools=[helper.as_tool(is_enabled=switch)])
    state = (await Runner.run(made, "Hi")).state()
    switch.on = False
    result = await Runner.run(made, state.approve(state.interruptions[0]))
    assert "had started this call" in answers_of(result)[0]
    assert switch.done == []
