"""How long the body of an error is read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import anyio
import pytest

from routelock_providers.http.body import read_error_body

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class Stalled:
    """An answer whose body stops coming."""

    headers: Mapping[str, str] = {}

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        yield b'{"error":'
        await anyio.sleep_forever()
        yield b"never"


async def test_error_body_that_stalls_is_cut_after_5_seconds() -> None:
    began = anyio.current_time()
    assert await read_error_body(Stalled()) == b'{"error":'
    assert anyio.current_time() - began == pytest.approx(5)
