"""Agents and handoffs are declarations: frozen, complete, and checked when they are made."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import pickle
import re
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from routelock import (
    Agent,
    ConfigError,
    Handoff,
    RunConfig,
    RunContext,
    Runner,
    Skill,
    Tool,
    function_handler,
    function_tool,
    handoff,
)
from routelock._callables import resolve
from routelock.agents.hooks import AgentHooks, RunHooks
from routelock.agents.registry import Registry
from routelock.errors import NoHandlerError, SkillInitError
from routelock.history.filters import HandoffInputData, remove_all_tools
from routelock.run.start import run_graph
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio

B = Agent("B", handoff_description="Knows about bills.")
CONTEXT: RunContext[Any] = RunContext(context=None, agent="A")


@function_tool
def look_up(order: int) -> str:
    """Look an order up."""
    return str(order)


def named(name: str) -> Tool:
    return Tool(name=name, on_invoke_tool=lambda context, arguments: "")


class Ticket(BaseModel):
    reason: str


# -- what a handoff is offered as --


def test_agent_in_handoffs_becomes_a_handoff() -> None:
    assert (
        Agent("A", handoffs=[B]).all_handoffs[0].spec
        == Agent("A", handoffs=[handoff(B)]).all_handoffs[0].spec
    )
    assert Agent("A", handoffs=[B]).all_handoffs[0] == handoff(B)


def test_handoff_object_is_used_as_it_is() -> None:
    declared = handoff(B)
    assert Agent("A", handoffs=[declared]).all_handoffs[0] is declared


def test_input_type_that_is_not_an_object_is_wrapped() -> None:
    declared = handoff(B, input_type=list[str])
    assert declared.spec["function"]["parameters"]["type"] == "object"
    assert declared.input_type is not None
    assert declared.input_type.parse('{"response": ["a"]}') == ["a"]


def test_schema_without_a_strict_form_is_offered_as_loose() -> None:
    function = handoff(B, input_type=dict[str, int]).spec["function"]
    assert "strict" not in function
    assert "strict" not in Handoff(target=B, strict_json_schema=False).spec["function"]


def test_custom_schema_is_offered_unchanged() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    assert Handoff(target=B, input_json_schema=schema).spec["function"]["parameters"] is schema


def test_specs_are_json() -> None:
    for declared in (handoff(B), handoff(B, input_type=Ticket), handoff(B, ask_reason=True)):
        assert json.loads(json.dumps(declared.spec)) == declared.spec


def test_result_of_a_handoff_call_names_the_target() -> None:
    assert handoff(B).get_transfer_message(B) == '{"assistant": "B"}'
    assert handoff(B).get_transfer_message(Agent("東京")) == '{"assistant": "東京"}'


# -- options of handoff() --


def test_the_defaults_of_a_handoff() -> None:
    declared = handoff(B)
    assert (
        declared.target,
        declared.reason,
        declared.preserve_context,
        declared.transfer_system_message,
    ) == (
        B,
        None,
        True,
        False,
    )
    assert (declared.nest_handoff_history, declared.is_enabled, declared.ask_reason) == (None, True, False)
    assert (declared.input_filter, declared.on_handoff, declared.input_type) == (None, None, None)


def test_a_handoff_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        handoff(B).reason = "x"  # type: ignore[misc]


def test_handoff_to_is_the_short_form() -> None:
    assert Handoff.to(B, "Billing") == handoff(B, reason="Billing")
    assert Handoff.to(B) == handoff(B)


def test_a_handoff_has_a_label_for_logs() -> None:
    assert handoff(B, reason="Billing").label == "Handoff: Billing"
    assert handoff(B).label == "Handoff to B"


def test_a_handler_can_be_the_target() -> None:
    """One concept for agents and handlers."""
    assert handoff(ScriptedHandler([], name="remote")).tool_name == "transfer_to_remote"

    async def answer(request: Any) -> str:
        return "Hi"

    assert handoff(function_handler(answer)).agent_name == "answer"


def test_a_name_can_be_the_target() -> None:
    """So that two frozen agents can name each other."""
    assert handoff("triage").tool_name == "transfer_to_triage"
    assert Agent("A", handoffs=["triage"]).all_handoffs[0].agent_name == "triage"


def test_a_handoff_without_a_target_needs_a_name() -> None:
    """When a function decides, only the name is known beforehand."""
    declared = Handoff(agent_name="any agent", on_invoke_handoff=lambda context, arguments: B)
    assert (declared.tool_name, declared.target) == ("transfer_to_any_agent", None)
    with pytest.raises(ConfigError, match="not None"):
        Handoff(on_invoke_handoff=lambda context, arguments: B)


# -- callbacks --


def nothing() -> None: ...
def one(context: Any) -> None: ...
def two(context: Any, value: Any) -> None: ...
@pytest.mark.parametrize(
    ("called", "options", "wrong"),
    [
        (5, {}, "on_handoff must be a function, not 5"),
        (nothing, {}, "on_handoff 'nothing' must take one argument: the context"),
        (two, {}, "on_handoff 'two' must take one argument: the context"),
        (nothing, {"ask_reason": True}, "on_handoff 'nothing' must take one argument: the context"),
        (one, {"input_type": Ticket}, "on_handoff 'one' must take the context and the input"),
    ],
)
def test_invalid_callback_is_a_configuration_error(called: Any, options: dict[str, Any], wrong: str) -> None:
    """With the callable's name, and not when the first user is to be transferred."""
    with pytest.raises(ConfigError, match=re.escape(wrong)):
        handoff(B, on_handoff=called, **options)


