"""The one Spark session of a process."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from driftless.facts.epochs import first_epoch
from driftless.table import Column, Table
from jobs.decode.documents import writes_sql
from jobs.spark.private import jvm_of

SHARE = 0.2
"""Of the heap."""


def test_a_session_takes_no_extensions_from_jars_and_finds_classes_all_the_same(spark: SparkSession) -> None:
    jvm = jvm_of(spark)
    registry = getattr(getattr(jvm.org.apache.spark.sql.catalyst.analysis, "FunctionRegistry$"), "MODULE$")
    known = registry.internal().listFunction()
    assert "array_binary_search" in known.mkString(" ")  # of Spark itself
    assert "vector_to_array" not in known.mkString(" ")  # of MLlib, which is among its jars
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    assert loader.loadClass("org.apache.spark.ml.functions").getName() == "org.apache.spark.ml.functions"


def test_what_the_parser_learns_of_many_texts_does_not_fill_the_heap(spark: SparkSession) -> None:
    """A follower's session lives for months. Without a bound this was over half of a heap after some hundred texts."""
    jvm = jvm_of(spark)
    parsers = jvm.org.apache.spark.sql.catalyst.parser
    parser, known = getattr(getattr(parsers, "CatalystSqlParser$"), "MODULE$"), parsers.AbstractParser
    most = int(SHARE * jvm.java.lang.Runtime.getRuntime().maxMemory() / known.BYTES_PER_DFA_STATE())
    learnt = [known.getDFACacheNumStates()]
    for text in _texts(random.Random(7)):
        with suppress(PySparkException):  # some are no SQL
            parser.parseExpression(text)
        learnt.append(known.getDFACacheNumStates())
        if learnt[-1] < learnt[-2]:
            break
    assert learnt[-1] < learnt[-2]  # it began anew
    assert most / 2 < max(learnt) <= most


def test_what_the_parser_learns_of_a_wide_table_is_kept(spark: SparkSession) -> None:
    """As of one with 150 columns of all types: else each slice of its log would cost seconds of parsing."""
    types = ("text", "numeric", "timestamptz", "jsonb", "bytea", "interval", "uuid", "float8", "time", "json", "date")
    columns = (Column(f"c{n}", types[n % len(types)], array=n % 5 == 4) for n in range(150))
    table = Table("public", "wide", (Column("id", "int8"), *columns), ("id",))
    shown = {column.name: column.name for column in table.columns}
    parse, shape = writes_sql(table, shown, first_epoch("t", "i", 1), unavailable="x")
    records = spark.createDataFrame([], "key binary, value binary, `partition` int, `offset` bigint")
    known, learnt = jvm_of(spark).org.apache.spark.sql.catalyst.parser.AbstractParser, list[int]()
    for _ in range(3):
        records.selectExpr(*parse).selectExpr(*shape)
        learnt.append(known.getDFACacheNumStates())
    assert learnt[1] > 1_000
    assert learnt[2] == learnt[1]


def _texts(chance: random.Random) -> Iterator[str]:
    """Of different shapes."""
    forms = ["{} + {}", "{} AND {}", "CASE WHEN {} THEN {} END", "{} BETWEEN {} AND 3", "f({}, {})", "{} IN ({})"]
    forms += ["{} LIKE {}", "{} IS NULL OR {}", "CAST({} AS string) || {}", "{}[{}]", "transform({}, x -> {})"]

    def expression(depth: int) -> str:
        if depth == 0:
            return chance.choice(["a", "1", "'x'", "NULL", "DATE '2020-01-01'", "1.5", "count(*)"])
        return chance.choice(forms).format(expression(depth - 1), expression(depth - 1))

    for _ in range(5000):
        yield expression(6)
