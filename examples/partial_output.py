"""Shows structured output while it is written: each value is valid, and the last is the final output."""

from dataclasses import dataclass, field

import anyio

from routelock import Agent, Runner
from routelock.testing import ScriptedHandler


@dataclass
class Step:
    """One step of a recipe."""

    text: str
    minutes: int


@dataclass
class Recipe:
    """What the page shows. The fields with a default are there as soon as the first one is."""

    title: str
    steps: list[Step] = field(default_factory=lambda: [])
    note: str = ""


answer = """{"title": "Porridge", "steps": [
    {"text": "Soak the oats", "minutes": 60}, {"text": "Boil them", "minutes": 5}
], "note": "Serve hot."}"""
cook = Agent("Cook", model=ScriptedHandler([answer]), output_type=Recipe)


async def main() -> None:
    """Print the recipe each time that there is more of it."""
    async with Runner.run_streamed(cook, "Porridge, please.") as stream:
        async for recipe in stream.partial_output():
            steps = ", ".join(f"{step.text} ({step.minutes} min)" for step in recipe.steps)
            print(f"{recipe.title}: {steps or '...'} {recipe.note}")
    print(f"The run is {stream.result.stop_reason}: {stream.result.require_output().title}")


anyio.run(main)