def test_an_input_type_needs_no_callback() -> None:
    """What the model passes is kept in the record anyhow."""
    assert handoff(B, input_type=Ticket).on_handoff is None


# -- bad input --


@pytest.mark.parametrize("target", [5, None, "", object(), Ticket, b"B", {"B": B}, Agent])
def test_object_that_is_not_a_target_is_an_error(target: Any) -> None:
    """Not an agent, not a handler, not a name."""
    with pytest.raises(ConfigError, match="The target of a handoff must be an Agent"):
        handoff(target)
    with pytest.raises(ConfigError, match="The target of a handoff must be an Agent"):
        Agent("A", handoffs=[target])


def test_object_with_a_name_is_not_a_handler() -> None:
    with pytest.raises(ConfigError, match="has no stream method"):
        handoff(cast(Any, look_up))


def test_a_name_does_not_make_a_target_of_what_is_none() -> None:
    with pytest.raises(ConfigError, match="agent, not 5"):
        Handoff(target=cast(Any, 5), agent_name="B")
    with pytest.raises(ConfigError, match="not None"):
        Handoff(agent_name="B")


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"input_filter": 5}, "input_filter must be a function, not 5"),
        (
            {"input_filter": remove_all_tools, "preserve_context": False},
            "use either input_filter or preserve_context=False, not both",
        ),
        ({"input_type": Ticket, "ask_reason": True}, "put a reason field into input_type"),
        ({"is_enabled": "yes"}, "is_enabled must be a bool or a function, not 'yes'"),
        ({"tool_name_override": "transfer to b"}, "providers take a tool name of .*, not 'transfer to b'"),
        ({"tool_name_override": "x" * 65}, "providers take a tool name of .*, not 'xxx"),
        ({"input_type": Callable[[int], int]}, "cannot be a JSON type"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], wrong: str) -> None:
    """When the handoff is made, not when it is used."""
    with pytest.raises(ConfigError, match=wrong):
        handoff(B, **options)


def test_on_invoke_handoff_must_be_a_function() -> None:
    with pytest.raises(ConfigError, match="on_invoke_handoff must be a function, not 5"):
        Handoff(target=B, on_invoke_handoff=cast(Any, 5))


def test_all_errors_of_a_handoff_are_in_one_message() -> None:
    with pytest.raises(ConfigError, match=r"not both; .*instead of ask_reason"):
        handoff(B, input_filter=remove_all_tools, preserve_context=False, input_type=Ticket, ask_reason=True)


def test_function_as_target_is_an_error_with_advice() -> None:
    with pytest.raises(ConfigError, match=r"wrap a function with routelock\.function_handler"):
        handoff(cast(Any, len))


@pytest.mark.parametrize("name", [None, "", 5, B])
def test_an_agent_needs_a_name(name: Any) -> None:
    with pytest.raises(ConfigError, match="An agent's name must be text"):
        Agent(name)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (
            {"tools": [int]},
            "is not a Tool; pass a function, a method, or an object",
        ),
        ({"tools": [look_up, "x"]}, "'x' is not a Tool"),
        ({"tools": [B]}, r"agent '.*' is not a Tool; pass its \.as_tool\(\), or put it into handoffs"),
        ({"tools": [handoff(B)]}, "a handoff to '.*' is not a Tool; put it into handoffs"),
        ({"hooks": RunHooks()}, "hooks must be an AgentHooks, .*RunHooks are for Runner.run"),
        ({"hooks": AgentHooks}, "hooks must be an AgentHooks"),
        ({"hooks": [AgentHooks()]}, r"hooks must be an AgentHooks, not \["),
        ({"tools": look_up}, "tools must be a list"),
        ({"tools": "look_up"}, "tools must be a list"),
        ({"capabilities": [look_up]}, "capabilities are names, not Tool"),
        ({"handoffs": B}, r"handoffs must be a list, not Agent: write handoffs=\[\.\.\.\]"),
        ({"handoffs": "billing"}, "handoffs must be a list"),
        ({"handoffs": None}, "handoffs must be a list"),
        ({"instructions": 5}, "instructions must be text or a function, not 5"),
        ({"output_type": Callable[[int], int]}, "cannot be a JSON type"),
    ],
)
def test_invalid_field_of_an_agent_is_an_error(options: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s)Agent 'A'.*{wrong}"):
        Agent("A", **options)


