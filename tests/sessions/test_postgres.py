"""Sessions in PostgreSQL: which rights they need, and connections that are lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from databases import postgres

from routelock.errors import SessionError
from routelock.sessions import (
    PostgresSessions,
    SessionStore,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def conninfo() -> Iterator[str]:
    with postgres() as conninfo:
        yield conninfo


async def texts(store: SessionStore, name: str, **limits: Any) -> list[str]:
    return [text for _, text in await store.load(name, **limits)]


@pytest.mark.asyncio_only
async def test_postgres_needs_no_right_to_create_existing_tables(conninfo: str) -> None:
    import psycopg

    with psycopg.connect(conninfo, autocommit=True) as db:
        db.execute("CREATE DATABASE narrow")
        db.execute("CREATE ROLE app LOGIN")
    owner = conninfo.replace("dbname=postgres", "dbname=narrow")
    with psycopg.connect(owner) as db:
        db.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        db.execute(PostgresSessions.tables().encode())
        db.execute("GRANT SELECT, INSERT, DELETE ON routelock_sessions, routelock_schema TO app")
    store = PostgresSessions(owner.replace("user=test", "user=app"))
    await store.append("u", 0, "a")
    assert await texts(store, "u") == ["a"]
    with psycopg.connect(owner) as db:
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
    await store.append("u", 1, "b")  # over a new connection
    store.close()
    with psycopg.connect(owner) as db:
        db.execute("UPDATE routelock_schema SET version = 7")
    with pytest.raises(SessionError, match="schema 7"):
        await texts(store, "u")
