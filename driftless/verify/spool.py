"""What was read of each stage, on disk: hashes to compare, and keys to name what differs. Memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from driftless.verify.canonical import canonical

Hashes = npt.NDArray[np.int64]
ABSENT = 0
"""Stands for no hash."""

_KEYED: list[tuple[str, pa.DataType]] = [("key", pa.string()), ("hash", pa.int64())]
_TEXT: list[tuple[str, pa.DataType]] = [("canon", pa.int64()), ("raw", pa.int64())]
SOURCE = pa.schema([*_KEYED, ("canon", pa.int64())])
"""A row of the view. `hash`: of the key; `canon`: of the document, whoever wrote it."""
LOG = pa.schema([*_KEYED, *_TEXT, ("version", pa.int64()), ("partition", pa.int32())])
"""A record. `raw`: of the document's text as it stands; both are ABSENT for a delete."""
ITEMS = pa.schema([*_KEYED, *_TEXT, ("version", pa.int64())])
"""A document of a follower. `canon` is ABSENT where it was not looked at."""


class Spool:
    """Batches of one schema in a file, written once and read as often as is needed."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.rows = 0
        self._path = path
        self._schema = schema
        self._parts: list[Path] = []
        self._writer: pa.RecordBatchStreamWriter | None = None

    def append(self, columns: dict[str, Any]) -> None:
        if self._writer is None:
            self._parts.append(self._path.with_name(f"{self._path.name}.{len(self._parts)}"))
            self._writer = pa.ipc.new_stream(str(self._parts[-1]), self._schema)
        batch = pa.record_batch(columns, schema=self._schema)
        self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def read(self, *names: str) -> Iterator[dict[str, Any]]:
        """Columns of each batch: numbers as numpy arrays, texts as Arrow arrays."""
        self.close()
        for part in self._parts:
            with pa.OSFile(str(part), "r") as file, pa.ipc.open_stream(file) as stream:
                for batch in stream:
                    yield {name: _column(batch.column(name)) for name in names}

    def load(self, *names: str, only: Hashes | None = None, part: int = 0, parts: int = 1) -> dict[str, Any]:
        """Whole columns of numbers; of these key hashes alone, or of one part of all by them."""
        pieces: list[dict[str, Any]] = []
        for batch in self.read("hash", *(name for name in names if name != "hash")):
            chosen = choose(batch["hash"], only, part, parts)
            pieces.append({name: batch[name] if chosen is None else batch[name][chosen] for name in names})
        return {
            name: np.concatenate([piece[name] for piece in pieces]) if pieces else np.empty(0, np.int64)
            for name in names
        }

    def keys(self, wanted: Hashes) -> dict[int, str]:
        """The key of each hash that is here."""
        found: dict[int, str] = {}
        for batch in self.read("hash", "key"):
            places = np.flatnonzero(np.isin(batch["hash"], wanted))
            keys = batch["key"].take(pa.array(places)).to_pylist()
            found.update(zip(batch["hash"][places].tolist(), keys, strict=True))
        return found

    def close(self) -> None:
        """End the file that is being written; what is appended later begins another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def choose(hashes: Hashes, only: Hashes | None, part: int, parts: int) -> npt.NDArray[np.bool_] | None:
    """Which rows are meant; None for all."""
    if only is not None:
        return np.isin(hashes, only)
    return None if parts == 1 else hashes.view(np.uint64) % np.uint64(parts) == np.uint64(part)


def _column(array: Any) -> Any:
    return array if pa.types.is_string(array.type) else array.to_numpy()


def hashes(texts: Sequence[str]) -> Hashes:
    """Of keys, or of texts as they stand: 64 bits, by a key that is another one in each process."""
    return np.fromiter(map(hash, texts), np.int64, len(texts))


def hash_raw(text: str | None) -> int:
    return ABSENT if text is None else hash(text)


def hash_document(text: str | None) -> int:
    """The same for every text of one JSON value; of what is no JSON the text itself counts."""
    if text is None:
        return ABSENT
    try:
        return hash(canonical(text))
    except ValueError:
        return hash(("no JSON", text))
