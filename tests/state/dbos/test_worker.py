"""The agents and settings of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from routelock import Agent, Request, RunConfig
from routelock.errors import ConfigError
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.state.durable import WorkerSettings, serving_runs

pytest.importorskip("dbos", reason="durable runs need DBOS: pip install 'routelock[durable]'")


class Talker:
    """Says ten words, one after another."""

    name = "talker"

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        words = [f"word{number} " for number in range(10)]
        for word in words:
            await asyncio.sleep(0.01)
            yield TextDelta(word)
        yield MessageDone(message={"role": "assistant", "content": "".join(words)})


def test_settings_of_the_worker_cannot_be_passed() -> None:
    with pytest.raises(ConfigError, match="leave them out"):
        WorkerSettings(run_config=RunConfig(run_id="r"))


def test_a_lease_is_longer_than_four_checks() -> None:
    with pytest.raises(ConfigError, match="more than four times watch"):
        WorkerSettings(lease=1)


def test_a_worker_needs_agents_with_names_of_their_own() -> None:
    async def act() -> None:
        twice = Agent("A", model=Talker())
        for given in ([], [twice, Agent("A", model=Talker())]):
            with pytest.raises(ConfigError, match="a name of its own"):
                async with serving_runs(given, "postgresql://u@h/n"):
                    pass
        with pytest.raises(ConfigError, match="elsewhere: A"):
            async with serving_runs([twice], "postgresql://u@h/n", WorkerSettings(elsewhere=["A"])):
                pass

    asyncio.run(act())
