"""Values over the rows of a relation: exact, kept up without the rows, and written only where they change."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

from jobs.views.store.assembly import views
from jobs.views.store.layout import Layout
from jobs.views.values.tally import TallyOfRows, average_of, merged, sum_of
from tests.jobs.views.store.test_views_store import LINES, Shop, a_view

COUNT = {"table": LINES, "by": "order_id", "count": True}


def shop_of(folder: Path, **relations: dict[str, object]) -> Shop:
    many = {name: {"table": LINES, "by": "order_id", **relation} for name, relation in relations.items()}
    return Shop(folder / "rows.db", a_view(one={}, columns=["id"], many=many))


def test_a_change_changes_what_it_is_counted_in_and_nothing_else(tmp_path: Path) -> None:
    shop = shop_of(tmp_path, n={"count": True}, total={"sum": "qty * 1.50"}, most={"max": "qty"}, least={"min": "qty"})
    shop.apply(shop.order(1, "open"), shop.order(2, "open"), shop.line(1, 1, 5), shop.line(1, 2, 3))
    nothing = {"n": 0, "total": None, "most": None, "least": None}
    assert shop.drain() == {
        "1": {"id": 1, "n": 2, "total": Decimal("12.00"), "most": 5, "least": 3},
        "2": {"id": 2, **nothing},
    }
    shop.apply(shop.line(1, 1, 5))
    assert shop.store.dirty() == 0, "the same row once more"
    shop.apply(shop.line(1, 1, 4))
    assert shop.drain() == {"1": {"id": 1, "n": 2, "total": Decimal("10.50"), "most": 4, "least": 3}}
    shop.apply(shop.row(LINES, "[1,1]"), shop.row(LINES, "[1,3]", order_id=1, line=3))
    assert shop.drain() == {"1": {"id": 1, "n": 2, "total": Decimal("4.50"), "most": 3, "least": 3}}
    shop.apply(shop.row(LINES, "[1,2]"), shop.row(LINES, "[1,3]"))
    assert shop.drain() == {"1": {"id": 1, **nothing}}
    shop.store.close()


def test_what_changes_nothing_of_the_value_writes_no_document(tmp_path: Path) -> None:
    shop = shop_of(tmp_path, most={"max": "qty"}, some={"count": True, "where": "qty > 2"})
    shop.apply(shop.order(1, "open"), shop.line(1, 1, 5), shop.line(1, 2, 1))
    assert shop.drain() == {"1": {"id": 1, "most": 5, "some": 1}}
    shop.apply(shop.line(1, 2, 2), shop.line(1, 3, 0))
    assert shop.drain() == {}
    shop.apply(shop.line(1, 2, 3))
    assert shop.drain() == {"1": {"id": 1, "most": 5, "some": 2}}
    shop.store.close()


def test_it_is_as_it_was_after_a_crash(tmp_path: Path) -> None:
    shop = shop_of(tmp_path, n={"count": True}, total={"sum": "qty"})
    shop.apply(shop.order(1, "open"), shop.line(1, 1, 5))
    assert shop.drain() == {"1": {"id": 1, "n": 1, "total": 5}}
    line = shop.line(1, 2, 3)
    shop.apply(line)
    shop.killed()
    shop.apply(line)
    assert shop.drain() == {"1": {"id": 1, "n": 2, "total": 8}}
    shop.store.close()


def test_a_row_that_moves_is_counted_where_it_is(tmp_path: Path) -> None:
    shop = shop_of(tmp_path, n={"count": True}, total={"sum": "qty"})
    shop.apply(shop.order(1, "open"), shop.order(2, "open"), shop.row(LINES, "[1,1]", order_id=1, line=1, qty=5))
    shop.drain()
    shop.apply(shop.row(LINES, "[1,1]", order_id=2, line=1, qty=6))
    assert shop.drain() == {"1": {"id": 1, "n": 0, "total": None}, "2": {"id": 2, "n": 1, "total": 6}}
    shop.store.close()


def test_no_row_is_looked_at_for_a_count_or_a_sum_and_one_for_the_greatest(tmp_path: Path) -> None:
    shop = shop_of(tmp_path, n={"count": True}, total={"sum": "qty"}, most={"max": "qty"})
    shop.apply(shop.order(1, "open"), *(shop.line(1, n, n) for n in range(3)))
    assert shop.drain() == {"1": {"id": 1, "n": 3, "total": 3, "most": 2}}
    shop.store.close()
    with closing(sqlite3.connect(tmp_path / "rows.db")) as file:
        for name, function in (("df_sum", sum_of), ("df_avg", average_of)):
            file.create_function(name, 1, function)
        for statement in views(Layout(shop.view)):
            file.execute(statement)
        plan = [str(row[3]) for row in file.execute("EXPLAIN QUERY PLAN SELECT d FROM part_0 WHERE id = 1")]
    looked = [step for step in plan if "SEARCH" in step or "SCAN" in step]
    assert [step.split(" USING ")[0] for step in looked] == [
        "SEARCH r",
        "SEARCH aggregate_1",
        "SEARCH aggregate_2",
        "SEARCH b",
    ], plan
    assert "USING INDEX t1_sorted_0" in looked[3]
    assert all("LAST TERM" in step or "RIGHT PART" in step for step in plan if "B-TREE" in step), plan


@pytest.mark.parametrize(
    ("values", "total", "average"),
    [
        (["1", "2"], "3", "1.5000000000000000"),
        (["1.50", "2"], "3.50", "1.7500000000000000"),
        (["10000", "0.001"], "10000.001", "5000.0005000000000000"),
        (["-7", "0", "0"], "-7", "-2.3333333333333333"),
        (["0.00"], "0.00", "0.00000000000000000000"),
        (['"NaN"', "1"], '"NaN"', '"NaN"'),
        (['"NaN"'], '"NaN"', '"NaN"'),
        (["-0.5"], "-0.5", "-0.50000000000000000000"),
        (['"Infinity"', "1"], '"Infinity"', '"Infinity"'),
        (['"Infinity"', '"-Infinity"'], '"NaN"', '"NaN"'),
        (["1" * 5000, "0.5"], "1" * 5000 + ".5", "5" * 4999 + ".8"),
        (["9223372036854775807", "9223372036854775807"], "18446744073709551614", "9223372036854775807"),
    ],
)
def test_sums_and_averages_have_the_digits_of_postgres(values: list[str], total: str, average: str) -> None:
    """Each as `select to_jsonb(sum(v)), to_jsonb(avg(v))` of numerics gives it."""
    tally = TallyOfRows()
    for value in values:
        tally.step(1, value)
    assert (sum_of(tally.finalize()), average_of(tally.finalize())) == (total, average)


def test_what_is_taken_away_leaves_no_trace() -> None:
    first, second = TallyOfRows(), TallyOfRows()
    for value in ("1.500", '"NaN"', "2"):
        first.step(1, value)
    for value in ("1.500", '"NaN"'):
        second.step(-1, value)
    left = merged(first.finalize(), second.finalize())
    assert (sum_of(left), average_of(left)) == ("2", "2.0000000000000000")
    gone = TallyOfRows()
    gone.step(-1, "2")
    assert sum_of(merged(left, gone.finalize())) is None
