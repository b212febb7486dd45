"""What is recorded of a run, whatever becomes of the run; and traces that fail, which it survives."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from manager_agents import ask, manager
from scripted_agents import agent as made

from routelock import Agent, GuardrailResult, Retry, RunConfig, Runner, RunState, Tool, function_tool
from routelock.errors import ConnectionFailed, HandlerError, SessionError
from routelock.history import Compact
from routelock.sessions import InMemorySessions, Session
from routelock.sessions.stores import Record
from routelock.testing import ScriptedHandler, call
from routelock.tracing import CompactedTraced
from routelock.tracing.file import TraceFile
from routelock.tracing.reader import read_trace

pytestmark = pytest.mark.anyio


@function_tool
async def look(word: str) -> str:
    return f"seen {word}"


def looking(word: str = "moss") -> Agent[Any]:
    model = ScriptedHandler([call("look", {"word": word}), f"There is {word}."])
    return Agent("A", f"Look for {word}.", model=model, tools=[look])


class Full:
    """A trace that takes some records, and then no more."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.asked = 0

    def begin(self, start: Any, parent: Any) -> Full:
        self.write(start)
        return self

    def write(self, record: Any) -> None:
        self.asked += 1
        if self.asked > self.room:
            raise OSError("no space left on device")


@pytest.mark.parametrize("room", range(12))
async def test_a_trace_that_raises_is_given_up_and_the_run_goes_on(room: int, tmp_path: Path) -> None:
    full = Full(room)
    config = RunConfig(trace=[full, tmp_path / "t.jsonl"])
    result = await Runner.run(looking(), "Hi", run_config=config)
    assert result.final_output == "There is moss."
    [problem] = result.errors
    assert "no space left on device" in problem.message
    assert full.asked == room + 1
    [run] = read_trace(tmp_path / "t.jsonl").runs
    assert run.end is not None, "the other trace is whole"


class Leaving:
    """A trace that fails, or wants to swallow what was raised, when it is left."""

    def __init__(self, *, of_a_tool: bool, swallows: bool = False) -> None:
        self.of_a_tool = of_a_tool
        self.swallows = swallows

    def begin(self, start: Any, parent: Any) -> Leaving:
        return self

    def write(self, record: Any) -> None:
        pass

    @contextmanager
    def inside(self, call_id: str | None) -> Generator[None]:
        try:
            yield
        except ValueError:
            if not self.swallows:
                raise
        if not self.swallows and (call_id is not None) == self.of_a_tool:
            raise OSError("disk full")


@pytest.mark.parametrize("of_a_tool", [True, False])
async def test_a_trace_that_raises_when_it_is_left_is_given_up_and_the_run_goes_on(of_a_tool: bool) -> None:
    trace = Leaving(of_a_tool=of_a_tool)
    result = await Runner.run(looking(), "Hi", run_config=RunConfig(trace=trace))
    assert [item.message.get("content") for item in result.items][-2:] == ["seen moss", "There is moss."]
    assert [(one.kind, type(one.error)) for one in result.errors] == [("hook", OSError)]


async def test_a_trace_cannot_swallow_what_a_handler_raises() -> None:
    agent = Agent("A", model=ScriptedHandler([ValueError("boom")]))
    config = RunConfig(trace=Leaving(of_a_tool=False, swallows=True))
    with pytest.raises(HandlerError, match=r"ValueError.*boom"):
        await Runner.run(agent, "Hi", run_config=config)


