"""Runs that are kept in a session: what the next one is given, whatever happened to the one before."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from scenes import SCENES, Stage
from scenes_of_outcomes import MORE

from routelock import Agent, Message, RunConfig, Runner, RunResult, RunState, function_tool, handoff, tool
from routelock.errors import (
    ConfigError,
    HandlerError,
    InputGuardrailTripped,
    OutputGuardrailTripped,
    RoutelockError,
    RunTimeout,
    SessionConflict,
    SessionError,
)
from routelock.guardrails import GuardrailResult
from routelock.handlers.events import TextDelta
from routelock.handlers.port import Request
from routelock.history.messages import last_user_text
from routelock.history.validity import problems
from routelock.sessions import InMemorySessions, Session, SessionStore, SQLiteSessions
from routelock.sessions.stores import Record
from routelock.testing import ScriptedHandler, assert_valid, call, reply

pytestmark = pytest.mark.anyio

USER: Message = {"role": "user", "content": "Go on."}


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        yield InMemorySessions()
        return
    made = SQLiteSessions(tmp_path / "chats.db")
    yield made
    made.close()


@pytest.fixture
def session(store: SessionStore) -> Session:
    return Session("u", store)


@pytest.fixture
def memory() -> Session:
    return Session("u", InMemorySessions())


def agent(*replies: Any, name: str = "A", **options: Any) -> Agent[Any]:
    return Agent(name, model=ScriptedHandler(replies), **options)


@function_tool
async def add(a: int, b: int) -> int:
    """Add."""
    await anyio.lowlevel.checkpoint()
    return a + b


ADD = call("add", {"a": 1, "b": 2})


async def stored(session: Session) -> list[str]:
    """Return the text of each message in a session, or the names of its calls."""
    return told((await session.loaded()).messages)


def told(messages: Sequence[Any]) -> list[str]:
    return [
        ",".join(each["function"]["name"] for each in message.get("tool_calls") or ())
        or str(message["content"])
        for message in messages
    ]


async def run(
    agent: Agent[Any], input: Any, session: Session, *, stream: bool = False, **options: Any
) -> Any:
    if stream:
        return await Runner.run_streamed(agent, input, session=session, **options).drain()
    return await Runner.run(agent, input, session=session, **options)


# -- what the next run is given --


async def test_the_first_run_is_given_its_input_alone(session: Session) -> None:
    result = await run(agent("Hello."), "Hi", session)
    assert result.calls[0].messages == [{"role": "user", "content": "Hi"}]
    assert await stored(session) == ["Hi", "Hello."]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_next_run_is_given_what_came_before(session: Session, stream: bool) -> None:
    await run(agent(ADD, "Three.", tools=[add]), "1+2?", session, stream=stream)
    result = await run(agent("You are welcome."), "Thanks.", session, stream=stream)
    assert told(result.calls[0].messages) == ["1+2?", "add", "3", "Three.", "Thanks."]
    assert told([item.message for item in result.new_items]) == ["You are welcome."]
    assert [item.id for item in result.items] == [*range(6)]


ALL = {**SCENES, **MORE}
STOPPED = {"input guarded", "output guarded"}
"""Of these later runs see less, see below."""


@pytest.mark.asyncio_only
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", sorted(ALL.keys() - STOPPED))
async def test_session_gives_the_input_list_of_the_last_result(
    name: str, stream: bool, memory: Session
) -> None:
    """As ``earlier.to_input_list() + [message]``, whatever happened and however it ended."""
    scene = ALL[name]
    first = await ended(scene, Stage(), memory, stream=stream)
    plain = await ended(scene, Stage(), None, stream=stream)
    assert first.messages == plain.messages
    by_hand = await Runner.run(agent("Yes."), [*plain.to_input_list(), USER])
    kept = await run(agent("Yes."), [USER], memory)
    assert kept.calls[0].messages == by_hand.calls[0].messages
    assert_valid(kept.calls[0].messages)


async def ended(scene: Any, stage: Stage, session: Session | None, *, stream: bool) -> RunResult[Any]:
    options = {"max_turns": scene.max_turns, "run_config": scene.settings(), "session": session}
    try:
        if stream:
            return await Runner.run_streamed(scene.agent(stage), "Hi", **options).drain()
        return await Runner.run(scene.agent(stage), "Hi", **options)
    except RoutelockError as error:
        return error.result


async def test_sync_runs_are_kept_as_well(tmp_path: Path) -> None:
    def talk() -> RunResult[Any]:
        session = Session("u", SQLiteSessions(tmp_path / "chats.db"))
        Runner.run_sync(agent("Hello."), "Hi", session=session)
        return Runner.run_sync(agent("Again?"), "Hi", session=session)

    result = await anyio.to_thread.run_sync(talk)
    assert told(result.messages) == ["Hi", "Hello.", "Hi", "Again?"]


async def test_provider_data_goes_back_to_its_family_and_to_no_other(session: Session) -> None:
    signed = reply("Hm.", reasoning="secret thoughts")
    await run(Agent("A", model=ScriptedHandler([signed], name="x", family="one")), "Hi", session)
    for family, is_there in (("one", True), ("two", False)):
        model = ScriptedHandler(["Yes."], name="y", family=family)
        result = await run(Agent("A", model=model), "And?", session)
        assert any("reasoning_content" in message for message in result.calls[0].messages) == is_there


async def test_calls_of_another_agent_become_a_note(session: Session) -> None:
    await run(agent(ADD, "Three.", tools=[add]), "1+2?", session)
    result = await run(agent("Hello, I am B.", name="B", tools=[]), "Hi", session)
    shown = result.calls[0].messages
    assert all(not message.get("tool_calls") for message in shown)
    assert "add" in str(shown)


# -- turn by turn --


@pytest.mark.parametrize("stream", [False, True])
async def test_turns_before_an_error_are_stored(session: Session, stream: bool) -> None:
    with pytest.raises(HandlerError):
        await run(agent(ADD, ADD, RuntimeError("boom"), tools=[add]), "1+2?", session, stream=stream)
    assert await stored(session) == ["1+2?", "add", "3", "add", "3"]
    result = await run(agent("Sorry."), "And?", session)
    assert result.repairs == ()


async def test_each_turn_is_stored_in_one_piece_when_it_ends(session: Session) -> None:
    seen: list[list[str]] = []

    @function_tool
    async def look() -> str:
        """Look."""
        seen.append(await stored(session))
        return "looked"

    two = [call("look", id="a"), call("look", id="b")]
    await run(agent(call("look", id="c"), two, "Done.", tools=[look]), "Hi", session)
    assert seen == [["Hi"], *[["Hi", "look", "looked"]] * 2]
    assert len(await session.records(None)) == 4


async def test_turns_of_a_left_stream_are_stored(session: Session) -> None:
    async with Runner.run_streamed(
        agent(ADD, "A long answer.", tools=[add]), "1+2?", session=session
    ) as stream:
        async for event in stream:
            if event.type == "text_delta":
                break
    assert await stored(session) == told(stream.result.messages)
    assert (await stored(session))[:3] == ["1+2?", "add", "3"]


@pytest.mark.parametrize("stream", [False, True])
async def test_turns_of_a_cancelled_run_are_stored(session: Session, stream: bool) -> None:
    @function_tool
    async def wait() -> str:
        """Wait."""
        scope.cancel()
        await anyio.sleep_forever()
        return ""

    both = [call("add", {"a": 1, "b": 2}, id="a"), call("wait", id="w")]
    with anyio.CancelScope() as scope:
        await run(agent(ADD, both, tools=[add, wait]), "Hi", session, stream=stream)
    assert scope.cancelled_caught
    assert (await stored(session))[:4] == ["Hi", "add", "3", "add,wait"]
    found = await session.load()
    assert problems(found.messages) == []
    result = await run(agent("Sorry."), "And?", session)
    assert result.final_output == "Sorry."


async def test_turns_of_a_timed_out_run_are_stored(session: Session) -> None:
    @function_tool
    async def wait() -> str:
        """Wait."""
        await anyio.sleep_forever()
        return ""

    with pytest.raises(RunTimeout):
        await run(
            agent(ADD, call("wait"), tools=[add, wait]), "Hi", session, run_config=RunConfig(timeout=1.0)
        )
    assert (await stored(session))[:4] == ["Hi", "add", "3", "wait"]


async def test_turns_of_a_limited_run_are_stored(session: Session) -> None:
    config = RunConfig(on_limit="return")
    await run(agent(ADD, ADD, tools=[add]), "Hi", session, max_turns=1, run_config=config)
    assert await stored(session) == ["Hi", "add", "3"]


# -- two writers --


async def test_second_concurrent_run_raises_a_conflict(session: Session) -> None:
    @function_tool
    async def meanwhile() -> str:
        """Let another run of the same session come first."""
        await run(agent("Second."), "Quick!", session)
        return "done"

    with pytest.raises(SessionConflict) as caught:
        await run(agent(call("meanwhile"), "First.", tools=[meanwhile]), "Slow.", session)
    assert await stored(session) == ["Slow.", "Quick!", "Second."]
    assert told(caught.value.result.messages) == ["Slow.", "meanwhile", "done"]
    assert caught.value.result.errors == ()


async def test_conflict_says_where_the_result_is(session: Session) -> None:
    """Its input was stored, so it is not true that nothing was."""
    later = agent("Second.")

    @function_tool
    async def meanwhile() -> None:
        """Let another run of the same session come first."""
        await run(later, "Quick!", session)

    with pytest.raises(SessionConflict, match="that of a run is in error"):
        await run(agent(call("meanwhile"), tools=[meanwhile]), "Slow.", session)


async def test_of_two_concurrent_starts_one_calls_the_model(session: Session) -> None:
    asked: list[str] = []
    outcomes: list[str] = []

    async def one(name: str) -> None:
        model = ScriptedHandler(["Yes."], name=name)
        try:
            await run(Agent("A", model=model), name, session)
            outcomes.append("done")
        except SessionConflict:
            outcomes.append("conflict")
        asked.extend(model.name for _ in model.requests)

    loaded = session.loaded
    ready = anyio.Event()

    class Together(Session):
        """Both have read the session before either writes."""

        async def loaded(self, run_id: str | None = None) -> Any:
            found = await loaded(run_id)
            waiting.append(1)
            if len(waiting) == 2:
                ready.set()
            await ready.wait()
            return found

    waiting: list[int] = []
    session = Together("u", session.store)
    async with anyio.create_task_group() as group:
        group.start_soon(one, "a")
        group.start_soon(one, "b")
    assert sorted(outcomes) == ["conflict", "done"]
    assert len(asked) == 1


# -- who answers --


def desk(first: Sequence[Any], second: Sequence[Any]) -> Agent[Any]:
    billing = agent(*second, name="billing")
    return agent(*first, name="front", handoffs=[handoff(billing)])


STICKY = RunConfig(next_agent="sticky")


async def test_sticky_agent_answers_the_next_message(session: Session) -> None:
    await run(desk([call("transfer_to_billing")], ["Paid."]), "Bill?", session, run_config=STICKY)
    result = await run(desk([], ["Again?"]), "And?", session, run_config=STICKY)
    assert (result.last_agent.name, result.final_output) == ("billing", "Again?")
    assert (await session.load()).next_agent == "billing"


async def test_without_sticky_the_agent_of_the_run_answers(session: Session) -> None:
    await run(desk([call("transfer_to_billing")], ["Paid."]), "Bill?", session, run_config=STICKY)
    result = await run(desk(["Front."], []), "And?", session)
    assert result.last_agent.name == "front"
    assert (await session.load()).next_agent is None


async def test_work_without_an_answer_is_shown_though_another_run_answered_its_call_id(
    session: Session,
) -> None:
    def asks(*replies: Any) -> Agent[Any]:
        billing = agent(*replies, name="billing", tools=[add])
        asking = call("transfer_to_billing", id="c1")
        return agent(asking, "Done.", name="front", handoffs=[handoff(billing, return_to_caller=True)])

    await run(asks("It is paid."), "Bill?", session)
    newest = Session("u", session.store, max_items=1)  # so the second run does not know the id
    with pytest.raises(RoutelockError, match="Max turns"):
        await run(asks(ADD, "Never."), "Again?", newest, max_turns=2)
    assert (await stored(session))[-3:] == ["transfer_to_billing", "add", "3"]


async def test_missing_sticky_agent_is_named_in_a_warning(session: Session) -> None:
    await run(desk([call("transfer_to_billing")], ["Paid."]), "Bill?", session, run_config=STICKY)
    result = await run(agent("Hello.", name="front"), "And?", session, run_config=STICKY)
    assert result.last_agent.name == "front"
    (warning,) = result.warnings
    assert (
        warning
        == "session 'u' names the agent 'billing', which does not exist, so 'front' answers. Known: front"
    )


# -- what guardrails stopped --


async def test_refused_input_is_hidden_from_later_runs(session: Session) -> None:
    async def no_secrets(context: Any, who: Any, messages: Any) -> GuardrailResult:
        return GuardrailResult("secret" in last_user_text(messages))

    guarded = agent("Hm.", input_guardrails=[no_secrets])
    for who, config in ((guarded, None), (agent("Hm."), RunConfig(input_guardrails=[no_secrets]))):
        with pytest.raises(InputGuardrailTripped):
            await run(who, "A secret.", session, run_config=config)
    result = await run(agent("Hello."), "Hi", session)
    assert told(result.messages) == ["Hi", "Hello."]
    assert "A secret." in str(await session.records(None))


async def test_refused_reply_is_hidden_from_later_runs(session: Session) -> None:
    async def polite(context: Any, who: Any, output: Any) -> GuardrailResult:
        return GuardrailResult(output == "Rude.")

    with pytest.raises(OutputGuardrailTripped):
        await run(agent(ADD, "Rude.", tools=[add], output_guardrails=[polite]), "1+2?", session)
    assert await stored(session) == ["1+2?", "add", "3"]
    assert "Rude." in str(await session.records(None))


# -- going on with a run --


ASK: Any = {"type": "function", "function": {"name": "ask"}}
EXTERNAL = RunConfig(external_tools=[ASK])


async def test_a_run_that_waits_goes_on_in_its_session(session: Session) -> None:
    front = agent("Hello.", call("ask", id="q"), "Blue, then.")
    await run(front, "Hi", session)
    waiting = (await run(front, "A cup.", session, run_config=EXTERNAL)).state().to_json()
    assert await stored(session) == ["Hi", "Hello.", "A cup.", "ask"]
    state = RunState.from_json(waiting, agents=[front])
    answered = state.with_answers([{"role": "tool", "tool_call_id": "q", "content": "blue"}])
    result = await run(front, answered, Session("u", session.store), run_config=EXTERNAL)
    assert result.final_output == "Blue, then."
    assert await stored(session) == ["Hi", "Hello.", "A cup.", "ask", "blue", "Blue, then."]


async def test_the_answer_to_a_call_may_be_the_next_message(session: Session) -> None:
    front = agent(call("ask", id="q"), "Blue, then.")
    await run(front, "A cup.", session, run_config=EXTERNAL)
    result = await run(front, [{"role": "tool", "tool_call_id": "q", "content": "blue"}], session)
    assert (result.final_output, result.repairs) == ("Blue, then.", ())


async def test_state_is_refused_after_another_run(session: Session) -> None:
    front = agent(call("ask", id="q"), "Never mind.")
    waiting = (await run(front, "A cup.", session, run_config=EXTERNAL)).state()
    await run(front, "Or not.", session)
    answered = waiting.with_answers([{"role": "tool", "tool_call_id": "q", "content": "blue"}])
    with pytest.raises(SessionConflict, match="another run has used the session since"):
        await run(front, answered, session)
    assert (await stored(session))[-1] == "Never mind."


async def test_run_without_session_may_resume_in_an_empty_one(session: Session) -> None:
    front = agent(ADD, "Three.", tools=[add])
    stopped = await Runner.run(front, "1+2?", max_turns=1, run_config=RunConfig(on_limit="return"))
    await run(front, stopped.state(), session)
    assert await stored(session) == ["1+2?", "add", "3", "Three."]


async def test_resuming_an_earlier_state_replaces_later_turns(session: Session) -> None:
    front = agent(ADD, ADD, "Three.", tools=[add])
    stopped = await run(front, "1+2?", session, max_turns=1, run_config=RunConfig(on_limit="return"))
    state = stopped.state()
    await run(front, state, session)
    assert await stored(session) == ["1+2?", "add", "3", "add", "3", "Three."]
    await run(agent("Four?", tools=[add]), state, session)
    assert await stored(session) == ["1+2?", "add", "3", "Four?"]
    assert "Three." in str(await session.records(None))


async def test_repeated_run_is_stored_once(session: Session) -> None:
    config = RunConfig(run_id="r1")
    await run(agent("Hello."), "Hi", session)
    with pytest.raises(HandlerError):
        await run(agent(ADD, RuntimeError("boom"), tools=[add]), "1+2?", session, run_config=config)
    result = await run(agent(ADD, "Three.", tools=[add]), "1+2?", session, run_config=config)
    assert told(result.calls[0].messages) == ["Hi", "Hello.", "1+2?"]
    assert await stored(session) == ["Hi", "Hello.", "1+2?", "add", "3", "Three."]
    before = await session.records(None)
    await run(agent(ADD, "Three.", tools=[add]), "1+2?", session, run_config=config)
    assert await session.records(None) == before


async def test_repeated_run_that_differs_replaces_the_first(session: Session) -> None:
    config = RunConfig(run_id="r1")
    await run(agent(ADD, "Three.", tools=[add]), "1+2?", session, run_config=config)
    result = await run(agent("It is 3."), "1+2?", session, run_config=config)
    assert await stored(session) == ["1+2?", "It is 3."]
    (warning,) = result.warnings
    assert "its earlier tool results (1) are no longer shown" in warning


async def test_repeated_run_begins_at_the_agent_of_the_first_attempt(session: Session) -> None:
    config = replace(STICKY, run_id="r1")
    with pytest.raises(HandlerError):
        await run(
            desk([call("transfer_to_billing")], [RuntimeError("boom")]), "Bill?", session, run_config=config
        )
    result = await run(desk([call("transfer_to_billing")], ["Paid."]), "Bill?", session, run_config=config)
    assert [made.agent for made in result.calls] == ["front", "billing"]
    assert result.warnings == ()


async def test_run_id_of_another_input_is_refused(session: Session) -> None:
    config = RunConfig(run_id="always the same")
    await run(agent("Hello."), "Hi", session, run_config=config)
    with pytest.raises(ConfigError, match="The same id means the same run"):
        await run(agent("Yes?"), "And?", session, run_config=config)
    assert await stored(session) == ["Hi", "Hello."]


# -- stores that fail --


class Shaky(InMemorySessions):
    """A store that fails on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: set[int] = set()
        self.hanging = False
        self.lost: set[int] = set()
        """Numbers whose answer is lost: what was to be stored is stored."""

    async def append(self, session: str, after: int, text: str, *, alone: bool = False) -> None:
        if self.hanging:
            await anyio.sleep_forever()
        if after + 1 in self.failing:
            raise OSError("the disk is full")
        await super().append(session, after, text, alone=alone)
        if after + 1 in self.lost:
            self.lost.remove(after + 1)
            raise OSError("the connection is lost")


