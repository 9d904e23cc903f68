"""Running out of memory: no outage, so it is not waited for; it ends what met it, and says what to set."""

from __future__ import annotations

from pyspark.sql import SparkSession

from driftless.errors import OutOfMemory
from jobs.spark.session import submitted

_SIGNS = ("java.lang.OutOfMemoryError", "spark.driver.maxResultSize", "\nMemoryError")
"""The last is of a Python worker."""


def out_of_memory(exc: BaseException) -> bool:
    """Whether an error of Spark's JVM, of a job or of a call, means that its memory did not suffice."""
    return isinstance(exc, MemoryError) or any(sign in str(exc) for sign in _SIGNS)


def no_memory(spark: SparkSession | None, what: str) -> OutOfMemory:
    """The error that says so. `what`: was being done."""
    session = spark or SparkSession.getActiveSession()
    present = "1g" if session is None else session.sparkContext.getConf().get("spark.driver.memory", "1g")
    how = f"{'--driver-memory' if submitted() else '--memory'} {_twice(present or '1g')}"
    return OutOfMemory(f"out of memory while {what}", hint=f"run it with `{how}`")


def _twice(memory: str) -> str:
    """Of Java's notation."""
    number = memory.rstrip("kmgtKMGTbB")
    return f"{2 * int(number)}{memory[len(number) :]}" if number.isdecimal() else "2g"
