"""Which tables `init` chooses first, and how it calls the rows of a list."""

from __future__ import annotations

import pytest

from cli.proposal.plurals import plural, singular
from connectors.postgres.catalogue import columns_said, gone_columns, renamings
from connectors.postgres.relations import ForeignKey
from connectors.postgres.worth import framework_of, is_minor, only_joins, weigh
from driftless.facts.state import Fact, State
from driftless.table import Column, Table
from driftless.where.clause import parse


def table(name: str, *columns: str, key: tuple[str, ...] = ("id",)) -> Table:
    """Columns as `name:type`; int4 where none is given."""
    split = (column.partition(":") for column in columns)
    made = tuple(Column(column, type_ or "int4") for column, _, type_ in split)
    return Table("public", name, made, key)


def refers(name: str, column: str, to: str) -> ForeignKey:
    return ForeignKey(f"public.{name}", (column,), f"public.{to}", ("id",))


POSTS, TAGS = refers("posts_tags", "post_id", "posts"), refers("posts_tags", "tag_id", "tags")


@pytest.mark.parametrize(
    ("joins", "columns", "key"),
    [
        (True, ("post_id", "tag_id"), ("post_id", "tag_id")),
        (True, ("id:int8", "post_id", "tag_id"), ("id",)),  # Django
        (True, ("id:int8", "post_id", "tag_id", "created_at:timestamp", "updated_at:timestamp"), ("id",)),  # Rails
        (True, ("post_id", "tag_id", "last_update:timestamptz"), ("post_id", "tag_id")),  # with a default of now()
        (True, ("id:uuid", "post_id", "tag_id", "position"), ("id",)),
        (True, ("id:int8", "post_id", "tag_id", "sort_order:int2"), ("id",)),
        (False, ("id:int8", "post_id", "tag_id", "quantity"), ("id",)),
        (False, ("id:int8", "post_id", "tag_id", "note:text"), ("id",)),
        (False, ("id:int8", "post_id", "tag_id", "weight:numeric"), ("id",)),
        (False, ("post_id", "tag_id", "lang:text"), ("post_id", "tag_id", "lang")),
    ],
)
def test_a_table_that_only_joins(joins: bool, columns: tuple[str, ...], key: tuple[str, ...]) -> None:
    assert only_joins(table("posts_tags", *columns, key=key), [POSTS, TAGS]) is joins


def test_three_tables_are_not_joined() -> None:
    three = [POSTS, TAGS, refers("posts_tags", "user_id", "users")]
    assert not only_joins(table("posts_tags", "id", "post_id", "tag_id", "user_id"), three)


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("schema_migrations", "Rails"),
        ("ar_internal_metadata", "Rails"),
        ("solid_queue_jobs", "Rails"),
        ("django_session", "Django"),
        ("django_migrations", "Django"),
        ("alembic_version", "Alembic"),
        ("flyway_schema_history", "Flyway"),
        ("DATABASECHANGELOG", "Liquibase"),
        ("SequelizeMeta", "Sequelize"),
        ("__EFMigrationsHistory", "Entity Framework"),
        ("_prisma_migrations", "Prisma"),
        ("orders", ""),
        ("auth_user", ""),
        ("migrations_of_birds", ""),
    ],
)
def test_what_frameworks_keep(name: str, framework: str) -> None:
    assert framework_of(name) == framework


@pytest.mark.parametrize("name", ["audit_log", "LoginSession", "l_artist_work_example", "orders_2019_backup"])
def test_what_is_rather_not_followed(name: str) -> None:
    assert is_minor(table(name, "id"))


@pytest.mark.parametrize("name", ["catalogue", "logistics", "exampled", "orders", "product"])
def test_words_count_and_not_their_parts(name: str) -> None:
    assert not is_minor(table(name, "id"))


