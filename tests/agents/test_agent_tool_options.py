"""What `Agent.as_tool` gives a sub-run of its own: input, guardrails, settings, hooks, events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest
from manager_agents import Ended, ask, both, run
from pydantic import BaseModel
from scripted_agents import agent, answers_of, look_up, requests
from typing_extensions import TypedDict

from routelock import (
    Agent,
    AgentHooks,
    GuardrailResult,
    HandoffRequest,
    Limits,
    RunConfig,
    RunHooks,
    Runner,
    RunState,
    ToolContext,
    function_handler,
    function_tool,
    tool,
)
from routelock.errors import (
    CallbackError,
    ConfigError,
    InputGuardrailTripped,
    NoHandlerError,
    ToolGuardrailTripped,
)
from routelock.handlers.port import Request
from routelock.history.messages import Message
from routelock.run.events import NestedEvent
from routelock.testing import ScriptedHandler, call, reply
from routelock.tracing import read_trace
from routelock.usage import Usage

pytestmark = pytest.mark.anyio


def manager_of(helper: Agent[Any], *replies: Any, **options: Any) -> Agent[Any]:
    """Return a manager that says these things, with ``helper`` as a tool with these options."""
    return agent("manager", *replies, tools=[helper.as_tool("helper", **options)])


def asked_of(ended: Ended, call_id: str = "c1") -> list[Any]:
    """Return the contents of the input of a sub-run."""
    inner = ended.result.nested[call_id]
    return [item.message.get("content") for item in inner.items[: inner.input_count]]


# -- the input --


class Job(BaseModel):
    city: str
    days: int = 3


async def test_input_function_makes_the_input_of_the_sub_run() -> None:
    def brief(context: ToolContext[Any], job: Job) -> str:
        return f"{context.context}: {job.days} days in {job.city}"

    def make() -> Agent[Any]:
        made = call("helper", {"city": "Rome"}, id="c1")
        return manager_of(agent("helper", "Sun."), made, "Ok.", input_type=Job, input=brief)

    ended = await both(make, context="Ann")
    assert asked_of(ended) == ["Ann: 3 days in Rome"]


async def test_input_function_may_be_async_and_return_messages() -> None:
    async def brief(context: ToolContext[Any], text: str) -> list[Message]:
        await anyio.lowlevel.checkpoint()
        return [{"role": "user", "content": "Be brief."}, {"role": "user", "content": text}]

    ended = await both(lambda: manager_of(agent("helper", "Ok."), ask(id="c1"), "Done.", input=brief))
    assert asked_of(ended) == ["Be brief.", "Look."]


async def test_input_function_sees_the_arguments_by_name() -> None:
    seen: list[Any] = []

    def brief(context: ToolContext[Any], text: str) -> str:
        seen.append((context.tool_name, context.tool_call_id, dict(context.arguments)))
        return text

    await Runner.run(manager_of(agent("helper", "Ok."), ask(id="c1"), "Done.", input=brief), "Hi")
    assert seen == [("helper", "c1", {"input": "Look."})]


@pytest.mark.parametrize("made", [[], 5, [{"role": "stranger"}], None])
async def test_input_that_is_none_is_a_failure_of_the_call(made: Any) -> None:
    ended = await both(
        lambda: manager_of(agent("helper"), ask(id="c1"), "Ok.", input=lambda context, text: made)
    )
    assert answers_of(ended.result)[0].startswith("Tool 'helper' failed: ConfigError")
    assert ended.result.nested == {}


async def test_input_function_that_raises_is_a_failure_of_the_call() -> None:
    def broken(context: ToolContext[Any], text: str) -> str:
        raise LookupError("no such customer")

    ended = await both(lambda: manager_of(agent("helper"), ask(id="c1"), "Ok.", input=broken))
    assert answers_of(ended.result) == ["Tool 'helper' failed: LookupError: no such customer"]


# -- guardrails of the tool --


class Shown(TypedDict):
    city: str


@pytest.mark.parametrize(
    ("input_type", "sent", "seen"),
    [
        (None, {"input": "Look."}, {"input": "Look."}),
        (Job, {"city": "Rome"}, {"city": "Rome", "days": 3}),
        (Shown, {"city": "Rome"}, {"city": "Rome"}),
    ],
)
async def test_input_guardrail_of_an_agent_tool_sees_arguments_by_name(
    input_type: Any, sent: Any, seen: Any
) -> None:
    values: list[Any] = []

    def watch(context: ToolContext[Any], owner: Any, value: Any) -> GuardrailResult:
        values.append((owner.name, value))
        return GuardrailResult(False)

    made = manager_of(
        agent("helper", "Ok."), call("helper", sent), "Done.", input_type=input_type, input_guardrails=[watch]
    )
    await Runner.run(made, "Hi")
    assert values == [("helper", seen)]


def check(*, trips: bool = False, answer: str | None = None) -> Any:
    return lambda context, owner, value: GuardrailResult(trips, "why", answer)


async def test_answer_of_an_input_guardrail_is_given_without_a_sub_run() -> None:
    helper = agent("helper")
    ended = await both(
        lambda: manager_of(helper, ask(id="c1"), "Ok.", input_guardrails=[check(answer="Not now.")])
    )
    assert answers_of(ended.result) == ["Not now."]
    assert (ended.result.nested, requests(helper)) == ({}, [])
    assert [one.kind for one in ended.result.guardrail_results] == ["tool_input"]


async def test_answer_of_an_output_guardrail_replaces_that_of_the_agent() -> None:
    def make() -> Agent[Any]:
        return manager_of(
            agent("helper", "A secret."), ask(id="c1"), "Ok.", output_guardrails=[check(answer="(withheld)")]
        )

    ended = await both(make)
    assert answers_of(ended.result) == ["(withheld)"]
    assert ended.result.nested["c1"].final_output == "A secret."


@pytest.mark.parametrize("kind", ["input_guardrails", "output_guardrails"])
async def test_tripped_guardrail_of_an_agent_tool_ends_the_run(kind: str) -> None:
    ended = await both(
        lambda: manager_of(agent("helper", "42"), ask(id="c1"), "Ok.", **{kind: [check(trips=True)]})
    )
    assert isinstance(ended.error, ToolGuardrailTripped)
    assert [one.tripwire_triggered for one in ended.result.guardrail_results] == [True]


async def test_guardrail_of_an_agent_tool_that_raises_ends_the_run() -> None:
    def broken(context: Any, owner: Any, value: Any) -> GuardrailResult:
        raise LookupError("no list")

    ended = await both(lambda: manager_of(agent("helper"), ask(), "Ok.", input_guardrails=[broken]))
    assert isinstance(ended.error, CallbackError)


async def test_output_guardrail_sees_the_failure_of_an_agent() -> None:
    seen: list[Any] = []

    def watch(context: Any, owner: Any, value: Any) -> GuardrailResult:
        seen.append(value)
        return GuardrailResult(False)

    made = manager_of(agent("helper"), ask(), "Ok.", output_guardrails=[watch], input=lambda context, text: 5)
    await Runner.run(made, "Hi")
    assert seen[0].startswith("Tool 'helper' failed: ConfigError")


async def test_output_guardrail_does_not_see_a_handoff_request() -> None:
    def make() -> Agent[Any]:
        asked = agent("a", "1").as_tool(
            output=lambda result: HandoffRequest("boss"), output_guardrails=[check(answer="no")]
        )
        return agent("m", ask("a"), tools=[asked], handoffs=[agent("boss", "I am here.")])

    assert (await both(make)).result.final_output == "I am here."


async def test_resumed_sub_run_is_not_screened_or_built_again() -> None:
    called: list[str] = []

    def watch(context: Any, owner: Any, value: Any) -> GuardrailResult:
        called.append("guardrail")
        return GuardrailResult(False)

    def brief(context: Any, text: str) -> str:
        called.append("input")
        return "Pay it."

    made = manager_of(payer(), ask(id="c1"), "Done.", input_guardrails=[watch], input=brief)
    result = await approved(made)
    assert result.final_output == "Done."
    assert called == ["guardrail", "input"]
    assert [one.kind for one in result.guardrail_results] == ["tool_input"]
    assert result.nested["c1"].items[0].message.get("content") == "Pay it."


def payer(*more: Any, **options: Any) -> Agent[Any]:
    """An agent whose tool waits for an approval."""

    @function_tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    return agent("helper", call("pay", id="p"), *(more or ("It is paid.",)), tools=[pay], **options)


async def approved(made: Agent[Any], **options: Any) -> Any:
    """Run an agent until it waits, approve all through JSON, and resume it."""
    waiting = await Runner.run(made, "Hi", **options)
    assert waiting.stop_reason == "requires_action"
    state = RunState.from_json(waiting.state().to_json(), agents=[made])
    for one in state.interruptions:
        state = state.approve(one)
    return await Runner.run(made, state, **options)


# -- settings --


async def test_sub_run_has_the_model_of_its_own_settings() -> None:
    other = ScriptedHandler(["From the other model."])
    ended = await run(
        manager_of(agent("helper"), ask(id="c1"), "Ok.", run_config=RunConfig(model=other)), stream=False
    )
    assert answers_of(ended.result) == ["From the other model."]


async def test_agent_without_a_model_may_get_one_as_a_tool() -> None:
    mute = Agent("mute")
    config = RunConfig(model=ScriptedHandler(["42"]))
    made = agent("manager", ask("mute"), "Ok.", tools=[mute.as_tool(run_config=config)])
    assert answers_of(await Runner.run(made, "Hi")) == ["42"]
    with pytest.raises(NoHandlerError):
        await Runner.run(agent("manager", "Ok.", tools=[mute.as_tool()]), "Hi")


async def test_own_model_settings_are_added_to_those_of_the_run() -> None:
    helper = agent("helper", "Ok.")
    config = RunConfig(model_settings={"temperature": 0, "seed": 1})
    made = manager_of(helper, ask(), "Done.", run_config=config)
    await Runner.run(made, "Hi", run_config=RunConfig(model_settings={"seed": 2, "max_tokens": 9}))
    assert requests(helper)[0].settings == {"temperature": 0, "seed": 1, "max_tokens": 9}
    assert requests(made)[0].settings == {"seed": 2, "max_tokens": 9}


async def test_sub_run_may_start_with_another_handler() -> None:
    async def second(request: Request) -> str:
        return "second"

    helper = Agent("helper", model=ScriptedHandler(["first"]), handlers=[function_handler(second)])
    made = manager_of(helper, ask(), "Done.", run_config=RunConfig(handler="second"))
    assert answers_of(await Runner.run(made, "Hi")) == ["second"]


async def test_settings_at_their_default_are_those_of_the_outer_run() -> None:
    seen: list[Any] = []

    @tool
    async def note(context: ToolContext[Any]) -> str:
        """Note."""
        seen.append((context.user_id, sorted(context.scopes)))
        return "noted"

    helper = agent("helper", call("note"), "Ok.", tools=[note])
    made = manager_of(helper, ask(id="c1"), "Done.", run_config=RunConfig(max_handoffs=1))
    await Runner.run(made, "Hi", run_config=RunConfig(user_id="u", scopes=("owner",)))
    assert seen == [("u", ["owner"])]


async def test_own_settings_hold_for_sub_runs_of_the_sub_run() -> None:
    deep = agent("deep", "3")
    helper = agent("helper", ask("deep"), "2", tools=[deep.as_tool()])
    await Runner.run(
        manager_of(helper, ask(), "1", run_config=RunConfig(model_settings={"seed": 7})), "Hi", max_turns=20
    )
    assert requests(deep)[0].settings == {"seed": 7}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (RunConfig(scopes=("owner",)), "scopes"),
        (RunConfig(user_id="u"), "user_id"),
        (RunConfig(run_id="r"), "run_id"),
        (RunConfig(shared_memory={"a": 1}), "shared_memory"),
        (RunConfig(external_tools=[look_up]), "external_tools"),
        (RunConfig(clock=lambda: 0.0), "clock"),
        (RunConfig(on_limit="return"), "on_limit='return'"),
    ],
)
def test_settings_that_a_sub_run_shares_are_refused(config: RunConfig, name: str) -> None:
    with pytest.raises(ConfigError, match=f"run_config of as_tool.. cannot set {name}"):
        agent("A").as_tool(run_config=config)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input": "text"}, "input must be a function"),
        ({"input": lambda context: "x"}, "input must be a function of the context and the arguments"),
        ({"on_event": 5}, "on_event must be a function"),
        ({"hooks": AgentHooks()}, "hooks must be a RunHooks object"),
        ({"hooks": RunHooks}, "hooks must be a RunHooks object"),
        ({"session": "chats"}, "session must be a Session, or a function"),
        ({"run_config": {"model": "x"}}, "run_config must be a RunConfig"),
        ({"run_config": RunConfig}, "run_config must be a RunConfig"),
        ({"input_guardrails": ["no"]}, "are lists of functions"),
    ],
)
def test_invalid_option_is_a_configuration_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        agent("A").as_tool(**options)


# -- limits --

PRICED = Usage(requests=1, input_tokens=10)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(requests=2), "2 of 2 requests are made"),
        (Limits(tool_calls=1), "1 of 1 tool calls are made"),
        (Limits(tokens=15), "20 of 15 tokens are used"),
        (Limits(turns=2), "Max turns (2) exceeded"),
    ],
)
async def test_own_limits_hold_for_the_sub_run_alone(limits: Limits, why: str) -> None:
    def make() -> Agent[Any]:
        calls = [reply(calls=[call("look_up", {"order": n})], usage=PRICED) for n in range(9)]
        return manager_of(
            agent("helper", *calls, tools=[look_up]),
            reply(calls=[ask(id="c1")], usage=PRICED),
            reply(calls=[ask(id="c2")], usage=PRICED),
            reply("Sorry.", usage=PRICED),
            run_config=RunConfig(limits=limits),
        )

    ended = await both(make)
    assert ended.result.final_output == "Sorry."
    assert [why in problem.message for problem in ended.result.errors] == [True, True]


async def test_limits_of_the_run_hold_beside_own_ones() -> None:
    def make() -> Agent[Any]:
        calls = [call("look_up", {"order": n}) for n in range(9)]
        helper = agent("helper", *calls, tools=[look_up])
        return manager_of(helper, ask(), "Ok.", run_config=RunConfig(limits=Limits(requests=9)))

    ended = await both(make, limits=Limits(requests=4))
    assert "The budget of the run is used up: 4 of 4" in ended.result.errors[0].message


async def test_own_limits_hold_for_deeper_sub_runs_too() -> None:
    def make() -> Agent[Any]:
        deep = agent("deep", *(call("look_up", {"order": n}) for n in range(9)), tools=[look_up])
        helper = agent("helper", ask("deep", id="d"), "Sorry.", tools=[deep.as_tool()])
        return manager_of(helper, ask(id="c1"), "Ok.", run_config=RunConfig(limits=Limits(requests=3)))

    inner = (await both(make)).result.nested["c1"]
    assert "3 of 3 requests are made" in inner.errors[0].message
    assert inner.stop_reason == "error"


async def test_own_limits_count_what_was_used_before_a_state() -> None:
    made = manager_of(
        payer(call("pay", id="q"), "Never."),
        ask(id="c1"),
        "Done.",
        run_config=RunConfig(limits=Limits(requests=2)),
    )
    waiting = await Runner.run(made, "Hi")
    state = waiting.state()
    again = await Runner.run(made, state.approve(state.interruptions[0]))
    assert again.stop_reason == "requires_action"
    state = RunState.from_json(again.state().to_json(), agents=[made])
    result = await Runner.run(made, state.approve(state.interruptions[0]))
    assert "2 of 2 requests are made" in result.errors[0].message


async def test_own_timeout_ends_the_sub_run_only() -> None:
    async def slow(request: Request) -> str:
        await anyio.sleep_forever()
        return ""

    config = RunConfig(timeout=0.01)
    for stream in (False, True):
        helper = Agent("helper", model=function_handler(slow))
        ended = await run(manager_of(helper, ask(), "Sorry.", run_config=config), stream=stream)
        assert ended.result.final_output == "Sorry."
        assert "longer than its timeout of 0.01 s" in ended.result.errors[0].message


async def test_own_on_limit_answers_the_call() -> None:
    config = RunConfig(limits=Limits(requests=1), on_limit=lambda error: "I had no time.")

    def make() -> Agent[Any]:
        calls = [call("look_up", {"order": n}) for n in range(3)]
        return manager_of(agent("helper", *calls, tools=[look_up]), ask(id="c1"), "Ok.", run_config=config)

    ended = await both(make)
    assert answers_of(ended.result) == ["I had no time."]
    assert ended.result.nested["c1"].stop_reason == "limit"


async def test_own_on_invalid_output_answers_the_call() -> None:
    config = RunConfig(max_mistakes=1, on_invalid_output=lambda error: Job(city="Nowhere", days=0))

    def make() -> Agent[Any]:
        return manager_of(agent("helper", "no", output_type=Job), ask(id="c1"), "Ok.", run_config=config)

    assert answers_of((await both(make)).result) == ['{"city":"Nowhere","days":0}']


async def test_own_guardrails_check_the_sub_run_and_no_deeper_one() -> None:
    seen: list[str] = []

    def watch(context: Any, who: Any, value: Any) -> GuardrailResult:
        seen.append(who.name)
        return GuardrailResult("bad" in str(value))

    def make() -> Agent[Any]:
        helper = agent("helper", ask("deep"), "2", tools=[agent("deep", "3").as_tool()])
        config = RunConfig(input_guardrails=[watch], output_guardrails=[watch])
        return manager_of(helper, ask(text="Go.", id="c1"), "Ok.", run_config=config)

    ended = await both(make)
    assert seen == ["helper"] * 4
    assert [one.of_run for one in ended.result.nested["c1"].guardrail_results] == [True, True]


async def test_own_input_guardrail_that_trips_is_a_failure_of_the_call() -> None:
    config = RunConfig(input_guardrails=[check(trips=True)])
    ended = await both(lambda: manager_of(agent("helper"), ask(id="c1"), "Ok.", run_config=config))
    assert ended.result.final_output == "Ok."
    assert isinstance(ended.result.errors[0].error, InputGuardrailTripped)


async def test_sub_run_may_go_without_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    made = manager_of(agent("helper", "42"), ask(id="c1"), "Ok.", run_config=RunConfig(trace=()))
    result = await Runner.run(made, "Hi", run_config=RunConfig(trace=path))
    assert result.nested["c1"].final_output == "42"
    (traced,) = read_trace(path).runs
    assert (traced.start.agent, traced.nested) == ("manager", {})


async def test_sub_run_may_have_a_trace_of_its_own(tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer.jsonl", tmp_path / "inner.jsonl"
    made = manager_of(agent("helper", "42"), ask(id="c1"), "Ok.", run_config=RunConfig(trace=[outer, inner]))
    await Runner.run(made, "Hi", run_config=RunConfig(trace=outer))
    assert inner.exists()
    assert '"helper"' in inner.read_text("utf-8")


# -- hooks and events --


class Named(RunHooks):
    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    async def on_llm_start(self, context: Any, agent: Any, request: Any) -> None:
        self.log.append(f"{self.name}: {agent.name}")


async def test_hooks_of_the_run_and_own_hooks_are_called() -> None:
    log: list[str] = []
    deep = agent("deep", "3")
    helper = agent("helper", ask("deep"), "2", tools=[deep.as_tool()])
    made = manager_of(helper, ask(), "1", hooks=Named("own", log))
    await Runner.run(made, "Hi", hooks=Named("run", log), max_turns=20)
    assert log == [
        "run: manager",
        *("run: helper", "own: helper", "run: deep", "own: deep", "run: helper", "own: helper"),
        "run: manager",
    ]


async def test_own_hooks_are_called_after_the_run_was_resumed() -> None:
    log: list[str] = []
    await approved(manager_of(payer(), ask(), "Done.", hooks=Named("own", log)))
    assert log == ["own: helper", "own: helper"]


async def test_hook_that_raises_does_not_keep_the_next_from_its_call() -> None:
    class Broken(RunHooks):
        async def on_llm_start(self, context: Any, agent: Any, request: Any) -> None:
            raise LookupError

    log: list[str] = []
    made = manager_of(agent("helper", "2"), ask(id="c1"), "1", hooks=Named("own", log))
    result = await Runner.run(made, "Hi", hooks=Broken())
    assert log == ["own: helper"]
    assert [one.kind for one in result.nested["c1"].errors] == ["hook"]


@pytest.mark.parametrize("stream", [False, True])
async def test_on_event_gets_the_events_of_the_sub_run(stream: bool) -> None:
    seen: list[Any] = []

    async def watch(context: ToolContext[Any], event: NestedEvent) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append((context.tool_call_id, event.path, event.event.type))

    def make() -> Agent[Any]:
        deep = agent("deep", "3")
        helper = agent("helper", ask("deep", id="d"), "2", tools=[deep.as_tool()])
        return manager_of(helper, ask(id="c1"), "1", on_event=watch)

    await run(make(), stream=stream)
    assert {call_id for call_id, _, _ in seen} == {"c1"}
    texts = [path for _, path, kind in seen if kind == "text_delta"]
    assert texts == [("manager", "helper", "deep"), ("manager", "helper")]
    assert seen[-1][-1] == "run_done"


async def test_on_event_changes_nothing_of_the_result() -> None:
    def make(**options: Any) -> Agent[Any]:
        helper = agent("helper", ask("deep", id="d"), "2", tools=[agent("deep", "3").as_tool()])
        return manager_of(helper, ask(id="c1"), "1", **options)

    watched, plain = await both(lambda: make(on_event=lambda context, event: None)), await both(make)
    assert watched.result.items == plain.result.items
    assert watched.result.usage == plain.result.usage


async def test_on_event_that_raises_does_not_end_the_run() -> None:
    def broken(context: Any, event: Any) -> None:
        if event.event.type == "run_done":
            raise LookupError("the reader left")

    ended = await both(lambda: manager_of(agent("helper", "2"), ask(id="c1"), "1", on_event=broken))
    assert ended.result.final_output == "1"
    (problem,) = ended.result.errors
    assert (problem.kind, problem.call_id) == ("hook", "c1")
    assert "on_event of 'helper' raised LookupError" in problem.message
