"""Rows of a result as documents."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from driftless.errors import SourceError
from jobs.streams.sql.documents import results

AT = datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC)


def test_values_are_written_as_to_jsonb_writes_them() -> None:
    row = {
        "at": AT,
        "day": date(2026, 1, 31),
        "page": 'ü"\n',
        "n": 2**60,
        "paid": Decimal("1.50"),
        "mean": 0.1,
        "nothing": None,
        "vip": True,
        "100%s": "%d",
        "list": [1, None],
        "part": {"a": Decimal("2.0"), "at": AT},
    }
    (result,) = results("s", pa.Table.from_pylist([row]), ("page",))
    assert (result.key, result.begin) == ('ü"\n', None)
    assert result.document == (
        '{"at":"2026-01-31T12:00:00.250000+00:00","day":"2026-01-31","page":"ü\\"\\n","n":1152921504606846976,'
        '"paid":1.50,"mean":0.1,"nothing":null,"vip":true,"100%s":"%d","list":[1, null],'
        '"part":{"a": 2.0, "at": "2026-01-31T12:00:00.250000+00:00"}}'
    )


def test_the_key_is_one_columns_text_or_an_array_of_several() -> None:
    row = pa.Table.from_pylist([{"at": AT, "n": 7, "page": 'null "ü"', "paid": Decimal("1.50")}])
    keys = [next(results("s", row, key)).key for key in (("n",), ("at",), ("page",), ("paid",), ("at", "n", "page"))]
    assert keys == [
        "7",
        "2026-01-31T12:00:00.250000+00:00",
        'null "ü"',
        "1.50",
        '["2026-01-31T12:00:00.250000+00:00",7,"null \\"ü\\""]',
    ]


def test_a_key_that_is_null_or_that_two_rows_have_stops_the_stream() -> None:
    nothing = pa.Table.from_pylist([{"page": "a", "n": 1}, {"page": None, "n": 2}])
    with pytest.raises(SourceError, match="`page` is null"):
        list(results("s", nothing, ("page",)))
    with pytest.raises(SourceError, match="two results of one key"):
        list(results("s", pa.Table.from_pylist([{"page": "a", "n": 1}, {"page": "a", "n": 2}]), ("page",)))


def test_of_no_rows_there_are_no_documents() -> None:
    columns: dict[str, pa.DataType] = {"page": pa.string(), "at": pa.timestamp("us", "UTC"), "n": pa.int64()}
    schema = pa.schema(columns)
    for nothing in (schema.empty_table(), pa.Table.from_batches([], schema)):
        assert list(results("s", nothing, ("page", "at"))) == []
