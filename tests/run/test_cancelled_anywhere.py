"""A run with everything in it, ended at every single step: what is left is whole, and nothing is left open.

What went wrong elsewhere: openai/openai-agents-python 1895 (a cancelled turn is lost, and with it the
usage and the pool's connection), openai/openai-agents-js 1190 (the conversation cannot go on),
pydantic/pydantic-ai 4423 (lost tasks).
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from full_run import Office, Strikes, generators_closed
from scenes import SCENES, Stage
from thoroughness import THOROUGH

from routelock import Runner, RunResult
from routelock.errors import RunTimeout
from routelock.handlers.port import Request
from routelock.history.validity import problems
from routelock.run.events import RunDone
from routelock.testing import ScriptedHandler

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]

MOST = 2000
"""More steps than the run has."""
STRIDE = 1 if THOROUGH else 5
"""Every so many steps; the plain tests leave some out, and `make stress` none."""


async def drained(office: Office, kept: list[RunResult[Any]]) -> None:
    """Read a whole run, and keep what there is however that ends."""
    stream = office.stream()
    try:
        await stream.drain()
    finally:
        kept.append(stream.result)


async def plain(office: Office, kept: list[RunResult[Any]]) -> None:
    kept.append(await office.run())


WAYS = {"streamed": drained, "plain": plain}


@pytest.mark.parametrize("threads", [False, True], ids=["tasks", "threads"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_run_with_everything_ends_well(way: str, threads: bool) -> None:
    """So that the tests below are about what they say."""
    office, kept = Office(threads=threads), list[RunResult[Any]]()
    with generators_closed():
        await WAYS[way](office, kept)
    (result,) = kept
    assert result.final_output == "Done."
    assert [record.target for record in result.handoffs if record.taken] == ["expert", "clerk"]
    assert sorted(office.done) == [f"add {number}" for number in range(1, 9)]
    assert result.usage.requests == 11
    await office.check(result)


@pytest.mark.parametrize("way", WAYS)
async def test_cancelled_by_a_scope_at_every_step(way: str) -> None:
    """Every await of the run's own task, ours, the app's or the event loop's."""
    for k in range(1, MOST, min(STRIDE, 2)):
        before, office, kept = len(anyio.get_running_tasks()), Office(threads=False), list[RunResult[Any]]()
        with generators_closed(), anyio.CancelScope() as scope:
            await Strikes(WAYS[way](office, kept), k, scope.cancel)
        assert len(anyio.get_running_tasks()) == before, k
        await office.check(kept[0] if kept else None)
        if not scope.cancelled_caught:
            break
    assert 50 < k < MOST - STRIDE
    assert kept[0].final_output == "Done."


@pytest.mark.parametrize("way", WAYS)
async def test_out_of_time_at_every_step(way: str) -> None:
    """The caller's own deadline: a scope whose time is up, which cancels again at every further await."""
    for k in range(2, MOST, STRIDE):
        office, kept = Office(threads=False), list[RunResult[Any]]()
        scope = anyio.CancelScope()

        def late(scope: anyio.CancelScope = scope) -> None:
            scope.deadline = anyio.current_time() - 1

        with generators_closed(), scope:
            await Strikes(WAYS[way](office, kept), k, late)
        await office.check(kept[0] if kept else None)
        if not scope.cancelled_caught:
            break
    assert 50 < k < MOST - STRIDE


@pytest.mark.asyncio_only
@pytest.mark.parametrize("way", WAYS)
async def test_cancelled_as_a_task_at_every_step(way: str) -> None:
    """asyncio's own cancellation comes once; who waits again after it is not interrupted again."""
    for k in range(3, MOST, min(STRIDE, 3)):
        office, kept = Office(threads=False), list[RunResult[Any]]()

        async def run(k: int = k, office: Office = office, kept: list[RunResult[Any]] = kept) -> None:
            task = asyncio.current_task()
            assert task is not None
            await Strikes(WAYS[way](office, kept), k, task.cancel)

        before = asyncio.all_tasks()
        with generators_closed():
            (ended,) = await asyncio.gather(asyncio.create_task(run()), return_exceptions=True)
        assert ended is None or type(ended) is asyncio.CancelledError, k
        assert not asyncio.all_tasks() - before, k
        await office.check(kept[0] if kept else None)
        if ended is None:
            break
    assert 50 < k < MOST - STRIDE


@pytest.mark.parametrize("way", WAYS)
async def test_run_can_be_cancelled_at_any_event_loop_step(way: str) -> None:
    """Wherever the tasks of tools and agents stand then, and their threads."""
    for k in range(0, MOST, STRIDE):
        before, office, kept = len(anyio.get_running_tasks()), Office(), list[RunResult[Any]]()
        finished = False

        async def run(office: Office = office, kept: list[RunResult[Any]] = kept) -> None:
            nonlocal finished
            await WAYS[way](office, kept)
            finished = True

        with generators_closed():
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                for _ in range(k):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
        assert len(anyio.get_running_tasks()) == before, k
        await office.check(kept[0] if kept else None)
        if finished:
            return
    raise AssertionError("the run never ends")


