"""What a real server says of a transaction, of its timeline and of where a fence lets Debezium in."""

from __future__ import annotations

import psycopg
import pytest

from connectors.failover.fence import SETTING, fence
from connectors.failover.history import timeline_history, transaction_status
from connectors.postgres.client import Postgres
from driftless.errors import SourceError

pytestmark = pytest.mark.server


def test_what_became_of_a_transaction(database: str) -> None:
    with Postgres(database) as source, psycopg.connect(database) as writer:

        def number() -> int:
            row = writer.execute("select pg_current_xact_id()::text::bigint").fetchone()
            assert row is not None
            return int(row[0])

        committed = number()
        writer.commit()
        aborted = number()
        writer.rollback()
        going_on = number()
        said = [transaction_status(source, n) for n in (committed, aborted, going_on, going_on + 1000)]
        assert said == ["committed", "aborted", None, None]
        writer.rollback()


def test_a_timeline_that_never_was_has_no_history(database: str) -> None:
    with Postgres(database) as source, pytest.raises(SourceError, match="history"):
        timeline_history(source, source.server().timeline + 1)


def test_a_fence_lets_in_to_its_own_timeline_alone(database: str) -> None:
    """On whatever timeline the tests' server is: one of them promotes it."""
    with Postgres(database) as source, psycopg.connect(database, autocommit=True) as connection:
        here = source.server().timeline
        settings = fence(170000, here)
        assert settings["slot.failover"] == "true"
        assert ";" not in settings[SETTING], "Debezium parts statements there"
        assert connection.execute(settings[SETTING].encode()).fetchone() == (1,)
        told = f"driftless: this server is on timeline {here}, and the log was read on timeline {here + 1}"
        older = fence(169999, here + 1)
        assert "slot.failover" not in older
        with pytest.raises(psycopg.errors.InvalidTextRepresentation, match=told):
            connection.execute(older[SETTING].encode())
