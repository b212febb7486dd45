"""Sessions in Redis: they may be forgotten after a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from databases import redis_server

from routelock.errors import ConfigError
from routelock.sessions import (
    RedisSessions,
    SessionStore,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


async def texts(store: SessionStore, name: str, **limits: Any) -> list[str]:
    return [text for _, text in await store.load(name, **limits)]


@pytest.mark.asyncio_only
async def test_redis_may_forget_a_session(redis_url: str) -> None:
    import redis

    client: Any = redis.Redis.from_url(redis_url, decode_responses=True)
    store = RedisSessions(client, prefix="mine:", expire=1000)
    await store.append("u", 0, "a")
    assert await texts(store, "u") == ["a"]
    assert 990 < client.ttl("mine:u") <= 1000
    store.close()
    with pytest.raises(ConfigError, match="expire"):
        RedisSessions(redis_url, expire=0)
