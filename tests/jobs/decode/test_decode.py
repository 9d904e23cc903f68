"""From records to writes, inside Spark and without servers. The types are held against Postgres in tests/chain."""

from __future__ import annotations

import json
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from driftless.facts.epochs import Epoch, TopicLog, first_epoch
from driftless.sink import WRITES
from driftless.table import Column, Table
from jobs.decode.arrow_records import versions
from jobs.decode.documents import writes_sql
from jobs.decode.records import LACKING
from jobs.follow.apply import newest_per_key
from tests.jobs.both_ways import both_ways

IN_ARRAYS = {"-63517824000000000": "-63517996800000000"}
"""What Debezium writes in another way within an array: days before the Gregorian calendar."""
LOG = first_epoch("shop.public.t", "id", 2)
Record = tuple[bytes | None, bytes | None, int, int]


def decode(
    spark: SparkSession, table: Table, records: list[Record], fields: dict[str, str] | None = None, log: TopicLog = LOG
) -> list[tuple[str, int, object]]:
    parse, shape = writes_sql(table, fields or {c.name: c.name for c in table.columns}, log)
    writes = both_ways(spark, parse, shape, [(k, v, None, p, offset) for k, v, p, offset in records]).cast(WRITES)
    rows = zip(*(writes.column(i).to_pylist() for i in range(3)), strict=True)
    return [(k, v, None if d is None else json.loads(d, parse_float=Decimal, parse_int=Decimal)) for k, v, d in rows]


def table(*columns: Column, key: tuple[str, ...] = ("id",)) -> Table:
    return Table("public", "t", columns, key)


ID = Column("id", "int8")


def test_a_row_becomes_a_document_and_a_tombstone_a_delete(spark: SparkSession) -> None:
    t = table(ID, Column("name", "text"))
    records: list[Record] = [
        (b'{"id":9007199254740993}', b'{"id":9007199254740993,"name":"a \\"b\\"\\n\xc3\xa9"}', 0, 7),
        (b'{"id":2}', None, 1, 8),
    ]
    assert decode(spark, t, records) == [
        ("9007199254740993", (1 << 48) | 7, {"id": Decimal(9007199254740993), "name": 'a "b"\né'}),
        ("2", (1 << 48) | 8, None),
    ]


def test_a_view_shows_what_it_names_under_its_own_names_and_keeps_nulls(spark: SparkSession) -> None:
    t = table(ID, Column("na`me'\"", "text"), Column("price", "numeric"), Column("secret", "text"))
    value = json.dumps({"id": 1, "na`me'\"": None, "price": None, "secret": "x"}).encode()
    fields = {'it\'s "called"': "na`me'\"", "cost\\": "price"}
    assert decode(spark, t, [(b'{"id":1}', value, 0, 0)], fields) == [
        ("1", 1 << 48, {'it\'s "called"': None, "cost\\": None})
    ]


def test_a_name_that_looks_like_a_setting_of_spark_is_a_name(spark: SparkSession) -> None:
    name = "${spark.app.name} ${env:HOME} ${x}"
    value = json.dumps({"id": 1, name: "y"}).encode()
    assert decode(spark, table(ID, Column(name, "text")), [(b'{"id":1}', value, 0, 0)], {name: name}) == [
        ("1", 1 << 48, {name: "y"})
    ]


def test_numbers_keep_every_digit(spark: SparkSession) -> None:
    t = table(
        ID, Column("n", "numeric"), Column("f", "float8"), Column("a", "numeric", array=True), Column("j", "jsonb")
    )
    value = (
        b'{"id":1,"n":"12345678901234567890123456789012345678901234567890.10","f":1.0E300,'
        b'"a":["1.10",null,"-0.001"],"j":"{\\"x\\": 1e400, \\"y\\": 0.10}"}'
    )
    ((_, _, document),) = decode(spark, t, [(b'{"id":1}', value, 0, 0)])
    assert document == {
        "id": 1,
        "n": Decimal("12345678901234567890123456789012345678901234567890.10"),
        "f": Decimal("1e300"),
        "a": [Decimal("1.10"), None, Decimal("-0.001")],
        "j": {"x": Decimal("1e400"), "y": Decimal("0.10")},
    }


