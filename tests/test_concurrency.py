"""Several things at the same time: in which context, and what comes out when they fail."""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from routelock import Agent, RunConfig, Runner, function_handler
from routelock._concurrency import open_group, run_all
from routelock.guardrails import GuardrailResult
from routelock.handlers.port import Request

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]

WHO: ContextVar[str] = ContextVar("who", default="me")
BOUND = 60


class Abort(BaseException):
    """What no handler of `Exception` sees."""


async def become(name: str) -> str:
    WHO.set(name)
    await anyio.lowlevel.checkpoint()
    return WHO.get()


async def test_context_variables_stay_inside_a_job() -> None:
    assert await run_all([partial(become, "b")]) == ["b"]
    assert await run_all([partial(become, "c"), partial(become, "d")]) == ["c", "d"]
    assert WHO.get() == "me"


async def fail(name: str, go: anyio.Event) -> None:
    with anyio.CancelScope(shield=True):  # so that each comes to it
        await go.wait()
    raise Abort(name)


async def release(go: anyio.Event) -> None:
    go.set()


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]])
async def test_first_error_in_order_is_raised_with_the_others_as_notes(names: list[str]) -> None:
    go = anyio.Event()
    with pytest.raises(Abort) as caught:
        await run_all([*(partial(fail, name, go) for name in names), partial(release, go)])
    assert caught.value.args == ("a",)
    notes: list[str] = getattr(caught.value, "__notes__", [])
    assert [note.rsplit(": ", 1)[1] for note in notes] == names[1:]


async def test_exception_group_of_a_job_is_raised_unchanged() -> None:
    several = ExceptionGroup("mine", [ValueError("a"), ValueError("b")])

    async def job(raises: bool) -> None:
        if raises:
            raise several

    with pytest.raises(ExceptionGroup) as caught:
        await run_all([partial(job, False), partial(job, True)])
    assert caught.value is several


async def test_error_in_the_group_block_is_raised_unchanged() -> None:
    async def own() -> None:
        async with open_group() as group:
            group.start_soon(anyio.sleep_forever)
            raise Abort("enough")

    with pytest.raises(Abort, match="enough"):
        await own()


@pytest.mark.parametrize("count", [1, 5])
async def test_before_delays_jobs_in_order(count: int) -> None:
    slots, began = anyio.Semaphore(1), list[int]()

    async def before(place: int) -> None:
        await slots.acquire()

    async def job(number: int) -> int:
        began.append(number)
        await anyio.lowlevel.checkpoint()
        slots.release()
        return number

    with anyio.fail_after(BOUND):
        given = await run_all([partial(job, number) for number in range(count)], before)
    assert began == given == list(range(count))


@pytest.mark.parametrize("who", ["guardrail", "handler"])
async def test_beside_the_model_call_as_well(who: str) -> None:
    """An exception of either side is no group there."""

    async def check(context: Any, agent: Any, messages: Any) -> GuardrailResult:
        if who == "guardrail":
            raise Abort(who)
        await anyio.sleep_forever()
        raise AssertionError

    async def answer(request: Request) -> str:
        if who == "handler":
            raise Abort(who)
        await anyio.sleep_forever()
        return "never"

    agent = Agent("A", model=function_handler(answer), input_guardrails=[check])
    with pytest.raises(Abort, match=who):
        await Runner.run(agent, "Hi", run_config=RunConfig(guardrails_beside=True))
