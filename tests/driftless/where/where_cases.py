"""Rows with every value that is hard to compare, and random conditions on them, as an operator might write them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import psycopg

from driftless.table import Column, Table

WEIRD = 'Wei"rd `x` ${y} é'
_MOMENTS = (
    "2024-02-29 12:00:00",
    "2024-02-29 12:00:00.000001",
    "2024-02-28 23:59:59.999999",
    "1969-12-31 23:59:59.5",
    "1500-02-28 00:00:00",
    "0001-01-01 00:00:00",
    "9999-12-31 23:59:59.999999",
    "infinity",
    "-infinity",
)
_EARLY_AND_LATE = ("0044-03-15 12:00:00 BC", "0001-12-31 00:00:00 BC", "12345-06-07 08:09:10")
_DAYS = tuple(dict.fromkeys(moment.split(" ")[0] for moment in _MOMENTS))
_TEXTS = (
    "",
    " ",
    "a",
    "A",
    "b",
    "ab",
    "aB",
    "Ab",
    "a b",
    "a\nb",
    "ä",
    "zz",
    "_",
    "a%b",
    "a\\b",
    "'",
    '"',
    "${spark.app.name}",
    "é",
    "e\u0301",
    "\uffee",
    "𝄞",
    "a𝄞b",
    "😀😀",
    "NULL",
)
_UUIDS = (
    "00000000-0000-0000-0000-000000000000",
    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12",
    "9fffffff-ffff-ffff-ffff-ffffffffffff",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
)
_NUMERICS = (
    *(
        "0",
        "0.00",
        "-0.1",
        "-0.10",
        "0.1",
        "1",
        "1.10",
        "1.1",
        "1.11",
        "-1.1",
        "-1.11",
        "9.99",
        "10",
        "100",
        "-10",
        "-9",
    ),
    *(
        "0.00000001",
        "0.0000000100",
        "-0.00000001",
        "1e-30",
        "7e40",
        "-7e40",
        "70000000000000000000000000000000000000001",
    ),
    *("12345678901234567890.123456789012345678901234567890", "12345678901234567890.123456789012345678901234567891"),
)
_DOUBLES = (
    *("0", "-0.0", "0.1", "0.10000000149011612", "16777216", "16777217", "1e300", "-1e300", "5e-324", "1.5", "-2.5"),
    *("9007199254740993", "3.4028234663852886e38", "100"),
)
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_LABELS = ("sad", "ok", "happy", "so-so")
_TIMES = ("00:00:00", "10:30:00", "10:30:00.000001", "23:59:59.999999", "24:00:00")

# Column -> (declared type, its name in the catalogue, kind, values).
COLUMNS: dict[str, tuple[str, str, str, Sequence[str]]] = {
    "i2": ("smallint", "int2", "int8", ("0", "1", "-1", "5", "32767", "-32768")),
    "i4": ("integer", "int4", "int8", ("0", "1", "-1", "5", "32768", "-2147483648", "2147483647")),
    "i8": (
        "bigint",
        "int8",
        "int8",
        ("0", "1", "5", "9007199254740993", "9223372036854775807", "-9223372036854775808"),
    ),
    "n": ("numeric", "numeric", "numeric", (*_NUMERICS, *_NOT_FINITE)),
    "money": ("numeric(12,3)", "numeric", "numeric", ("0", "0.1", "-0.1", "1.1", "1.11", "10", "999999999.999", "NaN")),
    "f4": ("real", "float4", "float8", ("0", "-0.0", "0.1", "16777216", "1.5", "-2.5", "3.4028235e38", *_NOT_FINITE)),
    "f8": ("double precision", "float8", "float8", (*_DOUBLES, *_NOT_FINITE)),
    "b": ("boolean", "bool", "bool", ("true", "false")),
    "b2": ("boolean", "bool", "bool", ("true", "false")),
    WEIRD: ("text {collation}", "text", "text", _TEXTS),
    "v": ("varchar(30) {collation}", "varchar", "text", _TEXTS),
    "c": ("char(6) {collation}", "bpchar", "bpchar", ("", "a", "A", "ab", "a b", "ä", "b", "𝄞")),
    "c2": ("char(3) {collation}", "bpchar", "bpchar", ("", "a", "A", "ab", "a b", "ä", "b", "𝄞")),
    "u": ("uuid", "uuid", "uuid", _UUIDS),
    "u2": ("uuid", "uuid", "uuid", _UUIDS),
    "e": ("mood", "mood", "enum", _LABELS),
    "e2": ("mood", "mood", "enum", _LABELS),
    "d": ("date", "date", "date", (*_DAYS, "0044-03-15 BC", "12345-06-07", "5874897-12-31")),
    "d2": ("date", "date", "date", _DAYS),
    "ts": ("timestamp", "timestamp", "timestamp", (*_MOMENTS, *_EARLY_AND_LATE)),
    "ts2": ("timestamp", "timestamp", "timestamp", _MOMENTS),
    "tz": ("timestamptz", "timestamptz", "timestamptz", (*_MOMENTS, *_EARLY_AND_LATE)),
    "tz2": ("timestamptz", "timestamptz", "timestamptz", _MOMENTS),
    "t": ("time", "time", "time", _TIMES),
    "t2": ("time", "time", "time", _TIMES),
    "j": ("jsonb", "jsonb", "", ("null", "1", "[]")),
    "tags": ("text[]", "text", "", ("{}", "{a,NULL}")),
}
TABLE = Table(
    "public",
    "rows",
    (
        Column("id", "int8"),
        *(
            Column(name, type_, "e" if kind == "enum" else "b", array=name == "tags")
            for name, (_, type_, kind, _) in COLUMNS.items()
        ),
    ),
    ("id",),
)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if name == WEIRD else name


def create(connection: psycopg.Connection, table: str, collation: str) -> None:
    columns = ", ".join(
        f"{quoted(name)} {declared.format(collation=f'collate {collation}')}"
        for name, (declared, *_) in COLUMNS.items()
    )
    connection.execute(f"create table {table} (id bigint primary key, {columns})".encode())


def fill(connection: psycopg.Connection, table: str, rng: random.Random, rows: int) -> None:
    """Every value of every column at least once, if there are rows enough; otherwise as it comes, a tenth nulls."""
    names = ", ".join(quoted(name) for name in COLUMNS)
    casts = ", ".join(f"%s::{declared.split(' {')[0]}" for declared, *_ in COLUMNS.values())
    for number in range(rows):
        values = [
            pool[number] if number < len(pool) else None if rng.random() < 0.1 else rng.choice(pool)
            for _, _, _, pool in COLUMNS.values()
        ]
        connection.execute(f"insert into {table} (id, {names}) values ({number}, {casts})".encode(), values)


def log(connection: psycopg.Connection, table: str) -> list[str]:
    """Every row as the log has it, in the order of `id`; the forms are those seen in Debezium's records."""
    parts = ["'\"id\":' || id"]
    for name, (_, type_, _, _) in COLUMNS.items():
        column = quoted(name)
        written = _WRITTEN.get(type_, "{}").format(column)
        parts.append(f"to_json('{name}'::text)::text || ':' || coalesce(to_json({written})::text, 'null')")
    query = f"select '{{' || {' || chr(44) || '.join(parts)} || '}}' from {table} order by id"
    return [_as_debezium(text) for (text,) in connection.execute(query.encode()).fetchall()]


