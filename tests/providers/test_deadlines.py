"""Deadlines around single awaits, in virtual time."""

from __future__ import annotations

import asyncio
import gc
import re
import weakref
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import anyio
import anyio.lowlevel
import pytest
from servers import HELLO, HELLO_STREAM, Server
from virtual_time import JumpingLoop, virtual_backends

from routelock.errors import ConfigError, ProviderTimeout
from routelock.handlers.port import Request
from routelock_providers import LiteLLM, OpenAICompatible, RemoteAgent, close_litellm
from routelock_providers.chat_completions.openai import OpenAI
from routelock_providers.deadlines import AsyncioDeadline, Deadline, check_seconds, deadline_for

pytestmark = pytest.mark.anyio

T = TypeVar("T")

KINDS: list[type[Deadline]] = [Deadline]
"""What the running test is about."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Test each class on its event loops."""
    if "anyio_backend" in metafunc.fixturenames:
        loops, ways = (
            virtual_backends(),
            [(Deadline, "asyncio"), (Deadline, "trio"), (AsyncioDeadline, "asyncio")],
        )
        metafunc.parametrize(
            ("kind", "anyio_backend"),
            [pytest.param(kind, loops[name], id=f"{kind.__name__}-{name}") for kind, name in ways],
            indirect=["kind"],
            scope="module",
        )
    else:
        metafunc.parametrize("kind", [Deadline], indirect=True)


@pytest.fixture(autouse=True, scope="module")
def kind(request: pytest.FixtureRequest) -> None:
    KINDS[:] = [request.param]


def deadline(total: float | None = None, gap: float | None = None) -> Deadline:
    return KINDS[0](total, gap, provider="mistral", model="m")


async def at_once() -> str:
    return "x"


def test_each_event_loop_has_its_class() -> None:
    async def kind_here() -> type[Deadline]:
        return type(deadline_for(1, 1, provider="p", model="m"))

    assert anyio.run(kind_here, backend="asyncio") is AsyncioDeadline
    assert anyio.run(kind_here, backend="trio") is Deadline


async def test_result_in_time_is_returned() -> None:
    limit = deadline(60.0, 60.0)
    assert await limit.first(at_once) == "x"
    assert await limit.next(at_once) == "x"


async def test_no_limits_no_timeout() -> None:
    assert await deadline().first(at_once) == "x"
    assert await deadline().next(at_once) == "x"


async def test_stalled_call_names_its_limit() -> None:
    with pytest.raises(ProviderTimeout, match=r"within 0\.01 s") as caught:
        await deadline(0.01).first(anyio.sleep_forever)
    assert (caught.value.provider, caught.value.model, caught.value.retryable) == ("mistral", "m", True)


async def test_gap_differs_from_a_late_reply() -> None:
    with pytest.raises(ProviderTimeout, match="in the middle"):
        await deadline(60.0, 0.01).next(anyio.sleep_forever)


async def test_the_first_piece_may_take_longer_than_a_gap() -> None:
    async def thinking() -> str:
        await anyio.sleep(0.05)
        return "x"

    assert await deadline(60.0, 0.01).first(thinking) == "x"


async def test_call_times_out_without_a_long_gap() -> None:
    limit = deadline(0.05, 60.0)

    async def trickle() -> None:
        while True:
            await limit.next(lambda: anyio.sleep(0.01))

    with pytest.raises(ProviderTimeout, match=r"within 0\.05 s"):
        await trickle()


async def test_time_of_the_reader_does_not_count() -> None:
    limit = deadline(0.2)
    for _ in range(3):
        assert await limit.next(at_once) == "x"
        await anyio.sleep(0.1)


async def test_each_piece_has_the_whole_gap() -> None:
    limit = deadline(60.0, 0.5)
    assert await limit.first(at_once) == "x"
    for _ in range(4):
        await limit.next(lambda: anyio.sleep(0.3))


async def test_gap_after_a_longer_first_piece() -> None:
    limit = deadline(60.0, 0.01)
    assert await limit.first(at_once) == "x"
    with anyio.fail_after(5), pytest.raises(ProviderTimeout, match="in the middle"):
        await limit.next(anyio.sleep_forever)


async def test_a_deadline_that_was_closed_is_gone() -> None:
    limit = deadline(60.0, 60.0)
    await limit.first(at_once)
    await limit.next(at_once)
    known = weakref.ref(limit)
    limit.close()
    del limit
    gc.collect()
    assert known() is None


async def test_timeout_of_the_work_passes_unchanged() -> None:
    async def fails() -> None:
        raise TimeoutError("the vendor's")

    with pytest.raises(TimeoutError, match="vendor's"):
        await deadline(60.0).first(fails)


async def test_a_cancelled_caller_is_cancelled() -> None:
    with anyio.move_on_after(0.01) as scope:
        await deadline(60.0, 60.0).next(anyio.sleep_forever)
    assert scope.cancelled_caught


def test_limits_of_zero_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="chunk_timeout"):
        check_seconds(timeout=1.0, chunk_timeout=0.0)
    check_seconds(timeout=None)


@pytest.mark.parametrize("given", ["30", True, [1]])
def test_limit_that_is_not_a_number_is_refused_by_name(given: Any) -> None:
    with pytest.raises(
        ConfigError, match=rf"^timeout must be more than 0 seconds.*, not {re.escape(repr(given))}"
    ):
        check_seconds(timeout=given)


