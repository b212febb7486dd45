"""Routes by capability: to an agent that has it and a free slot, else to the next one in a list."""

import asyncio

from routelock import Agent, Request, RunConfig, Runner, RunResult, function_handler, handoff
from routelock.handoffs import Capacity
from routelock.testing import ScriptedHandler, call


def expert(name: str, *capabilities: str) -> Agent:
    """An agent whose model takes its time."""

    async def answer(request: Request) -> str:
        await asyncio.sleep(0.05)
        return f"{name} is on it."

    return Agent(name, model=function_handler(answer, name=name), capabilities=capabilities)


ada, bob, pool = expert("Ada", "python"), expert("Bob", "python", "sql"), expert("Pool")
to_ada = call("transfer_to_ada")
script = ScriptedHandler([call("find_sql"), call("find_cobol"), "Nobody does.", to_ada, to_ada, to_ada])
ways = [
    handoff([ada, bob, pool]),  # tried in this order; the last one is the fallback
    # without a target: any agent of the run that has the capabilities
    handoff(capabilities_required=["sql"], tool_name_override="find_sql"),
    handoff(capabilities_required=["cobol"], tool_name_override="find_cobol"),
]
front = Agent("Front", "Hand over to somebody who can help.", model=script, handoffs=ways)
away: set[str] = set()
config = RunConfig(
    capacity=Capacity({"Ada": 1, "Bob": 2}),  # transfers at a time, over all runs that share it
    available=lambda agent: f"{agent.name} is away" if agent.name in away else True,  # for each transfer
)


def show(question: str, result: RunResult) -> None:
    """Print which agents were tried, and which one answered."""
    print(question)
    for record in result.handoffs:
        for name, why in record.passed_over:
            print(f"  not {name}: {why}")
        print(f"  {record.status}: {record.error or record.target}")
    print(f"{result.last_agent.name}: {result.final_output}")


async def main() -> None:
    """Require a capability that exists and one that does not, then run three transfers at once."""
    for words in ("SQL?", "COBOL?"):
        show(words, await Runner.run(front, words, run_config=config))
    away.add("Bob")
    for result in await asyncio.gather(*[Runner.run(front, "Ada?", run_config=config) for _ in range(3)]):
        show("Ada?", result)


asyncio.run(main())
