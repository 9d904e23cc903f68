"""What whoever applies a log needs of those who read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from driftless.kafka.client import Offsets
from driftless.sink import Rejected
from jobs.spark.source import LogSource


class Head(Protocol):
    """Reads small slices; see jobs/log/reader.py."""

    def read(self, source: LogSource, begin: Offsets, end: Offsets) -> tuple[Offsets, pa.Table]:
        """The writes of a slice, and where it ends."""


class Large(Protocol):
    """Reads large slices without a job; see jobs/log/document_reader.py."""

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
