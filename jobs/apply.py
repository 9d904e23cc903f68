"""One slice of the log to one sink: read and shaped by Spark, written by the driver or by the executors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import expr

from driftless import errors
from driftless.errors import SinkError, SyncError
from driftless.kafka import Kafka, Offsets
from driftless.registry import TopicLog
from driftless.sink import WRITES, Applied, Rejected, Sink, SinkContext
from jobs.meaning import SPARK_ERRORS, may_pass, spark_error
from jobs.memory import out_of_memory
from jobs.refused import refusal
from sinks import open_sink

DRIVER_OFFSETS = 2_000
"""Up to here the driver writes: starting a Python worker costs more than the work (220 ms against 75 ms)."""
FETCH_BYTES = 128 << 10
"""Of each partition in one answer of the broker's, or one batch. Rows of 1 MB of one word are 4 KB each there, and a
poll gives all of them that have come: 32 MB of each partition. Of the usual 1 MB, it would be 250.
"""
COUNTED = 1_000_000
"""Up to here documents are counted in this process: their keys take some 100 MB."""

_RESULT = "written long, stale long, key string, version long, problem string, kind string, hint string"
"""What executors tell: counts; a rejected write (`problem` without `kind`); a held key that went through (neither);
an error that ends the slice (`kind`)."""
_RESULT_ARROW: pa.Schema = pa.schema(
    tuple(
        pa.field(name, pa.int64() if kind == "long" else pa.string())
        for name, kind in (part.split() for part in _RESULT.split(", "))
    )
)


@dataclass(frozen=True)
class SinkSpec:
    """All that an executor needs to open the sink."""

    kind: str
    config: Mapping[str, Any]
    context: SinkContext

    def open(self) -> Sink:
        return open_sink(self.kind, dict(self.config), self.context)


@dataclass(frozen=True)
class LogSource:
    """Where to read and how to make documents of it (see jobs/decode.py). `options`: the Kafka source's.

    `ready`: the log, where its records are documents as they are; see jobs/documents.py.
    """

    topic: str
    options: Mapping[str, str] = field(repr=False)
    parse: tuple[str, ...]
    shape: tuple[str, ...]
    ready: TopicLog | None = None

    @cached_property
    def columns(self) -> tuple[list[Column], list[Column]]:
        """The two steps, parsed once: parsing them anew took a tenth of a small batch's CPU."""
        return [expr(sql) for sql in self.parse], [expr(sql) for sql in self.shape]


def read_slice(
    spark: SparkSession, source: LogSource, begin: Offsets, end: Offsets, *, largest: int | None = None
) -> DataFrame:
    """Writes (schema WRITES) of exactly the offsets [begin, end) of each partition.

    `largest`: bytes of a record. What is larger has true in a last column `large`, and nothing else of it is right.
    """
    moved = sorted(p for p in end if end[p] > begin[p])
    reader = spark.read.format("kafka").options(**source.options)
    reader = reader.option("assign", json.dumps({source.topic: moved}))
    for name, offsets in (("startingOffsets", begin), ("endingOffsets", end)):
        reader = reader.option(name, json.dumps({source.topic: {str(p): offsets[p] for p in moved}}))
    parse, shape = source.columns
    if largest is None:
        return reader.load().select(*parse).select(*shape)
    measured = reader.load().withColumn("large", expr(f"coalesce(octet_length(value), 0) > {largest:d}"))
    small = measured.withColumn("value", expr("if(large, CAST(NULL AS BINARY), value)"))
    return small.select(*parse, "large").select(*shape, "large")


def newest_per_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Keep each key's newest write in this batch; deletes survive, since the follower may hold the key."""
    table = pa.Table.from_batches([batch])
    if table.num_rows < 2:
        return batch
    rows = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
    # Within a batch a key's versions rise with its rows: one partition, in offset order.
    newest = rows.group_by("key").aggregate([("row", "max")])["row_max"]
    if len(newest) == table.num_rows:
        return batch
    return table.take(newest.combine_chunks().sort()).combine_chunks().to_batches()[0]


@dataclass(frozen=True)
class Slice:
    """Offsets [begin, end) of each partition, and what is special about some keys.

    `held`: quarantined keys, to be told of when they go through. `only`: the keys to write; None for all.
    """

    begin: Offsets
    end: Offsets
    held: pa.StringArray | None = None
    only: pa.StringArray | None = None

    @property
    def offsets(self) -> int:
        return sum(self.end[p] - self.begin[p] for p in self.end)

    def writes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What of a batch is to be written: of the wanted keys, each one's newest."""
        if self.only is not None:
            batch = batch.filter(pc.is_in(batch["key"], value_set=self.only))
        return newest_per_key(batch)

    def wants(self, key: str) -> bool:
        return self.only is None or bool(pc.is_in(pa.scalar(key), value_set=self.only).as_py())

    def passed(self, batch: pa.RecordBatch, applied: Applied) -> list[tuple[str, int]]:
        """Held keys of a batch that the store has taken now, each with its version."""
        if self.held is None or batch.num_rows == 0:
            return []
        known = batch.filter(pc.is_in(batch["key"], value_set=self.held))
        refused = {r.key for r in applied.rejected}
        return [(row["key"], row["version"]) for row in known.to_pylist() if row["key"] not in refused]


