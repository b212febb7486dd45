"""A result has what each guardrail found, whether it let the value pass or not."""

from __future__ import annotations

import json
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from routelock import Agent, GuardrailResult, RunConfig, Runner, RunResult, RunState, handoff, tool
from routelock.errors import CallbackError, GuardrailTripped, ToolGuardrailTripped
from routelock.guardrails import GuardrailRecord
from routelock.run.executor import Call, InProcess
from routelock.testing import ScriptedHandler, call, reply

pytestmark = pytest.mark.anyio


def check(name: str, info: Any = None, *, trips: bool = False, answer: str | None = None) -> Any:
    """Return a guardrail of this name that finds this."""

    def found(context: Any, owner: Any, value: Any) -> GuardrailResult:
        return GuardrailResult(trips, info, answer)

    found.__name__ = name
    return found


def team(*, trips: str = "", info: Any = None, answer: str | None = None) -> Agent[Any]:
    """An agent with a guardrail at each place, of which one may trip, and a tool that it calls."""

    def at(name: str, answer: str | None = None) -> list[Any]:
        return [check(name, info, trips=name == trips, answer=answer)]

    @tool(input_guardrails=at("before", answer), output_guardrails=at("after"))
    async def look(place: str) -> str:
        """Look."""
        return f"seen {place}"

    calls = [call("look", {"place": "a"}, id="c1"), call("look", {"place": "b"}, id="c2")]
    return Agent(
        "A",
        model=ScriptedHandler([reply(calls=calls), "Done."]),
        tools=[look],
        input_guardrails=at("asked"),
        output_guardrails=at("said"),
    )


OF_RUN = RunConfig(input_guardrails=[check("enters", 1)], output_guardrails=[check("leaves", 2)])


async def play(agent: Agent[Any], stream: bool, config: RunConfig | None = None) -> RunResult[Any]:
    """Run an agent, and return the result, also that of an error."""
    try:
        if stream:
            return await Runner.run_streamed(agent, "Hi", run_config=config).drain()
        return await Runner.run(agent, "Hi", run_config=config)
    except GuardrailTripped as error:
        found: RunResult[Any] = error.result
        return found


@pytest.mark.parametrize("stream", [False, True])
async def test_guardrails_that_let_pass_are_on_the_result(stream: bool) -> None:
    result = await play(team(info={"score": 0.5}), stream, OF_RUN)
    assert [(one.name, one.kind, one.turn, one.call_id) for one in result.guardrail_results] == [
        ("enters", "input", 0, None),
        ("asked", "input", 1, None),
        ("before", "tool_input", 1, "c1"),
        ("after", "tool_output", 1, "c1"),
        ("before", "tool_input", 1, "c2"),
        ("after", "tool_output", 1, "c2"),
        ("said", "output", 2, None),
        ("leaves", "output", 2, None),
    ]
    assert all(one.passed for one in result.guardrail_results)
    assert [one.name for one in result.guardrail_results if one.of_run] == ["enters", "leaves"]
    assert [one.tool for one in result.guardrail_results if one.call_id] == ["look"] * 4
    assert {one.agent for one in result.guardrail_results} == {"A"}
    assert result.guardrail_results[1].output_info == {"score": 0.5}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("trips", ["asked", "before", "after", "said"])
async def test_guardrail_that_tripped_is_on_the_result_of_the_error(trips: str, stream: bool) -> None:
    result = await play(team(trips=trips, info="why"), stream)
    tripped = [one for one in result.guardrail_results if one.tripwire_triggered]
    assert {(one.name, one.output_info, one.passed) for one in tripped} == {(trips, "why", False)}


@pytest.mark.parametrize("stream", [False, True])
async def test_answer_of_a_tools_guardrail_is_on_the_result(stream: bool) -> None:
    result = await play(team(answer="Not there."), stream)
    found = [one for one in result.guardrail_results if one.kind == "tool_input"]
    assert [(one.answer, one.tripwire_triggered, one.passed) for one in found] == [
        ("Not there.", False, False)
    ] * 2
    assert [one for one in result.guardrail_results if one.kind == "tool_output"] == []


async def test_records_have_the_order_of_declaration() -> None:
    first_may_end = anyio.Event()

    async def first(context: Any, agent: Any, value: Any) -> GuardrailResult:
        await first_may_end.wait()
        return GuardrailResult(False)

    async def second(context: Any, agent: Any, value: Any) -> GuardrailResult:
        first_may_end.set()
        return GuardrailResult(False)

    agent = Agent("A", model=ScriptedHandler(["Hi."]), output_guardrails=[first, second])
    assert [one.name for one in (await play(agent, False)).guardrail_results] == ["first", "second"]


async def test_tool_records_have_the_order_of_the_calls() -> None:
    second_is_done = anyio.Event()

    async def late(context: Any, owner: Any, value: Any) -> GuardrailResult:
        if value["place"] == "a":
            await second_is_done.wait()
        else:
            second_is_done.set()
        return GuardrailResult(False, value["place"])

    @tool(input_guardrails=[late])
    async def look(place: str) -> str:
        """Look."""
        return place

    calls = [call("look", {"place": "a"}), call("look", {"place": "b"})]
    agent = Agent("A", model=ScriptedHandler([calls, "Done."]), tools=[look])
    assert [one.output_info for one in (await play(agent, False)).guardrail_results] == ["a", "b"]


async def test_cancelled_guardrail_has_no_record() -> None:
    async def never(context: Any, agent: Any, value: Any) -> GuardrailResult:
        await anyio.sleep_forever()
        raise AssertionError

    async def trips(context: Any, agent: Any, value: Any) -> GuardrailResult:
        await anyio.lowlevel.checkpoint()
        return GuardrailResult(True)

    agent = Agent("A", model=ScriptedHandler(["Hi."]), output_guardrails=[never, trips])
    assert [one.name for one in (await play(agent, False)).guardrail_results] == ["trips"]


