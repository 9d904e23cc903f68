"""One slice of the log to one sink: read and shaped by Spark, written by the driver or by the executors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import expr

from driftless import errors
from driftless.errors import DecodeError, SinkError, SourceUnavailable, SyncError
from driftless.kafka import Offsets
from driftless.sink import WRITES, Applied, Rejected, Sink, SinkContext
from sinks import open_sink

DRIVER_OFFSETS = 2_000
"""Up to here the driver writes: starting a Python worker costs more than the work (220 ms against 75 ms)."""

_RESULT = "written long, stale long, key string, version long, problem string, kind string, hint string"
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
    """Where to read and how to make documents of it (see jobs/decode.py). `options`: the Kafka source's."""

    topic: str
    options: Mapping[str, str]
    parse: tuple[str, ...]
    shape: tuple[str, ...]

    @cached_property
    def columns(self) -> tuple[list[Column], list[Column]]:
        """The two steps, parsed once: parsing them anew took a tenth of a small batch's CPU."""
        return [expr(sql) for sql in self.parse], [expr(sql) for sql in self.shape]


def read_slice(spark: SparkSession, source: LogSource, begin: Offsets, end: Offsets) -> DataFrame:
    """Writes (schema WRITES) of exactly the offsets [begin, end) of each partition."""
    moved = sorted(p for p in end if end[p] > begin[p])
    reader = spark.read.format("kafka").options(**source.options)
    reader = reader.option("assign", json.dumps({source.topic: moved}))
    for name, offsets in (("startingOffsets", begin), ("endingOffsets", end)):
        reader = reader.option(name, json.dumps({source.topic: {str(p): offsets[p] for p in moved}}))
    parse, shape = source.columns
    return reader.load().select(*parse).select(*shape)


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


def apply_slice(
    spark: SparkSession, source: LogSource, spec: SinkSpec, sink: Sink, generation: int, begin: Offsets, end: Offsets
) -> Applied:
    """Apply [begin, end). When it returns, every write of the slice is in the store, stale there, or rejected.

    May be repeated after any failure. Raises SinkUnavailable and SourceUnavailable for what may pass.
    """
    writes = read_slice(spark, source, begin, end)
    try:
        if sum(end[p] - begin[p] for p in end) <= DRIVER_OFFSETS:
            return _on_driver(writes, sink, generation)
        return _on_executors(writes, spec, generation)
    except PySparkException as exc:
        raise _spark_error(exc) from exc


def _on_driver(writes: DataFrame, sink: Sink, generation: int) -> Applied:
    table = writes.toArrow().cast(WRITES).combine_chunks()
    applied = Applied()
    for batch in table.to_batches():
        applied += sink.apply(generation, newest_per_key(batch))
    return applied


def _on_executors(writes: DataFrame, spec: SinkSpec, generation: int) -> Applied:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sink = spec.open()
        try:
            for batch in batches:
                writes = pa.Table.from_batches([batch]).cast(WRITES).combine_chunks()
                for part in writes.to_batches():
                    yield _as_rows(sink.apply(generation, newest_per_key(part)))
        except SyncError as exc:
            # An exception would reach the driver as text alone.
            error = {"problem": str(exc), "kind": type(exc).__name__, "hint": exc.hint}
            yield pa.RecordBatch.from_pylist([error], schema=_RESULT_ARROW)
        finally:
            sink.close()

    result = writes.mapInArrow(write, _RESULT).toArrow()
    rejected = []
    for row in result.filter(pa.compute.is_valid(result["problem"])).to_pylist():
        if row["kind"] is not None:
            kind: type[SyncError] = getattr(errors, row["kind"], SinkError)
            raise kind(row["problem"], hint=row["hint"])
        rejected.append(Rejected(row["key"], row["version"], row["problem"]))
    written, stale = (pa.compute.sum(result[name]).as_py() or 0 for name in ("written", "stale"))
    return Applied(written, stale, tuple(rejected))


def _as_rows(applied: Applied) -> pa.RecordBatch:
    rows: list[dict[str, object]] = [{"written": applied.written, "stale": applied.stale}]
    rows += [{"key": r.key, "version": r.version, "problem": r.reason} for r in applied.rejected]
    return pa.RecordBatch.from_pylist(rows, schema=_RESULT_ARROW)


def _spark_error(exc: PySparkException) -> SyncError:
    """A record that cannot be read is the log's fault; whatever else Spark trips over may pass."""
    text = str(exc)
    marker = "[USER_RAISED_EXCEPTION]"
    if marker in text:
        place = text.split(marker, 1)[1].strip().splitlines()[0].removesuffix(" SQLSTATE: P0001")
        hint = "if the table changed, `driftless apply` registers its columns; else see the record with a Kafka client"
        return DecodeError(place, hint=hint)
    return SourceUnavailable(f"reading the log with Spark failed: {text.strip().splitlines()[0]}")
