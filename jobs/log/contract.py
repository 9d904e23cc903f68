"""What those who read a log ask of each other: slices of it, decoders of its records, and what cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from driftless.kafka.client import Offsets
from driftless.sink import Rejected
from jobs.spark.source import LogSource


class Decoder(Protocol):
    """Makes rows of records; used by one thread at a time. See jobs/spark/projection.py and jobs/spark/arrow.py."""

    @property
    def empty(self) -> pa.Table:
        """Of no records."""

    def table(self, records: Any, size: float) -> pa.Table | None:
        """Of a Java collection of Kafka's records, of about so many bytes; None where it leaves them to another."""


class UnusualRecordsError(Exception):
    """A decoder leaves records to another one. It says nothing about what they are worth."""


class SliceReader(Protocol):
    """Reads small slices; see jobs/log/small_slices.py."""

    def read(self, source: LogSource, begin: Offsets, end: Offsets) -> tuple[Offsets, pa.Table]:
        """The writes of a slice, and where it ends."""


class BulkReader(Protocol):
    """Reads large slices without a job; see jobs/log/local_bulk.py."""

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
    """Reads slices record by record; see jobs/log/salvage.py."""

    def __call__(self, begin: Offsets, end: Offsets) -> Iterator[Salvaged]:
        """All of [begin, end) or somewhat further, some at a time."""
