"""What is checked before a run asks any model, and what it begins with."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import Agent, Limits, RunConfig, RunHooks, handoff
from routelock.agents.hooks import AgentHooks
from routelock.errors import ConfigError
from routelock.run.run import Run
from routelock.run.start import DEFAULT_MAX_TURNS, input_items, is_state, run_graph, start
from routelock.testing import ScriptedHandler


def agent(name: str = "A", **options: Any) -> Agent[Any]:
    return Agent(name, model=ScriptedHandler([]), **options)


def begun(
    input: Any = "Hi", max_turns: int | None = DEFAULT_MAX_TURNS, config: RunConfig | None = None
) -> Run:
    return start(agent(), input, None, max_turns, None, config, stream=False)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"agent": "A"}, "not str"),
        ({"config": {}}, "run_config must be a RunConfig"),
        ({"hooks": RunHooks}, "not the class"),
        ({"hooks": AgentHooks()}, "hooks must be a RunHooks, .* an AgentHooks belongs to Agent"),
        ({"max_turns": 0}, "at least 1"),
        ({"input": []}, "Input is empty"),
    ],
)
def test_what_no_run_can_begin_with_is_said(given: dict[str, Any], said: str) -> None:
    settings: dict[str, Any] = {
        "agent": agent(),
        "input": "Hi",
        "max_turns": 1,
        "hooks": None,
        "config": None,
        **given,
    }
    with pytest.raises(ConfigError, match=said):
        start(context=None, stream=False, **settings)


def test_a_text_is_the_users_first_message() -> None:
    run = begun()
    assert [item.message for item in run.transcript.items] == [{"role": "user", "content": "Hi"}]
    assert (run.transcript.input_count, run.budget.max_turns) == (1, DEFAULT_MAX_TURNS)


def test_items_keep_their_order_and_are_input() -> None:
    items = input_items([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}])
    assert [(item.id, item.kind) for item in items] == [(0, "input"), (1, "input")]


def test_of_limits_and_options_the_smaller_holds() -> None:
    run = begun(max_turns=3, config=RunConfig(limits=Limits(turns=5, handoffs=2, seconds=9), timeout=4))
    assert (run.budget.max_turns, run.config.max_handoffs, run.config.timeout) == (3, 2, 4)


def test_ids_of_runs_differ_unless_one_is_given() -> None:
    assert begun().run_id != begun().run_id
    assert begun(config=RunConfig(run_id="r")).run_id == "r"


def test_all_problems_of_agents_are_in_one_message() -> None:
    lost = Agent("A", handoffs=[handoff("nobody")])
    with pytest.raises(ConfigError) as caught:
        run_graph(lost, RunConfig())
    assert "nobody" in str(caught.value)
    assert "model" in str(caught.value)


def test_text_is_no_state() -> None:
    assert not is_state("Hi")