async def test_turn_that_cannot_be_stored_ends_the_run() -> None:
    store = Shaky()
    store.failing = {3, 4}
    with pytest.raises(
        SessionError, match=r"Session 'u' could not be stored: OSError: the disk is full"
    ) as caught:
        await run(agent(ADD, ADD, "Three.", tools=[add]), "1+2?", Session("u", store))
    assert told(caught.value.result.messages) == ["1+2?", "add", "3", "add", "3"]
    assert [problem.kind for problem in caught.value.result.errors] == ["session"]
    store.failing.clear()
    assert await stored(Session("u", store)) == ["1+2?", "add", "3"]
    state = caught.value.result.state()
    await run(agent("Three.", tools=[add]), state, Session("u", store))
    assert await stored(Session("u", store)) == ["1+2?", "add", "3", "add", "3", "Three."]


async def test_an_error_of_the_run_is_not_hidden_by_one_of_the_store() -> None:
    store = Shaky()
    with pytest.raises(HandlerError, match="boom") as caught:
        await run(agent(ADD, failing_after(store), tools=[add]), "1+2?", Session("u", store))
    (problem,) = caught.value.result.errors
    assert problem.kind == "session"
    assert (
        problem.message
        == "The end of the run is not in session 'u': Session 'u' could not be stored: "
        + ("OSError: the disk is full")
    )


