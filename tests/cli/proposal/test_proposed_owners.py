"""Rows that belong to rows of several tables, as a comment does to posts and photos: what `init` proposes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.proposal.syncfile import write_sync
from connectors.pipeline.check import _views
from connectors.postgres.client import Postgres, captured_tables
from connectors.postgres.init import propose
from tests.cli.proposal.proposals import loaded, uncommented
from tests.conftest import fresh_database

pytestmark = pytest.mark.server

TABLES = """
create table posts (id int primary key, title text);
create table blog_photos (id int primary key, url text);
create table comments (
    id int primary key, commentable_type text, commentable_id int, body text, deleted_at timestamptz
);
create table tags (id int primary key, code text not null unique);
create table post_tags (
    post_id int references posts, tag_code text references tags (code), sort int, primary key (post_id, tag_code)
);
insert into comments values (1, 'Post', 1), (2, 'App\\Models\\BlogPhoto', 1), (3, 'Invoice', 1);
"""


def test_each_owner_has_the_rows_of_its_kind_and_lists_have_the_order_of_what_joins_them(
    postgres: str, tmp_path: Path
) -> None:
    with fresh_database(postgres) as dsn, Postgres(dsn) as source:
        source.execute(TABLES.replace("\\\\", "\\"))
        config = loaded(tmp_path, uncommented(write_sync("shop", propose(source, "shop"))))
        nested = {name.removesuffix("_nested"): view for name, view in config.views.items() if view.joined}
        posts, photos = nested["posts"].many, nested["blog_photos"].many
        alive = "deleted_at IS NULL"
        assert (posts["comments"].by, posts["comments"].where) == (
            ("commentable_id",),
            f"commentable_type = 'Post' AND {alive}",
        )
        assert photos["comments"].where == f"commentable_type = 'App\\Models\\BlogPhoto' AND {alive}"
        tags = posts["tags"]
        assert (tags.through, tags.to, tags.to_references) == ("public.post_tags", ("tag_code",), ("code",))
        assert tags.order_by == ("between.sort",)
        assert [str(found) for found in _views(config, source, captured_tables(source, config))] == []