@pytest.mark.parametrize("name", ["input_guardrails", "output_guardrails"])
def test_guardrail_that_takes_too_few_arguments_is_an_error(name: str) -> None:
    fields: dict[str, Any] = {name: [lambda text: text]}
    wrong = f"{name} '<lambda>' must take three arguments: the context, the agent and the (in|out)put"
    with pytest.raises(ConfigError, match=f"Agent 'A': .*{wrong}"):
        Agent("A", **fields)


def test_several_errors_of_an_agent_are_in_one_message() -> None:
    with pytest.raises(ConfigError, match=r"not a Tool.*; .*instructions must be"):
        Agent("A", cast(Any, 5), tools=[cast(Any, "len")])


ALL_THAT_IS_WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a tool and two handoffs": (
        {"tools": ["no tool"], "handoffs": [5, 6]},
        ["'no tool' is not a Tool", "agent, not 5", "agent, not 6"],
    ),
    "a list that is none, and a tool": (
        {"handoffs": "billing", "tools": [5]},
        ["handoffs must be a list", "is not a Tool"],
    ),
    "handlers": ({"handlers": [5, None]}, ["5 is not a handler", "None is not a handler"]),
    "two handlers of one name": (
        {"model": ScriptedHandler([], name="m"), "handlers": [ScriptedHandler([], name="m"), 5]},
        ["two handlers are named 'm'", "5 is not a handler"],
    ),
    "skills": (
        {"skills": [5, Skill, Skill(name="s"), Skill(name="s"), Skill(name="t", dependencies=["u"])]},
        ["5 is not a Skill", "pass Skill()", "two skills named 's'", "'t' depends on 'u'"],
    ),
    "a skill's handler and a tool": (
        {"skills": [Skill(scope=cast(Any, 5))], "tools": [5]},
        ["Skill 'Skill'", "5 is not a Tool"],
    ),
    "hooks, output and instructions": (
        {"instructions": 5, "hooks": RunHooks(), "output_mode": "x", "on_handoff_request": 7},
        ["instructions must be", "hooks must be", "output_mode must be", "on_handoff_request must be"],
    ),
    "a handoff and its own name": (
        {"handoffs": ["A", handoff("C", tool_name_override="x"), 5], "tools": [named("x")]},
        ["agent, not 5", "hands off to itself", "are all offered as 'x'"],
    ),
}


@pytest.mark.parametrize("what", ALL_THAT_IS_WRONG)
def test_all_errors_of_an_agent_are_in_one_message(what: str) -> None:
    options, wrong = ALL_THAT_IS_WRONG[what]
    with pytest.raises(ConfigError) as caught:
        Agent("A", **options)
    assert [text for text in wrong if text not in str(caught.value)] == []


def test_skill_is_not_initialised_for_an_invalid_agent() -> None:
    begun: list[str] = []

    class Opens(Skill):
        def initialize(self, registry: Registry) -> None:
            begun.append(registry.agent)

    with pytest.raises(ConfigError):
        Agent("A", skills=[Opens()], handoffs=[cast(Any, 5)])
    with pytest.raises(ConfigError):
        Agent("A", skills=[Opens()], handlers=[cast(Any, 5)])
    assert begun == []


def test_a_single_problem_is_the_error_itself() -> None:
    class Breaks(Skill):
        def initialize(self, registry: Registry) -> None:
            raise OSError("disk full")

    with pytest.raises(SkillInitError, match="disk full") as caught:
        Agent("A", skills=[Breaks()])
    assert isinstance(caught.value.__cause__, OSError)


def test_mapping_is_not_a_list() -> None:
    """Others take skills as a dict; the keys were taken for skills."""
    skills: Any = {"s": Skill(name="s")}
    with pytest.raises(ConfigError, match=r"skills must be a list, not a dict: pass its values"):
        Agent("A", skills=skills)


