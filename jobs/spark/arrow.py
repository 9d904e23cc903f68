"""Java's records as Arrow tables: a function of Spark's over each, and Spark's own writer."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
from pyspark.serializers import NoOpSerializer
from pyspark.sql import SparkSession
from pyspark.util import local_connect_and_auth

from jobs.spark.private import gateway_of, is_private_spark_usable, jvm_of

_ROWS = 10_000
"""Rows of an Arrow batch."""
PIECE_BYTES = 8 << 20
"""About how many bytes an Arrow batch has at the most: the JVM holds it several times while it is made."""
CALL = 6_000
"""Bytes that come as the answer to a call. More come through a socket, which costs 2 ms more: an answer is text, and
goes out in pieces of 8 KB: the second waits until the first is acknowledged, which the kernel puts off for 40 ms.
"""
LARGE = 1 << 20
"""Bytes of records that are never taken by calls, whatever the last ones were like."""


class Batches:
    """Of collections of Kafka's records in the JVM."""

    def __init__(self, spark: SparkSession, function: Any, schema: Any) -> None:
        """`function`: from a record of Kafka's to a row of `schema`."""
        self._java = jvm = jvm_of(spark)
        self._python = gateway_of(spark)
        self._function = function
        self._schema = schema
        # A Scala object that has no static methods.
        self._arrow = getattr(getattr(jvm.org.apache.spark.sql.execution.arrow, "ArrowConverters$"), "MODULE$")
        none = self._arrow.createEmptyArrowBatch(schema, "UTC", True, False)
        self.empty: pa.Table = pa.ipc.open_stream(none).read_all()
        self._head, self._row = len(none), 0.0

    def table(self, records: Any, size: float = 0) -> pa.Table:
        """Of a Java collection, in its order.

        `size`: about how many bytes they have, where it is known. Raises what the function raises.
        """
        listed = self._java.scala.jdk.javaapi.CollectionConverters.asScala(records)
        rows = listed.size()
        if not rows:
            return self.empty
        # Nobody tells beforehand how large they become: rows are taken to be as the last ones were.
        piece = max(1, min(_ROWS, PIECE_BYTES * rows // max(1, int(size))))
        found = self.empty
        if self._head + rows * self._row > CALL or size > LARGE:
            found = self._table(self._by_socket(listed, piece), rows)
        if len(found) < rows:
            found = self._table(self._by_calls(listed, piece), rows)
        self._let_go(listed)
        return found

    def _table(self, streams: list[bytes], rows: int) -> pa.Table:
        """One table, in the order given. `rows`: how many it should have."""
        self._row = (sum(map(len, streams)) - self._head) / rows
        return pa.concat_tables([self.empty, *(pa.ipc.open_stream(stream).read_all() for stream in streams)])

    def _by_calls(self, listed: Any, piece: int) -> list[bytes]:
        """An error is told as Spark tells it."""
        streams, found = self._streams(listed, piece)[-1], []
        while streams.hasNext():
            found.append(streams.next())
        return found

    def _by_socket(self, listed: Any, piece: int) -> list[bytes]:
        """Not all of it where the JVM has met an error. It is not asked which one: a thread of its that died, as of a
        lack of memory, would never answer.
        """
        chain = self._streams(listed, piece)
        info = self._java.org.apache.spark.api.python.PythonRDD.serveIterator(chain[-1], "records")
        port, secret, server = info
        stream, connection = local_connect_and_auth(port, secret)
        connection.settimeout(None)  # as Spark's own readers do: a JVM that sleeps is not gone
        with connection, stream:
            found = list(NoOpSerializer().load_stream(stream))  # type: ignore[no-untyped-call]
        self._let_go(*chain, info, server)
        return found

    def _streams(self, listed: Any, piece: int) -> list[Any]:
        """What leads from a Scala collection to its rows: last, an iterator of Arrow streams of `piece` rows."""
        chain = [listed.iterator()]
        chain.append(chain[-1].map(self._function))
        chain.append(
            self._arrow.toBatchWithSchemaIterator(chain[-1], self._schema, piece, PIECE_BYTES, "UTC", True, False)
        )
        return chain

    def _let_go(self, *things: Any) -> None:
        """Python's collector would let the JVM keep them for seconds."""
        for thing in things:
            self._python.detach(thing)


class JavaRecordList:
    """Of a Java collection."""

    def __init__(self, spark: SparkSession, records: Any) -> None:
        self._java = jvm_of(spark)
        convert = self._java.scala.jdk.javaapi.CollectionConverters
        self._listed = self._java.java.util.ArrayList()
        self._listed.addAll(convert.asJavaCollection(convert.asScala(records)))  # which Java can only go through

    def __len__(self) -> int:
        return int(self._listed.size())

    def some(self, first: int, last: int) -> Any:
        return self._java.java.util.ArrayList(self._listed.subList(first, last))

    def place(self, number: int) -> tuple[int, int]:
        record = self._listed.get(number)
        return record.partition(), record.offset()


def records_as_they_are(spark: SparkSession, *, headers: bool) -> Batches:
    """Records become rows of the Kafka source's columns."""
    converter = jvm_of(spark).org.apache.spark.sql.kafka010.KafkaRecordToRowConverter
    given = converter()
    function = given.toInternalRowWithHeaders() if headers else given.toInternalRowWithoutHeaders()
    return Batches(spark, function, converter.kafkaSchema(headers))


class ArrowRows(Protocol):
    """Makes rows of records without Spark. Has no state, so any thread may use it."""

    @property
    def schema(self) -> pa.Schema:
        """Of the rows."""

    @property
    def headers(self) -> bool:
        """Whether it looks at the headers of records."""

    def rows(self, records: pa.Table) -> pa.Table | None:
        """Of records, given as the Kafka source's columns; None where one of them is unusual: Spark decodes it."""


class ArrowDecoder:
    """A decoder: records leave the JVM as they are, and become rows by Arrow. Opened when it is first used."""

    def __init__(self, spark: SparkSession, decoded: ArrowRows) -> None:
        self._spark = spark
        self._private = is_private_spark_usable(spark)
        self._decoded = decoded
        self.empty: pa.Table = decoded.schema.empty_table()

    def table(self, records: Any, size: float) -> pa.Table | None:
        return self._decoded.rows(self._batches.table(records, size) if self._private else records)

    @cached_property
    def _batches(self) -> Batches:
        return records_as_they_are(self._spark, headers=self._decoded.headers)
