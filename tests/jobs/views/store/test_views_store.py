"""The row store: what becomes dirty, in which order it comes, and what a crash leaves behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftless.config.views import ViewConfig
from driftless.errors import SourceUnavailable, SyncError
from driftless.version import make_version
from driftless.views.resolve import CapturedTables, resolve
from driftless.views.shard import split_tables
from driftless.views.tree import View
from jobs.views.store.contract import RowsLost, Slice
from jobs.views.store.sqlite import SqliteRows
from tests.driftless.views.views_mistakes import TABLES, UNIQUE
from tests.jobs.views.store.views_reader import crash
from tests.support.compare import parse

ORDERS, CUSTOMERS, LINES = "public.orders", "public.customers", "public.order_lines"


def a_view(**changed: object) -> View:
    """Orders with their customer and their lines, the most first."""
    lines = {"table": LINES, "by": "order_id", "order_by": ["qty desc"], "columns": ["line"]}
    declared = {
        "root": ORDERS,
        "columns": ["id", "status"],
        "one": {"customer": {"table": CUSTOMERS, "by": "customer_id", "columns": ["name"]}},
        "many": {"lines": lines},
        **changed,
    }
    view, problems = resolve(
        "order", ViewConfig.model_validate(declared), CapturedTables(TABLES, lambda name: UNIQUE[name])
    )
    assert problems == []
    assert view is not None
    return view


class Shop:
    """A store, and rows for it as they come from the log: each newer than the one before."""

    def __init__(self, path: Path, view: View) -> None:
        self.view, self.path = view, path
        self.store = SqliteRows.create(path, view)
        self._offset = 0

    def row(self, table: str, key: str, **values: object) -> tuple[str, list[tuple[object, ...]]]:
        """Without values a delete."""
        self._offset += 1
        names = [column.name for column in self.view.tables[table].columns]
        texts = [None if values.get(name) is None else json.dumps(values[name]) for name in names]
        return table, [(key, make_version(1, self._offset), int(not values), *texts)]

    def order(self, number: int, status: str, customer: int | None = None) -> tuple[str, list[tuple[object, ...]]]:
        return self.row(ORDERS, str(number), id=number, status=status, customer_id=customer)

    def customer(self, number: int, name: str) -> tuple[str, list[tuple[object, ...]]]:
        return self.row(CUSTOMERS, str(number), id=number, name=name)

    def line(self, order: int, line: int, qty: int) -> tuple[str, list[tuple[object, ...]]]:
        return self.row(LINES, f"[{order},{line}]", order_id=order, line=line, qty=qty)

    def apply(self, *rows: tuple[str, list[tuple[object, ...]]], cut: str | None = None, now: int = 0) -> None:
        self.store.apply(rows, {}, cut, now=now)

    def drain(self) -> dict[str, object]:
        found: dict[str, object] = {}
        while done := self.store.assemble(1000):
            found |= writes(done)
            self.store.published(done)
        return found

    def killed(self) -> None:
        crash(self.store)
        self.store = SqliteRows(self.path, self.view)


def writes(done: Slice) -> dict[str, object]:
    return {key: None if document is None else parse(document) for key, document in done.writes}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path / "rows.db", a_view())
    yield shop
    shop.store.close()


def test_a_change_reaches_every_document_that_shows_it_and_no_other(shop: Shop) -> None:
    shop.apply(shop.order(1, "open", 7), shop.order(2, "open", 8), shop.customer(7, "a"), shop.line(1, 1, 5))
    assert shop.drain() == {
        "1": {"id": 1, "status": "open", "customer": {"name": "a"}, "lines": [{"line": 1}]},
        "2": {"id": 2, "status": "open", "customer": None, "lines": []},
    }
    shop.apply(shop.customer(7, "b"))
    assert list(shop.drain()) == ["1"]
    shop.apply(shop.customer(8, "c"))
    assert list(shop.drain()) == ["2"]
    shop.apply(shop.row(CUSTOMERS, "7"))
    assert shop.drain() == {"1": {"id": 1, "status": "open", "customer": None, "lines": [{"line": 1}]}}


def test_a_column_that_the_view_does_not_read_makes_nothing_dirty(shop: Shop) -> None:
    shop.apply(shop.order(1, "open", 7), shop.customer(7, "a"), shop.line(1, 1, 5))
    shop.drain()
    shop.apply(shop.order(1, "open", 7), shop.customer(7, "a"), shop.line(1, 1, 5))
    assert shop.store.dirty() == 0
    assert not shop.store.assemble(10)


def test_a_list_is_put_in_order_anew_by_a_column_that_it_does_not_show(shop: Shop) -> None:
    shop.apply(shop.order(1, "open"), shop.line(1, 1, 5), shop.line(1, 2, 5), shop.line(1, 3, 9))
    (document,) = shop.drain().values()
    assert isinstance(document, dict)
    assert [line["line"] for line in document["lines"]] == [3, 1, 2]
    shop.apply(shop.line(1, 2, 7))
    (document,) = shop.drain().values()
    assert isinstance(document, dict)
    assert [line["line"] for line in document["lines"]] == [3, 2, 1]


def test_an_old_row_changes_nothing_even_after_its_delete(shop: Shop) -> None:
    old = shop.customer(7, "old")
    shop.apply(shop.order(1, "open", 7), shop.row(CUSTOMERS, "7"))
    shop.drain()
    shop.apply(old)
    assert shop.store.dirty() == 0


def test_what_was_published_before_a_crash_is_not_taken_for_what_was_there_before(shop: Shop) -> None:
    """The document goes to `paid`, is published, and nobody tells the store; then it comes back to `open`."""
    shop.apply(shop.order(1, "open"))
    shop.drain()
    shop.apply(shop.order(1, "paid"))
    assert [key for key, _ in shop.store.assemble(10).writes] == ["1"]
    shop.killed()
    shop.apply(shop.order(1, "open"))
    assert list(shop.drain()) == ["1"]


def test_what_changes_while_it_is_published_is_published_again(shop: Shop) -> None:
    shop.apply(shop.order(1, "open"), cut="a")
    done = shop.store.assemble(10)
    shop.apply(shop.order(1, "paid"), cut="b")
    shop.store.published(done)
    assert (shop.store.dirty(), shop.store.frontier()) == (1, "a")
    assert list(shop.drain()) == ["1"]
    assert shop.store.frontier() == "b"


def test_a_document_that_never_rests_does_not_hold_back_the_frontier(shop: Shop) -> None:
    for number in range(5):
        shop.apply(shop.order(1, f"{number}"), cut=f"{number}")
        done = shop.store.assemble(10)
        shop.apply(shop.order(1, f"{number} again"), cut=f"{number} again")
        shop.store.published(done)
        assert shop.store.frontier() == f"{number}"


def test_small_changes_go_before_a_large_fan_out_that_goes_on(shop: Shop) -> None:
    """A customer of 1500 orders changes, then another order, then that customer again."""
    shop.apply(*(shop.order(number, "open", 7) for number in range(1500)), shop.order(9999, "open", 8))
    shop.drain()
    shop.apply(shop.customer(7, "a"), cut="fan-out")
    shop.apply(shop.order(9999, "paid", 8), cut="small")
    first = shop.store.assemble(100)
    assert "9999" in writes(first)
    assert len(first.writes) == 100
    shop.store.published(first)
    done = {key for key, _ in first.writes}
    for _ in range(3):
        some = shop.store.assemble(300)
        done |= {key for key, _ in some.writes}
        shop.store.published(some)
    assert len(done) == 1000
    assert shop.store.frontier() is None
    shop.apply(shop.customer(7, "b"), cut="again")
    for limit in (250, 251):
        some = shop.store.assemble(limit)
        assert done.isdisjoint(key for key, _ in some.writes), "the second change begins anew"
        done |= {key for key, _ in some.writes}
        shop.store.published(some)
    # What is dirty again since, was published as of then.
    assert shop.store.frontier() == "small"
    shop.drain()
    assert shop.store.frontier() == "again"


def test_while_small_changes_keep_coming_a_large_fan_out_goes_on(shop: Shop) -> None:
    shop.apply(*(shop.order(number, "open", 7) for number in range(3000)))
    shop.drain()
    shop.apply(*(shop.order(number, "paid", 8) for number in range(3000, 3400)))
    shop.apply(shop.customer(7, "a"))
    counts = [sum(int(key) < 3000 for key, _ in _published(shop, 400).writes) for _ in range(2)]
    assert counts == [100, 300]


def test_of_a_large_fan_out_no_more_is_given_than_is_asked_for(shop: Shop) -> None:
    shop.apply(*(shop.order(number, "open", 7) for number in range(1500)), shop.order(9999, "open", 8))
    shop.drain()
    shop.apply(shop.customer(7, "a"))
    shop.apply(shop.order(9999, "paid", 8), cut="small")
    none = _published(shop, 100, 0)
    assert (list(writes(none)), none.large) == (["9999"], 0)
    nothing = _published(shop, 100, 0)
    assert not nothing
    assert shop.store.frontier() is None
    some = _published(shop, 100, 30)
    assert (len(some.writes), some.large) == (30, 30)
    assert (len(shop.drain()), shop.store.frontier()) == (1470, "small")


def _published(shop: Shop, limit: int, large: int | None = None) -> Slice:
    done = shop.store.assemble(limit, large)
    shop.store.published(done)
    return done


def test_a_new_store_publishes_the_differences_alone(shop: Shop) -> None:
    shop.apply(shop.order(1, "open"), shop.order(2, "open"), shop.order(3, "open"))
    known = {key: json.dumps(document, default=int) for key, document in shop.drain().items()}
    text = dict(_texts(shop))
    shop.store.close()
    shop.store = SqliteRows.create(shop.path, shop.view)
    shop.store.seed(
        [("1", text["1"]), ("2", known["2"].replace("open", "paid")), ("4", text["1"]), ("5", "{}"), ("5", None)]
    )
    shop.apply(shop.order(1, "open"), shop.order(2, "open"), shop.order(3, "open"))
    found = shop.drain()
    assert sorted(found) == ["2", "3", "4"]
    assert found["4"] is None


def _texts(shop: Shop) -> Iterator[tuple[str, str]]:
    for number in (1, 2, 3):
        shop.apply(shop.order(number, "other"))
        shop.drain()
        shop.apply(shop.order(number, "open"))
        done = shop.store.assemble(10)
        shop.store.published(done)
        yield from ((key, str(document)) for key, document in done.writes)


def test_tombstones_are_forgotten_after_the_horizon_and_not_before_they_are_published(shop: Shop) -> None:
    shop.apply(shop.order(1, "open"), shop.customer(7, "a"))
    shop.drain()
    shop.apply(shop.row(ORDERS, "1"), shop.row(CUSTOMERS, "7"), now=1000)
    assert shop.store.expire(1000) == 0
    assert shop.store.expire(1001) == 1, "the order's delete is not published yet"
    assert shop.drain() == {"1": None}
    assert shop.store.expire(1001) == 1


def test_what_an_epoch_left_behind_is_swept(shop: Shop) -> None:
    shop.apply(shop.order(1, "open", 7), shop.order(2, "open", 7), shop.customer(7, "a"))
    shop.drain()
    anew = [shop.order(1, "paid", 7)]
    shop.store.apply(anew, {}, swept={ORDERS: make_version(1, 4)})
    found = shop.drain()
    assert (sorted(found), found["2"]) == (["1", "2"], None)
    shop.store.apply([], {}, swept={CUSTOMERS: make_version(2, 0)})
    assert shop.drain() == {"1": {"id": 1, "status": "paid", "customer": None, "lines": []}}


def test_one_process_has_the_file_and_one_slice_is_out(shop: Shop) -> None:
    with pytest.raises(SyncError, match="in use by another process"):
        SqliteRows(shop.path, shop.view)
    shop.apply(shop.order(1, "open"), shop.order(2, "open"))
    first, second = shop.store.assemble(1), shop.store.assemble(1)
    with pytest.raises(ValueError, match="not the one"):
        shop.store.published(first)
    shop.store.published(second)
    assert shop.store.dirty() == 1


def test_where_says_which_roots_have_a_document(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "rows.db", a_view(where="status <> 'draft'"))
    shop.apply(shop.order(1, "draft"), shop.order(2, "open"), shop.line(1, 1, 1))
    assert list(shop.drain()) == ["2"]
    shop.apply(shop.order(1, "open"), shop.order(2, "draft"))
    found = shop.drain()
    assert (sorted(found), found["2"]) == (["1", "2"], None)
    shop.apply(shop.row(ORDERS, "2"))
    assert shop.drain() == {}
    shop.store.close()


def test_a_shard_keeps_its_roots_and_their_rows_and_a_copy_of_what_they_share(tmp_path: Path) -> None:
    view = a_view(shards=4)
    assert split_tables(view) == {ORDERS: ("id",), LINES: ("order_id",)}
    shops = [Shop(tmp_path / "whole.db", a_view())]
    for shard in range(4):
        shops.append(Shop(tmp_path / "none.db", view))
        shops[-1].store.close()
        shops[-1].store = SqliteRows.create(tmp_path / f"{shard}.db", view, shard)
    for shop in shops:
        orders = [shop.order(number, "open", number % 10) for number in range(400)]
        lines = [shop.line(number % 400, number // 400, 1) for number in range(1200)]
        shop.apply(*orders, *lines, *(shop.customer(number, "a") for number in range(10)))
    whole, *shards = [shop.drain() for shop in shops]
    assert {key: document for documents in shards for key, document in documents.items()} == whole
    counts = [shop.store.counts() for shop in shops[1:]]
    assert [count[CUSTOMERS] for count in counts] == [10] * 4
    assert sum(count[ORDERS] for count in counts) == 400
    assert [count[LINES] for count in counts] == [3 * count[ORDERS] for count in counts]
    assert all(60 < count[ORDERS] < 140 for count in counts)
    for shop in shops:
        # As it never comes about with a key like this one: a row that goes over to another root, in another shard.
        shop.apply(shop.row(LINES, "[8,0]", order_id=9, line=0, qty=1))
    whole, *shards = [shop.drain() for shop in shops]
    assert sorted(whole) == ["8", "9"]
    assert {key: document for documents in shards for key, document in documents.items()} == whole
    for shop in shops:
        shop.store.close()


def test_another_view_or_shard_a_lost_and_a_damaged_file_are_told(shop: Shop, tmp_path: Path) -> None:
    shop.apply(*(shop.order(number, "open" * 50, 7) for number in range(2000)))
    shop.store.close()
    path = shop.path
    whole = path.read_bytes()
    with pytest.raises(RowsLost, match="made for another view"):
        SqliteRows(path, a_view(columns=["id"]))
    with pytest.raises(RowsLost, match="made for another shard"):
        SqliteRows(path, shop.view, shard=1)
    with pytest.raises(RowsLost, match="there is no file"):
        SqliteRows(tmp_path / "none.db", shop.view)
    path.write_bytes(b"no database at all" * 500)
    with pytest.raises(RowsLost, match="the file is damaged"):
        SqliteRows(path, shop.view)
    path.write_bytes(b"")
    with pytest.raises(RowsLost, match="the file is damaged"):
        SqliteRows(path, shop.view)
    path.write_bytes(whole)
    shop.store = SqliteRows(path, shop.view)
    crash(shop.store)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2 : len(damaged) // 2 + 4096] = b"\xff" * 4096
    path.write_bytes(damaged)
    with pytest.raises(RowsLost, match="the file is damaged"):
        SqliteRows(path, shop.view)
    path.write_bytes(whole)
    shop.store = SqliteRows(path, shop.view)
    crash(shop.store)
    path.with_name(path.name + "-wal").unlink()
    with pytest.raises(RowsLost, match="its write-ahead file is gone"):
        SqliteRows(path, shop.view)
    shop.store = SqliteRows.create(path, shop.view)


def test_a_full_disk_takes_nothing_in_and_it_goes_on_when_there_is_room(shop: Shop) -> None:
    shop.apply(shop.order(1, "open"), cut="a")
    (pages,) = shop.store._run("PRAGMA page_count").fetchone()
    shop.store._run(f"PRAGMA max_page_count = {pages + 2}")
    many = [shop.order(n, "x" * 500) for n in range(2, 400)]
    with pytest.raises(SourceUnavailable, match=r"cannot be kept in .*: database or disk is full"):
        shop.apply(*many, cut="b")
    assert (shop.store.dirty(), shop.store.frontier()) == (1, None)
    shop.store._run("PRAGMA max_page_count = 1000000")
    shop.apply(*many, cut="b")
    assert shop.store.dirty() == 399


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SyncError, match=r"the rows of the view order cannot be kept in .*x\.rows: ") as told:
        SqliteRows.create(tmp_path / "file" / "shop" / "x.rows", a_view())
    assert "DRIFTLESS_HOME" in told.value.hint
