"""Why the query of a stream has ended by itself, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from driftless.errors import SourceError, SourceUnavailable, SyncError
from driftless.facts.streams import StreamBuild
from driftless.kafka.client import Kafka, Offsets
from jobs.spark.errors import spark_error
from jobs.streams.sql.faults import sql_fault


def why_ended(query: StreamingQuery, kafka: Kafka, build: StreamBuild, read: Mapping[str, Offsets]) -> SyncError:
    """`read`: up to where it has read each topic."""
    for topic, offsets in read.items():
        first = kafka.beginnings(topic, len(offsets))
        if any(first[p] > offset for p, offset in offsets.items()):
            return SourceError(
                f"{topic} does not keep events any more that the stream {build.stream} has not read",
                hint="give the topic a longer retention.ms; `driftless rebuild` begins with what is there",
            )
    found = query.exception()
    if isinstance(found, StreamingQueryException):
        if fault := sql_fault(str(found)):
            return SourceError(
                f"the SQL of the stream {build.stream} has no result for an event that came: {fault}",
                hint="have it give null there, as try_divide, try_add and try_cast do; then `driftless apply`",
            )
        return spark_error(found)
    return SourceUnavailable(f"the query of the stream {build.stream} has ended", hint="it is begun again")
