"""Wrong settings of a run are found when they are written."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from routelock import Agent, Request, RunConfig, Tool, function_handler
from routelock.errors import ConfigError
from routelock.run.executor import InProcess


async def answers(request: Request) -> str:
    return "Hi"


@pytest.mark.parametrize(
    "option",
    [
        {"is_enabled": False},
        {"is_enabled": lambda context, agent: True},
        {"needs_approval": True},
        {"input_guardrails": [print]},
        {"output_guardrails": [print]},
    ],
)
def test_option_of_a_callers_tool_that_no_run_carries_out_is_refused(option: dict[str, Any]) -> None:
    """The app would believe that its check is made."""
    tool = Tool(name="pay", on_invoke_tool=print, **option)
    (name,) = option
    with pytest.raises(ConfigError, match=f"external_tools: {name} of tool 'pay' would be ignored"):
        RunConfig(external_tools=[tool])


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"handoff_input_filter": "remove_all_tools"}, "handoff_input_filter must be a function"),
        ({"raise_on": ["unknown_tools"]}, "raise_on does not know unknown_tools"),
        ({"raise_on": ["a", "unknown_tool", "b"]}, "raise_on does not know a, b; it knows "),
        ({"on_limit": "retrun"}, "on_limit must be 'raise', 'return' or a function, not 'retrun'"),
        ({"multiple_handoffs": "last"}, "multiple_handoffs must be 'first' or 'reject', not 'last'"),
        ({"max_handoffs": -1}, "max_handoffs must be at least 0, or None for no limit, not -1"),
        ({"max_mistakes": 0}, "max_mistakes must be at least 1, not 0"),
        ({"max_handoffs": "5"}, "max_handoffs must be at least 0, or None for no limit, not '5'"),
        ({"max_mistakes": None}, "max_mistakes must be at least 1, not None"),
        ({"capacity": {"writer": 1}}, "capacity must be a Capacity, such as .*, not {'writer': 1}"),
        ({"available": True}, "available must be a function, not True"),
        ({"retry": 3}, r"retry must be a Retry, such as Retry\(attempts=3\), not 3"),
        ({"limits": 5}, r"limits must be Limits, such as Limits\(turns=20\), not 5"),
        ({"fallback": ["gpt"]}, "fallback must be True or False; .*, not \\['gpt'"),
        ({"handler": function_handler(answers)}, "handler must be the name of a handler, not Function"),
        ({"agents": Agent("B")}, "agents must be a list of agents, not Agent"),
        ({"input_guardrails": [5]}, "input_guardrails are functions, not 5"),
        ({"output_guardrails": answers}, "output_guardrails must be a list of functions, not <function"),
        ({"model_settings": 0.2}, "model_settings must be a dict, not 0.2"),
        ({"shared_memory": "x", "agents": None}, "agents must be .*; shared_memory must be a dict, not 'x'"),
        ({"clock": 5}, "clock must be a function that returns seconds, not 5"),
        ({"executor": "dbos"}, "executor must be an object with stream and gather, not 'dbos'"),
        ({"executor": InProcess}, "executor must be an object with .* not <class .*InProcess"),
        ({"run_id": 7}, "run_id must be text, such as the number of an order, not 7"),
        ({"user_id": 7}, "user_id must be text, not 7"),
        ({"external_tools": 5}, "external_tools must be a list of Tools"),
        ({"external_tools": [Agent("B")]}, "external_tools must be a list of Tools"),
        ({"raise_on": "unknown_tool"}, "raise_on must be a list of mistakes, such as"),
        ({"raise_on": [5, None]}, "raise_on does not know 5, None; it knows "),
        ({"agents": [Agent("A"), "B"]}, "agents must be a list of agents"),
        ({"history_wrappers": ("<a>", 5)}, "history_wrappers must be two texts"),
        ({"detect_loops": None}, "detect_loops must be True or False, not None"),
        ({"max_mistakes": True}, "max_mistakes must be at least 1, not True"),
        ({"input_guardrails": "check"}, "input_guardrails must be a list of functions, not 'check'"),
    ],
)
def test_what_cannot_work_is_said_when_it_is_written(settings: Any, wrong: str) -> None:
    """A misspelt word would otherwise turn a limit into silence."""
    with pytest.raises(ConfigError, match=wrong):
        RunConfig(**settings)


@pytest.mark.parametrize(
    # the model is checked with the agents of a run, where the error can name the agent
    "name",
    [each.name for each in fields(RunConfig) if each.name != "model"],
)
def test_every_setting_of_another_type_is_refused(name: str) -> None:
    wrong: Any = object()
    with pytest.raises(ConfigError, match=f"{name.removesuffix('s')}.* not <object"):
        RunConfig(**{name: wrong})


@pytest.mark.parametrize(
    "settings",
    [
        {"raise_on": {"unknown_tool", "bad_arguments", "failed_handoff"}},
        {"on_limit": "return"},
        {"on_limit": lambda error: None},
        {"handoff_input_filter": lambda data: data},
        {"max_handoffs": None},
        {"max_handoffs": 0},
        {"multiple_handoffs": "reject"},
    ],
)
def test_what_works_is_taken(settings: Any) -> None:
    assert RunConfig(**settings) is not None
