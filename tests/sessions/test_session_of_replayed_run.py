"""A state that an engine resumes in a session: it may do so again in the next process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crashes import Dies, is_crash

from routelock import Agent, RunConfig, Runner, RunState, function_handler, tool
from routelock.errors import SessionConflict
from routelock.handlers.port import Request
from routelock.history.messages import Message
from routelock.sessions import InMemorySessions, Session, SQLiteSessions
from routelock.state.journal import JournalSteps
from routelock.testing import call, reply

pytestmark = pytest.mark.anyio

PAYS = [call("pay", {"amount": 5}, id="p"), call("pay", {"amount": 6}, id="q")]

ALL = [None, "paid 5", None, "noted", "Paid."]

Settle = Callable[[RunState], RunState]


def settle(state: RunState) -> RunState:
    return state.approve(state.interruptions[0])


class Office:
    """A clerk that pays after an approval, and the records of an engine that runs it."""

    def __init__(self, session: Session, *calls: Any) -> None:
        self.session = session
        self.calls = calls or PAYS[:1]
        self.paid: list[int] = []
        self.entries: dict[str, str] = {}

    async def write(self, key: str, entry: str) -> None:
        self.entries[key] = entry

    def clerk(self) -> Agent[Any]:
        @tool(needs_approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        @tool
        def note() -> str:
            """Note."""
            return "noted"

        async def answer(request: Request) -> Message:
            turn = sum(message["role"] == "assistant" for message in request.messages)
            if turn == 0:
                return reply(calls=[*self.calls]).message
            return reply(calls=[call("note", id="n")]).message if turn == 1 else reply("Paid.").message

        return Agent("clerk", model=function_handler(answer), tools=[pay, note])

    async def waiting(self) -> str:
        """Begin the run, and return its state, which waits for the approval, as JSON."""
        return (await self.run("Pay.")).state().to_json()

    async def resume(self, text: str, settled: Settle = settle, **how: Any) -> Any:
        return await self.run(settled(RunState.from_json(text, agents=[self.clerk()])), **how)

    async def run(self, given: Any, *, by_engine: bool = True, dies_after: int = 0) -> Any:
        """Return the result; None if the process died."""
        executor = JournalSteps(dict(self.entries), self.write) if by_engine else None
        config = RunConfig(executor=executor, run_id="r")
        try:
            return await Runner.run(
                self.clerk(), given, hooks=Dies(dies_after), session=self.session, run_config=config
            )
        except BaseException as error:
            if not is_crash(error):
                raise
            return None

    async def stored(self) -> list[Any]:
        return [message.get("content") for message in (await self.session.load()).messages[1:]]


@pytest.fixture
def office() -> Office:
    return Office(Session("chat", InMemorySessions()))


async def test_resumed_run_may_have_died_anywhere(tmp_path: Path) -> None:
    for after in range(1, 20):
        office = Office(Session(f"chat {after}", SQLiteSessions(tmp_path / "chats.db")))
        text = await office.waiting()
        died = await office.resume(text, dies_after=after) is None
        result = await office.resume(text)
        assert (result.final_output, office.paid, await office.stored()) == ("Paid.", [5], ALL), after
        assert result.warnings == ()
        if not died:
            break
    assert after > 5


async def test_engine_may_resume_a_second_time_after_a_crash(office: Office) -> None:
    text = await office.waiting()
    for _ in range(2):
        assert await office.resume(text, dies_after=2) is None
    await office.session.compact()
    assert (await office.resume(text)).final_output == "Paid."
    assert (office.paid, await office.stored()) == ([5], ALL)


async def test_engine_may_not_resume_the_state_with_another_decision(office: Office) -> None:
    office.calls = PAYS
    text = await office.waiting()
    await office.resume(text)
    with pytest.raises(SessionConflict, match="was already resumed"):
        await office.resume(text, lambda state: state.approve(state.interruptions[1]))
    assert office.paid == [5]


@pytest.mark.parametrize("first_by_engine", [False, True])
async def test_state_is_used_up_for_runs_with_and_without_an_engine(
    office: Office, first_by_engine: bool
) -> None:
    text = await office.waiting()
    await office.resume(text, by_engine=first_by_engine)
    with pytest.raises(SessionConflict, match="was already resumed"):
        await office.resume(text, by_engine=not first_by_engine)
    assert office.paid == [5]


async def test_earlier_state_is_used_up_after_a_later_one(office: Office) -> None:
    office.calls = PAYS
    first = await office.waiting()
    second = (await office.resume(first)).state().to_json()
    assert (await office.resume(second)).final_output == "Paid."
    with pytest.raises(SessionConflict, match="was already resumed"):
        await office.resume(first)
    assert office.paid == [5, 6]


async def test_engine_does_not_resume_after_another_run(office: Office) -> None:
    text = await office.waiting()
    assert await office.resume(text, dies_after=2) is None
    await Runner.run(office.clerk(), "And?", session=office.session)
    with pytest.raises(SessionConflict, match="does not end with the resumed run"):
        await office.resume(text)
