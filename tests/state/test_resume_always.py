"""A run that is stopped after every turn, written as JSON and gone on with is the run that never stopped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from scenes import SCENES, Scene, Stage, facts
from scenes_of_resuming import MORE

from routelock import Agent, RunConfig, RunResult, RunState
from routelock.errors import RoutelockError
from routelock.handlers.events import ReasoningDelta, TextDelta, ToolCallDelta
from routelock.handoff_request import HandoffStatus
from routelock.run.events import HandoffCompleted, RunDone
from routelock.run.records import ModelCall
from routelock.run.start import start
from routelock.run.stream import RunStream
from routelock.testing import assert_valid

pytestmark = pytest.mark.anyio
ALL = {name: scene for name, scene in {**SCENES, **MORE}.items() if scene.max_turns == 10}
"""Without those that a limit of turns is to end."""


@dataclass(slots=True)
class Played:
    """A run, in one piece or in several."""

    stage: Stage
    results: list[RunResult[Any]] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    error: RoutelockError | None = None

    async def go(
        self, agent: Agent[Any], input: Any, *, stream: bool, max_turns: int, **settings: Any
    ) -> RunResult[Any]:
        config = RunConfig(**settings)
        running = RunStream(start(agent, input, None, max_turns, None, config, stream=stream))
        try:
            async for event in running:
                self.events.append(event)
        except RoutelockError as error:
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
