"""Rows in Postgres and in the log, and conditions tried on both."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import psycopg
from pyspark.sql import SparkSession

from driftless.where.clause import parse
from driftless.where.postgres import where_sql
from jobs.decode.where_sql import log_filter
from tests.driftless.where.where_cases import COLUMNS, TABLE, create, fill

AT_ONCE = 50
_LOG = {"int8": "bigint", "bool": "boolean", "date": "bigint", "timestamp": "bigint", "time": "bigint"}
_FIELDS = ["`id` bigint"] + [
    f"`{name.replace('`', '``')}` {'array<string>' if name == 'tags' else _LOG.get(kind, 'string')}"
    for name, (_, _, kind, _) in COLUMNS.items()
]


def make(source: psycopg.Connection, seed: object, rows: int) -> None:
    """Two tables of the same rows. `rows`: text in a collation that takes a for A, as applications have it.

    `plain`: text in the order of its bytes, so that a condition means there what it should, as it was written.
    """
    source.execute("create type mood as enum ('so-so', 'sad', 'ok', 'happy')")
    source.execute("create collation loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    create(source, "rows", "loose")
    create(source, "plain", '"C"')
    fill(source, "rows", random.Random(f"{seed} rows"), rows)
    source.execute("insert into plain select * from rows")


@dataclass
class Rows:
    """The two tables, and the values of their rows' records in the log, in the order of `id`."""

    source: psycopg.Connection
    spark: SparkSession
    records: Sequence[str]
    answers: Counter[bool | None] = field(default_factory=Counter)

    def in_postgres(self, table: str, conditions: Sequence[str]) -> list[tuple[bool | None, ...]]:
        query = f"select {', '.join(f'({condition})' for condition in conditions)} from {table} order by id"
        return self.source.execute(query.encode()).fetchall()

    def in_spark(self, conditions: Sequence[str]) -> list[tuple[bool | None, ...]]:
        frame = self.spark.createDataFrame([(record,) for record in self.records], "value string")
        schema = ", ".join(_FIELDS).replace("\\", "\\\\").replace("'", "\\'")
        named = [f"{sql} AS c{number}" for number, sql in enumerate(conditions)]
        rows = frame.selectExpr(f"from_json(value, '{schema}') AS r").selectExpr("r.id", *named).toArrow().to_pylist()
        return [tuple(list(row.values())[1:]) for row in sorted(rows, key=lambda row: row["id"])]

    def differences(self, written: Sequence[str]) -> list[str]:
        """Conditions whose answer, true, false or null, is not the same for a row: compiled, or in Spark."""
        wrong: list[str] = []
        for start in range(0, len(written), AT_ONCE):
            some = written[start : start + AT_ONCE]
            conditions = [parse(text) for text in some]
            refused = [where.text for where in conditions if where.refusals(TABLE)]
            assert not refused, refused
            meant = self.in_postgres("plain", some)
            compiled = self.in_postgres("rows", [where_sql(where, TABLE) for where in conditions])
            in_spark = self.in_spark([log_filter(where, TABLE).sql for where in conditions])
            assert len(meant) == len(compiled) == len(in_spark) == len(self.records)
            for number, text in enumerate(some):
                self.answers.update(row[number] for row in meant)
                for what, found in (("compiled", compiled), ("Spark", in_spark)):
                    i = next((i for i, row in enumerate(found) if row[number] is not meant[i][number]), None)
                    if i is not None:
                        was, is_ = meant[i][number], found[i][number]
                        wrong.append(f"{what}: {is_} instead of {was}\n  {text}\n  {self.records[i]}")
        return wrong
