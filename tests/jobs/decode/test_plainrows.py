"""Rows that Arrow decodes are the rows of Spark's expressions; what is unusual it leaves to them."""

from __future__ import annotations

import json
import random
from typing import cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from driftless.table import Column, Table
from jobs.decode.arrow_rows import LARGE, plain_rows
from jobs.log import bulk
from jobs.log.contract import SliceReader, UnusualRecordsError
from jobs.spark.source import DRIVER_OFFSETS, LogSource
from jobs.views import reader
from jobs.views.reader import TableLog
from tests.jobs.both_ways import Record, stepped
from tests.jobs.plain import LOG, UNAVAILABLE, by_arrow, by_spark
from tests.support.seeds import seeds

COLUMNS = {
    "id": Column("id", "int8"),
    "name": Column("name", "text", toastable=True),
    "mood": Column("mood", "mood", kind="e"),
    "ref": Column("ref", "uuid"),
    "on": Column("on", "bool"),
    "n": Column("n", "numeric"),
    "doc": Column("doc", "jsonb"),
    "at": Column("at", "timestamp"),
    "zoned": Column("zoned", "timestamptz"),
    "day": Column("day", "date"),
    "f": Column("f", "float8"),
    "raw": Column("raw", "bytea"),
}
ROW: dict[str, object] = {
    "id": 7,
    "name": 'a "b"\\\n\tü☃𝄞',
    "mood": "ok",
    "ref": "0b0c",
    "on": True,
    "n": "-1.50",
    "doc": '{"a": [1,\n"\\n"]}',
    "at": 1_704_164_645_120_000,
    "zoned": "2024-01-02T01:04:05.120000Z",
    "day": 19_782,
    "f": "-1.5E-7",
    "raw": "00ff",
}
HEADERS = [("op", b"c"), ("ts", b"1"), ("seq", b'["12","15"]')]


def table(*names: str, key: tuple[str, ...] = ("id",)) -> Table:
    return Table("public", "t", tuple(COLUMNS[name] for name in names or COLUMNS), key)


def record(row: object, key: object = None, offset: int = 0, partition: int = 0) -> Record:
    """Of a row, or of bytes as they are; with its `id` for a key."""
    if key is None:
        key = {"id": row["id"]} if isinstance(row, dict) and "id" in row else {"id": 1}
    value, encoded = (
        part if isinstance(part, bytes) or part is None else json.dumps(part, ensure_ascii=False).encode()
        for part in (row, key)
    )
    return encoded, value, HEADERS, partition, offset


def same(spark: SparkSession, t: Table, records: list[Record]) -> list[dict[str, object]]:
    wanted, found = by_spark(spark, t, records), by_arrow(spark, t, records)
    assert found is not None, "left to Spark"
    assert (found.schema.names, found.schema.types) == (wanted.schema.names, wanted.schema.types)
    assert found.to_pylist() == wanted.to_pylist()
    return found.to_pylist()


def test_a_row_of_every_common_type(spark: SparkSession) -> None:
    (row,) = same(spark, table(), [record(ROW, offset=5)])
    assert row == {
        "partition": 0,
        "offset": 5,
        "key": "7",
        "version": (3 << 48) | 5,
        "prev_commit_lsn": 12,
        "gone": False,
        "c0": "7",
        "c1": ROW["name"],
        "c2": "ok",
        "c3": "0b0c",
        "c4": "true",
        "c5": "-1.50",
        "c6": '{"a": [1, "\\n"]}',
        "c7": '"2024-01-02T03:04:05.12"',
        "c8": '"2024-01-02T01:04:05.12+00:00"',
        "c9": '"2024-02-29"',
        "c10": "-1.5E-7",
        "c11": '"\\\\x00ff"',
    }


