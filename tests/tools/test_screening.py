"""Guardrails of a tool look at one call: at its arguments before, at what the model is shown after."""

from __future__ import annotations

from typing import Annotated, Any

import anyio.lowlevel
import pytest
from pydantic import AfterValidator
from scripted_agents import answers_of, requests

from routelock import Agent, GuardrailResult, RunConfig, Runner, ToolContext, function_tool, tool
from routelock.errors import CallbackError, ConfigError, ToolGuardrailTripped
from routelock.guardrails import ToolGuardrail
from routelock.run.executor import Call, InProcess
from routelock.testing import ScriptedHandler, assert_valid, call, reply
from routelock.tools.outcome import ToolResult
from routelock.tools.tool import Tool
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

PAY = call("pay", {"amount": 500}, id="c1")


class Watch:
    """A guardrail that writes down what it was shown, and says this of it."""

    def __init__(self, tripwire_triggered: bool = False, answer: str | None = None) -> None:
        self.result = GuardrailResult(tripwire_triggered, "too much", answer)
        self.seen: list[Any] = []

    async def __call__(self, context: ToolContext[Any], owner: Tool, value: Any) -> GuardrailResult:
        await anyio.lowlevel.checkpoint()
        self.seen.append((context.agent, context.tool_call_id, owner.name, value))
        return self.result


def team(
    before: list[ToolGuardrail] | None = None, after: list[ToolGuardrail] | None = None, *first: Any
) -> tuple[Agent[Any], list[int]]:
    """An agent with a tool that pays, and what was paid."""
    paid: list[int] = []

    @tool(input_guardrails=before or [], output_guardrails=after or [])
    async def pay(amount: int, currency: str = "EUR") -> ToolResult:
        """Pay."""
        paid.append(amount)
        return ToolResult(f"{amount} {currency} paid", Usage(1, 3, 2))

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    script = ScriptedHandler([*(first or (PAY,)), "Done."])
    return Agent("A", model=script, tools=[pay, look]), paid


async def play(agent: Agent[Any], stream: bool = False, **config: Any) -> Any:
    if stream:
        return await Runner.run_streamed(agent, "Hi", run_config=RunConfig(**config)).drain()
    return await Runner.run(agent, "Hi", run_config=RunConfig(**config))


async def test_guardrails_see_validated_arguments_and_the_models_text() -> None:
    before, after = Watch(), Watch()
    agent, paid = team([before], [after])
    result = await play(agent)
    assert before.seen == [("A", "c1", "pay", {"amount": 500})]
    assert after.seen == [("A", "c1", "pay", "500 EUR paid")]
    assert (paid, answers_of(result)) == ([500], ["500 EUR paid"])


@pytest.mark.parametrize("stream", [False, True])
async def test_answer_of_an_input_guardrail_replaces_the_call(stream: bool) -> None:
    agent, paid = team([Watch(), Watch(answer="Ask a person.")])
    result = await play(agent, stream)
    assert (paid, answers_of(result)) == ([], ["Ask a person."])
    assert result.final_output == "Done."
    assert [(problem.kind, problem.call_id) for problem in result.errors] == [("tool", "c1")]


@pytest.mark.parametrize("stream", [False, True])
async def test_answer_of_an_output_guardrail_replaces_the_result(stream: bool) -> None:
    agent, paid = team(None, [Watch(answer="(withheld)")])
    result = await play(agent, stream)
    assert (paid, answers_of(result)) == ([500], ["(withheld)"])
    assert "500 EUR" not in str(requests(agent)[-1].messages)


@pytest.mark.parametrize("answer", [5, {"refused": True}, b"No."])
async def test_answer_that_is_not_text_is_an_error(answer: Any) -> None:
    agent, _ = team([Watch(answer=answer)])
    with pytest.raises(CallbackError, match="guardrail 'Watch' must answer with text, not"):
        await play(agent)
    assert len(requests(agent)) == 1


async def test_surrogate_half_in_an_answer_can_be_sent() -> None:
    agent, _ = team([Watch(answer="Not \ud800")])
    assert answers_of(await play(agent)) == ["Not \ufffd"]


async def test_what_the_tool_consumed_is_counted_all_the_same() -> None:
    plain, _ = team()
    guarded, _ = team(None, [Watch(answer="(withheld)")])
    assert (await play(guarded)).usage == (await play(plain)).usage


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tripwire_before_the_call_ends_the_run(stream: bool) -> None:
    agent, paid = team([Watch(True)])
    with pytest.raises(
        ToolGuardrailTripped, match=r"'Watch' stopped agent 'A' in turn 1: 'too much'"
    ) as caught:
        await play(agent, stream)
    assert paid == []
    assert (caught.value.guardrail, caught.value.info) == ("Watch", "too much")
    assert_valid(caught.value.result.to_input_list())


