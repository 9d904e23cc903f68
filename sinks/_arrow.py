"""Arrow batches into bytes for a store, column by column: no Python object per row on the hot path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftless.sink import WRITES


def join(*parts: Any) -> Any:
    """Concatenate texts and string columns row by row; a null anywhere makes the row null."""
    return pc.binary_join_element_wise(*parts, "")


def text(numbers: Any) -> Any:
    return pc.cast(numbers, pa.string())


class Texts:
    """A column of texts as one run of bytes, to be cut by rows."""

    def __init__(self, strings: Any) -> None:
        _, offsets, data = strings.buffers()
        self._data = memoryview(data or b"")
        self._ends = np.frombuffer(offsets, dtype=np.int32)[strings.offset :]
        self._rows = len(strings)

    def __contains__(self, char: bytes) -> bool:
        # A search for one byte in one run of bytes: 10 times as fast as Arrow's search in each text.
        return char in bytes(self[:])

    def __getitem__(self, rows: slice) -> memoryview:
        start, stop, _ = rows.indices(self._rows)
        return self._data[self._ends[start] : self._ends[stop]]


def sizes(writes: pa.RecordBatch) -> Any:
    """About how many bytes each write is on the wire, as a numpy array."""
    documents = pc.fill_null(length(writes.column("document")), 0)
    return pc.add(length(writes.column("key")), documents).to_numpy().astype(np.int64)


def length(strings: Any) -> Any:
    """In bytes of UTF-8."""
    return pc.binary_length(strings)


def slices(writes: pa.RecordBatch, *, rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch, in order, into pieces of at most `rows` writes and about `size` bytes, never less than one write."""
    ends = np.cumsum(sizes(writes))
    start = 0
    while start < writes.num_rows:
        before = ends[start - 1] if start else 0
        fits = int(np.searchsorted(ends, before + size, side="right"))
        stop = min(start + rows, max(start + 1, fits))
        yield writes.slice(start, stop - start)
        start = stop


def batch(rows: Sequence[tuple[str, int, str | None]]) -> pa.RecordBatch:
    """Rows that were read back, in the schema `WRITES`."""
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, WRITES, strict=True)], schema=WRITES)