def failing_after(store: Shaky) -> Any:
    """A reply that breaks off after the first words, while the store begins to fail."""

    def broken(request: Request) -> Any:
        store.failing = {*range(9)}
        return [TextDelta("Some"), RuntimeError("boom")]

    return broken


async def test_hanging_store_does_not_block_a_cancelled_run() -> None:
    store = Shaky()
    session = Session("u", store, grace=0.05)

    @function_tool
    async def hang() -> str:
        """Cancel the run, and let the store hang."""
        store.hanging = True
        scope.cancel()
        await anyio.sleep_forever()
        return ""

    stream = Runner.run_streamed(agent(call("hang"), tools=[hang]), "Hi", session=session)
    with anyio.CancelScope() as scope:
        await stream.drain()
    assert [problem.message for problem in stream.result.errors] == [
        "The end of the run is not in session 'u': It took longer than 0.05 s."
    ]


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_lost_response_of_the_store_does_no_harm(lost: int) -> None:
    """The turn is stored, its confirmation is lost, and the retry stores the same."""
    store = Shaky()
    store.lost = {lost}
    with pytest.raises(SessionError) as caught:
        await run(agent(ADD, "Three.", tools=[add]), "1+2?", Session("u", store))
    assert caught.value.result.errors == ()
    assert await stored(Session("u", store)) == ["1+2?", "add", "3", "Three."][: [1, 3, 4][lost - 1]]


