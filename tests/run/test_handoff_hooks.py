"""What the target's own hooks are given beside the request and the history: who asks, and what tools kept."""

from __future__ import annotations

from typing import Any

import pytest
from plain_and_streamed import both
from scripted_agents import TO_B, agent

from routelock import Agent, HandoffRequest, RunConfig, RunContext, Runner, handoff, tool
from routelock.errors import ConfigError
from routelock.handoff_request import HandoffResponse, HandoffStatus
from routelock.handoffs.context import HandoffContext
from routelock.testing import call

pytestmark = pytest.mark.anyio

OWNER: dict[str, Any] = {"user_id": "u7", "scopes": ["owner"], "conversation_id": "c1"}


def team(b: Agent[Any], *first: Any, **options: Any) -> Agent[Any]:
    return agent("A", *(first or (TO_B,)), "Mine.", tools=[keep], handoffs=[handoff(b, **options)])


@tool
def keep(context: RunContext[Any], what: str) -> str:
    """Keep a result for the agent that takes over."""
    context.shared_memory.setdefault("tool_state", {}).setdefault("cached_results", {})["k"] = what
    return "kept"


# -- on_handoff_request --


async def test_policy_sees_the_source() -> None:
    seen: list[RunContext[Any]] = []

    async def policy(request: HandoffRequest, context: RunContext[Any]) -> HandoffResponse | None:
        seen.append(context)
        return None if "owner" in context.scopes else HandoffResponse.reject("Only for owners.")

    made = lambda: team(agent("B", "B here.", on_handoff_request=policy))  # noqa: E731
    assert (await both(made)).answers[0] == "The transfer to 'B' was not made: Only for owners."
    assert (await both(made, **OWNER)).result.final_output == "B here."
    last = seen[-1]
    assert (last.user_id, last.scopes, last.conversation_id) == ("u7", frozenset(["owner"]), "c1")
    assert (last.agent, last.turn, last.run_id) == ("A", 1, "r")


async def test_policy_sees_context_and_shared_memory() -> None:
    seen: list[Any] = []

    def policy(request: HandoffRequest, context: RunContext[Any]) -> None:
        seen.append((context.context, dict(context.shared_memory)))

    config = RunConfig(shared_memory={"cart": 1})
    await Runner.run(
        team(agent("B", "B here.", on_handoff_request=policy)), "Hi", context="mine", run_config=config
    )
    assert seen == [("mine", {"cart": 1})]


async def test_policy_sees_the_targets_memory_only() -> None:
    seen: list[Any] = []

    def policy(request: HandoffRequest, context: RunContext[Any]) -> None:
        seen.append(dict(context.shared_memory))
        context.shared_memory["cart"] = 99

    config = RunConfig(shared_memory={"cart": 1, "token": "secret"})
    made = team(agent("B", "B here.", on_handoff_request=policy), share=["cart"])
    result = await Runner.run(made, "Hi", run_config=config)
    assert seen == [{"cart": 1}]
    assert result.context.shared_memory == {"cart": 1, "token": "secret"}


async def test_one_parameter_will_do() -> None:
    seen: list[Any] = []
    await Runner.run(team(agent("B", "B here.", on_handoff_request=seen.append)), "Hi")
    assert [type(each) for each in seen] == [HandoffRequest]


async def test_a_parameter_with_a_default_is_the_apps_own() -> None:
    def policy(request: HandoffRequest, limit: int = 5) -> None:
        assert limit == 5

    result = await Runner.run(team(agent("B", "B here.", on_handoff_request=policy)), "Hi")
    assert result.final_output == "B here."


@pytest.mark.parametrize("name", ["on_handoff_request", "on_handoff_received"])
def test_what_can_be_called_with_neither_is_refused(name: str) -> None:
    def odd(one: Any, two: Any, three: Any) -> None: ...

    wrong = f"Agent 'B': {name} 'odd' must take one argument, or two with the context of the run"
    for hook in (odd, lambda: None):
        with pytest.raises(ConfigError, match=wrong if hook is odd else name):
            agent("B", **{name: hook})


# -- on_handoff_received --


async def test_on_handoff_of_the_target_gets_the_run_context() -> None:
    seen: list[Any] = []

    async def received(snapshot: HandoffContext, context: RunContext[Any]) -> None:
        seen.append((snapshot.metadata["agent_name"], context.agent, context.user_id, context.scopes))

    await both(lambda: team(agent("B", "B here.", on_handoff_received=received)), **OWNER)
    assert seen == [("A", "B", "u7", frozenset(["owner"]))] * 2


async def test_the_target_may_keep_things_for_its_tools() -> None:
    def received(snapshot: HandoffContext, context: RunContext[Any]) -> None:
        context.shared_memory["taken"] = len(snapshot.conversation_history)

    result = await Runner.run(team(agent("B", "B here.", on_handoff_received=received)), "Hi")
    assert result.context.shared_memory == {"taken": 2}


async def test_what_tools_kept_is_in_the_snapshot() -> None:
    seen: list[HandoffContext] = []
    b = agent("B", "B here.", on_handoff_received=seen.append)
    await Runner.run(team(b, call("keep", {"what": "soup"}), TO_B), "Hi")
    assert seen[0].tool_state == {"cached_results": {"k": "soup"}}


async def test_what_is_in_the_snapshot_is_a_copy() -> None:
    def received(snapshot: HandoffContext) -> None:
        snapshot.tool_state["cached_results"]["k"] = "changed"

    b = agent("B", "B here.", on_handoff_received=received)
    result = await Runner.run(team(b, call("keep", {"what": "soup"}), TO_B), "Hi")
    assert result.context.shared_memory["tool_state"] == {"cached_results": {"k": "soup"}}


@pytest.mark.parametrize(("share", "state"), [([], {}), (["tool_state"], {"cached_results": {"k": "soup"}})])
async def test_what_tools_kept_has_to_be_shared(share: list[str], state: Any) -> None:
    seen: list[HandoffContext] = []
    b = agent("B", "B here.", on_handoff_received=seen.append)
    await Runner.run(team(b, call("keep", {"what": "soup"}), TO_B, share=share), "Hi")
    assert seen[0].tool_state == state


async def test_what_is_no_dict_is_told() -> None:
    seen: list[HandoffContext] = []
    b = agent("B", "B here.", on_handoff_received=seen.append)
    config = RunConfig(shared_memory={"tool_state": ["soup"]})
    result = await Runner.run(team(b), "Hi", run_config=config)
    assert seen[0].tool_state == {}
    assert "shared_memory['tool_state'] is a list, not a dict" in result.warnings[0]


async def test_failing_policy_with_context_refuses() -> None:
    def policy(request: HandoffRequest, context: RunContext[Any]) -> None:
        raise KeyError("broken")

    played = await both(lambda: team(agent("B", on_handoff_request=policy)))
    assert played.result.handoffs[0].status is HandoffStatus.REJECTED
