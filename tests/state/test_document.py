"""The JSON of a run: what may come in as one, and what is refused with the place."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scripted_agents import TO_B, agent, look_up, pair
from thoroughness import examples

from routelock import (
    Agent,
    Request,
    RunConfig,
    Runner,
    RunResult,
    RunState,
    handoff,
)
from routelock.errors import ConfigError, RoutelockError
from routelock.handlers.events import HandlerEvent
from routelock.state.run_state import RunStatus
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio

PROBLEM = {"kind": "tool", "agent": "A", "turn": 1, "message": "It failed."}
ITEM = {"id": 0, "kind": "summary", "message": {"role": "user", "content": "Hi"}}
CHAIN = [{"item": ITEM, "covers": [-place] if place else [0]} for place in range(51)]
"""Summaries, each of the one before."""


async def stopped(of: Agent[Any], input: Any = "Hi", *, after: int = 1, **settings: Any) -> RunResult[Any]:
    """The result of a run that a limit of turns ended."""
    config = RunConfig(**{"run_id": "r", "on_limit": "return", **settings})
    return await Runner.run(of, input, max_turns=after, run_config=config)


# -- what comes in --


async def state_of(of: Agent[Any]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((await stopped(of)).state().to_json())
    return data


@pytest.mark.parametrize("place", ["first_agent", "announced_agent", "frames"])
async def test_an_unknown_agent_is_named_with_those_there_are(place: str) -> None:
    a, _ = pair()
    data = await state_of(a)
    if place == "frames":
        data["frames"][-1]["agent"] = "Z"
    else:
        data[place] = "Z"
    with pytest.raises(ConfigError, match=r"names the agent 'Z', which is not there\. Known: A, B\."):
        RunState.from_json(json.dumps(data), agents=[a])


async def test_an_agent_that_waits_must_be_there_too() -> None:
    a, b = pair(return_to_caller=True)
    text = (await stopped(a)).state().to_json()
    with pytest.raises(ConfigError, match="names the agent 'A'"):
        RunState.from_json(text, agents=[b])


async def test_the_run_that_goes_on_must_know_the_agents_as_well() -> None:
    a, _ = pair()
    state = (await stopped(a)).state()
    with pytest.raises(ConfigError, match=r"names the agent 'B', which is not there\. Known: A"):
        await Runner.run(agent("A"), state)


async def test_agents_that_nothing_connects_are_given_beside() -> None:
    b = agent("B", call("look_up", {"order": 1}), "Done.", tools=[look_up])
    a = agent("A", TO_B, handoffs=["B"])
    result = await Runner.run(a, "Hi", max_turns=2, run_config=RunConfig(agents=[b], on_limit="return"))
    state = RunState.from_json(result.state().to_json(), agents=[a, b])
    assert (await Runner.run(a, state, run_config=RunConfig(agents=[b]))).final_output == "Done."


async def test_two_agents_of_one_name_are_refused() -> None:
    a, _ = pair()
    text = (await stopped(a)).state().to_json()
    with pytest.raises(ConfigError, match="Two different agents are named 'B'"):
        RunState.from_json(text, agents=[a, agent("B")])
    with pytest.raises(ConfigError, match="agents must be a list of agents"):
        RunState.from_json(text, agents=["A"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format_version": 2}, "it has format_version 2, and this routelock reads up to 1"),
        ({"format_version": None}, "format_version must be a whole number"),
        ({"turn": -1}, "turn: Input should be greater than or equal to 0"),
        ({"turn": True}, "turn: Input should be a valid integer"),
        ({"items": []}, "items: List should have at least 1 item"),
        ({"stop_reason": "paused"}, "stop_reason: Input should be 'done'"),
        ({"run_id": ""}, "run_id: String should have at least 1 character"),
        ({"input_count": 99}, "input_count is beyond the last item"),
        ({"first_of_turn": 99}, "first_of_turn is beyond the last item"),
        ({"pending": [{"id": "x", "function": {"name": "f", "arguments": "{}"}}]}, "there is no call 'x'"),
        ({"pending": [{"id": "x"}]}, "pending.0: a call needs an id, and a function"),
        ({"pending": [{"function": {"name": "f", "arguments": "{}"}}]}, "pending.0: a call needs an id"),
        ({"usage_by_handoff": {}}, "handoff_id 'h-r-1' is no handoff of the run"),
    ],
)
async def test_what_is_no_state_is_refused_with_the_place(change: dict[str, Any], why: str) -> None:
    a, _ = pair()
    data = {**await state_of(a), **change}
    with pytest.raises(ValueError, match="This is no RunState: ") as raised:
        RunState.from_json(json.dumps(data), agents=[a])
    assert why in str(raised.value)


async def test_a_state_that_a_database_has_parsed_is_to_be_text_again() -> None:
    a, _ = pair()
    with pytest.raises(ValueError, match="expected the text that to_json gave"):
        RunState.from_json(await state_of(a), agents=[a])  # type: ignore[arg-type]


async def test_one_agent_is_no_list_of_agents() -> None:
    a, _ = pair()
    text = json.dumps(await state_of(a))
    with pytest.raises(ConfigError, match=r"agents must be a list of agents, such as \[agent\]"):
        RunState.from_json(text, agents=a)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (("items", 0, "id"), 7, "items[0] must have the id 0"),
        (("items", 0, "message"), {"role": "wizard"}, "items[0]: Input message 0 has role 'wizard'"),
        (("items", 0, "whole"), [{"role": "user", "content": "Hi"}], "items[0] is a summary"),
        (("frames", 0, "view"), [99], "frames[0].view[0]: there is no item 99"),
        (("frames", 0, "view"), [-1], "frames[0].view[0]: there is no item -1"),
        (("shown_items",), [{"item": ITEM, "covers": [-1]}], "shown_items[0].covers[0]: there is no item"),
        (("shown_items",), CHAIN, "shown_items[50] covers summaries of more than 50 levels"),
        (("shown_items",), [{"item": {**ITEM, "covers": [ITEM]}}], "shown_items[0].item.covers must be"),
        (("shown_items",), [{"item": {**ITEM, "kind": "spell"}}], "shown_items.0.item.kind: Input should be"),
        (
            ("decisions",),
            [{"on": [], "decision": {"approved": True}}],
            "decisions.0.on: Tuple should",
        ),
        (("usage", "input_tokens"), -1, "usage: a number is negative or too large"),
        (("handoffs", 0, "target"), "", "handoffs.0: it needs a target"),
        (("handoffs", 0, "request", "timeout"), -1.0, "handoffs.0.request: value error"),
        (("handoffs", 0, "status"), "LOST", "handoffs.0.status: Input should be"),
        (
            ("errors",),
            [{"kind": "tool", "agent": "A", "turn": 1, "message": "", "error": {}}],
            "errors.0.error",
        ),
        (("frames", 0, "call"), {"id": "x"}, "frames.0.call: a call needs an id"),
        (("items", 1, "message", "tool_calls", 0, "id"), None, "a call of the run has no id"),
    ],
)
async def test_what_refers_to_nothing_is_refused(path: tuple[Any, ...], value: Any, why: str) -> None:
    a, _ = pair()
    data: Any = await state_of(a)
    node = data
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    with pytest.raises(ValueError, match="This is no RunState: ") as raised:
        RunState.from_json(json.dumps(data), agents=[a])
    assert why in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '"x"',
        "{",
        b"\xff",
        b"\x80\x04\x95",
        "\ud800",
        '{"format_version": 1}',
        "[" * 200,
        "9" * 9999,
    ],
)
def test_what_is_something_else_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="This is no RunState"):
        RunState.from_json(text, agents=[agent("A")])


async def test_size_and_depth_have_limits() -> None:
    a = agent("A", call("look_up", {"order": 1}), tools=[look_up])
    deep: Any = []
    for _ in range(50):
        deep = [deep]
    text = (await stopped(a, shared_memory={"deep": deep})).state().to_json()
    for limits in ({"max_bytes": 100}, {"max_depth": 40}):
        with pytest.raises(ValueError, match=r"This is no RunState: .*more than"):
            RunState.from_json(text, agents=[a], **limits)
    with pytest.raises(ValueError, match="Failed to serialize RunState: more than 100 bytes"):
        RunState.from_json(text, agents=[a]).to_json(max_bytes=100)


async def test_what_a_later_version_adds_is_passed_over() -> None:
    a, _ = pair()
    data = {**await state_of(a), "something new": [1]}
    assert RunState.from_json(json.dumps(data), agents=[a]).agent == "B"


def test_no_value_is_shown_in_an_error() -> None:
    """Errors go to logs."""
    with pytest.raises(ValueError, match="run_id") as raised:
        RunState.from_json('{"format_version": 1, "run_id": {"key": "s3cret"}}', agents=[agent("A")])
    assert "s3cret" not in str(raised.value)


# -- fuzz --


class Parrot:
    """Answers anything, for ever."""

    name = "parrot"

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        async with aclosing(ScriptedHandler(["Done."]).stream(request)) as events:
            async for event in events:
                yield event


def parrots() -> Agent[Any]:
    c = Agent("C", model=Parrot(), tools=[look_up])
    b = Agent("B", model=Parrot(), tools=[look_up], handoffs=[handoff(c, return_to_caller=True), "A"])
    return Agent("A", model=Parrot(), tools=[look_up], handoffs=[b])


SEEDS: list[Any] = []


async def _seed() -> Any:
    """A state with a bit of everything in it."""
    if not SEEDS:
        c = agent("C", call("look_up", {"order": 2}), tools=[look_up])
        b = agent("B", call("transfer_to_c", id="c"), handoffs=[handoff(c, return_to_caller=True), "A"])
        payload = {"handoff_type": "x", "page": "Moss."}
        first = [call("look_up", {"order": 1}, id="l"), TO_B]
        a = agent("A", first, tools=[look_up], handoffs=[handoff(b, payload=payload, share=["m"])])
        SEEDS.append(
            json.loads(
                (await stopped(a, after=3, nest_handoff_history=True, shared_memory={"m": 1}))
                .state()
                .to_json()
            )
        )
    return json.loads(json.dumps(SEEDS[0]))


_KEYS = st.sampled_from(["id", "role", "x"])


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 5)
    | st.sampled_from([2**60, 10**400, 0.5, "", "A", "B", "Z", "l", "t", "h-r-1", "done", "model", "tool"])
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "role", "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every place in a document, as its container and its key."""
    if isinstance(node, dict):
        return [(node, key) for key in node] + [place for each in node.values() for place in places(each)]
    if isinstance(node, list):
        return [(node, key) for key in range(len(node))] + [place for each in node for place in places(each)]
    return []


@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.booleans(), JUNK), min_size=1, max_size=3))
@examples(25)
async def test_a_changed_state_is_refused_or_a_run_that_ends_in_order(
    changes: list[tuple[float, bool, Any]],
) -> None:
    data = await _seed()
    for where, remove, junk in changes:
        found = places(data)
        container, key = found[int(where * len(found))]
        if remove:
            del container[key]
        else:
            container[key] = junk
    a = parrots()
    try:
        state = RunState.from_json(json.dumps(data), agents=[a])
    except ValueError:
        return
    assert state.status in RunStatus
    assert state.reason is None or state.requested_handoff
    assert RunState.from_json(state.to_json(include_secrets=True), agents=[a]) == state
    try:
        result = await Runner.run(a, state, max_turns=20)
    except (RoutelockError, ValueError):
        return
    assert result.stop_reason == "done"


@given(st.binary(max_size=60) | st.text(max_size=40) | JUNK.map(lambda junk: json.dumps(junk, default=str)))
@example('{"format_version": 1, "items": [{"covers": [[[[]]]]}]}')
@examples(25)
def test_anything_else_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="This is no RunState"):
        RunState.from_json(text, agents=[parrots()])
