"""What a state is made of: items by number, and shared data that must be JSON."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_agents import TO_B, agent, look_up, pair

from routelock import Agent, RunConfig, Runner, RunResult, RunState
from routelock.errors import ConfigError
from routelock.testing import call

pytestmark = pytest.mark.anyio


async def stopped(of: Agent[Any], input: Any = "Hi", *, after: int = 1, **settings: Any) -> RunResult[Any]:
    """The result of a run that a limit of turns ended."""
    config = RunConfig(**{"run_id": "r", "on_limit": "return", **settings})
    return await Runner.run(of, input, max_turns=after, run_config=config)


async def test_a_view_names_the_items_and_does_not_repeat_them() -> None:
    """What grows is written once, however many agents wait and whatever they were shown."""
    a, _ = pair(return_to_caller=True)
    big = "x" * 10_000
    state = (await stopped(a, big)).state()
    assert state.to_json().count(big) == 1
    assert state.document.waiting[0].view == [0, 1]


async def test_a_summary_is_the_same_summary() -> None:
    """What it covers is the transcript's own, so the next nesting renders again from that."""
    b = agent("B", call("look_up", {"order": 1}), "Done.", tools=[look_up])
    a = agent("A", [call("look_up", {"order": 7}), TO_B], tools=[look_up], handoffs=[b])
    state = (await stopped(a, nest_handoff_history=True)).state()
    assert state.document.active.view == [-1, 0]
    assert [(one.item.kind, one.covers) for one in state.document.shown_items] == [("summary", [1, 2, 3])]


@pytest.mark.parametrize(
    ("memory", "where"),
    [
        ({"basket": {"apple"}}, r"shared_memory\.basket: set is no JSON type"),
        ({"user": {"born": object()}}, r"shared_memory\.user\.born: object is no JSON type"),
        ({"pair": (1, 2)}, r"shared_memory\.pair: tuple is no JSON type; use a list"),
        ({"n": float("nan")}, r"shared_memory\.n: nan is no JSON number"),
        ({"by id": {1: "x"}}, r"shared_memory\.by id: a key must be text, not int"),
    ],
)
async def test_memory_that_is_no_json_is_named(memory: Any, where: str) -> None:
    result = await stopped(agent("A", call("look_up", {"order": 1}), tools=[look_up]), shared_memory=memory)
    with pytest.raises(ConfigError, match=where):
        result.state()


async def test_half_a_surrogate_pair_is_no_obstacle() -> None:
    """A model or a tool that cuts an emoji in two must not take the state away."""
    a = agent("A", call("look_up", {"order": 1}, id="l"), "Done.", tools=[look_up])
    result = await stopped(a, "half \ud83d", shared_memory={"k\ud83d": ["\ud83d!"], "é": "é"})
    state = RunState.from_json(result.state().to_json(), agents=[a])
    assert state.items[0].message.get("content") == "half \ufffd"
    assert state.document.shared_memory == {"k\ufffd": ["\ufffd!"], "é": "é"}
    assert (await Runner.run(a, state)).final_output == "Done."


async def test_memory_that_is_within_itself_is_named() -> None:
    memory: dict[str, Any] = {}
    result = await stopped(
        agent("A", call("look_up", {"order": 1}), tools=[look_up]), shared_memory={"m": memory}
    )
    result.context.shared_memory["m"]["self"] = result.context.shared_memory["m"]
    with pytest.raises(ConfigError, match=r"shared_memory\.m\.self"):
        result.state()
