"""What is wrong with the tables of which events have rows, as far as the catalogue tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.pipeline.event_tables import captured_versions, table_faults, with_columns
from driftless.facts.lookups import Lookup
from driftless.table import Column, Table
from tests.driftless.config.test_config import GOOD, load_text

PRICES = Table(
    "public",
    "products",
    (
        Column("id", "int8"),
        Column("day", "date"),
        Column("cents", "int4"),
        Column("spot", "point"),
        Column("x", "json"),
    ),
    ("id", "day"),
)
EVENTS = """events:
  clicks:
    topic: app.clicks
    columns: {id: bigint, day: date, at: timestamptz}
    time: {event: at}
    with: {price: {table: products, by: [id, day], columns: [cents]}}
"""


def faults(folder: Path, table: Table = PRICES, *change: str) -> list[tuple[tuple[object, ...], str]]:
    old, new = change or ("", "")
    config = load_text(folder, GOOD + EVENTS.replace(old, new, 1))
    tables = {"public.products": table, "public.customers": None}
    return [*table_faults(with_columns(config, tables), tables)]


def test_a_whole_key_and_columns_that_events_can_have_are_right(tmp_path: Path) -> None:
    assert faults(tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new", "field", "said"),
    [
        ("[id, day]", "id", "by", "the primary key of public.products is (id, day): name the columns of events that"),
        ("[cents]", "[cent]", "columns", "public.products has no column `cent`; did you mean `cents`?"),
        ("[cents]", "[spot]", "columns", "`spot` of public.products has a type that events cannot have"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, old: str, new: str, field: str, said: str) -> None:
    ((at, what),) = faults(tmp_path, PRICES, old, new)
    assert at == ("events", "clicks", "with", "price", field)
    assert said in what


def test_a_key_that_events_cannot_have_is_told(tmp_path: Path) -> None:
    table = Table(
        "public", "products", (Column("id", "int8"), Column("day", "point"), Column("cents", "int4")), PRICES.key
    )
    ((at, what),) = faults(tmp_path, table)
    assert (at[-1], what) == ("table", "`day`, of its primary key, has a type that events cannot have")


def test_rows_of_the_events_own_table_are_refused(tmp_path: Path) -> None:
    found = faults(tmp_path, PRICES, "topic: app.clicks", "outbox: products")
    own = [what for at, what in found if at[-1] == "table"]
    assert own == ["the events themselves are its rows: this version cannot do that"]


def test_of_a_table_the_key_and_the_columns_that_somebody_reads_are_read() -> None:
    lookups = [
        Lookup("clicks", name, "public.products", ("id", "day"), ("id", "day"), columns)
        for name, columns in (("price", ("cents",)), ("more", ("x", "cents")))
    ]
    source = captured_versions(lookups, PRICES, "shop.public.products", 3)
    assert source.captured is not None
    assert [column.name for column in source.captured.columns] == ["id", "day", "cents", "x"]
    assert source.columns == {"id": "bigint", "day": "date", "cents": "integer", "x": "text"}
    assert (source.topic, source.captured.epoch, source.lateness, source.is_placed) == (
        "shop.public.products",
        3,
        0,
        False,
    )