async def test_guardrail_that_raises_has_no_record() -> None:
    def broken(context: Any, agent: Any, value: Any) -> GuardrailResult:
        raise LookupError("no list")

    agent = Agent("A", model=ScriptedHandler(["Hi."]), output_guardrails=[check("fine"), broken])
    with pytest.raises(CallbackError) as caught:
        await Runner.run(agent, "Hi")
    assert [one.name for one in caught.value.result.guardrail_results] == ["fine"]


async def test_guardrails_beside_the_model_call_are_recorded() -> None:
    result = await play(team(info=1), False, RunConfig(guardrails_beside=True))
    assert [one.name for one in result.guardrail_results][:2] == ["asked", "before"]


async def test_guardrail_of_a_tool_that_failed_is_recorded() -> None:
    @tool(input_guardrails=[check("before")], on_error="raise")
    async def fail() -> str:
        """Fail."""
        raise LookupError

    agent = Agent("A", model=ScriptedHandler([call("fail")]), tools=[fail])
    with pytest.raises(Exception, match="failed") as caught:
        await Runner.run(agent, "Hi")
    assert [one.name for one in caught.value.result.guardrail_results] == ["before"]  # type: ignore[attr-defined]


async def test_records_of_a_sub_run_are_on_its_own_result() -> None:
    helper = Agent("B", model=ScriptedHandler(["42"]), output_guardrails=[check("inner")])
    model = ScriptedHandler([call("b", {"input": "Go."}, id="c1"), "Done."])
    result = await play(
        Agent("A", model=model, tools=[helper.as_tool()], output_guardrails=[check("outer")]), False
    )
    assert [one.name for one in result.guardrail_results] == ["outer"]
    assert [one.name for one in result.nested["c1"].guardrail_results] == ["inner"]


async def test_answer_that_returns_to_a_caller_is_recorded_under_its_agent() -> None:
    helper = Agent("B", model=ScriptedHandler(["42"]), output_guardrails=[check("inner")])
    model = ScriptedHandler([call("transfer_to_b"), "Done."])
    agent = Agent("A", model=model, handoffs=[handoff(helper, return_to_caller=True)])
    assert [(one.agent, one.name) for one in (await play(agent, False)).guardrail_results] == [("B", "inner")]


# -- states and replays --


def two_halves() -> Agent[Any]:
    """An agent that waits for an approval after its guardrails have run."""

    @tool(needs_approval=True, output_guardrails=[check("after", "ok")])
    async def pay() -> str:
        """Pay."""
        return "paid"

    return Agent(
        "A",
        model=ScriptedHandler([call("pay"), "Done."]),
        tools=[pay],
        input_guardrails=[check("asked", {"tags": ("x", "y"), "by": object})],
    )


async def test_records_survive_the_state_of_a_run() -> None:
    agent = two_halves()
    waiting = await Runner.run(agent, "Hi")
    state = RunState.from_json(waiting.state().to_json(), agents=[agent])
    result = await Runner.run(agent, state.approve(state.interruptions[0]))
    assert [one.name for one in result.guardrail_results] == ["asked", "after"]
    assert result.guardrail_results[0].output_info == {"tags": ["x", "y"], "by": str(object)}


async def test_secrets_in_output_info_are_left_out_of_a_state() -> None:
    agent = Agent("A", model=ScriptedHandler(["Hi."]), input_guardrails=[check("asked", {"api_key": "k-1"})])
    text = (await Runner.run(agent, "Hi")).state().to_json()
    assert json.loads(text)["guardrails"][0]["output_info"] == {"api_key": "[redacted]"}


async def test_state_with_a_negative_turn_is_refused() -> None:
    agent = Agent("A", model=ScriptedHandler(["Hi."]), input_guardrails=[check("asked")])
    data = json.loads((await Runner.run(agent, "Hi")).state().to_json())
    data["guardrails"][0]["turn"] = -1
    with pytest.raises(ValueError, match="its turn must be 0 or more"):
        RunState.from_json(json.dumps(data), agents=[agent])


class Recorded(InProcess):
    """Keeps the outcomes of tools as JSON text, and gives them again."""

    def __init__(self) -> None:
        self.made: dict[str, str] = {}

    async def gather(self, calls: Any, body: Any) -> Any:
        async def kept(one: Call) -> Any:
            self.made[one.key] = json.dumps(await body(one))
            return json.loads(self.made[one.key])

        missing = [one for one in calls if one.key not in self.made]
        if missing:
            await super().gather(missing, kept)
        return [json.loads(self.made[one.key]) for one in calls]


@pytest.mark.parametrize("info", [{"score": 1}, False, 0, "", None])
@pytest.mark.parametrize("trips", ["", "before", "after"])
@pytest.mark.pairwise
async def test_replayed_tool_has_the_same_records(trips: str, info: Any) -> None:
    config = RunConfig(executor=Recorded(), run_id="r")
    first = await play(team(trips=trips, info=info), False, config)
    again = await play(team(info="another run of the tool's guardrails"), False, config)

    def of_tools(result: RunResult[Any]) -> list[GuardrailRecord]:
        return [one for one in result.guardrail_results if one.call_id]

    assert of_tools(again) == of_tools(first)
    assert again.stop_reason == first.stop_reason


async def test_replayed_error_names_the_guardrail_that_tripped() -> None:
    config = RunConfig(executor=Recorded(), run_id="r")
    for trips in ("before", ""):
        with pytest.raises(ToolGuardrailTripped) as caught:
            await Runner.run(team(trips=trips, info="why"), "Hi", run_config=config)
        assert (caught.value.guardrail, caught.value.info) == ("before", "why")
