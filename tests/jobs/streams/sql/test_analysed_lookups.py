"""What Spark's analyser says of a stream of events that have rows of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftless.facts.lookups import Lookup
from driftless.facts.streams import AnalysedStream, WindowEnds
from driftless.table import Column, Table
from tests.jobs.streams.sql.test_analysis import EVENTS, found

ROWS = """    with:
      product: {table: public.products, by: id}
      other: {table: public.products, by: id, columns: [price]}
"""
LOOKING = EVENTS.replace("    time: {event: at}\n", f"    time: {{event: at}}\n{ROWS}", 1)
COLUMNS = (Column("id", "int8"), Column("title", "text"), Column("price", "numeric"), Column("spot", "point"))
TABLES = {"public.products": Table("public", "products", COLUMNS, ("id",))}
EACH = "SELECT at AS minute, page, product.title FROM clicks"
GROUPED = "GROUP BY window(at, '1 minute'), page"
WINDOWS = f"SELECT window.start AS minute, page, sum(product.price) AS paid FROM clicks {GROUPED}"


def looked(spark: SparkSession, folder: Path, sql: str, emit: str = "final", events: str = LOOKING) -> Any:
    return found(spark, folder, sql, events=events, emit=emit, tables=TABLES)


def test_a_row_is_a_struct_of_what_an_event_can_have(spark: SparkSession, tmp_path: Path) -> None:
    analysed = looked(spark, tmp_path, EACH.replace("title", "*"))
    assert isinstance(analysed, AnalysedStream), analysed
    assert (analysed.closes, analysed.events, analysed.reach) == ("lookup", ("clicks",), 0)
    columns = ("id", "title", "price")
    assert analysed.lookups == (Lookup("clicks", "product", "public.products", ("id",), ("id",), columns),)
    types = [(column.name, column.type) for column in analysed.table.columns]
    assert types == [
        ("minute", "timestamptz"),
        ("page", "text"),
        ("id", "int8"),
        ("title", "text"),
        ("price", "numeric"),
    ]


def test_windows_close_as_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    analysed = looked(spark, tmp_path, WINDOWS)
    assert isinstance(analysed, AnalysedStream), analysed
    assert (analysed.closes, analysed.ends) == ("window", WindowEnds(60_000, 60_000, 60_000))
    assert [lookup.name for lookup in analysed.lookups] == ["product"]


def test_two_rows_of_one_event(spark: SparkSession, tmp_path: Path) -> None:
    analysed = looked(spark, tmp_path, EACH.replace("product.title", "product.title, other.price AS paid"))
    assert isinstance(analysed, AnalysedStream), analysed
    assert [(lookup.name, lookup.columns) for lookup in analysed.lookups] == [
        ("product", ("id", "title", "price")),
        ("other", ("price",)),
    ]


def test_rows_that_the_sql_does_not_name_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    analysed = looked(spark, tmp_path, EACH.replace(", product.title", ""))
    assert isinstance(analysed, AnalysedStream), analysed
    assert (analysed.closes, analysed.lookups) == ("", ())


@pytest.mark.parametrize(
    ("sql", "emit", "said"),
    [
        (EACH.replace("title", "titel"), "final", "No such struct field `titel` in `id`, `title`, `price`"),
        (EACH.replace("title", "spot"), "final", "No such struct field `spot`"),
        (WINDOWS, "changes", "which row of `product` an event has is known when its moment is over"),
        (
            "SELECT c.at AS minute, c.page, c.product.title FROM clicks c JOIN views v "
            "ON c.id = v.id AND v.at BETWEEN c.at AND c.at + INTERVAL 4 SECONDS",
            "final",
            "a JOIN of events that have rows of tables, as `product`: this version cannot do that",
        ),
        (
            "SELECT now AS minute, page, title FROM (SELECT id AS now, page, product.title FROM clicks)",
            "final",
            "a result is final by `at`: its outermost SELECT must read from what has this column",
        ),
        ("SELECT page, count(product.title) AS minute FROM clicks GROUP BY page", "final", "no group is ever final"),
    ],
)
def test_what_cannot_be_computed_is_told(spark: SparkSession, tmp_path: Path, sql: str, emit: str, said: str) -> None:
    mistakes = looked(spark, tmp_path, sql, emit)
    assert isinstance(mistakes, list), mistakes
    assert said in mistakes[0].what


@pytest.mark.parametrize("sql", [EACH, WINDOWS])
def test_late_events_can_correct_it(spark: SparkSession, tmp_path: Path, sql: str) -> None:
    late = LOOKING.replace("    with:\n", "    late: {correct: 1h}\n    with:\n")
    assert isinstance(looked(spark, tmp_path, sql, events=late), AnalysedStream)
