"""Tables of unusual columns in the row store."""

from __future__ import annotations

from pathlib import Path

from driftless.config.views import ViewConfig
from driftless.table import Column, Table
from driftless.views.resolve import CapturedTables, resolve
from driftless.views.sql import select
from tests.jobs.views.store.test_views_store import Shop


def test_a_table_may_have_as_many_columns_as_postgres_allows(tmp_path: Path) -> None:
    columns = (Column("id", "int8"), *(Column(f"c{number}", "int4") for number in range(1599)))
    wide = Table("public", "wide", columns, ("id",))
    declared = {"root": "public.wide", "one": {"other": {"table": "public.wide", "by": "c0"}}}
    view, _ = resolve(
        "wide", ViewConfig.model_validate(declared), CapturedTables({wide.full_name: wide}, lambda _: [("id",)])
    )
    assert view is not None
    shop = Shop(tmp_path / "rows.db", view)
    shop.apply(shop.row(wide.full_name, "1", **{column.name: 1 for column in columns}))
    (document,) = shop.drain().values()
    row = {column.name: 1 for column in columns}
    assert document == {**row, "other": row}
    assert select(view).count("jsonb_build_object") == 2 * 32 + 1
    shop.store.close()


def test_the_last_column_of_a_table_may_be_its_key(tmp_path: Path) -> None:
    """As that of a table between is, where a framework has made it: of its text nothing is kept but the number."""
    names = {"a": ("id", "title"), "b": ("id", "name"), "between": ("a_id", "b_id", "id")}
    tables = {
        f"public.{name}": Table("public", name, tuple(Column(each, "int8") for each in columns), ("id",))
        for name, columns in names.items()
    }
    many = {"bs": {"table": "public.b", "through": "public.between", "by": "a_id", "to": "b_id"}}
    declared = ViewConfig.model_validate({"root": "public.a", "many": many})
    view, problems = resolve("a", declared, CapturedTables(tables, lambda _: [("id",)]))
    assert view is not None, problems
    shop = Shop(tmp_path / "rows.db", view)
    shop.apply(shop.row("public.a", "1", id=1, title=7), shop.row("public.b", "2", id=2, name=8))
    shop.apply(shop.row("public.between", "3", id=3, a_id=1, b_id=2))
    assert shop.drain() == {"1": {"id": 1, "title": 7, "bs": [{"id": 2, "name": 8}]}}
    shop.apply(shop.row("public.between", "4", id=4, a_id=1, b_id=2), shop.row("public.between", "3"))
    shop.apply(shop.row("public.b", "2", id=2, name=9))
    assert shop.drain() == {"1": {"id": 1, "title": 7, "bs": [{"id": 2, "name": 9}]}}
    shop.store.close()
