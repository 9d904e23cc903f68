"""Java's records as Arrow tables: a function of Spark's over each, and Spark's own writer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_ROWS = 10_000
"""Rows of an Arrow batch."""


class Batches:
    """Spark's classes are named here alone, as far as Arrow goes; it does not promise to keep them."""

    def __init__(self, jvm: Any, function: Any, schema: Any) -> None:
        """`function`: from a record of Kafka's to a row of `schema`."""
        self._jvm = jvm
        self._function = function
        self._schema = schema
        # A Scala object that has no static methods.
        self._arrow = getattr(getattr(jvm.org.apache.spark.sql.execution.arrow, "ArrowConverters$"), "MODULE$")
        self._empty = self._arrow.createEmptyArrowBatch(schema, "UTC", True, False)

    def of(self, records: Any) -> list[Any]:
        """What leads from a Java collection to its rows: last, an iterator of the streams that `table` reads."""
        chain = [records.iterator()]
        chain.append(self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(chain[-1]))
        chain.append(chain[-1].map(self._function))
        chain.append(self._arrow.toBatchWithSchemaIterator(chain[-1], self._schema, _ROWS, 0, "UTC", True, False))
        return chain

    def table(self, streams: list[bytes]) -> pa.Table:
        """One table, in the order given."""
        return pa.concat_tables(pa.ipc.open_stream(stream).read_all() for stream in streams or [self._empty])
