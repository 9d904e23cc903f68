"""From documents of a stream's log to rows for a row store: each member's JSON as it is written."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from driftless.errors import DecodeError
from driftless.facts.epochs import first_epoch
from jobs.decode.rows import FIXED
from jobs.views.member_rows import member_rows, placed_documents_sql
from tests.jobs.both_ways import both_ways

TOPIC = "shop.stream.sold.1"
COLUMNS = ("n", "name", "on", "most", "lacking")


def rows(spark: SparkSession, *records: tuple[bytes | None, bytes | None]) -> list[tuple[object, ...]]:
    parse, shape = placed_documents_sql(first_epoch(TOPIC, "id", 2))
    given = [(key, value, None, 1, n) for n, (key, value) in enumerate(records)]
    table: pa.Table = member_rows(TOPIC, both_ways(spark, parse, shape, given), COLUMNS)
    assert table.column_names == [*FIXED, "c0", "c1", "c2", "c3", "c4"]
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_a_document_of_a_stream_is_a_row_of_no_transaction(spark: SparkSession) -> None:
    value = '{"n":1.50,"name":"x\\"é\\n","on":true,"most":[{"n":12345678901234567890.10},"\\u00e9",null],"more":1}'
    one, less, gone = rows(
        spark, (b'[1,"x"]', value.encode()), (b"2", b' {"n":1e2,"name":null,"on":false,"most":"null"}'), (b"2", None)
    )
    version, most = 1 << 48, '[{"n": 12345678901234567890.10}, "\\u00e9", null]'
    assert one == (1, 0, '[1,"x"]', version, -1, False, "1.50", '"x\\"é\\n"', "true", most, None)
    assert less == (1, 1, "2", version + 1, -1, False, "1e2", None, "false", '"null"', None)
    assert gone == (1, 2, "2", version + 2, -1, True, *[None] * 5)


@pytest.mark.parametrize(
    "record", [(b"k", b"no JSON"), (b"k", b"[1]"), (b"k", b"null"), (b"k", b'{"a":'), (None, b"{}"), (b"k", b"")]
)
def test_what_is_no_document_of_a_stream_stops_with_its_place(
    spark: SparkSession, record: tuple[bytes | None, bytes]
) -> None:
    with pytest.raises(DecodeError, match=r"shop\.stream\.sold\.1/1/1: it is no document of a stream"):
        rows(spark, (b"k", b"{}"), record)
