"""Mistakes in `events` and `streams`, each with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftless.streams.event_types import event_type
from tests.driftless.config.test_config import GOOD, load_text, problems

STREAMS = """events:
  clicks:
    topic: app.clicks
    columns: {id: bigint, at: timestamptz}
    time: {event: at}
    lateness: 10s
streams:
  by_minute:
    sql: SELECT 1
    key: id
"""
BEGIN = GOOD.count("\n")


def test_a_follower_may_name_a_stream_as_its_view(tmp_path: Path) -> None:
    config = load_text(tmp_path, GOOD.replace("view: product\n", "view: by_minute\n", 1) + STREAMS)
    follower = next(name for name, each in config.followers.items() if each.view == "by_minute")
    assert config.table_of(follower) is None
    assert config.events["clicks"].lateness_ms == 10_000
    assert config.streams["by_minute"].key == ("id",)


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("id: bigint", "id: double precision", 4, "cannot be proven: sums of such numbers depend on the order"),
        ("id: bigint", "id: bigserial", 4, "`bigserial` is no type of an event's column; known: boolean, smallint"),
        ("id: bigint", "'id': 'numeric(40,2)'", 4, "at most 38 digits"),
        ("{event: at}", "{event: then}", 2, "`time.event` is `then`, which is not one of `columns`"),
        ("{event: at}", "{event: at, sent: id}", 2, "`time.sent` is `id`, which must be a `timestamptz`"),
        ("lateness: 10s", "lateness: 10", 6, "write a number and a unit"),
        ("lateness: 10s", "late: {correct: 7}", 6, "write a number and a unit"),
        ("lateness: 10s", "late: keep", 6, "it is `drop`, or how long such events correct what is final"),
        ("lateness: 10s", "late: {corect: 7d}", 6, "did you mean `correct`?"),
        ("lateness: 10s", "overload: sample", 6, "it is `wait`, or after how long events are left unread"),
        ("lateness: 10s", "overload: {sample: 10%}", 6, "overload.behind: is missing"),
        ("lateness: 10s", "overload: {behind: 5m, sample: 0.1}", 6, "write a part of a hundred, as `10%` or `0.25%`"),
        ("lateness: 10s", "overload: {behind: 5m, sample: 101%}", 6, "write a part of a hundred"),
        ("lateness: 10s", "copies: keep", 6, "must be 'count' or 'drop'"),
        (
            "    topic: app.clicks\n    columns: {id: bigint, at: timestamptz}\n",
            "    table: products\n    copies: drop\n",
            2,
            "`copies` is of a `topic`: each row of a table is one event",
        ),
        ("by_minute:", "by-minute:", 8, "did you mean `by_minute`?"),
        ("by_minute:", "clicks:", 8, "there are events `clicks` too: a query cannot tell them apart"),
        ("by_minute:", "product:", 8, "there is a view `product` too: followers cannot tell them apart"),
        ("key: id", "key: id\n    emit: often", 11, "must be 'final' or 'changes'"),
        ("topic: app.clicks", "topic: app clicks", 3, "a topic's name has letters, digits"),
        ("topic: app.clicks", "topic: app.clicks\n    message: cart", 4, "this version cannot do that yet"),
        ("topic: app.clicks", "topic: app.clicks\n    outbox: products", 2, "`topic` and `outbox`: events are in one"),
        ("topic: app.clicks", "outbox: public.outbox", 3, "public.outbox is not under source.tables"),
        ("topic: app.clicks", "table: products", 2, "`columns` are those that the table has in the database"),
        ("    topic: app.clicks\n", "", 2, "it does not say where events are"),
        ("lateness: 10s", "with: {row: {table: public.rows, by: id}}", 6, "public.rows is not under source.tables"),
        ("lateness: 10s", "with: {row: {table: products, by: ident}}", 2, "`with.row.by` is `ident`, which is not one"),
        ("lateness: 10s", "with: {id: {table: products, by: id}}", 2, "`id` is a column of the events: name the table"),
        ("lateness: 10s", "with: {row: {table: products}}", 6, "with.row.by: is missing"),
        ("lateness: 10s", "with: {row: {table: products, bye: id}}", 6, "did you mean `by`?"),
        ("lateness: 10s", "with: {row: {table: products, by: id, as_of: now}}", 6, "must be 'event'"),
        ("lateness: 10s", "with: {Row: {table: products, by: id}}", 6, "did you mean `row`?"),
    ],
)
def test_a_mistake_of_a_stream_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    found = problems(tmp_path, GOOD + STREAMS.replace(old, new, 1))
    assert any(each.startswith(f"sync.yaml:{BEGIN + line}: ") and said in each for each in found), found


def test_late_events_are_left_out_or_correct_for_some_time(tmp_path: Path) -> None:
    for written, ms in (("drop", 0), ("{correct: 2h}", 7_200_000)):
        config = load_text(tmp_path, GOOD + STREAMS.replace("lateness: 10s", f"late: {written}"))
        assert config.events["clicks"].correct_ms == ms


def test_events_may_say_that_a_stream_leaves_some_unread(tmp_path: Path) -> None:
    for written, found in (("wait", None), ("{behind: 5m}", 0), ("{behind: 5m, sample: 0.25%}", 25)):
        config = load_text(tmp_path, GOOD + STREAMS.replace("lateness: 10s", f"overload: {written}"))
        overload = config.events["clicks"].overload
        assert (None if overload is None else overload.of_10_000) == found


def test_a_table_beside_events_keeps_all_versions_of_its_rows(tmp_path: Path) -> None:
    row = "with: {row: {table: products, by: id, columns: [title]}}"
    config = load_text(tmp_path, GOOD + STREAMS.replace("lateness: 10s", row))
    assert config.captured_events == {"public.products"}
    lookup = config.events["clicks"].lookups["row"]
    assert (lookup.table, lookup.by, lookup.columns) == ("public.products", ("id",), ("title",))


def test_who_names_neither_a_view_nor_a_stream_is_told(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, GOOD.replace("view: product\n", "view: by_minut\n", 1) + STREAMS)
    assert "there is no view or stream `by_minut`; did you mean `by_minute`?" in found


@pytest.mark.parametrize(
    ("written", "spark"),
    [("NUMERIC(10, 2)", "DECIMAL(10,2)"), ("numeric", "DECIMAL(38,18)"), (" Bigint ", "BIGINT"), ("uuid", "STRING")],
)
def test_a_type_is_what_spark_computes_with(written: str, spark: str) -> None:
    assert event_type(written).spark == spark
