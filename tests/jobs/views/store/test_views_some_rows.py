"""Relations that show some of their rows: which documents a change reaches, and which it leaves alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from driftless.config.views import ViewConfig
from driftless.table import Column, Table
from driftless.views.resolve import CapturedTables, resolve
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


SECTIONS = "public.sections"
PATH = {"table": SECTIONS, "by": "section", "ancestors": "parent", "value": "name"}
LISTED = {"table": SECTIONS, "ids": "ids", "value": "name"}


def site_of(folder: Path) -> Shop:
    """Pages with the path to their section, and the sections of an array."""
    pages = Table(
        "public", "pages", (Column("id", "int4"), Column("section", "int4"), Column("ids", "int4", array=True)), ("id",)
    )
    sections = Table(
        "public", "sections", (Column("id", "int4"), Column("parent", "int4"), Column("name", "text")), ("id",)
    )
    declared = {"root": "public.pages", "columns": ["id"], "many": {"path": PATH, "listed": LISTED}}
    tables = {table.full_name: table for table in (pages, sections)}
    view, problems = resolve("page", ViewConfig.model_validate(declared), CapturedTables(tables, lambda _: [("id",)]))
    assert (problems, view is None) == ([], False)
    assert view is not None
    return Shop(folder / "rows.db", view)


def section(shop: Shop, number: int, parent: int | None, name: str = "") -> tuple[str, list[tuple[object, ...]]]:
    return shop.row(SECTIONS, str(number), id=number, parent=parent, name=name or str(number))


def paths(found: dict[str, Any]) -> dict[str, Any]:
    return {key: document["path"] for key, document in found.items()}


def test_a_subtree_that_moves_changes_the_paths_below_it_and_no_others(tmp_path: Path) -> None:
    shop = site_of(tmp_path)
    shop.apply(*(section(shop, n, parent) for n, parent in ((1, None), (2, 1), (3, 2), (4, 1))))
    shop.apply(*(shop.row("public.pages", str(n), id=n, section=n) for n in (1, 2, 3, 4)))
    assert paths(shop.drain()) == {"1": ["1"], "2": ["1", "2"], "3": ["1", "2", "3"], "4": ["1", "4"]}
    assert shop.store.circles() == {}
    shop.apply(section(shop, 2, 4))
    assert paths(shop.drain()) == {"2": ["1", "4", "2"], "3": ["1", "4", "2", "3"]}
    shop.apply(shop.row(SECTIONS, "4"))
    assert paths(shop.drain()) == {"2": ["2"], "3": ["2", "3"], "4": []}
    shop.store.close()


def test_a_circle_ends_where_it_began(tmp_path: Path) -> None:
    shop = site_of(tmp_path)
    shop.apply(section(shop, 1, 2), section(shop, 2, 3), section(shop, 3, 1), section(shop, 4, 4))
    shop.apply(*(shop.row("public.pages", str(n), id=n, section=n) for n in (1, 4)))
    assert paths(shop.drain()) == {"1": ["3", "2", "1"], "4": ["4"]}
    ((table, key),) = shop.store.circles().items()
    assert table == SECTIONS
    assert key in "1234"
    shop.apply(section(shop, 3, None, "top"))
    assert paths(shop.drain()) == {"1": ["top", "2", "1"]}
    shop.store.close()


def test_a_list_by_an_array_is_in_its_order_and_follows_its_rows(tmp_path: Path) -> None:
    shop = site_of(tmp_path)
    shop.apply(section(shop, 1, None), section(shop, 2, None), shop.row("public.pages", "1", id=1, ids=[2, 9, 1, 2]))
    (document,) = shop.drain().values()
    assert document == {"id": 1, "path": [], "listed": ["2", "1", "2"]}
    shop.apply(section(shop, 9, None, "nine"))
    (document,) = shop.drain().values()
    assert document == {"id": 1, "path": [], "listed": ["2", "nine", "1", "2"]}
    shop.apply(shop.row("public.pages", "1", id=1, ids=[1, None]))
    (document,) = shop.drain().values()
    assert document == {"id": 1, "path": [], "listed": ["1"]}
    shop.apply(section(shop, 2, None, "two"), section(shop, 9, None, "9"))
    assert shop.store.dirty() == 0, "of what it no longer lists nothing shows"
    shop.store.close()
