"""Agents as tools: who asks stays in charge, and what is asked is a run of its own."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import anyio
import pytest
from manager_agents import ask, both, busy, manager, run
from pydantic import BaseModel, field_validator
from scenes import Recorder
from scripted_agents import agent, answers_of, look_up, requests

from routelock import (
    Agent,
    GuardrailResult,
    HandoffRequest,
    RunConfig,
    RunContext,
    Runner,
    RunResult,
    ToolContext,
    function_handler,
    function_tool,
    tool,
)
from routelock.errors import (
    ConfigError,
    InvalidRequest,
    MaxTurnsExceeded,
    ToolError,
    ToolTimeout,
)
from routelock.handlers.port import Request
from routelock.run.events import NestedEvent
from routelock.testing import ScriptedHandler, call, reply
from routelock.tools.outcome import ToolResult
from routelock.tools.tool import Tool
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

# -- what is offered --


async def test_the_tool_is_named_and_described_after_the_agent() -> None:
    made = Agent("Search-Bot 2", model="x", handoff_description="Searches the web.").as_tool()
    assert made.name == "search_bot_2"
    assert made.description == "Ask the Search-Bot 2 agent. Searches the web."
    assert made.strict
    assert list(made.params_json_schema["properties"]) == ["input"]


async def test_the_tool_comes_from_its_agent() -> None:
    assert Agent("Search-Bot 2", model="x").as_tool("look").origin == "Search-Bot 2"


async def test_the_tool_can_be_named_as_in_openai_agents() -> None:
    made = agent("A").as_tool(tool_name="look", tool_description="Looks.")
    assert (made.name, made.description) == ("look", "Looks.")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_turns": 0}, "max_turns must be at least 1"),
        ({"max_turns": "3"}, "max_turns must be at least 1"),
        ({"output": "text"}, "output must be a function"),
        ({"input_type": list[str]}, "input_type must be a pydantic model"),
        ({"timeout": -1}, "timeout must be seconds"),
        ({"scope": 3}, "scope must be a name"),
        ({"tool_name": "two words"}, "providers accept"),
    ],
)
async def test_invalid_agent_tool_is_a_configuration_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        agent("A").as_tool(**options)


async def test_agent_tool_without_a_model_is_found_before_any_call() -> None:
    """However deep it is."""
    deep = manager(helper=Agent("mute"))
    made = manager("Hello", deep=deep)
    with pytest.raises(ConfigError, match="'mute'"):
        await Runner.run(made, "Hi")
    assert requests(made) == []


async def test_agent_tool_with_an_unknown_handoff_is_found_before_any_call() -> None:
    with pytest.raises(ConfigError, match="hands off to 'unknown'"):
        await Runner.run(manager("Hello", a=agent("A", handoffs=["unknown"])), "Hi")


async def test_circular_agent_tools_are_checked_once() -> None:
    helper = agent("helper", "42", handoffs=["manager"])
    made = manager(ask(), "Done.", helper=helper)
    result = await Runner.run(made, "Hi", run_config=RunConfig(agents=[made]))
    assert result.final_output == "Done."


async def test_agent_tool_works_only_inside_a_run() -> None:
    made = agent("A").as_tool()
    outcome = await made.invoke(ToolContext(context=None), '{"input": "Hi"}')
    assert outcome.error == "raised"
    assert "works only inside a run" in outcome.output


@pytest.mark.parametrize(("arguments", "fits"), [('{"input": "Go"}', True), ('{"input": " "}', False)])
def test_agent_tool_needs_a_task(arguments: str, fits: bool) -> None:
    assert agent("B").as_tool().fits(arguments) is fits


async def test_is_enabled_applies_to_an_agent_tool() -> None:
    off, closed = agent("off").as_tool(is_enabled=lambda ctx, who: False), agent("x").as_tool(scope="admin")
    made = agent("A", "Hello", tools=[off, closed])
    await Runner.run(made, "Hi")
    assert requests(made)[0].tools == ()


def test_every_agent_can_be_a_tool() -> None:
    assert isinstance(agent("A").as_tool(), Tool)


# -- what the agent is asked, and what it answers --


async def test_manager_continues_with_the_answer_of_the_agent() -> None:
    ended = await both(lambda: manager(ask(), "It is 42.", helper=agent("helper", "42")))
    assert ended.result.final_output == "It is 42."
    assert ended.result.last_agent.name == "manager"
    assert answers_of(ended.result) == ["42"]
    assert list(ended.result.nested) == ["call_1_0"]
    assert ended.result.nested["call_1_0"].final_output == "42"
    assert ended.outer == [
        *("agent_updated", "message_done", "tool_called", "tool_output", "message_done", "run_done")
    ]


async def test_sub_run_sees_only_instructions_and_task() -> None:
    helper = agent("helper", "42")
    await Runner.run(manager(ask(text="Think."), "Done.", helper=helper), "A secret.")
    assert list(requests(helper)[0].messages) == [
        {"role": "system", "content": "You are helper."},
        {"role": "user", "content": "Think."},
    ]


class Job(BaseModel):
    city: str
    days: int = 3


async def test_an_input_type_is_checked_and_shown_as_json() -> None:
    helper = agent("helper", "Sun.")
    bad, good = call("helper", {"days": 1}), call("helper", {"city": "Rome", "days": 1})
    made = agent("manager", bad, good, "Done.", tools=[helper.as_tool(input_type=Job)])
    result = await Runner.run(made, "Hi")
    assert requests(helper)[0].messages[-1] == {"role": "user", "content": '{"city":"Rome","days":1}'}
    assert [problem.kind for problem in result.errors] == ["bad_arguments"]
    assert list(result.nested) == ["call_2_0"]


@pytest.mark.parametrize("arguments", ["{}", '{"input": 5}', '{"input": " "}', '{"input": "a', "", "[]"])
async def test_invalid_arguments_are_reported_without_a_sub_run(arguments: str) -> None:
    ended = await both(lambda: manager(call("helper", arguments), "Sorry.", helper=agent("helper")))
    assert answers_of(ended.result)[0].startswith("Tool 'helper' was not run.\n")
    assert [problem.kind for problem in ended.result.errors] == ["bad_arguments"]
    assert ended.result.nested == {}


async def test_a_broken_validator_is_a_failure_of_the_tool() -> None:
    class Picky(BaseModel):
        city: str

        @field_validator("city")
        @classmethod
        def check(cls, value: str) -> str:
            raise KeyError("oops")

    def make() -> Agent[Any]:
        return agent("manager", call("p", {"city": "x"}), "Ok.", tools=[agent("p").as_tool(input_type=Picky)])

    ended = await both(make)
    assert "KeyError" in answers_of(ended.result)[0]
    assert [problem.kind for problem in ended.result.errors] == ["tool"]


async def test_a_structured_output_is_answered_as_json() -> None:
    text = '{"city": "Rome", "days": 2}'
    ended = await both(lambda: manager(ask(), "Ok.", helper=agent("helper", text, output_type=Job)))
    assert answers_of(ended.result) == ['{"city":"Rome","days":2}']
    assert ended.result.nested["call_1_0"].final_output == Job(city="Rome", days=2)


async def test_output_makes_the_answer_from_the_result() -> None:
    async def later(result: RunResult[Any]) -> str:
        return f"{result.final_output}!"

    def make() -> Agent[Any]:
        tools = [
            agent("a", "1").as_tool(output=lambda result: {"turns": len(result.calls)}),
            agent("b", "2").as_tool(output=later),
        ]
        return agent("manager", [ask("a"), ask("b")], "Ok.", tools=tools)

    assert answers_of((await both(make)).result) == ['{"turns":1}', "2!"]


async def test_output_function_may_return_a_tool_result() -> None:
    seen = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}

    def make() -> Agent[Any]:
        drawn = ToolResult("Sales by month.", media=[seen], usage=Usage(requests=1, input_tokens=7))
        return agent("m", ask("a"), "Ok.", tools=[agent("a", "1").as_tool(output=lambda result: drawn)])

    ended = await both(make)
    (answer,) = [each for each in ended.result.to_input_list() if each["role"] == "tool"]
    assert answer.get("content") == [{"type": "text", "text": "Sales by month."}, seen]
    assert ended.result.usage.requests == 4


async def test_output_function_may_return_a_handoff_request() -> None:
    def make() -> Agent[Any]:
        asked = agent("a", "1").as_tool(output=lambda result: HandoffRequest("boss"))
        return agent("m", ask("a"), tools=[asked], handoffs=[agent("boss", "I am here.")])

    ended = await both(make)
    assert ended.result.final_output == "I am here."
    assert ended.result.last_agent.name == "boss"


async def test_an_output_function_that_raises_is_a_failure() -> None:
    def broken(result: RunResult[Any]) -> str:
        raise LookupError("no")

    ended = await both(lambda: agent("m", ask("a"), "Ok.", tools=[agent("a", "1").as_tool(output=broken)]))
    assert answers_of(ended.result)[0].startswith("Tool 'a' failed: LookupError: no")
    assert ended.result.nested["call_1_0"].stop_reason == "done"


async def test_handoffs_happen_within_the_nested_run() -> None:
    def make() -> Agent[Any]:
        boss = agent("boss", "I say yes.")
        return manager(ask(), "Ok.", helper=agent("helper", call("transfer_to_boss"), handoffs=[boss]))

    ended = await both(make)
    inner = ended.result.nested["call_1_0"]
    assert answers_of(ended.result) == ["I say yes."]
    assert (len(ended.result.handoffs), len(inner.handoffs)) == (0, 1)
    assert inner.last_agent.name == "boss"
    assert ended.result.last_agent.name == "manager"


async def test_each_sub_run_starts_without_history() -> None:
    helper = agent("helper", "one", "two")
    result = await Runner.run(manager(ask(text="A"), ask(text="B"), "Ok.", helper=helper), "Hi")
    assert [request.messages[-1].get("content") for request in requests(helper)] == ["A", "B"]
    assert [inner.final_output for inner in result.nested.values()] == ["one", "two"]


async def test_agent_can_be_called_twice_in_one_reply() -> None:
    async def echo(request: Request) -> str:
        return f"echo {request.messages[-1].get('content')}"

    helper = Agent("helper", model=function_handler(echo))
    ended = await both(lambda: manager([ask(text="A"), ask(text="B")], "Ok.", helper=helper))
    assert answers_of(ended.result) == ["echo A", "echo B"]
    assert [inner.final_output for inner in ended.result.nested.values()] == ["echo A", "echo B"]


async def test_other_tools_and_agents_are_answered_in_call_order() -> None:
    def make() -> Agent[Any]:
        calls = [ask("helper"), call("look_up", {"order": 1}), ask("other"), call("nothing")]
        tools = [agent("helper", "H").as_tool(), agent("other", "O").as_tool(), look_up]
        return agent("manager", calls, "Ok.", tools=tools)

    assert answers_of((await both(make)).result)[:3] == ["H", "order 1 is on its way", "O"]


async def test_run_started_inside_a_tool_is_not_a_sub_run() -> None:
    """Its usage and events are its own."""

    @function_tool
    async def by_hand() -> str:
        """Run an agent."""
        return str((await Runner.run(agent("inner", "by hand"), "Hi")).final_output)

    ended = await both(lambda: agent("manager", call("by_hand"), "Ok.", tools=[by_hand]))
    assert answers_of(ended.result) == ["by hand"]
    assert ended.result.nested == {}
    assert ended.result.usage.requests == 2


# -- what is shared --


async def test_usage_of_a_sub_run_is_added_to_the_outer_run() -> None:
    price = Usage(requests=1, input_tokens=3, cost=0.1)

    def make() -> Agent[Any]:
        team = {name: agent(name, reply(name, usage=price)) for name in ("helper", "other")}
        calls = [ask("helper"), ask("other")]
        return manager(reply(calls=calls, usage=price), reply("Ok.", usage=price), **team)

    result = (await both(make)).result
    assert result.usage.requests == 4
    assert result.usage.cost == pytest.approx(0.4)
    assert {name: used.requests for name, used in result.usage_by_agent.items()} == {
        "manager": 2,
        "helper": 1,
        "other": 1,
    }
    assert sum(used.requests for used in result.usage_by_handler.values()) == 4
    assert result.nested["call_1_0"].usage == price


async def test_the_context_the_memory_and_the_scopes_are_shared() -> None:
    @tool
    def note(context: RunContext[Any]) -> str:
        """Note who is asking."""
        context.shared_memory.setdefault("seen", []).append(context.agent)
        return f"{context.context['name']} {sorted(context.scopes)} {context.run_id}"

    def make() -> Agent[Any]:
        helper = agent("helper", call("note", id="n"), "42", tools=[note])
        return agent("manager", ask(id="c"), call("note"), "Ok.", tools=[note, helper.as_tool()])

    ended = await both(make, context={"name": "Ada"}, scopes=["owner"])
    assert answers_of(ended.result)[1] == "Ada ['owner'] r"
    assert answers_of(ended.result.nested["c"]) == ["Ada ['owner'] r/t1.tool.helper.c"]
    assert ended.result.context.shared_memory["seen"] == ["helper", "manager"]


async def test_the_hooks_of_the_run_see_nested_runs() -> None:
    seen = []
    for stream in (False, True):
        hooks = Recorder()
        await run(manager(ask(), "Ok.", helper=agent("helper", "42")), stream=stream, hooks=hooks)
        seen.append([made[:2] for made in hooks.calls])
    assert seen[0] == seen[1]
    assert seen[0][3:8] == [
        ("tool_start", "manager"),
        ("agent_start", "helper"),
        ("llm_start", "helper"),
        ("llm_end", "helper"),
        ("agent_end", "helper"),
    ]


async def test_the_settings_of_the_run_hold_for_nested_runs() -> None:
    for stream in (False, True):
        model = ScriptedHandler([ask(), "42", "Ok."], name="one")
        ended = await run(manager(helper=agent("helper")), stream=stream, model=model)
        assert ended.result.usage_by_handler["one"].requests == 3


async def test_the_callers_tools_are_not_offered_to_nested_agents() -> None:
    """No caller could answer them there."""
    spec = {"type": "function", "function": {"name": "mine", "parameters": {}}}
    helper = agent("helper", "42")
    made = manager(ask(), "Ok.", helper=helper)
    await Runner.run(made, "Hi", run_config=RunConfig(external_tools=[spec]))
    assert [len(requests(each)[0].tools) for each in (made, helper)] == [2, 0]


# -- guardrails --


def trips_on(word: str) -> Callable[..., GuardrailResult]:
    def guardrail(context: Any, who: Any, value: Any) -> GuardrailResult:
        return GuardrailResult(word in str(value), "not allowed")

    return guardrail


async def test_input_guardrails_of_a_sub_run_get_its_task() -> None:
    def make() -> Agent[Any]:
        return manager(ask(text="a bomb"), "No.", helper=agent("helper", input_guardrails=[trips_on("bomb")]))

    ended = await both(make)
    assert answers_of(ended.result)[0].startswith("Tool 'helper' failed: InputGuardrailTripped: ")
    assert ended.result.usage.requests == 2


async def test_output_stopped_by_a_guardrail_stays_in_the_sub_run() -> None:
    def make() -> Agent[Any]:
        helper = agent("helper", "the PIN is 1234", output_guardrails=[trips_on("PIN")])
        return manager(ask(), "No.", helper=helper)

    ended = await both(make)
    assert "OutputGuardrailTripped" in answers_of(ended.result)[0]
    assert "1234" not in answers_of(ended.result)[0]


async def test_guardrail_report_stays_in_the_sub_run() -> None:
    """The report is for the app and may quote the stopped text."""

    def quotes(context: RunContext[Any], agent: Agent[Any], output: str) -> GuardrailResult:
        return GuardrailResult(True, {"found in": output})

    def make() -> Agent[Any]:
        return manager(ask(), "No.", helper=agent("helper", "the PIN is 1234", output_guardrails=[quotes]))

    ended = await both(make)
    expected = "Tool 'helper' failed: OutputGuardrailTripped: guardrail 'quotes' stopped it."
    assert answers_of(ended.result) == [expected]
    (problem,) = ended.result.errors
    assert "1234" in str(problem.error)


@pytest.mark.parametrize("by", ["a deeper sub-run", "a tool that runs an agent"])
async def test_guardrail_report_of_a_deeper_run_stays_there(by: str) -> None:
    def quotes(context: RunContext[Any], agent: Agent[Any], output: str) -> GuardrailResult:
        return GuardrailResult(True, {"found in": output})

    def make() -> Agent[Any]:
        deep = agent("deep", "the PIN is 1234", output_guardrails=[quotes])

        async def run_deep() -> str:
            return (await Runner.run(deep, "Hi")).final_output

        as_tool = deep.as_tool(on_error="raise")
        own = function_tool(run_deep, name_override="deep")
        tool = own if by == "a tool that runs an agent" else as_tool
        asks = call("deep", {} if tool is not as_tool else {"input": "Hi"})
        return manager(ask(), "No.", helper=agent("helper", asks, "No.", tools=[tool]))

    ended = await both(make)
    helper = ended.result.nested[next(iter(ended.result.nested))]
    shown = json.dumps([ended.result.messages, helper.messages])
    assert "guardrail 'quotes' stopped it" in shown
    assert "1234" not in shown


async def test_guardrails_of_the_run_do_not_apply_to_sub_runs() -> None:
    def make() -> Agent[Any]:
        return manager(ask(text="bomb"), "No.", helper=agent("helper", "PIN"))

    ended = await both(make, input_guardrails=[trips_on("bomb")], output_guardrails=[trips_on("PIN")])
    assert ended.result.final_output == "No."


# -- failures --


async def test_failed_sub_run_is_reported_with_its_partial_result() -> None:
    """Never a confident answer."""

    def make() -> Agent[Any]:
        first = reply("I found half of it.", calls=[call("look_up", {"order": 1})])
        return manager(ask(), "Ok.", helper=agent("helper", first, InvalidRequest("no"), tools=[look_up]))

    ended = await both(make)
    (answer,) = answers_of(ended.result)
    assert answer.startswith("Tool 'helper' failed: InvalidRequest: its model cannot be asked")
    assert answer.endswith("which is not a final answer: I found half of it.")
    (problem,) = ended.result.errors
    assert (problem.kind, problem.call_id) == ("tool", "call_1_0")
    assert problem.message.startswith("Tool 'helper' failed: InvalidRequest: no\n")
    assert ended.result.nested["call_1_0"].stop_reason == "error"
    assert [e.error for e in ended.events if e.type == "tool_output"] == ["raised"]


@pytest.mark.parametrize("on_limit", ["raise", "return", lambda error: "Fine!"])
async def test_sub_run_out_of_turns_is_a_failure(on_limit: Any) -> None:
    """In smolagents exhaustion was "reported as a confident answer" (huggingface/smolagents 2166)."""

    def make() -> Agent[Any]:
        return agent("manager", ask(), "Ok.", tools=[busy().as_tool(max_turns=2)])

    ended = await both(make, on_limit=on_limit)
    message = ended.result.errors[0].message
    assert message.startswith("Tool 'helper' failed: MaxTurnsExceeded: Max turns (2)")
    assert len(ended.result.nested["call_1_0"].calls) == 2
    assert ended.result.final_output == "Ok."


async def test_on_error_raise_stops_the_outer_run() -> None:
    def make() -> Agent[Any]:
        tools = [agent("helper", InvalidRequest("no")).as_tool(on_error="raise")]
        return agent("manager", ask(), tools=tools)

    ended = await both(make)
    assert isinstance(ended.error, ToolError)
    assert isinstance(ended.error.__cause__, InvalidRequest)
    assert ended.result.last_agent.name == "manager"
    assert ended.result.nested["call_1_0"].stop_reason == "error"
    assert ended.result.usage.requests == 2


async def test_on_error_function_gets_the_partial_result() -> None:
    def rescue(context: ToolContext[Any], error: Exception) -> str:
        assert isinstance(error, MaxTurnsExceeded)
        return f"{context.tool_name} got as far as {len(error.result.calls)} calls"

    def make() -> Agent[Any]:
        return agent("manager", ask(), "Ok.", tools=[busy().as_tool(max_turns=3, on_error=rescue)])

    assert answers_of((await both(make)).result) == ["helper got as far as 3 calls"]


async def test_failed_sub_run_does_not_cancel_the_others() -> None:
    def make() -> Agent[Any]:
        team = {"a": agent("a", "A"), "b": agent("b", InvalidRequest("no")), "c": agent("c", "C")}
        return manager([ask("a"), ask("b"), ask("c")], "Ok.", **team)

    answers = answers_of((await both(make)).result)
    assert (answers[0], answers[2]) == ("A", "C")
    assert "InvalidRequest" in answers[1]


async def test_a_tests_own_complaint_ends_the_run() -> None:
    """A script that has no reply left must not become an answer."""
    for stream in (False, True):
        made = manager([ask("a"), ask("b")], "Ok.", a=agent("a"), b=agent("b", "B"))
        with pytest.raises(AssertionError, match="which has 0 replies"):
            await run(made, stream=stream)


async def test_an_agent_that_nobody_may_reach_is_a_failure() -> None:
    class Closed(ScriptedHandler):
        scope = "admin"

    def make() -> Agent[Any]:
        return manager(ask(), "Ok.", helper=Agent("helper", model=Closed([])))

    assert "NoHandlerError" in answers_of((await both(make)).result)[0]


@pytest.mark.virtual_time
async def test_a_timeout_holds_in_both_modes() -> None:
    async def sleepy(request: Any) -> AsyncGenerator[Any]:
        await anyio.sleep_forever()
        yield "never"

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    def make() -> Agent[Any]:
        helper = agent("helper", reply("Wait.", calls=[call("look")]), sleepy, tools=[look])
        return agent("manager", ask(), "Ok.", tools=[helper.as_tool(timeout=0.05)])

    ended = await both(make)
    (answer,) = answers_of(ended.result)
    assert answer.startswith("Tool 'helper' timed out after 0.05s.")
    assert answer.endswith("Wait.")
    assert ended.result.nested["call_1_0"].stop_reason == "unfinished"
    assert [e.error for e in ended.events if e.type == "tool_output"] == ["timeout"]


@pytest.mark.virtual_time
async def test_a_timeout_can_stop_the_run() -> None:
    def make() -> Agent[Any]:
        async def sleepy(request: Any) -> str:
            await anyio.sleep_forever()
            return "never"

        return agent("m", ask(), tools=[agent("helper", sleepy).as_tool(timeout=0.01, on_error="raise")])

    ended = await both(make)
    assert isinstance(ended.error, ToolTimeout)
    assert ended.error.result.last_agent.name == "m"


@pytest.mark.virtual_time
async def test_time_of_the_reader_does_not_count_for_the_timeout() -> None:
    made = agent("m", ask(), "Ok.", tools=[agent("helper", "a b c d e f").as_tool(timeout=0.25)])
    async with Runner.run_streamed(made, "Hi") as stream:
        async for event in stream:
            if isinstance(event, NestedEvent):
                await anyio.sleep(0.06)
    assert answers_of(stream.result) == ["a b c d e f"]
