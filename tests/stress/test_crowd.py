"""Many runs at once, in one process and over true connections; `make stress` takes a thousand."""

from __future__ import annotations

import pytest
from stress.crowd import crowd, openai_crowd
from stress.echo import echo_server

pytestmark = pytest.mark.anyio


async def test_runs_at_the_same_time_see_nothing_of_one_another_and_leave_nothing() -> None:
    found = await crowd(100)
    assert found["at once"] == 100
    assert found["alive"] == 0
    assert found["objects"] < 100, "an object for each run is a leak"


async def test_nor_do_they_over_true_connections() -> None:
    with echo_server() as url:
        await openai_crowd(url, 24)
