"""Documents that Arrow makes of a table's records are those of Spark's expressions, to the byte."""

from __future__ import annotations

import json
import random

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from driftless.table import Column, Table
from jobs.decode.arrow_documents import plain_documents
from jobs.decode.documents import writes_sql
from jobs.spark.arrow import records_as_they_are
from tests.jobs.both_ways import Record, in_java, stepped
from tests.jobs.decode.test_plainrows import COLUMNS, EDGES, ROW, UNUSUAL, damaged, record
from tests.jobs.plain import LOG, documents_by_arrow, documents_by_spark
from tests.support.seeds import seeds

TABLE = Table("public", "t", tuple(COLUMNS.values()), ("id",))
FIELDS = {name: name for name in COLUMNS}


def same(
    spark: SparkSession, records: list[Record], table: Table = TABLE, fields: dict[str, str] = FIELDS
) -> list[str | None]:
    wanted, found = documents_by_spark(spark, table, fields, records), documents_by_arrow(spark, table, fields, records)
    assert found is not None, "left to Spark"
    assert found.column_names == [*wanted.column_names, "partition", "offset"]
    assert found.select(wanted.column_names).to_pylist() == wanted.to_pylist()
    assert found.select(["partition", "offset"]).to_pylist() == [
        {"partition": partition, "offset": offset} for *_, partition, offset in records
    ]
    return [row["document"] for row in wanted.to_pylist()]


def test_a_document_of_every_common_type(spark: SparkSession) -> None:
    (found,) = same(spark, [record(ROW, offset=5)])
    assert found is not None
    assert json.loads(found) == {
        "id": 7,
        "name": ROW["name"],
        "mood": "ok",
        "ref": "0b0c",
        "on": True,
        "n": -1.5,
        "doc": {"a": [1, "\n"]},
        "at": "2024-01-02T03:04:05.12",
        "zoned": "2024-01-02T01:04:05.12+00:00",
        "day": "2024-02-29",
        "f": -1.5e-7,
        "raw": "\\x00ff",
    }


def test_deletes_nulls_and_epochs(spark: SparkSession) -> None:
    nulls = dict.fromkeys(ROW) | {"id": 2}
    records = [record(None, {"id": 1}, 1), record(nulls, offset=2), record({"id": 3}, offset=0, partition=1)]
    found = same(spark, [*records, record(ROW, offset=3)])
    assert [text is None for text in found] == [True, False, False, False]
    assert json.loads(found[1] or "") == nulls
    assert same(spark, []) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"renamed": "name"},
        {"n": "n", "doc": "doc"},
        {"b": "id", "a": "n", "c": "name", "d": "f"},
        {'a "quoted" \\ name': "id", "☃\t\x01": "doc", "\x7f/<": "name"},
        {"twice": "name", "again": "name"},
    ],
)
def test_names_and_order_of_fields(spark: SparkSession, fields: dict[str, str]) -> None:
    (found,) = same(spark, [record(ROW)], fields=fields)
    assert list(json.loads(found or "")) == sorted(fields, key=lambda name: fields[name] not in ("n", "doc", "f"))


@pytest.mark.parametrize("name", EDGES)
def test_the_edges_of_what_is_usual(spark: SparkSession, name: str) -> None:
    same(spark, [record(ROW | {name: value}, {"id": 1}, offset) for offset, value in enumerate(EDGES[name])])


def test_texts_are_spelt_as_spark_spells_them(spark: SparkSession) -> None:
    texts = [*map(chr, [*range(1, 0xA1), 0x2028, 0x2029, 0xFFFD, 0x1F600]), 'a\\"b\n\x01\\', "</script>"]
    found = same(spark, [record({"id": 1, "name": text}, offset=n) for n, text in enumerate(texts)])
    assert [json.loads(text or "")["name"] for text in found] == texts


@pytest.mark.parametrize("what", UNUSUAL)
def test_what_is_unusual_is_left_to_spark(spark: SparkSession, what: str) -> None:
    records = [record(ROW), record(ROW | UNUSUAL[what], {"id": 1}, 1)]
    assert documents_by_arrow(spark, TABLE, FIELDS, records) is None
    assert documents_by_arrow(spark, TABLE, FIELDS, records[:1]) is not None


