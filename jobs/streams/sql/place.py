"""What is said of a mistake in a stream's SQL: where it stands, and what Spark says."""

from __future__ import annotations

from pyspark.errors import PySparkException


def place(sql: str, start: int) -> str:
    """The line and column of a character."""
    before = sql[:start]
    return f"line {before.count(chr(10)) + 1}, column {start - before.rfind(chr(10))} of the SQL"


def first_sentence(exc: PySparkException) -> str:
    """The first sentence of what Spark says, without the name of the error."""
    line = next(line for line in str(exc).splitlines() if line.strip())
    return line.partition("] ")[2].partition(" SQLSTATE:")[0] or line
