"""Streams, hooks, guardrails and limits as code for openai-agents uses them; what must not differ in silence.

See tests/structure/test_openai_agents_names.py for agents, tools and handoffs, and
docs/coming-from-openai-agents.md.
"""

from __future__ import annotations

from typing import Any

import pytest

from routelock import (
    Agent,
    AgentHooks,
    MaxTurnsExceeded,
    ModelBehaviorError,
    RunHooks,
    Runner,
    Tool,
    function_tool,
)
from routelock import GuardrailResult as GuardrailFunctionOutput
from routelock import RunContext as RunContextWrapper
from routelock.errors import InputGuardrailTripped as InputGuardrailTripwireTriggered
from routelock.errors import OutputGuardrailTripped as OutputGuardrailTripwireTriggered
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio


def model(*replies: Any) -> Any:
    """Stands for the model's name."""
    return ScriptedHandler(replies)


@function_tool
async def fetch_weather(lat: float, long: float) -> str:
    """Fetch the weather."""
    return "sunny"


# -- streams, hooks, guardrails, limits --


async def test_streaming() -> None:
    agent = Agent(name="Joker", instructions="You are a helpful assistant.", model=model("Knock, knock."))
    result = Runner.run_streamed(agent, input="Please tell me 5 jokes.")
    text = ""
    async for event in result.stream_events():
        if event.type == "text_delta":  # the one line that differs: see the page
            text += event.text
    assert text == result.final_output == "Knock, knock."


async def test_result_of_a_stream_starts_the_next_run() -> None:
    script = model(call("transfer_to_b"), "Done.")
    agent = Agent(name="A", handoffs=[Agent(name="B", model=script)], model=script)
    result = Runner.run_streamed(agent, input="Hi")
    assert (result.last_agent.name, result.to_input_list()) == ("A", [{"role": "user", "content": "Hi"}])
    async for _ in result.stream_events():
        pass
    assert result.last_agent.name == "B"
    assert result.to_input_list() == result.result.to_input_list()


class ExampleHooks(RunHooks):
    def __init__(self) -> None:
        self.events: list[str] = []

    async def on_agent_start(self, context: RunContextWrapper[Any], agent: Agent[Any]) -> None:
        self.events.append(f"Agent {agent.name} started. Usage: {context.usage.total_tokens} total tokens")

    async def on_agent_end(self, context: RunContextWrapper[Any], agent: Agent[Any], output: Any) -> None:
        self.events.append(f"Agent {agent.name} ended with output {output}")

    async def on_tool_start(self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool) -> None:
        self.events.append(f"Tool {tool.name} started")

    async def on_tool_end(
        self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool, result: str
    ) -> None:
        self.events.append(f"Tool {tool.name} ended with result {result}")

    async def on_handoff(
        self, context: RunContextWrapper[Any], from_agent: Agent[Any], to_agent: Agent[Any]
    ) -> None:
        self.events.append(f"Handoff from {from_agent.name} to {to_agent.name}")


class CustomAgentHooks(AgentHooks):
    def __init__(self) -> None:
        self.events: list[str] = []

    async def on_start(self, context: RunContextWrapper[Any], agent: Agent[Any]) -> None:
        self.events.append(f"{agent.name} started")

    async def on_end(self, context: RunContextWrapper[Any], agent: Agent[Any], output: Any) -> None:
        self.events.append(f"{agent.name} ended with output {output}")

    async def on_handoff(
        self, context: RunContextWrapper[Any], agent: Agent[Any], source: Agent[Any]
    ) -> None:
        self.events.append(f"{source.name} handed off to {agent.name}")


async def test_hooks() -> None:
    hooks, own = ExampleHooks(), CustomAgentHooks()
    last = Agent(name="B", model=model("Done."), hooks=own)
    script = model(call("fetch_weather", {"lat": 1, "long": 2}), call("transfer_to_b"))
    await Runner.run(Agent(name="A", tools=[fetch_weather], handoffs=[last], model=script), "Hi", hooks=hooks)
    assert hooks.events == [
        "Agent A started. Usage: 0 total tokens",
        "Tool fetch_weather started",
        "Tool fetch_weather ended with result sunny",
        "Handoff from A to B",
        "Agent B started. Usage: 30 total tokens",
        "Agent B ended with output Done.",
    ]
    assert own.events == ["A handed off to B", "B started", "B ended with output Done."]


async def test_guardrails() -> None:
    async def math_guardrail(
        ctx: RunContextWrapper[None], agent: Agent[Any], input: str | list[Any]
    ) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info="math", tripwire_triggered="2x" in str(input))

    async def length_guardrail(
        ctx: RunContextWrapper[None], agent: Agent[Any], output: str
    ) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=len(output), tripwire_triggered=len(output) > 5)

    agent = Agent(
        name="Support",
        model=model("Too long."),
        input_guardrails=[math_guardrail],
        output_guardrails=[length_guardrail],
    )
    with pytest.raises(InputGuardrailTripwireTriggered):
        await Runner.run(agent, "Can you help me solve for x: 2x + 3 = 11?")
    with pytest.raises(OutputGuardrailTripwireTriggered):
        await Runner.run(agent, "Hello")


async def test_limits() -> None:
    looping = [call("fetch_weather", {"lat": number, "long": 0}) for number in range(5)]
    agent = Agent(name="A", tools=[fetch_weather], model=model(*looping))
    with pytest.raises(MaxTurnsExceeded, match=r"Max turns \(3\) exceeded"):
        await Runner.run(agent, "Hi", max_turns=3)


async def test_a_model_that_misbehaves_for_good() -> None:
    agent = Agent(name="A", model=model(*[call("nothing")] * 3))
    with pytest.raises(ModelBehaviorError):
        await Runner.run(agent, "Hi")


# -- what differs and must not differ in silence --


@pytest.mark.parametrize("name", ["tools", "handoffs", "input_guardrails", "output_guardrails"])
def test_appending_to_an_agent_is_refused(name: str) -> None:
    """There agents are changed afterwards to point at each other; here a name does that."""
    given: dict[str, Any] = {name: []}
    agent = Agent(name="A", **given)
    with pytest.raises(AttributeError):
        getattr(agent, name).append(None)


def test_field_that_is_not_a_list_is_an_error() -> None:
    with pytest.raises(Exception, match="input_guardrails must be a list, not int"):
        Agent(name="A", input_guardrails=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_list_may_be_any_iterable() -> None:
    agent = Agent(name="A", handoffs=(Agent(name=name) for name in ("B", "C")))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert [each.tool_name for each in agent.all_handoffs] == ["transfer_to_b", "transfer_to_c"]
