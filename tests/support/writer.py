"""A seeded load on the source: tables with every plain type, and threads that change them in every awkward way."""

from __future__ import annotations

import json
import random
import threading
import traceback
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import psycopg
from psycopg import sql

Key = tuple[Any, ...]
Make = Callable[[random.Random], Any]

LARGE_BYTES = 20_000
"""Stored out of line, so an UPDATE that does not touch it leaves it out of the new row in the log."""

_TEXTS = (
    "",
    " ",
    "plain",
    'it\'s "quoted" \\ and {braced} %s',
    "line\nbreak\r\n\ttab",
    "héllo wörld ☃ 日本語 𝄞 \u2028 \u0301",
    "\x01\x1f\x7f\ufeff",
    "null",
    "__debezium_unavailable_value",
    '{"not": "json"}',
)
_NUMBERS = (
    "0",
    "0.00",
    "-0.10",
    "1.10",
    "-12345678901234567890.123456789012345678901234567890",
    "NaN",
    "1e-30",
    "7e40",
)
_MOMENTS = (
    "1970-01-01 00:00:00",
    "2024-02-29 23:59:59.9",
    "2024-01-02 03:04:05.123456",
    "1969-12-31 23:59:59.000001",
    "0044-03-15 12:00:00 BC",
    "9999-12-31 23:59:59.999999",
    "12345-06-07 08:09:10",
    "infinity",
    "-infinity",
)
_DAYS = (
    "1970-01-01",
    "2024-02-29",
    "0001-01-01",
    "0044-03-15 BC",
    "1582-10-10",
    "9999-12-31",
    "12345-06-07",
    "infinity",
    "-infinity",
)
_JSON = (
    "null",
    "true",
    '"text \\u00e9 \\" \\\\ \\n"',
    "12345678901234567890123456789.000000000000000000001",
    "[]",
    "{}",
    '[1, "two", null, [3.10], {"four": {"five": [false]}}]',
    '{"ü": "☃", "nested": {"big": 9007199254740993, "small": 1e-20, "exp": 1E+3}, "empty": ""}',
)


def _text(rng: random.Random) -> str:
    return rng.choice(_TEXTS) if rng.random() < 0.6 else "".join(rng.choices("abc äß€𝄞'\"\\\n", k=rng.randrange(40)))


def _number(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return rng.choice(_NUMBERS)
    return f"{rng.choice('-+')}{rng.getrandbits(rng.randrange(1, 200))}.{rng.randrange(10**6):06}"


def _integer(bits: int) -> Make:
    least = -(1 << (bits - 1))
    return lambda rng: rng.choice((least, -least - 1, 0, -1, rng.randrange(least, -least)))


def _json(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return rng.choice(_JSON)
    return json.dumps({_text(rng): _text(rng), "n": rng.getrandbits(100), "list": [_text(rng), None]}, indent=1)


def _moment(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return rng.choice(_MOMENTS)
    micros = rng.choice(("", ".5", ".000001", f".{rng.randrange(10**6):06}"))
    return f"{rng.randrange(1, 9999):04}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02} 11:22:33{micros}"


def _zoned(rng: random.Random) -> str:
    text = _moment(rng)
    if "infinity" in text:
        return text
    zone = rng.choice(("+00", "+05:30", "-11", "+14"))
    return text.replace(" BC", f"{zone} BC") if " BC" in text else text + zone


def _recent(rng: random.Random) -> str:
    """Within an array, since 1970: there Debezium shifts what is older than the Gregorian calendar."""
    return "infinity" if rng.random() < 0.1 else f"{rng.randrange(1970, 9999)}-02-28 23:59:59.{rng.randrange(10**6):06}"


def _finite(rng: random.Random) -> str:
    """Within an array: there Debezium gives up on the whole array for a NaN."""
    return next(number for number in iter(lambda: _number(rng), "") if number != "NaN")


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128)))


def _list(make: Make) -> Make:
    return lambda rng: [None if rng.random() < 0.2 else make(rng) for _ in range(rng.randrange(5))]


def _list_with_values(make: Make) -> Make:
    """Never of nulls alone: Debezium writes those where an array of such elements has several dimensions, so both are
    refused (test_poison.py).
    """
    lists = _list(make)
    return lambda rng: next(
        found for found in iter(lambda: lists(rng), 0) if not found or any(v is not None for v in found)
    )


def large(rng: random.Random) -> str:
    return "".join(rng.choices("0123456789abcdefé", k=LARGE_BYTES))


