"""Shows a streamed run: text as it comes, and everything else that happens, as events."""

import anyio

from routelock import Agent, Runner, function_tool
from routelock.handlers import TextDelta
from routelock.run import AgentUpdated, HandoffOccurred, ToolCalled, ToolOutput
from routelock.testing import ScriptedHandler, call


@function_tool
async def temperature(city: str) -> str:
    """Return the temperature in a city, in degrees Celsius."""
    return {"Oslo": "-3", "Lima": "22"}[city]


model = ScriptedHandler([call("transfer_to_weather")])
both = [call("temperature", {"city": "Oslo"}), call("temperature", {"city": "Lima"})]
weather = Agent("Weather", model=ScriptedHandler([both, "Lima is 25 degrees warmer."]), tools=[temperature])
triage = Agent("Triage", model=model, handoffs=[weather])


async def main() -> None:
    """Print the events of one run."""
    async with Runner.run_streamed(triage, "Is it warmer in Lima than in Oslo?") as stream:
        async for event in stream:
            match event:
                case TextDelta(text=text):
                    print(text, end="", flush=True)
                case AgentUpdated() | HandoffOccurred() | ToolCalled() | ToolOutput():
                    print(event)
                case _:
                    pass  # docs/examples.md lists the others
    usage = stream.result.usage
    print(f"\nTotal: {usage.total_tokens} tokens in {usage.requests} model calls")


anyio.run(main)
