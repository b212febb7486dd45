"""DBOS, which is an extra, and the few words that everybody who speaks to it has to agree on."""

from __future__ import annotations

from types import ModuleType

from routelock.errors import ConfigError, MissingExtra

__all__ = ["EVENTS", "STEPS_VERSION", "WORKFLOW", "RunLost", "engine", "queue_of", "url_of"]

WORKFLOW = "routelock.run"
EVENTS = "events"
"""The stream of a run that is shown to others."""
STEPS_VERSION = "routelock-1"
"""DBOS gives a run only to workers of the version that began it, and its own default is a hash of the code:
each deployment would strand what is in flight. Ours changes only if the keys of steps do."""


class RunLost(BaseException):
    """What a run did cannot be recorded, so it must not go on here. Nothing of an app's may catch it."""


def engine() -> ModuleType:
    """Return the library.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import dbos  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "Durable runs on several workers need DBOS, which is not installed: pip install "
            "'routelock[durable]'. For one process, routelock.journal needs nothing."
        ) from error
    return dbos


def queue_of(agent: str) -> str:
    """Return the queue of the runs that begin with an agent."""
    return f"routelock.{agent}"


def url_of(database: str, driver: str = "") -> str:
    """Return the address of a database for a driver.

    Raises:
        ConfigError: it is no address of a PostgreSQL.
    """
    scheme, separator, rest = database.partition("://")
    if not separator or scheme.partition("+")[0] not in ("postgresql", "postgres"):
        raise ConfigError(
            "Durable runs on several workers are kept in PostgreSQL; the database must be an address such as "
            f"'postgresql://user@host/name', and this one begins with {scheme!r:.40}."
        )
    return f"postgresql{driver}://{rest}"
