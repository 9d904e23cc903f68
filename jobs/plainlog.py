"""Large slices of a table's topic as rows: read by a consumer in Spark's JVM, as small ones, and decoded by Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.serializers import NoOpSerializer
from pyspark.sql import SparkSession
from pyspark.util import local_connect_and_auth

from driftless.kafka import Offsets
from jobs.apply import LogSource
from jobs.batches import Batches
from jobs.plainrows import PlainRows
from jobs.records import Records

POLL = 10_000
"""Records of one poll. Of more, the JVM copies more whenever it collects garbage; of fewer, there are more calls."""


class PlainLog:
    """A job for each slice would cost a JVM that has just started twice the CPU (docs/benchmarks.md).

    Not to be shared between threads at one time.
    """

    def __init__(self, spark: SparkSession, source: LogSource, decoded: PlainRows) -> None:
        self._records = Records(spark, source, poll=POLL)
        self._raw = Raw(spark, headers=True)
        self._decoded = decoded

    def read(self, begin: Offsets, end: Offsets, most: int) -> tuple[Offsets, pa.Table] | None:
        """The rows from `begin` on, until `end` or some `most` offsets; and how far that is, which may be beyond.

        None where anything of them is unusual (jobs/plainrows.py). No more than one poll is then held of records that
        may have large columns. Raises as `Records.read` does.
        """
        found: list[pa.Table | None] = [self._decoded.schema.empty_table()]

        def take(records: Any) -> bool:
            found.append(self._decoded.rows(self._raw.table(records)))
            return found[-1] is not None

        reached = self._records.each(begin, end, take, most=most)
        usual = [rows for rows in found if rows is not None]
        return (reached, pa.concat_tables(usual)) if len(usual) == len(found) else None

    def close(self) -> None:
        self._records.close()


class Raw:
    """Records in the JVM as an Arrow table of the Kafka source's columns."""

    def __init__(self, spark: SparkSession, *, headers: bool) -> None:
        self._gateway: Any = spark.sparkContext._gateway
        jvm: Any = spark._jvm
        self._jvm = jvm
        converter = jvm.org.apache.spark.sql.kafka010.KafkaRecordToRowConverter
        given = converter()
        function = given.toInternalRowWithHeaders() if headers else given.toInternalRowWithoutHeaders()
        self._batches = Batches(jvm, function, converter.kafkaSchema(headers))
        self.empty = self._batches.table([])

    def table(self, records: Any) -> pa.Table:
        """Of a Java collection, in its order. It is let go: it cannot be used any more."""
        chain = self._batches.of(records)
        # As answers to calls, bytes would be made text and parsed: this takes a tenth of the CPU.
        info = self._jvm.org.apache.spark.api.python.PythonRDD.serveIterator(chain[-1], "records")
        port, secret, server = info
        stream, connection = local_connect_and_auth(port, secret)
        with connection, stream:
            streams = list(NoOpSerializer().load_stream(stream))  # type: ignore[no-untyped-call]
        server.getResult()  # raises what ended the stream too soon
        for thing in (records, *chain, info, server):  # Python's collector would let the JVM keep them for seconds
            self._gateway.detach(thing)
        return self._batches.table(streams)
