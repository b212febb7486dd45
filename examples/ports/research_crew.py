"""A researcher and an analyst who write a report one after the other, ported from crewAI.

See docs/coming-from-crewai.md. A script plays the model; `MODEL = "openai/gpt-4o"` goes live.
"""

import asyncio
from typing import Any

from pydantic import BaseModel

from routelock import Agent, GuardrailResult, RunConfig, RunContext, RunHooks, Runner, function_tool
from routelock.testing import ScriptedHandler, call


class Report(BaseModel):
    """What the crew writes."""

    title: str
    points: list[str]


@function_tool
def search(query: str) -> str:
    """Search the web."""
    return f"Results for {query}: panels are cheaper, batteries last longer."


def enough(ctx: RunContext[str], agent: Agent[str], report: Report) -> GuardrailResult:
    """Have the analyst write again, if there are too few points."""
    return GuardrailResult(False, answer=None if len(report.points) > 1 else "Write two points or more.")


def research(ctx: RunContext[str]) -> str:
    """Write the instructions of the researcher: role, goal and backstory."""
    return f"You are a senior researcher for {ctx.context}. Find what is new. You are known for your sources."


def analyse(ctx: RunContext[str]) -> str:
    """Write the instructions of the analyst."""
    return f"You are a reporting analyst for {ctx.context}. Turn facts into a clear report."


researcher = Agent[str](name="Researcher", instructions=research, tools=[search])
analyst = Agent[str](name="Analyst", instructions=analyse, output_type=Report, output_guardrails=[enough])


class Log(RunHooks):
    """Prints what each agent wrote."""

    async def on_agent_end(self, context: RunContext[Any], agent: Any, output: Any) -> None:
        """Print the output of an agent that is done."""
        print(f"{agent.name}: {output}")


MODEL = ScriptedHandler(
    [
        call("search", {"query": "solar power"}),
        "Panels are cheaper. Batteries last longer.",
        '{"title": "Solar power", "points": ["Panels are cheaper."]}',
        '{"title": "Solar power", "points": ["Panels are cheaper.", "Batteries last longer."]}',
    ]
)
CONFIG = RunConfig(model=MODEL)


async def kickoff(topic: str) -> Report:
    """Run the two tasks, the second with the output of the first."""
    task = f"Research {topic}. Answer with a list of ten points."
    facts = await Runner.run(researcher, task, context=topic, run_config=CONFIG, hooks=Log())
    task = f"Write a report on {topic}. These are the facts:\n{facts.final_output}"
    report = await Runner.run(analyst, task, context=topic, run_config=CONFIG, hooks=Log())
    return report.final_output_as(Report)


report = asyncio.run(kickoff("solar power"))
print(f"{report.title}: {len(report.points)} points")