def test_deletes_nulls_epochs_and_prev_commit_lsns(spark: SparkSession) -> None:
    nulls = dict.fromkeys(ROW) | {"id": 2}
    records = [record(None, {"id": 1}, 1), record(nulls, offset=2), record({"id": 3}, offset=0, partition=1)]
    read = [(*record(ROW, offset=4)[:2], [("op", b"r"), ("x", b"")], 1, 4), (*record(ROW)[:2], None, 1, 5)]
    rows = same(spark, table(), [*records, *read])
    assert [row["gone"] for row in rows] == [True, False, False, False, False]
    assert [int(str(row["version"])) >> 48 for row in rows] == [1, 3, 1, 3, 3]
    assert [row["prev_commit_lsn"] for row in rows] == [12, 12, 12, -1, 0]
    assert [row["c9"] for row in rows] == [None, None, None, '"2024-02-29"', '"2024-02-29"']
    assert same(spark, table(), []) == []


@pytest.mark.parametrize(
    ("names", "key"),
    [
        (("name",), '"'),
        (("n",), "-1.50"),
        (("on",), "true"),
        (("at",), "2024-01-02T03:04:05.12"),
        (("zoned",), "2024-01-02T01:04:05.12+00:00"),
        (("day", "n", "ref", "on", "id"), '["2024-02-29",-1.50,"0b0c",true,7]'),
        (("zoned", "at"), '["2024-01-02T01:04:05.12+00:00","2024-01-02T03:04:05.12"]'),
    ],
)
def test_keys(spark: SparkSession, names: tuple[str, ...], key: str) -> None:
    row = ROW | {"name": '"'}
    (found,) = same(spark, table(key=names), [record(row, {name: row[name] for name in names})])
    assert found["key"] == key


EDGES: dict[str, tuple[object, ...]] = {
    "id": (0, -(2**63), 2**63 - 1),
    "name": ("", " ", "null", "\x7f", "\U0010ffff"),
    "f": ("0.0", "-0.0", "1.0E15", "1.7976931348623157E308", "4.9E-324"),
    "raw": ("",),
    "n": ("0", "0.00", "1E+5", "123456789012345678901234567890.10"),
    "doc": ("null", "1", '"x"', "[]", '{"a":1e400}'),
    "at": (-62_135_596_800_000_000, -1, 0, 1, 253_402_300_799_999_999, 1_000_000, 1_704_164_645_000_000),
    "zoned": ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2024-01-02T00:00:00.000000Z"),
    "day": (-719_162, -1, 0, 2_932_896),
}


@pytest.mark.parametrize("name", EDGES)
def test_the_edges_of_what_is_usual(spark: SparkSession, name: str) -> None:
    same(spark, table(), [record(ROW | {name: value}, {"id": 1}, offset) for offset, value in enumerate(EDGES[name])])