@pytest.mark.parametrize("name", ["timeout", "chunk_timeout"])
@pytest.mark.parametrize("handler", [LiteLLM, OpenAI, OpenAICompatible, RemoteAgent])
def test_handlers_refuse_a_limit_of_zero(handler: Callable[..., Any], name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} must be more than 0 seconds"):
        handler("https://x.example", **{name: 0})


async def test_cancellation_wins_over_a_timeout() -> None:
    """Both may come before the work wakes up; then the cancellation must win."""
    with anyio.move_on_after(0.01) as scope:
        await deadline(0.01).first(anyio.sleep_forever)
    assert scope.cancelled_caught


async def test_task_continues_after_a_timeout() -> None:
    limit = deadline(0.01)
    for _ in range(2):
        with pytest.raises(ProviderTimeout):
            await limit.first(anyio.sleep_forever)
    await anyio.lowlevel.checkpoint()
    with anyio.move_on_after(0.01) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught


async def test_replaced_cancellation_leaves_no_trace() -> None:
    """The next wait of this task is not taken for cancelled."""

    async def otherwise() -> str:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            raise ValueError("mine") from None
        return ""

    async def nothing() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
        return "x"

    with pytest.raises(ValueError, match="mine"):
        await deadline(0.01).first(otherwise)
    if KINDS[0] is AsyncioDeadline:  # on trio, and in scopes, what swallows it waits for ever
        limit, task = deadline(60.0, 0.01), asyncio.current_task()
        assert await limit.next(nothing) == "x"
        assert task is not None
        assert task.cancelling() == 0
        assert await limit.next(at_once) == "x"


class _Recording(asyncio.SelectorEventLoop):
    """An event loop that records the timers that were set."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[asyncio.TimerHandle] = []

    def call_at(self, when: float, what: Any, *given: Any, **more: Any) -> asyncio.TimerHandle:
        handle = super().call_at(when, what, *given, **more)
        if isinstance(getattr(what, "__self__", None), AsyncioDeadline):
            self.timers.append(handle)
        return handle


async def slowly(seconds: float, limit: Deadline) -> float:
    """Wait for a reply that takes so long, and return how long the wait was."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        await limit.first(lambda: asyncio.sleep(seconds))
    except ProviderTimeout:
        return -(loop.time() - began)
    return loop.time() - began


def in_no_time(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(work())


def limited(seconds: float | None) -> Deadline:
    return deadline_for(seconds, None, provider="p", model="m")


def test_a_wait_that_ends_in_time_does_not_shorten_the_next() -> None:
    async def both() -> float:
        limit = deadline_for(None, 400, provider="p", model="m")
        await limit.next(lambda: asyncio.sleep(200))
        began = asyncio.get_running_loop().time()
        with pytest.raises(ProviderTimeout):
            await limit.next(lambda: asyncio.sleep(10_000))
        return asyncio.get_running_loop().time() - began

    assert in_no_time(both) >= 400


def test_concurrent_calls_time_out_separately() -> None:
    async def at_once() -> list[float]:
        return await asyncio.gather(*(slowly(100, limited(each)) for each in (70, None, 20, 40)))

    longest, endless, shortest, middle = in_no_time(at_once)
    assert endless >= 100
    assert -100 < longest <= -70 < middle <= -40 < shortest <= -20


def test_stream_sets_two_timers() -> None:
    async def stream() -> None:
        limit = deadline_for(600, 60, provider="p", model="m")
        await limit.first(at_once)
        for _ in range(20):
            await limit.next(at_once)
        limit.close()

    with asyncio.Runner(loop_factory=_Recording) as runner:
        runner.run(stream())
        assert len(cast(_Recording, runner.get_loop()).timers) == 2


def test_a_timer_keeps_nothing_of_a_call_alive() -> None:
    class Kept: ...

    var: ContextVar[Kept] = ContextVar("kept")

    async def call() -> weakref.ref[Kept]:
        kept = Kept()
        var.set(kept)
        limit = deadline_for(60, 60, provider="p", model="m")
        await limit.first(at_once)
        limit.close()
        return weakref.ref(kept)

    async def app() -> Kept | None:
        known = await asyncio.create_task(call())
        await asyncio.sleep(0)  # the task's last step is over
        gc.collect()
        return known()

    assert asyncio.run(app()) is None


_MAKE: dict[str, Callable[[str], Any]] = {
    "OpenAICompatible": lambda url: OpenAICompatible("m", base_url=url, api_key="k"),
    "OpenAI": lambda url: OpenAI("m", base_url=url, api_key="k"),
    "LiteLLM": lambda url: LiteLLM("openai/m", api_base=url, api_key="k"),
}


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("name", _MAKE)
def test_finished_call_leaves_no_timer(name: str, watched: bool) -> None:
    async def call() -> None:
        with Server(HELLO_STREAM if watched else HELLO) as server:
            handler = _MAKE[name](server.url)
            request = Request(messages=[{"role": "user", "content": "Hi"}], stream=watched)
            async for _ in handler.stream(request):
                pass
            assert loop.timers, "no deadline was set"
            assert all(timer.cancelled() for timer in loop.timers)
            await (close_litellm() if name == "LiteLLM" else handler.aclose())

    with asyncio.Runner(loop_factory=_Recording) as runner:
        loop = cast(_Recording, runner.get_loop())
        runner.run(call())