async def test_output_tripwire_keeps_the_result_out_of_the_transcript() -> None:
    agent, paid = team(None, [Watch(True)])
    with pytest.raises(ToolGuardrailTripped) as caught:
        await play(agent)
    assert paid == [500]
    assert "500 EUR" not in str(caught.value.result.to_input_list())


async def test_the_other_calls_of_the_reply_are_answered() -> None:
    agent, _ = team([Watch(True)], None, reply(calls=[PAY, call("look", id="c2")]))
    with pytest.raises(ToolGuardrailTripped) as caught:
        await play(agent)
    assert answers_of(caught.value.result)[1] == "seen"


async def test_arguments_that_do_not_fit_never_come_to_them() -> None:
    before, after = Watch(), Watch()
    agent, paid = team([before], [after], call("pay", {"amount": "a lot"}))
    await play(agent)
    assert (before.seen, after.seen, paid) == ([], [], [])


@pytest.mark.parametrize("sent", ["", "null", "{}"])
async def test_a_tool_without_parameters_is_guarded_whatever_is_sent(sent: str) -> None:
    @tool(input_guardrails=[Watch(answer="No.")])
    async def erase() -> str:
        """Erase all."""
        raise AssertionError("it ran")

    outcome = await erase.invoke(ToolContext(context=None), sent)
    assert (outcome.error, outcome.output) == ("guardrail", "No.")


async def test_guardrails_of_a_schema_tool_see_its_arguments() -> None:
    before = Watch(answer="No.")
    raw = Tool(name="raw", on_invoke_tool=lambda context, text: "ran", input_guardrails=[before])
    await raw.invoke(ToolContext(context=None), '{"x": 1}')
    assert before.seen[0][-1] == {"x": 1}


async def test_output_guardrail_sees_a_failure_first() -> None:
    after = Watch(answer="It failed.")

    @tool(output_guardrails=[after])
    async def leaky() -> str:
        """Fail."""
        raise RuntimeError("password hunter2")

    outcome = await leaky.invoke(ToolContext(context=None), "")
    assert outcome.output == "It failed."
    assert "hunter2" in after.seen[0][-1]


def look_up(value: str) -> str:
    raise LookupError("password hunter2")


async def test_output_guardrail_sees_the_failure_of_a_validator_first() -> None:
    after = Watch(answer="It failed.")

    @tool(output_guardrails=[after])
    async def leaky(name: Annotated[str, AfterValidator(look_up)]) -> str:
        """Never run."""
        return name

    outcome = await leaky.invoke(ToolContext(context=None), '{"name": "x"}')
    assert outcome.output == "It failed."
    assert "hunter2" in after.seen[0][-1]


async def test_failing_guardrail_ends_the_run_and_answers_the_call() -> None:
    def broken(context: Any, owner: Any, value: Any) -> GuardrailResult:
        raise LookupError("no list")

    agent, paid = team([broken])
    with pytest.raises(
        CallbackError, match="A guardrail of tool 'pay' raised LookupError: no list"
    ) as caught:
        await play(agent)
    assert paid == []
    assert_valid(caught.value.result.to_input_list())


async def test_input_guardrail_cannot_give_an_answer() -> None:
    agent = Agent(
        "A",
        model=ScriptedHandler(["Hi."]),
        input_guardrails=[lambda *_: GuardrailResult(False, answer="No.")],
    )
    with pytest.raises(CallbackError, match="gave an answer, and an input guardrail may not give one"):
        await play(agent)


class Recorded(InProcess):
    """Keeps what steps gave, and gives it again."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}

    async def gather(self, calls: Any, body: Any) -> Any:
        missing = [one for one in calls if one.key not in self.made]

        async def kept(one: Call) -> Any:
            self.made[one.key] = await body(one)
            return self.made[one.key]

        if missing:
            await super().gather(missing, kept)
        return [self.made[one.key] for one in calls]


async def test_replay_has_the_same_error_without_guardrails() -> None:
    journal, watch = Recorded(), Watch(True)
    for _ in range(2):
        agent, _ = team([watch])
        with pytest.raises(ToolGuardrailTripped, match="too much"):
            await play(agent, executor=journal, run_id="r")
    assert len(watch.seen) == 1


async def test_users_of_openai_agents_find_them_under_their_names() -> None:
    before, after = Watch(), Watch()

    @function_tool(tool_input_guardrails=[before], tool_output_guardrails=[after])
    async def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    assert (pay.input_guardrails, pay.output_guardrails) == ([before], [after])


def test_they_have_to_be_functions() -> None:
    with pytest.raises(ConfigError, match="input_guardrails and output_guardrails are lists of functions"):
        Tool(name="x", on_invoke_tool=lambda context, text: "", input_guardrails=["no"])  # type: ignore[list-item]
