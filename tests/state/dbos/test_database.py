"""The address of the database, and the library."""

from __future__ import annotations

import subprocess
import sys

import pytest
from databases import address, postgres

from routelock.errors import ConfigError
from routelock.state.dbos.client import segment_id, segment_of
from routelock.state.dbos.database import engine, pool, url_of

pytest.importorskip("dbos", reason="durable runs need DBOS: pip install 'routelock[durable]'")


def test_ids_and_addresses() -> None:
    assert [segment_id("r", 1), segment_id("r", 3), segment_of("r"), segment_of("r#3")] == ["r", "r#3", 1, 3]
    assert url_of("postgresql://u@h/n", "+psycopg") == "postgresql+psycopg://u@h/n"
    with pytest.raises(ConfigError, match="kept in PostgreSQL"):
        url_of("sqlite:///x.db")
    assert engine().DBOS


def test_without_the_extra_one_is_told_what_to_install() -> None:
    code = """if True:
        import sys
        sys.modules["dbos"] = None
        from routelock.state.dbos.database import engine
        from routelock.errors import MissingExtra
        try:
            engine()
        except MissingExtra as error:
            assert "routelock[durable]" in str(error)
        else:
            raise AssertionError
    """
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_connections_that_threads_give_back_after_the_end_are_closed() -> None:
    """DBOS does not wait for its threads. One may hold a connection at the end, or take one after it."""
    with postgres() as conninfo:
        with pool(address(conninfo)) as connections:
            held = connections.connect()
        taken = connections.connect()
        drivers = [each.connection.driver_connection for each in (held, taken)]
        held.close()
        taken.close()
    assert [driver.closed for driver in drivers if driver is not None] == [True, True]