@dataclass(frozen=True)
class Outcome:
    """What became of a slice, which ended at `end`. `passed`: held keys that the store has taken, with versions."""

    end: Offsets
    applied: Applied
    passed: tuple[tuple[str, int], ...] = ()


class Head(Protocol):
    """Reads small slices; see jobs/tail.py."""

    def read(self, source: LogSource, begin: Offsets, end: Offsets) -> tuple[Offsets, pa.Table]:
        """The writes of a slice, and where it ends."""


class Large(Protocol):
    """Reads large slices without a job; see jobs/documents.py."""

    def read(self, begin: Offsets, end: Offsets) -> Iterator[tuple[Offsets, pa.Table]]:
        """The writes of a slice, some at a time, each with where they end."""

    def count(self, begin: Offsets, end: Offsets) -> int:
        """How many keys have a document as their newest state."""


@dataclass(frozen=True)
class Unread(Rejected):
    """A record that can never be read, as a write that is refused."""

    partition: int = 0


@dataclass(frozen=True)
class Salvaged:
    """What some records have become, up to `end`. `bad`: those that can never be read, which are not in `rows`."""

    end: Offsets
    rows: pa.Table
    bad: tuple[Unread, ...]


class Salvage(Protocol):
    """Reads slices record by record; see jobs/salvage.py."""

    def __call__(self, begin: Offsets, end: Offsets) -> Iterator[Salvaged]:
        """All of [begin, end) or somewhat further, some at a time."""


@dataclass(frozen=True)
class LogReader:
    """One log: small slices by `head`, large ones by `large`, or, where that is None, by jobs of Spark's. What these
    cannot read, by `salvage`.
    """

    spark: SparkSession
    source: LogSource
    head: Head
    large: Large | None
    salvage: Salvage


def apply_slice(
    log: LogReader, spec: SinkSpec, sink: Sink, generation: int, part: Slice, stopped: Callable[[], bool]
) -> Outcome:
    """Apply a slice. When it returns, every write of it is in the store, stale there, or rejected.

    It may end sooner than asked for, where `stopped` says so or `head` has less, or later, where more was read. May be
    repeated after any failure. A record that can never be read is rejected, by itself. Raises SinkUnavailable and
    SourceUnavailable for what may pass, DecodeError where the log must not be read on.
    """
    try:
        if part.offsets <= DRIVER_OFFSETS:
            return _on_driver([log.head.read(log.source, part.begin, part.end)], sink, generation, part)
        if log.large is not None:
            with suppress(pa.ArrowInvalid):  # bytes that are no text: Spark takes them as they are
                return _on_driver(_until(stopped, log.large.read(part.begin, part.end)), sink, generation, part)
        return _on_executors(read_slice(log.spark, log.source, part.begin, part.end), spec, generation, part)
    except SPARK_ERRORS as exc:
        if out_of_memory(exc) or refusal(str(exc)) or may_pass(exc):
            raise spark_error(exc) from exc
        return _salvaged(log.salvage, sink, generation, part, stopped)


def count_documents(log: LogReader, begin: Offsets, end: Offsets) -> int:
    """How many keys have a document as their newest state in [begin, end)."""
    if begin == end:
        return 0
    if log.large is not None and Slice(begin, end).offsets <= COUNTED:
        with suppress(pa.ArrowInvalid):
            return log.large.count(begin, end)
    writes = read_slice(log.spark, log.source, begin, end)
    newest = writes.groupBy("key").agg(expr("max_by(document IS NOT NULL, version) AS present"))
    try:
        return newest.where("present").count()
    except SPARK_ERRORS:
        return _count_salvaged(log.salvage(begin, end))


def _on_driver(read: Iterable[tuple[Offsets, pa.Table]], sink: Sink, generation: int, part: Slice) -> Outcome:
    reached, total, passed = part.begin, Applied(), []
    for end, writes in read:
        for batch in map(part.writes, writes.cast(WRITES).combine_chunks().to_batches()):
            applied = sink.apply(generation, batch)
            total += applied
            passed += part.passed(batch, applied)
        reached = end
    return Outcome(reached, total, tuple(passed))


