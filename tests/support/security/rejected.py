"""Tables of which a search index refuses one document, and what `verify` says of them, for the secured chains."""

from __future__ import annotations

import json

import psycopg

from tests.support.machine import Machine, Result

ROWS = 60
LIMIT = 20
"""Fields that the search index takes: one row has more, and its document is quarantined."""


def make_docs(connection: psycopg.Connection) -> None:
    """Tables `docs` and `lines`, which point at them."""
    connection.execute("create table docs (id int primary key, title text, extra jsonb)")
    connection.execute("create table lines (id int primary key, doc int, qty int)")
    connection.execute("insert into docs select i, 'doc ' || i, '{}' from generate_series(1, %s) i", (ROWS,))
    connection.execute("insert into lines select i, i % 20 + 1, i from generate_series(1, 100) i")
    wide = json.dumps({f"f{i}": i for i in range(2 * LIMIT)})
    connection.execute("update docs set extra = %s where id = 1", (wide,))


def verified(machine: Machine) -> tuple[Result, dict[str, tuple[int, int, int]]]:
    """What `verify` said; of each follower documents, quarantined ones, and how many are missing, extra or different
    besides those.
    """
    done = machine("verify", "--json", seconds=400)
    assert done.out, f"verify said nothing and ended with {done.code}: {done.err}"
    return done, {
        f["name"]: (f["follower_documents"], f["quarantined"], f["missing"] + f["extra"] + f["different"])
        for f in done.json()["followers"]
    }
