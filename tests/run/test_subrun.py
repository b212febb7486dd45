"""Runs within runs: their events live and attributed, their budget, and their end with the outer one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from cancel_traps import Trap, Watched
from hypothesis import given
from hypothesis import strategies as st
from manager_agents import ask, both, busy, everything, manager, run
from scenes import Recorder
from scripted_agents import agent, answers_of, look_up
from thoroughness import examples

from routelock import (
    Agent,
    RunContext,
    Runner,
    RunResult,
    RunStream,
    function_handler,
    function_tool,
    handoff,
)
from routelock.context import PAYLOAD_KEY
from routelock.errors import InvalidRequest, MaxTurnsExceeded, RoutelockError
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.handlers.port import Handler, Request
from routelock.handoffs.payload import HandoffPayload
from routelock.run.events import AgentUpdated, NestedEvent, RunDone, RunEvent, ToolCalled, ToolOutput
from routelock.run.executor import Call, InProcess, Outcome
from routelock.testing import ScriptedHandler, assert_valid, call, reply

pytestmark = pytest.mark.anyio

Ids = tuple[str, ...]


def deep(levels: int, answer: Any = "deep") -> Agent[Any]:
    """An agent that asks an agent that asks an agent ..."""
    made = agent("d0", answer)
    for level in range(1, levels + 1):
        first = ask(f"d{level - 1}", id=f"c{level}")
        made = agent(f"d{level}", first, f"from {level}", tools=[made.as_tool(max_turns=None)])
    return made


def by_ids(events: Sequence[RunEvent]) -> dict[Ids, list[RunEvent]]:
    """Take nested events apart."""
    found: dict[Ids, list[RunEvent]] = {}
    for event in events:
        if isinstance(event, NestedEvent):
            found.setdefault(event.call_ids, []).append(event.event)
    return found


def inner(result: RunResult[Any], ids: Ids) -> RunResult[Any]:
    for one in ids:
        result = result.nested[one]
    return result


# -- the stream --


async def test_nested_events_are_live_and_say_whose_they_are() -> None:
    calls = [ask("a", id="x"), ask("b", id="y")]
    made = manager(calls, "Ok.", a=agent("A", "one two"), b=agent("B", "three"))
    ended = await run(made, stream=True)
    nested = [event for event in ended.events if isinstance(event, NestedEvent)]
    assert [(event.path, event.call_ids) for event in nested] == [
        *[(("manager", "A"), ("x",))] * 5,
        *[(("manager", "B"), ("y",))] * 4,
    ]
    assert [event.event.type for event in nested[:5]] == [
        *("agent_updated", "text_delta", "text_delta", "message_done", "run_done")
    ]


async def test_the_events_of_every_level_can_be_told_apart() -> None:
    """The sum of the nested text is the nested result, though all levels use the same call ids."""

    def make() -> Agent[Any]:
        asks = [ask("worker"), ask("worker")]
        teams = [agent(f"lead {n}", asks, f"{n} is done", tools=[one(n).as_tool("worker")]) for n in (1, 2)]
        calls = [ask("lead_1"), ask("lead_2")]
        return agent("manager", calls, "Ok.", tools=[each.as_tool() for each in teams])

    def one(number: int) -> Agent[Any]:
        async def answer(request: Request) -> AsyncGenerator[str]:
            for word in ("work", " of ", str(number)):
                yield word

        return Agent("worker", model=function_handler(answer))

    ended = await both(make)
    found = by_ids(ended.events)
    assert len(found) == 6
    for ids, events in found.items():
        result = inner(ended.result, ids)
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert text == "".join(str(each.message.get("content") or "") for each in result.raw_replies)
        assert isinstance(events[0], AgentUpdated)
        assert isinstance(events[-1], RunDone)
        assert events[-1].result.final_output == result.final_output


async def test_however_deep_an_event_is_wrapped_once() -> None:
    ended = await both(lambda: deep(5), max_turns=None)
    nested = [event for event in ended.events if isinstance(event, NestedEvent)]
    assert not any(isinstance(event.event, NestedEvent) for event in nested)
    deepest = max(nested, key=lambda event: len(event.path))
    assert deepest.path == ("d5", "d4", "d3", "d2", "d1", "d0")
    assert deepest.call_ids == ("c5", "c4", "c3", "c2", "c1")
    assert inner(ended.result, deepest.call_ids).final_output == "deep"
    assert ended.result.usage.requests == 11


async def test_agents_can_only_ask_one_another_so_deep() -> None:
    """A refusal, and not Python's stack."""
    ended = await both(lambda: deep(25), max_turns=None)
    ids = tuple(f"c{level}" for level in range(25, 5, -1))
    assert "nested 20 deep, which is the limit" in answers_of(inner(ended.result, ids))[0]
    assert inner(ended.result, ids).nested == {}
    assert ended.result.final_output == "from 25"


