"""What a batch of a stream's query read and published: in the checkpoint of Spark, and in the stream's own topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from driftless.errors import SourceError
from driftless.kafka.client import Kafka, Offsets

BATCH_KEY = b"batch"
T = TypeVar("T")


@dataclass(frozen=True)
class PlannedBatch:
    """A batch as Spark has planned it: up to where it reads each topic, and the moment in milliseconds up to which
    windows are closed by it.
    """

    read: Mapping[str, Offsets]
    closed_ms: int


@dataclass(frozen=True)
class PublishedBatch:
    """The newest batch that was published, in one transaction with its documents.

    `checkpoint`: the id of the checkpoint that it was computed with. With it, the documents of all windows that end at
    or before `closed_ms` are in the stream's log, made of the events up to `read`. `reached_ms`: the greatest
    `closed_ms` that there ever was. While a lost checkpoint is computed again it is greater, and what is published is
    only what differs. `begin_ms`: where that was begun after events were gone, windows from before then are left alone.
    `again`: up to where events had been read before, where that lies beyond `read`.
    """

    checkpoint: str
    batch: int
    read: Mapping[str, Offsets]
    closed_ms: int
    reached_ms: int
    begin_ms: int = 0
    again: Mapping[str, Offsets] = field(default_factory=dict)

    @property
    def is_refill(self) -> bool:
        """Whether what was published before is being computed again."""
        return self.closed_ms < self.reached_ms or bool(self.again)

    def has_read(self, reach: Mapping[str, Offsets]) -> bool:
        """Whether it was made of all events up to these places."""
        return all(self.read.get(t, {}).get(p, 0) >= offset for t, some in reach.items() for p, offset in some.items())

    def to_text(self) -> bytes:
        return written({**vars(self), "read": places(self.read), "again": places(self.again)})

    @classmethod
    def from_text(cls, text: bytes) -> PublishedBatch:
        """Raises ValueError, KeyError, TypeError or AttributeError for what is none."""
        data = json.loads(text)
        closed, reached, begin = (int(data.get(name, 0)) for name in ("closed_ms", "reached_ms", "begin_ms"))
        again = read_places(data, "again") if "again" in data else {}
        return cls(data["checkpoint"], int(data["batch"]), read_places(data), closed, reached, begin, again)


def places(reach: Mapping[str, Offsets]) -> dict[str, dict[str, int]]:
    """Topic -> partition -> offset, for JSON."""
    return {topic: {str(p): offset for p, offset in offsets.items()} for topic, offsets in reach.items()}


def read_places(data: Mapping[str, Any], name: str = "read") -> dict[str, Offsets]:
    """The places of such a record. Raises KeyError, ValueError, TypeError or AttributeError where it has none."""
    return {topic: _numbers(offsets) for topic, offsets in data[name].items()}


def _numbers(offsets: Mapping[str, Any]) -> Offsets:
    return {int(p): int(offset) for p, offset in offsets.items()}


def written(fields: Mapping[str, object]) -> bytes:
    """A record of the topic of batches."""
    return json.dumps(fields, separators=(",", ":")).encode()


def newest_record(kafka: Kafka, topic: str, key: bytes, from_text: Callable[[bytes], T]) -> T | None:
    """What was written last under a key of the topic of batches; None for nothing. A record that is none of ours is
    passed over.
    """
    found = None
    for message in kafka.read_to_end(topic, isolation="read_committed"):
        if message.key() == key and (value := message.value()) is not None:
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                found = from_text(value)
    return found


def newest_batch(kafka: Kafka, topic: str) -> PublishedBatch | None:
    """What was published last; None where nothing was."""
    return newest_record(kafka, topic, BATCH_KEY, PublishedBatch.from_text)


class QueryCheckpoint:
    """Spark's checkpoint of a query, a folder. What is read of it is in text, as Spark documents its recovery."""

    def __init__(self, folder: Path, join_wait: int = 0) -> None:
        """`join_wait`: by how much the query's windows close later than Spark's watermark says, in milliseconds."""
        self.folder = folder
        self._wait = join_wait

    @property
    def id(self) -> str:
        """What names it; empty where there is none."""
        try:
            return str(json.loads((self.folder / "metadata").read_text(encoding="utf-8"))["id"])
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    @property
    def newest(self) -> int:
        """The number of the batch that was planned last; -1 for none."""
        return self._newest("offsets")

    @property
    def committed(self) -> int:
        """Of the last one that Spark has finished."""
        return self._newest("commits")

    def _newest(self, log: str) -> int:
        return max((int(path.name) for path in (self.folder / log).glob("*") if path.name.isdecimal()), default=-1)

    def planned(self, batch: int) -> PlannedBatch:
        """Raises SourceError where the batch cannot be read."""
        try:
            _, more, *sources = (self.folder / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
            closed = max(0, int(json.loads(more)["batchWatermarkMs"]) - self._wait)
            reach: dict[str, Offsets] = {}
            for line in sources:
                if line.startswith("{"):
                    reach |= {topic: _numbers(offsets) for topic, offsets in json.loads(line).items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as exc:
            raise SourceError(
                f"the checkpoint {self.folder.name} cannot be read: {type(exc).__name__}",
                hint="remove it and restart `driftless run`: it computes the stream again and publishes what differs",
            ) from exc
        return PlannedBatch(reach, closed)

    def continues(self, published: PublishedBatch | None) -> bool:
        """Whether a query may go on from it: what it planned was published, but for one batch at most."""
        if published is None:
            return self.committed < 0
        return self.id == published.checkpoint and self.committed <= published.batch <= self.committed + 1
