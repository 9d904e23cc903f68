"""Look at one document of a log, as a follower would write it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from driftless.kafka.client import Kafka, Offsets
from jobs.follow.job_spec import Job
from jobs.log.salvage import salvage
from jobs.spark.errors import SPARK_ERRORS
from jobs.spark.login import log_in_as_spark
from jobs.spark.session import session
from jobs.spark.source import LogSource, kafka_options, read_slice

pc: Any = pyarrow.compute
"""Its stubs know fewer arguments than the functions take."""


def newest_document(job: Job, kafka: Kafka, jars: Sequence[Path], key: str) -> str | None:
    """The newest document of a key as JSON text; None where the row is gone, or none can be made of it. Reads the whole
    log.
    """
    end = kafka.committed_ends(job.log.topic, job.log.partitions)
    if end == job.log.floor:
        return None
    spark = session(jars, security=kafka.security)
    options = kafka_options(kafka, job.follower)
    if "includeHeaders" in job.source.options:
        options["includeHeaders"] = "true"
    source = replace(job.source, options=options)
    try:
        log_in_as_spark(spark, kafka, jars)
        writes = read_slice(spark, source, job.log.floor, end).where(col("key") == key)
        newest = writes.orderBy(col("version").desc()).limit(1).collect()
    except SPARK_ERRORS:
        return _salvaged(spark, source, job.log.floor, end, key)
    finally:
        spark.stop()
    return newest[0]["document"] if newest else None


def _salvaged(spark: SparkSession, source: LogSource, begin: Offsets, end: Offsets, key: str) -> str | None:
    found: list[tuple[int, str | None]] = [(-1, None)]
    for some in salvage(spark, source, begin, end):
        rows = some.rows.filter(pc.equal(some.rows["key"], key)).to_pylist()
        found += [(row["version"], row["document"]) for row in rows]
        found += [(unread.version, None) for unread in some.bad if unread.key == key]
    return max(found, key=lambda version_and_text: version_and_text[0])[1]
