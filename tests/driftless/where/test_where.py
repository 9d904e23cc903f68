"""`where` means the same in Postgres and in Spark: random conditions on rows that are hard to compare."""

from __future__ import annotations

import random
from collections.abc import Iterator

import psycopg
import pytest
from pyspark.sql import SparkSession

from driftless.facts.epochs import first_epoch
from driftless.table import Column, Table
from driftless.where.ast import Truth
from driftless.where.clause import WhereRefused, parse
from driftless.where.postgres import POSTGRES
from driftless.where.words import KEYWORDS
from jobs.decode.documents import writes_sql
from jobs.decode.where_sql import log_filter
from tests.conftest import fresh_database
from tests.driftless.where.where_cases import COLUMNS, TABLE, Conditions, log
from tests.driftless.where.where_rows import Rows, make
from tests.support.seeds import seeds

pytestmark = pytest.mark.server

SEED = seeds(__name__, 1)[0]
ROWS, CONDITIONS = 120, 400
LOG = first_epoch("shop.public.rows", "id", 1)


@pytest.fixture(scope="module")
def source(postgres: str) -> Iterator[psycopg.Connection]:
    """A database in another time zone than documents."""
    with (
        fresh_database(postgres) as dsn,
        psycopg.connect(dsn, autocommit=True, options="-c timezone=America/New_York") as connection,
    ):
        yield connection


@pytest.fixture(scope="module")
def rows(source: psycopg.Connection, spark: SparkSession) -> Rows:
    print(f"DRIFTLESS_TEST_SEED={SEED}")
    make(source, SEED, ROWS)
    return Rows(source, spark, log(source, "rows"))


def test_a_condition_means_the_same_as_written_compiled_and_in_spark(rows: Rows) -> None:
    """For every row alike: true, false and null. Tried in Postgres as it was written, too, where that needs no care."""
    made = Conditions(random.Random(f"{SEED} conditions"))
    wrong = rows.differences([made.condition() for _ in range(CONDITIONS)])
    assert not wrong, f"seed {SEED}: {len(wrong)} differ\n" + "\n".join(wrong[:5])
    assert min(rows.answers[answer] for answer in (True, False, None)) > ROWS * CONDITIONS / 20, rows.answers
    kinds = {kind for _, _, kind, _ in COLUMNS.values()} - {"", "bool", "enum"}
    tried = {(operator, kind) for operator in ("=", "<", "<=", ">", ">=", "in", "between") for kind in kinds}
    tried |= {("like", "text"), ("=", "bool"), ("alone", "bool"), ("=", "enum"), ("in", "enum"), ("null", "")}
    assert tried <= made.used, f"seed {SEED}: never tried: {tried - made.used}"


@pytest.mark.parametrize(
    "text",
    [
        "not b and b2",
        "not b or b2 and i4 = 1",
        "b or b2 and not i4 > 0",
        "i4 = 1 is true",
        "i4 between 0 and 5 is not true",
        "i4 in (1, 5) is false",
        "not i4 = 1 is null or b",
        "b = true is not true",
        "v like 'a%' is true",
        "not v like 'a%' and b",
        "i4 between -1 and 5 and b or b2",
        "not i4 between -1 and 5 or b",
        "b is true is false",
        "i4 /* 5 > */ = -- no\n 1",
        "i4=-1",
        "i4<-1",
        "E = 'ok' AND I4 <> 1",
    ],
)
def test_what_binds_more_closely_is_as_in_postgres_or_refused(rows: Rows, text: str) -> None:
    try:
        where = parse(text)
    except WhereRefused:
        return
    assert where.refusals(TABLE) == []
    try:
        meant = rows.in_postgres("plain", [f"{text}\n"])
    except psycopg.errors.SyntaxError:
        pytest.fail(f"Postgres does not take {text!r}")
    assert rows.in_postgres("plain", [where.sql(TABLE, POSTGRES)]) == meant


def test_words_of_postgres_are_no_columns_and_all_others_are(source: psycopg.Connection) -> None:
    words = source.execute("select word, catcode::text from pg_get_keywords()").fetchall()
    reserved = {word for word, code in words if code in "RT"}
    assert reserved | {"if"} == KEYWORDS
    free = sorted({word for word, _ in words} - KEYWORDS)
    source.execute(f"create table words ({', '.join(f'{chr(34)}{word}{chr(34)} boolean' for word in free)})".encode())
    source.execute("insert into words default values")
    refused = []
    for word in free:
        try:
            assert parse(f"{word} = true").columns == {word}
            assert parse(f"not {word}").columns == {word}
        except WhereRefused:
            refused.append(word)
        assert parse(f'"{word}"').condition == Truth(parse(f'"{word}"').condition.left)  # type: ignore[union-attr]
        source.execute(f"select 1 from words where {word} = true".encode())
    assert len(refused) < 20, refused
    for word in reserved:
        with pytest.raises(WhereRefused):
            parse(f"{word} = true")


def test_a_row_that_does_not_pass_is_a_delete_at_its_own_version(spark: SparkSession) -> None:
    """The column is read though the document does not show it; false and unknown are alike."""
    table = Table("public", "t", (Column("id", "int8"), Column("status", "text"), Column("n", "int4")), ("id",))
    where = parse("status <> 'draft'")
    values = ['{"id":1,"status":"open","n":1}', '{"id":1,"status":"draft","n":1}', '{"id":1,"status":null,"n":1}', None]
    records = [(b'{"id":1}', value and value.encode(), 0, offset) for offset, value in enumerate(values)]
    frame = spark.createDataFrame(records, "key binary, value binary, `partition` int, `offset` bigint")
    parsed, shape = writes_sql(table, {"id": "id"}, LOG, log_filter(where, table))
    found = frame.selectExpr(*parsed).selectExpr(*shape).toArrow().to_pylist()
    assert [(row["key"], row["version"] & 0xFF, row["document"]) for row in found] == [
        ("1", 0, '{"id":1}'),
        ("1", 1, None),
        ("1", 2, None),
        ("1", 3, None),
    ]