async def test_no_model_is_called_if_the_session_cannot_be_loaded() -> None:
    class Gone(InMemorySessions):
        async def load(self, session: str, *, newest: int | None = None) -> list[Record]:
            raise OSError("no route to host")

    front = agent("Hello.")
    with pytest.raises(SessionError, match="could not be loaded: OSError: no route to host"):
        await run(front, "Hi", Session("u", Gone()))


# -- limits --


async def test_the_newest_are_loaded_and_all_are_kept(store: SessionStore) -> None:
    for number in range(5):
        await run(agent(f"Answer {number}."), f"Question {number}", Session("u", store))
    result = await run(agent("Yes."), "And?", Session("u", store, max_items=3))
    assert told(result.messages) == ["Answer 3.", "Question 4", "Answer 4.", "And?", "Yes."]
    assert len(await stored(Session("u", store))) == 12


@pytest.mark.pairwise
@pytest.mark.parametrize("limit", range(1, 9))
async def test_no_answer_is_loaded_without_its_call(session: Session, limit: int) -> None:
    two = [call("add", {"a": 1, "b": 2}, id="a"), call("add", {"a": 3, "b": 4}, id="b")]
    await run(agent(two, ADD, "Ten.", tools=[add]), "1+2+3+4?", session)
    limited = Session("u", session.store, max_items=limit)
    found = await limited.load()
    assert len(found.messages) <= limit
    assert found.repairs == []
    result = await run(agent("Yes.", tools=[add]), "And?", limited)
    assert result.repairs == ()