_YEAR = "(extract(year from {0} at time zone 'UTC')::int + case when extract(year from {0}) < 0 then 1 else 0 end)"
_WRITTEN = {
    "numeric": "{}::text",
    "float4": "{}::text",
    "float8": "{}::text",
    "jsonb": "{}::text",
    "date": "case {0} when 'infinity' then -622191234 when '-infinity' then -625821272 else {0} - date 'epoch' end",
    "timestamp": "case {0} when 'infinity' then 9223372036854775807 when '-infinity' then -9223372036854775808 "
    "else (extract(epoch from {0}) * 1000000)::bigint end",
    # Without a fraction where it is zero, in every other row: the snapshot and the stream may differ there.
    "timestamptz": "case when not isfinite({0}) then {0}::text else "
    f"case when {_YEAR} > 9999 then '+' || {_YEAR} when {_YEAR} < 0 then '-' || lpad((-{_YEAR})::text, 4, '0') "
    f"else lpad({_YEAR}::text, 4, '0') end || to_char({{0}} at time zone 'UTC', '-MM-DD\"T\"HH24:MI:SS') || "
    "case when id % 2 = 0 and date_trunc('second', {0}) = {0} then '' "
    "else to_char({0} at time zone 'UTC', '.US') end || 'Z' end",
    "time": "(extract(epoch from {0}) * 1000000)::bigint",
}


def _as_debezium(text: str) -> str:
    """Numbers as Java writes them: numerics with an exponent where there are many zeros, words for what is none."""
    row: dict[str, Any] = json.loads(text)
    words = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}
    for name, (_, type_, _, _) in COLUMNS.items():
        if type_ == "numeric" and row[name] is not None:
            row[name] = words.get(row[name]) or str(Decimal(row[name]))
        elif type_.startswith("float") and row[name] not in (None, *words):
            row[name] = float(row[name])
    return json.dumps(row, ensure_ascii=False)


