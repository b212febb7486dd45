"""An agent that is called as a tool may have a conversation with its callers, in a session of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cancel_traps import Trap
from crashes import Dies, is_crash
from executors import Recording
from scenes import Recorder
from scripted_agents import answers_of

from routelock import Agent, RunConfig, Runner, RunState, ToolContext, function_handler, function_tool, tool
from routelock.errors import InputGuardrailTripped, ToolError
from routelock.guardrails import GuardrailResult
from routelock.handlers.port import Request
from routelock.sessions import InMemorySessions, Session
from routelock.state.journal import JournalSteps
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio


def ask(text: str, id: str) -> Any:
    return call("helper", {"input": text}, id=id)


def echo(**options: Any) -> Agent[Any]:
    """An agent that answers with the number of tasks that it was given so far, and the newest one."""

    async def answer(request: Request) -> str:
        asked = [message for message in request.messages if message["role"] == "user"]
        return f"{len(asked)}: {asked[-1].get('content')}"

    return Agent("helper", model=function_handler(answer), **options)


def manager(*replies: Any, helper: Agent[Any] | None = None, **options: Any) -> Agent[Any]:
    helper = helper or echo()
    return Agent("manager", model=ScriptedHandler([*replies, "Done."]), tools=[helper.as_tool(**options)])


async def play(agent: Agent[Any], *, stream: bool = False, **how: Any) -> Any:
    config = RunConfig(**how)
    if stream:
        return await Runner.run_streamed(agent, "Hi", run_config=config).drain()
    return await Runner.run(agent, "Hi", run_config=config)


async def stored(session: Session) -> list[Any]:
    return [message.get("content") for message in (await session.load()).messages]


@pytest.fixture
def session() -> Session:
    return Session("research", InMemorySessions())


@pytest.mark.parametrize("stream", [False, True])
async def test_agent_remembers_its_earlier_calls(session: Session, stream: bool) -> None:
    made = manager(ask("A", "c1"), ask("B", "c2"), session=session)
    result = await play(made, stream=stream)
    assert answers_of(result) == ["1: A", "2: B"]
    assert await stored(session) == ["A", "1: A", "B", "2: B"]


async def test_next_run_of_the_manager_goes_on_with_the_conversation(session: Session) -> None:
    await play(manager(ask("A", "c1"), session=session))
    assert answers_of(await play(manager(ask("B", "c1"), session=session))) == ["2: B"]


@pytest.mark.pairwise
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("at_once", [None, 1, 2])
@pytest.mark.parametrize("steps", [False, True])
async def test_calls_of_one_reply_follow_one_another(
    session: Session, stream: bool, at_once: int | None, steps: bool
) -> None:
    made = manager([ask("A", "c1"), ask("B", "c2"), ask("C", "c3")], session=session)
    executor = Recording() if steps else None
    result = await play(made, stream=stream, tools_at_once=at_once, executor=executor, run_id="r")
    assert answers_of(result) == ["1: A", "2: B", "3: C"]
    assert await stored(session) == ["A", "1: A", "B", "2: B", "C", "3: C"]


async def test_session_may_depend_on_the_context() -> None:
    store = InMemorySessions()

    async def of_customer(context: ToolContext[Any]) -> Session | None:
        return Session(context.arguments["input"][0], store) if context.user_id else None

    calls = [ask("Ann 1", "c1"), ask("Bob 1", "c2"), ask("Ann 2", "c3")]
    result = await play(manager(calls, session=of_customer), user_id="u")
    assert answers_of(result) == ["1: Ann 1", "1: Bob 1", "2: Ann 2"]
    assert answers_of(await play(manager(calls, session=of_customer))) == [
        "1: Ann 1",
        "1: Bob 1",
        "1: Ann 2",
    ]


@pytest.mark.parametrize("gives", ["raises", "text"])
async def test_session_function_that_fails_is_a_failure_of_the_call(gives: str) -> None:
    def broken(context: ToolContext[Any]) -> Any:
        if gives == "raises":
            raise LookupError("no such customer")
        return "research"

    (problem,) = (await play(manager(ask("A", "c1"), session=broken))).errors
    expected = {"raises": "LookupError: no such", "text": "must return a Session or None, not 'research'"}
    assert expected[gives] in problem.message


async def test_session_of_the_outer_run_is_refused(session: Session) -> None:
    result = await Runner.run(manager(ask("A", "c1"), session=session), "Hi", session=session)
    assert "Give the agent another session" in result.errors[0].message
    assert result.final_output == "Done."


async def test_task_that_a_guardrail_refused_is_not_shown_later(session: Session) -> None:
    def refuses(context: Any, who: Any, value: Any) -> GuardrailResult:
        return GuardrailResult("bad" in str(value))

    made = manager(ask("bad", "c1"), ask("B", "c2"), helper=echo(input_guardrails=[refuses]), session=session)
    result = await play(made)
    assert isinstance(result.errors[0].error, InputGuardrailTripped)
    assert answers_of(result)[1] == "1: B"


# -- approvals --


def careful(asked: Callable[[str], bool] = lambda text: True) -> Agent[Any]:
    """An agent that pays for each task, which needs an approval, and says how often it did."""

    @function_tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    async def answer(request: Request) -> Any:
        last = request.messages[-1]
        if last["role"] == "user" and asked(str(last.get("content"))):
            paid = sum(message["role"] == "tool" for message in request.messages)
            return {"tool_calls": [call("pay", id=f"p{paid}")], "content": None}
        texts = [message.get("content") for message in request.messages if message["role"] == "user"]
        return f"{len(texts)}: {texts[-1]}"

    return Agent("helper", model=function_handler(answer), tools=[pay])


async def resumed(made: Agent[Any], result: Any, *, stream: bool, **how: Any) -> Any:
    """Approve what waits, through JSON, and resume the run."""
    assert result.stop_reason == "requires_action"
    state = RunState.from_json(result.state().to_json(), agents=[made])
    for one in state.interruptions:
        state = state.approve(one)
    if stream:
        return await Runner.run_streamed(made, state, run_config=RunConfig(**how)).drain()
    return await Runner.run(made, state, run_config=RunConfig(**how))


@pytest.mark.parametrize("stream", [False, True])
async def test_history_is_loaded_and_stored_once_over_an_approval(session: Session, stream: bool) -> None:
    await play(manager(ask("A", "c1"), session=session))
    made = manager(ask("B", "c1"), helper=careful(), session=session)
    result = await resumed(made, await play(made, stream=stream), stream=stream)
    assert answers_of(result) == ["2: B"]
    assert await stored(session) == ["A", "1: A", "B", None, "paid", "2: B"]


@pytest.mark.parametrize("stream", [False, True])
async def test_next_call_with_the_session_waits_for_the_approval_too(session: Session, stream: bool) -> None:
    made = manager([ask("A", "c1"), ask("B", "c2")], helper=careful("A".__eq__), session=session)
    waiting = await play(made, stream=stream)
    assert [one.path for one in waiting.interruptions] == [("c1",)]
    assert "B" not in await stored(session)
    result = await resumed(made, waiting, stream=stream)
    assert answers_of(result) == ["1: A", "2: B"]
    assert await stored(session) == ["A", None, "paid", "1: A", "B", "2: B"]


async def test_state_that_is_resumed_without_a_decision_is_not_used_up(session: Session) -> None:
    made = manager(ask("A", "c1"), helper=careful(), session=session)
    waiting = await play(made)
    again = await Runner.run(made, waiting.state())
    assert again.stop_reason == "requires_action"
    assert answers_of(await resumed(made, waiting, stream=False)) == ["1: A"]


async def test_state_is_resumed_once_only(session: Session) -> None:
    made = manager(ask("A", "c1"), helper=careful(), session=session)
    waiting = await play(made)
    await resumed(made, waiting, stream=False)
    again = manager(helper=careful(), session=session)
    (answer,) = answers_of(await resumed(again, waiting, stream=False))
    assert "SessionConflict" in answer
    assert await stored(session) == ["A", None, "paid", "1: A"]


async def test_conflict_with_another_run_is_told_when_a_state_is_resumed(session: Session) -> None:
    made = manager(ask("A", "c1"), helper=careful(), session=session)
    waiting = await play(made)
    await play(manager(ask("Z", "c1"), session=session))
    (problem,) = (await resumed(made, waiting, stream=False)).errors
    assert "another run has used the session since" in problem.message


# -- runs that end early --


@pytest.mark.pairwise
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("at_once", [None, 1])
@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_call_that_ends_the_run_does_not_leave_others_waiting(
    stream: bool, at_once: int | None, steps: bool, place: int
) -> None:
    """The run ends, whether the tool comes before or after the agents."""

    @tool(on_error="raise")
    async def fail() -> str:
        """Fail."""
        raise LookupError("broken")

    calls = [ask("A", "c1"), ask("B", "c2")]
    calls.insert(place, call("fail", id="f"))
    session = Session("research", InMemorySessions())
    made = Agent("m", model=ScriptedHandler([calls]), tools=[echo().as_tool(session=session), fail])
    executor = Recording() if steps else None
    with pytest.raises(ToolError):
        await play(made, stream=stream, tools_at_once=at_once, executor=executor, run_id="r")


@pytest.mark.parametrize("stream", [False, True])
async def test_run_that_was_cancelled_anywhere_can_be_repeated(stream: bool) -> None:
    for k in range(1, 100):
        trap, session = Trap(k), Session("research", InMemorySessions())
        made, hooks = busy(session), Recorder(trap.wait)
        config = RunConfig(run_id="r")
        with trap.scope:
            if stream:
                await Runner.run_streamed(made, "Hi", hooks=hooks, run_config=config).drain()
            else:
                await Runner.run(made, "Hi", hooks=hooks, run_config=config)
        result = await Runner.run(made, "Hi", run_config=config)
        assert answers_of(result) == ["1: A", "2: B", "3: C", "4: D"], k
        assert await stored(session) == ALL
        if not trap.scope.cancelled_caught:
            break
    assert k > 20


# -- runs that are repeated --


def busy(session: Session, helper: Agent[Any] | None = None) -> Agent[Any]:
    """A manager that asks twice, then two things at once; what it says depends on what it is shown."""

    async def say(request: Request) -> Any:
        made = sum(message["role"] == "tool" for message in request.messages)
        calls = {0: [ask("A", "c1")], 1: [ask("B", "c2")], 2: [ask("C", "c3"), ask("D", "c4")]}.get(made)
        return {"tool_calls": calls, "content": None} if calls else "Done."

    tools = [(helper or echo()).as_tool(session=session)]
    return Agent("manager", model=function_handler(say), tools=tools)


ALL = ["A", "1: A", "B", "2: B", "C", "3: C", "D", "4: D"]


class Steps:
    """The steps of a journal, in memory."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    async def write(self, key: str, entry: str) -> None:
        self.entries[key] = entry

    async def run(self, agent: Agent[Any], input: Any, *, dies_after: int = 0, **how: Any) -> Any:
        """Replay what is recorded and go on; return None if the run dies."""
        config = RunConfig(executor=JournalSteps(dict(self.entries), self.write), run_id="r", **how)
        try:
            return await Runner.run(agent, input, hooks=Dies(dies_after), run_config=config)
        except BaseException as error:
            if not is_crash(error):
                raise
            return None


