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


def test_moments_are_written_alike_however_many_there_are() -> None:
    moments = [
        datetime(2026, 1, 31, 12, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(2026, 1, 31, 12, 0, 0, 1, UTC),
        datetime(9999, 12, 31, 23, 59, 59, 100_000, UTC),
        datetime(1000, 1, 1, tzinfo=UTC),
    ]
    for some in (moments, [*moments, datetime(999, 1, 1, 7, tzinfo=UTC)]):
        rows = pa.Table.from_pylist([{"n": n, "at": at} for n, at in enumerate(some)])
        found = [result.document for result in results("s", rows, ("n",))]
        assert found == [f'{{"n":{n},"at":"{at.isoformat()}"}}' for n, at in enumerate(some)]


def test_results_are_in_the_order_of_keys_with_their_windows() -> None:
    names = ["b", "\U0001f600", "a", "\uffff", "ü"]
    rows = pa.Table.from_pylist([{"page": name, "_from": n, "_to": None if n else 9} for n, name in enumerate(names)])
    found = [*results("s", rows, ("page",))]
    assert [result.key for result in found] == sorted(names)
    assert {result.key: (result.begin, result.end) for result in found} == {
        name: (n, None if n else 9) for n, name in enumerate(names)
    }