async def test_bytes_are_a_limit_as_well(session: Session) -> None:
    messages = [{"role": "user", "content": f"{number:04}" + "é" * 48} for number in range(100)]
    for message in messages:
        await session.add([message])
    each = len(json.dumps(messages[0], ensure_ascii=False).encode())
    found = await Session("u", session.store, max_bytes=10 * each + 9).load()
    assert [*found.messages] == messages[-10:]
    everything = await Session("u", session.store, max_bytes=10**6, max_items=100).load()
    assert len(everything.messages) == 100
    nothing = await Session("u", session.store, max_bytes=20).load()
    assert [*nothing.messages] == []


async def test_only_needed_records_are_read() -> None:
    asked: list[int | None] = []

    class Counting(InMemorySessions):
        async def load(self, session: str, *, newest: int | None = None) -> list[Record]:
            asked.append(newest)
            return await super().load(session, newest=newest)

    session = Session("u", Counting(), max_items=10)
    for number in range(30):
        await session.add([{"role": "user", "content": str(number)}])
    asked.clear()
    assert len((await session.load()).messages) == 10
    assert asked == [10, 40]


# -- mistakes of the app --


@pytest.mark.parametrize("name", ["", "  ", None, 7, "a\x00b", "\ud800"])
def test_a_session_needs_a_name(name: Any) -> None:
    with pytest.raises(ConfigError, match="name of a session"):
        Session(name, InMemorySessions())


@pytest.mark.parametrize("store", ["chats.db", None, InMemorySessions])
def test_a_session_needs_a_store(store: Any) -> None:
    """openai-agents has ``SQLiteSession("user-7", "chats.db")``."""
    with pytest.raises(ConfigError, match=r"such as SQLiteSessions\('chats.db'\), not"):
        Session("user-7", store)


@pytest.mark.parametrize("limits", [{"max_items": 0}, {"max_bytes": -1}, {"max_items": "3"}])
def test_limits_are_positive_numbers(limits: Any) -> None:
    with pytest.raises(ConfigError, match="must be at least 1"):
        Session("u", InMemorySessions(), **limits)


async def test_session_must_be_a_session() -> None:
    with pytest.raises(ConfigError, match=r"such as Session\('user-7', SQLiteSessions"):
        await Runner.run(agent("Hello."), "Hi", session="user-7")  # type: ignore[arg-type]


async def test_messages_that_are_no_json_are_refused(session: Session) -> None:
    with pytest.raises(ConfigError, match=r"messages\[0\].content\[0\].image: bytes is no JSON type"):
        await session.add([{"role": "user", "content": [{"type": "x", "image": b"..."}]}])
    with pytest.raises(ConfigError, match="Add a list of messages, not str"):
        await session.add("Hi")  # type: ignore[arg-type]


