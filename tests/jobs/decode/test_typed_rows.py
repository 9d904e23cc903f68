"""Rows of typed columns: each value exactly what Postgres has, of the type that driftless/types.py names."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from driftless.table import Column, Table
from driftless.types import RULES
from jobs.decode.documents import writes_sql
from jobs.decode.typed_rows import BEYOND_DIGITS, BEYOND_YEARS, typed_rows_sql
from tests.jobs.both_ways import Record, both_ways, stepped
from tests.jobs.plain import LOG

TYPES: dict[str, tuple[object, object, pa.DataType]] = {
    "int2": (-32768, -32768, pa.int16()),
    "int4": (2**31 - 1, 2**31 - 1, pa.int32()),
    "int8": (-(2**63), -(2**63), pa.int64()),
    "oid": (2**32 - 1, 2**32 - 1, pa.int64()),
    "bool": (False, False, pa.bool_()),
    "text": ('a "b"\n☃', 'a "b"\n☃', pa.string()),
    "uuid": ("0b0c", "0b0c", pa.string()),
    "float4": ("0.1", 0.10000000149011612, pa.float32()),
    "float8": ("-1.5E-7", -1.5e-7, pa.float64()),
    "numeric": ("-12345678901234567890.123456789012345678",) * 2 + (pa.decimal128(38, 18),),
    "money": ("12.50", "12.50", pa.decimal128(38, 18)),
    "date": (-719_162, date(1, 1, 1), pa.date32()),
    "timestamp": (253_402_300_799_999_999, datetime(9999, 12, 31, 23, 59, 59, 999_999), pa.timestamp("us")),
    "timestamptz": (
        "2024-01-02T01:04:05.120001Z",
        datetime(2024, 1, 2, 1, 4, 5, 120_001, UTC),
        pa.timestamp("us", "UTC"),
    ),
    "time": (3_600_000_001, "01:00:00.000001", pa.string()),
    "interval": ("P1Y2M3DT4H5M6.5S", "1 year 2 mons 3 days 04:05:06.5", pa.string()),
    "bytea": ("00ff", b"\x00\xff", pa.binary()),
    "jsonb": ('{"a": [1, 2]}', '{"a": [1, 2]}', pa.string()),
    "bit": ("gQ==", "00000010000001", pa.string()),
}
"""Type -> what the log has, the value, Arrow's type of it."""


def column(kind: str, *, array: bool = False) -> Column:
    return Column("c", kind, array=array, length=14 if kind == "bit" else 0)


def record(value: object, offset: int = 0) -> Record:
    row = None if value is None else json.dumps({"id": 1, "c": value}).encode()
    return b'{"id":1}', row, None, 0, offset


def rows(spark: SparkSession, one: Column, records: list[Record]) -> pa.Table:
    table = Table("public", "t", (Column("id", "int8"), one), ("id",))
    return both_ways(spark, *typed_rows_sql(table, table.columns, LOG), records)


def values(found: pa.Table) -> list[Any]:
    """Of the column `row`."""
    return found["row"].to_pylist()


def wanted(value: object, kind: pa.DataType) -> object:
    return Decimal(str(value)) if pa.types.is_decimal(kind) else value


@pytest.mark.parametrize("kind", TYPES)
def test_a_value_of_each_type(spark: SparkSession, kind: str) -> None:
    logged, value, arrow = TYPES[kind]
    null = b'{"id":1}', b'{"id":1,"c":null}', None, 0, 1
    found = rows(spark, column(kind), [record(logged), null, record(None, 2)])
    row = pa.struct([pa.field("id", pa.int64()), pa.field("c", arrow)])
    assert found.schema.field("row").type == row
    assert values(found) == [{"id": 1, "c": wanted(value, arrow)}, {"id": 1, "c": None}, None]
    assert found["key"].to_pylist() == ["1"] * 3
    assert found["offset"].to_pylist() == [0, 1, 2]
    assert [version >> 48 for version in found["version"].to_numpy()] == [1, 1, 3]


ARRAYS = ("int4", "bool", "text", "float8", "numeric", "date", "timestamp", "timestamptz", "bytea", "jsonb")


