"""Many runs at once, in one process and over true connections; `make stress` takes a thousand."""

from __future__ import annotations

import pytest
from stress.crowd import crowd, handler_crowd
from stress.echo import echo_server

from routelock_providers import OpenAICompatible
from routelock_providers.chat_completions.openai import OpenAI

pytestmark = pytest.mark.anyio


async def test_runs_at_the_same_time_see_nothing_of_one_another_and_leave_nothing() -> None:
    found = await crowd(100)
    assert found["at once"] == 100
    assert found["alive"] == 0
    assert found["objects"] < 100, "an object for each run is a leak"


async def test_nor_do_they_over_true_connections() -> None:
    with echo_server() as url:
        await handler_crowd(OpenAI, url, 24)


@pytest.mark.asyncio_only
async def test_nor_over_aiohttps_own() -> None:
    with echo_server() as url:
        await handler_crowd(OpenAICompatible, url, 24)