async def test_a_store_is_plain_text_and_json(memory: Session) -> None:
    """So that it can be read without routelock."""
    await run(agent("Hello."), "Hi", memory)
    documents = [json.loads(text) for _, text in await memory.records(None)]
    assert [document["items"][0]["message"]["content"] for document in documents] == ["Hi", "Hello."]


# -- waiting for approval --


def guarded(*replies: Any) -> tuple[Agent[Any], list[int]]:
    """An agent whose payments need approval, and what was paid."""
    paid: list[int] = []

    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    return agent(*replies, tools=[add, pay]), paid


PAY = [call("pay", {"amount": 40}, id="p"), call("add", {"a": 1, "b": 2}, id="a")]


@pytest.mark.parametrize("stream", [False, True])
async def test_approved_run_resumes_in_its_session(session: Session, stream: bool) -> None:
    clerk, paid = guarded(PAY, "It is on its way.")
    waiting = await run(clerk, "My money!", session, stream=stream)
    assert await stored(session) == ["My money!", "pay,add", "3"]
    state = RunState.from_json(waiting.state().to_json(), agents=[clerk])
    approved = state.approve(state.interruptions[0])
    result = await run(clerk, approved, Session("u", session.store), stream=stream)
    assert (result.final_output, paid) == ("It is on its way.", [40])
    assert await stored(session) == ["My money!", "pay,add", "3", "paid 40", "It is on its way."]
    assert problems((await session.load()).messages) == []


async def test_new_message_instead_of_a_decision_drops_the_call(session: Session) -> None:
    clerk, paid = guarded(PAY, "Then not.")
    waiting = await run(clerk, "My money!", session)
    result = await run(clerk, "Never mind.", session)
    assert (result.final_output, paid) == ("Then not.", [])
    assert result.repairs == ("added a missing answer to tool call 'p'",)
    state = waiting.state()
    with pytest.raises(SessionConflict):
        await run(clerk, state.approve(state.interruptions[0]), session)
    assert paid == []


# -- a state that two people carry out --


