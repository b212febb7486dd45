"""Whole runs, plain and streamed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from routelock import Agent, RunConfig, Runner, RunResult


@pytest.fixture(params=[False, True], ids=["plain", "streamed"])
def play(request: pytest.FixtureRequest) -> Callable[..., Awaitable[RunResult[Any]]]:
    """Runs an agent: once as a plain run, once read as a stream."""

    async def run(agent: Agent[Any], input: Any = "Hi", **config: Any) -> RunResult[Any]:
        settings = RunConfig(**config)
        if not request.param:
            return await Runner.run(agent, input, run_config=settings)
        async with Runner.run_streamed(agent, input, run_config=settings) as stream:
            return await stream.drain()

    return run
