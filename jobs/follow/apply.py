"""One slice of the log to one sink: read and shaped by Spark, written by the driver or by the executors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from driftless import errors
from driftless.errors import SinkError, SyncError
from driftless.kafka.client import Offsets
from driftless.sink import WRITES, Applied, Rejected, Sink, SinkContext
from jobs.log.contract import BulkReader, Salvage, Salvaged, SliceReader
from jobs.spark.errors import SPARK_ERRORS, may_pass, spark_error
from jobs.spark.memory import out_of_memory
from jobs.spark.refused import refusal
from jobs.spark.source import COMMITTED, DRIVER_OFFSETS, LogSource, read_slice
from sinks import open_sink

COUNTED = 1_000_000
"""Up to here documents are counted in this process: their keys take some 100 MB."""

_RESULT = (
    "written long, stale long, retries long, bytes long, key string, version long, problem string, kind string, "
    "hint string"
)
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
class OffsetRange:
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
class SliceResult:
    """What became of a slice, which ended at `end`. `passed`: held keys that the store has taken, with versions.

    `bytes`: of the writes. `ages`: seconds from the commit of each change until the store had answered, of small
    slices alone.
    """

    end: Offsets
    applied: Applied
    passed: tuple[tuple[str, int], ...] = ()
    bytes: int = 0
    ages: Sequence[float] = ()


@dataclass(frozen=True)
class LogReader:
    """One log: small slices by `small`, large ones by `bulk`, or, where that is None, by jobs of Spark's. What these
    cannot read, by `salvage`.
    """

    spark: SparkSession
    source: LogSource
    small: SliceReader
    bulk: BulkReader | None
    salvage: Salvage


def apply_slice(
    log: LogReader, spec: SinkSpec, sink: Sink, generation: int, part: OffsetRange, stopped: Callable[[], bool]
) -> SliceResult:
    """Apply a slice. When it returns, every write of it is in the store, stale there, or rejected.

    It may end sooner than asked for, where `stopped` says so or `small` has less, or later, where more was read. May be
    repeated after any failure. A record that can never be read is rejected, by itself. Raises SinkUnavailable and
    SourceUnavailable for what may pass, DecodeError where the log must not be read on.
    """
    try:
        if part.offsets <= DRIVER_OFFSETS:
            return _on_driver([log.small.read(log.source.timed, part.begin, part.end)], sink, generation, part)
        if log.bulk is not None:
            return _on_driver(_until(stopped, log.bulk.read(part.begin, part.end)), sink, generation, part)
        return _on_executors(read_slice(log.spark, log.source, part.begin, part.end), spec, generation, part)
    except SPARK_ERRORS as exc:
        if out_of_memory(exc) or refusal(str(exc)) or may_pass(exc):
            raise spark_error(exc) from exc
        return _salvaged(log.salvage, sink, generation, part, stopped)


def count_documents(log: LogReader, begin: Offsets, end: Offsets) -> int:
    """How many keys have a document as their newest state in [begin, end)."""
    if begin == end:
        return 0
    try:
        if log.bulk is not None and OffsetRange(begin, end).offsets <= COUNTED:
            return log.bulk.count(begin, end)
        writes = read_slice(log.spark, log.source, begin, end)
        newest = writes.groupBy("key").agg(expr("max_by(document IS NOT NULL, version) AS present"))
        return newest.where("present").count()
    except SPARK_ERRORS:
        return _count_salvaged(log.salvage(begin, end))


def _on_driver(read: Iterable[tuple[Offsets, pa.Table]], sink: Sink, generation: int, part: OffsetRange) -> SliceResult:
    reached, total, passed, size = part.begin, Applied(), list[tuple[str, int]](), 0
    ages: list[float] = []
    for end, table in read:
        for batch in map(part.writes, table.select(WRITES.names).cast(WRITES).combine_chunks().to_batches()):
            applied = sink.apply(generation, batch)
            total += applied
            passed += part.passed(batch, applied)
            size += batch.nbytes
        if COMMITTED in table.column_names:
            now = time.time()
            ages += [now - at / 1e6 for at in table[COMMITTED].to_pylist() if at is not None]
        reached = end
    return SliceResult(reached, total, tuple(passed), size, ages)


def _salvaged(
    salvage: Salvage, sink: Sink, generation: int, part: OffsetRange, stopped: Callable[[], bool]
) -> SliceResult:
    """The same of a slice with records that can never be read: each is rejected, unless its key has a newer one."""
    bad: dict[str, Rejected] = {}
    reached, total, passed, size = part.begin, Applied(), list[tuple[str, int]](), 0
    for some in salvage(part.begin, part.end):
        done = _on_driver([(some.end, some.rows)], sink, generation, part)
        reached, total = done.end, total + done.applied
        passed += done.passed
        size += done.bytes
        bad |= {refused.key: refused for refused in some.bad if part.wants(refused.key)}
        bad = _not_followed(bad, some.rows)
        if stopped():
            break
    return SliceResult(reached, total + Applied(rejected=tuple(bad.values())), tuple(passed), size)


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


def _on_executors(writes: DataFrame, spec: SinkSpec, generation: int, part: OffsetRange) -> SliceResult:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sink = spec.open()
        try:
            for whole in batches:
                for batch in pa.Table.from_batches([whole]).cast(WRITES).combine_chunks().to_batches():
                    wanted = part.writes(batch)
                    applied = sink.apply(generation, wanted)
                    yield _as_rows(applied, part.passed(wanted, applied), wanted.nbytes)
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
    counted = ("written", "stale", "retries", "bytes")
    written, stale, retries, size = (pc.sum(result[name]).as_py() or 0 for name in counted)
    return SliceResult(part.end, Applied(written, stale, tuple(rejected), retries), tuple(passed), size)


def _as_rows(applied: Applied, passed: list[tuple[str, int]], size: int) -> pa.RecordBatch:
    rows: list[dict[str, object]] = [
        {"written": applied.written, "stale": applied.stale, "retries": applied.retries, "bytes": size}
    ]
    rows += [{"key": r.key, "version": r.version, "problem": r.reason} for r in applied.rejected]
    rows += [{"key": key, "version": version} for key, version in passed]
    return pa.RecordBatch.from_pylist(rows, schema=_RESULT_ARROW)
