"""What cannot work about a handoff or an agent is found when it is declared, all of it in one message."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from scripted_agents import agent

from routelock import Agent, Handoff, RunConfig, handoff
from routelock.agents.agent_problems import agent_problems
from routelock.errors import ConfigError
from routelock.handoff_request import is_seconds
from routelock.handoffs.handoff_problems import is_list, target_name
from routelock.handoffs.payload import HandoffPayload
from routelock.run.start import run_graph
from routelock.testing import ScriptedHandler

B = agent("B")


def one_argument(context: Any) -> Any:
    return {"handoff_type": "x"}


class Maker:
    """A callable object."""

    async def __call__(self, context: Any, given: Any) -> Any:
        return {"handoff_type": "x"}


# -- targets --


@pytest.mark.parametrize("target", [5, object(), "", b"B", lambda: None, Agent, {"name": "B"}])
def test_target_is_an_agent_a_handler_or_a_name(target: Any) -> None:
    with pytest.raises(ConfigError, match="The target of a handoff must be"):
        handoff(target)


@pytest.mark.parametrize("targets", [[], ()])
def test_empty_list_of_targets_is_refused(targets: Any) -> None:
    with pytest.raises(ConfigError, match="The target of a handoff must be an Agent, a Handler or the name"):
        handoff(targets)


@pytest.mark.parametrize("other", [5, None, object(), ""])
def test_every_target_of_a_list_is_checked(other: Any) -> None:
    """It is not found out when the first declines."""
    with pytest.raises(ConfigError, match="Handoff to 'B': The target of a handoff must be"):
        handoff([B, other])


def test_first_target_of_a_list_is_checked() -> None:
    with pytest.raises(ConfigError):
        handoff([None, B])  # type: ignore[list-item]


@pytest.mark.parametrize("targets", [[B, B], [B, "B"], ["B", agent("B")]])
def test_target_is_listed_once(targets: Any) -> None:
    with pytest.raises(ConfigError, match="'B' is in the list twice"):
        handoff(targets)


def test_a_list_may_mix_agents_handlers_and_names() -> None:
    declared = handoff([B, "C", ScriptedHandler([], name="voice")])
    assert declared.agent_name == "B"
    assert len(declared.others) == 2


def test_a_tuple_is_a_list_of_targets() -> None:
    assert handoff((B, "C")).others == ("C",)


@pytest.mark.parametrize("names", [["a", "b"], ("a", "b"), {"b", "a"}])
def test_lists_of_a_handoff_are_kept_as_tuples(names: Any) -> None:
    declared = handoff(B, capabilities_required=names, share=names)
    assert (declared.capabilities_required, declared.share) == (("a", "b"), ("a", "b"))
    assert handoff(capabilities_required=names).tool_name == "transfer_to_agent_with_a_and_b"


def test_capabilities_in_a_set_have_one_order() -> None:
    assert Agent("B", model="m", capabilities={"c", "a", "b"}).capabilities == ("a", "b", "c")  # type: ignore[arg-type]


def test_text_is_no_list_of_others() -> None:
    with pytest.raises(ConfigError, match="others must be a list"):
        Handoff(target=B, others="CD")


def test_agent_cannot_be_its_own_next_target() -> None:
    with pytest.raises(ConfigError, match="hands off to itself"):
        agent("A", handoffs=[handoff([B, "A"])])


def test_unknown_name_in_a_list_is_refused_before_the_run() -> None:
    with pytest.raises(ConfigError, match="hands off to 'nobody'"):
        run_graph(agent("A", handoffs=[handoff([B, "nobody"])]), RunConfig())


# -- capabilities --


@pytest.mark.parametrize("names", ["sql", 5, None])
def test_capabilities_required_is_a_list(names: Any) -> None:
    with pytest.raises(ConfigError, match="capabilities_required must be a list of names"):
        handoff(B, capabilities_required=names)


@pytest.mark.parametrize("names", ["sql", 5, None])
def test_capabilities_of_an_agent_are_a_list(names: Any) -> None:
    with pytest.raises(ConfigError, match="capabilities must be a list"):
        agent("A", capabilities=names)


def test_handoff_without_target_needs_capabilities() -> None:
    """Without a target there is a requirement."""
    with pytest.raises(ConfigError, match="The target of a handoff must be"):
        handoff()


def test_handoff_by_capabilities_has_a_tool_name() -> None:
    """One that tells it what for."""
    declared = handoff(capabilities_required=["sql", "pdf"])
    assert declared.tool_name == "transfer_to_agent_with_sql_and_pdf"
    assert "sql and pdf" in declared.tool_description


# -- time --


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "5", True, [1]])
def test_timeout_is_a_number_of_seconds(timeout: Any) -> None:
    with pytest.raises(ConfigError, match="timeout must be seconds or None"):
        handoff(B, timeout=timeout)


@pytest.mark.parametrize("timeout", [None, 1, 0.01, float("inf")])
def test_timeout_may_be_none_or_infinite(timeout: Any) -> None:
    assert handoff(B, timeout=timeout).timeout == timeout


@pytest.mark.parametrize(("value", "fits"), [(1, True), (0.5, True), (0, False), (True, False), ("1", False)])
def test_is_seconds_takes_positive_numbers(value: Any, fits: bool) -> None:
    assert is_seconds(value) is fits


# -- payloads --


@pytest.mark.parametrize("payload", [5, "moss", [1], b"x"])
def test_a_payload_is_data_or_a_function(payload: Any) -> None:
    with pytest.raises(ConfigError, match="payload must be a HandoffPayload, a dict or a function"):
        handoff(B, payload=payload)


@pytest.mark.parametrize("payload", [one_argument, lambda: {}, lambda a, b, c: {}])
def test_payload_function_takes_context_and_input(payload: Any) -> None:
    """Early, and not when the first user is handed over."""
    with pytest.raises(ConfigError, match="must take the context and the input"):
        handoff(B, payload=payload)


@pytest.mark.parametrize(
    "payload",
    [
        None,
        {"handoff_type": "x"},
        HandoffPayload(source_agent="A", handoff_type="x"),
        lambda context, given: None,
        lambda *args: None,
        Maker(),
        partial(lambda extra, context, given: None, "x"),
    ],
    ids=["none", "dict", "payload", "function", "variadic", "object", "partial"],
)
def test_payload_takes_data_or_a_function(payload: Any) -> None:
    assert handoff(B, payload=payload).payload is payload


# -- hooks --


@pytest.mark.parametrize("name", ["on_handoff_request", "on_handoff_received"])
def test_a_hook_is_a_function(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be a function"):
        Agent("A", **{name: "no"})  # type: ignore[arg-type]


# -- all at once --


def test_one_error_lists_all_problems() -> None:
    with pytest.raises(ConfigError) as raised:
        handoff([B, 5], timeout=-1, capabilities_required="sql", payload=5, tool_name_override="ä")  # type: ignore[list-item]
    text = str(raised.value)
    for part in ("timeout", "capabilities_required", "payload", "tool name", "The target of a handoff"):
        assert part in text


def test_valid_declaration_raises_nothing() -> None:
    assert agent_problems(agent("A", capabilities=["sql"], handoffs=[B])) == []


def test_the_name_of_a_target() -> None:
    assert [target_name(each) for each in (B, "C", ScriptedHandler([], name="voice"))] == ["B", "C", "voice"]


@pytest.mark.parametrize(
    ("value", "fits"), [([], True), ((), True), ({"a"}, True), ("ab", False), (5, False)]
)
def test_is_list_takes_iterables_but_no_text_or_mapping(value: Any, fits: bool) -> None:
    assert is_list(value) is fits


def test_guardrails_are_functions() -> None:
    """A handler was blamed for one that is none, in the middle of the run."""
    with pytest.raises(
        ConfigError, match=r"input_guardrails are functions, not 5; .*output_guardrails .*'no'\.$"
    ):
        Agent("A", model=ScriptedHandler([]), input_guardrails=[5], output_guardrails=["no"])  # type: ignore[list-item]
