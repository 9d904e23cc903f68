"""Read what lies before a cut, from the topics of a view's tables, a slice at a time and one slice ahead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

from driftless.facts.epochs import TopicLog
from driftless.kafka.client import Kafka, Offsets
from driftless.table import Table
from jobs.decode.arrow_rows import PlainRows, plain_rows
from jobs.decode.rows import FIXED, rows_sql
from jobs.log.bulk import JobReader
from jobs.log.contract import SliceReader, UnusualRecordsError
from jobs.log.reader import MANY_RECORDS, READ_BYTES, LocalReader
from jobs.log.salvage import first_unread
from jobs.spark.arrow import ArrowDecoder
from jobs.spark.errors import SPARK_ERRORS
from jobs.spark.session import name_jobs
from jobs.spark.source import DRIVER_OFFSETS, LogSource
from jobs.threads.prefetch import Prefetch
from jobs.views.cuts import Cut
from jobs.views.member_rows import member_rows, placed_documents_sql
from jobs.views.store.contract import Partition, Row

SLICE_OFFSETS = 100_000
"""Offsets of one slice: bounds the memory that a long log, or a long transaction, takes."""
_REST = SLICE_OFFSETS // 10
"""What is left of a slice when some is read of one table: less is not worth a look at the next."""
_ROW_BYTES = 128 << 20
"""Bytes of records that Arrow decodes at a time: they are small, so it is hardly ever reached."""
_READ = ("partition", "offset", "prev_commit_lsn")
"""What of FIXED is for reading alone."""
_KEYED = len(FIXED) - len(_READ)
"""So many columns of a row, its key, its version and whether it is gone, stand before those of the table."""


@dataclass(frozen=True)
class TableLog:
    """A table's log as a view reads it: from which epoch, and how its records become rows.

    `source`: rows, by Spark's expressions. `plain`: see RowsSql. `decoded`: the same rows by Arrow, where it knows the
    types of all columns. `members`: of a stream's documents, those that are columns;
    empty for the log of a table.
    """

    table: str
    log: TopicLog
    source: LogSource
    plain: frozenset[int]
    decoded: PlainRows | None
    members: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        table: Table,
        log: TopicLog,
        options: Mapping[str, str],
        unavailable: str,
        since: Mapping[str, int] | None = None,
        kafka: Kafka | None = None,
    ) -> TableLog:
        """`table`: with the columns that the view reads. `options`: the Kafka source's. `since`: as of `rows_sql`.
        `kafka`: as of LogSource.
        """
        options = {**options, "includeHeaders": "true"}
        rows = rows_sql(table, log, unavailable=unavailable, since=since)
        source = LogSource(log.topic, options, rows.parse, rows.shape, kafka=kafka)
        return cls(table.full_name, log, source, rows.plain, plain_rows(table, log, unavailable, since))

    @classmethod
    def of_stream(cls, table: Table, log: TopicLog, options: Mapping[str, str], kafka: Kafka | None = None) -> TableLog:
        """The log of a stream: its documents as rows, with the columns of the table."""
        source = LogSource(log.topic, options, *placed_documents_sql(log), kafka=kafka)
        return cls(table.full_name, log, source, frozenset(), None, tuple(column.name for column in table.columns))


class Rows:
    """Rows of a table, of Arrow's columns: made when they are taken in, so that Spark need not wait for Python.

    `plain`: the numbers of columns whose text is not JSON yet; see RowsSql.
    """

    def __init__(self, table: pa.Table, plain: frozenset[int]) -> None:
        self._table = table.drop_columns(list(_READ))
        self._plain = plain

    def __len__(self) -> int:
        return self._table.num_rows

    @property
    def size(self) -> int:
        """In bytes."""
        return int(self._table.nbytes)

    def __iter__(self) -> Iterator[Row]:
        for batch in self._table.to_batches():
            columns = [column.to_pylist() for column in batch.columns]
            for number in self._plain:
                texts = columns[_KEYED + number]
                columns[_KEYED + number] = [None if text is None else orjson.dumps(text).decode() for text in texts]
            yield from zip(*columns, strict=True)


@dataclass(frozen=True)
class Part:
    """Rows by table, and where each partition was read to. `whole`: nothing is left before the cut.

    `held`: partitions whose next row is of a transaction that had not ended by then; they are read no further.
    """

    changes: list[tuple[str, Rows]]
    reached: dict[Partition, int]
    held: frozenset[Partition]
    whole: bool


class Reader:
    """While one slice is taken in, the next is read: Spark works in the JVM, and the row store in Python."""

    def __init__(self, logs: Sequence[TableLog], spark: SparkSession, small: SliceReader, group: str) -> None:
        self._logs = logs
        self._spark = spark
        self._unusual: set[str] = set()
        self._open: dict[str, LocalReader] = {}
        self._jobs = {t.log.topic: JobReader(spark, t.source, small) for t in logs}
        self._small = small
        self._ahead = Prefetch[Part]("ahead", lambda: name_jobs(spark, group, "read ahead", group))

    def close(self) -> None:
        self._ahead.close(self._close_logs)

    def read(self, cut: Cut, positions: Mapping[Partition, int]) -> Part:
        """The next slice before a cut, to be asked for until it is whole. `positions`: where the first one begins."""
        part = self._ahead.take() or self._fetch(cut, positions, frozenset())
        if not part.whole:
            self._ahead.start(lambda: self._fetch(cut, part.reached, part.held))
        return part

    def _fetch(self, cut: Cut, positions: Mapping[Partition, int], held: frozenset[Partition]) -> Part:
        ends = {(topic, p): end for topic, offsets in cut.ends.items() for p, end in offsets.items()}
        changes: list[tuple[str, Rows]] = []
        reached, room = dict(positions), SLICE_OFFSETS
        for t in self._logs:  # far behind one table after another: a slice of all would take several reads
            topic = t.log.topic
            begin = {p: positions[topic, p] for p in range(t.log.partitions) if (topic, p) not in held}
            begin = {p: position for p, position in begin.items() if position < ends[topic, p]}
            if not begin or room < _REST or sum(rows.size for _, rows in changes) > READ_BYTES:
                continue
            rows, stops, stopped = self._rows(t, begin, {p: ends[topic, p] for p in begin}, room, cut.marker.lsn)
            room -= sum(stops[p] - begin[p] for p in stops)
            changes.append((t.table, rows))
            reached.update({(topic, p): stop for p, stop in stops.items()})
            held |= {(topic, p) for p in stopped}
        whole = all(reached[place] >= end or place in held for place, end in ends.items())
        if whole:
            self._close_logs()
        return Part(changes, reached, held, whole)

    def _close_logs(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def _rows(self, t: TableLog, begin: Offsets, end: Offsets, room: int, lsn: int) -> tuple[Rows, Offsets, set[int]]:
        """Some `room` rows before the first of each partition that is not surely of a whole transaction; where each
        ends, and in which partitions there was such a one.
        """
        try:
            reached, table = self._read(t, begin, end, room)
        except SPARK_ERRORS as exc:
            raise first_unread(self._spark, t.source, begin, end, exc) from exc
        if t.members:
            table = member_rows(t.log.topic, table, t.members)
        partitions, offsets, prev_commit_lsns = (table[name].to_numpy() for name in _READ)
        stops, held = {p: min(end[p], reached[p]) for p in end}, set[int]()
        for p, stop in stops.items():
            of_no_end = offsets[(partitions == p) & (prev_commit_lsns >= lsn) & (offsets < stop)]
            if len(of_no_end):
                stops[p] = int(of_no_end.min())
                held.add(p)
        limits = np.array([stops.get(p, 0) for p in range(t.log.partitions)])
        within = offsets < limits[partitions]
        if not within.all():
            table = table.filter(pa.array(within))
        return Rows(table, t.plain), stops, held

    def _read(self, t: TableLog, begin: Offsets, end: Offsets, room: int) -> tuple[Offsets, pa.Table]:
        """Rows with FIXED, and where they end, which may be beyond `end`."""
        left, topic = sum(end[p] - begin[p] for p in end), t.log.topic
        if left <= DRIVER_OFFSETS and topic not in self._open:
            return self._small.read(t.source, begin, end)
        if t.decoded is not None and topic not in self._unusual:
            if topic not in self._open:
                decoder = ArrowDecoder(self._spark, t.decoded)
                self._open[topic] = LocalReader(self._spark, t.source, decoder, poll=MANY_RECORDS)
            try:
                return self._open[topic].read(begin, end, most=room, size=_ROW_BYTES)
            except UnusualRecordsError:
                self._unusual.add(topic)  # where one slice was, others may be, and each would be read twice
                self._open.pop(topic).close()
        return self._jobs[topic].read(begin, end, room)
