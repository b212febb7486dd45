"""Code written for openai-agents runs after a change of import (docs/coming-from-openai-agents.md).

The programs are written as that SDK's documentation writes them; only the import lines and the model, which
is scripted here, differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from routelock import (
    Agent,
    Handoff,
    HandoffInputData,
    ModelSettings,
    RunConfig,
    Runner,
    Tool,
    function_tool,
    handoff,
    nest_handoff_history,
)
from routelock import RunContext as RunContextWrapper
from routelock.history import filters as handoff_filters
from routelock.history.nesting import (
    default_handoff_history_mapper,
    get_conversation_history_wrappers,
    reset_conversation_history_wrappers,
    set_conversation_history_wrappers,
)
from routelock.history.notes import PREAMBLE
from routelock.run.prompt import RECOMMENDED_PROMPT_PREFIX, prompt_with_handoff_instructions
from routelock.testing import ScriptedHandler, call
from routelock.tools.tool import FunctionTool

pytestmark = pytest.mark.anyio


def model(*replies: Any) -> Any:
    """Stands for the model's name: in an app this is ``model="openai/gpt-4o"``."""
    return ScriptedHandler(replies)


# -- agents and runs --


async def test_hello_world() -> None:
    agent = Agent(name="Assistant", instructions="You only respond in haikus.", model=model("Soft rain"))
    result = await Runner.run(agent, "Tell me about recursion in programming.")
    assert result.final_output == "Soft rain"


def test_hello_world_in_sync_code() -> None:
    agent = Agent(name="Assistant", instructions="You are a helpful assistant", model=model("Hi."))
    result = Runner.run_sync(agent, "Write a haiku about recursion in programming.")
    assert result.final_output == "Hi."


@dataclass
class UserInfo:
    name: str
    uid: int


async def test_local_context() -> None:
    @function_tool
    async def fetch_user_age(wrapper: RunContextWrapper[UserInfo]) -> str:
        """Fetch the age of the user. Call this function to get user's age information."""
        return f"The user {wrapper.context.name} is 47 years old"

    agent = Agent[UserInfo](
        name="Assistant", tools=[fetch_user_age], model=model(call("fetch_user_age"), "47")
    )
    result = await Runner.run(
        starting_agent=agent, input="What is the age of the user?", context=UserInfo(name="John", uid=123)
    )
    assert result.final_output == "47"
    assert "John is 47" in str(result.to_input_list())


async def test_dynamic_instructions() -> None:
    def dynamic_instructions(context: RunContextWrapper[UserInfo], agent: Agent[UserInfo]) -> str:
        return f"The user's name is {context.context.name}. Help them with their questions."

    played = model("Hi.")
    agent = Agent[UserInfo](name="Triage agent", instructions=dynamic_instructions, model=played)
    await Runner.run(agent, "Hi", context=UserInfo("Ada", 1))
    assert played.requests[0].messages[0]["content"].startswith("The user's name is Ada.")


class CalendarEvent(BaseModel):
    name: str
    date: str
    participants: list[str]


async def test_output_types() -> None:
    said = {"name": "Demo", "date": "2025-01-01", "participants": ["Ada"]}
    agent = Agent(
        name="Calendar extractor",
        instructions="Extract calendar events from text",
        output_type=CalendarEvent,
        model=model(json.dumps(said)),
    )
    result = await Runner.run(agent, "Demo with Ada on new year")
    assert result.final_output == CalendarEvent(**said)
    assert result.final_output_as(CalendarEvent).participants == ["Ada"]


async def test_model_settings_and_run_config() -> None:
    played = model("Hi.")
    agent = Agent(
        name="Assistant",
        model="gpt-4o",
        model_settings=ModelSettings(temperature=0.1, max_tokens=100, tool_choice="auto"),
    )
    await Runner.run(agent, "Hi", run_config=RunConfig(model=played, model_settings=ModelSettings(top_p=0.5)))
    assert played.requests[0].settings == {"temperature": 0.1, "max_tokens": 100, "top_p": 0.5}


async def test_conversations() -> None:
    agent = Agent(
        name="Assistant", instructions="Reply very concisely.", model=model("San Francisco", "California")
    )
    result = await Runner.run(agent, "What city is the Golden Gate Bridge in?")
    new_input = result.to_input_list() + [{"role": "user", "content": "What state is it in?"}]  # noqa: RUF005
    result = await Runner.run(agent, new_input)
    assert result.final_output == "California"
    assert len(result.new_items) == 1


# -- tools --


class Location(TypedDict):
    lat: float
    long: float


@function_tool
async def fetch_weather(location: Location) -> str:
    """Fetch the weather for a given location.

    Args:
        location: The location to fetch the weather for.
    """
    return "sunny"


