"""What every store must do, and the values that cross to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

WRITES = pa.schema(
    (
        pa.field("key", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("document", pa.string()),
    )
)
"""Writes cross in Arrow batches: the key's text, the version, and the document as JSON text (null: delete)."""


@dataclass(frozen=True)
class Rejected:
    """A write that this store can never take as it is. `reason` is the store's own words, without row values."""

    key: str
    version: int
    reason: str


@dataclass(frozen=True)
class Applied:
    """What became of a batch, item by item: written + stale + len(rejected) is the number of writes given.

    `stale`: the store already holds this version of the key or a newer one. That is normal after a replay. `retries`:
    how often some of it was given again, which says nothing about the items.
    """

    written: int = 0
    stale: int = 0
    rejected: tuple[Rejected, ...] = ()
    retries: int = field(default=0, compare=False)

    def __add__(self, other: Applied) -> Applied:
        return Applied(
            self.written + other.written,
            self.stale + other.stale,
            self.rejected + other.rejected,
            self.retries + other.retries,
        )


Progress = Callable[[int], None]
"""Told how many documents have been dealt with so far."""


def in_silence(_: int) -> None:
    """Progress that nobody wants to see."""


@dataclass(frozen=True)
class SinkContext:
    """Whose sink this is: names for what it makes in the store, and the key columns in key order."""

    pipeline: str
    follower: str
    key_columns: tuple[str, ...]


class Sink(Protocol):
    """A store that can be rebuilt from the log. Every method may be called again with the same arguments.

    `apply` carries the guarantee: within the horizon, any order and any duplication of deliveries ends in the
    newest version of each key, deletes included. It retries what may pass by itself, with jitter, and raises
    `SinkUnavailable` when it gives up: some of the batch may then have landed, and the batch is to be given again.

    A checkpoint is text that the follower keeps in its own store, so that a store that forgot documents has
    forgotten the checkpoint that claimed them too. A store that may forget the newest of what it was given, and keep
    the checkpoint from before, as a server that fails over, says so by refusing the next `save`.
    """

    def check(self) -> None:
        """Raise `SinkMisconfigured` or `SinkUnavailable` unless the store can be trusted with a follower."""

    def rehearse(self) -> None:
        """Raise what `create` and the first writes would: do the same under names that nobody reads, and undo it."""

    def create(self, generation: int) -> None:
        """Make the place for this generation; one that is there is left as it is. Readers see none but the first before
        `promote`.
        """

    def apply(self, generation: int, writes: pa.RecordBatch) -> Applied:
        """Write a batch (schema `WRITES`; a key may occur more than once) and say what became of each item."""

    def read(self, generation: int, keys: Sequence[str]) -> pa.RecordBatch:
        """Present documents of these keys with their versions (schema `WRITES`); absent keys are left out."""

    def scan(self, generation: int) -> Iterator[pa.RecordBatch]:
        """Every document of the generation (schema `WRITES`), in no order, under the key that `scan_keys` says."""

    def scan_keys(self, keys: pa.StringArray) -> pa.StringArray:
        """What `scan` gives as the keys of these documents: the key itself, unless the store cannot hold it.

        No two keys have the same one, so who compares a scan with the log compares by these.
        """

    def count(self, generation: int) -> int:
        """Documents present now; every acknowledged write counts."""

    def load(self, generation: int) -> str | None:
        """The checkpoint, or None where the store has none (new, emptied or recreated).

        Everything given before that checkpoint is held. What was given since may be lost, and is given again.
        """

    def save(self, generation: int, checkpoint: str, *, expected: str | None) -> bool:
        """Replace the checkpoint if it still is `expected`, and everything acknowledged since the last `load` is held;
        False, and nothing changed, where that is not so.

        A save that landed and whose answer was lost counts as saved when it is given again. So the checkpoint that is
        there may be given to ask whether it still is; that writes nothing.
        """

    def promote(self, generation: int, progress: Progress = in_silence) -> None:
        """Make this generation the one that readers see: at once, or in slices of whole documents.

        After a crash the same call, or one for another generation, ends with one complete generation.
        """

    def promoted(self) -> int | None:
        """The generation that readers see; None before the first `promote`."""

    def drop(self, generation: int, *, also_live: bool = False) -> None:
        """Remove the generation, its versions and its checkpoint.

        Raises `SinkError`, and removes nothing, where readers see it or are being switched to it or from it, unless
        `also_live`: then they see nothing afterwards, and what a kind keeps once for the pipeline goes with its last
        follower.
        """

    def close(self) -> None:
        """Give back connections."""