def test_all_errors_of_a_graph_are_in_one_message() -> None:
    """Names of no agent, and agents without a model, wherever they are."""
    asked = Agent("asked", handoffs=["unknown too"])
    b = Agent("B", handoffs=["unknown"])
    a = Agent("A", model=cast(Any, 5), handoffs=[b], tools=[asked.as_tool()])
    with pytest.raises(ConfigError) as caught:
        run_graph(a, RunConfig())
    for text in (
        "The model of agent 'A' must be a model string or a handler, not 5",
        "Agent 'B' has no model",
        "Agent 'B' hands off to 'unknown'",
        "Agent 'asked' has no model",
        "Agent 'asked' hands off to 'unknown too'",
    ):
        assert text in str(caught.value)


def test_class_in_place_of_a_model_is_an_error_with_advice() -> None:
    with pytest.raises(ConfigError, match=r"a handler, not the class ScriptedHandler\. Make an object of it"):
        run_graph(Agent("A", model=cast(Any, ScriptedHandler)), RunConfig())


def test_agents_without_a_model_are_in_one_message() -> None:
    with pytest.raises(NoHandlerError, match=r"Agent 'A' has no model.*Agent 'B' has no model"):
        run_graph(Agent("A", handoffs=[Agent("B")]), RunConfig())


def test_all_duplicate_names_are_in_one_message() -> None:
    def two(name: str) -> list[Agent[Any]]:
        return [
            Agent(f"first {name}", handoffs=[Agent(name)]),
            Agent(f"second {name}", handoffs=[Agent(name)]),
        ]

    start = Agent("A", handoffs=[*two("C"), *two("D")])
    with pytest.raises(ConfigError, match=r"Two different agents are named 'C'; .*named 'D'"):
        _ = start.graph


# -- names that collide --


def test_two_handoffs_with_one_tool_name_are_an_error() -> None:
    """The last one used to win, silently."""
    with pytest.raises(
        ConfigError, match="handoff to 'Billing Agent' and handoff to 'billing agent'"
    ) as caught:
        Agent("A", handoffs=[Agent("Billing Agent"), Agent("billing agent")])
    assert "transfer_to_billing_agent" in str(caught.value)


def test_handoff_named_like_a_tool_is_an_error() -> None:
    with pytest.raises(ConfigError, match="tool 'transfer_to_b' and handoff to 'B'"):
        Agent("A", tools=[named("transfer_to_b")], handoffs=[B])
    with pytest.raises(ConfigError, match="tool 'x' and tool 'x'"):
        Agent("A", tools=[named("x"), named("x")])


def test_an_override_settles_a_collision() -> None:
    handoffs = Agent(
        "A", handoffs=[B, handoff(Agent("b"), tool_name_override="transfer_to_small_b")]
    ).all_handoffs
    assert [each.tool_name for each in handoffs] == ["transfer_to_b", "transfer_to_small_b"]


def test_all_colliding_tool_names_are_in_one_message() -> None:
    with pytest.raises(ConfigError, match=r"hands off to itself; .*'transfer_to_b'"):
        Agent("A", handoffs=["A", B, "b"])


@pytest.mark.parametrize("declared", ["A", handoff("A"), handoff([B, "A"])])
def test_an_agent_does_not_hand_off_to_itself(declared: Any) -> None:
    with pytest.raises(ConfigError, match="Agent 'A' hands off to itself"):
        Agent("A", handoffs=[declared])


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        (Agent("A"), "agent"),
        (handoff([B, Agent("A")]), "agent"),
        (ScriptedHandler([], name="A"), "handler"),
    ],
)
def test_target_with_the_agents_own_name_is_an_error(declared: Any, kind: str) -> None:
    wrong = f"Agent 'A' hands off to another {kind} that is also named 'A'; give each its own name"
    with pytest.raises(ConfigError, match=wrong):
        Agent("A", handoffs=[declared])


def test_tools_with_one_name_are_told_apart_by_their_origin() -> None:
    tools = [
        Tool(name="find", on_invoke_tool=lambda context, arguments: "", origin=each) for each in ("git", None)
    ]
    with pytest.raises(ConfigError, match="tool 'find' of 'git' and tool 'find' are all offered as 'find'"):
        Agent("A", tools=tools)


