"""What carries the requests of the openai library: by aiohttp where that can, and without a memory."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from servers import HELLO, Server

from routelock_providers.chat_completions.httpx_client import encoded, httpx_client

pytestmark = pytest.mark.anyio


async def nothing(response: Any) -> None: ...


@pytest.mark.asyncio_only
async def test_each_answer_is_looked_at_before_its_body_is_read() -> None:
    looked: list[int] = []

    async def look(response: Any) -> None:
        looked.append(response.status_code)

    with Server(HELLO) as server:
        async with httpx_client(look) as client:
            answer = await client.post(server.url, json={})
    assert looked == [200]
    assert answer.json()["choices"]


async def test_no_redirect_is_followed_whatever_carries() -> None:
    async with httpx_client(nothing) as client:
        assert not client.follow_redirects


def test_a_body_is_the_json_that_it_says() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "é"}]}
    assert json.loads(encoded(body) or b"") == body


def test_what_the_library_alone_can_write_is_left_to_it() -> None:
    assert encoded({"model": "m", "messages": [], "when": datetime(2026, 1, 1)}) is None
