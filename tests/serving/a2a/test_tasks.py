"""Tasks and conversations of A2A belong to one caller, and are bounded."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from routelock.serving.a2a.tasks import Contexts, Tasks
from routelock.serving.bounded_store import Bounds


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
    ann, tasks = caller("Ann"), Tasks(Bounds(most=2, size=10**6, ttl=60))
    for name in "abac":
        await tasks.save(task(name), ann)
    assert await known(tasks, "abc", ann) == "ac"
    assert len(tasks) == 2


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_only_so_many_bytes_of_tasks_are_kept() -> None:
    ann, tasks = caller("Ann"), Tasks(Bounds(most=100, size=2500, ttl=60))
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
    tasks = Tasks(Bounds(most=100, size=10**6, ttl=60, clock=clock))
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
async def test_a_conversation_belongs_to_one_caller() -> None:
    contexts = Contexts("A", None, Bounds(most=10, size=10**6, ttl=60))
    assert [await visit(contexts, "c"), await visit(contexts, "c"), await visit(contexts, "d")] == [0, 1, 0]
    assert await visit(contexts, "c", principal="Bob") == 0


@pytest.mark.anyio
async def test_conversations_are_bounded_in_number_bytes_and_time() -> None:
    clock = Clock()
    contexts = Contexts("A", None, Bounds(most=2, size=5000, ttl=60, clock=clock))
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
async def test_a_conversation_in_use_is_not_dropped() -> None:
    contexts = Contexts("A", None, Bounds(most=1, size=10**6, ttl=60))
    async with contexts.turn("Ann", "a") as talk:
        await visit(contexts, "b")
        async with anyio.create_task_group() as group:
            group.start_soon(visit, contexts, "a")
            await anyio.wait_all_tasks_blocked()
            assert not (await talk.session.load()).messages, "the second one waits"
            group.cancel_scope.cancel()
    assert len(contexts) == 1