@given(st.lists(st.sampled_from(["b", "B", "b b", "b-b", "B.B", "東", "京", "x" * 60, "x" * 61]), max_size=4))
def test_an_agent_is_refused_exactly_when_two_names_collide(names: list[str]) -> None:
    folded = [re.sub("[ .-]", "_", name.lower()) for name in names]
    if len(set(folded)) < len(folded):
        with pytest.raises(ConfigError, match="are all offered as"):
            Agent("A", handoffs=names)
    else:
        assert len({each.tool_name for each in Agent("A", handoffs=names).all_handoffs}) == len(names)


# -- agents --


def test_an_agent_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        B.name = "C"  # type: ignore[misc]


def test_a_changed_copy_is_another_agent() -> None:
    changed = dataclasses.replace(B, instructions="New.")
    assert (changed.name, changed.instructions, changed is B) == ("B", "New.", False)


def test_agent_can_be_pickled_after_a_run() -> None:
    agent = Agent("A", model="openai/gpt-4o")
    Runner.run_sync(agent, "Hi", run_config=RunConfig(model=ScriptedHandler(["Hello."])))
    assert pickle.loads(pickle.dumps(agent)).name == "A"


def test_deep_copy_after_a_run_calls_its_own_tools() -> None:
    class Counter:
        """Counts its calls."""

        def __init__(self) -> None:
            self.calls = 0

        def __call__(self) -> str:
            self.calls += 1
            return "counted"

    counter = Counter()
    script = ScriptedHandler([call("count"), "Done."] * 2)
    agent = Agent("A", model=script, tools=[function_tool(counter, name_override="count")])
    Runner.run_sync(agent, "Hi")
    Runner.run_sync(copy.deepcopy(agent), "Hi")
    assert counter.calls == 1


def test_an_agent_can_be_a_key() -> None:
    assert {B: 1}[B] == 1


async def _slow(context: RunContext[Any], agent: Agent[Any]) -> str:
    return f"{context.agent} {agent.name}"


class Instructions:
    def __call__(self, context: RunContext[Any]) -> str:
        return f"for {context.agent}"


@pytest.mark.parametrize(
    ("instructions", "prompt"),
    [
        (None, None),
        ("Be kind.", "Be kind."),
        (lambda: "none", "none"),
        (lambda context: f"one {context.agent}", "one A"),
        (lambda context, agent: f"two {agent.name}", "two X"),
        (lambda *args: f"{len(args)}", "2"),
        (_slow, "A X"),
        (Instructions(), "for A"),
    ],
)
async def test_instructions_are_text_or_any_function(instructions: Any, prompt: str | None) -> None:
    assert await Agent("X", instructions).get_system_prompt(CONTEXT) == prompt


@pytest.mark.parametrize("output_type", [None, str])
def test_text_needs_no_parsing(output_type: type[Any] | None) -> None:
    assert Agent("A", output_type=output_type).output is None


def test_an_output_type_parses() -> None:
    output = Agent("A", output_type=Ticket).output
    assert output is not None
    assert output.parse('{"reason": "x"}') == Ticket(reason="x")


# -- the graph --


def test_graph_has_all_reachable_agents() -> None:
    """Also over several ways, and in a circle by name."""
    last = Agent("D", handoffs=["A"])
    start = Agent("A", handoffs=[Agent("B", handoffs=[last]), handoff(Agent("C", handoffs=[last])), "E"])
    assert sorted(start.graph) == ["A", "B", "C", "D"]
    assert start.graph["D"] is last


def test_handlers_are_not_in_the_graph() -> None:
    assert list(Agent("A", handoffs=[ScriptedHandler([], name="remote")]).graph) == ["A"]


def test_two_different_agents_of_one_name_are_refused() -> None:
    start = Agent("A", handoffs=[Agent("B", handoffs=[Agent("C")]), Agent("D", handoffs=[Agent("C")])])
    with pytest.raises(ConfigError, match="Two different agents are named 'C'"):
        _ = start.graph


def test_an_agent_behind_its_own_name_is_refused() -> None:
    start = Agent("A", handoffs=[Agent("B", handoffs=[Agent("A")])])
    with pytest.raises(ConfigError, match="Two different agents are named 'A'"):
        _ = start.graph


async def test_a_filter_of_a_handoff_may_be_any_callable() -> None:
    class Filter:
        async def __call__(self, data: HandoffInputData) -> HandoffInputData:
            return data.clone(new_items=())

    data = HandoffInputData(input_history=(), pre_handoff_items=(), new_items=())
    for each in (Filter(), remove_all_tools, functools.partial(remove_all_tools)):
        declared = handoff(B, input_filter=each)
        assert declared.input_filter is not None
        assert await resolve(declared.input_filter(data)) == data
