"""An output guardrail that gives an answer has the model answer again, within the limits of the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from plain_and_streamed import both
from pydantic import BaseModel
from scripted_agents import agent, answers_of, shown

from routelock import Agent, GuardrailResult, RunConfig, Runner, RunState, handoff
from routelock.errors import MaxTurnsExceeded, ModelBehaviorError, OutputGuardrailTripped
from routelock.run.executor import Call
from routelock.state.steps import StepExecutor
from routelock.testing import assert_valid, call

pytestmark = pytest.mark.anyio

WHY = "Name a source."


def sourced(context: Any, agent: Any, output: Any) -> GuardrailResult:
    return GuardrailResult(False, answer=None if "source" in str(output) else WHY)


def sloppy(*replies: Any, **options: Any) -> Agent[Any]:
    return agent("A", *(replies or ("It is.", "It is, by source 1.")), output_guardrails=[sourced], **options)


async def test_the_model_is_told_why_and_answers_again() -> None:
    played = await both(sloppy)
    assert played.result.final_output == "It is, by source 1."
    assert played.result.to_input_list() == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "It is."},
        {"role": "user", "content": f"Your answer is not valid: {WHY} Answer again.", "_kind": "nudge"},
        {"role": "assistant", "content": "It is, by source 1."},
    ]
    assert [(one.kind, one.message, one.turn) for one in played.result.errors] == [("output", WHY, 1)]


async def test_each_check_has_its_record() -> None:
    result = await Runner.run(sloppy(), "Hi")
    found = [(one.turn, one.answer, one.passed) for one in result.guardrail_results]
    assert found == [(1, WHY, False), (2, None, True)]


async def test_a_guardrail_of_the_run_may_ask_again() -> None:
    result = await Runner.run(
        agent("A", "It is.", "By source 1."), "Hi", run_config=RunConfig(output_guardrails=[sourced])
    )
    assert (result.final_output, result.usage.requests) == ("By source 1.", 2)


async def test_a_typed_output_is_asked_for_as_json() -> None:
    class Claim(BaseModel):
        text: str

    a = sloppy('{"text": "It is."}', '{"text": "By source 1."}', output_type=Claim)
    assert (await Runner.run(a, "Hi")).final_output == Claim(text="By source 1.")
    assert shown(a, 1)[-1].get("content") == (
        f"Your answer is not valid: {WHY} Answer again with nothing but the corrected JSON."
    )


async def test_too_many_refused_answers_end_the_run() -> None:
    with pytest.raises(
        ModelBehaviorError, match=f"no valid final output in 2 turns in a row.*{WHY}"
    ) as caught:
        await Runner.run(sloppy("It is.", "It is!"), "Hi", run_config=RunConfig(max_mistakes=2))
    assert_valid(caught.value.result.to_input_list())


async def test_the_app_may_answer_in_place_of_a_model_that_never_does() -> None:
    config = RunConfig(max_mistakes=2, on_invalid_output=lambda error: "Ask a person.")
    result = await Runner.run(sloppy("It is.", "It is!"), "Hi", run_config=config)
    assert (result.final_output, result.stop_reason) == ("Ask a person.", "done")


async def test_the_limit_of_turns_holds_and_the_run_goes_on_from_its_state() -> None:
    a = sloppy()
    with pytest.raises(MaxTurnsExceeded) as caught:
        await Runner.run(a, "Hi", max_turns=1)
    state = RunState.from_json(caught.value.result.state().to_json(), agents=[a])
    result = await Runner.run(a, state, max_turns=2)
    assert result.final_output == "It is, by source 1."
    assert [one.answer for one in result.guardrail_results] == [WHY, None]


async def test_a_caller_that_waits_gets_the_corrected_answer() -> None:
    b = agent("B", "It is.", "It is, by source 1.", output_guardrails=[sourced])
    a = agent("A", call("transfer_to_b"), "Done.", handoffs=[handoff(b, return_to_caller=True)])
    assert answers_of(await Runner.run(a, "Hi")) == ["It is, by source 1."]


async def test_a_guardrail_that_trips_ends_the_run_even_with_an_answer() -> None:
    a = agent("A", "It is.", output_guardrails=[lambda *_: GuardrailResult(True, answer=WHY)])
    with pytest.raises(OutputGuardrailTripped):
        await Runner.run(a, "Hi")


async def test_a_replayed_run_goes_the_same_way() -> None:
    kept: dict[str, str] = {}

    async def step(made: Call, work: Callable[[], Awaitable[str]]) -> str:
        return kept[made.key] if made.key in kept else kept.setdefault(made.key, await work())

    config = RunConfig(executor=StepExecutor(step), run_id="r")
    plain = await Runner.run(sloppy(), "Hi")
    for model in (sloppy(), sloppy("never asked")):
        result = await Runner.run(model, "Hi", run_config=config)
        assert result.to_input_list() == plain.to_input_list()
    assert len(kept) == 2
