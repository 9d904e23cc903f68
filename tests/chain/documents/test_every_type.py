"""Every type, through the whole chain, by snapshot and by stream: what documents show is what the server says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from connectors.postgres.client import Postgres
from driftless.sink import WRITES
from driftless.table import Column, Table
from driftless.types import DECIMAL, RULES, refusal, rule_of, sql_of
from jobs.decode import arrow_rows as plainrows
from jobs.decode.arrow_documents import plain_documents
from jobs.decode.arrow_rows import plain_rows
from jobs.decode.typed_rows import typed_rows_sql
from tests.chain.conftest import MakePipeline
from tests.chain.documents.type_samples import REFUSED, SAMPLES, SETUP, SHOWN_AS
from tests.jobs.both_ways import Record, stepped
from tests.jobs.plain import LOG, by_arrow, by_spark, documents_by_arrow, documents_by_spark
from tests.support.compare import View
from tests.support.pipeline import Pipeline

pytestmark = pytest.mark.server

TABLES = {
    f"public.{name}": {f"c{n}": kind for n, kind in enumerate(SAMPLES) if n // 60 == number}
    for number, name in enumerate(("one", "two", "three"))
}
"""Table -> column -> its type."""

KEYED = "create table keyed (a citext, b bit(3), c date, d name, e int4range, note text, primary key (a, b, c, d, e))"

# What a server, a database or a role may be set to; none of it may show.
AWKWARD = (
    "intervalstyle = 'sql_standard'",
    "bytea_output = 'escape'",
    "datestyle = 'German'",
    "extra_float_digits = 0",
)


def _view(name: str, table: str) -> View:
    columns = TABLES[table]
    shown = {column: column for column, kind in columns.items() if kind not in REFUSED}
    instead = {column: SHOWN_AS[kind].format(column) for column, kind in columns.items() if kind in SHOWN_AS}
    return View(name, table, fields={"id": "id", **shown}, instead=instead)


def _value(kind: str, text: str | None) -> sql.Composable:
    if text is None:
        return sql.SQL("null")
    value = sql.SQL(text) if text.startswith("row(") else sql.Literal(text)
    return sql.SQL("{}::{}").format(value, sql.SQL(kind))


def _insert(source: psycopg.Connection, first: int) -> None:
    """Every sample of every type, the n-th of each in the n-th row."""
    for table, columns in TABLES.items():
        for row, values in enumerate(zip_longest(*(SAMPLES[kind] for kind in columns.values()))):
            parts = [_value(kind, value) for kind, value in zip(columns.values(), values, strict=True)]
            source.execute(
                sql.SQL("insert into {} values ({}, {})").format(
                    sql.Identifier(*table.split(".")), sql.Literal(first + row), sql.SQL(", ").join(parts)
                )
            )


@pytest.fixture(scope="module")
def source(module_database: str) -> psycopg.Connection:
    """A connection to the database, which prints values in the oddest ways."""
    with psycopg.connect(module_database, autocommit=True) as connection:
        connection.execute(SETUP.encode())
        for table, columns in TABLES.items():
            listed = ", ".join(f"{column} {kind}" for column, kind in columns.items())
            connection.execute(f"create table {table} (id int primary key, {listed})".encode())
        connection.execute(KEYED.encode())
        for setting in AWKWARD:
            connection.execute(f"alter database {connection.info.dbname} set {setting}".encode())
    return psycopg.connect(module_database, autocommit=True)


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    _insert(source, 0)
    _keys(source, "snapshot")
    pipeline = make_pipeline(
        *(_view(table.removeprefix("public."), table) for table in TABLES),
        View("keyed", "public.keyed", ("a", "b", "c", "d", "e")),
    )
    pipeline.apply()
    pipeline.run()
    return pipeline


def _keys(source: psycopg.Connection, note: str) -> None:
    for a, b, c, d, e in (("A:b", "011", "0044-03-15 BC", 'q"', "[1,3)"), ("ü", "000", "infinity", "", "empty")):
        values = (f"{note}{a}", b, c, d, e, note)
        source.execute("insert into keyed values (%s, %s::bit(3), %s, %s, %s, %s)", values)


@pytest.mark.soak
def test_a_snapshot_shows_every_type_as_the_server_does(pipeline: Pipeline) -> None:
    pipeline.assert_in_step()


def test_changes_show_every_type_as_the_server_does(pipeline: Pipeline, source: psycopg.Connection) -> None:
    _insert(source, 1000)
    _keys(source, "stream")
    source.execute("update keyed set note = note || '!'")
    source.execute("update keyed set a = upper(a::text)::citext where a = 'snapshotü'")
    pipeline.assert_in_step()
    rows = max(len(SAMPLES[kind]) for kind in TABLES["public.one"].values())
    assert len(pipeline.stores["one-search"].documents()) == 2 * rows


@pytest.mark.soak
def test_every_column_can_become_null(pipeline: Pipeline, source: psycopg.Connection) -> None:
    for table, columns in TABLES.items():
        nothing = ", ".join(f"{column} = null" for column in columns)
        source.execute(f"update {table} set {nothing} where id >= 1000".encode())
    pipeline.assert_in_step()


@pytest.mark.soak
def test_arrow_decodes_what_debezium_writes_as_spark_does(
    spark: SparkSession, pipeline: Pipeline, module_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plainrows, "LARGE", 1 << 20)  # some rows have sixty columns
    with Postgres(module_database) as postgres:
        tables = {name: postgres.table(name) for name in TABLES}
    decoded, left, documents = Counter[str](), Counter[str](), Counter[str]()
    for name, table in tables.items():
        assert table is not None
        taken = [(key, value) for key, value in pipeline.records(name) if key and json.loads(key)["id"] < 1000]
        records: list[Record] = [(*both, None, 0, offset) for offset, both in enumerate(taken)]
        (key,) = (column for column in table.columns if column.name == "id")
        for column in table.columns:
            one = Table(table.schema, table.name, (key, column), table.key)
            if column is key or refusal(column) is not None or plain_rows(one, LOG, "") is None:
                continue
            kind = TABLES[name][column.name]
            each = {record: by_arrow(spark, one, [record]) for record in records}
            usual = {record: rows for record, rows in each.items() if rows is not None}
            decoded += Counter({kind: len(usual)})
            left += Counter({kind: len(each) - len(usual)})
            rows = [row for some in usual.values() for row in some.to_pylist()]
            assert rows == by_spark(spark, one, list(usual)).to_pylist(), column
            fields = {"id": "id", "shown": column.name}
            if plain_documents(one, fields, LOG) is not None:
                shown = {record: documents_by_arrow(spark, one, fields, [record]) for record in usual}
                expected = documents_by_spark(spark, one, fields, list(usual)).to_pylist()
                writes = [some.select(WRITES.names) for some in shown.values() if some is not None]
                assert [row for some in writes for row in some.to_pylist()] == expected, column
                documents += Counter({kind: len(expected)})
    common = {"bigint", "boolean", "text", "uuid", "numeric(10,2)", "jsonb", "date", "timestamp", "timestamptz", "mood"}
    assert decoded.keys() >= common
    assert documents.keys() >= common
    # Its infinities, and years that are no four digits. Nothing of a text, since all of it is read as it stands.
    assert left.keys() >= {"numeric", "date", "timestamp", "timestamptz"}
    assert not left.keys() & {"bigint", "boolean", "text", "uuid", "jsonb", "mood"}


@pytest.mark.soak
def test_typed_rows_hold_what_the_server_has(
    spark: SparkSession, pipeline: Pipeline, source: psycopg.Connection, module_database: str
) -> None:
    same, refused = Counter[str](), Counter[str]()
    with Postgres(module_database) as postgres:
        tables = {name: postgres.table(name) for name in TABLES}
    for usual in ("datestyle = 'ISO'", "bytea_output = 'hex'", "extra_float_digits = 1", "timezone = 'UTC'"):
        source.execute(f"set {usual}".encode())
    for name, table in tables.items():
        assert table is not None
        for column in table.columns:
            rule = rule_of(column)
            if refusal(column) is not None or rule is None or rule.typed == "string":
                continue
            one = Table(table.schema, table.name, (Column("id", "int4"), column), ("id",))
            parse, shape = typed_rows_sql(one, [column], LOG)
            kind = stepped(spark, tuple(parse), tuple(shape), []).schema.field("row").type.field(0).type
            taken = {json.loads(key)["id"]: (key, value) for key, value in pipeline.records(name) if key}
            for number, both in sorted(taken.items()):
                if number >= 1000:
                    continue
                record = (*both, None, 0, number)
                value = _typed_by_psycopg(source, name, column, number, kind)
                if value is None:
                    with pytest.raises(PySparkException, match=f"column {column.name}: "):
                        stepped(spark, tuple(parse), tuple(shape), [record])
                    refused[rule.typed] += 1
                else:
                    row = stepped(spark, tuple(parse), tuple(shape), [record])["row"][0].as_py()
                    assert repr([row[column.name]]) == value, (column, number)
                    same[rule.typed] += 1
    assert same.keys() == {rule.typed for rule in RULES.values()} - {"string"}
    assert refused.keys() == {DECIMAL, "date", "timestamp", "timestamp_ntz"}


def _typed_by_psycopg(source: psycopg.Connection, table: str, column: Column, number: int, kind: Any) -> str | None:
    """What Postgres' client and Arrow make of a value; None of one that Python's or Arrow's type does not hold."""
    shown = "{}::numeric" if column.type == "money" else "{}"
    query = f"select {shown.format(column.name)} from {table} where id = {number}"
    try:
        found = source.execute(query.encode()).fetchone()
        assert found is not None
        return repr(pa.array(found, kind).to_pylist())
    except (psycopg.DataError, pa.ArrowInvalid):
        return None