@dataclass
class Conditions:
    """Random conditions. `used` counts which operator met which kind."""

    rng: random.Random

    def __post_init__(self) -> None:
        self.used: set[tuple[str, str]] = set()

    def condition(self, depth: int = 3) -> str:
        if depth == 0 or self.rng.random() < 0.35:
            return self._test()
        match self.rng.randrange(6):
            case 0:
                return f"{self._word('not')} {self._inner(depth)}"
            case 1:
                return f"({self.condition(depth - 1)}) {self._word(self.rng.choice(_IS))}"
            case _:
                words = [self._word(self.rng.choice(("and", "or"))) for _ in range(self.rng.randrange(1, 3))]
                return self._inner(depth) + "".join(f" {word} {self._inner(depth)}" for word in words)

    def _inner(self, depth: int) -> str:
        """Often without parentheses: what binds more closely is then Postgres' to say."""
        inner = self.condition(depth - 1)
        return f"({inner})" if self.rng.random() < 0.4 else inner

    def _word(self, word: str) -> str:
        return word if self.rng.random() < 0.5 else word.upper()

    def _test(self) -> str:
        name = self.rng.choice(list(COLUMNS))
        kind = COLUMNS[name][2]
        column = quoted(name)
        operators = ["null", *({"": (), "bool": ("=", "alone"), "enum": ("=", "in")}.get(kind, _ALL))]
        if name == "f4":
            operators.remove("in")
        if kind == "text":
            operators += ["like", "like"]
        operator = self.rng.choice(operators)
        self.used.add((operator, kind))
        match operator:
            case "null":
                return f"{column} {self._word(self.rng.choice(('is null', 'is not null')))}"
            case "alone":
                return column
            case "in":
                many = self.rng.choice((1, 2, 3, 14))
                listed = ", ".join(self._literal(name) for _ in range(many))
                return f"{column} {self._word(self.rng.choice(('in', 'not in')))} ({listed})"
            case "between":
                word = self._word(self.rng.choice(("between", "not between")))
                return f"{column} {word} {self._literal(name)} {self._word('and')} {self._literal(name)}"
            case "like":
                return f"{column} {self._word(self.rng.choice(('like', 'not like')))} {_text(self._pattern())}"
        if operator == "=":
            operator = self.rng.choice(("=", "<>", "!="))
        others = [other for other, (_, _, k, _) in COLUMNS.items() if k == kind and other != name]
        if others and self.rng.random() < 0.2:
            self.used.add(("columns", kind))
            return f"{column} {operator} {quoted(self.rng.choice(others))}"
        literal = self._literal(name)
        return f"{literal} {operator} {column}" if self.rng.random() < 0.2 else f"{column} {operator} {literal}"

    def _literal(self, name: str) -> str:
        _, _, kind, pool = COLUMNS[name]
        value = self.rng.choice(pool)
        match kind:
            case "int8":
                return self.rng.choice(
                    (value, value, value, "1.5", "-0.5", "5.0", "9223372036854775808", "1e0", "-1e30")
                )
            case "numeric" | "float8":
                others = _NUMERICS if kind == "numeric" else _DOUBLES
                value = value if self.rng.random() < 0.5 else self.rng.choice(others)
                return f"'{value}'" if value in _NOT_FINITE else value
            case "bool":
                return self._word(value)
            case "uuid":
                shown = self.rng.choice((value, value.upper(), value.replace("-", "")))
                return f"'{shown}'"
            case "date" | "timestamp" | "timestamptz":
                value = self.rng.choice(_DAYS if kind == "date" else _MOMENTS)
                if "infinity" in value or kind == "date":
                    return f"'{value}'"
                zones = ("Z", "+00", "-00:00", "+05:30", "-11") if kind == "timestamptz" else ("",)
                zone = self.rng.choice(zones[:3] if value.startswith(("0001", "9999")) else zones)
                return f"'{self.rng.choice((value, value.replace(' ', 'T')))}{zone}'"
        return _text(value + "  " if kind == "bpchar" and self.rng.random() < 0.3 else value)

    def _pattern(self) -> str:
        parts = ("%", "_", "\\%", "\\_", "\\\\", "\\a", "a", "b", "A", "𝄞", "😀", "ä", "\n", "'", ".", "*", "${", "}")
        return "".join(self.rng.choices((*parts, "%", "_"), k=self.rng.randrange(5)))


_IS = ("is true", "is not true", "is false", "is not false")
_ALL = ("=", "<", "<=", ">", ">=", "in", "between")


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
