"""Documents that are found by another unique key than the primary one, in a cache and in a search index."""

from __future__ import annotations

import psycopg
import pytest

from tests.chain.conftest import MakePipeline, running
from tests.support.compare import View

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]


def test_a_document_moves_with_its_key(make_pipeline: MakePipeline, source: psycopg.Connection) -> None:
    source.execute("create table products (id int primary key, slug text unique, title text, tags int[])")
    source.execute("create table tags (id int primary key, name text)")
    source.execute("insert into tags values (1, 'red'), (2, 'blue')")
    source.execute(
        "insert into products values (1, 'lamp', 'Lamp', '{2,1}'), (2, 'desk', 'Desk', '{}'), (3, null, 'Draft', null)"
    )
    pipeline = make_pipeline(tables={"public.products": {}, "public.tags": {}})
    tags = "(select coalesce(jsonb_agg(g.name order by n), '[]') from unnest(t.tags) with ordinality e (k, n) "
    view = View(
        "product",
        "public.products",
        key=("slug",),
        fields={"title": "title", "tags": "tags"},
        where="slug is not null",
        instead={"tags": f"{tags} join tags g on g.id = e.k)"},
    )
    listed = {"table": "public.tags", "ids": "tags", "value": "name"}
    declared = {"root": "public.products", "key": "slug", "columns": ["title"], "many": {"tags": listed}}
    pipeline.sync["views"]["product"] = declared
    pipeline.sync["views"]["label"] = {
        "root": "public.products",
        "columns": ["id"],
        "computed": {"label": "coalesce(upper(slug), '-') || ' ' || title", "kind": "'product'"},
        "where": "lower(title) <> 'draft'",
    }
    label = View(
        "label",
        "public.products",
        fields={"id": "id", "label": "label", "kind": "kind"},
        where="lower(title) <> 'draft'",
        instead={"label": "coalesce(upper(t.slug), '-') || ' ' || t.title", "kind": "'product'::text"},
    )
    pipeline.follow("label", label, {"redis": {}})
    pipeline.follow("by-slug", view, {"redis": {}})
    pipeline.follow("search", view, {"opensearch": {"mapping": {"dynamic": False}}})
    pipeline.apply()
    running(pipeline)
    pipeline.assert_in_step()
    for change in (
        "update products set slug = 'lamp-2' where id = 1",
        "update products set slug = 'draft' where id = 3",
        "update tags set name = 'green' where id = 1",
        "delete from products where id = 2",
        "insert into products values (4, 'desk', 'Another desk', '{1,9}')",
        "update products set slug = null where id = 3",
        "update products set title = 'DRAFT' where id = 4",
        "update products set title = 'Final' where id = 3",
    ):
        source.execute(change.encode())
    pipeline.assert_in_step()
    with source.transaction():  # the two exchange theirs
        source.execute("update products set slug = 'x' where id = 1")
        source.execute("update products set slug = 'lamp-2' where id = 4")
        source.execute("update products set slug = 'desk' where id = 1")
    pipeline.assert_in_step()
    done = pipeline.here("verify", seconds=240)
    assert done.code == 0, done.out + done.err