COLUMNS: dict[str, tuple[str, Make]] = {
    "note": ("text", _text),
    "small": ("smallint", _integer(16)),
    "whole": ("integer", _integer(32)),
    "big": ("bigint", _integer(64)),
    "amount": ("numeric", _number),
    "price": ("numeric(12,4)", lambda rng: f"{rng.randrange(-(10**8), 10**8)}.{rng.randrange(10**4):04}"),
    "flag": ("boolean", lambda rng: rng.random() < 0.5),
    "at": ("timestamp", _moment),
    "at_zone": ("timestamptz", _zoned),
    "day": ("date", lambda rng: rng.choice(_DAYS)),
    "token": ("uuid", _uuid),
    "doc": ("jsonb", _json),
    "raw": ("json", _json),
    "bytes": ("bytea", lambda rng: rng.randbytes(rng.randrange(20))),
    "whole_list": ("integer[]", _list_with_values(_integer(32))),
    "text_list": ("text[]", _list(_text)),
    "number_list": ("numeric[]", _list(_finite)),
    "uuid_list": ("uuid[]", _list(_uuid)),
    "at_list": ("timestamp[]", _list_with_values(_recent)),
    "doc_list": ("jsonb[]", _list(_json)),
}
"""Every plain type. Beside them each table has `tally`, a counter, and `large`, stored out of line."""


@dataclass(frozen=True)
class Target:
    """A table under load: its key columns with their types, the keys in play, and for each thread one to step aside."""

    table: str
    key: dict[str, str]
    keys: tuple[Key, ...]
    aside: tuple[Key, ...]

    def create(self, connection: psycopg.Connection) -> None:
        columns = [f"{name} {kind} not null" for name, kind in self.key.items()]
        columns += [f"{name} {kind}" for name, (kind, _) in COLUMNS.items()]
        columns += ["tally bigint not null default 0", "large text", f"primary key ({', '.join(self.key)})"]
        connection.execute(f"create table {self.table} ({', '.join(columns)})".encode())
        connection.execute(f"alter table {self.table} alter column large set storage external".encode())


def targets(threads: int = 4) -> tuple[Target, Target, Target]:
    """A table for each kind of key: an integer, a text and an integer, a uuid."""
    regions = ("north", "a:b", 'q"ü%{}', "")
    tokens = [str(uuid.uuid5(uuid.NAMESPACE_OID, str(n))) for n in range(60 + threads)]
    return (
        Target(
            "public.things", {"id": "int"}, tuple((n,) for n in range(60)), tuple((-n,) for n in range(1, threads + 1))
        ),
        Target(
            "public.pairs",
            {"region": "text", "n": "int"},
            tuple((region, n) for region in regions for n in range(15)),
            tuple((f"aside {n}", 0) for n in range(threads)),
        ),
        Target("public.tokens", {"id": "uuid"}, tuple((t,) for t in tokens[:60]), tuple((t,) for t in tokens[60:])),
    )


def row(rng: random.Random, *, nulls: float = 0.15) -> dict[str, Any]:
    """A value for every column; any of them may be null."""
    return {name: None if rng.random() < nulls else make(rng) for name, (_, make) in COLUMNS.items()}


class Rows:
    """Statements on one table over one connection."""

    def __init__(self, connection: psycopg.Connection, target: Target) -> None:
        self._connection = connection
        self.target = target
        self._where = sql.SQL(" and ").join(
            sql.SQL(f"{{}} = %s::{kind}").format(sql.Identifier(name)) for name, kind in target.key.items()
        )

    def insert(self, key: Key, values: dict[str, Any]) -> int:
        """Insert unless the key is there already; how many rows that made."""
        types = {**self.target.key, **{name: kind for name, (kind, _) in COLUMNS.items()}, "large": "text"}
        full = {**dict(zip(self.target.key, key, strict=True)), **values}
        return self._do(
            sql.SQL("insert into {} ({}) values ({}) on conflict do nothing").format(
                self._table(),
                sql.SQL(", ").join(map(sql.Identifier, full)),
                sql.SQL(", ").join(sql.SQL(f"%s::{types[name]}") for name in full),
            ),
            *full.values(),
        )

    def update(self, key: Key, values: dict[str, Any]) -> int:
        """Set these columns, and count up."""
        sets = [sql.SQL(f"{{}} = %s::{COLUMNS[name][0]}").format(sql.Identifier(name)) for name in values]
        sets.append(sql.SQL("tally = tally + 1").format())
        return self._do(
            sql.SQL("update {} set {} where {}").format(self._table(), sql.SQL(", ").join(sets), self._where),
            *values.values(),
            *key,
        )

    def rekey(self, key: Key, new: Key) -> int:
        """Give a row another primary key."""
        sets = sql.SQL(", ").join(
            sql.SQL(f"{{}} = %s::{kind}").format(sql.Identifier(name)) for name, kind in self.target.key.items()
        )
        return self._do(sql.SQL("update {} set {} where {}").format(self._table(), sets, self._where), *new, *key)

    def delete(self, key: Key) -> int:
        return self._do(sql.SQL("delete from {} where {}").format(self._table(), self._where), *key)

    def _table(self) -> sql.Identifier:
        return sql.Identifier(*self.target.table.split("."))

    def _do(self, statement: sql.Composed, *values: Any) -> int:
        return self._connection.execute(statement, values).rowcount


