"""Up to where late events have corrected what was final: it stands in the stream's own topic of batches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from driftless.facts.streams import StreamBuild
from driftless.kafka.client import Kafka, Offsets
from jobs.streams.log.batch import newest_record, places, read_places, written

CORRECTED_KEY = b"corrected"


@dataclass(frozen=True)
class Correction:
    """A document that takes the place of one that was final; None where no result has the key any more.

    `revision`: how many corrections of it there have been, this one among them.
    """

    key: str
    document: str | None
    begin: int | None
    end: int | None
    revision: int


@dataclass(frozen=True)
class Corrected:
    """Late events before `read` are counted in every result that ends at or before `closed_ms`, and in no other one.

    `events`: how many of them there are. `documents`: how many corrections have been published. `open_ms`: windows that
    end after `closed_ms` have no late event from before then.
    """

    read: Mapping[str, Offsets]
    closed_ms: int = 0
    events: int = 0
    documents: int = 0
    open_ms: int = 0

    def to_text(self) -> bytes:
        return written({**vars(self), "read": places(self.read)})

    @classmethod
    def from_text(cls, text: bytes) -> Corrected:
        """Raises ValueError, KeyError, TypeError or AttributeError for what is none."""
        data = json.loads(text)
        return cls(read_places(data), *(int(data[name]) for name in ("closed_ms", "events", "documents", "open_ms")))


def newest_corrected(kafka: Kafka, batches: str, build: StreamBuild) -> Corrected:
    """How far a build has come; it begins at its first events."""
    found = newest_record(kafka, batches, CORRECTED_KEY, Corrected.from_text)
    return (
        Corrected({source.topic: dict(source.floors) for source in build.events.values()}) if found is None else found
    )
