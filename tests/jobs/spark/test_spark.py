"""The one Spark session of a process."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jobs.spark.private import jvm_of

SHARE = 0.05
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
