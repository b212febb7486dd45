"""What a coroutine shows reaches its reader, and the reader's leaving reaches the coroutine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import anyio.lowlevel
import pytest

from routelock._showing import show, shown_by

pytestmark = pytest.mark.anyio


async def deep(depth: int, event: object) -> None:
    if depth:
        await deep(depth - 1, event)
    else:
        await show(event)


async def test_events_come_in_order_from_any_depth() -> None:
    async def work() -> None:
        for number in range(3):
            await deep(number, number)

    assert [event async for event in shown_by(work)] == [0, 1, 2]


async def test_what_is_awaited_in_between_is_awaited() -> None:
    async def work() -> None:
        await anyio.lowlevel.checkpoint()
        await show("a")
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0.001)
        await show("b")

    assert [event async for event in shown_by(work)] == ["a", "b"]


async def test_nothing_is_done_ahead_of_the_reader() -> None:
    done: list[int] = []

    async def work() -> None:
        for number in range(3):
            done.append(number)
            await show(number)

    async with aclosing(shown_by(work)) as events:
        assert done == []
        await anext(events)
        await anyio.lowlevel.checkpoint()
        assert done == [0]


async def test_an_error_comes_out_and_what_was_shown_before_it_was_seen() -> None:
    seen: list[object] = []

    async def work() -> None:
        await show(1)
        raise LookupError("no")

    events = shown_by(work)
    seen.append(await anext(events))
    with pytest.raises(LookupError, match="no"):
        await anext(events)
    assert seen == [1]


@pytest.mark.parametrize("nested", [0, 1, 3])
async def test_leaving_early_lets_every_layer_await_its_end(nested: int) -> None:
    """What is closed needs time of its own: a connection says goodbye."""
    ended: list[str] = []

    async def source() -> AsyncGenerator[int]:
        try:
            yield 1
            yield 2
        finally:
            await anyio.sleep(0.001)
            ended.append("source")

    async def work() -> None:
        await layer(nested)

    async def layer(depth: int) -> None:
        events = shown_by(lambda: layer(depth - 1)) if depth else source()
        try:
            async for event in events:
                await deep(2, event)
        finally:
            await events.aclose()
            ended.append(f"layer {depth}")

    events = shown_by(work)
    assert await anext(events) == 1
    await events.aclose()
    assert ended == ["source", *(f"layer {depth}" for depth in range(nested + 1))]


async def test_what_was_never_asked_for_is_never_begun() -> None:
    async def work() -> None:
        raise AssertionError

    await shown_by(work).aclose()


@pytest.mark.virtual_time
async def test_a_cancellation_arrives_where_the_coroutine_awaits() -> None:
    reached: list[str] = []

    async def work() -> None:
        await show(1)
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            reached.append(type(error).__name__)
            raise

    with anyio.move_on_after(0.01) as scope:
        async for _ in shown_by(work):
            pass
    assert scope.cancelled_caught
    assert reached in (["CancelledError"], ["Cancelled"])


async def test_showing_something_while_being_ended_is_an_error() -> None:
    async def work() -> None:
        try:
            await show(1)
        finally:
            await show(2)

    events = shown_by(work)
    await anext(events)
    with pytest.raises(RuntimeError, match="told to end"):
        await events.aclose()
