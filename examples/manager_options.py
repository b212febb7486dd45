"""The options of `as_tool`: an editor whose researcher has data of the app, a session, limits, an observer.

Run it: python examples/manager_options.py
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from routelock import Agent, Limits, RunConfig, Runner, ToolContext
from routelock.handlers import TextDelta
from routelock.run import NestedEvent
from routelock.sessions import InMemorySessions, Session
from routelock.testing import ScriptedHandler, call

STORE = InMemorySessions()


@dataclass
class Question:
    """What the editor's model must pass."""

    topic: str
    sentences: int


def brief(context: ToolContext[dict[str, Any]], question: Question) -> str:
    """Make the researcher's input from what the model passed and what the app knows."""
    return f"For {context.context['paper']}: {question.topic}, in {question.sentences} sentence(s)."


def notebook(context: ToolContext[dict[str, Any]]) -> Session:
    """Return the researcher's conversation about this paper."""
    return Session(f"research-{context.context['paper']}", STORE)


def listen(context: ToolContext[Any], event: NestedEvent) -> None:
    """Print the researcher's text while it is written, although the run of the editor is not streamed."""
    if isinstance(event.event, TextDelta):
        print(event.event.text, end="")
    elif event.event.type == "run_done":
        print(f"   ({' > '.join(event.path)})")


researcher = Agent(
    "Researcher",
    model=ScriptedHandler(["Denali is 6190 m high. ", "Elbrus is 548 m lower than Denali. "]),
)
ask_researcher = researcher.as_tool(
    input_type=Question,
    input=brief,
    session=notebook,
    on_event=listen,
    run_config=RunConfig(
        model_settings={"temperature": 0},
        limits=Limits(requests=3),
        on_limit=lambda error: "No time for more research.",
    ),
)
model = ScriptedHandler(
    [
        call("researcher", {"topic": "Denali", "sentences": 1}, id="c1"),
        call("researcher", {"topic": "Elbrus, compared", "sentences": 1}, id="c2"),
        "Denali is higher than Elbrus, by 548 m.",
    ]
)
editor = Agent("Editor", model=model, tools=[ask_researcher])


async def main() -> None:
    """Let the editor ask twice, and show what the researcher saw the second time."""
    result = await Runner.run(editor, "Denali or Elbrus?", context={"paper": "Alpine News"})
    print(result.final_output)
    for message in result.nested["c2"].messages:
        print(f"  {message['role']}: {message.get('content')}")


asyncio.run(main())