class Till:
    """Counts what is paid."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    def clerk(self, *replies: Any) -> Agent[Any]:
        @tool(needs_approval=True)
        async def pay(amount: int) -> str:
            """Pay."""
            await anyio.sleep(0.01)
            self.paid.append(amount)
            return f"paid {amount}"

        return agent(*replies, tools=[pay])


PAYS = [call("pay", {"amount": 5}, id="p"), call("pay", {"amount": 6}, id="q")]


async def test_state_approved_twice_is_resumed_once(session: Session) -> None:
    till = Till()
    clerk = till.clerk(PAYS[0], "Paid.", "Paid again.")
    first = await run(clerk, "Pay.", session)
    state = first.state().approve(first.interruptions[0])
    await run(clerk, state, session)
    with pytest.raises(SessionConflict, match="was already resumed in session"):
        await run(clerk, state, session)
    assert till.paid == [5]
    assert await stored(session) == ["Pay.", "pay", "paid 5", "Paid."]


async def test_of_two_concurrent_approvals_one_runs_the_tool(session: Session) -> None:
    till = Till()
    clerk = till.clerk(PAYS[0], "Paid.", "Paid.")
    first = await run(clerk, "Pay.", session)
    state = first.state().approve(first.interruptions[0])
    refused: list[SessionConflict] = []

    async def resume() -> None:
        try:
            await run(clerk, state, session)
        except SessionConflict as error:
            refused.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(resume)
        group.start_soon(resume)
    assert (till.paid, len(refused)) == ([5], 1)
    assert await stored(session) == ["Pay.", "pay", "paid 5", "Paid."]


async def test_different_approvals_of_one_state_conflict(session: Session) -> None:
    till = Till()
    clerk = till.clerk(PAYS, "Paid.")
    first = await run(clerk, "Pay.", session)
    one = first.state().approve(first.interruptions[0])
    second = await run(clerk, one, session)
    with pytest.raises(SessionConflict):
        await run(clerk, one.approve(first.interruptions[1]), session)
    third = await run(clerk, second.state().approve(second.interruptions[0]), session)
    assert (till.paid, third.final_output) == ([5, 6], "Paid.")


async def test_resuming_without_a_decision_claims_nothing(session: Session) -> None:
    till = Till()
    clerk = till.clerk(PAYS[0], "Paid.")
    first = await run(clerk, "Pay.", session)
    assert (await run(clerk, first.state(), session)).stop_reason == "requires_action"
    done = await run(clerk, first.state().approve(first.interruptions[0]), session)
    assert (till.paid, done.final_output) == ([5], "Paid.")


async def test_state_loaded_before_an_approval_is_used_up(session: Session) -> None:
    till = Till()
    clerk = till.clerk(PAYS[0], "Paid.", "Paid again.")
    first = await run(clerk, "Pay.", session)
    looked = (await run(clerk, first.state(), session)).state()
    await run(clerk, first.state().approve(first.interruptions[0]), session)
    with pytest.raises(SessionConflict, match="was already resumed in session"):
        await run(clerk, looked.approve(looked.interruptions[0]), session)
    assert till.paid == [5]


async def test_state_of_a_refused_run_is_refused(session: Session) -> None:
    till = Till()
    clerk = till.clerk(PAYS[0], "Paid.", "Paid again.")
    first = await run(clerk, "Pay.", session)
    state = first.state().approve(first.interruptions[0])
    await run(clerk, state, session)
    for _ in range(2):
        with pytest.raises(SessionConflict) as refused:
            await run(clerk, state, session)
        state = refused.value.result.state()
    assert till.paid == [5]


@pytest.mark.parametrize("nested", [False, True])
async def test_resuming_without_a_decision_after_an_approval_claims_nothing(
    session: Session, nested: bool
) -> None:
    """A decision on an earlier call does not decide this one."""
    till = Till()
    clerk = till.clerk(PAYS[0], call("give", {"amount": 6}, id="q"), "Done.")

    @tool(needs_approval=True)
    def give(amount: int) -> str:
        """Give."""
        till.paid.append(amount)
        return f"gave {amount}"

    clerk = replace(clerk, tools=[*clerk.tools, give])
    if nested:
        clerk = agent(call("a", {"input": "Pay."}, id="o"), "Done.", tools=[clerk.as_tool()])
    first = await run(clerk, "Pay.", session)
    second = await run(clerk, first.state().approve(first.interruptions[0], always=True), session)
    assert (await run(clerk, second.state(), session)).stop_reason == "requires_action"
    third = await run(clerk, second.state().approve(second.interruptions[0]), session)
    assert (till.paid, third.final_output) == ([5, 6], "Done.")


async def test_answers_given_twice_are_used_once(session: Session) -> None:
    till = Till()
    ask = {"type": "function", "function": {"name": "ask"}}
    settings = RunConfig(external_tools=[ask])

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        till.paid.append(amount)
        return f"paid {amount}"

    clerk = agent(call("ask", id="a"), PAYS[0], "Paid.", PAYS[0], "Paid again.", tools=[pay])
    first = await run(clerk, "Pay.", session, run_config=settings)
    answered = first.state().with_answers([{"role": "tool", "tool_call_id": "a", "content": "yes"}])
    await run(clerk, answered, session, run_config=settings)
    with pytest.raises(SessionConflict, match="was already resumed in session"):
        await run(clerk, answered, session, run_config=settings)
    assert till.paid == [5]
    assert await stored(session) == ["Pay.", "ask", "yes", "pay", "paid 5", "Paid."]


async def test_approvals_in_a_sub_run_follow_one_another(session: Session) -> None:
    """The run itself stands where it stood between two of them."""
    till = Till()
    boss = agent(call("a", {"input": "Pay."}, id="o"), "Done.", tools=[till.clerk(PAYS, "Paid.").as_tool()])
    first = await run(boss, "Pay.", session)
    one = RunState.from_json(first.state().approve(first.interruptions[0]).to_json(), agents=[boss])
    second = await run(boss, one, session)
    with pytest.raises(SessionConflict):
        await run(boss, one, session)
    third = await run(boss, second.state().approve(second.interruptions[0]), session)
    assert (till.paid, third.final_output) == ([5, 6], "Done.")


async def test_second_decision_changes_nothing(session: Session) -> None:
    """The result of the first decision stays in the session, for the next run."""
    settings = RunConfig(external_tools=[{"type": "function", "function": {"name": "ask"}}])
    clerk = agent(call("ask", id="a"), "He agrees.", "He does not.")
    waiting = (await run(clerk, "A discount?", session, run_config=settings)).state()
    yes, no = (
        waiting.with_answers([{"role": "tool", "tool_call_id": "a", "content": word}])
        for word in ("yes", "no")
    )
    await run(clerk, yes, session, run_config=settings)
    with pytest.raises(SessionConflict, match="was already resumed in session"):
        await run(clerk, no, session, run_config=settings)
    assert await stored(session) == ["A discount?", "ask", "yes", "He agrees."]


@pytest.mark.parametrize("stream", [False, True])
async def test_repeated_run_may_be_approved_again(session: Session, stream: bool) -> None:
    """It has calls of its own, which have not been run."""
    till, settings = Till(), RunConfig(run_id="r")
    clerk = till.clerk(PAYS[0], "Paid.", PAYS[1], "Paid again.")
    first = await run(clerk, "Pay.", session, run_config=settings)
    state = first.state().approve(first.interruptions[0])
    await run(clerk, state, session)
    again = await run(clerk, "Pay.", session, stream=stream, run_config=settings)
    result = await run(clerk, again.state().approve(again.interruptions[0]), session, stream=stream)
    assert (till.paid, result.final_output) == ([5, 6], "Paid again.")
    with pytest.raises(SessionConflict):
        await run(clerk, state, session)
    assert await stored(session) == ["Pay.", "pay", "paid 6", "Paid again."]


async def test_new_call_of_an_earlier_state_may_be_approved(session: Session) -> None:
    till = Till()
    clerk = till.clerk(RuntimeError("away"), PAYS[0], "Paid.", PAYS[1], "Paid again.")
    with pytest.raises(HandlerError) as failed:
        await run(clerk, "Pay.", session)
    earlier = failed.value.result.state()
    for _ in range(2):
        waiting = await run(clerk, earlier, session)
        await run(clerk, waiting.state().approve(waiting.interruptions[0]), session)
    assert till.paid == [5, 6]
    assert await stored(session) == ["Pay.", "pay", "paid 6", "Paid again."]


async def test_resuming_twice_without_a_decision_does_nothing(session: Session) -> None:
    """Even if the tool no longer needs approval."""
    paid: list[int] = []

    @tool(needs_approval=lambda context, arguments: context.context != "boss")
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    clerk = agent(PAYS[0], "Paid.", tools=[pay])
    waiting = (await run(clerk, "Pay.", session)).state()
    for _ in range(2):
        assert (await run(clerk, waiting, session, context="boss")).stop_reason == "requires_action"
    assert paid == []
    result = await run(clerk, waiting.approve(waiting.interruptions[0]), session)
    assert (paid, result.final_output) == ([5], "Paid.")


async def test_run_may_resume_after_a_lost_store_response() -> None:
    """The store has the claim but its response is lost: nothing was done, and no other run may resume."""
    store, till = Shaky(), Till()
    session, clerk = Session("u", store), till.clerk(PAYS[0], "Paid.")
    first = await run(clerk, "Pay.", session)
    state = first.state().approve(first.interruptions[0])
    store.lost = {3}  # its input and its first turn are 1 and 2
    with pytest.raises(SessionError) as caught:
        await run(clerk, state, session)
    with pytest.raises(SessionConflict):
        await run(clerk, state, session)
    result = await run(clerk, caught.value.result.state(), session)
    assert (till.paid, result.final_output) == ([5], "Paid.")


@pytest.mark.parametrize("stream", [False, True])
async def test_run_may_resume_after_a_timeout_in_the_store(tmp_path: Path, stream: bool) -> None:
    path, till = tmp_path / "chats.db", Till()
    store = SQLiteSessions(path)
    session, clerk = Session("u", store), till.clerk(PAYS[0], "Paid.")
    first = await run(clerk, "Pay.", session)
    state = first.state().approve(first.interruptions[0])
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    released = threading.Timer(0.6, other.rollback)
    released.start()
    with pytest.raises(RunTimeout) as caught:
        await run(clerk, state, session, stream=stream, run_config=RunConfig(timeout=0.2))
    released.join()
    result = await run(clerk, caught.value.result.state(), session)
    assert (till.paid, result.final_output) == ([5], "Paid.")
    other.close()
    store.close()


async def test_state_of_a_died_process_is_not_resumed_again(session: Session) -> None:
    """It is unknown whether it paid; a new run is told that the call has no answer."""
    till = Till()
    clerk = till.clerk(PAYS[0], "It is unknown.")
    first = await run(clerk, "Pay.", session)
    state = first.state().approve(first.interruptions[0])
    store = session.store_of_run(state)
    dead = Runner.run_streamed(clerk, state)._run  # it gets no further than this
    await store.open(dead)
    await store.claim(dead, [PAYS[0]])
    with pytest.raises(SessionConflict):
        await run(clerk, state, session)
    result = await run(clerk, "And?", session)
    assert (till.paid, result.final_output) == ([], "It is unknown.")


async def test_run_is_not_repeated_after_another_run(session: Session) -> None:
    """It would be shown its own first attempt as if it were another's."""
    settings = RunConfig(run_id="r")
    await run(agent("Done."), "Pay.", session, run_config=settings)
    await run(agent("Welcome."), "Thanks.", session)
    late = agent("Done again.")
    with pytest.raises(SessionConflict, match="already holds the run 'r'"):
        await run(late, "Pay.", session, run_config=settings)
    assert await stored(session) == ["Pay.", "Done.", "Thanks.", "Welcome."]