@pytest.mark.parametrize("kind", ARRAYS)
def test_an_array_of_each_type(spark: SparkSession, kind: str) -> None:
    logged, value, arrow = TYPES[kind]
    if kind == "date":
        logged, value = 19_782, date(2024, 2, 29)
    found = rows(spark, column(kind, array=True), [record([logged, None]), record([], 1)])
    assert [row["c"] for row in values(found)] == [[wanted(value, arrow), None], []]
    assert found.schema.field("row").type.field("c").type.value_type == arrow


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("numeric", "NAN", BEYOND_DIGITS),
        ("numeric", "POSITIVE_INFINITY", BEYOND_DIGITS),
        ("numeric", "123456789012345678901", BEYOND_DIGITS),
        ("numeric", "0.1234567890123456789", BEYOND_DIGITS),
        ("numeric", "1E-19", BEYOND_DIGITS),
        ("date", -719_163, BEYOND_YEARS),
        ("date", 2_932_897, BEYOND_YEARS),
        ("date", -622_191_234, BEYOND_YEARS),
        ("timestamp", 9_223_371_331_200_000_001, BEYOND_YEARS),
        ("timestamp", -62_150_000_000_000_000, BEYOND_YEARS),
        ("timestamptz", "infinity", BEYOND_YEARS),
        ("timestamptz", "-0043-03-15T00:00:00Z", BEYOND_YEARS),
        ("timestamptz", "0000-03-15T00:00:00Z", BEYOND_YEARS),
        ("timestamptz", "+12345-01-01T00:00:00Z", BEYOND_YEARS),
    ],
)
def test_what_a_type_cannot_hold_is_refused_with_the_name_of_its_column(
    spark: SparkSession, kind: str, value: object, why: str
) -> None:
    for array in (False, True):
        with pytest.raises(PySparkException, match=f"column c: {why}"):
            rows(spark, column(kind, array=array), [record([value] if array else value)])


@pytest.mark.parametrize(
    ("text", "value"),
    [("1E-18", "0.000000000000000001"), ("1.50E+3", "1500"), ("0.1000000000000000000000", "0.1"), ("-0.0", "0")],
)
def test_a_numeric_is_held_however_its_digits_are_spelt(spark: SparkSession, text: str, value: str) -> None:
    (row,) = values(rows(spark, column("numeric"), [record(text)]))
    assert row["c"] == Decimal(value)


@pytest.mark.parametrize(("text", "value"), [("NaN", "nan"), ("Infinity", "inf"), ("-Infinity", "-inf")])
def test_doubles_that_are_no_numbers(spark: SparkSession, text: str, value: str) -> None:
    table = Table("public", "t", (Column("id", "int8"), column("float8")), ("id",))
    parse, shape = typed_rows_sql(table, table.columns, LOG)  # not both ways: a NaN does not equal itself
    (row,) = values(stepped(spark, tuple(parse), tuple(shape), [record(text)]))
    assert str(row["c"]) == value


def test_a_record_that_cannot_be_decoded_fails_with_its_place_as_documents_do(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"shop\.public\.t/0/7: the row cannot be decoded"):
        rows(spark, column("int4"), [record(1), record("x", 7)])


@pytest.mark.parametrize("kind", RULES)
def test_every_type_has_a_type_and_what_is_a_string_is_what_a_document_shows(spark: SparkSession, kind: str) -> None:
    """With nothing in it, since what the log has differs; a type without an expression could not be planned."""
    one = column(kind)
    table = Table("public", "t", (Column("id", "int8"), one), ("id",))
    nothing: list[Record] = [(b'{"id":1}', b'{"id":1,"c":null}', None, 0, 0)]
    parse, shape = typed_rows_sql(table, [one], LOG)
    assert values(both_ways(spark, parse, shape, nothing)) == [{"c": None}]
    if kind in TYPES and RULES[kind].typed == "string":
        records = [record(TYPES[kind][0])]
        (row,) = values(both_ways(spark, parse, shape, records))
        (write,) = both_ways(spark, *writes_sql(table, {"c": "c"}, LOG), records).to_pylist()
        shown = json.loads(write["document"])["c"]
        assert row["c"] == shown or json.loads(row["c"]) == shown
