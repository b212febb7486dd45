"""Shows a conversation that one process begins and another one ends: it goes there as bytes."""

import subprocess
import sys
from datetime import UTC, datetime

from routelock import Agent, RunConfig, Runner, tool
from routelock.handoffs import HandoffContext, deserialize_context, serialize_context
from routelock.history import ToolCall
from routelock.testing import ScriptedHandler, call


@tool
def look_up(order: int) -> str:
    """Say where an order is."""
    return "in Rome since Monday"


def agents(*replies: ToolCall | str) -> dict[str, Agent]:
    """Return the agents, which both processes have. Only their models give different replies."""
    model = ScriptedHandler(replies)
    shipping = Agent("Shipping", "You know where things are.", model=model, tools=[look_up])
    return {"Shipping": shipping, "Triage": Agent("Triage", "You route.", model=model, handoffs=[shipping])}


def begin() -> bytes:
    """Run until the limit, and return the conversation as bytes."""
    team = agents(call("transfer_to_shipping"), call("look_up", {"order": 7}))
    config = RunConfig(on_limit="return")
    result = Runner.run_sync(team["Triage"], "Where is order 7?", max_turns=2, run_config=config)
    print(f"First process: {result.last_agent.name} is in charge, stopped by: {result.stop_reason}")
    context = HandoffContext.of(
        result.to_input_list(),
        agent=result.last_agent.name,
        run_id=result.context.run_id,
        handoff_id=result.handoffs[-1].id,
        created_at=datetime.now(UTC),
        tool_state={"configurations": {"tracking": {"region": "EU", "api_key": "sk-very-secret"}}},
    )
    return serialize_context(context)


def go_on(data: bytes) -> None:
    """Read the bytes, which may come from an untrusted place, and let the agent that they name go on."""
    context = deserialize_context(data)
    agent = agents("Order 7 is in Rome.")[context.metadata["agent_name"]]
    result = Runner.run_sync(agent, context.to_input_list())
    print(f"Second process: {len(data)} bytes, tools: {context.tool_state['configurations']}")
    for message in result.calls[0].messages:
        print(f"  shown: {message}")
    print(f"{result.last_agent.name}: {result.final_output}")


if __name__ == "__main__" and "--go-on" in sys.argv:
    go_on(sys.stdin.buffer.read())
elif __name__ == "__main__":
    sent = begin()
    sys.stdout.flush()  # so that the lines of the two are in order
    subprocess.run([sys.executable, __file__, "--go-on"], input=sent, check=True)
