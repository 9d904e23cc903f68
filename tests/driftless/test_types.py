"""Which columns are carried, and which are refused because the log would change or lose their values."""

from __future__ import annotations

import json

import psycopg
import pytest

from cli.pages.types_page import PAGE, page
from driftless.table import Column, Table
from driftless.types import REFUSED, RULES, refusal, sql_of


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_type_with_a_rule_is_carried(name: str) -> None:
    assert refusal(Column("c", name)) is None


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(Column("c", "varbit"), id="varbit: its leading zeros are lost"),
        pytest.param(Column("c", "refcursor"), id="refcursor: a snapshot opens it, and fails"),
        pytest.param(Column("c", "name", array=True), id="name[]: left out"),
        pytest.param(Column("c", "int4", array=True, domains=True), id="domain[]: null"),
        pytest.param(Column("c", "cube", own=True, array=True), id="an array of an extension's type: null"),
        pytest.param(Column("c", "isbn", own=True, array=True), id="isbn[]: nobody has seen it carried"),
        pytest.param(Column("c", "geometry", own=True), id="geometry: a structure of Debezium's"),
        pytest.param(Column("c", "shape", own=True, json_cast=True), id="a type with a function for its JSON"),
        pytest.param(Column("c", "p", kind="c", fields=(Column("m", "money"),)), id="a composite with money"),
        pytest.param(Column("c", "time", array=True), id="time[]: cut to milliseconds, and 24:00 becomes 00:00"),
        pytest.param(Column("c", "mood", kind="e", array=True), id="enum[]: null where one element is null"),
        pytest.param(Column("c", "int4", array=True, dimensions=2), id="int[][]: nulls for its rows"),
        pytest.param(Column("c", "int4", generated=True), id="generated: not in the log"),
        pytest.param(Column("c", "nonsense"), id="a built-in type that nobody has looked at"),
    ],
)
def test_what_debezium_was_seen_to_lose_is_refused(column: Column) -> None:
    assert refusal(column) is not None


def test_an_enum_is_carried_by_itself() -> None:
    assert refusal(Column("c", "mood", kind="e")) is None


def test_no_type_is_both_carried_and_refused() -> None:
    assert not RULES.keys() & REFUSED.keys()


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_a_column_is_the_same_after_the_control_topic() -> None:
    inner = Column("i", "inner", kind="c", own=True, fields=(Column("n", "int4"),))
    column = Column("c", "outer", kind="c", own=True, fields=(inner, Column("b", "bit", length=5)))
    table = Table("public", "t", (column,), ("c",))
    assert Table.from_json(json.loads(json.dumps(table.to_json()))) == table


def test_what_is_shown_by_a_rule_has_its_sql() -> None:
    assert sql_of(Column("c", "money"), "c") == "to_jsonb(c::numeric)"
    assert sql_of(Column("c", "int4"), "c") == "to_jsonb(c)"


@pytest.mark.server
def test_no_type_of_the_server_is_forgotten(connection: psycopg.Connection) -> None:
    found = connection.execute(
        "select typname from pg_type where typnamespace = 'pg_catalog'::regnamespace and typtype in ('b', 'r', 'm') "
        "and typinput <> 'array_in'::regproc"
    ).fetchall()
    assert {name for (name,) in found} <= RULES.keys() | REFUSED.keys()
    assert len(found) > 70