@function_tool(name_override="fetch_data")
def read_file(ctx: RunContextWrapper[Any], path: str, directory: str | None = None) -> str:
    """Read the contents of a file.

    Args:
        path: The path to the file to read.
        directory: The directory to read the file from.
    """
    return "<file contents>"


async def test_function_tools() -> None:
    location = {"location": {"lat": 1, "long": 2}}
    played = model([call("fetch_weather", location), call("fetch_data", {"path": "x"})], "Done.")
    agent = Agent(name="Assistant", tools=[fetch_weather, read_file], model=played)
    result = await Runner.run(agent, "Hi")
    answers = [item.message.get("content") for item in result.new_items if item.kind == "tool"]
    assert answers == ["sunny", "<file contents>"]
    for tool in agent.tools:
        assert isinstance(tool, FunctionTool)
        assert tool.params_json_schema["type"] == "object"
    assert read_file.name == "fetch_data"
    assert read_file.description == "Read the contents of a file."
    assert fetch_weather.params_json_schema["properties"]["location"]["description"].startswith(
        "The location"
    )


async def test_a_tool_of_ones_own() -> None:
    async def run_function(ctx: RunContextWrapper[Any], args: str) -> str:
        return f"processed {json.loads(args)['username']}"

    tool = FunctionTool(
        name="process_user",
        description="Processes extracted user data",
        params_json_schema={"type": "object", "properties": {"username": {"type": "string"}}},
        on_invoke_tool=run_function,
    )
    agent = Agent(name="A", tools=[tool], model=model(call("process_user", {"username": "ada"}), "Done."))
    result = await Runner.run(agent, "Hi")
    assert "processed ada" in str(result.to_input_list())


def failing(**options: Any) -> Tool:
    @function_tool(**options)
    def get_user_profile(user_id: str) -> str:
        """Fetch a user profile."""
        raise ValueError(f"Could not retrieve profile for user_id: {user_id}.")

    return get_user_profile


async def test_errors_of_tools() -> None:
    def my_custom_error_function(context: RunContextWrapper[Any], error: Exception) -> str:
        return "An internal server error occurred. Please try again later."

    asking = call("get_user_profile", {"user_id": "7"})
    told = failing(failure_error_function=my_custom_error_function)
    result = await Runner.run(Agent(name="A", tools=[told], model=model(asking, "Sorry.")), "Hi")
    assert "An internal server error occurred" in str(result.to_input_list())
    raising = Agent(name="A", tools=[failing(failure_error_function=None)], model=model(asking))
    with pytest.raises(Exception, match="Could not retrieve profile"):
        await Runner.run(raising, "Hi")


# -- handoffs --


async def test_handoffs_between_agents() -> None:
    spanish_agent = Agent(name="Spanish agent", instructions="You only speak Spanish.", model=model("¡Hola!"))
    english_agent = Agent(name="English agent", instructions="You only speak English", model=model())
    triage_agent = Agent(
        name="Triage agent",
        instructions="Handoff to the appropriate agent based on the language of the request.",
        handoffs=[spanish_agent, english_agent],
        model=model(call("transfer_to_spanish_agent")),
    )
    result = await Runner.run(triage_agent, input="Hola, ¿cómo estás?")
    assert result.final_output == "¡Hola!"
    assert result.last_agent == spanish_agent


class EscalationData(BaseModel):
    reason: str


async def test_handoff_inputs() -> None:
    seen: list[str] = []

    async def on_handoff(ctx: RunContextWrapper[None], input_data: EscalationData) -> None:
        seen.append(f"Escalation agent called with reason: {input_data.reason}")

    agent = Agent(name="Escalation agent", model=model("Here."))
    handoff_obj = handoff(agent=agent, on_handoff=on_handoff, input_type=EscalationData)
    asking = call("transfer_to_escalation_agent", {"reason": "angry"})
    await Runner.run(Agent(name="Desk", handoffs=[handoff_obj], model=model(asking)), "Hi")
    assert seen == ["Escalation agent called with reason: angry"]


async def test_customizing_handoffs() -> None:
    called: list[int] = []

    def on_handoff(ctx: RunContextWrapper[None]) -> None:
        called.append(1)

    agent = Agent(name="My agent", model=model("Here."))
    handoff_obj = handoff(
        agent=agent,
        on_handoff=on_handoff,
        tool_name_override="custom_handoff_tool",
        tool_description_override="Custom description",
        is_enabled=lambda ctx, agent: True,
        nest_handoff_history=False,
    )
    assert isinstance(handoff_obj, Handoff)
    assert (handoff_obj.tool_name, handoff_obj.agent_name) == ("custom_handoff_tool", "My agent")
    assert handoff_obj.get_transfer_message(agent) == '{"assistant": "My agent"}'
    await Runner.run(
        Agent(name="Desk", handoffs=[handoff_obj], model=model(call("custom_handoff_tool"))), "Hi"
    )
    assert called == [1]


