"""A log's two steps as one function over records in the JVM: Spark's expressions, planned once and used without a job.

A job of a few rows costs 60 ms of CPU, nearly all of it to plan the same expressions again; the function costs 2 ms
(docs/benchmarks.md). What it gives is what a job gives, since it is made of the plan that Spark makes for one.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from jobs.spark.arrow import Batches, JavaRecordList
from jobs.spark.private import (
    is_private_spark_usable,
    java_context_of,
    java_frame_of,
    java_session_of,
    jvm_of,
)
from jobs.spark.public import RecordTableList, TableProjection
from jobs.spark.source import LogSource

FEW = 300_000
"""Up to so many rows of a log it is quicker to interpret expressions, also in jobs, than to compile them first."""


@cache
def planning(spark: SparkSession) -> SparkSession:
    """The one session for `RecordProjection`, and for jobs of few rows: expressions are interpreted, one by one.

    Compiled, a row costs 10 µs instead of 14, and the first one 1.5 s of CPU more for each log (docs/benchmarks.md).
    """
    session = spark.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


class RecordList(Protocol):
    """Records that were polled together, taken apart: to find out which of them cannot be read."""

    def __len__(self) -> int: ...

    def some(self, first: int, last: int) -> Any:
        """Those of [first, last), as a poll would have given them."""

    def place(self, number: int) -> tuple[int, int]:
        """Partition and offset of one."""


class RecordProjection:
    """A decoder: records become what Spark's expressions make of them. Planned when it is first used.

    Not to be shared between threads at one time: a function of Spark's has one row that it fills again and again.
    """

    def __init__(self, spark: SparkSession, source: LogSource) -> None:
        self._spark = planning(spark)
        self._source = source
        self._private = is_private_spark_usable(spark)

    @property
    def empty(self) -> pa.Table:
        return self._rows.empty

    def table(self, records: Any, size: float = 0) -> pa.Table:
        """The rows that records of a Poll become, in their order. `size`: about how many bytes they have.

        Raises PySparkException for a record that cannot be decoded.
        """
        rows = self._rows
        if self._private:
            self._activate()
        return rows.table(records, size)

    def listed(self, records: Any) -> RecordList:
        """The same records, of which some may be given to `table`."""
        return JavaRecordList(self._spark, records) if self._private else RecordTableList(records)

    @cached_property
    def _rows(self) -> Batches | TableProjection:
        """Raises ValueError where Spark plans anything but expressions of one row."""
        if not self._private:
            return TableProjection(self._spark, self._source)
        jvm, session, spark = jvm_of(self._spark), java_session_of(self._spark), self._spark
        catalyst = jvm.org.apache.spark.sql.catalyst.expressions
        self._activate()
        headers = self._source.headers
        converter = jvm.org.apache.spark.sql.kafka010.KafkaRecordToRowConverter
        nothing = session.createDataFrame(java_context_of(spark).emptyRDD(), converter.kafkaSchema(headers))
        parse, shape = self._source.columns
        rows = java_frame_of(DataFrame(nothing, spark).select(*parse).select(*shape))
        found, plan = [], rows.queryExecution().executedPlan()
        while (kind := plan.getClass().getSimpleName()) == "ProjectExec":
            found.append(plan)
            plan = plan.child()
        if kind != "RDDScanExec":
            raise ValueError(
                f"Spark plans {kind} where a record becomes a row: only expressions of one row can be used"
            )
        given = converter()
        function = given.toInternalRowWithHeaders() if headers else given.toInternalRowWithoutHeaders()
        for step in reversed(found):
            function = function.andThen(catalyst.UnsafeProjection.create(step.projectList(), step.child().output()))
        return Batches(spark, function, rows.schema())

    def _activate(self) -> None:
        """Expressions ask the session of their thread for settings."""
        jvm_of(self._spark).org.apache.spark.sql.SparkSession.setActiveSession(java_session_of(self._spark))
