"""What is said of a mistake in a stream's SQL: where it stands, and what Spark says."""

from __future__ import annotations

from pyspark.errors import PySparkException

from driftless.streams.composed import OWN


def own_begin(sql: str) -> int:
    """Where a stream's own SQL begins: after that of the streams it reads; 0 where it reads none."""
    _, own, written = sql.rpartition(f"{OWN}\n")
    return len(sql) - len(written) if own else 0


def place(sql: str, start: int) -> str:
    """The line and column of a character, in what was written for the stream itself."""
    own = own_begin(sql)
    if start < own:
        return "the SQL of a stream that it reads"
    before = sql[own:start]
    return f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))} of the SQL"


def first_sentence(exc: PySparkException) -> str:
    """The first sentence of what Spark says, without the name of the error."""
    line = next(line for line in str(exc).splitlines() if line.strip())
    return line.partition("] ")[2].partition(" SQLSTATE:")[0] or line
