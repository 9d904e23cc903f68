"""What is computed is what Postgres computes: as it was written, as we compile it, and in the row store."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator

import psycopg
import pytest

from driftless.where.clause import compute, parse
from driftless.where.literals import Literal
from driftless.where.postgres import condition_sql, term_sql
from jobs.views.values import evaluate
from jobs.views.values.tally import TallyOfRows, average_of, merged, sum_of
from tests.conftest import fresh_database
from tests.jobs.views.store.computed_cases import COLUMNS, TABLE, Values
from tests.support.compare import parse as parse_json
from tests.support.seeds import seeds

pytestmark = pytest.mark.server

SEED = seeds(__name__, 1)[0]
ROWS = 60
TRIED = int(os.environ.get("DRIFTLESS_COMPUTED_CASES") or 400)
AT_ONCE = 40
_SETTINGS = "-c timezone=UTC -c extra_float_digits=1"


@pytest.fixture(scope="module")
def source(postgres: str) -> Iterator[psycopg.Connection]:
    print(f"DRIFTLESS_TEST_SEED={SEED}")
    rng = random.Random(f"{SEED} rows")
    with fresh_database(postgres) as dsn, psycopg.connect(dsn, autocommit=True, options=_SETTINGS) as connection:
        columns = ", ".join(f"{name} {declared}" for name, (declared, _, _) in COLUMNS.items())
        connection.execute(f"create table computed (id bigint primary key, {columns})".encode())
        for number in range(ROWS):
            values = [
                pool[number] if number < len(pool) else None if rng.random() < 0.1 else rng.choice(pool)
                for _, _, pool in COLUMNS.values()
            ]
            casts = ", ".join(f"%s::{declared.split(' collate')[0]}" for declared, _, _ in COLUMNS.values())
            connection.execute(f"insert into computed values ({number}, {casts})".encode(), values)
        yield connection


@pytest.fixture(scope="module")
def rows(source: psycopg.Connection) -> list[list[str | None]]:
    """The JSON texts of each row's columns."""
    found = in_postgres(source, [column.name for column in TABLE.columns])
    return [[None if text is None else str(text) for text in texts] for texts in found]


def in_postgres(source: psycopg.Connection, expressions: list[str]) -> list[tuple[str | None, ...]]:
    query = f"select {', '.join(f'to_jsonb({sql})::text' for sql in expressions)} from computed order by id"
    return source.execute(query.encode()).fetchall()


def alike(left: object, right: object) -> bool:
    """Also in the digits of a number, which are the scale of a numeric."""
    return left == right or (
        isinstance(left, str)
        and isinstance(right, str)
        and json.loads(left, parse_float=str, parse_int=str) == json.loads(right, parse_float=str, parse_int=str)
    )


def test_a_value_is_that_of_postgres(source: psycopg.Connection, rows: list[list[str | None]]) -> None:
    made = Values(random.Random(f"{SEED} values"))
    answers = 0
    for _ in range(TRIED // AT_ONCE):
        tried = [made.value() for _ in range(AT_ONCE)]
        # Alone, a text in quotes is of no type in Postgres.
        texts = [text for text in tried if not isinstance(compute(text).term, Literal)]
        for text in texts:
            assert compute(text).refusals(TABLE) == [], text
        meant = in_postgres(source, texts)
        compiled = in_postgres(source, [term_sql(compute(text).typed(TABLE)) for text in texts])
        for number, text in enumerate(texts):
            value = evaluate.computed(text, TABLE)
            for row, wanted, other in zip(rows, meant, compiled, strict=True):
                found = value.shown(row)
                assert alike(found, wanted[number]), f"{text}\n{found} in the row store, not {wanted[number]}\n{row}"
                assert parse_json(other[number] or "null") == parse_json(wanted[number] or "null"), (
                    f"{text}\n{other[number]} compiled, not {wanted[number]}"
                )
                answers += found is not None
    assert answers > ROWS * TRIED / 3
    ways = {"+", "-", "*", "/", "%", "negate", "length", "||", "lower", "upper", "->", "->>", "replace"}
    assert ways | {"coalesce", "nullif", "case", "case of", "any"} <= made.used


def test_a_condition_is_that_of_postgres(source: psycopg.Connection, rows: list[list[str | None]]) -> None:
    made = Values(random.Random(f"{SEED} conditions"))
    answers: dict[object, int] = {}
    for _ in range(TRIED // AT_ONCE):
        texts = [made.condition() for _ in range(AT_ONCE)]
        for text in texts:
            assert parse(text).refusals(TABLE) == [], text
        meant = in_postgres(source, [f"({text})" for text in texts])
        compiled = in_postgres(source, [condition_sql(parse(text).typed(TABLE)) for text in texts])
        assert compiled == meant
        for number, text in enumerate(texts):
            admitted = evaluate.condition(text, TABLE)
            for row, wanted in zip(rows, meant, strict=True):
                found = admitted(row)
                answers[found] = answers.get(found, 0) + 1
                shown = None if found is None else "true" if found else "false"
                assert shown == wanted[number], f"{text}\n{shown} in the row store, not {wanted[number]}\n{row}"
    assert min(answers.get(answer, 0) for answer in (True, False, None)) > ROWS * TRIED / 30, answers


def test_sums_and_averages_are_those_of_postgres_to_the_last_digit(source: psycopg.Connection) -> None:
    """Also when values have come and gone."""
    rng = random.Random(f"{SEED} sums")
    for _ in range(TRIED):
        values, gone = ([_decimal(rng) for _ in range(rng.randint(0, 6))] for _ in range(2))
        tally, taken = TallyOfRows(), TallyOfRows()
        for value in [*gone, *values]:
            tally.step(1, json.dumps(value) if value[-1].isalpha() else value)
        for value in gone:
            taken.step(-1, json.dumps(value) if value[-1].isalpha() else value)
        left = merged(tally.finalize(), taken.finalize())
        query = "select to_jsonb(sum(v))::text, to_jsonb(avg(v))::text from unnest(%s::numeric[]) v"
        assert (sum_of(left), average_of(left)) == source.execute(query, (values,)).fetchone(), values


def _decimal(rng: random.Random) -> str:
    if rng.random() < 0.03:
        return rng.choice(["NaN", "Infinity", "-Infinity"])
    digits = "".join(rng.choices("0123456789", k=rng.choice([1, 2, 5, 12, 30])))
    point = rng.randint(0, len(digits))
    value = f"{digits[:point] or '0'}.{digits[point:] or '0'}" if rng.random() < 0.7 else digits
    return rng.choice(["", "-"]) + value