def test_a_column_that_no_field_shows_does_not_matter(spark: SparkSession) -> None:
    same(spark, [record(ROW | {"n": "NAN", "day": -719_163})], fields={"id": "id", "name": "name"})


def test_a_large_value_is_usual(spark: SparkSession) -> None:
    (found,) = same(spark, [record(ROW | {"name": 'a"\n' * 100_000})])
    assert len(found or "") > 300_000


def test_a_record_without_a_column_that_it_must_have_is_left_to_spark(spark: SparkSession) -> None:
    """Before the position from which it must, its absence is a null."""
    fields, since = {"id": "id", "name": "name"}, {"name": 100}
    decoded = plain_documents(TABLE, fields, LOG, since=since)
    assert decoded is not None
    assert decoded.headers
    for lsn, left in ((b"100", False), (b"101", True)):
        key, value, _, partition, offset = record({"id": 1})
        records: list[Record] = [(key, value, [("lsn", lsn)], partition, offset)]
        found = decoded.rows(records_as_they_are(spark, headers=True).table(in_java(spark, records)))
        assert (found is None) == left
        parse, shape = writes_sql(TABLE, fields, LOG, since=since)
        if found is None:
            with pytest.raises(PySparkException, match="no column name"):
                stepped(spark, tuple(parse), tuple(shape), records)
        else:
            wanted = stepped(spark, tuple(parse), tuple(shape), records)
            assert found.select(wanted.column_names).to_pylist() == wanted.to_pylist()


@pytest.mark.parametrize("other", [Column("x", "time"), Column("x", "int4", array=True), Column("x", "interval")])
def test_a_type_that_arrow_does_not_know_is_left_to_spark_where_a_field_or_the_key_is_of_it(other: Column) -> None:
    table = Table("public", "t", (COLUMNS["id"], COLUMNS["name"], other), ("id",))
    assert plain_documents(table, {"id": "id"}, LOG) is not None
    assert plain_documents(table, {"id": "id", "x": "x"}, LOG) is None
    assert plain_documents(Table("public", "t", table.columns, ("x",)), {"id": "id"}, LOG) is None


@pytest.mark.parametrize("seed", seeds(__name__, 1))
def test_random_texts_are_what_spark_makes_of_them(spark: SparkSession, seed: int) -> None:
    print(f"DRIFTLESS_TEST_SEED={seed}")
    rng = random.Random(seed)
    alphabet = 'ab"\\/\n\r\t\b\f\x01\x1f\x7f\x80ü☃𝄞{}[]:,\u2028'
    texts = ["".join(rng.choices(alphabet, k=rng.randrange(12))) for _ in range(300)]
    rows = [
        {"id": n, "name": text, "mood": rng.choice(texts), "doc": json.dumps({text: rng.choice(texts)})}
        for n, text in enumerate(texts)
    ]
    table = Table("public", "t", TABLE.columns, ("id", "name"))
    same(spark, [record(row, {"id": row["id"], "name": row["name"]}, n) for n, row in enumerate(rows)], table)


@pytest.mark.parametrize("seed", seeds(__name__, 1))
def test_damaged_records_are_what_spark_makes_of_them(spark: SparkSession, seed: int) -> None:
    """Bytes are put in, taken out and changed at random: what Arrow decodes then, Spark decodes the same."""
    print(f"DRIFTLESS_TEST_SEED={seed}")
    rng, taken = random.Random(seed), 0
    for _ in range(300):
        one = damaged(record(ROW | {"name": rng.choice(["x", "", None])}), rng)
        found = documents_by_arrow(spark, TABLE, FIELDS, [one])
        if found is None:
            continue
        taken += 1
        try:
            wanted = documents_by_spark(spark, TABLE, FIELDS, [one])
        except PySparkException as exc:
            pytest.fail(f"Arrow decodes {one}, Spark does not: {str(exc)[:200]}")
        assert found.select(wanted.column_names).to_pylist() == wanted.to_pylist(), one
    assert 15 < taken < 285, taken