@pytest.fixture
def found(source: psycopg.Connection, module_database: str) -> Mapping[str, Mapping[str, str | None]]:
    """Table -> column -> why it is refused."""
    assert source.info.dbname in module_database
    with Postgres(module_database) as postgres:
        tables = {name: postgres.table(name) for name in TABLES}
    return {name: {column.name: refusal(column) for column in table.columns} for name, table in tables.items() if table}


def test_what_is_refused_is_what_the_samples_say(found: Mapping[str, Mapping[str, str | None]]) -> None:
    for table, columns in TABLES.items():
        refused = {kind for column, kind in columns.items() if found[table][column] is not None}
        assert refused == REFUSED & set(columns.values())


def test_what_is_shown_by_a_rule_can_be_asked_of_the_server(source: psycopg.Connection, module_database: str) -> None:
    with Postgres(module_database) as postgres:
        for name, columns in TABLES.items():
            table = postgres.table(name)
            assert table is not None
            for column, kind in columns.items():
                known = table.column(column)
                assert known is not None
                if kind not in REFUSED:
                    expected = SHOWN_AS.get(kind, "{}").format(column)
                    differs = f"{sql_of(known, column)} is distinct from to_jsonb({expected})"
                    query = f"select count(*) from {name} where {differs}"
                    assert source.execute(query.encode()).fetchone() == (0,), kind
