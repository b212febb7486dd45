"""The HTTP client of the openai library uses aiohttp where it can, and keeps no cookies."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from answers import Answers
from servers import HELLO

from routelock_providers.chat_completions.httpx_client import encoded, httpx_client

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("answers_of_respx")]


async def nothing(response: Any) -> None: ...


@pytest.mark.asyncio_only
async def test_each_answer_is_checked_before_its_body_is_read() -> None:
    looked: list[int] = []

    async def look(response: Any) -> None:
        looked.append(response.status_code)

    with Answers(HELLO) as server:
        async with httpx_client(look) as client:
            answer = await client.post(server.url, json={})
    assert looked == [200]
    assert answer.json()["choices"]


async def test_no_client_follows_redirects() -> None:
    async with httpx_client(nothing) as client:
        assert not client.follow_redirects


def test_body_is_its_json() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "é"}]}
    assert json.loads(encoded(body) or b"") == body


def test_values_that_only_the_library_can_encode() -> None:
    assert encoded({"model": "m", "messages": [], "when": datetime(2026, 1, 1)}) is None
