"""A few hundred runs in one process leave nothing behind; `make stress` makes twenty thousand."""

from __future__ import annotations

import pytest
from stress.echo import echo_server
from stress.soak import make_model, soak

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]


@pytest.mark.parametrize("through", ["openai", "direct"])
async def test_runs_leave_no_object_task_file_or_thread(through: str) -> None:
    with echo_server() as url:
        model, close = make_model(through, url)
        soaked = await soak(model, 160, warm_up=80, every=20)
        await close()
    # so few runs say nothing about memory: the allocator takes it in big pieces
    assert not soaked.wrong(kilobytes=1000.0, objects=1.0), f"{soaked}\n{soaked.grown}"
