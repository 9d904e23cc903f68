"""A Postgres whose tables several connections change at random, and its log by logical decoding.

Triggers put each row into the log as a transactional message: so it comes in commit order, and without what was rolled
back, also to a savepoint.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from tests.jobs.views.store.views_cases import ARRAYS, VALUES, Case, Spec, quoted
from tests.support.compare import parse

SLOT = "views"
_TRIGGER = """
create or replace function to_log() returns trigger language plpgsql as $$
begin
    perform pg_logical_emit_message(true, 'row', json_build_object(
        'table', tg_table_name,
        'old', case when tg_op <> 'INSERT' then
            (select json_object_agg(key, value::text) from jsonb_each(to_jsonb(old))) end,
        'new', case when tg_op <> 'DELETE' then
            (select json_object_agg(key, value::text) from jsonb_each(to_jsonb(new))) end)::text);
    return null;
end $$
"""


@dataclass(frozen=True)
class Change:
    """One record of a table's topic. `texts`: column -> JSON text; None for a delete. `offset`: in the table's log."""

    table: str
    key: str
    offset: int
    texts: dict[str, str] | None


@dataclass
class Source:
    """The tables of a case, in a database that is emptied first."""

    connection: psycopg.Connection
    dsn: str
    case: Case
    rng: random.Random
    offsets: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        execute = self.connection.execute
        execute("drop schema public cascade; create schema public")
        execute(_TRIGGER)
        self._specs = {spec.name: spec for spec in self.case.tables.values()}
        for spec in self._specs.values():
            for statement in spec.statements():
                execute(statement.encode())
            after = f"create trigger to_log after insert or update or delete on {quoted(spec.name)}"
            execute(f"{after} for each row execute function to_log()".encode())
        self._writers = [psycopg.connect(self.dsn, options="-c lock_timeout=2ms") for _ in range(3)]

    def close(self) -> None:
        for writer in self._writers:
            writer.close()

    # -- the log ------------------------------------------------------------------------------------------------

    def transactions(self) -> list[list[Change]]:
        """What has been committed since the last call."""
        found: list[list[Change]] = []
        rows = self.connection.execute("select data from pg_logical_slot_get_changes(%s, null, null)", (SLOT,))
        for (line,) in rows.fetchall():
            if line.startswith("BEGIN"):
                found.append([])
            elif line.startswith("message: transactional: 1 prefix: row"):
                found[-1] += self._changes(json.loads(line.split("content:", 1)[1]))
        return [changes for changes in found if changes]

    def _changes(self, message: dict[str, Any]) -> Iterator[Change]:
        """A change of a key is a delete and an insert."""
        spec, old, new = self._specs[message["table"]], message["old"], message["new"]
        before, after = old and self._key(spec, old), new and self._key(spec, new)
        if before is not None and before != after:
            yield self._change(spec, before, None)
        if after is not None:
            yield self._change(spec, after, new)

    def _change(self, spec: Spec, key: str, texts: dict[str, str] | None) -> Change:
        offset = self.offsets[spec.name] = self.offsets.get(spec.name, 0) + 1
        return Change(spec.full_name, key, offset, texts)

    @staticmethod
    def _key(spec: Spec, texts: dict[str, str]) -> str:
        values = [texts[name] for name in spec.key]
        if len(values) > 1:
            return "[" + ",".join(values) + "]"
        words = values[0].startswith('"') and spec.columns[spec.key[0]] != "numeric"
        return str(json.loads(values[0])) if words else values[0]

    def documents(self, statement: str) -> dict[str, Any]:
        """What a SELECT of keys and documents says, numbers exact."""
        rows = self.connection.execute(f"select key, document::text from ({statement}) x".encode()).fetchall()
        found = {key: parse(document) for key, document in rows}
        assert len(found) == len(rows), "a key twice"
        return found

    # -- the writers --------------------------------------------------------------------------------------------

    def write(self, steps: int) -> None:
        """Interleaved transactions; those that are open at the end go on with the next call, or are ended by `rest`."""
        for _ in range(steps):
            writer = self.rng.choice(self._writers)
            what = self.rng.random()
            if what < 0.12:
                writer.commit()
            elif what < 0.16:
                writer.rollback()
            elif what < 0.24:
                self._part(writer)
            else:
                self._try(writer)

    def rest(self) -> None:
        for writer in self._writers:
            writer.commit()

    def _part(self, writer: psycopg.Connection) -> None:
        """A savepoint, kept or rolled back."""
        keep = self.rng.random() < 0.5
        with writer.transaction(force_rollback=not keep):
            for _ in range(self.rng.randint(1, 3)):
                self._try(writer)

    def _try(self, writer: psycopg.Connection) -> None:
        """One change; where another writer or a unique key is in the way, none."""
        spec = self.rng.choice(list(self._specs.values()))
        try:
            with writer.transaction():
                self._change_something(writer, spec)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
            pass

    def _change_something(self, writer: psycopg.Connection, spec: Spec) -> None:
        what = self.rng.random()
        if what < 0.4:
            self._insert(writer, spec)
            return
        some = sql.SQL("select ctid from {} order by ctid").format(sql.Identifier(spec.name))
        there = [row[0] for row in writer.execute(some).fetchall()]
        if not there:
            self._insert(writer, spec)
            return
        row = self.rng.choice(there)
        if what < 0.6:
            count = self.rng.choice([1, 1, 1, 2, len(spec.columns)])
            names = self.rng.sample(list(spec.columns), min(count, len(spec.columns)))
            if spec.used and self.rng.random() < 0.6:
                # Documents need not show it.
                names = [self.rng.choice(spec.used)]
            names = [name for name in names if name not in spec.key] or spec.key
            self._update(writer, spec, row, names)
        elif what < 0.68:
            self._update(writer, spec, row, spec.key)
        elif what < 0.76 and len(there) > 1:
            self._swap(writer, spec, *self.rng.sample(there, 2))
        elif what < 0.92:
            self._delete(writer, spec, row)
        else:
            values = self._delete(writer, spec, row)
            again = dict(zip(spec.columns, values, strict=True))
            for name in self.rng.sample(list(spec.columns), self.rng.randint(0, 2)):
                if name not in spec.key:
                    again[name] = self._value(spec, name)
            self._put(writer, spec, again)

    def _value(self, spec: Spec, name: str) -> str | None:
        if name not in spec.key and self.rng.random() < 0.15:
            return None
        return self.rng.choice({**VALUES, **ARRAYS}[spec.columns[name]])

    def _insert(self, writer: psycopg.Connection, spec: Spec) -> None:
        self._put(writer, spec, {name: self._value(spec, name) for name in spec.columns})

    def _put(self, writer: psycopg.Connection, spec: Spec, values: dict[str, str | None]) -> None:
        writer.execute(
            sql.SQL("insert into {} ({}) values ({})").format(
                sql.Identifier(spec.name),
                sql.SQL(", ").join(map(sql.Identifier, values)),
                sql.SQL(", ").join(sql.Literal(value) for value in values.values()),
            )
        )

    def _update(self, writer: psycopg.Connection, spec: Spec, row: str, names: list[str]) -> None:
        changed = [
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(self._value(spec, name))) for name in names
        ]
        writer.execute(
            sql.SQL("update {} set {} where ctid = {}").format(
                sql.Identifier(spec.name), sql.SQL(", ").join(changed), sql.Literal(row)
            )
        )

    def _swap(self, writer: psycopg.Connection, spec: Spec, one: str, other: str) -> None:
        """Two rows exchange their keys: all else of them changes places, unique keys through nothing."""
        first, second = self._delete(writer, spec, one), self._delete(writer, spec, other)
        for values, keys in ((first, second), (second, first)):
            row = dict(zip(spec.columns, values, strict=True))
            row |= {name: value for name, value in zip(spec.columns, keys, strict=True) if name in spec.key}
            self._put(writer, spec, row)

    def _delete(self, writer: psycopg.Connection, spec: Spec, row: str) -> tuple[str | None, ...]:
        shown = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in spec.columns)
        statement = sql.SQL("delete from {} where ctid = {} returning {}")
        found = writer.execute(statement.format(sql.Identifier(spec.name), sql.Literal(row), shown)).fetchone()
        if found is None:
            raise psycopg.errors.LockNotAvailable
        return tuple(found)
