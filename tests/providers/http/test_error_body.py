"""How long an error's body is read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import anyio
import pytest

from routelock_providers.http.body import beginning

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class Stalled:
    """An answer of which no more comes."""

    headers: Mapping[str, str] = {}

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        yield b'{"error":'
        await anyio.sleep_forever()
        yield b"never"


async def test_of_an_error_whose_body_never_comes_what_there_is_is_told_in_good_time() -> None:
    began = anyio.current_time()
    assert await beginning(Stalled()) == b'{"error":'
    assert anyio.current_time() - began == pytest.approx(5)