class LoadTogether:
    """A store whose first two loads return together, so that neither caller has stored anything."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self.loads = 0
        self.both = anyio.Event()

    async def load(self, session: str, *, newest: int | None = None) -> Sequence[Record]:
        found = await self.store.load(session, newest=newest)
        self.loads += 1
        if self.loads == 2:
            self.both.set()
        await self.both.wait()
        return found

    async def append(self, session: str, after: int, text: str, *, alone: bool = False) -> None:
        await self.store.append(session, after, text, alone=alone)


async def test_concurrent_runs_of_one_id_conflict(session: Session) -> None:
    """They send the same messages, which neither may take for its own."""
    session = Session(session.name, LoadTogether(session.store))
    ended: list[str] = []

    async def begin() -> None:
        try:
            settings = RunConfig(run_id="r")
            await run(agent(ADD, "Three.", tools=[add]), "1+2?", session, run_config=settings)
            ended.append("done")
        except SessionConflict:
            ended.append("conflict")

    async with anyio.create_task_group() as group:
        group.start_soon(begin)
        group.start_soon(begin)
    assert sorted(ended) == ["conflict", "done"]


async def test_equal_messages_added_concurrently_are_stored_twice() -> None:
    class Slow(InMemorySessions):
        async def load(self, session: str, *, newest: int | None = None) -> list[Record]:
            found = await super().load(session, newest=newest)
            await anyio.sleep(0.01)
            return found

    session = Session("u", Slow())
    refused: list[SessionConflict] = []

    async def say_yes() -> None:
        try:
            await session.add([{"role": "user", "content": "yes"}])
        except SessionConflict as error:
            refused.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(say_yes)
        group.start_soon(say_yes)
    assert len(await stored(session)) + len(refused) == 2
