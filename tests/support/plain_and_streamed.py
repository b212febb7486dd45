"""Runs that are made twice, plain and streamed, because the two must not differ by anything but events."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import anyio.lowlevel
from scenes import facts
from scripted_agents import outcome

from routelock import Agent, Retry, RunConfig, RunResult, RunStream
from routelock.errors import RoutelockError
from routelock.handlers.events import AttemptFailed, MessageDone, ReasoningDelta, TextDelta, ToolCallDelta
from routelock.handlers.port import Request
from routelock.history.messages import RunInput, calls_of, text_of
from routelock.run.events import RunDone, RunEvent, ToolCalled, ToolOutput
from routelock.run.start import start
from routelock.scopes import Scope
from routelock.testing import ScriptedHandler, assert_valid

DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)


class Voice(ScriptedHandler):
    """A scripted handler that also says where it stands."""

    def __init__(
        self,
        name: str,
        *replies: Any,
        priority: int = 50,
        scope: Scope = "all",
        prompt: str | None = None,
        expose: bool = False,
        family: str | None = None,
    ) -> None:
        super().__init__(replies, name=name, family=family)
        self.priority = priority
        self.scope = scope
        self.prompt = prompt
        self.expose = expose


@dataclass(frozen=True, slots=True)
class Played:
    """What came of one run: its result, or its error with the partial result."""

    agent: Agent[Any]
    result: RunResult[Any]
    events: list[RunEvent]
    """Those of the streamed run."""
    error: RoutelockError | None = None

    @property
    def kinds(self) -> list[str]:
        """The types of the events without the deltas."""
        return [event.type for event in self.events if not isinstance(event, DELTAS)]

    @property
    def statuses(self) -> list[tuple[str, str, str]]:
        return [(record.source, record.target, outcome(record)) for record in self.result.handoffs]

    @property
    def answers(self) -> list[str]:
        """What the tool messages of the transcript say, in order."""
        return [text_of(item.message) for item in self.result.new_items if item.message["role"] == "tool"]

    def asked(self, name: str) -> list[Request]:
        """What the handler of that name was asked in the streamed run, if the agent has it."""
        found = [each.handler for each in self.agent.registered.handlers if each.name == name]
        assert isinstance(found[0], ScriptedHandler)
        return found[0].requests


async def _at_once(seconds: float) -> None:
    await anyio.lowlevel.checkpoint()


QUICK = Retry(sleep=_at_once, jitter=lambda: 0.0)


async def both(make: Callable[[], Agent[Any]], input: RunInput = "Hi", **settings: Any) -> Played:
    """Run what ``make`` makes plain and streamed, and check that both come to the same.

    Settings are those of the `RunConfig`, and ``max_turns``.
    """
    plain = await _play(make(), input, stream=False, **settings)
    streamed = await _play(make(), input, stream=True, **settings)
    assert _facts(plain) == _facts(streamed)
    check(streamed)
    return streamed


def _facts(played: Played) -> dict[str, Any]:
    error = played.error
    return {
        **facts(played.result),
        "error": (type(error), str(error)),
        "pending": played.result.pending,
        "last handler": played.result.last_handler,
        "usage by handler": played.result.usage_by_handler,
        "usage by model": played.result.usage_by_model,
        "usage by edge": played.result.usage_by_edge,
    }


def check(played: Played) -> None:
    """What holds for every run: calls answered once and in order, a valid history, whole text shown."""
    called = [event.call_id for event in played.events if isinstance(event, ToolCalled)]
    answered = [event.call_id for event in played.events if isinstance(event, ToolOutput)]
    assert set(called) <= set(answered)
    assert len(set(answered)) == len(answered)
    items = played.result.new_items
    for place, item in enumerate(items):
        ids = [call["id"] for call in calls_of(item.message)]
        after = [each.message.get("tool_call_id") for each in items[place + 1 : place + 1 + len(ids)]]
        waited = any(each.asked_by in ids for each in items)  # for the answer of another agent
        if played.error is None and played.result.stop_reason == "done" and not waited:
            assert after == ids
    if played.result.stop_reason != "requires_action":
        assert_valid(played.result.to_input_list())
    for text, shown in _texts(played.events):
        assert text == shown


def _texts(events: Collection[RunEvent]) -> list[tuple[str, str]]:
    """Pair each complete reply's text with the deltas before it."""
    pairs: list[tuple[str, str]] = []
    shown: list[str] = []
    for event in events:
        if isinstance(event, TextDelta):
            shown.append(event.text)
        elif isinstance(event, AttemptFailed):
            shown.clear()
        elif isinstance(event, MessageDone):
            pairs.append((text_of(event.message), "".join(shown)))
            shown.clear()
    return pairs


async def _play(
    agent: Agent[Any], input: RunInput, *, stream: bool, max_turns: int | None = 10, **settings: Any
) -> Played:
    config = RunConfig(**{"run_id": "r", "retry": QUICK, **settings})
    run = RunStream(start(agent, input, None, max_turns, None, config, stream=stream))
    events: list[RunEvent] = []
    try:
        async for event in run:
            events.append(event)
    except RoutelockError as error:
        return Played(agent, error.result, events, error)
    assert isinstance(events[-1], RunDone)
    return Played(agent, run.result, events)
