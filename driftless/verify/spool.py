"""What was read of each stage, on disk: hashes to compare, and keys to name what differs. Memory stays bounded."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_64_intdigest as _digest

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


def save(path: Path, state: dict[str, Any]) -> None:
    """Write it whole: a reader finds the state before or this one, whenever the process is killed."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(state), encoding="utf-8")
    partial.replace(path)


class Spool:
    """Batches of one schema in files, written once and read as often as is needed.

    `parts` and `rows`: of one that is gone on with, as they were when it was closed.
    """

    def __init__(self, path: Path, schema: pa.Schema, parts: int = 0, rows: int = 0) -> None:
        self.rows = rows
        self._path = path
        self._schema = schema
        self._parts = [self._part(number) for number in range(parts)]
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._renamed = np.empty((2, 0), np.int64)

    def rename(self, names: Mapping[str, str]) -> None:
        """From now on what is here under one key has the hash of another; `keys` still tells it as it was written."""
        pairs = np.stack([hashes(list(names)), hashes(list(names.values()))])
        self._renamed = pairs[:, np.argsort(pairs[0])]

    def append(self, columns: dict[str, Any]) -> None:
        if self._writer is None:
            self._parts.append(self._part(len(self._parts)))
            self._writer = pa.ipc.new_stream(str(self._parts[-1]), self._schema)
        batch = pa.record_batch(columns, schema=self._schema)
        self._writer.write_batch(batch)
        self.rows += batch.num_rows

    @property
    def parts(self) -> int:
        return len(self._parts)

    def _part(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def read(self, *names: str) -> Iterator[dict[str, Any]]:
        """Columns of each batch: numbers as numpy arrays, texts as Arrow arrays."""
        self.close()
        for part in self._parts:
            with pa.OSFile(str(part), "r") as file, pa.ipc.open_stream(file) as stream:
                for batch in stream:
                    columns = {name: _column(batch.column(name)) for name in names}
                    if "hash" in columns and self._renamed.size:
                        columns["hash"] = _replaced(columns["hash"], *self._renamed)
                    yield columns

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


def _replaced(values: Hashes, before: Hashes, after: Hashes) -> Hashes:
    """Each value that is among `before`, which is sorted, as its counterpart in `after`."""
    at = np.minimum(np.searchsorted(before, values), len(before) - 1)
    return np.where(before[at] == values, after[at], values)


def _column(array: Any) -> Any:
    return array if pa.types.is_string(array.type) else array.to_numpy()


_seed = secrets.randbits(64)


def seed(known: int | None = None) -> int:
    """What hashes begin with, so that nobody can aim at one: another in each process, or one that is gone on with."""
    global _seed
    _seed = _seed if known is None else known
    return _seed


def hashes(texts: Sequence[str | None]) -> Hashes:
    """Of keys, or of texts as they stand: 64 bits."""
    return _all(_of(text) for text in texts)


def hash_documents(texts: Iterable[str | None]) -> Hashes:
    """The same for every text of one JSON value; of what is no JSON the text itself counts."""
    return _all(ABSENT if text is None else _digest(_value(text), _seed) for text in texts)


def _of(text: str | None) -> int:
    return ABSENT if text is None else _digest(text.encode("utf-8", "surrogatepass"), _seed)


def _all(found: Iterable[int]) -> Hashes:
    return np.fromiter(found, np.uint64).view(np.int64)


def _value(text: str) -> bytes:
    try:
        return canonical(text)
    except ValueError:
        return b"no JSON\0" + text.encode("utf-8", "surrogatepass")
