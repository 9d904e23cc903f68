"""A stream as the root of a view: how it is declared, what is wrong with it, and what the source shows of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from connectors.pipeline.check import _views
from connectors.pipeline.views import view_source
from connectors.postgres.client import Postgres, captured_tables
from connectors.postgres.source_snapshot import SourceSnapshot
from driftless.config.models import Config
from driftless.facts.builds import Build
from driftless.facts.epochs import FollowedTable
from driftless.facts.streams import FollowedStream, stream_table
from driftless.table import Column
from driftless.views.resolve import resolve
from driftless.views.sample import shape
from driftless.views.sql import SETTINGS, select
from driftless.views.tree import View
from jobs.streams.root_moment import StreamRootMoment
from tests.conftest import fresh_database
from tests.driftless.config.test_config import GOOD, load_text, problems

STREAM = """events:
  clicks: {topic: app.clicks, columns: {id: bigint, at: timestamptz}, time: {event: at}}
streams:
  sold: {sql: SELECT 1, key: [began, product]}
"""
SALES = """
  sales:
    root: sold
    columns: [began, n, paid, most]
    where: n > 1
    one: {product: {table: products, by: product, columns: [title]}}
"""
COLUMNS = (
    Column("began", "timestamptz"),
    Column("product", "int4"),
    Column("n", "int8"),
    Column("paid", "numeric"),
    Column("most", "jsonb"),
)
SOLD = stream_table("sold", COLUMNS, ("began", "product"))
MOMENT = "2026-03-01T12:00:00+00:00"


def document(product: int | None, n: int, paid: str, most: object) -> str:
    return f'{{"began":"{MOMENT}","product":{json.dumps(product)},"n":{n},"paid":{paid},"most":{json.dumps(most)}}}'


def written(change: tuple[str, str] = ("", "")) -> str:
    return GOOD.replace("  customer: {root", SALES[1:] + "  customer: {root").replace(*change) + STREAM


def test_a_stream_is_the_root_by_its_own_name(tmp_path: Path) -> None:
    config = load_text(tmp_path, written(("view: product\n    redis", "view: sales\n    redis")))
    view = config.views["sales"]
    assert (view.stream, view.root_table, view.joined) == ("sold", ".sold", True)
    assert (config.views["product"].stream, config.views["product"].root_table) == ("", "public.products")
    assert (config.table_of("product-cache"), config.stream_of("product-cache")) == (None, "sold")
    assert (config.table_of("product-search"), config.stream_of("product-search")) == ("public.products", None)


def test_a_table_of_the_same_name_is_told_by_its_schema(tmp_path: Path) -> None:
    config = load_text(tmp_path, written(("sold", "products")).replace("root: products\n", "root: public.products\n"))
    assert config.views["sales"].stream == ""


def test_a_name_that_is_neither_is_refused(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, written(("root: sold", "root: solt")))
    assert found.endswith("views.sales.root: public.solt is not under source.tables; did you mean the stream `sold`?")


@dataclass
class Shop:
    config: Config
    owner: psycopg.Connection
    source: Postgres

    @property
    def view(self) -> View:
        tables = {name: table for name, table in captured_tables(self.source, self.config).items() if table}
        facts = view_source(self.config, self.source, tables, streams={"sold": SOLD})
        view, wrong = resolve("sales", self.config.views["sales"], facts)
        assert not wrong
        assert view is not None
        return view


@contextmanager
def made(postgres: str, folder: Path, text: str) -> Iterator[Shop]:
    with fresh_database(postgres) as dsn, psycopg.connect(dsn, autocommit=True) as owner, Postgres(dsn) as source:
        owner.execute("create table customers (id int primary key, name text, password_hash text)")
        owner.execute("create table products (id bigint primary key, title text)")
        owner.execute("insert into products values (1, 'one'), (2, null)")
        yield Shop(load_text(folder, text), owner, source)


@pytest.mark.server
def test_its_build_begins_with_a_build_of_the_stream(postgres: str, tmp_path: Path) -> None:
    with made(postgres, tmp_path, written()) as shop:
        view = shop.view
    assert view.stream == "sold"
    assert shape(view)["most"] == "jsonb"
    build = Build(1, view, {".sold": 3, "public.products": 2}, 1, 1.0)
    assert build.sources == {".sold": FollowedStream("sold", 3), "public.products": FollowedTable("public.products", 2)}
    assert Build.from_json(1, build.to_json()).sources == build.sources


@pytest.mark.server
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "[began, n, paid, most]",
            "[began, m]",
            "views.sales.columns.1: the stream sold has no column m; known: `began`, ",
        ),
        ("where: n > 1", "where: m > 1", "views.sales.where: column 1: the stream sold has no column m; known: "),
        (
            "    where: n > 1\n",
            "    computed: {at: 'coalesce(began, began)'}\n",
            "views.sales.computed.at: began is timestamptz, which cannot be computed with in a stream's documents",
        ),
        ("    where: n > 1\n", "    key: product\n", "views.sales.key: a stream has its own key"),
        ("by: product,", "by: began,", "views.sales.one.product.by: began is timestamptz and id is int8"),
    ],
)
def test_what_is_wrong_with_it_is_told(postgres: str, tmp_path: Path, old: str, new: str, said: str) -> None:
    with made(postgres, tmp_path, written((old, new))) as shop:
        tables = captured_tables(shop.source, shop.config)
        found = [str(finding) for finding in _views(shop.config, shop.source, tables, {"sold": SOLD})]
    assert [text for text in found if said in text], found


@pytest.mark.server
def test_the_source_joins_what_was_computed_with_the_rows_of_now(postgres: str, tmp_path: Path) -> None:
    documents = {
        "a": document(1, 2, "1.50", [{"x": 1.10}, "é\"'\\ % %s"]),
        "b": document(2, 3, "0", None),
        "c": document(7, 4, "12345678901234567890.5", {"a": None}),
        "d": document(1, 1, "1.50", None),
        "e": document(None, 9, "1.50", []),
    }
    with made(postgres, tmp_path, written()) as shop:
        statement, careful = select(shop.view), select(shop.view, careful=True)
        with shop.owner.transaction():
            shop.owner.execute(SETTINGS)
            moment = StreamRootMoment(SourceSnapshot(7, shop.owner), documents)
            found = dict(pair for page in moment.documents(statement) for pair in page)
            some = [pair for page in moment.documents(careful, ["d", "b", "x"], aside=True) for pair in page]
    assert (moment.lsn, moment.count(statement)) == (7, 5)
    parsed = {key: json.loads(text) for key, text in found.items()}
    assert parsed == {
        "a": {"began": MOMENT, "n": 2, "paid": 1.5, "most": [{"x": 1.1}, "é\"'\\ % %s"], "product": {"title": "one"}},
        "b": {"began": MOMENT, "n": 3, "paid": 0, "most": None, "product": {"title": None}},
        "c": {"began": MOMENT, "n": 4, "paid": 12345678901234567890.5, "most": {"a": None}, "product": None},
        "e": {"began": MOMENT, "n": 9, "paid": 1.5, "most": [], "product": None},
    }
    assert '"paid": 1.50' in found["a"]
    assert '"paid": 12345678901234567890.5' in found["c"]
    assert [key for key, _ in some] == ["b"]


@pytest.mark.server
def test_what_is_computed_of_a_result_is_in_its_document(postgres: str, tmp_path: Path) -> None:
    told = "    where: n * 2 > 2\n    computed: {mean: 'paid / nullif(n, 0)', kind: \"'sale'\"}\n"
    documents = {"a": document(1, 4, "1.50", None), "b": document(1, 1, "9", None)}
    with made(postgres, tmp_path, written(("    where: n > 1\n", told))) as shop, shop.owner.transaction():
        moment = StreamRootMoment(SourceSnapshot(7, shop.owner), documents)
        found = dict(pair for page in moment.documents(select(shop.view)) for pair in page)
    assert found.keys() == {"a"}
    assert '"mean": 0.37500000000000000000' in found["a"]
    assert json.loads(found["a"])["kind"] == "sale"


@pytest.mark.server
def test_of_many_results_each_page_is_joined(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.streams.root_moment._PAGE", 7)
    documents = {f"k{n}": document(n % 3, n, "1", None) for n in range(2, 50)}
    with made(postgres, tmp_path, written()) as shop, shop.owner.transaction(), nullcontext(select(shop.view)) as text:
        found = dict(
            pair for page in StreamRootMoment(SourceSnapshot(7, shop.owner), documents).documents(text) for pair in page
        )
    assert {key: json.loads(text)["n"] for key, text in found.items()} == {f"k{n}": n for n in range(2, 50)}