class Writer:
    """Threads that write until the block ends. The same seed gives each thread the same actions again.

    `done` counts what took effect, by kind of action, so that a test can tell that it happened.
    """

    def __init__(self, dsn: str, seed: int, *, threads: int = 3, pause: float = 0.03) -> None:
        print(f"writer: seed {seed}")
        self.done: Counter[str] = Counter()
        self._dsn = dsn
        self._seed = seed
        self._pause = pause
        self._targets = targets()
        self._stop = threading.Event()
        self._errors: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=(n,), name=f"writer-{n}") for n in range(threads)]

    def __enter__(self) -> Writer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End the threads; what they wrote is committed or gone. Fails when one of them failed."""
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        assert not self._errors, f"a writer failed (seed {self._seed}): {self._errors[0]}"

    def _run(self, number: int) -> None:
        rng = random.Random(f"{self._seed} {number}")
        try:
            while not self._stop.is_set():
                try:
                    with psycopg.connect(self._dsn, connect_timeout=10) as connection:
                        connection.execute("set lock_timeout = '2s'")
                        connection.execute("set deadlock_timeout = '50ms'")
                        connection.commit()
                        while not self._stop.wait(self._pause):
                            self._transaction(rng, connection, number)
                except psycopg.OperationalError:
                    self._stop.wait(0.2)  # the server is away; what was not committed is gone
        except Exception:  # noqa: BLE001 - told at the end, by the test's own thread
            self._errors.append(traceback.format_exc())

    def _transaction(self, rng: random.Random, connection: psycopg.Connection, number: int) -> None:
        """Some actions and their end. What the server refuses (a key taken meanwhile, a deadlock) is rolled back."""
        rows = Rows(connection, rng.choice(self._targets))
        done: Counter[str] = Counter()
        abandon = rng.random() < 0.1
        try:
            with connection.transaction(force_rollback=abandon):
                for _ in range(rng.choice((1, 1, 2, 3, 8))):
                    if rng.random() < 0.1:
                        with connection.transaction(force_rollback=True):
                            self._act(rng, rows, number, Counter())
                        done["savepoint"] += 1
                    else:
                        self._act(rng, rows, number, done)
                if rng.random() < 0.05:
                    self._stop.wait(0.3)  # stays open while others commit
        except (psycopg.errors.IntegrityError, psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable):
            self.done["refused"] += 1
            return
        self.done += Counter({"rollback": 1}) if abandon else done

    def _act(self, rng: random.Random, rows: Rows, number: int, done: Counter[str]) -> None:
        key, other = rng.sample(rows.target.keys, 2)
        action = rng.choices(
            ("insert", "update", "touch", "delete", "reinsert", "rekey", "swap"), weights=(6, 4, 6, 2, 2, 2, 2)
        )[0]
        count = 0
        match action:
            case "insert":
                big = {"large": large(rng)} if rng.random() < 0.4 else {}
                count = rows.insert(key, {**row(rng), **big})
            case "update":
                count = rows.update(key, row(rng))
            case "touch":
                count = rows.update(key, {"note": _text(rng)})
            case "delete":
                count = rows.delete(key)
            case "reinsert":
                count = rows.delete(key)
                rows.insert(key, row(rng))
            case "rekey":
                rows.delete(other)
                count = rows.rekey(key, other)
            case "swap":
                aside = rows.target.aside[number]
                count = rows.rekey(key, aside)
                count = min(count, rows.rekey(other, key))
                rows.rekey(aside, other)
        done[action] += count