def _salvaged(salvage: Salvage, sink: Sink, generation: int, part: Slice, stopped: Callable[[], bool]) -> Outcome:
    """The same of a slice with records that can never be read: each is rejected, unless its key has a newer one."""
    bad: dict[str, Rejected] = {}
    reached, total, passed = part.begin, Applied(), list[tuple[str, int]]()
    for some in salvage(part.begin, part.end):
        done = _on_driver([(some.end, some.rows)], sink, generation, part)
        reached, total = done.end, total + done.applied
        passed += done.passed
        bad |= {refused.key: refused for refused in some.bad if part.wants(refused.key)}
        bad = _not_followed(bad, some.rows)
        if stopped():
            break
    return Outcome(reached, total + Applied(rejected=tuple(bad.values())), tuple(passed))


def _not_followed(bad: dict[str, Rejected], rows: pa.Table) -> dict[str, Rejected]:
    """Without those whose key has a newer record."""
    if not bad:
        return bad
    same = rows.filter(pc.is_in(rows["key"], value_set=pa.array(bad, pa.string()))).select(["key", "version"])
    passed = {row["key"] for row in same.to_pylist() if row["version"] > bad[row["key"]].version}
    return {key: refused for key, refused in bad.items() if key not in passed}


def _count_salvaged(read: Iterator[Salvaged]) -> int:
    """A document that can never be read counts as there: it is quarantined. All keys are held meanwhile."""
    newest: dict[str, tuple[int, bool]] = {}
    for some in read:
        table = some.rows.select(["key", "version"]).append_column("there", some.rows["document"].is_valid())
        found = [(row["key"], (row["version"], row["there"])) for row in table.to_pylist()]
        found += [(refused.key, (refused.version, True)) for refused in some.bad]
        for key, state in found:
            newest[key] = max(state, newest.get(key, state))
    return sum(there for _, there in newest.values())


def _until(stopped: Callable[[], bool], read: Iterator[tuple[Offsets, pa.Table]]) -> Iterator[tuple[Offsets, pa.Table]]:
    for some in read:
        yield some
        if stopped():
            return


def _on_executors(writes: DataFrame, spec: SinkSpec, generation: int, part: Slice) -> Outcome:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sink = spec.open()
        try:
            for whole in batches:
                for batch in pa.Table.from_batches([whole]).cast(WRITES).combine_chunks().to_batches():
                    wanted = part.writes(batch)
                    applied = sink.apply(generation, wanted)
                    yield _as_rows(applied, part.passed(wanted, applied))
        except SyncError as exc:
            # An exception would reach the driver as text alone.
            error = {"problem": str(exc), "kind": type(exc).__name__, "hint": exc.hint}
            yield pa.RecordBatch.from_pylist([error], schema=_RESULT_ARROW)
        finally:
            sink.close()

    result = writes.mapInArrow(write, _RESULT).toArrow()
    rejected, passed = [], []
    for row in result.filter(pc.is_null(result["written"])).to_pylist():
        if row["kind"] is not None:
            kind: type[SyncError] = getattr(errors, row["kind"], SinkError)
            raise kind(row["problem"], hint=row["hint"])
        if row["problem"] is not None:
            rejected.append(Rejected(row["key"], row["version"], row["problem"]))
        else:
            passed.append((row["key"], row["version"]))
    written, stale = (pc.sum(result[name]).as_py() or 0 for name in ("written", "stale"))
    return Outcome(part.end, Applied(written, stale, tuple(rejected)), tuple(passed))


def _as_rows(applied: Applied, passed: list[tuple[str, int]]) -> pa.RecordBatch:
    rows: list[dict[str, object]] = [{"written": applied.written, "stale": applied.stale}]
    rows += [{"key": r.key, "version": r.version, "problem": r.reason} for r in applied.rejected]
    rows += [{"key": key, "version": version} for key, version in passed]
    return pa.RecordBatch.from_pylist(rows, schema=_RESULT_ARROW)


def kafka_options(kafka: Kafka, follower: str) -> dict[str, str]:
    """The Kafka source's options. They hold secrets: never print or log them."""
    return {
        **{f"kafka.{key}": value for key, value in kafka.java_settings().items()},
        "kafka.isolation.level": "read_committed",
        # A tail that ends in a transaction's mark would wait for it 500 ms.
        "kafka.fetch.max.wait.ms": "10",
        "kafka.max.partition.fetch.bytes": str(FETCH_BYTES),
        # One name for all batches, so that executors keep their consumers; no offset is ever committed.
        "kafka.group.id": f"driftless-{follower}",
        "failOnDataLoss": "true",
    }
