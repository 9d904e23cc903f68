"""DDL on a table that an application uses: it waits for its moment, and holds up nobody meanwhile."""

from __future__ import annotations

import threading

import psycopg
import pytest

from connectors.postgres import ddl
from driftless.errors import SourceError

pytestmark = pytest.mark.server
STATEMENT = "alter table busy replica identity full"
IDENTITY = "select relreplident::text from pg_class where relname = 'busy'"


@pytest.fixture
def holder(database: str) -> psycopg.Connection:
    """A transaction that has written to the table and goes on."""
    connection = psycopg.connect(database, application_name="nightly import")
    connection.execute("create table busy (id int primary key)")
    connection.commit()
    connection.execute("insert into busy values (1)")
    return connection


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddl, "LOCK_SECONDS", 0.2)
    monkeypatch.setattr(ddl, "REST_SECONDS", 0.3)


def test_it_gives_up_and_names_who_is_in_the_way(database: str, holder: psycopg.Connection) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        with pytest.raises(SourceError) as caught:
            ddl.execute_with_lock_timeout(connection, STATEMENT, patience=1)
        assert connection.execute("show lock_timeout").fetchone() == ("0",)
        assert connection.execute(IDENTITY).fetchone() == ("d",)
    assert STATEMENT in str(caught.value)
    assert f"process {holder.info.backend_pid} (application `nightly import`)" in str(caught.value)
    holder.close()


def test_readers_are_not_held_up_and_it_is_done_when_the_way_is_free(database: str, holder: psycopg.Connection) -> None:
    with psycopg.connect(database, autocommit=True) as connection, psycopg.connect(database, autocommit=True) as reader:
        working = threading.Thread(
            target=ddl.execute_with_lock_timeout, args=(connection, STATEMENT), kwargs={"patience": 60}
        )
        working.start()
        try:
            waits = "select count(*) from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
            while reader.execute(waits, (connection.info.backend_pid,)).fetchone() != (1,):
                assert working.is_alive()
            # Behind the lock that is waited for; without a limit to that it would wait for the import's end.
            reader.execute("set statement_timeout = '20s'")
            assert reader.execute("select count(*) from busy").fetchone() == (0,)
            assert working.is_alive()
        finally:
            holder.close()
            working.join(60)
        assert reader.execute(IDENTITY).fetchone() == ("f",)
