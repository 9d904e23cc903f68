"""Events that are rows of a table: where its log begins for a stream, and up to which moment all of it is known."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from driftless.control.topic import Control
from driftless.errors import SourceError, SourceUnavailable
from driftless.facts.epochs import TopicLog, registered_log
from driftless.facts.event_source import EventSource
from driftless.facts.state import State
from driftless.facts.streams import StreamBuild
from driftless.kafka.client import Kafka
from jobs.log.frontier import FrontierReader
from jobs.spark.source import kafka_options
from jobs.streams.frontiers import Moment
from jobs.streams.sql.query import repeated_rows

MOST_REPEATED = 100_000
"""Rows that a snapshot has read though the log had them: the fact of a build names each."""


class TableEvents:
    """For any thread."""

    def __init__(self, spark: SparkSession, kafka: Kafka, control: Control, frontiers: FrontierReader) -> None:
        self._spark = spark
        self._kafka = kafka
        self._control = control
        self._frontiers = frontiers

    def place(self, build: StreamBuild) -> StreamBuild:
        """The build with the place where each table's log begins, which everybody is told once it is known.

        Raises SourceUnavailable before the snapshot of a table is complete.
        """
        if all(source.is_placed for source in build.sources.values()):
            return build
        state = self._control.read()
        build = build.with_sources(lambda source: self._placed(source, state))
        self._control.write({build.key: build.to_json()})
        return build

    def _placed(self, source: EventSource, state: State) -> EventSource:
        rows = source.captured
        if rows is None or source.is_placed:
            return source
        log = registered_log(state, rows.table)
        complete = log is not None and log.newest_snapshot.number >= rows.epoch and self._is_complete(log)
        if log is None or not complete:
            raise SourceUnavailable(f"the snapshot of {rows.table} is not complete", hint="it goes on by itself")
        until = self._kafka.decided_ends(log.topic, log.partitions)
        epoch = log.newest_snapshot
        placed = replace(source, topic_id=log.topic_id, floors=dict(epoch.floors))
        if not source.event:  # versions: it does not matter which of two that are alike is looked at
            return replace(placed, captured=replace(rows, epoch=epoch.number, until=until))
        options = kafka_options(self._kafka, f"look-{rows.table}")
        repeated = repeated_rows(self._spark, placed, options, until, MOST_REPEATED + 1)
        if sum(map(len, repeated.values())) > MOST_REPEATED:
            raise SourceError(
                f"over {MOST_REPEATED:,} rows of {rows.table} came while it was read, and are in its log twice",
                hint="`driftless apply --anew` re-snapshots all tables in one piece",
            )
        return replace(placed, captured=replace(rows, epoch=epoch.number, until=until, repeated=repeated))

    def _is_complete(self, log: TopicLog) -> bool:
        """Whether the snapshot that its newest epoch began with is in the log, and no newer one has begun."""
        return self._frontiers.newest is not None and not self._frontiers.is_resnapshotted(log)

    def moment(self, build: StreamBuild, state: State) -> Moment | None:
        """By now: every event that was received before is in its topic. It is the brokers' clock; of tables, the time
        of the newest marker, before which all commits are in their logs. None while there is none.

        Raises SourceError where rows may be missing that only a newer snapshot of a table has.
        """
        marker = self._frontiers.newest  # first: what was told before it is known
        sources = [source.captured for source in build.sources.values()]
        for rows in filter(None, sources):
            log = registered_log(state, rows.table)
            if log is not None and log.newest_snapshot.number < rows.epoch:
                return None  # the state is from before
            if log is None or log.newest_snapshot.number > rows.epoch or self._frontiers.is_resnapshotted(log):
                raise SourceError(
                    f"{rows.table} was re-snapshotted: the stream {build.stream} may lack rows that came before",
                    hint="run `driftless apply`: it begins another build of the stream",
                )
        for table in build.tables:
            log = registered_log(state, table)
            if log is not None and self._frontiers.is_truncated(log):
                raise SourceError(
                    f"{table} was truncated, and the stream {build.stream} cannot tell which events came before that",
                    hint="run `driftless apply --anew`: it re-snapshots the tables and begins another build",
                )
        if not build.captured:
            return Moment(self._control.now())
        if marker is None:
            return None
        return Moment(min([marker.time, *([self._control.now()] if None in sources else [])]), marker)
