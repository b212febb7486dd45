"""Connections to the database: those of the engine, and of its client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from routelock.durable.library import engine, url_of

if TYPE_CHECKING:
    from dbos import DBOSClient
    from sqlalchemy import Engine
    from sqlalchemy.engine import ExceptionContext

__all__ = ["open_client", "pool", "running_client"]

_CLIENTS_CONNECTIONS = 5
_WORKERS_CONNECTIONS = 20


@asynccontextmanager
async def running_client(database: str, *, listen: bool = False) -> AsyncGenerator[DBOSClient]:
    """Give a client of a database, in which the tables are made or brought up to date.

    Args:
        database: its address.
        listen: whether the server is to tell of new events, instead of being asked for them.
    """
    await asyncio.to_thread(engine().DBOS.migrate, url_of(database, "+psycopg"))
    async with open_client(database, listen=listen) as client:
        yield client


@asynccontextmanager
async def open_client(
    database: str, *, listen: bool = False, patient: bool = True
) -> AsyncGenerator[DBOSClient]:
    """Give a client of a database that has the tables.

    Args:
        database: its address.
        listen: see `running_client`.
        patient: whether a call waits until the database is back that is away, instead of raising.
    """
    dbos = engine()
    with pool(database, connections=_CLIENTS_CONNECTIONS) as connections:

        def connect() -> DBOSClient:
            client: DBOSClient = dbos.DBOSClient(
                system_database_engine=connections,
                serializer=dbos.DBOSPortableJSONSerializer(),
                use_listen_notify=listen,
                retry_connection_errors=patient,
            )
            return client

        client = await asyncio.to_thread(connect)
        try:
            yield client
        finally:
            await asyncio.to_thread(client.destroy)


@contextmanager
def pool(
    database: str, *, connections: int = _WORKERS_CONNECTIONS, longest_transaction: float = 10
) -> Generator[Engine]:
    """Give the engine's connections.

    They are ours, because the engine takes a server that refuses connections for a server that is there: it
    looks for words in the error that newer versions of psycopg do not say, and runs would fail of it.

    Args:
        database: its address.
        connections: so many at most.
        longest_transaction: seconds that one may do nothing until the server ends it, because a process that
            is frozen must let go of its rows.
    """
    from sqlalchemy import create_engine, event  # noqa: PLC0415 - comes with the extra

    made = create_engine(
        url_of(database, "+psycopg"),
        pool_size=connections,
        max_overflow=0,
        pool_timeout=30,
        pool_pre_ping=True,
        connect_args={"application_name": "routelock", "connect_timeout": 10},
    )

    def begin(connection: Any, record: Any) -> None:
        milliseconds = int(1000 * longest_transaction)
        connection.execute(f"SET idle_in_transaction_session_timeout = {milliseconds}")
        connection.commit()

    event.listen(made, "connect", begin)
    event.listen(made, "handle_error", _note_refused)
    try:
        yield made
    finally:
        made.dispose()


def _note_refused(context: ExceptionContext) -> None:
    """Tell the engine of a connection that could not be made as of one that was lost: it tries again."""
    if context.connection is None:
        context.is_disconnect = True