def test_relations_and_rows_decide_and_then_the_alphabet() -> None:
    tables = [
        table("a_log", "id", "order_id"),
        table("b_kind", "id"),
        table("customers", "id", "name:text"),
        table("lines", "order_id", "line", "product_id", key=("order_id", "line")),
        table("orders", "id", "customer_id", "at:timestamptz"),
        table("posts_tags", "id", "order_id", "product_id"),
        table("products", "id", "title:text"),
        table("z_kind", "id"),
    ]
    keys = [
        refers("a_log", "order_id", "orders"),
        refers("orders", "customer_id", "customers"),
        refers("lines", "order_id", "orders"),
        refers("lines", "product_id", "products"),
        refers("posts_tags", "order_id", "orders"),
        refers("posts_tags", "product_id", "products"),
    ]
    found = weigh(tables, keys, {}, {"public.lines"})
    assert [name.removeprefix("public.") for name in found.order] == [
        "orders",
        "products",
        "customers",
        "b_kind",
        "z_kind",
        "lines",
        "posts_tags",
        "a_log",
    ]
    assert found.first == {
        f"public.{name}" for name in ("orders", "products", "customers", "lines", "b_kind", "z_kind")
    }
    grown = weigh(tables, keys, {"public.z_kind": 1_000_000}, {"public.lines"})
    assert grown.order.index("public.z_kind") < grown.order.index("public.b_kind")


@pytest.mark.parametrize(
    ("one", "many"),
    [
        ("line", "lines"),
        ("order_line", "order_lines"),
        ("category", "categories"),
        ("address", "addresses"),
        ("key", "keys"),
        ("box", "boxes"),
        ("branch", "branches"),
        ("person", "people"),
        ("status", "statuses"),
        ("movie", "movies"),
        ("purchase", "purchases"),
        ("house", "houses"),
        ("artist_alias", "artist_aliases"),
        ("area", "areas"),
        ("isrc", "isrcs"),
        ("inventory", "inventories"),
    ],
)
def test_one_and_several(one: str, many: str) -> None:
    assert (plural(one), plural(many), singular(many), singular(one)) == (many, many, one, one)


@pytest.mark.parametrize("word", ["series", "news", "staff", "media"])
def test_words_that_are_both(word: str) -> None:
    assert (plural(word), singular(word)) == (word, word)


# -- columns that came and went ---------------------------------------------------------------------------------

BEFORE = table("actor", "id", "first_name:text", "last_name:text")


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (("id", "first_name:text", "last_name:text"), ""),
        (
            ("id", "first_name:text", "surname:text"),
            "it has a new column: surname; it has no column last_name any more; last_name may have been renamed to "
            "surname",
        ),
        (
            ("id", "first_name:text", "surname:varchar"),
            "it has a new column: surname; it has no column last_name any more",
        ),
        (
            ("id", "first_name:text", "a:text", "b:text"),
            "it has a new column: a, b; it has no column last_name any more",
        ),
        (("id", "first_name:text"), "it has no column last_name any more"),
        (("id", "first_name:text", "last_name:text", "b:text"), "it has a new column: b"),
    ],
)
def test_what_is_said_of_columns_that_came_and_went(after: tuple[str, ...], said: str) -> None:
    assert columns_said(BEFORE, table("actor", *after)) == said


def test_check_names_what_is_new_where_a_column_is_gone() -> None:
    state = State({"table/public.actor": Fact(BEFORE.to_json(), 0.0, 0)})
    renamed = table("actor", "id", "first_name:text", "surname:text")
    assert renamings(BEFORE, renamed) == {"last_name": "surname"}
    assert gone_columns(state, {"public.actor": renamed}) == {
        ("public.actor", "last_name"): " any more; the column surname is new: was it renamed?"
    }
    gone = gone_columns(state, {"public.actor": renamed})
    assert parse("last_name = 'x' and nme = 'y'").refusals(renamed, gone=gone) == [
        "column 1: public.actor has no column last_name any more; the column surname is new: was it renamed?",
        "column 21: public.actor has no column nme; did you mean `surname`?",
    ]
    several = table("actor", "id", "a:text", "b:text")
    assert gone_columns(state, {"public.actor": several}) == {
        ("public.actor", column): " any more; new are: a, b" for column in ("first_name", "last_name")
    }
    fewer = table("actor", "id", "first_name:text")
    assert gone_columns(state, {"public.actor": fewer}) == {("public.actor", "last_name"): " any more: take it out"}
    assert gone_columns(State({}), {"public.actor": renamed}) == {}
