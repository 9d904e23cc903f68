"""From records of a table to rows for a row store, inside Spark; and where the transaction before each ended."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from driftless.facts.epochs import first_epoch
from driftless.table import Column, Table
from jobs.decode.rows import FIXED, rows_sql
from jobs.views.reader import Rows
from tests.jobs.both_ways import both_ways

LOG = first_epoch("shop.public.t", "id", 2)
COLUMNS = (Column("a", "int8"), Column("b", "text"), Column("n", "numeric"), Column("on", "bool"), Column("at", "date"))
TABLE = Table("public", "t", COLUMNS, ("a", "b"))
KEY = b'{"a":1,"b":"x\\"y"}'
VALUE = b'{"a":1,"b":"x\\"y","n":"1.50","on":true,"at":19000}'
Header = tuple[str, bytes]


def headers(op: str, seq: str | None, *more: Header) -> list[Header]:
    """As Debezium writes them; a snapshot's have no sequence."""
    found = [*more, ("op", op.encode()), ("ts", b"1"), ("lsn", b"2"), ("tx", b"3")]
    return found if seq is None else [*found, ("seq", seq.encode())]


def read(spark: SparkSession, *records: tuple[bytes, bytes | None, list[Header] | None]) -> list[tuple[object, ...]]:
    sql = rows_sql(TABLE, LOG)
    given = [(key, value, heads, 1, n) for n, (key, value, heads) in enumerate(records)]
    table = both_ways(spark, sql.parse, sql.shape, given)
    assert table.column_names == [*FIXED, *(f"c{n}" for n in range(len(COLUMNS)))]
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def prev_commit_lsns(spark: SparkSession, *found: list[Header] | None) -> list[object]:
    return [row[FIXED.index("prev_commit_lsn")] for row in read(spark, *((KEY, VALUE, heads) for heads in found))]


def test_a_row_has_a_text_for_each_column_and_a_tombstone_has_none(spark: SparkSession) -> None:
    one, gone = read(spark, (KEY, VALUE, headers("c", '["7","9"]')), (KEY, None, headers("d", '["8","9"]')))
    key, version = '[1,"x\\"y"]', 1 << 48
    assert one == (1, 0, key, version, 7, False, "1", 'x"y', "1.50", "true", '"2022-01-08"')
    assert gone == (1, 1, key, version + 1, 8, True, None, None, None, None, None)
    assert rows_sql(TABLE, LOG).plain == {1}


def test_null_is_no_text_and_the_empty_text_is_one(spark: SparkSession) -> None:
    (row,) = read(spark, (b'{"a":1,"b":""}', b'{"a":1,"b":"","n":null}', headers("c", '["7","9"]')))
    assert row[len(FIXED) :] == ("1", "", None, None, None)


def test_the_gate_is_where_the_transaction_before_ended(spark: SparkSession) -> None:
    changed_key = ("__debezium.newkey", b"{}")
    assert prev_commit_lsns(
        spark,
        headers("c", '["9223372036854775807","5"]'),
        headers("u", '["12","5"]', changed_key),
        headers("r", None),
        headers("r", '["12","5"]'),
        headers("c", '[null,"5"]'),
        [*headers("c", '["12","5"]'), ("later", b"x")],
        None,
    ) == [9223372036854775807, 12, -1, -1, 0, 12, 0]


def test_a_record_that_cannot_be_read_stops_with_its_place(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"shop\.public\.t/1/0: the row cannot be decoded"):
        read(spark, (KEY, b'{"a":"no number"}', headers("c", '["7","9"]')))
    with pytest.raises(PySparkException, match=r"shop\.public\.t/1/0: the key cannot be decoded"):
        read(spark, (b'{"a":1}', VALUE, headers("c", '["7","9"]')))


def test_rows_are_made_of_columns_batch_by_batch() -> None:
    """What is read for the reading alone is left out; a plain text becomes JSON, and null stays null."""
    names = [*FIXED, "c0", "c1"]
    first = pa.record_batch(
        [[0, 1], [7, 8], ["1", "2"], [70, 80], [-1, 5], [False, True], ["1", None], ['a"', None]], names
    )
    second = pa.record_batch([[0], [9], ["3"], [90], [6], [False], ["3"], ["null"]], names)
    rows = Rows(pa.Table.from_batches([first, second]), frozenset({1}))
    assert len(rows) == 3
    expected = [("1", 70, False, "1", '"a\\""'), ("2", 80, True, None, None), ("3", 90, False, "3", '"null"')]
    assert list(rows) == list(rows) == expected