@pytest.mark.parametrize("stream", [False, True])
async def test_runs_within_a_run_are_in_it(stream: bool, tmp_path: Path) -> None:
    deepest = made("deepest", "deep")
    one = made("one", ask("deepest"), "helped", tools=[deepest.as_tool("deepest")])
    outer = manager([ask("one", id="c1"), ask("two", id="c2")], "done", one=one, two=made("two", "as well"))
    config = RunConfig(trace=tmp_path / "t.jsonl")
    if stream:
        await Runner.run_streamed(outer, "Hi", max_turns=None, run_config=config).drain()
    else:
        await Runner.run(outer, "Hi", max_turns=None, run_config=config)
    [run] = read_trace(tmp_path / "t.jsonl").runs
    assert sorted(run.nested) == ["c1", "c2"]
    for call_id, inner in run.nested.items():
        [tool] = [each for each in run.tools if each.call_id == call_id]
        assert tool.start is not None
        assert tool.start.nested == inner.start.run
        assert inner.start.parent == run.start.run
    [deep] = run.nested["c1"].nested.values()
    assert deep.start.agent == "deepest"


async def test_the_start_of_a_tool_has_its_origin(tmp_path: Path) -> None:
    mail = Tool(name="send", on_invoke_tool=lambda context, arguments: "sent", origin="crm")
    model = ScriptedHandler([[call("send"), call("look", {"word": "moss"})], "done"])
    config = RunConfig(trace=tmp_path / "t.jsonl")
    await Runner.run(Agent("A", model=model, tools=[mail, look]), "Hi", run_config=config)
    [run] = read_trace(tmp_path / "t.jsonl").runs
    origins = {each.start.name: each.start.origin for each in run.tools if each.start is not None}
    assert origins == {"send": "crm", "look": None}


