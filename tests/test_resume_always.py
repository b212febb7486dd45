"""A run that is stopped after every turn, written as JSON and gone on with is the run that never stopped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel
from scenes import SCENES, Scene, Stage, facts, tools

from interlock import Agent, HandoffRequest, RunConfig, RunResult, RunState, Tool, handoff
from interlock.errors import InterlockError, InvalidRequest
from interlock.events import HandoffCompleted, ReasoningDelta, TextDelta, ToolCallDelta
from interlock.handoff_request import HandoffStatus
from interlock.results import ModelCall, RunDone
from interlock.run_stream import RunStream
from interlock.starting import start
from interlock.testing import assert_valid, call, reply

pytestmark = pytest.mark.anyio


class Case(BaseModel):
    """What a transfer passes along."""

    order: int
    why: str


def asked(stage: Stage) -> Agent[Any]:
    """A asks B, who looks something up and asks C; both come back."""
    c = Agent(
        "C", "You are C.", model=stage.model("c", call("add", {"a": 1, "b": 1}), "Two."), tools=tools(stage)
    )
    b = Agent(
        "B",
        "You are B.",
        model=stage.model("b", call("add", {"a": 2, "b": 2}), call("transfer_to_c"), "Two and four."),
        tools=tools(stage),
        handoffs=[handoff(c, return_to_caller=True)],
    )
    return Agent(
        "A",
        "You are A.",
        model=stage.model(
            "a", reply("Well.", calls=[call("transfer_to_b")]), call("add", {"a": 3, "b": 3}), "Six."
        ),
        tools=tools(stage),
        handoffs=[handoff(b, return_to_caller=True)],
    )


def nested(stage: Stage) -> Agent[Any]:
    """Three hops, each folding what came before."""
    c = Agent(
        "C", "You are C.", model=stage.model("c", call("add", {"a": 1, "b": 1}), "Bye."), tools=tools(stage)
    )
    b = Agent(
        "B",
        model=stage.model("b", call("fail", {"why": "x"}), call("transfer_to_c")),
        tools=tools(stage),
        handoffs=[c],
    )
    first = [call("add", {"a": 5, "b": 1}), call("transfer_to_b")]
    return Agent("A", "You are A.", model=stage.model("a", first), tools=tools(stage), handoffs=[b])


def two_messages(messages: list[Any]) -> list[Any]:
    return [
        {"role": "user", "content": f"There were {len(messages)}."},
        {"role": "assistant", "content": "I see."},
    ]


def passed(stage: Stage) -> Agent[Any]:
    """Typed input, a payload at each hop, the source's instructions, and memory that is shared in part."""

    def remember(name: str) -> Tool:
        async def on_invoke(context: Any, arguments: str) -> str:
            seen = sorted(key for key in context.shared_memory if key != "handoff_context")
            context.shared_memory[name] = [len(seen)]
            context.shared_memory.setdefault("all", []).append(name)
            return f"{seen} {context.shared_memory['all']}"

        return Tool(name="remember", on_invoke_tool=on_invoke)

    c = Agent(
        "C",
        "You are C.",
        model=stage.model("c", call("remember"), call("remember"), "Done."),
        tools=[remember("c")],
    )
    b = Agent(
        "B",
        "You are B.",
        model=stage.model(
            "b",
            call("remember"),
            call("transfer_to_c", {"order": 8, "why": "y"}),
            call("remember"),
            "So it is.",
        ),
        tools=[remember("b")],
        handoffs=[
            handoff(
                c,
                payload={"handoff_type": "second", "page": "Moss."},
                input_type=Case,
                share=["all"],
                return_to_caller=True,
            )
        ],
    )
    first = [call("remember"), call("transfer_to_b", {"order": 7, "why": "x"})]
    edge = handoff(
        b,
        payload=lambda context, given: {"handoff_type": "first", "order": given.order},
        input_type=Case,
        transfer_system_message=True,
        share=["all", "b"],
    )
    return Agent("A", "You are A.", model=stage.model("a", first), tools=[remember("a")], handoffs=[edge])


def by_tool(stage: Stage) -> Agent[Any]:
    """A tool puts another handler in charge, which hands over to an agent."""

    async def ask(context: Any, arguments: str) -> HandoffRequest:
        return HandoffRequest("voice", input={"mood": "calm"}, reason="they shout", metadata={"n": [1]})

    b = Agent("B", model=stage.model("b", call("add", {"a": 1, "b": 2}), "Three."), tools=tools(stage))
    voice = stage.model("voice", call("add", {"a": 4, "b": 0}), call("transfer_to_b"))
    return Agent(
        "A",
        model=stage.model("a", call("ask")),
        handlers=[voice],
        tools=[Tool(name="ask", on_invoke_tool=ask), *tools(stage)],
        handoffs=[handoff(b, ask_reason=False, reason="B knows")],
    )


