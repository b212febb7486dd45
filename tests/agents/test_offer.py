"""What an agent offers its model: its tools, its handoffs, and the tools of the caller."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import Agent, RunConfig, RunContext, Runner, Tool, handoff
from routelock.agents.offer import offer_tools
from routelock.errors import CallbackError
from routelock.history.messages import text_of
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio

CONTEXT: RunContext[Any] = RunContext(context={"vip": True})


def tool(name: str, **options: Any) -> Tool:
    return Tool(name=name, on_invoke_tool=lambda context, arguments: "", **options)


A = Agent("A", tools=[tool("one"), tool("two")], handoffs=[Agent("B"), Agent("C")])


async def test_tools_and_then_handoffs_are_offered_in_their_order() -> None:
    """A stable order keeps prompt caches warm."""
    offered = await offer_tools(A, CONTEXT)
    names = ["one", "two", "transfer_to_b", "transfer_to_c"]
    assert [spec["function"]["name"] for spec in offered.specs] == names
    assert list(offered.routes) == names
    assert offered.fixed


async def test_routes_lead_to_what_was_declared() -> None:
    offered = await offer_tools(A, CONTEXT)
    assert offered.routes["one"] is A.tools[0]
    assert offered.routes["transfer_to_b"] is A.all_handoffs[0]


async def test_an_agent_with_nothing_is_offered_nothing() -> None:
    offered = await offer_tools(Agent("A"), CONTEXT)
    assert (offered.specs, offered.routes, offered.fixed) == ((), {}, True)


async def test_a_disabled_tool_or_handoff_is_not_offered() -> None:
    agent = Agent(
        "A", tools=[tool("one", is_enabled=False)], handoffs=[handoff(Agent("B"), is_enabled=False)]
    )
    offered = await offer_tools(agent, CONTEXT)
    assert (offered.specs, offered.routes, offered.fixed) == ((), {}, True)


async def _slow(context: RunContext[Any], agent: Agent[Any]) -> bool:
    return context.context["vip"]


@pytest.mark.parametrize(
    ("enabled", "names"),
    [
        (lambda context, agent: context.context["vip"], ["transfer_to_b"]),
        (lambda context, agent: agent.name == "another agent", []),
        (_slow, ["transfer_to_b"]),
        (lambda context, agent: "yes", ["transfer_to_b"]),
        (lambda context, agent: None, []),
    ],
)
async def test_whether_it_is_enabled_can_depend_on_the_moment(enabled: Any, names: list[str]) -> None:
    """Then the offer is made anew in every turn."""
    offered = await offer_tools(Agent("A", handoffs=[handoff(Agent("B"), is_enabled=enabled)]), CONTEXT)
    assert list(offered.routes) == names
    assert not offered.fixed


async def test_handoff_can_be_enabled_per_turn() -> None:
    """The tools of each model call are what is enabled at that moment."""
    model = ScriptedHandler([call("look"), call("look"), "Done."])
    target = handoff(Agent("B", model=model), is_enabled=lambda context, agent: context.turn == 2)
    agent = Agent("A", model=model, tools=[tool("look")], handoffs=[target])
    await Runner.run(agent, "Hi")
    offered = [[spec["function"]["name"] for spec in request.tools] for request in model.requests]
    assert offered == [["look"], ["look", "transfer_to_b"], ["look"]]


async def test_call_of_a_disabled_handoff_is_only_answered() -> None:
    model = ScriptedHandler([call("transfer_to_b"), "I answer myself."])
    agent = Agent("A", model=model, handoffs=[handoff(Agent("B", model=model), is_enabled=False)])
    result = await Runner.run(agent, "Hi")
    assert result.last_agent is agent
    assert "There is no tool named 'transfer_to_b'" in text_of(model.requests[1].messages[-1])
    assert result.handoffs == ()


async def test_failing_is_enabled_is_a_callback_error() -> None:
    def broken(context: RunContext[Any], agent: Agent[Any]) -> bool:
        raise KeyError("plan")

    model = ScriptedHandler([])
    agent = Agent("A", model=model, handoffs=[handoff(Agent("B", model=model), is_enabled=broken)])
    with pytest.raises(CallbackError, match="of the handoff to 'B' of agent 'A' raised KeyError") as caught:
        await Runner.run(agent, "Hi")
    assert caught.value.result.messages == [{"role": "user", "content": "Hi"}]


async def test_all_runs_are_offered_the_same_tuple_of_tools() -> None:
    """Providers recognise by it the tools that they have encoded."""
    model = ScriptedHandler(["One.", "Two."])
    agent = Agent("A", model=model, tools=[tool("one")])
    for _ in range(2):
        await Runner.run(agent, "Hi")
    first, second = model.requests
    assert first.tools is second.tools


async def test_runs_with_models_of_their_own_share_an_offer() -> None:
    """Else each model that an app makes for a run would stay in memory with the agent."""
    agent = Agent("A", tools=[tool("one")])
    models = [ScriptedHandler(["Done."], name=name) for name in ("first", "second")]
    for model in models:
        await Runner.run(agent, "Hi", run_config=RunConfig(model=model))
    first, second = (model.requests[0] for model in models)
    assert first.tools is second.tools


async def test_target_that_is_named_has_the_description_of_the_run() -> None:
    model = ScriptedHandler(["One.", "Two."])
    agent = Agent("A", model=model, handoffs=["B"])
    for about in ("Knows dogs.", "Knows cats."):
        known = Agent("B", model=model, handoff_description=about)
        await Runner.run(agent, "Hi", run_config=RunConfig(agents=[known]))
    dogs, cats = ([spec["function"]["description"] for spec in request.tools] for request in model.requests)
    assert dogs == ["Handoff to the B agent to handle the request. Knows dogs."]
    assert cats == ["Handoff to the B agent to handle the request. Knows cats."]