async def test_plain_run_has_no_nested_events() -> None:
    request = []

    async def answer(asked: Request) -> str:
        request.append(asked.stream)
        return "42"

    helper = Agent("helper", model=function_handler(answer))
    await run(manager(ask(), "Ok.", helper=helper), stream=False)
    await run(manager(ask(), "Ok.", helper=helper), stream=True)
    assert request == [False, True]


async def test_nothing_nested_is_read_ahead_of_the_reader() -> None:
    made: list[int] = []

    async def answer(request: Request) -> AsyncGenerator[str]:
        for number in range(5):
            made.append(number)
            yield str(number)

    seen = 0
    helper = Agent("helper", model=function_handler(answer))
    async with Runner.run_streamed(manager(ask(), "Ok.", helper=helper), "Hi") as stream:
        async for event in stream:
            if isinstance(event, NestedEvent) and isinstance(event.event, TextDelta):
                seen += 1
                assert len(made) == seen


# -- at the same time --


class Meeting:
    """Each arrival waits until all have arrived, and fails if that never happens."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.here = 0
        self.most = 0

    async def join(self) -> str:
        self.here += 1
        self.most = max(self.most, self.here)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        self.here -= 1
        return f"{self.most} of {self.count}"


async def _met(*, stream: bool) -> tuple[int, list[str]]:
    meeting, order = Meeting(3), list[str]()

    async def answer(request: Request) -> str:
        order.append("agent")
        await meeting.join()
        return "met"

    @function_tool
    async def look() -> str:
        """Look."""
        await meeting.join()
        order.append("tool done")
        return "seen"

    helper = Agent("helper", model=function_handler(answer))
    made = agent("manager", [ask(), call("look"), ask()], "Ok.", tools=[helper.as_tool(), look])
    ended = await run(made, stream=stream)
    assert answers_of(ended.result) == ["met", "seen", "met"]
    return meeting.most, order


async def test_a_plain_run_asks_all_at_the_same_time() -> None:
    assert (await _met(stream=False))[0] == 3


async def test_streamed_run_calls_agents_after_the_tools() -> None:
    assert await _met(stream=True) == (1, ["tool done", "agent", "agent"])


# -- the budget --


async def test_max_turns_includes_the_turns_of_sub_runs() -> None:
    """One turn is reserved for the caller, so that it can use the answers."""

    def make() -> Agent[Any]:
        return agent("manager", ask(), "That is all.", tools=[busy().as_tool(max_turns=None)])

    ended = await both(make, max_turns=6)
    assert ended.result.usage.requests == 6
    assert "Max turns (4) exceeded" in ended.result.errors[0].message
    assert ended.result.final_output == "That is all."


async def test_siblings_share_what_is_left_evenly() -> None:
    """If the first to start took all turns, the result would depend on the scheduler."""

    def make() -> Agent[Any]:
        tools = [busy(name).as_tool(max_turns=None) for name in ("a", "b", "c")]
        return agent("manager", [ask("a"), ask("b"), ask("c")], "Ok.", tools=tools)

    result = (await both(make, max_turns=10)).result
    assert [len(each.calls) for each in result.nested.values()] == [3, 3, 2]
    assert result.usage.requests == 10


async def test_used_up_share_names_the_setting_to_raise() -> None:
    """Its own max_turns may be far from reached."""

    def make() -> Agent[Any]:
        tools = [busy(name).as_tool() for name in ("a", "b", "c")]
        return agent("manager", [ask("a"), ask("b"), ask("c")], "Ok.", tools=tools)

    said = (await both(make, max_turns=10)).result.errors[2].message
    assert "Max turns (2) exceeded: agent 'c'" in said
    assert "Raise max_turns of its as_tool() or of the run around it, whose 10 are shared" in said


async def test_used_up_own_turns_name_as_tool() -> None:
    def make() -> Agent[Any]:
        return agent("manager", ask(), "Ok.", tools=[busy().as_tool(max_turns=2)])

    result = (await both(make, max_turns=None)).result
    assert "Raise max_turns of its as_tool(), or use the partial result" in result.errors[0].message


async def test_caller_of_an_agent_out_of_turns_reads_what_it_can_do() -> None:
    """It cannot raise a setting of the app."""

    def make() -> Agent[Any]:
        return agent("manager", ask(), "Ok.", tools=[busy().as_tool(max_turns=2)])

    assert answers_of((await both(make, max_turns=None)).result) == [
        "Tool 'helper' failed: MaxTurnsExceeded: it made all of its model calls and has no answer yet. "
        "Give it a smaller task, or go on without it."
    ]


async def test_arguments_that_do_not_fit_take_no_share() -> None:
    def make() -> Agent[Any]:
        tools = [busy(name).as_tool(max_turns=None) for name in ("a", "b")]
        return agent("manager", [call("a", "{}"), ask("b")], "Ok.", tools=tools)

    result = (await both(make, max_turns=6)).result
    assert [len(each.calls) for each in result.nested.values()] == [4]


async def test_sub_run_is_not_started_without_a_turn_left() -> None:
    def make() -> Agent[Any]:
        return manager(ask(), "So I must say myself.", helper=agent("helper"))

    ended = await both(make, max_turns=2)
    assert "so it did not begin. Go on without it" in answers_of(ended.result)[0]
    assert "none is left for tool 'helper'" in ended.result.errors[0].message
    assert ended.result.nested == {}
    assert ended.result.final_output == "So I must say myself."


async def test_agent_call_in_the_last_turn_ends_the_run() -> None:
    ended = await both(lambda: manager(ask(), helper=agent("helper")), max_turns=1)
    assert isinstance(ended.error, MaxTurnsExceeded)
    assert [problem.kind for problem in ended.result.errors] == ["tool"]


async def test_without_a_limit_each_run_has_its_own() -> None:
    def make() -> Agent[Any]:
        return agent("manager", ask(), "Ok.", tools=[busy().as_tool()])

    ended = await both(make, max_turns=None)
    assert ended.result.usage.requests == 12


async def test_agents_that_ask_one_another_in_a_circle_end() -> None:
    """By way of names a circle can be made; each round takes turns of the same budget."""

    async def answer(request: Request) -> Any:
        asks = "ask_b" if request.agent == "A" else "transfer_to_a"
        return reply(calls=[call(asks, {"input": "again"} if asks == "ask_b" else {})]).message

    model = function_handler(answer)
    b = Agent("B", model=model, handoffs=["A"])
    a = Agent("A", model=model, tools=[b.as_tool("ask_b")])
    ended = await run(a, stream=False, max_turns=30, agents=[a])
    assert ended.result.usage.requests <= 30


# -- the end --


async def test_closed_stream_closes_and_keeps_the_sub_run() -> None:
    """The connection of the nested agent as well, on the spot."""
    opened: list[str] = []

    async def answer(request: Request) -> AsyncGenerator[str]:
        opened.append("open")
        try:
            yield "Hel"
            yield "lo"
        finally:
            await anyio.lowlevel.checkpoint()
            opened.append("closed")

    deepest = Agent("deepest", model=function_handler(answer))
    made = manager(ask("a", id="x"), "Ok.", a=manager(ask("b", id="y"), "Ok.", b=deepest))
    async with Runner.run_streamed(made, "Hi") as stream:
        async for event in stream:
            if isinstance(event, NestedEvent) and isinstance(event.event, TextDelta):
                break
    assert opened == ["open", "closed"]
    result = stream.result
    assert (result.stop_reason, result.usage.requests) == ("unfinished", 3)
    assert inner(result, ("x", "y")).messages[-1] == {"role": "assistant", "content": "Hel"}
    assert_valid(result.to_input_list())


@dataclass
class Play:
    """A manager with two agents, one of which asks a third and hands over, under a trap at each await."""

    k: int = 0
    open: list[str] = field(default_factory=list[str])
    begun: list[Request] = field(default_factory=list[Request])

    def __post_init__(self) -> None:
        self.trap = Trap(self.k)

    def model(self, name: str, *replies: Any) -> Handler:
        return Watched(ScriptedHandler(replies, name=name), self.trap, self.open, self.begun)

    def agent(self) -> Agent[Any]:
        @function_tool
        async def wait() -> str:
            """Wait."""
            await self.trap.wait()
            return "waited"

        async def say(result: RunResult[Any]) -> str:
            await self.trap.wait()
            return f"said {result.final_output}"

        third = Agent("third", model=self.model("third", call("wait"), "3"), tools=[wait])
        boss = Agent("boss", model=self.model("boss", "1"))
        first = Agent(
            "first",
            model=self.model("first", ask("third"), call("transfer_to_boss")),
            tools=[third.as_tool()],
            handoffs=[boss],
        )
        second = Agent("second", model=self.model("second", InvalidRequest("no")))
        tools = [first.as_tool(output=say, timeout=60), second.as_tool(), wait]
        calls = [ask("first"), call("wait"), ask("second")]
        return Agent("manager", model=self.model("manager", calls, "Done."), tools=tools)

    def stream(self) -> RunStream:
        hooks = Recorder(self.trap.wait)
        return Runner.run_streamed(self.agent(), "Hi", hooks=hooks, max_turns=30)

    def check(self, result: RunResult[Any]) -> None:
        """All calls counted at every level, all transcripts whole, all closed."""
        assert self.open == []
        assert result.usage.requests == len(self.begun)
        self.check_one(result)

    def check_one(self, result: RunResult[Any]) -> None:
        assert_valid(result.to_input_list())
        within = sum(each.usage.requests for each in result.nested.values())
        assert result.usage.requests == len(result.calls) + within
        for each in result.nested.values():
            self.check_one(each)


async def test_streamed_sub_run_can_be_cancelled_at_any_await() -> None:
    for k in range(1, 400):
        before = len(anyio.get_running_tasks())
        play = Play(k)
        stream = play.stream()
        with play.trap.scope:
            try:
                await stream.drain()
            finally:
                await stream.aclose()
        assert len(anyio.get_running_tasks()) == before, k
        play.check(stream.result)
        if not play.trap.scope.cancelled_caught:
            break
    assert stream.result.final_output == "Done."
    assert k > 50


async def test_plain_sub_run_can_be_cancelled_at_any_await() -> None:
    for k in range(1, 400):
        before = len(anyio.get_running_tasks())
        play = Play(k)
        with play.trap.scope:
            await Runner.run(play.agent(), "Hi", hooks=Recorder(play.trap.wait), max_turns=30)
        assert (play.open, len(anyio.get_running_tasks())) == ([], before), k
        if not play.trap.scope.cancelled_caught:
            break
    assert k > 50


async def test_a_stream_can_be_left_after_any_nested_event() -> None:
    for k in range(1, 200):
        play = Play()
        seen = 0
        async with play.stream() as stream:
            async for _ in stream:
                seen += 1
                if seen == k:
                    break
        play.check(stream.result)
        if seen < k:
            break
    assert k > 30


async def test_another_task_may_read_and_close_the_stream() -> None:
    """No task group and no cancel scope is open while a nested event is handed out, even with a timeout."""
    play = Play()
    stream = play.stream()
    events = aiter(stream)
    seen: list[RunEvent] = []

    async def step() -> None:
        seen.append(await anext(events))

    while sum(isinstance(event, NestedEvent) for event in seen) < 12:
        async with anyio.create_task_group() as group:
            group.start_soon(step)
    async with anyio.create_task_group() as group:
        group.start_soon(stream.aclose)
    play.check(stream.result)


# -- the payload of a handoff --


async def test_sub_run_does_not_change_the_outer_payload() -> None:
    seen: list[list[str]] = []

    @function_tool
    def peek(context: RunContext[Any]) -> str:
        """Look at what rides along."""
        payload = context.shared_memory.get(PAYLOAD_KEY)
        seen[-1].append(payload["source_agent"] if payload else "nothing")
        return "seen"

    def make() -> Agent[Any]:
        seen.append([])
        boss = agent("boss", call("peek"), "1", tools=[peek])
        helper = agent(
            "helper", call("transfer_to_boss"), handoffs=[handoff(boss, payload=_payload("helper"))]
        )
        tools = [peek, helper.as_tool()]
        lead = agent("lead", call("peek"), ask(), call("peek", id="again"), "Ok.", tools=tools)
        return agent("front", call("transfer_to_lead"), handoffs=[handoff(lead, payload=_payload("front"))])

    ended = await both(make)
    assert ended.result.final_output == "Ok."
    assert seen == [["front", "helper", "front"]] * 2
    assert PAYLOAD_KEY not in ended.result.context.shared_memory


def _payload(source: str) -> HandoffPayload:
    return HandoffPayload(source_agent=source, handoff_type="of_the_test", context_data={"issue": "x"})


# -- engines --


class Journal:
    """Writes steps down, and replays those that were written down before."""

    def __init__(self, journal: dict[tuple[str, str], Any] | None = None) -> None:
        self.journal = {} if journal is None else journal
        self.keys: list[tuple[str, str]] = []

    async def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        key = (call.run_id, call.key)
        self.keys.append(key)
        if key in self.journal:
            yield self.journal[key]
            return
        async with aclosing(body(call)) as events:
            async for event in events:
                if isinstance(event, MessageDone):
                    self.journal[key] = event
                yield event

    async def gather(self, calls: Sequence[Call], body: Callable[[Call], Any]) -> Sequence[Outcome]:
        async def once(call: Call) -> Outcome:
            key = (call.run_id, call.key)
            self.keys.append(key)
            if key not in self.journal:
                self.journal[key] = await body(call)
            return self.journal[key]

        return [await once(call) for call in calls]


def _engine_team(*, dead: bool = False) -> Agent[Any]:
    def replies(*live: Any) -> list[Any]:
        return [] if dead else list(live)

    third = agent("third", *replies(call("look_up", {"order": 1}, id="l"), "3"), tools=[look_up])
    first = agent("first", *replies(ask("third", id="t"), "1"), tools=[third.as_tool()])
    calls = [ask("first", id="f"), call("look_up", {"order": 1}, id="l")]
    return agent("manager", *replies(calls, "Done."), tools=[first.as_tool(), look_up])


async def test_steps_of_a_sub_run_are_steps_of_the_outer() -> None:
    plain, streamed = Journal(), Journal()
    await run(_engine_team(), stream=False, executor=plain)
    await run(_engine_team(), stream=True, executor=streamed)
    assert sorted(plain.keys) == sorted(streamed.keys)
    assert len(set(plain.keys)) == len(plain.keys)
    assert {run_id for run_id, _ in plain.keys} == {"r"}
    assert ("r", "t1.tool.first.f/t1.tool.third.t/t1.tool.look_up.l") in plain.keys
    assert ("r", "t1.tool.first.f/t1.model.first") in plain.keys


@pytest.mark.parametrize("stream", [False, True])
async def test_a_run_is_replayed_with_all_that_is_nested(stream: bool) -> None:
    """Nothing is asked again, and the result is the same down to the deepest level."""
    first = Journal()
    live = await run(_engine_team(), stream=stream, executor=first)
    again = await run(_engine_team(dead=True), stream=stream, executor=Journal(first.journal))
    assert everything(again) == everything(live)


async def test_replay_continues_in_the_middle_of_a_sub_run() -> None:
    full = Journal()
    live = await run(_engine_team(), stream=False, executor=full)
    first_model = ("r", "t1.model.manager")
    kept = {key: value for key, value in full.journal.items() if "third" in key[1] or key == first_model}
    team = agent("third")
    first = agent("first", ask("third", id="t"), "1", tools=[team.as_tool()])
    made = agent("manager", "Done.", tools=[first.as_tool(), look_up])
    ended = await run(made, stream=False, executor=Journal(kept))
    assert ended.result.nested["f"].nested["t"].final_output == "3"
    assert ended.result.final_output == live.result.final_output


async def test_an_engines_own_error_comes_out_as_it_is() -> None:
    """And not as a group of one, as a task group would have it."""

    class Broken(InProcess):
        async def gather(self, calls: Sequence[Call], body: Any) -> Sequence[Outcome]:
            raise OSError("the journal is full")

    calls = [ask("a"), call("look_up", {"order": 1})]
    made = agent("manager", calls, tools=[agent("a", "A").as_tool(), look_up])
    ended = await run(made, stream=False, executor=Broken())
    assert isinstance(ended.error, RoutelockError)
    assert isinstance(ended.error.__cause__, OSError)


# -- whatever the team --

_TEXT = st.sampled_from(["a b", "one", "x y z"])


@st.composite
def _teams(draw: Any, depth: int = 3) -> Any:
    """A tree of what each agent does: answers, fails, or asks others first."""
    kind = draw(st.sampled_from(["answer", "fail", "busy"] + ["ask"] * (2 * depth)))
    if kind != "ask":
        return kind, draw(_TEXT), []
    return kind, draw(_TEXT), draw(st.lists(_teams(depth=depth - 1), min_size=1, max_size=3))


def _grown(tree: Any, name: str = "m") -> Agent[Any]:
    kind, text, parts = tree
    if kind == "answer":
        return agent(name, text)
    if kind == "fail":
        first = reply(text, calls=[call("look_up", {"order": 1})])
        return agent(name, first, InvalidRequest("no"), tools=[look_up])
    if kind == "busy":
        return busy(name, 50)
    team = [_grown(part, f"{name}{place}") for place, part in enumerate(parts)]
    calls = [ask(each.name) for each in team] + [call("look_up", {"order": 2})]
    return agent(name, reply(text, calls=calls), text, tools=[*(each.as_tool() for each in team), look_up])


@examples(20)
@given(tree=_teams(), max_turns=st.integers(1, 40))
async def test_whatever_the_team_both_modes_come_to_the_same(tree: Any, max_turns: int) -> None:
    ended = await both(lambda: _grown(tree), max_turns=max_turns)
    assert ended.result.usage.requests <= max_turns
    for ids, events in by_ids(ended.events).items():
        texts = "".join(event.text for event in events if isinstance(event, TextDelta))
        replies = inner(ended.result, ids).raw_replies
        assert texts == "".join(str(each.message.get("content") or "") for each in replies)
    called = [event for event in ended.events if isinstance(event, ToolCalled)]
    assert len(called) == len([event for event in ended.events if isinstance(event, ToolOutput)])
