"""What runs in a copy of the context variables, within the caller's task."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextvars import ContextVar

import anyio
import anyio.lowlevel
import pytest

from routelock._isolation import isolated, isolated_events

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]

WHO: ContextVar[str] = ContextVar("who", default="me")


async def test_context_variables_stay_inside_a_coroutine() -> None:
    async def become(name: str) -> str:
        WHO.set(name)
        await anyio.lowlevel.checkpoint()
        return WHO.get()

    assert await isolated(become("a")) == "a"
    assert WHO.get() == "me"


async def test_context_variables_stay_inside_a_generator_and_last_for_all_its_events() -> None:
    async def events() -> AsyncGenerator[str]:
        WHO.set("a")
        yield WHO.get()
        await anyio.lowlevel.checkpoint()
        yield WHO.get()

    seen = [(event, WHO.get()) async for event in isolated_events(events())]
    assert seen == [("a", "me"), ("a", "me")]


async def test_cancellation_is_raised_at_the_await() -> None:
    seen: list[str] = []

    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            seen.append("cancelled")
            raise

    with anyio.CancelScope() as scope:
        scope.cancel()
        await isolated(wait())
    assert seen == ["cancelled"]


async def test_a_failure_that_is_handled_is_over() -> None:
    async def careful() -> str:
        try:
            with anyio.fail_after(0):
                await anyio.sleep_forever()
        except TimeoutError:
            return "late"
        return "in time"

    assert await isolated(careful()) == "late"
