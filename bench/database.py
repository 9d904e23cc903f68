"""A database of a measurement, with the measured table in it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.conninfo import make_conninfo

from bench.rows import CREATE, Rows
from stack import Stack


@contextmanager
def database(stack: Stack) -> Iterator[str]:
    """The DSN of an empty database, which is dropped at the end."""
    endpoints = stack.endpoints()
    assert endpoints is not None
    name = f"bench_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(endpoints.postgres, autocommit=True) as connection:
        connection.execute(f"create database {name}")
        yield make_conninfo(endpoints.postgres, dbname=name)
        connection.execute(f"drop database {name} with (force)")


def fill(dsn: str, rows: int) -> None:
    """Make the table, with rows 0 to `rows`."""
    columns = [name.split()[0] for name in CREATE.partition("(")[2].split(", ")]
    with psycopg.connect(dsn) as connection:
        connection.execute(CREATE)
        with connection.cursor().copy(f"copy product ({', '.join(columns)}) from stdin") as copy:
            for change in Rows().inserts(range(rows)):
                row = json.loads(change.value or "{}")
                copy.write_row([row[column] for column in columns])