UNUSUAL: dict[str, dict[str, object]] = {
    "NaN": {"n": "NAN"},
    "infinity": {"n": "POSITIVE_INFINITY"},
    "negative infinity": {"n": "NEGATIVE_INFINITY"},
    "a double that is none": {"f": "NaN"},
    "an infinite double": {"f": "Infinity"},
    "a negative infinite double": {"f": "-Infinity"},
    "value left out of a bytea": {"raw": UNAVAILABLE.encode().hex()},
    "no number": {"n": ""},
    "year 10000": {"at": 253_402_300_800_000_000},
    "year 0": {"at": -62_135_596_800_000_001},
    "day of year 10000": {"day": 2_932_897},
    "day of year 0": {"day": -719_163},
    "infinite day": {"day": -622_191_234},
    "infinite moment": {"zoned": "infinity"},
    "late moment": {"zoned": "+12345-01-01T00:00:00Z"},
    "early moment": {"zoned": "-0043-03-15T00:00:00Z"},
    "moment of year 0": {"zoned": "0000-03-15T00:00:00Z"},
    "value left out": {"name": UNAVAILABLE},
    "text for a number": {"id": "7"},
    "number for a text": {"name": 7},
    "fraction": {"id": 7.0},
    "large number": {"id": 2**63},
    "number for a boolean": {"on": 1},
    "object for a text": {"doc": {"a": 1}},
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_what_is_unusual_is_left_to_spark(spark: SparkSession, what: str) -> None:
    records = [record(ROW), record(ROW | UNUSUAL[what], {"id": 1}, 1)]
    assert by_arrow(spark, table(), records) is None
    assert by_arrow(spark, table(), records[:1]) is not None


@pytest.mark.parametrize(
    "value",
    [b"null", b"[]", b"1", b"", b"{", b"{}{}", b'{"id":1}null{"id":2}', b'{"id":1}\n{"id":2}', b'{"name":"\xff"}'],
)
@pytest.mark.parametrize("where", ["key", "value"])
def test_what_is_no_object_is_left_to_spark(spark: SparkSession, value: bytes, where: str) -> None:
    damaged = record(value) if where == "value" else record(ROW, value)
    assert by_arrow(spark, table(), [record(ROW), damaged, record(ROW)]) is None


def test_a_large_record_is_left_to_spark(spark: SparkSession) -> None:
    """Whose columns, if nobody wants them, would all come into the driver."""
    few = json.dumps({"id": 1, "other": ""}).encode()
    for size, left in ((LARGE, False), (LARGE + 1, True)):
        value = few.replace(b'""', b'"%s"' % (b"x" * (size - len(few))))
        assert len(value) == size
        assert (by_arrow(spark, table("id"), [record(value)]) is None) == left


def test_a_column_may_have_any_name(spark: SparkSession) -> None:
    name = 'a"\\\n`é.r'
    t = Table("public", "t", (COLUMNS["id"], Column(name, "text")), (name,))
    (row,) = same(spark, t, [record({"id": 1, name: "x", "r": 2}, {name: "k"})])
    assert (row["key"], row["c0"], row["c1"]) == ("k", "1", "x")


def test_texts_in_keys_are_spelt_as_spark_spells_them(spark: SparkSession) -> None:
    t = table("id", "name", key=("id", "name"))
    rows = [{"id": 1, "name": text} for text in ("☃/<𝄞", *map(chr, range(1, 0xA1)), '\\"\n\x01\\')]
    found = same(spark, t, [record(row, row, offset) for offset, row in enumerate(rows)])
    assert found[-1]["key"] == '[1,"\\\\\\"\\n\\u0001\\\\"]'


def test_a_key_that_lacks_a_column_is_left_to_spark(spark: SparkSession) -> None:
    for key in (b'{"name":"x"}', b'{"id":null}'):
        assert by_arrow(spark, table(), [record(ROW, key)]) is None
    assert by_arrow(spark, table(), [(None, *record(ROW)[1:])]) is None


@pytest.mark.parametrize("other", [Column("x", "time"), Column("x", "int4", array=True), Column("x", "interval")])
def test_a_table_with_another_type_is_read_by_spark(other: Column) -> None:
    assert plain_rows(Table("public", "t", (COLUMNS["id"], other), ("id",)), LOG, "") is None


def test_a_slice_that_is_unusual_is_read_again_and_those_after_it_by_spark_alone(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, other = [record(ROW), record(ROW | {"id": 8}, offset=1)], [record(ROW | {"n": "NAN"}, offset=2)]
    slices, asked = iter([usual, other, other, usual]), []
    many = {0: DRIVER_OFFSETS + 1}

    class ByArrow:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def read(self, *_: object, **__: object) -> tuple[dict[int, int], pa.Table]:
            asked.append("arrow")
            rows = by_arrow(spark, table(), next(slices))
            if rows is None:
                raise UnusualRecordsError
            return many, rows

        def close(self) -> None:
            asked.append("close")

    class BySpark:
        def __init__(self, _: SparkSession, source: LogSource, *__: object, **___: object) -> None:
            self._source = source

        def toArrow(self) -> pa.Table:  # noqa: N802
            asked.append("spark")
            rows = stepped(spark, self._source.parse, self._source.shape, next(slices))
            return rows.append_column("large", pa.array([False] * len(rows)))

    monkeypatch.setattr(reader, "LocalReader", ByArrow)
    monkeypatch.setattr(bulk, "read_slice", BySpark)
    log = TableLog.of(table(), LOG, {}, UNAVAILABLE)
    reading = reader.Reader([log], spark, cast("SliceReader", None), "group")
    found = [reading._rows(log, {0: 0}, many, 99, 99)[0] for _ in range(3)]
    reading.close()
    expected = [by_spark(spark, table(), records) for records in (usual, other, usual)]
    assert [list(rows) for rows in found] == [list(reader.Rows(rows, log.plain)) for rows in expected]
    assert asked == ["arrow", "arrow", "close", "spark", "spark"]


@pytest.mark.parametrize(
    ("headers", "prev_commit_lsn"),
    [
        ([("seq", b'["7","8"]'), ("op", b"u")], 7),
        ([("op", b"c"), ("seq", b'[null,"8"]')], 0),
        ([("op", b"r"), ("seq", b"anything")], -1),
        ([("op", b"c")], 0),
        ([], 0),
        ([("op", b"c"), ("seq", b"anything")], None),
        ([("op", b"c"), ("op", b"r"), ("seq", b'["7","8"]')], None),
        ([("op", b"c"), ("seq", b'["7","8"]'), ("seq", b'["9","9"]')], None),
        ([("op", b"c"), ("seq", b'["1234567890123456789","8"]')], None),
    ],
)
def test_prev_commit_lsn_of_headers_in_any_order(
    spark: SparkSession, headers: list[tuple[str, bytes]], prev_commit_lsn: int | None
) -> None:
    """None where it is left to Spark."""
    others = [record(ROW), record(ROW, offset=2)]
    records: list[Record] = [others[0], (*record(ROW)[:2], headers, 0, 1), others[1]]
    if prev_commit_lsn is None:
        assert by_arrow(spark, table(), records) is None
    else:
        assert [row["prev_commit_lsn"] for row in same(spark, table(), records)] == [12, prev_commit_lsn, 12]


PIECES = [b"null", b"true", b"1e999", b"-", b"0", b"{", b"}", b"[", b"]", b",", b":", b'"', b'{"a":', b"{}", b'{"r":']
PIECES += [b"\\u", b"\\n", b"\n", b" ", b"\x00", b"\xff"]


@pytest.mark.parametrize("seed", seeds(__name__, 1))
def test_damaged_records_are_what_spark_makes_of_them(spark: SparkSession, seed: int) -> None:
    """Bytes are put in, taken out and changed at random: what Arrow decodes then, Spark decodes the same."""
    print(f"DRIFTLESS_TEST_SEED={seed}")
    rng, taken = random.Random(seed), 0
    for _ in range(400):
        one = damaged(record(ROW | {"name": rng.choice(["x", "", None])}), rng)
        found = by_arrow(spark, table(), [one])
        if found is None:
            continue
        taken += 1
        try:
            wanted = by_spark(spark, table(), [one])
        except PySparkException as exc:
            pytest.fail(f"Arrow decodes {one}, Spark does not: {str(exc)[:200]}")
        assert found.to_pylist() == wanted.to_pylist(), one
    assert 20 < taken < 380, taken


def damaged(whole: Record, rng: random.Random) -> Record:
    """With its value or its key damaged."""
    key, value, headers, partition, offset = whole
    assert key
    assert value
    if rng.random() < 0.8:
        return key, _damaged(value, rng), headers, partition, offset
    return _damaged(key, rng), value, headers, partition, offset


def _damaged(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.choice([1, 1, 2, 4])):
        at, length = rng.randrange(len(data) + 1), rng.choice([0, 0, 1, 3])
        data = data[:at] + rng.choice([b"", *PIECES]) + data[at + length :]
    return data
