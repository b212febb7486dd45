"""Math specialist: an assistant says why it hands over, and the specialist calculates with a tool.

python examples/math_specialist.py                             replays a recording: no network, no key
python examples/math_specialist.py --live openai/gpt-4o-mini   a model answers
"""

from typing import Annotated

from recorded import play
from routelock import Agent, Handler, RunConfig, Runner, function_tool, handoff


@function_tool
def integrate(
    coefficients: Annotated[list[float], "of 1, x, x^2, ...: [5, 2] is 2x + 5"], lower: float, upper: float
) -> float:
    """Return the integral of a polynomial between two bounds."""

    def antiderivative(x: float) -> float:
        return sum(each * x ** (power + 1) / (power + 1) for power, each in enumerate(coefficients))

    return antiderivative(upper) - antiderivative(lower)


specialist = Agent(
    "Math specialist",
    "You solve mathematical problems. Calculate with your tool, then explain the way in one line.",
    tools=[integrate],
    handoff_description="Solves equations, derivatives and integrals.",
)
assistant = Agent(
    "Assistant",
    "You answer questions of all kinds. Hand over mathematics.",
    handoffs=[handoff(specialist, ask_reason=True)],
)

QUESTION = "What is the integral of 2x+5 from 0 to 10?"


async def show(model: str | Handler) -> None:
    """Ask for the integral, and show who did what."""
    result = await Runner.run(assistant, QUESTION, run_config=RunConfig(model=model))
    print(f"User: {QUESTION}")
    for record in result.handoffs:
        print(f"  {record.source} -> {record.target}: {record.reason}")
    for message in result.new_items:
        if message.kind == "tool":
            print(f"  integrate: {message.message.get('content')}")
    print(f"{result.last_agent.name}: {result.final_output}")
    tokens = {name: usage.total_tokens for name, usage in result.usage_by_agent.items()}
    print(f"Tokens: {tokens}")


if __name__ == "__main__":
    play("math_specialist", show)