async def test_left_after_any_event() -> None:
    for k in range(1, MOST, min(STRIDE, 2)):
        before, office = len(anyio.get_running_tasks()), Office()
        ended = False
        with generators_closed():
            async with office.stream() as stream:
                seen = 0
                async for event in stream:
                    seen, ended = seen + 1, isinstance(event, RunDone)
                    if seen == k:
                        break
        assert len(anyio.get_running_tasks()) == before, k
        await office.check(stream.result)
        if ended:
            return
    raise AssertionError("the run never ends")


async def test_closed_by_another_task_after_any_event() -> None:
    """No task group and no cancel scope is open while an event is handed out."""
    for k in range(2, MOST, STRIDE):
        office = Office(threads=False)
        stream = office.stream()
        ended = False
        with generators_closed():
            for _ in range(k):
                if not ended:
                    ended = isinstance(await anext(aiter(stream)), RunDone)
            async with anyio.create_task_group() as group:
                group.start_soon(stream.aclose)
        await office.check(stream.result)
        if ended:
            return
    raise AssertionError("the run never ends")


@pytest.mark.asyncio_only
async def test_forgotten_after_any_event() -> None:
    """A reader that just goes away: the event loop closes what the collector finds."""
    for k in range(1, MOST, STRIDE):
        office, seen = Office(threads=False), 0
        result: RunResult[Any] | None = None
        stream = office.stream()
        run = stream._run
        async for _ in (events := stream.stream_events()):
            seen += 1
            if seen == k:
                break
        del events, stream
        gc.collect()
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        result = run.result()
        await office.check(result)
        if result.stop_reason == "done":
            return
    raise AssertionError("the run never ends")


@pytest.mark.parametrize("way", WAYS)
async def test_out_of_its_own_time_anywhere(way: str) -> None:
    """``RunConfig.timeout``, a little longer each time: late or done, the books are in order."""
    ends: set[str] = set()
    for n in range(60 // STRIDE):
        office = Office(threads=False)
        with generators_closed():
            try:
                settings = {"timeout": 1e-4 * 1.2 ** (n * STRIDE)}
                if way == "plain":
                    result = await office.run(**settings)
                else:
                    result = await office.stream(**settings).drain()
            except RunTimeout as late:
                result = late.result
        ends.add(result.stop_reason)
        await office.check(result)
    assert ends == {"error", "done"}


# -- without an event loop --


class _Stop(BaseException):
    pass


class _Here:
    """Something to await that no event loop knows."""

    def __await__(self) -> Any:
        yield self


async def here() -> None:
    await _Here()


class _Waits(ScriptedHandler):
    async def stream(self, request: Request, /) -> AsyncGenerator[Any]:
        await here()
        async with aclosing(super().stream(request)) as events:
            async for event in events:
                await here()
                yield event
        await here()


@pytest.mark.parametrize("name", ["one tool", "transfer", "chain", "structured"])
def test_stopped_at_every_step_without_an_event_loop(name: str) -> None:
    """The rawest end of all: something that no event loop knows, wherever the run stands."""
    scene = SCENES[name]
    for k in range(1, MOST):
        stage = Stage(kind=lambda script: _Waits(script.replies, name=script.name), wait=here)
        stream = Runner.run_streamed(
            scene.agent(stage), "Hi", max_turns=scene.max_turns, run_config=scene.settings()
        )

        async def drain(stream: Any = stream) -> None:
            try:
                await stream.drain()
            finally:
                await stream.aclose()

        coroutine = drain()
        ended = False
        with generators_closed():
            try:
                for _ in range(k):
                    coroutine.send(None)
            except StopIteration:
                ended = True
            else:
                with pytest.raises(_Stop):
                    coroutine.throw(_Stop())
        assert problems([*stream.result.to_input_list(), {"role": "user", "content": "Go on."}]) == []
        if ended:
            assert stream.result.stop_reason == "done"
            return
    raise AssertionError("the run never ends")


@pytest.mark.asyncio_only
@pytest.mark.parametrize("k", [5, 20, 60, MOST])
async def test_a_run_that_is_over_is_not_kept_alive(k: int) -> None:
    """Whatever it was ended by, nothing of the library holds on to it."""

    async def run() -> weakref.ref[Office]:
        office = Office(threads=False)
        with anyio.CancelScope() as scope:
            await Strikes(drained(office, []), k, scope.cancel)
        return weakref.ref(office)

    gone = await asyncio.create_task(run())  # a task keeps the last CancelledError that it was given
    gc.collect()
    assert gone() is None
