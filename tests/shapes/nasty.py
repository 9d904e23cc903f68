"""A database that was not made for driftless."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

ODD = "emoji 😀 ${HOME} $1 %s, (a|b)* \\d"
SCRIPT = Path(__file__).with_name("nasty.sql")


@dataclass(frozen=True)
class Nasty:
    """What must come out of one table: its view's name, its key, what is excluded, how columns are renamed."""

    view: str
    schema: str
    table: str
    name: str
    key: tuple[str, ...] = ("id",)
    columns: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    renamed: dict[str, str] = field(default_factory=dict)

    @property
    def fields(self) -> dict[str, str]:
        """Name in the document -> column."""
        names = {column: name for name, column in self.renamed.items()}
        return {names.get(column, column): column for column in self.columns}


EXPECTED = (
    Nasty(
        "order_lines",
        "My Schema",
        "Order Lines",
        "My Schema.Order Lines",
        ("Order Id", "line, no"),
        ("Order Id", "line, no", "Größe", "a.b", "a", "_id", 'it\'s "so"', "null", " end ", "#x: y"),
        renamed={"a_b": "a.b", "id": "_id"},
    ),
    Nasty("ta_ble", "dotted.name", "ta.ble", '"dotted.name"."ta.ble"', columns=("id", "v"), exclude=("pass.word",)),
    Nasty(
        "public_customers",
        "public",
        "Customers",
        "public.Customers",
        columns=("id", "note"),
        exclude=("secret", "Secret sauce"),
    ),
    Nasty("braces", "public", "braces", "public.braces", ("{id}",), ("{id}", "v")),
    Nasty("cats", "public", "cats", "public.cats", columns=("id", "name")),
    Nasty(
        "customers",
        "public",
        "customers",
        "public.customers",
        columns=("id", "name", "mail", "mood"),
        exclude=("password_hash", "apiKey"),
    ),
    Nasty("emoji_home_1_s_a_b_d", "public", ODD, f"public.{ODD}", columns=("id", ODD), exclude=("Token",)),
    Nasty("employees", "public", "employees", "public.employees", columns=("id", "boss", "name")),
    Nasty("events", "public", "events", "public.events", ("id", "at"), ("id", "at", "what")),
    Nasty("mails", "public", "mails", "public.mails", ("mail",), ("mail",)),
    Nasty("moods", "public", "moods", "public.moods", ("mood",), ("mood", "n")),
    Nasty("quo_te_s", "public", "quo\"te's", 'public."quo""te\'s"', ("k\"'s",), ("k\"'s", "v\"'s")),
    Nasty("swapped", "public", "swapped", "public.swapped", ("n",), ("n", "v")),
    Nasty("table", "public", "таблица", "public.таблица", columns=("id", "значение")),
    Nasty("sales_customers", "sales", "customers", "sales.customers", columns=("id", "name", "tags", "at")),
    Nasty("eu_x", "sales", "eu_x", "sales.eu_x", columns=("id",)),
)
"""In the order in which they are written."""


def create(connection: psycopg.Connection) -> None:
    """Make everything."""
    connection.execute(SCRIPT.read_bytes())


def identifier(nasty: Nasty) -> sql.Identifier:
    return sql.Identifier(nasty.schema, nasty.table)


def insert(connection: psycopg.Connection, nasty: Nasty, number: int) -> None:
    """One row, made of a number; an enum as key has only two values."""
    if nasty.view == "moods" and number > 1:
        return
    types: dict[str, str] = dict(
        connection.execute(
            "select a.attname, format_type(a.atttypid, null) from pg_attribute a where attrelid = %s::regclass "
            "and attnum > 0 and attgenerated = '' and not attisdropped order by attnum",
            (identifier(nasty).as_string(connection),),
        ).fetchall()
    )
    values: dict[str, Any] = {name: _value(kind, number) for name, kind in types.items()}
    statement = sql.SQL("insert into {} ({}) values ({})").format(
        identifier(nasty),
        sql.SQL(", ").join(map(sql.Identifier, values)),
        sql.SQL(", ").join(map(sql.Literal, values.values())),
    )
    connection.execute(statement)


def _value(kind: str, number: int) -> Any:
    match kind:
        case "integer" | "bigint":
            return number
        case "numeric":
            return f"{number}.500"
        case "boolean":
            return number % 2 == 0
        case "jsonb":
            return ["7", '"text"', '{"a": [1, null]}', "null"][number % 4]
        case "uuid":
            return f"00000000-0000-0000-0000-{number:012}"
        case "mood":
            return ("happy", "so la la")[number % 2]
        case "email":
            return f"{number}@example.com"
        case "text[]":
            return [f"tag {number}", None]
        case "timestamp with time zone":
            return f"2026-01-01 00:00:{number % 60:02}.000{number % 10}+02"
    return f"text {number} 'ü' \"q\""