@pytest.mark.parametrize("at_once", [None, 1])
async def test_replayed_run_may_have_died_anywhere(at_once: int | None) -> None:
    for after in range(1, 60):
        session, steps = Session("research", InMemorySessions()), Steps()
        made = busy(session)
        died = await steps.run(made, "Hi", dies_after=after, tools_at_once=at_once) is None
        result = await steps.run(made, "Hi", tools_at_once=at_once)
        assert answers_of(result) == ["1: A", "2: B", "3: C", "4: D"], after
        assert [*result.nested] == ["c1", "c2", "c3", "c4"]
        assert result.errors == ()
        assert await stored(session) == ALL
        if not died:
            break
    assert after > 20


async def test_replayed_run_may_have_died_after_an_approval() -> None:
    for after in range(1, 40):
        session, steps = Session("research", InMemorySessions()), Steps()
        made = busy(session, careful("B".__eq__))
        waiting = await Steps().run(made, "Hi")
        state = waiting.state().approve(waiting.interruptions[0])
        died = await steps.run(made, state, dies_after=after) is None
        result = await steps.run(made, state)
        assert answers_of(result) == ["1: A", "2: B", "3: C", "4: D"], after
        assert await stored(session) == ["A", "1: A", "B", None, "paid", *ALL[3:]]
        if not died:
            break
    assert after > 15


async def test_repeated_run_that_differs_is_stopped_where_it_does(session: Session) -> None:
    await play(manager(ask("A", "c1"), ask("B", "c2"), session=session), run_id="r")
    again = manager(ask("A", "c1"), ask("X", "c2"), helper=echo(), session=session)
    result = await play(again, run_id="r")
    assert answers_of(result) == ["1: A", "2: X"]
    assert await stored(session) == ["A", "1: A", "X", "2: X"]


async def test_repeated_run_that_others_followed_stores_nothing_new(session: Session) -> None:
    await play(manager(ask("A", "c1"), ask("B", "c2"), session=session), run_id="r")
    result = await play(manager(ask("X", "c1"), session=session), run_id="r")
    assert "it is repeated and differs from what is stored" in result.errors[0].message
    assert await stored(session) == ["A", "1: A", "B", "2: B"]
