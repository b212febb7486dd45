"""The agents that MCP's conformance suite calls as tools: it looks for tools of these names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clients.cast import Plays, answered

from routelock import Agent, ProviderError, Request, tool
from routelock.serving import MCP, ServeConfig, create_app
from routelock.testing import call
from routelock.testing.scripted import Reply, ScriptedReply

DECISIONS = (
    "test_elicitation",
    "test_streaming_elicitation",
    "test_input_required_result_request_state",
    "test_input_required_result_tampered_state",
)
"""Tools that ask the user one question."""


FORM = "test_input_required_result_elicitation"


@dataclass
class Nothing:
    """No arguments."""


@dataclass
class Message:
    """The arguments of the tool that shows its user a message."""

    message: str


@tool(needs_approval=True)
def act() -> str:
    """Do what a person has to approve."""
    return "done"


@tool(needs_approval=True)
def user_name() -> str:
    """Do what a person has to approve, under the name that the suite gives the question."""
    return "done"


@tool
def step() -> str:
    """Take a step."""
    return "taken"


def fails(request: Request) -> Reply:
    raise ProviderError("The model went away.")


def uses(name: str, text: str, times: int = 1) -> Any:
    """Return a part that calls a tool, so many times, and then says a text."""

    def part(request: Request) -> Reply:
        done = sum(each["role"] == "tool" for each in request.messages)
        return text if done == times else call(name)

    return part


def asks(name: str, *, times: int = 1) -> Agent[Any]:
    """Return an agent that needs so many approvals, one after the other."""
    return Agent(name, model=Plays(name, uses("act", "The user decided.", times)), tools=[act])


def asks_twice_at_once(name: str) -> Agent[Any]:
    """Return an agent that needs two approvals at the same time."""

    def part(request: Request) -> Reply:
        return "The user decided." if answered(request) else [call("act"), call("act")]

    return Agent(name, model=Plays(name, part), tools=[act])


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
FILE = {"type": "file", "file": {"filename": "a.json", "file_data": "data:application/json;base64,e30="}}


def makes(name: str, *media: Mapping[str, Any]) -> Agent[Any]:
    """Return an agent whose model makes images, sounds and files."""
    content = [{"type": "text", "text": "Here it is."}, *media]
    message: Any = {"role": "assistant", "content": content}
    return Agent(name, model=Plays(name, lambda _: ScriptedReply(message=message)))


def says(name: str, text: str) -> Agent[Any]:
    return Agent(name, model=Plays(name, lambda _: text), handoff_description="For the suite.")


agents: list[Agent[Any]] = [
    says("test_simple_text", "This is a simple text response for testing."),
    says("test_logging_tool", "Nothing is logged."),
    Agent("test_error_handling", model=Plays("fails", fails)),
    Agent("test_tool_with_progress", model=Plays("step", uses("step", "Done.")), tools=[step]),
    makes("test_image_content", IMAGE),
    makes("test_audio_content", SOUND),
    makes("test_embedded_resource", FILE),
    makes("test_multiple_content_types", IMAGE, FILE),
    *map(asks, DECISIONS),
    Agent(FORM, model=Plays(FORM, uses("user_name", "The user decided.")), tools=[user_name]),
    asks("test_input_required_result_multi_round", times=2),
    asks_twice_at_once("test_input_required_result_multiple_inputs"),
]

settings = MCP(
    name="conformance",
    input_types={each.name: Message if each.name == "test_elicitation" else Nothing for each in agents},
)

app = create_app(agents, ServeConfig(mcp=settings))
"""For uvicorn: the command has no option for input types."""
