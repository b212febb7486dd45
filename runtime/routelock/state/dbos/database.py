"""Connections to the database, for DBOS and for its client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from routelock.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from dbos import DBOSClient
    from sqlalchemy import Engine
    from sqlalchemy.engine import ExceptionContext

__all__ = [
    "EVENTS",
    "STEPS_VERSION",
    "WORKFLOW",
    "engine",
    "open_client",
    "pool",
    "queue_of",
    "queued_as",
    "running_client",
    "url_of",
]


WORKFLOW = "routelock.run"

EVENTS = "events"
"""The name of the stream with the events of a run."""

STEPS_VERSION = "routelock-1"
"""DBOS gives a run only to workers of the version that began it. Its own default is a hash of the code, so
each deployment would strand the runs in flight. This version changes only if the keys of steps do."""


def engine() -> ModuleType:
    """Return the module of DBOS.

    Raises:
        MissingExtra: DBOS is not installed.
    """
    try:
        import dbos  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "Durable runs on several workers need DBOS, which is not installed: pip install "
            "'routelock[durable]'. For one process, routelock.state.Journal needs nothing."
        ) from error
    return dbos


def queue_of(agent: str) -> str:
    """Return the queue of the runs that begin with an agent."""
    return f"routelock.{agent}"


def queued_as(agent: str, workflow_id: str) -> Any:
    """Return the options with which DBOS puts a segment into the queue of an agent."""
    return {
        "workflow_name": WORKFLOW,
        "queue_name": queue_of(agent),
        "workflow_id": workflow_id,
        "app_version": STEPS_VERSION,
    }


def url_of(database: str, driver: str = "") -> str:
    """Return the address of a database for a driver.

    Raises:
        ConfigError: ``database`` is not the address of a PostgreSQL database.
    """
    scheme, separator, rest = database.partition("://")
    if not separator or scheme.partition("+")[0] not in ("postgresql", "postgres"):
        raise ConfigError(
            "Durable runs on several workers are kept in PostgreSQL; the database must be an address such as "
            f"'postgresql://user@host/name', and this one begins with {scheme!r:.40}."
        )
    return f"postgresql{driver}://{rest}"


_CLIENTS_CONNECTIONS = 5

_WORKERS_CONNECTIONS = 20


@asynccontextmanager
async def running_client(database: str, *, listen: bool = False) -> AsyncGenerator[DBOSClient]:
    """Yield a client of a database, after its tables were created or migrated.

    Args:
        database: its address.
        listen: whether the server notifies the client of new events, so that the client does not poll.
    """
    await asyncio.to_thread(engine().DBOS.migrate, url_of(database, "+psycopg"))
    async with open_client(database, listen=listen) as client:
        yield client


@asynccontextmanager
async def open_client(
    database: str, *, listen: bool = False, patient: bool = True
) -> AsyncGenerator[DBOSClient]:
    """Yield a client of a database that has the tables.

    Args:
        database: its address.
        listen: see `running_client`.
        patient: whether a call waits while the database is unavailable, instead of raising.
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
    """Yield a pool of connections for DBOS.

    DBOS recognises a refused connection by words in the error, and newer versions of psycopg use other words.
    With the pool of DBOS, runs would fail while the database is unavailable.

    Args:
        database: its address.
        connections: the largest number of connections.
        longest_transaction: seconds for which a transaction may be idle until the server ends it, because a
            frozen process has to release its rows.
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

    is_over = False

    def take_back(connection: Any, record: Any) -> None:
        if is_over:  # from a thread of DBOS that has outlived it: it would stay open until it is deleted
            record.invalidate()

    event.listen(made, "connect", begin)
    event.listen(made, "checkin", take_back)
    event.listen(made, "handle_error", _note_refused)
    try:
        yield made
    finally:
        is_over = True
        made.dispose()


def _note_refused(context: ExceptionContext) -> None:
    """Report a refused connection to DBOS as a lost one, so that it tries again."""
    if context.connection is None:
        context.is_disconnect = True
