"""Guardrails: those of the run apply to all agents, those of an agent only while it is active.

python examples/guardrails.py                             replays a recording: no network, no key
python examples/guardrails.py --live openai/gpt-4o-mini   a model answers
"""

import re
from typing import Any

from recorded import play
from routelock import Agent, GuardrailResult, Handler, RunConfig, RunContext, Runner
from routelock.errors import GuardrailTripped


def no_cards(context: RunContext[Any], agent: Agent[Any], value: object) -> GuardrailResult:
    """Of the run: a card number never reaches a model."""
    return GuardrailResult(re.search(r"\d{16}", str(value)) is not None, "a card number")


def no_doses(context: RunContext[Any], agent: Agent[Any], value: object) -> GuardrailResult:
    """Of the pharmacist, who must not say how much of a medicine to take."""
    return GuardrailResult(re.search(r"\d+ ?mg", str(value)) is not None, "a dose")


def short(context: RunContext[Any], agent: Agent[Any], value: object) -> GuardrailResult:
    """Of the reception; the agents it hands over to do not inherit it."""
    return GuardrailResult(len(str(value)) > 60, "a long answer")


pharmacist = Agent(
    "Pharmacist",
    "You answer questions about medicines.",
    output_guardrails=[no_doses],
    handoff_description="Knows medicines.",
)
reception = Agent(
    "Reception",
    "You greet people. Questions about medicines are for the pharmacist.",
    output_guardrails=[short],
    handoffs=[pharmacist],
)

QUESTIONS = (
    "My card is 4111111111111111, do you take it?",
    "How much ibuprofen should I take?",
    "What is ibuprofen for?",
)


async def show(model: str | Handler) -> None:
    """Ask a question that is stopped at once, one whose answer is stopped, and one that passes."""
    config = RunConfig(model=model, input_guardrails=[no_cards])
    for question in QUESTIONS:
        print(f"Patient: {question}")
        try:
            result = await Runner.run(reception, question, run_config=config)
        except GuardrailTripped as error:
            asked = len(error.result.calls) if error.result else 0
            print(f"  stopped by {error.guardrail}, after {asked} model calls")
        else:
            print(f"{result.last_agent.name}: {result.final_output}")


if __name__ == "__main__":
    play("guardrails", show)
