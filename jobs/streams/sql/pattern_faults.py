"""What is wrong with the conditions of a pattern, as Spark's analyser has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from driftless.streams.patterns import Pattern
from driftless.suggest import did_you_mean
from jobs.decode.spark_sql import quote
from jobs.streams.sql.place import first_sentence
from jobs.streams.sql.refusals import refused


def pattern_faults(spark: SparkSession, pattern: Pattern, types: Mapping[str, str]) -> Iterator[str]:
    """Each with the step that it is in. `types`: of the columns of its events, Spark's."""
    for name in pattern.by:
        if name not in types:
            yield f"by: there is no column `{name}`{did_you_mean(name, types)}"
    schema = ", ".join(f"{quote(column)} {kind}" for column, kind in types.items())
    events = spark.createDataFrame([], schema)
    for number, step in enumerate(pattern.steps, 1):
        for field, condition in (("where", step.where), ("unless", step.unless)):
            if not condition:
                continue
            for what in refused(condition):
                yield f"`{field}` of step {number}: {what}"
            try:
                events.where(f"({condition}\n)").schema  # noqa: B018
            except PySparkException as exc:
                yield f"`{field}` of step {number}: {first_sentence(exc)}"
