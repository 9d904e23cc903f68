"""Names: one spelling of a table's name, and what becomes of it elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.debezium.connector import connector_settings
from connectors.postgres.relations import topic_meetings
from driftless import names
from driftless.config.models import Config
from driftless.table import join_name, split_name

identifiers = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("written", "schema", "table"),
    [
        ("orders", "public", "orders"),
        ("sales.orders", "sales", "orders"),
        ("My Schema.Order Lines", "My Schema", "Order Lines"),
        ('"My Schema"."Order Lines"', "My Schema", "Order Lines"),
        ('"a.b"', "public", "a.b"),
        ('"a.b".c', "a.b", "c"),
        ('a."b""c"', "a", 'b"c'),
        ("it's", "public", "it's"),
    ],
)
def test_a_table_may_be_written_as_in_sql_or_as_it_is(written: str, schema: str, table: str) -> None:
    assert split_name(written) == (schema, table)


@pytest.mark.parametrize("written", ["a.b.c", "", ".a", "a.", 'a"b', '"a', '"a"b', '"".a', 'a.""'])
def test_what_could_be_read_in_two_ways_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="as in SQL"):
        split_name(written)


@given(identifiers, identifiers)
def test_every_name_has_one_spelling_that_reads_back(schema: str, table: str) -> None:
    assert split_name(join_name(schema, table)) == (schema, table)


def test_plain_names_need_no_quotes() -> None:
    assert join_name("public", "Order Lines") == "public.Order Lines"
    assert join_name("a.b", 'c"d') == '"a.b"."c""d"'


@pytest.mark.parametrize(
    ("table", "topic"),
    [
        ("public.orders", "shop.public.orders"),
        ("My Schema.Order-Lines", "shop.My_Schema.Order-Lines"),
        ('"a.b".größe', "shop.a.b.gr__e"),
        ("public.😀", "shop.public.__"),
    ],
)
def test_a_topic_is_named_as_debezium_names_it(table: str, topic: str) -> None:
    assert names.table_topic("shop", table) == topic


def test_topics_that_kafka_takes_for_one_are_found() -> None:
    assert dict(topic_meetings("p", ["s.a b", "s.a_b", "s.c", "s_c.d", "s.c_d"], ["p_s.c", "p.s.a_b"])) == {
        "s.a_b": "would share the topic p.s.a_b with s.a b: capture it in another pipeline",
        "s_c.d": "would share the topic p.s_c.d with s.c_d: capture it in another pipeline",
        "s.c": "would have the topic p.s.c, which Kafka does not allow together with the topic p_s.c",
    }


def test_debezium_is_told_names_and_not_patterns() -> None:
    tables = {"public.a_1": {"exclude": ["x.y"]}, 'My Schema."a,b"': {}, "public.ü$": {}}
    config = Config.model_validate(
        {
            "name": "shop",
            "source": {"dsn": "postgresql://db/shop", "tables": tables},
            "kafka": {"bootstrap": "kafka:9092"},
            "connect": {"url": "http://connect:8083"},
            "views": {},
            "followers": {},
        }
    )
    settings = connector_settings(config, {"host": "db", "port": 5432, "user": "d", "dbname": "shop"}, None, {})
    assert settings["table.include.list"] == (
        r"(?-i)My\x{20}Schema\.a\x{2c}b,(?-i)public\.a_1,(?-i)public\.\x{fc}\x{24}"
    )
    assert settings["column.exclude.list"] == r"(?-i)public\.a_1\.x\x{2e}y"
