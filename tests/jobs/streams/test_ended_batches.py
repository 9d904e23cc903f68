"""What a query that goes on has done: each batch is told of once, with what it has read."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jobs.streams.sql.query import ended_batches
from tests.support.machine import until


def test_a_batch_is_not_taken_for_ended_while_spark_waits_for_it(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.noDataProgressEventInterval", "10")
    session.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoint"))
    folder = tmp_path / "events"
    folder.mkdir()
    rows = session.readStream.text(str(folder))
    query = rows.writeStream.format("noop").trigger(processingTime="20 milliseconds").start()
    try:
        seen = -1
        for batch in range(3):
            until("Spark to tell of a batch that is to come", lambda: _is_announced(query, seen + 1), 30)  # noqa: B023
            (folder / f"{batch}.txt").write_text("a\n" * (batch + 1))
            (told,) = until("the batch", lambda: list(ended_batches(query, seen)), 30)  # noqa: B023
            assert (told.batchId, told.numInputRows) == (batch, batch + 1)
            seen = told.batchId
    finally:
        query.stop()


def _is_announced(query: StreamingQuery, batch: int) -> bool:
    """Whether there is a report of the batch though it has not begun."""
    return any(told.batchId == batch for told in query.recentProgress)