def backup(stage: Stage) -> Agent[Any]:
    """The first handler fails, and the second one goes on for the rest of the run."""
    first, second = (
        stage.model("a", InvalidRequest("gone")),
        stage.model("z", call("add", {"a": 1, "b": 1}), "Two."),
    )
    return Agent("A", model=first, handlers=[second], tools=tools(stage))


def empty(stage: Stage) -> Agent[Any]:
    """Silence after a tool, and mistakes in between."""
    model = stage.model(
        "a", call("add", {"a": 1, "b": 1}), reply(""), call("nothing"), call("add", "{"), "Two."
    )
    return Agent("A", model=model, tools=tools(stage))


MORE = {
    "returning": Scene(asked),
    "nesting": Scene(nested, {"nest_handoff_history": True}),
    "nesting with a mapper": Scene(
        nested, {"nest_handoff_history": True, "handoff_history_mapper": two_messages}
    ),
    "calls are shown": Scene(nested, {"foreign_calls": "shown"}),
    "payloads": Scene(passed, {"shared_memory": {"secret plan": {"a": [1]}, "all": []}}),
    "by a tool": Scene(by_tool, {"handoff_prompt": True}),
    "fallback": Scene(backup, {"fallback": True}),
    "silence and mistakes": Scene(empty),
}
ALL = {name: scene for name, scene in {**SCENES, **MORE}.items() if scene.max_turns == 10}
"""Without those that a limit of turns is to end."""


@dataclass(slots=True)
class Played:
    """A run, in one piece or in several."""

    stage: Stage
    results: list[RunResult[Any]] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    error: InterlockError | None = None

    async def go(
        self, agent: Agent[Any], input: Any, *, stream: bool, max_turns: int, **settings: Any
    ) -> RunResult[Any]:
        config = RunConfig(**settings)
        running = RunStream(start(agent, input, None, max_turns, None, config, stream=stream))
        try:
            async for event in running:
                self.events.append(event)
        except InterlockError as error:
            self.error = error
        self.results.append(running.result)
        return running.result

    def facts(self) -> dict[str, Any]:
        """All that must be the same."""
        whole = facts(self.results[-1])
        handoffs = self.results[-1].handoffs
        return {
            **whole,
            "errors": [problem for problem in whole["errors"] if problem.kind != "limit"],
            "calls": [_facts_of(made) for result in self.results for made in result.calls],
            "times": [(one.started, one.ended) for one in handoffs],
            "events": [repr(event) for event in self.events if not _is_of_an_end(event)],
            "side effects": sorted(self.stage.done),
            "memory": self.results[-1].context.shared_memory,
            "error": (type(self.error), str(self.error)),
        }


def _is_of_an_end(event: Any) -> bool:
    """Whether an event tells that a run ended, or is a part of another event."""
    if isinstance(event, HandoffCompleted):
        return event.status is HandoffStatus.ACCEPTED
    return isinstance(event, (TextDelta, ReasoningDelta, ToolCallDelta, RunDone))


def _facts_of(made: ModelCall) -> tuple[Any, ...]:
    assert_valid(made.messages)
    return (
        made.agent,
        made.handler,
        made.turn,
        made.messages,
        made.tools,
        made.tool_choice,
        made.settings,
        made.reply,
    )


async def whole(scene: Scene, *, stream: bool) -> Played:
    stage = Stage()
    played = Played(stage)
    await played.go(scene.agent(stage), "Hi", stream=stream, max_turns=10, **_settings(scene))
    return played


async def in_pieces(scene: Scene, *, stream: bool) -> Played:
    """Stop after each turn; each piece knows of the others by the JSON alone."""
    stage = Stage()
    played, agent, input = Played(stage), scene.agent(stage), "Hi"
    settings = _settings(scene)
    given: Any = input
    for turns in range(1, 12):
        result = await played.go(agent, given, stream=stream, max_turns=turns, **settings)
        if result.stop_reason != "limit" or result.errors[-1].message[:9] != "Max turns":
            return played
        text = result.state().to_json(include_secrets=True)
        given = RunState.from_json(text, agents=[agent])
        assert given.to_json(include_secrets=True) == text
        assert given == result.state()
        settings["shared_memory"] = {}
    raise AssertionError("it ends")


def _settings(scene: Scene) -> dict[str, Any]:
    config = scene.settings()
    return {**scene.config, "on_limit": "return", "run_id": "r", "retry": config.retry, "clock": lambda: 7.0}


@pytest.mark.pairwise
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("name", ALL)
async def test_stopping_after_every_turn_changes_nothing(name: str, stream: bool) -> None:
    scene = ALL[name]
    assert (await in_pieces(scene, stream=stream)).facts() == (await whole(scene, stream=stream)).facts()
