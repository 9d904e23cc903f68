"""Look at one document of a log, as a follower would write it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql.functions import col

from driftless.kafka import Kafka
from jobs.apply import kafka_options, read_slice
from jobs.login import log_in
from jobs.spark import session
from jobs.standing import Job


def newest_document(job: Job, kafka: Kafka, jars: Sequence[Path], key: str) -> str | None:
    """The newest document of a key as JSON text; None where the row is gone. Reads the whole log."""
    end = kafka.committed_ends(job.log.topic, job.log.partitions)
    if end == job.log.floor:
        return None
    spark = session(jars)
    try:
        if kafka.secured:
            log_in(spark._jvm, kafka)
        source = replace(job.source, options=kafka_options(kafka, job.follower))
        writes = read_slice(spark, source, job.log.floor, end).where(col("key") == key)
        newest = writes.orderBy(col("version").desc()).limit(1).collect()
    finally:
        spark.stop()
    return newest[0]["document"] if newest else None
