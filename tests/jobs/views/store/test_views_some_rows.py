"""Relations that show some of their rows: which documents a change reaches, and which it leaves alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from jobs.views.store.assembly import views
from jobs.views.store.layout import Layout
from tests.jobs.views.store.test_views_store import CUSTOMERS, LINES, Shop, a_view


def shop_of(folder: Path, **lines: object) -> Shop:
    declared = {"table": LINES, "by": "order_id", "order_by": ["qty desc"], "columns": ["line"], **lines}
    return Shop(folder / "rows.db", a_view(many={"lines": declared}))


def shown(found: dict[str, Any]) -> dict[str, Any]:
    return {key: document["lines"] for key, document in found.items()}


def test_a_row_that_enters_or_leaves_its_condition_changes_what_shows_it_alone(tmp_path: Path) -> None:
    shop = shop_of(tmp_path, where="qty > 5")
    shop.apply(shop.order(1, "open"), shop.order(2, "open"), shop.line(1, 1, 9), shop.line(1, 2, 2), shop.line(2, 1, 2))
    assert shown(shop.drain()) == {"1": [{"line": 1}], "2": []}
    shop.apply(shop.line(1, 2, 3), shop.line(2, 1, 4))
    assert shop.store.dirty() == 0, "out of the condition before and after"
    shop.apply(shop.line(1, 2, 6))
    assert shown(shop.drain()) == {"1": [{"line": 1}, {"line": 2}]}
    shop.apply(shop.line(1, 1, 1))
    assert shown(shop.drain()) == {"1": [{"line": 2}]}
    shop.apply(shop.row(LINES, "[1,2]"))
    assert shown(shop.drain()) == {"1": []}
    shop.store.close()


def test_a_condition_on_a_row_of_one_is_asked_of_it_and_not_of_the_root(tmp_path: Path) -> None:
    customer = {"table": CUSTOMERS, "by": "customer_id", "columns": ["name"], "where": "name <> 'a'"}
    shop = Shop(tmp_path / "rows.db", a_view(one={"customer": customer}, many={}))
    shop.apply(shop.order(1, "open", 7), shop.customer(7, "a"))
    (document,) = shop.drain().values()
    assert document == {"id": 1, "status": "open", "customer": None}
    shop.apply(shop.customer(7, "b"))
    (document,) = shop.drain().values()
    assert document == {"id": 1, "status": "open", "customer": {"name": "b"}}
    shop.store.close()


def test_a_list_has_its_first_rows_and_what_stands_behind_them_writes_nothing(tmp_path: Path) -> None:
    shop = shop_of(tmp_path, limit=2)
    shop.apply(shop.order(1, "open"), *(shop.line(1, n, n) for n in (1, 2, 3)))
    assert shown(shop.drain()) == {"1": [{"line": 3}, {"line": 2}]}
    shop.apply(shop.line(1, 1, 0), shop.line(1, 4, 1))
    assert shop.drain() == {}
    shop.apply(shop.row(LINES, "[1,3]"))
    assert shown(shop.drain()) == {"1": [{"line": 2}, {"line": 4}]}
    shop.store.close()


def test_the_first_row_alone_is_an_object_and_a_deleted_one_is_never_it(tmp_path: Path) -> None:
    shop = shop_of(tmp_path, first=True)
    shop.apply(shop.order(1, "open"), shop.order(2, "open"), shop.line(1, 1, 5), shop.line(1, 2, 4))
    assert shown(shop.drain()) == {"1": {"line": 1}, "2": None}
    shop.apply(shop.row(LINES, "[1,1]"))
    assert shown(shop.drain()) == {"1": {"line": 2}}
    shop.apply(shop.row(LINES, "[1,2]"))
    assert shown(shop.drain()) == {"1": None}
    shop.store.close()


def test_a_value_stands_in_place_of_its_object_and_is_null_where_the_column_is(tmp_path: Path) -> None:
    lines = {"table": LINES, "by": "order_id", "value": "qty"}
    customer = {"table": CUSTOMERS, "by": "customer_id", "value": "name"}
    shop = Shop(tmp_path / "rows.db", a_view(one={"customer": customer}, many={"lines": lines}))
    shop.apply(shop.order(1, "open", 7), shop.customer(7, "a"), shop.line(1, 1, 5))
    shop.apply(shop.row(LINES, "[1,2]", order_id=1, line=2))
    (document,) = shop.drain().values()
    assert document == {"id": 1, "status": "open", "customer": "a", "lines": [5, None]}
    shop.store.close()


def test_the_first_rows_of_a_list_are_found_without_the_others(tmp_path: Path) -> None:
    """By an index that has the order of the list, also where its column is null."""
    shop = shop_of(tmp_path, limit=2)
    shop.apply(
        shop.order(1, "open"), *(shop.line(1, n, n) for n in range(3)), shop.row(LINES, "[1,9]", order_id=1, line=9)
    )
    assert shown(shop.drain()) == {"1": [{"line": 9}, {"line": 2}]}
    shop.store.close()
    with closing(sqlite3.connect(tmp_path / "rows.db")) as file:
        for statement in views(Layout(shop.view)):
            file.execute(statement)
        document = "SELECT d FROM part_0 WHERE id = 1"
        plan = [str(row[3]) for row in file.execute(f"EXPLAIN QUERY PLAN {document}")]
        assert any("USING INDEX t1_sorted_0" in step for step in plan), "\n".join(plan)
        assert not any("RIGHT PART OF ORDER BY" in step for step in plan), "\n".join(plan)
