"""A model that refuses: the refusal is the answer, and the result says that it is one."""

from __future__ import annotations

from typing import Any

import pytest
from manager_agents import ask, manager
from manager_agents import both as both_managers
from plain_and_streamed import both
from pydantic import BaseModel
from scripted_agents import agent, answers_of, look_up

from routelock import Agent, GuardrailResult, Runner, RunState, function_handler, handoff
from routelock.errors import InvalidRequest, ModelBehaviorError, OutputGuardrailTripped
from routelock.testing import call

pytestmark = pytest.mark.anyio

NO = {"role": "assistant", "content": None, "refusal": "I will not do that."}
PARTS = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not do that."}]}


class Answer(BaseModel):
    text: str


@pytest.mark.parametrize("refusal", [NO, {**NO, "content": ""}, PARTS], ids=["none", "blank", "part"])
async def test_the_result_says_so(refusal: Any) -> None:
    played = await both(lambda: agent("A", refusal))
    assert played.result.refusal == played.result.final_output == "I will not do that."
    assert played.result.stop_reason == "done"


@pytest.mark.parametrize("refusal", [NO, PARTS], ids=["none", "part"])
async def test_refusal_with_an_output_type_is_an_error(refusal: Any) -> None:
    played = await both(lambda: agent("A", refusal, output_type=Answer))
    assert isinstance(played.error, ModelBehaviorError)
    assert played.result.refusal == "I will not do that."


async def test_one_that_comes_in_pieces_is_whole() -> None:
    async def pieces(request: Any) -> Any:
        for text in ("I will ", "not do ", "that."):
            yield {"choices": [{"index": 0, "delta": {"refusal": text}}]}
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}

    played = await both(lambda: Agent("A", model=function_handler(pieces)))
    assert played.result.refusal == played.result.final_output == "I will not do that."


async def test_after_tools_and_transfers_as_well() -> None:
    def make() -> Agent[Any]:
        return agent(
            "A",
            call("look_up", {"order": 1}),
            call("transfer_to_b"),
            tools=[look_up],
            handoffs=[agent("B", NO)],
        )

    assert (await both(make)).result.refusal == "I will not do that."


async def test_an_answer_is_none() -> None:
    assert (await both(lambda: agent("A", "With pleasure."))).result.refusal is None
    assert (await both(lambda: agent("A", {**NO, "content": "Yes.", "refusal": ""}))).result.refusal is None
    limited = await both(lambda: agent("A", call("look_up", {"order": 1}), tools=[look_up]), max_turns=1)
    assert limited.result.refusal is None


async def test_refusal_of_an_earlier_run_does_not_count() -> None:
    first = await Runner.run(agent("A", NO), "Hi")
    history = first.to_input_list()
    with pytest.raises(InvalidRequest) as caught:
        await Runner.run(agent("A", InvalidRequest("no")), history)
    assert caught.value.result.refusal is None


async def test_refusal_of_a_sub_run_is_not_the_runs() -> None:
    def make() -> Agent[Any]:
        return manager(ask(id="c"), "It is not done.", helper=agent("helper", NO))

    result = (await both_managers(make)).result
    assert result.refusal is None
    assert result.nested["c"].refusal == "I will not do that."


async def test_a_specialist_that_refuses_answers_its_caller() -> None:
    def make() -> Agent[Any]:
        declared = handoff(agent("B", NO), return_to_caller=True)
        return agent("A", call("transfer_to_b"), "It is not done.", handoffs=[declared])

    result = (await both_managers(make)).result
    assert answers_of(result) == ["I will not do that."]
    assert result.refusal is None


async def test_a_state_says_so_too() -> None:
    made = agent("A", NO)
    text = (await Runner.run(made, "Hi")).state().to_json()
    again = await Runner.run(made, RunState.from_json(text, agents=[made]))
    assert again.refusal == again.final_output == "I will not do that."


async def test_a_guardrail_is_shown_it_and_may_stop_it() -> None:
    seen: list[Any] = []

    def no_refusals(context: Any, owner: Any, output: Any) -> GuardrailResult:
        seen.append(output)
        return GuardrailResult(True)

    with pytest.raises(OutputGuardrailTripped) as caught:
        await Runner.run(agent("A", NO, output_guardrails=[no_refusals]), "Hi")
    assert seen == ["I will not do that."]
    assert caught.value.result.refusal == "I will not do that."
