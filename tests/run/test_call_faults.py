"""What is noted of a model call that goes wrong, and what it counts."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from yielding_handler import DONE, Yields

from routelock import Agent, Request, Retry, RunConfig, Runner
from routelock.errors import ServerFailed
from routelock.handlers.events import AttemptFailed, HandlerEvent, MessageDone
from routelock.testing import ScriptedHandler

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("fallback", [False, True])
async def test_last_attempt_of_a_handler_that_retries_is_counted(fallback: bool) -> None:
    class Retries:
        name = "retries"

        async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
            yield AttemptFailed(error=ServerFailed("busy", status=503), attempt=1, delay=0.0)
            raise ServerFailed("gone", status=503)

    agent = Agent("A", model=Retries())
    with pytest.raises(ServerFailed) as caught:
        await Runner.run(agent, "Hi", run_config=RunConfig(retry=Retry(attempts=1), fallback=fallback))
    assert caught.value.result.usage.requests == 2


async def test_error_between_two_attempts_is_no_attempt() -> None:
    class Fails:
        name = "fails"

        async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
            raise ServerFailed("busy", status=503)
            yield DONE

    async def broken(seconds: float) -> None:
        raise KeyError("sleep")

    agent = Agent("A", model=Fails(), handlers=[ScriptedHandler(["Hi."], name="second")])
    config = RunConfig(retry=Retry(sleep=broken), fallback=True)
    result = await Runner.run(agent, "Hi", run_config=config)
    assert (result.final_output, result.usage.requests) == ("Hi.", 2)


async def test_failed_attempt_is_noted_though_its_error_has_no_text() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise KeyError("text")

    failed = AttemptFailed(error=Mute(), attempt=1, delay=0.0)
    result = await Runner.run(Agent("A", model=Yields(failed, DONE)), "Hi")
    assert result.final_output == "Hi."
    assert [each.kind for each in result.errors] == ["provider"]


async def test_a_reply_is_kept_though_its_usage_is_none() -> None:
    done = MessageDone(message=DONE.message, usage=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    result = await Runner.run(Agent("A", model=Yields(done)), "Hi")
    assert result.final_output == "Hi."
    (warning,) = result.warnings
    assert "not a routelock.Usage" in warning
