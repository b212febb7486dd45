"""The engine's client, opened and closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from interlock.durable.library import engine, url_of

if TYPE_CHECKING:
    from dbos import DBOSClient

__all__ = ["running_client"]


@asynccontextmanager
async def running_client(database: str, *, listen: bool = False) -> AsyncGenerator[DBOSClient]:
    """Give a client of a database, in which the tables are made or brought up to date.

    Args:
        database: its address.
        listen: whether the server is to tell of new events, instead of being asked for them.
    """
    dbos, url = engine(), url_of(database, "+psycopg")
    await asyncio.to_thread(dbos.DBOS.migrate, url)

    def connect() -> DBOSClient:
        client: DBOSClient = dbos.DBOSClient(
            system_database_url=url, serializer=dbos.DBOSPortableJSONSerializer(), use_listen_notify=listen
        )
        return client

    client = await asyncio.to_thread(connect)
    try:
        yield client
    finally:
        await asyncio.to_thread(client.destroy)
