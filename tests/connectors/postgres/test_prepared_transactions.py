"""A prepared transaction keeps a server from making a slot for as long as nobody ends it: it is named."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from connectors.postgres.blockers import slot_blockers
from stack import Stack
from tests.support import run
from tests.support.machine import until

pytestmark = pytest.mark.server

SLOT, GID = "made_later", "order-17"


@pytest.fixture
def server() -> Iterator[str]:
    """One that takes prepared transactions, which none does by itself."""
    stack = Stack(f"{run.STACK}-prepared", servers=("postgres",))
    try:
        dsn = stack.up().postgres
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("alter system set max_prepared_transactions = 5")
        stack.stop("postgres")
        stack.start("postgres")
        yield dsn
    finally:
        stack.destroy()


def test_a_prepared_transaction_that_holds_up_a_slot_is_named(server: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:

        def ask(statement: str, *parameters: object) -> list[tuple[Any, ...]]:
            return connection.execute(statement.encode(), parameters or None).fetchall()

        connection.execute("create table orders (id int)")
        connection.execute("begin")
        connection.execute("insert into orders values (1)")
        connection.execute(f"prepare transaction '{GID}'".encode())
        assert slot_blockers(ask, SLOT) == ""
        making = threading.Thread(target=_make_slot, args=(server,), daemon=True)
        making.start()
        said = until("the slot to wait", partial(slot_blockers, ask, SLOT))
        assert said.startswith(f"it is held up by the prepared transaction `{GID}`, ")
        connection.execute(f"commit prepared '{GID}'".encode())
        making.join(30)
        assert not making.is_alive()
        assert slot_blockers(ask, SLOT) == ""
        connection.execute("select pg_drop_replication_slot(%s)", (SLOT,))


def _make_slot(server: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
