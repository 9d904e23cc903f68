"""Events that were sent more than once: of those that are alike, one counts."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql.functions import lit, xxhash64

from jobs.decode.spark_sql import quote
from jobs.streams.rows.keyed import OFFSET, PARTITION


def without_copies(rows: DataFrame, columns: Iterable[str]) -> DataFrame:
    """Of rows that are alike in these columns, the event's time among them, one.

    Spark keeps what it has seen until the watermark passes the time: a copy that comes later is late. Which of the
    copies is left is chance, so its place is one that all of them have, made of the columns.
    """
    names = [*columns]
    place = xxhash64(*(rows[quote(name)] for name in names))
    return rows.withColumn(PARTITION, lit(0)).withColumn(OFFSET, place).dropDuplicates([*names, PARTITION, OFFSET])
