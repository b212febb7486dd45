"""Routing: a call's name is looked up among exactly what was offered in that very turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_agents import outcome

from routelock import Agent, RunConfig, RunContext, Runner, Tool
from routelock.agents.offer import OfferedTools, Route, offer_tools
from routelock.history.messages import ToolCall
from routelock.run.mistakes import unknown_tool
from routelock.run.routing import NOT_TAKEN, RoutedCall, RoutedCalls
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio

CONTEXT: RunContext[Any] = RunContext(context={"vip": True})


def tool(name: str, **options: Any) -> Tool:
    return Tool(name=name, on_invoke_tool=lambda context, arguments: "", **options)


A = Agent("A", tools=[tool("one"), tool("two")], handoffs=[Agent("B"), Agent("C")])


def made(*names: str) -> list[ToolCall]:
    return [call(name, id=f"call_{place}") for place, name in enumerate(names)]


# -- RoutedCalls --


async def _routed(names: Sequence[str], multiple: Any = "first") -> RoutedCalls:
    routed = RoutedCalls(made(*names), await offer_tools(A, CONTEXT))
    routed.choose(multiple)
    return routed


def chosen(routed: RoutedCalls) -> RoutedCall:
    assert routed.handoff_call is not None
    return routed.handoff_call


async def test_each_call_has_the_kind_of_what_it_leads_to() -> None:
    routed = await _routed(["two", "nope", "transfer_to_c", "one"])
    assert [call.kind for call in routed.calls] == ["tool", "unknown", "handoff", "tool"]
    assert [(call.id, call.tool.name) for call in routed.tools] == [("call_0", "two"), ("call_3", "one")]
    assert chosen(routed).tool_call == made("x", "x", "transfer_to_c")[2]
    assert chosen(routed).attempt.handoff is A.all_handoffs[1]
    assert [*routed.skipped] == []


async def test_first_handoff_of_a_reply_is_taken() -> None:
    routed = await _routed(["transfer_to_c", "transfer_to_b", "transfer_to_c"])
    assert chosen(routed).attempt.handoff.agent_name == "C"
    assert [
        (call.id, call.attempt.handoff.agent_name, call.attempt.result_text) for call in routed.skipped
    ] == [
        ("call_1", "B", NOT_TAKEN),
        ("call_2", "C", NOT_TAKEN),
    ]


async def test_several_transfers_can_all_be_refused() -> None:
    routed = await _routed(["transfer_to_c", "one", "transfer_to_b"], "reject")
    assert routed.handoff_call is None
    assert [call.id for call in routed.skipped] == ["call_0", "call_2"]
    assert "Ask for exactly one" in routed.skipped[0].attempt.result_text
    assert len(routed.tools) == 1


async def test_a_single_transfer_is_taken_under_either_policy() -> None:
    assert chosen(await _routed(["one", "transfer_to_b"], "reject")).attempt.handoff.agent_name == "B"


@pytest.mark.parametrize(
    "name",
    [
        "transfer_to_b7yu",
        "transfer_to_",
        "transfer_to_B",
        "Transfer_To_B",
        " transfer_to_b",
        "functions.transfer_to_b",
        "transfer_to_b\n",
        "",
    ],
)
async def test_a_near_miss_is_never_routed(name: str) -> None:
    """Not by prefix, not by likeness."""
    routed = await _routed([name])
    assert routed.handoff_call is None
    assert [call.kind for call in routed.calls] == ["unknown"]


async def test_a_call_without_a_name_is_unknown() -> None:
    nameless: Any = [
        {"id": "a", "type": "function", "function": {"arguments": "{}"}},
        {"id": "b", "type": "function", "function": {"name": None, "arguments": "{}"}},
    ]
    routed = RoutedCalls(nameless, await offer_tools(A, CONTEXT))
    assert [(call.name, call.kind) for call in routed.calls] == [("", "unknown"), ("", "unknown")]


async def test_a_users_tool_with_the_prefix_is_a_tool() -> None:
    """Only what was declared as a handoff hands over."""
    agent = Agent("A", tools=[tool("transfer_to_x")])
    routed = RoutedCalls(made("transfer_to_x"), await offer_tools(agent, CONTEXT))
    assert [call.tool.name for call in routed.tools] == ["transfer_to_x"]


_NAMES = st.lists(st.sampled_from(["one", "two", "transfer_to_b", "transfer_to_c", "nope"]), max_size=8)


@given(_NAMES, st.sampled_from(["first", "reject"]))
async def test_each_handoff_is_chosen_or_skipped(names: list[str], multiple: Any) -> None:
    routed = await _routed(names, multiple)
    placed = [*([routed.handoff_call] if routed.handoff_call else []), *routed.skipped]
    assert placed == [call for call in routed.calls if call.kind == "handoff"]


async def test_a_spec_of_the_callers_own_is_an_external_tool() -> None:
    spec = tool("search").spec
    routed = RoutedCalls(made("search"), await offer_tools(A, CONTEXT, external=[spec]))
    assert [call.kind for call in routed.calls] == ["external"]
    assert [one.tool_call for one in routed.external] == made("search")


# -- unknown_tool --


async def test_an_unknown_name_is_answered_with_what_there_is() -> None:
    assert unknown_tool("weather", await offer_tools(A, CONTEXT)) == (
        "There is no tool named 'weather'. Available tools: one, two, transfer_to_b, transfer_to_c."
    )


async def test_the_nearest_name_is_suggested() -> None:
    said = unknown_tool("transfer_to_b7yu", await offer_tools(A, CONTEXT))
    assert said.endswith("Did you mean 'transfer_to_b'?")


async def test_unknown_call_without_tools_asks_for_text() -> None:
    said = unknown_tool("dummy_tool", await offer_tools(Agent("A"), CONTEXT))
    assert said == "There is no tool named 'dummy_tool'. No tools are available; answer in words."


def test_list_of_names_is_cut_at_a_name() -> None:
    routes: dict[str, Route] = {f"tool_number_{n}": A.all_tools[0] for n in range(300)}
    said = unknown_tool("x", OfferedTools((), routes, True, 0))
    assert len(said) < 800
    listed = said.removesuffix(", ....").rpartition(", ")[2]
    assert listed in routes


@given(st.text(max_size=300))
async def test_the_answer_is_bounded_and_can_be_sent(name: str) -> None:
    """A long name cannot inflate the next prompt."""
    said = unknown_tool(name * 20, await offer_tools(A, CONTEXT))
    assert len(said) <= 800
    assert "\n" not in said


@given(st.sampled_from([1, 40, 200]), st.integers(0, 3))
def test_the_answer_is_bounded_whatever_is_offered(count: int, length: int) -> None:
    routes: dict[str, Route] = {f"{n}{'x' * 60 * bool(length)}"[:64]: A.all_tools[0] for n in range(count)}
    assert len(unknown_tool("\ud800" * 5000, OfferedTools((), routes, True, 0))) <= 800
    assert len(unknown_tool("1" + "x" * 60, OfferedTools((), routes, True, 0))) <= 800


async def test_a_name_that_cannot_be_sent_is_shown_escaped() -> None:
    said = unknown_tool("a\ud800", await offer_tools(A, CONTEXT))
    assert said.encode()


async def test_the_policy_is_a_setting_of_the_run() -> None:
    model = ScriptedHandler([[call("transfer_to_b"), call("transfer_to_c")], "Nobody was asked."])
    agent = Agent("A", model=model, handoffs=[Agent("B", model=model), Agent("C", model=model)])
    result = await Runner.run(agent, "Hi", run_config=RunConfig(multiple_handoffs="reject"))
    assert (result.final_output, result.last_agent) == ("Nobody was asked.", agent)
    assert [outcome(record) for record in result.handoffs] == ["not_taken", "not_taken"]