async def test_a_handoff_of_ones_own() -> None:
    agent = Agent(name="Chosen", model=model("Here."))

    async def invoke(ctx: RunContextWrapper[Any], args: str) -> Agent[Any]:
        return agent

    handoff_obj = Handoff(
        tool_name="transfer_to_someone",
        tool_description="Someone",
        input_json_schema={"type": "object", "properties": {}, "required": [], "additionalProperties": False},
        on_invoke_handoff=invoke,
        agent_name="someone",
    )
    desk = Agent(name="Desk", handoffs=[handoff_obj], model=model(call("transfer_to_someone")))
    assert (await Runner.run(desk, "Hi")).last_agent is agent


Filter = Callable[[HandoffInputData], HandoffInputData]


def spanish_handoff_message_filter(handoff_message_data: HandoffInputData) -> HandoffInputData:
    """As the SDK's example message_filter.py has it."""
    handoff_message_data = handoff_filters.remove_all_tools(handoff_message_data)
    history = (
        tuple(handoff_message_data.input_history[2:])
        if isinstance(handoff_message_data.input_history, tuple)
        else handoff_message_data.input_history
    )
    return HandoffInputData(
        input_history=history,
        pre_handoff_items=tuple(handoff_message_data.pre_handoff_items),
        new_items=tuple(handoff_message_data.new_items),
    )


@pytest.mark.parametrize(
    ("input_filter", "shown"),
    [
        (handoff_filters.remove_all_tools, ["One", "Two", "Three"]),
        (spanish_handoff_message_filter, ["Three"]),
        (
            lambda data: data.clone(input_history=()),
            [f'{PREAMBLE}\n- {{"agent": "Triage", "handed over to": "Spanish"}}'],
        ),
    ],
)
async def test_input_filters(
    input_filter: Callable[[HandoffInputData], HandoffInputData], shown: list[str]
) -> None:
    played = model("¡Hola!")
    target = Agent(name="Spanish", model=played)
    triage = Agent(
        name="Triage",
        handoffs=[handoff(target, input_filter=input_filter)],
        model=model(call("transfer_to_spanish")),
    )
    await Runner.run(triage, [{"role": "user", "content": text} for text in ("One", "Two", "Three")])
    assert [message["content"] or "" for message in played.requests[0].messages] == shown


def nested_by_the_handoff(target: Agent[Any]) -> tuple[Handoff, RunConfig]:
    return handoff(target, nest_handoff_history=True), RunConfig()


def nested_by_the_run(target: Agent[Any]) -> tuple[Handoff, RunConfig]:
    return handoff(target), RunConfig(nest_handoff_history=True)


def nested_by_a_filter(target: Agent[Any]) -> tuple[Handoff, RunConfig]:
    return handoff(target, input_filter=nest_handoff_history), RunConfig()


def nested_with_a_mapper(target: Agent[Any]) -> tuple[Handoff, RunConfig]:
    config = RunConfig(nest_handoff_history=True, handoff_history_mapper=default_handoff_history_mapper)
    return handoff(target), config


@pytest.mark.parametrize(
    "how", [nested_by_the_handoff, nested_by_the_run, nested_by_a_filter, nested_with_a_mapper]
)
async def test_nested_history(how: Callable[[Agent[Any]], tuple[Handoff, RunConfig]]) -> None:
    played = model("Here.")
    declared, config = how(Agent(name="B", model=played))
    await Runner.run(
        Agent(name="A", handoffs=[declared], model=model(call("transfer_to_b"))), "Hi", run_config=config
    )
    summary = played.requests[0].messages[0]
    assert summary["role"] == "assistant"
    assert "<CONVERSATION HISTORY>" in summary["content"]


def test_conversation_history_wrappers() -> None:
    set_conversation_history_wrappers(start="<<", end=">>")
    assert get_conversation_history_wrappers() == ("<<", ">>")
    reset_conversation_history_wrappers()
    assert get_conversation_history_wrappers() == ("<CONVERSATION HISTORY>", "</CONVERSATION HISTORY>")


def test_recommended_prompts() -> None:
    agent = Agent(name="Billing agent", instructions=f"{RECOMMENDED_PROMPT_PREFIX}\nFill in the rest.")
    assert str(agent.instructions).startswith(RECOMMENDED_PROMPT_PREFIX)
    assert prompt_with_handoff_instructions("Be kind.").endswith("\n\nBe kind.")


async def test_input_filters_of_a_run() -> None:
    played = model("Here.")
    agent = Agent(name="A", handoffs=[Agent(name="B", model=played)], model=model(call("transfer_to_b")))
    config = RunConfig(handoff_input_filter=handoff_filters.remove_all_tools)
    await Runner.run(agent, "Hi", run_config=config)
    assert [message["role"] for message in played.requests[0].messages] == ["user"]
