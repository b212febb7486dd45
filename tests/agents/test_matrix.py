"""The table of who can hand over to whom, and that the tables in the docs are the ones that it gives."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from typing import Any

import pytest
from paths import REPO
from typing_extensions import TypedDict

from routelock import Agent, RunConfig, RunContext, Runner, handoff
from routelock.agents.graph import HandoffRow, as_markdown, handoff_matrix
from routelock.errors import ConfigError, PayloadError
from routelock.handoffs.handoff import Handoff
from routelock.handoffs.payload import HandoffPayload
from routelock.handoffs.payload_types import HandoffTypes
from routelock.history.filters import compose, keep_last, remove_all_tools
from routelock.testing import ScriptedHandler, call


class Order(TypedDict):
    order: int
    amount: float


def rows(agent: Agent[Any], **config: Any) -> list[tuple[str, tuple[str, ...], str, tuple[str, ...]]]:
    made = handoff_matrix(agent, RunConfig(**config))
    return [(row.source, tuple(row.targets), row.type, tuple(row.context)) for row in made]


def only(declared: Any, **config: Any) -> HandoffRow:
    """The row of the only handoff of an agent."""
    [row] = handoff_matrix(Agent("a", handoffs=[declared]), RunConfig(**config))
    return row


B = Agent("b")
WHOLE = "the conversation"


def open_late(context: RunContext[Any], agent: Agent[Any]) -> bool:
    return True


def brief(context: RunContext[Any], given: object) -> dict[str, Any]:
    return {}


def choose(context: RunContext[Any], arguments: str) -> Agent[Any]:
    return B


# -- which --


def test_an_agent_without_handoffs_has_no_rows() -> None:
    assert handoff_matrix(B) == []


def test_each_reachable_handoff_has_a_row_nearest_first() -> None:
    c = Agent("c", handoffs=["a"])
    b = Agent("b", handoffs=[c])
    a = Agent("a", handoffs=[b, c])
    assert [row[:2] for row in rows(a)] == [("a", ("b",)), ("a", ("c",)), ("b", ("c",)), ("c", ("a",))]


def test_agents_of_the_run_belong_to_it() -> None:
    front = Agent("front", handoffs=[handoff(capabilities_required=["sql"]), "b"])
    able = Agent("able", capabilities=["sql", "python"], handoffs=[front])
    found = rows(front, agents=[able, B])
    assert [row[:2] for row in found] == [("front", ("able",)), ("front", ("b",)), ("able", ("front",))]
    assert found[0][3] == (WHOLE, "must be able to: sql")


def test_no_model_is_needed() -> None:
    assert rows(Agent("a", handoffs=[B]))


def test_several_targets_keep_their_order() -> None:
    assert only(handoff([B, Agent("c")])).targets == ("b", "c")


def test_a_name_that_nobody_has_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="hands off to 'unknown'"):
        only("unknown")


def test_two_agents_of_one_name_are_a_mistake() -> None:
    with pytest.raises(ConfigError, match="Two different agents are named 'b'"):
        handoff_matrix(Agent("a", handoffs=[B]), RunConfig(agents=[Agent("b")]))


# -- as what --


def test_a_plain_handoff() -> None:
    row = only(B)
    assert row == HandoffRow(
        source="a", targets=("b",), tool_name="transfer_to_b", type="handoff", context=(WHOLE,)
    )


def test_a_handler_takes_over_and_the_agent_stays() -> None:
    row = only(ScriptedHandler([], name="fast"))
    assert (row.targets, row.type) == (("fast",), "handler")


def test_a_handler_that_is_exposed_is_one() -> None:
    other = ScriptedHandler([], name="fast")
    other.expose = True  # type: ignore[attr-defined]
    assert [row[:3] for row in rows(Agent("a", handlers=[other]))] == [("a", ("fast",), "handler")]


def test_agent_tools_and_their_handoffs_have_rows() -> None:
    inner = Agent("inner", handoffs=[B])
    outer = Agent("outer", tools=[inner.as_tool(), B.as_tool("ask_b", input_type=Order)])
    assert rows(outer) == [
        ("outer", ("inner",), "tool", ("only what the model passes: input", "answers the call")),
        ("outer", ("b",), "tool", ("only what the model passes: order, amount", "answers the call")),
        ("inner", ("b",), "handoff", (WHOLE,)),
    ]


def test_agent_reached_twice_has_its_rows_once() -> None:
    a = Agent("a", tools=[B.as_tool()])
    c = Agent("c", tools=[a.as_tool()], handoffs=[a])
    assert [row[:2] for row in rows(c)] == [("c", ("a",)), ("c", ("a",)), ("a", ("b",))]


def test_agent_tool_may_have_a_graph_with_the_same_names() -> None:
    """It has a sub-run with its own agents."""
    inner = Agent("inner", handoffs=[Agent("b", handoffs=["inner"])])
    found = rows(Agent("outer", tools=[inner.as_tool()], handoffs=[B]))
    assert [row[:2] for row in found[2:]] == [("inner", ("b",)), ("b", ("inner",))]


# -- with what --


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        (handoff(B), WHOLE),
        (handoff(B, preserve_context=False), "the newest user message"),
        (handoff(B, nest_handoff_history=True), "a summary and the newest user message"),
        (handoff(B, input_filter=remove_all_tools), "the conversation through remove_all_tools"),
        (handoff(B, input_filter=keep_last(5)), "the conversation through keep_last(5)"),
        (
            handoff(B, input_filter=compose(remove_all_tools, keep_last(5))),
            "the conversation through compose(remove_all_tools, keep_last(5))",
        ),
    ],
)
def test_row_describes_the_shown_history(declared: Handoff, shown: str) -> None:
    """The first of filter, preserve_context and nesting counts."""
    assert only(declared).context == (shown,)


def test_row_uses_the_run_config() -> None:
    assert only(B, handoff_input_filter=remove_all_tools).context[0].endswith("through remove_all_tools")
    assert only(B, nest_handoff_history=True).context == ("a summary and the newest user message",)
    assert only(B, nest_handoff_history=True, nest_keep_last_user=False).context == ("a summary",)
    alone = handoff(B, preserve_context=False)
    assert only(alone, handoff_input_filter=remove_all_tools).context == ("the newest user message",)
    own = handoff(B, nest_handoff_history=False)
    assert only(own, nest_handoff_history=True).context == (WHOLE,)


def test_a_payload_names_its_type_and_its_keys() -> None:
    flat = handoff(B, payload={"handoff_type": "quick_lookup", "conversation_context": "...", "more": 1})
    assert (only(flat).type, only(flat).context[1]) == (
        "quick_lookup",
        "payload: conversation_context, more",
    )
    made = handoff(B, payload=HandoffPayload(source_agent="a", handoff_type="ping"))
    assert (only(made).type, only(made).context) == ("ping", (WHOLE,))


def test_payload_function_is_named() -> None:
    assert only(handoff(B, payload=brief)).type == "made by brief"


def test_a_payload_that_cannot_be_sent_is_a_mistake() -> None:
    with pytest.raises(PayloadError, match="handoff_type"):
        only(handoff(B, payload={"x": 1}))


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (handoff(B, input_type=Order), "the model passes: order, amount"),
        (handoff(B, ask_reason=True), "the model passes: reason"),
        (handoff(B, is_enabled=open_late), "if open_late"),
        (handoff(B, is_enabled=False), "never offered"),
        (handoff(B, scope="admin"), "scope: admin"),
        (handoff(B, scope=["y", "x"]), "scope: x, y"),
        (handoff(B, transfer_system_message=True), "the source's instructions"),
        (handoff(B, return_to_caller=True), "answers the call"),
        (Handoff(target=B, share=["x", "y"]), "of the shared memory: x, y"),
        (Handoff(target=B, share=[]), "of the shared memory: nothing"),
    ],
)
def test_row_has_the_conditions(declared: Handoff, said: str) -> None:
    assert only(declared).context == (WHOLE, said)


def test_a_function_that_decides_is_named() -> None:
    row = only(Handoff(agent_name="any agent", on_invoke_handoff=choose))
    assert (row.targets, row.context) == ((), (WHOLE, "choose chooses the target"))


# -- and it is so --


def _team(model: ScriptedHandler) -> dict[str, Agent[Any]]:
    """All kinds of ways."""
    sql = Agent("sql", model=model, capabilities=["sql"], handoffs=["front"])
    poet = Agent("poet", model=model)
    back = Agent(
        "back", model=model, handoffs=[handoff([sql, poet]), ScriptedHandler(["Fast."], name="fast")]
    )
    ways = [back, handoff(capabilities_required=["sql"]), handoff("poet", tool_name_override="rhyme")]
    front = Agent("front", model=model, handoffs=ways, tools=[poet.as_tool("ask_poet")])
    return {agent.name: agent for agent in (front, back, sql, poet)}


@pytest.mark.anyio
@pytest.mark.parametrize("place", range(7))
async def test_each_row_is_a_handoff_that_a_run_can_make(place: int) -> None:
    agents = _team(ScriptedHandler([]))
    table = handoff_matrix(agents["front"], RunConfig(agents=[*agents.values()]))
    assert len(table) == 7
    row = table[place]
    words = {"input": "A poem."} if row.type == "tool" else {}
    model = ScriptedHandler([call(row.tool_name, words, id="c"), "Done.", "Done."])
    agents = _team(model)
    result = await Runner.run(agents[row.source], "Hi", run_config=RunConfig(agents=[*agents.values()]))
    if row.type == "tool":
        assert [result.nested["c"].last_agent.name] == list(row.targets)
    else:
        assert (result.handoffs[0].target, result.handoffs[0].status) == (row.targets[0], "COMPLETED")


# -- as text --


def test_the_table_is_markdown() -> None:
    assert as_markdown(handoff_matrix(Agent("a|b", handoffs=[handoff(B, ask_reason=True)]))) == (
        "| source | target | type | context |\n"
        "| --- | --- | --- | --- |\n"
        "| a\\|b | b | handoff | the conversation; the model passes: reason |\n"
    )


def test_nobody_is_a_question_mark() -> None:
    assert "| a | ? | handoff |" in as_markdown([only(handoff(capabilities_required=["sql"]))])


def test_a_name_cannot_break_the_table() -> None:
    assert as_markdown([only(Agent("x\n| y \\"))]).count("\n") == 3


# -- the docs --


def _load(name: str) -> Any:
    sys.path.insert(0, str(REPO / "examples"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def test_the_support_desks_table_is_up_to_date() -> None:
    table = as_markdown(handoff_matrix(_load("desk.agents").TRIAGE))
    page = (REPO / "docs" / "examples.md").read_text("utf-8")
    assert f"\n\n{table}\n" in page, f"put this into docs/examples.md:\n\n{table}"


def test_table_of_built_in_types_is_up_to_date() -> None:
    """Every type with the keys of its data; those in bold are required."""

    def key(each: dataclasses.Field[Any]) -> str:
        return f"**`{each.name}`**" if each.default is dataclasses.MISSING else f"`{each.name}`"

    lines = [
        f"| `{name}` | {', '.join(map(key, dataclasses.fields(model)))} |\n"
        for name, model in HandoffTypes().models.items()
    ]
    table = "".join(["| `handoff_type` | `context_data` |\n| --- | --- |\n", *lines])
    page = (REPO / "docs" / "handoff-payloads.md").read_text("utf-8")
    assert f"\n\n{table}\n" in page, f"put this into docs/handoff-payloads.md:\n\n{table}"
