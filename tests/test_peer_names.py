"""Names from other libraries: the error is that of Python, and one sentence says what to write."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import routelock
from routelock import (
    Agent,
    AgentHooks,
    Handoff,
    Limits,
    RunConfig,
    RunContext,
    Runner,
    RunResult,
    Skill,
    Tool,
    function_handler,
    function_tool,
    handler,
    handoff,
    tool,
)
from routelock._lazy import peer_imports
from routelock._peer_names import (
    AGENT,
    AGENT_KEYWORDS,
    AS_TOOL_KEYWORDS,
    CONFIG_KEYWORDS,
    CONTEXT,
    FUNCTION_TOOL_KEYWORDS,
    HANDLER_KEYWORDS,
    HANDOFF_FIELDS,
    HANDOFF_KEYWORDS,
    HOOKS,
    LIMIT_KEYWORDS,
    LIST,
    REGISTRY,
    RESULT,
    RUN_KEYWORDS,
    SESSION,
    SKILL,
    STREAM,
    TOOL_FIELDS,
    TOOL_KEYWORDS,
)
from routelock.agents import hook
from routelock.agents.registry import Registry
from routelock.errors import ConfigError
from routelock.sessions import InMemorySessions, Session
from routelock.testing import ScriptedHandler

pytestmark = pytest.mark.anyio

NAMES = peer_imports()
"""The names that are imported from other libraries, each with what to write instead."""


def agent() -> Agent[Any]:
    return Agent("A", model=ScriptedHandler(["Hello."]))


def result() -> RunResult[Any]:
    return Runner.run_sync(agent(), "Hi")


def context() -> Any:
    return RunContext(context=None)


def stream() -> Any:
    return Runner.run_streamed(agent(), "Hi")


def frozen() -> Any:
    return agent().handoffs


def registry() -> Any:
    return Registry("A")


def notes_of(call: Callable[..., Any], **keywords: Any) -> list[str]:
    """Return the notes of the TypeError that the call raises."""
    with pytest.raises(TypeError, match="unexpected keyword argument") as raised:
        call(**keywords)
    return getattr(raised.value, "__notes__", [])


# -- keywords --


@pytest.mark.parametrize(
    ("keyword", "ours"),
    [
        ("system_prompt", "instructions="),
        ("functions", "tools="),
        ("deps_type", "context="),
        ("output", "output_type="),
        ("result_type", "output_type="),
        ("mcp_servers", "MCPClient"),
        ("retries", "max_mistakes="),
        ("temperature", "model_settings="),
        ("max_tool_iterations", "max_turns="),
        ("model_client_stream", "Runner.run_streamed(agent, text)"),
        ("guardrail", "output_guardrails="),
        ("knowledge_sources", "a function that searches"),
    ],
)
def test_keyword_of_an_agent_is_named(keyword: str, ours: str) -> None:
    (note,) = notes_of(Agent, name="A", **{keyword: None})
    assert note.startswith(f"Instead of {keyword}=, write ")
    assert ours in note


@pytest.mark.parametrize(
    ("keyword", "ours"),
    [("tool_name", "tool_name_override="), ("description", "tool_description_override=")],
)
def test_keyword_of_a_handoff_is_named(keyword: str, ours: str) -> None:
    assert notes_of(handoff, agent=agent(), **{keyword: "x"}) == [f"Instead of {keyword}=, write {ours}."]


@pytest.mark.parametrize("start", [Runner.run_sync, Runner.run_streamed])
@pytest.mark.parametrize("keyword", ["deps", "context_variables"])
def test_keyword_of_a_run_is_named(start: Callable[..., Any], keyword: str) -> None:
    (note,) = notes_of(start, starting_agent=agent(), input="Hi", **{keyword: 1})
    assert note == f"Instead of {keyword}=, write context=, which tools read as ctx.context."


@pytest.mark.parametrize("setting", [each.name for each in dataclasses.fields(RunConfig)])
def test_setting_that_is_passed_to_a_run_is_named(setting: str) -> None:
    (note,) = notes_of(Runner.run_sync, starting_agent=agent(), input="Hi", **{setting: 1})
    assert note == f"Instead of {setting}=, write run_config=RunConfig({setting}=...)."


@pytest.mark.parametrize(
    ("keyword", "ours"), [("auto_tool", "expose="), ("auto_tool_description", "prompt=")]
)
def test_keyword_of_a_handler_is_named(keyword: str, ours: str) -> None:
    assert notes_of(handler, **{keyword: "x"}) == [f"Instead of {keyword}=, write {ours}."]


def test_keyword_of_the_settings_of_a_run_is_named() -> None:
    (note,) = notes_of(RunConfig, max_turns=3)
    assert note == "Instead of max_turns=, write Runner.run(..., max_turns=...), or limits=Limits(turns=...)."


def test_keyword_of_the_limits_is_named() -> None:
    assert notes_of(Limits, request_limit=3) == ["Instead of request_limit=, write requests=."]


@pytest.mark.parametrize(
    ("decorator", "keyword", "ours"),
    [
        (tool, "name_override", "name="),
        (function_tool, "name", "name_override="),
        (function_tool, "input_guardrails", "tool_input_guardrails="),
        (tool, "requires_approval", "needs_approval="),
        (Tool, "func", "function_tool(function)"),
    ],
)
def test_keyword_of_a_tool_is_named(decorator: Callable[..., Any], keyword: str, ours: str) -> None:
    assert notes_of(decorator, **{keyword: "x"}) == [f"Instead of {keyword}=, write {ours}."]


@pytest.mark.parametrize(
    ("keyword", "ours"),
    [("name", "tool_name="), ("description", "tool_description="), ("custom_output_extractor", "output=")],
)
def test_keyword_of_an_agent_as_a_tool_is_named(keyword: str, ours: str) -> None:
    assert notes_of(agent().as_tool, **{keyword: "x"}) == [f"Instead of {keyword}=, write {ours}."]


@pytest.mark.parametrize(
    ("function", "keyword", "ours"),
    [(RunConfig, "max_mistake", "max_mistakes="), (function_tool, "need_approval", "needs_approval=")],
)
def test_misspelt_keyword_is_named(function: Callable[..., Any], keyword: str, ours: str) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument") as raised:
        function(**{keyword: 1})
    said = [str(raised.value), *getattr(raised.value, "__notes__", [])]  # Python 3.13 says it itself
    assert [each for each in said if "Did you mean" in each and ours.rstrip("=") in each]


def test_tool_of_a_function_is_named() -> None:
    """`Tool(function)` makes a tool in other libraries."""
    made: Any = Tool
    with pytest.raises(TypeError, match="takes 1 positional argument") as raised:
        made(len, description="Count.")
    assert raised.value.__notes__ == [f"Write {TOOL_FIELDS['']}."]


def test_misspelt_keyword_of_another_library_is_named() -> None:
    (note,) = notes_of(RunConfig, max_turn=3)
    assert note.startswith("Did you mean max_turns=? Instead of max_turns=, write Runner.run(")


def test_keyword_of_an_async_run_is_named_before_it_is_awaited() -> None:
    assert notes_of(Runner.run, starting_agent=agent(), input="Hi", deps=1) == [
        f"Instead of deps=, write {RUN_KEYWORDS['deps']}."
    ]


def test_each_wrong_keyword_has_its_note() -> None:
    assert len(notes_of(Runner.run_sync, agent=agent(), messages=[])) == 2


def test_unknown_keyword_has_no_note() -> None:
    assert notes_of(Agent, name="A", nonsense=1) == []


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (Agent, AGENT_KEYWORDS),
        (Agent.as_tool, AS_TOOL_KEYWORDS),
        (RunConfig, CONFIG_KEYWORDS),
        (function_tool, FUNCTION_TOOL_KEYWORDS),
        (function_handler, HANDLER_KEYWORDS),
        (handler, HANDLER_KEYWORDS),
        (handoff, HANDOFF_KEYWORDS),
        (Handoff, HANDOFF_FIELDS),
        (Limits, LIMIT_KEYWORDS),
        (Tool, TOOL_FIELDS),
        (tool, TOOL_KEYWORDS),
        (Runner.run, RUN_KEYWORDS),
        (Runner.run_sync, RUN_KEYWORDS),
        (Runner.run_streamed, RUN_KEYWORDS),
    ],
)
def test_no_name_of_ours_is_called_wrong(function: Callable[..., Any], names: dict[str, str]) -> None:
    assert not names.keys() & inspect.signature(function).parameters.keys()


def test_signatures_name_every_parameter() -> None:
    shown = [inspect.signature(each) for each in (Agent, handoff, Runner.run, Runner.run_sync)]
    kinds = {parameter.kind for each in shown for parameter in each.parameters.values()}
    assert kinds == {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


def test_run_is_still_a_coroutine_function() -> None:
    assert inspect.iscoroutinefunction(Runner.run)


# -- attributes --


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("output", "final_output"),
        ("data", "final_output"),
        ("agent", "last_agent"),
        ("chat_message", "final_output"),
    ],
)
def test_attribute_of_a_result_is_named(name: str, ours: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(result(), name)
    assert str(raised.value) == f"'RunResult' object has no attribute '{name}': write {ours}."


@pytest.mark.parametrize("name", ["run", "run_sync"])
def test_attribute_of_an_agent_is_named(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"write Runner\.{name}\(agent, text\)\.$"):
        getattr(agent(), name)


@pytest.mark.parametrize(
    ("made", "name", "ours"),
    [
        (agent, "kickoff_async", "Runner.run(agent, text)"),
        (agent, "save_state", "result.state().to_json(), or Session(name, store)"),
        (agent, "run_streaming", "Runner.run_streamed(agent, messages)"),
        (agent, "add_skill", "dataclasses.replace(agent, skills=[...])"),
        (agent, "list_available_handoffs", "agent.registered.handlers"),
        (Skill, "get_context", "context: RunContext"),
        (Skill, "register_handoff", "registry.add_handler(...)"),
        (registry, "register_tool", "registry.add_tool(...)"),
    ],
)
def test_attribute_of_another_library_is_named(made: Callable[[], object], name: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}': write .*{re.escape(ours)}"):
        getattr(made(), name)


def test_dependencies_of_a_context_are_named() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'deps': write context\.$"):
        _ = context().deps


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("text_deltas", "event.type is 'text_delta'"),
        ("is_complete", "stream.result.stop_reason == 'done'"),
        ("new_items", "stream.result.new_items"),
        ("raw_responses", "stream.result.raw_replies"),
        ("cancel", "await stream.aclose(), or leave the async with block"),
    ],
)
def test_attribute_of_a_stream_is_named(name: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}': write .*{re.escape(ours)}\.$"):
        getattr(stream(), name)


def test_attribute_of_a_session_is_named() -> None:
    session: Any = Session("user-7", InMemorySessions())
    with pytest.raises(AttributeError) as raised:
        _ = session.get_items
    assert str(raised.value).endswith("write (await session.load()).messages.")


def test_each_attribute_of_a_result_is_one_of_the_stream() -> None:
    public = {name for name in dir(RunResult) if not name.startswith("_")}
    assert public - STREAM.keys() <= set(dir(stream()))


@pytest.mark.parametrize("name", [name for name in STREAM if STREAM[name] == f"stream.result.{name}"])
def test_attribute_that_only_a_result_has_is_one(name: str) -> None:
    assert hasattr(result(), name)


@pytest.mark.parametrize("name", ["tools", "handoffs"])
def test_list_of_an_agent_cannot_be_appended_to(name: str) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'append': write the whole list"):
        getattr(agent(), name).append(agent())


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (agent, AGENT),
        (context, CONTEXT),
        (frozen, LIST),
        (registry, REGISTRY),
        (result, RESULT),
        (Skill, SKILL),
        (stream, STREAM),
        (lambda: Session("user-7", InMemorySessions()), SESSION),
    ],
)
def test_no_attribute_of_ours_is_called_wrong(made: Callable[[], object], names: dict[str, str]) -> None:
    assert not names.keys() & set(dir(made()))


def test_unknown_attribute_has_the_error_of_python() -> None:
    with pytest.raises(AttributeError) as raised:
        _ = getattr(result(), "final_outputs")  # noqa: B009 - a type checker knows that it is not there
    assert (raised.value.name, str(raised.value)) == (
        "final_outputs",
        "'RunResult' object has no attribute 'final_outputs'",
    )


# -- hooks --


@pytest.mark.parametrize(
    ("event", "ours"),
    [("before_llm_call", "'on_llm_start'"), ("on_chunk", "a loop over the events of Runner.run_streamed")],
)
def test_hook_of_webagents_is_named(event: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=rf"^There is no hook '{event}': write {re.escape(ours)}\.$"):
        hook(event)


def test_hook_that_is_named_exists() -> None:
    named = {each.strip("'") for each in HOOKS.values() if each.startswith("'")}
    assert named <= {name for name in vars(AgentHooks) if name.startswith("on_")}


# -- imports --


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("RunContextWrapper", "from routelock import RunContext"),
        (
            "ModelRetry",
            "raise ValueError(text) in a tool, or GuardrailResult(False, answer=text) from a guardrail",
        ),
        ("GraphRecursionError", "from routelock import MaxTurnsExceeded"),
        ("Session", "from routelock.sessions import Session"),
        ("BaseAgent", "from routelock import Agent"),
        ("hook", "from routelock.agents import hook"),
        ("AssistantAgent", "from routelock import Agent"),
        ("CrewOutput", "from routelock import RunResult"),
        ("FunctionTool", "from routelock import Tool, or function_tool to make one of a function"),
        ("ToolCallRequestEvent", "from routelock.run import ToolCalled"),
        ("BaseEventListener", "from routelock import RunHooks, and Runner.run(agent, text, hooks=...)"),
    ],
)
def test_import_of_another_library_is_named(name: str, ours: str) -> None:
    with pytest.raises(ImportError) as raised:
        __import__("routelock", fromlist=[name])
    assert str(raised.value) == f"cannot import name '{name}' from 'routelock': write {ours}."


def test_name_of_another_library_is_no_attribute() -> None:
    """`hasattr` takes no other error; nor does pickle, which may look for a function in all modules."""
    assert not hasattr(routelock, "Session")
    with pytest.raises(AttributeError) as raised:
        getattr(routelock, "trace")  # noqa: B009 - a type checker knows that it is not there
    assert str(raised.value) == "module 'routelock' has no attribute 'trace': write RunConfig(trace=...)."


@pytest.mark.parametrize(
    "name",
    [
        *("HandoffContext", "HandoffPayload", "HandoffStatus", "HandoffFilterError", "MaxHandoffsExceeded"),
        *("HandoffHistoryMapper", "default_handoff_history_mapper", "remove_all_tools"),
        *(f"{verb}_conversation_history_wrappers" for verb in ("get", "set", "reset")),
    ],
)
def test_a_name_of_handoffs_is_found_in_its_room(name: str) -> None:
    """The SDK has some of them at its top, and a reader of our pages looks for the others there."""
    with pytest.raises(ImportError, match=rf": write from routelock\.\w+ import {name}\."):
        __import__("routelock", fromlist=[name])


@pytest.mark.parametrize("advice", sorted(set(NAMES.values())))
def test_import_that_is_named_exists(advice: str) -> None:
    if found := re.match(r"from (routelock[\w.]*) import (\w+)(?:, ([A-Z]\w+))?", advice):
        module, *names = found.groups()
        assert [name for name in names if name and not hasattr(importlib.import_module(module), name)] == []


def test_no_import_of_ours_is_called_wrong() -> None:
    assert not NAMES.keys() & {*routelock.__all__, *dir(routelock)}


def test_unknown_name_of_a_module_has_the_error_of_python() -> None:
    with pytest.raises(AttributeError, match=r"^module 'routelock' has no attribute 'Agents'$"):
        _ = getattr(routelock, "Agents")  # noqa: B009 - a type checker knows that it is not there
