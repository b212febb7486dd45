"""What an app's functions give in place of an output that never fits, and of a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from manager_agents import ask, manager
from manager_agents import both as both_managers
from plain_and_streamed import both
from pydantic import BaseModel, Field
from scripted_agents import agent, answers_of, look_up, shown

from routelock import Agent, GuardrailResult, RunConfig, Runner, RunResult, RunState, handoff
from routelock.errors import CallbackError, ModelBehaviorError
from routelock.sessions import InMemorySessions, Session
from routelock.state import Journal
from routelock.testing import assert_valid, call

pytestmark = pytest.mark.anyio

NO = {"role": "assistant", "content": None, "refusal": "I will not do that."}
UNFIT = ("No idea.", '{"text": 1}', "{}")


class Answer(BaseModel):
    text: str


@dataclass
class Said:
    words: str


def unfit(**options: Any) -> Agent[Any]:
    return agent("A", *UNFIT, output_type=Answer, **options)


def refusing(**options: Any) -> Agent[Any]:
    return agent("A", NO, **{"output_type": Answer, **options})


def instead(error: ModelBehaviorError) -> Answer:
    return Answer(text="Ask a person.")


async def instead_later(error: ModelBehaviorError) -> Answer:
    return instead(error)


EACH: dict[str, tuple[Any, str]] = {
    "invalid": (unfit, "on_invalid_output"),
    "refused": (refusing, "on_refusal"),
}
each = pytest.mark.parametrize("case", EACH)


def config_with(option: str, function: Any, **more: Any) -> RunConfig:
    return RunConfig(**{option: function}, **more)


async def run(case: str, function: Any, **options: Any) -> RunResult[Any]:
    make, option = EACH[case]
    return await Runner.run(make(), "Hi", run_config=config_with(option, function), **options)


@each
@pytest.mark.parametrize("function", [instead, instead_later])
async def test_it_is_the_final_output(case: str, function: Any) -> None:
    make, option = EACH[case]
    played = await both(make, **{option: function})
    assert (played.result.stop_reason, played.result.final_output) == ("done", Answer(text="Ask a person."))
    assert played.kinds[-1] == "run_done"


@each
async def test_it_ends_the_conversation_as_the_model_would_write_it(case: str) -> None:
    session = Session("user-7", InMemorySessions())
    result = await run(case, instead, session=session)
    assert result.to_input_list()[-1] == {"role": "assistant", "content": '{"text":"Ask a person."}'}
    assert (await session.load()).messages == result.to_input_list()
    assert_valid(result.to_input_list())


@each
async def test_the_next_run_is_shown_it(case: str) -> None:
    history = (await run(case, instead)).to_input_list()
    after = agent("B", "As I said.")
    await Runner.run(after, [*history, {"role": "user", "content": "Who?"}])
    assert "Ask a person." in str(shown(after)[-2])


@each
async def test_the_function_has_the_partial_result(case: str) -> None:
    errors: list[ModelBehaviorError] = []

    def note(error: ModelBehaviorError) -> Answer:
        errors.append(error)
        return instead(error)

    await run(case, note, context="of the app")
    partial = errors[0].result
    assert (partial.stop_reason, partial.last_agent.name, partial.final_output) == ("error", "A", None)
    assert partial.context.context == "of the app"
    assert partial.refusal == ("I will not do that." if case == "refused" else None)


@each
async def test_what_was_wrong_is_on_the_result(case: str) -> None:
    problems = (await run(case, instead)).errors
    assert {one.kind for one in problems} == {"refusal" if case == "refused" else "output"}


@each
async def test_the_error_may_be_raised_after_all(case: str) -> None:
    def again(error: ModelBehaviorError) -> Answer:
        raise error

    with pytest.raises(ModelBehaviorError) as caught:
        await run(case, again)
    assert caught.value.result.stop_reason == "error"


@each
async def test_a_function_that_raises_is_named(case: str) -> None:
    def broken(error: ModelBehaviorError) -> Answer:
        raise KeyError("mine")

    with pytest.raises(
        CallbackError, match=f"The {EACH[case][1]} function of the run raised KeyError"
    ) as caught:
        await run(case, broken)
    assert caught.value.result.stop_reason == "error"


@each
@pytest.mark.parametrize("given", [None, "text", {"text": 1}, Said("no")])
async def test_an_output_of_another_type_is_an_error(case: str, given: Any) -> None:
    with pytest.raises(
        CallbackError,
        match=f"The {EACH[case][1]} function of the run gave an output that agent 'A' cannot have",
    ):
        await run(case, lambda error: given)


@each
async def test_data_of_the_type_becomes_a_value_of_it(case: str) -> None:
    assert (await run(case, lambda error: {"text": "Hm."})).final_output == Answer(text="Hm.")


@each
async def test_a_state_of_the_run_has_the_same_output(case: str) -> None:
    made = EACH[case][0]()
    result = await Runner.run(made, "Hi", run_config=config_with(EACH[case][1], instead))
    again = await Runner.run(made, RunState.from_json(result.state().to_json(), agents=[made]))
    assert (again.stop_reason, again.final_output) == ("done", result.final_output)


@each
async def test_a_journal_has_the_run_as_done(case: str, tmp_path: Path) -> None:
    make, option = EACH[case]
    made, config = make(), config_with(option, instead)
    async with Journal(tmp_path / "runs.db") as journal:
        first = await journal.run(made, "Hi", run_id="r", run_config=config)
        assert [one.status for one in await journal.runs()] == ["done"]
        again = await journal.run(made, run_id="r", run_config=config)
    assert first.final_output == again.final_output == Answer(text="Ask a person.")


@pytest.mark.parametrize("output_type", [list[str], Said])
async def test_outputs_of_other_types_have_the_form_of_their_schema(output_type: Any) -> None:
    value: Any = ["a"] if output_type is not Said else Said("a")
    made = agent("A", NO, output_type=output_type)
    result = await Runner.run(made, "Hi", run_config=RunConfig(on_refusal=lambda error: value))
    assert result.final_output == value
    again = await Runner.run(made, RunState.from_json(result.state().to_json(), agents=[made]))
    assert again.final_output == value


async def test_a_field_has_its_alias() -> None:
    class Named(BaseModel):
        text: str = Field(alias="Text")

    made = agent("A", NO, output_type=Named)
    result = await Runner.run(made, "Hi", run_config=RunConfig(on_refusal=lambda error: {"Text": "a"}))
    assert result.messages[-1].get("content") == '{"Text":"a"}'


@each
async def test_no_output_guardrail_checks_it(case: str) -> None:
    def never(context: Any, owner: Any, output: Any) -> GuardrailResult:
        return GuardrailResult(True)

    make, option = EACH[case]
    config = config_with(option, instead, output_guardrails=[never])
    assert (await Runner.run(make(output_guardrails=[never]), "Hi", run_config=config)).stop_reason == "done"


@each
async def test_the_target_of_a_transfer_has_its_type(case: str) -> None:
    make, option = EACH[case]
    settings: Any = {option: instead}
    played = await both(lambda: agent("front", call("transfer_to_a"), handoffs=[make()]), **settings)
    assert played.result.final_output == Answer(text="Ask a person.")
    assert [one.status.value for one in played.result.handoffs] == ["COMPLETED"]


@each
async def test_an_agent_that_waits_is_told_and_goes_on(case: str) -> None:
    make, option = EACH[case]

    def made() -> Agent[Any]:
        declared = handoff(make(), return_to_caller=True)
        return agent("front", call("transfer_to_a"), "It is not done.", handoffs=[declared])

    result = (await both_managers(made, **{option: instead})).result
    assert result.final_output == "It is not done."
    assert answers_of(result)[0].startswith("'A' failed: ModelBehaviorError")


@each
async def test_an_agent_that_asks_by_a_tool_is_told(case: str) -> None:
    make, option = EACH[case]

    def made() -> Agent[Any]:
        return manager(ask(id="c"), "It is not done.", helper=make())

    result = (await both_managers(made, **{option: instead})).result
    assert result.nested["c"].final_output is None
    assert "failed" in answers_of(result)[0]


async def test_a_refusal_in_text_is_replaced_by_text() -> None:
    made = agent("A", call("look_up", {"order": 1}), NO, tools=[look_up])
    config = RunConfig(on_refusal=lambda error: f"Sorry. {error.result.refusal}")
    result = await Runner.run(made, "Hi", run_config=config)
    assert (result.final_output, result.refusal) == ("Sorry. I will not do that.", None)


async def test_a_refusal_in_text_for_an_agent_that_waits_is_its_answer() -> None:
    declared = handoff(agent("B", NO), return_to_caller=True)
    made = agent("A", call("transfer_to_b"), "It is not done.", handoffs=[declared])
    result = await Runner.run(made, "Hi", run_config=RunConfig(on_refusal=instead))
    assert answers_of(result) == ["I will not do that."]


@pytest.mark.parametrize("given", [None, "", "  ", 3])
async def test_an_agent_without_a_type_needs_text(given: Any) -> None:
    with pytest.raises(CallbackError, match="the function must return text"):
        await Runner.run(agent("A", NO), "Hi", run_config=RunConfig(on_refusal=lambda error: given))


async def test_an_answer_is_no_refusal() -> None:
    result = await Runner.run(agent("A", "Yes."), "Hi", run_config=RunConfig(on_refusal=instead))
    assert result.final_output == "Yes."