@pytest.mark.parametrize(
    ("kind", "log", "shown"),
    [
        ("numeric", '"NAN"', "NaN"),
        ("numeric", '"POSITIVE_INFINITY"', "Infinity"),
        ("numeric", '"NEGATIVE_INFINITY"', "-Infinity"),
        ("float8", '"NaN"', "NaN"),
        ("float4", '"-Infinity"', "-Infinity"),
        ("timestamp", "1704164645120000", "2024-01-02T03:04:05.12"),
        ("timestamp", "1704164645000000", "2024-01-02T03:04:05"),
        ("timestamp", "9223372036854775807", "infinity"),
        ("timestamp", "-9223372036854775808", "-infinity"),
        ("timestamp", "-63517824000000000", "0044-03-15T00:00:00 BC"),
        ("timestamp", "327403382400000001", "12345-01-01T00:00:00.000001"),
        ("timestamptz", '"2024-01-02T01:04:05.120000Z"', "2024-01-02T01:04:05.12+00:00"),
        ("timestamptz", '"2024-01-02T01:00:00.000000Z"', "2024-01-02T01:00:00+00:00"),
        ("timestamptz", '"2024-01-02T01:00:10Z"', "2024-01-02T01:00:10+00:00"),
        ("timestamptz", '"infinity"', "infinity"),
        ("timestamptz", '"-infinity"', "-infinity"),
        ("timestamptz", '"-0043-03-15T00:00:00.000000Z"', "0044-03-15T00:00:00+00:00 BC"),
        ("timestamptz", '"+12345-01-01T00:00:00.000000Z"', "12345-01-01T00:00:00+00:00"),
        ("date", "19782", "2024-02-29"),
        ("date", "-622191234", "infinity"),
        ("date", "-625821272", "-infinity"),
        ("date", "3789391", "12345-01-01"),
        ("date", "2145042905", "5874897-12-31"),
        ("date", "2146033979", "infinity"),
        ("date", "-2147472691", "-infinity"),
        ("date", "-735160", "0044-03-15 BC"),
        ("time", "36000120000", "10:00:00.12"),
        ("time", "86400000000", "24:00:00"),
        ("bytea", '"deadbeef"', "\\xdeadbeef"),
        ("bytea", '""', "\\x"),
        ("uuid", '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"', "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("json", '"{\\"a\\":\\n [1]}"', {"a": [Decimal(1)]}),
    ],
)
def test_a_value_is_shown_as_to_jsonb_shows_it(spark: SparkSession, kind: str, log: str, shown: object) -> None:
    """Left: seen in Debezium's records. Right: seen in Postgres' answers."""
    t = table(ID, Column("v", kind), Column("a", kind, array=True))
    value = f'{{"id":1,"v":{log},"a":[{IN_ARRAYS.get(log, log)},null]}}'.encode()
    assert decode(spark, t, [(b'{"id":1}', value, 0, 0)])[0][2] == {"id": Decimal(1), "v": shown, "a": [shown, None]}


def test_keys_of_several_columns_are_compact_json_and_never_meet(spark: SparkSession) -> None:
    t = table(Column("a", "text"), Column("n", "int4"), key=("a", "n"))
    keys = [("a-b", 1), ("a", 11), ('a",1', 1), ("a\\", 1), ("", 1)]
    records: list[Record] = [(json.dumps({"a": a, "n": n}).encode(), None, 0, i) for i, (a, n) in enumerate(keys)]
    found = [key for key, _, _ in decode(spark, t, records)]
    assert found == [json.dumps([a, n], separators=(",", ":")) for a, n in keys]
    assert len(set(found)) == len(keys)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (b'{"id":1}', b'{"id":1,"n":', "the row cannot be decoded"),
        (b'{"id":1}', b'{"id":1,"n":"not a number"}', "the row cannot be decoded"),
        (b'{"id":1}', b"", "the row cannot be decoded"),
        (b'{"id":"x"}', b'{"id":1,"n":1}', "the key cannot be decoded"),
        (b'{"other":1}', b'{"id":1,"n":1}', "the key cannot be decoded"),
        (None, b'{"id":1,"n":1}', "the key cannot be decoded"),
    ],
)
def test_a_record_that_cannot_be_read_stops_with_its_place_and_without_its_values(
    spark: SparkSession, key: bytes | None, value: bytes, why: str
) -> None:
    with pytest.raises(PySparkException, match=f"shop.public.t/1/42: {why}") as caught:
        decode(spark, table(ID, Column("n", "int4")), [(key, value, 1, 42)])
    assert "not a number" not in str(caught.value)


def test_versions_in_spark_and_of_arrays_are_the_registry_s_for_every_record(spark: SparkSession) -> None:
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    floors = [{0: 0, 1: 0}]
    for _ in range(4):
        floors.append({p: floor + rng.randrange(0, 5) for p, floor in floors[-1].items()})
    log = TopicLog("t", "id", 2, tuple(Epoch(3 + 2 * i, floor, "") for i, floor in enumerate(floors)))
    places = [(p, o) for p in (0, 1) for o in range(25)]
    found = decode(spark, table(ID), [(b'{"id":1}', None, p, o) for p, o in places], log=log)
    wanted = [log.version(p, o) for p, o in places]
    assert [version for _, version, _ in found] == wanted, f"seed {seed}: {floors}"
    partitions, offsets = (np.array(column) for column in zip(*places, strict=True))
    assert versions(log, partitions, offsets).to_pylist() == wanted, f"seed {seed}: {floors}"


def test_the_newest_write_of_each_key_is_kept_deletes_too() -> None:
    rows = [("a", 1, "{}"), ("b", 2, "{}"), ("a", 3, None), ("c", 4, "{}"), ("b", 5, "{}")]
    batch = pa.RecordBatch.from_pylist([dict(zip(WRITES.names, row, strict=True)) for row in rows], schema=WRITES)
    kept = newest_per_key(batch)
    assert [tuple(row.values()) for row in kept.to_pylist()] == [("a", 3, None), ("c", 4, "{}"), ("b", 5, "{}")]
    assert kept.schema == WRITES


def test_a_value_that_the_source_left_out_stops_at_its_record(spark: SparkSession) -> None:
    """It would be shown as if it were the application's own text."""
    large = table(ID, Column("body", "text", toastable=True), Column("data", "bytea", toastable=True))
    wanted = {c.name: c.name for c in large.columns}
    parse, shape = writes_sql(large, wanted, LOG, unavailable="__gone__")
    rows = [{"id": 1, "body": "__gone", "data": None}, {"id": 2, "body": None, "data": "00"}]
    for lost in (None, {"id": 3, "body": "__gone__", "data": None}, {"id": 3, "body": "", "data": b"__gone__".hex()}):
        values = [json.dumps(row).encode() for row in (*rows, *([lost] if lost else []))]
        records = [(b'{"id":1}', value, None, 1, 70 + n) for n, value in enumerate(values)]
        if lost is None:
            assert len(both_ways(spark, parse, shape, records)) == 2
            continue
        with pytest.raises(PySparkException, match=f"shop.public.t/1/72: {LACKING}"):
            both_ways(spark, parse, shape, records)
