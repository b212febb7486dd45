"""The parts of serving by A2A that need no socket: what is kept for how long, and what words mean."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from scripted_agents import agent

from routelock import RunConfig, Runner
from routelock.errors import LimitExceeded
from routelock.serving.a2a.agent_executor import PieceFlow
from routelock.serving.a2a.messages import answer_parts, message_of, verdict_of
from routelock.serving.a2a.tasks import Contexts, Tasks
from routelock.serving.errors import Refusal


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


# -- tasks --


def caller(name: str) -> Any:
    pytest.importorskip("a2a")
    from a2a.server.context import ServerCallContext
    from a2a.server.routes.common import StarletteUser
    from starlette.authentication import SimpleUser

    return ServerCallContext(user=StarletteUser(SimpleUser(name)))


def task(name: str, size: int = 0) -> Any:
    from a2a.types import Message, Part, Task

    return Task(id=name, history=[Message(parts=[Part(text="x" * size)])])


async def known(tasks: Tasks, names: str, owner: Any) -> str:
    return "".join([name for name in names if await tasks.get(name, owner)])


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_only_so_many_tasks_are_kept_and_those_not_changed_for_longest_go() -> None:
    ann, tasks = caller("Ann"), Tasks(most=2, size=10**6, ttl=60)
    for name in "abac":
        await tasks.save(task(name), ann)
    assert await known(tasks, "abc", ann) == "ac"
    assert len(tasks) == 2


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_only_so_many_bytes_of_tasks_are_kept() -> None:
    ann, tasks = caller("Ann"), Tasks(most=100, size=2500, ttl=60)
    for name in "abc":
        await tasks.save(task(name, 1000), ann)
    assert await known(tasks, "abc", ann) == "bc"
    await tasks.delete("b", ann)
    await tasks.save(task("d", 1000), ann)
    assert await known(tasks, "abcd", ann) == "cd"


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_a_task_is_kept_for_so_long_and_for_its_owner_only() -> None:
    clock, ann, bob = Clock(), caller("Ann"), caller("Bob")
    tasks = Tasks(most=100, size=10**6, ttl=60, clock=clock)
    await tasks.save(task("a"), ann)
    await tasks.save(task("b"), bob)
    assert await known(tasks, "ab", ann) == "a"
    clock.now = 61
    assert await known(tasks, "ab", bob) == ""
    assert len(tasks) == 0


# -- contexts --


async def visit(contexts: Contexts, name: str, words: str = "Hi", principal: str = "Ann") -> int:
    """Say something in a conversation, and return how many messages it had."""
    async with contexts.turn(principal, name) as talk:
        before = len((await talk.session.load()).messages)
        await talk.session.add([{"role": "user", "content": words}])
    return before


@pytest.mark.anyio
async def test_a_conversation_goes_on_and_is_nobody_elses() -> None:
    contexts = Contexts("A", None, most=10, size=10**6, ttl=60)
    assert [await visit(contexts, "c"), await visit(contexts, "c"), await visit(contexts, "d")] == [0, 1, 0]
    assert await visit(contexts, "c", principal="Bob") == 0


@pytest.mark.anyio
async def test_conversations_are_bounded_in_number_bytes_and_time() -> None:
    clock = Clock()
    contexts = Contexts("A", None, most=2, size=5000, ttl=60, clock=clock)
    for name in "abac":
        await visit(contexts, name)
    assert (len(contexts), await visit(contexts, "a")) == (2, 2)
    await visit(contexts, "big", "x" * 6000)
    assert len(contexts) == 0
    await visit(contexts, "a")
    clock.now = 61
    await visit(contexts, "b")
    assert len(contexts) == 1


@pytest.mark.anyio
async def test_a_conversation_in_which_somebody_speaks_is_not_dropped() -> None:
    contexts = Contexts("A", None, most=1, size=10**6, ttl=60)
    async with contexts.turn("Ann", "a") as talk:
        await visit(contexts, "b")
        async with anyio.create_task_group() as group:
            group.start_soon(visit, contexts, "a")
            await anyio.wait_all_tasks_blocked()
            assert not (await talk.session.load()).messages, "the second one waits"
            group.cancel_scope.cancel()
    assert len(contexts) == 1


# -- pieces --


@pytest.mark.anyio
async def test_pieces_are_sent_at_once_and_none_is_lost() -> None:
    sent: list[str] = []
    first = anyio.Event()

    async def send(text: str) -> None:
        await anyio.lowlevel.checkpoint()
        sent.append(text)
        first.set()

    pieces = PieceFlow(send)

    async def work() -> None:
        pieces.add("one ")
        await first.wait()
        for word in ("two ", "", "three ", "four"):
            pieces.add(word)
            await anyio.lowlevel.checkpoint()

    await pieces.flow_during(work)
    assert (sent[0], "".join(sent)) == ("one ", "one two three four")


@pytest.mark.anyio
async def test_what_was_said_before_an_error_is_sent_before_it_is_raised() -> None:
    sent: list[str] = []

    async def send(text: str) -> None:
        sent.append(text)

    pieces = PieceFlow(send)

    async def work() -> None:
        pieces.add("Half an ")
        raise ValueError("gone")

    with pytest.raises(ValueError, match="gone"):
        await pieces.flow_during(work)
    assert sent == ["Half an "]


# -- words --


def test_texts_are_one_text_and_data_is_json_as_it_was() -> None:
    parts = [{"text": "Look: é"}, {"data": {"order": 7.0, "share": 0.5, "lines": [1.0, None, True]}}]
    said = 'Look: é\n{"order": 7, "share": 0.5, "lines": [1, null, true]}'
    assert message_of({"parts": parts}) == {"role": "user", "content": said}


@pytest.mark.parametrize("parts", [[], [{}], [{"url": "https://example.com/a.png"}]])
def test_what_cannot_be_shown_is_refused(parts: Any) -> None:
    with pytest.raises(Refusal) as caught:
        message_of({"parts": parts})
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ([{"text": " Yes. "}], (True, "")),
        ([{"text": "NO!"}], (False, "")),
        ([{"text": "yes, but less"}], None),
        ([{"text": ""}], None),
        ([], None),
        ([{"data": {"approve": True}}], (True, "")),
        ([{"data": {"approve": False, "message": "Too much."}}], (False, "Too much.")),
        ([{"data": {"approve": "yes"}}], None),
        ([{"data": ["approve"]}, {"text": "yes"}], (True, "")),
        ([{"data": {"approve": False}}, {"text": "yes"}], (False, "")),
    ],
)
def test_only_a_plain_word_approves(parts: Any, verdict: Any) -> None:
    assert verdict_of({"parts": parts}) == verdict


@pytest.mark.anyio
async def test_output_that_is_no_object_is_in_one() -> None:
    result = await Runner.run(agent("A", '{"response": [1, 2]}', output_type=list[int]), "Hi")
    assert answer_parts(result, "ignored")[0]["data"] == {"response": [1, 2]}
    nothing = await Runner.run(agent("A", "Hello."), "Hi")
    assert (answer_parts(nothing, "Hello."), answer_parts(nothing, "")) == ([{"text": "Hello."}], [])


@pytest.mark.anyio
async def test_an_output_that_a_limit_gives_is_data_too() -> None:
    def late(error: LimitExceeded) -> list[int]:
        return [0]

    mine = agent("A", "That is no list.", output_type=list[int])
    result = await Runner.run(mine, "Hi", max_turns=1, run_config=RunConfig(on_limit=late))
    assert answer_parts(result, "ignored")[0]["data"] == {"response": [0]}