async def test_a_stream_that_is_left_has_an_end(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    async with Runner.run_streamed(looking(), "Hi", run_config=RunConfig(trace=path)) as stream:
        async for event in stream:
            if event.type == "tool_called":
                break
    [run] = read_trace(path).runs
    assert run.end is not None
    assert run.end.stop_reason == "unfinished"
    assert run.tools == []


async def test_a_stream_that_nobody_reads_writes_nothing(tmp_path: Path) -> None:
    async with Runner.run_streamed(looking(), "Hi", run_config=RunConfig(trace=tmp_path / "t.jsonl")):
        pass
    assert not (tmp_path / "t.jsonl").exists()


async def test_a_run_that_goes_on_begins_once_more(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    agent = looking()
    config = RunConfig(trace=path, on_limit="return")
    result = await Runner.run(agent, "Hi", max_turns=1, run_config=config)
    state = RunState.from_json(result.state().to_json(), agents=[agent])
    again = await Runner.run(agent, state, run_config=RunConfig(trace=path))
    first, second = read_trace(path).runs
    assert (first.start.run, first.start.resumed) == (second.start.run, False)
    assert second.start.resumed
    assert second.start.turn == 1
    assert [item.message for item in second.transcript] == again.messages
    assert [each.messages for each in second.calls] == [each.messages for each in again.calls]


async def test_calls_that_wait_for_approval_are_on_the_end(tmp_path: Path) -> None:
    @function_tool(needs_approval=True)
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    path = tmp_path / "t.jsonl"
    model = ScriptedHandler([call("pay", {"amount": 7}, id="c1"), "Done."])
    await Runner.run(Agent("A", model=model, tools=[pay]), "Hi", run_config=RunConfig(trace=path))
    [run] = read_trace(path).runs
    assert run.tools == []
    assert run.end is not None
    assert [(one["name"], one["call_id"]) for one in run.end.interruptions] == [("pay", "c1")]


@pytest.mark.parametrize("content", [True, False])
async def test_what_guardrails_found_is_on_the_end(tmp_path: Path, content: bool) -> None:
    def polite(context: Any, agent: Any, value: Any) -> GuardrailResult:
        return GuardrailResult(tripwire_triggered=False, output_info={"score": 0.2})

    path = tmp_path / "t.jsonl"
    agent = Agent("A", model=ScriptedHandler(["Done."]), input_guardrails=[polite])
    await Runner.run(agent, "Hi", run_config=RunConfig(trace=TraceFile(path, content=content)))
    [run] = read_trace(path).runs
    assert run.end is not None
    info = {"output_info": {"score": 0.2}} if content else {}
    found = {"name": "polite", "kind": "input", "agent": "A", "turn": 1, **info}
    assert run.end.guardrails == [found]


async def test_retries_and_errors_are_on_the_call(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    model = ScriptedHandler([ConnectionFailed("down"), ConnectionFailed("still down")])
    config = RunConfig(trace=path, retry=Retry(attempts=2, first_delay=0.0))
    with pytest.raises(ConnectionFailed):
        await Runner.run(Agent("A", model=model), "Hi", run_config=config)
    [run] = read_trace(path).runs
    [each] = run.calls
    assert [one.error.message for one in each.retries] == ["down"]
    assert each.end is not None
    assert each.end.error is not None
    assert (each.end.error.type, each.end.error.message) == ("ConnectionFailed", "still down")
    assert run.end is not None
    assert run.end.error == each.end.error


async def test_a_run_in_a_session_begins_with_its_messages_and_its_agent(tmp_path: Path) -> None:
    session = Session("u7", InMemorySessions())
    back = Agent("Back", model=ScriptedHandler(["Here.", "Still here."]))
    front = Agent("Front", model=ScriptedHandler([call("transfer_to_back")]), handoffs=[back])
    for text in ("Hi", "More"):
        config = RunConfig(trace=tmp_path / f"{text}.jsonl", next_agent="sticky")
        await Runner.run(front, text, session=session, run_config=config)
    [run] = read_trace(tmp_path / "More.jsonl").runs
    given = run.transcript[: run.start.input_count]
    assert run.start.agent == "Back"
    assert [each.message["role"] for each in given] == ["user", "assistant", "tool", "assistant", "user"]
    assert [each.message["content"] for each in (given[0], given[-1])] == ["Hi", "More"]


async def test_a_run_whose_session_cannot_be_loaded_has_a_beginning_and_an_end(tmp_path: Path) -> None:
    class Broken(InMemorySessions):
        async def load(self, session: str, *, newest: int | None = None) -> list[Record]:
            raise OSError("no disk")

    config = RunConfig(trace=tmp_path / "t.jsonl")
    with pytest.raises(SessionError):
        await Runner.run(looking(), "Hi", session=Session("u7", Broken()), run_config=config)
    [run] = read_trace(tmp_path / "t.jsonl").runs
    assert run.end is not None
    assert run.end.error is not None


async def test_a_summary_is_a_run_of_its_own_and_stands_for_what_it_covers(tmp_path: Path) -> None:
    model = ScriptedHandler([*[call("look", {"word": str(n)}) for n in range(4)], "Done."])
    compact = Compact(at_messages=6, keep_turns=1, rest=ScriptedHandler(["Four words."]))
    config = RunConfig(trace=tmp_path / "t.jsonl")
    await Runner.run(Agent("A", model=model, tools=[look], compact=compact), "Hi", run_config=config)
    [run] = read_trace(tmp_path / "t.jsonl").runs
    [made] = [record for record in run.records if isinstance(record, CompactedTraced)]
    assert (made.why, made.how, made.replaced) == ("messages", "summarised", 4)
    [(key, inner)] = run.nested.items()
    assert key.endswith(".summary.A.0")
    assert inner.calls[0].reply == {"role": "assistant", "content": "Four words."}
    last = run.calls[-1].start
    assert [*last.summarised] == [(1, 4)]
    assert [*last.removed] == []


async def test_a_cut_result_is_another_form_of_the_whole_one(tmp_path: Path) -> None:
    model = ScriptedHandler([*[call("look", {"word": "x" * 99}) for _ in range(4)], "Done."])
    compact = Compact(tool_results=300, keep_turns=1)
    config = RunConfig(trace=tmp_path / "t.jsonl", detect_loops=False)
    await Runner.run(Agent("A", model=model, tools=[look], compact=compact), "Hi", run_config=config)
    [run] = read_trace(tmp_path / "t.jsonl").runs
    cut = [item for item in run.items.values() if "[... cut" in str(item.message.get("content"))]
    assert cut
    assert all(run.items[item.stands_for or 0].kind == "tool" for item in cut)
    assert [*run.calls[-1].start.removed] == []
