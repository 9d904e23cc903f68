"""The snapshot of one table while the others stream: asked for by a signal, told of by notifications."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from connectors.debezium.connect import Connect
from connectors.debezium.connector import java_pattern
from connectors.postgres.client import Postgres
from driftless import names
from driftless.control.initial_snapshot import newest_initial_snapshot, notification
from driftless.control.topic import Control
from driftless.errors import SourceError
from driftless.facts.trust import Trust
from driftless.kafka.client import Kafka, Offsets
from driftless.marker import Marker, Stranger, Truncation
from driftless.table import split_name

BEGIN_SECONDS = 30.0
"""How long a connector that runs may take to begin what it was asked for; then it is asked once more."""
RESUME_SECONDS = 10.0
"""How long one that was begun before may be silent: nothing tells whether the connector still goes on with it."""
STILL_SECONDS = 180.0
"""How long it may be silent while it reads: a chunk takes seconds."""
POLL_SECONDS = 0.3


@dataclass(frozen=True)
class Wanted:
    """A snapshot that has been decided on, as the control topic keeps it until it is complete.

    `id`: of the signal, and of all that is told of it. `epoch`, `floors`, `lsn`: of the epoch that begins with it.
    `facts`: what is to be registered of the table then, as it was before the first row was read.
    """

    id: str
    epoch: int
    floors: Offsets
    lsn: int
    why: str
    facts: dict[str, Any]

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Wanted:
        return cls(**{**data, "floors": {int(p): offset for p, offset in data["floors"].items()}})


class SnapshotFailed(SourceError):
    """It will not be completed: it has to be taken again."""


class Snapshots:
    """Has Debezium read a table whole. The table must be captured already: its changes are then in order with it."""

    def __init__(
        self, pipeline: str, source: Postgres, kafka: Kafka, connect: Connect, report: Callable[[str], None]
    ) -> None:
        self._pipeline = pipeline
        self._source = source
        self._kafka = kafka
        self._connect = connect
        self._report = report

    def begin(self, table: str, epoch: int, lsn: int, why: str, facts: dict[str, Any]) -> Wanted:
        """A snapshot from here on. `lsn`: of a marker that was written once the table was as `facts` say.

        The floors lie behind that marker: no record above them is of a row as the table was before.
        """
        self._await_marker(lsn)
        topic = names.table_topic(self._pipeline, table)
        found = self._kafka.topic(topic)
        if found is None:
            raise SourceError(f"the topic {topic} is gone", hint="`driftless apply` makes it")
        floors = self._kafka.written_ends({topic: found.partitions})[topic]
        return Wanted(f"{table}/{uuid.uuid4().hex[:12]}", epoch, floors, lsn, why, facts)

    def truncated(self, table: str, lsn: int) -> bool:
        """Whether a TRUNCATE of the table was told after a position: rows that were read before may be gone."""
        told = self._messages(0)
        return any(isinstance(m, Truncation) and m.table == table and m.lsn > lsn for m in told)

    def last_reading(self) -> float:
        """When all tables were read last: one that is read by itself now is newer than that."""
        reading = newest_initial_snapshot(self._kafka, self._pipeline)
        return 0.0 if reading is None or reading.ended is None else reading.ended

    def _await_marker(self, lsn: int) -> None:
        deadline = time.monotonic() + BEGIN_SECONDS
        topic = names.message_topic(self._pipeline)
        while True:
            recent = max(0, self._kafka.committed_ends(topic, 1)[0] - 100)
            if any(isinstance(m, Marker) and m.lsn >= lsn for m in self._messages(recent)):
                return
            if time.monotonic() > deadline:
                raise SourceError(
                    f"the connector has written nothing of the source's log for {BEGIN_SECONDS:.0f} s",
                    hint="`driftless status` shows how far it is; a long transaction may hold it up",
                )
            time.sleep(POLL_SECONDS)

    def _messages(self, begin: int) -> Iterator[Marker | Truncation | Stranger | None]:
        topic = names.message_topic(self._pipeline)
        begin = max(begin, self._kafka.beginnings(topic, 1)[0])
        trust = Trust.of(self._pipeline, Control(self._kafka, self._pipeline).read())
        for message in self._kafka.read_to_end(topic, begin=begin, isolation="read_committed"):
            yield trust.parse(message.key(), message.value(), message.timestamp()[1] / 1000)

    def again(self, table: str, only: str) -> None:
        """Have the rows that fulfil a condition read once more, in order with their changes, in no new epoch."""
        self.take(table, f"{table}/{uuid.uuid4().hex[:12]}", only)

    def take(self, table: str, snapshot: str, only: str = "") -> None:
        """Return when all rows are in the table's topic. Asked again after an interruption, it goes on.

        `snapshot`: its id. `only`: a condition on the rows. Raises SourceError with the reason where it fails.
        """
        topic = names.notification_topic(self._pipeline)
        offset = self._kafka.beginnings(topic, 1)[0]
        heard_at, patience, told_before = time.monotonic(), 0.0, True
        while True:
            for message in self._kafka.read_to_end(topic, begin=offset, isolation="read_committed"):
                offset = (message.offset() or 0) + 1
                told = notification(message.value())
                if str(told.get("id")).rpartition("/")[0] == snapshot:
                    heard_at, patience = time.monotonic(), RESUME_SECONDS if told_before else STILL_SECONDS
                    if self._is_over(table, told):
                        return
            told_before = False
            if time.monotonic() >= heard_at + patience:
                self._ask(table, snapshot, only)
                heard_at, patience = time.monotonic(), BEGIN_SECONDS
            state, cause = self._connect.state(names.connector(self._pipeline))
            if state == "FAILED":
                raise SourceError(
                    f"the connector failed during the snapshot of {table}: {cause}",
                    hint="leave out a column that Debezium cannot read with `exclude`; `driftless apply` resumes",
                )
            time.sleep(POLL_SECONDS)

    def _is_over(self, table: str, told: dict[str, Any]) -> bool:
        data: dict[str, str] = told.get("additional_data") or {}
        match told["type"]:
            case "IN_PROGRESS":
                chunk, chunks = data.get("chunk_index", "?"), data.get("total_chunks", "?")
                self._report(f"{table}: chunk {chunk} of {chunks}, {int(data.get('total_rows', 0)):,} rows in all")
            case "TABLE_SCAN_COMPLETED" if data.get("status") not in ("SUCCEEDED", "EMPTY"):
                status = data.get("status")
                raise SnapshotFailed(f"Debezium could not read {table}: {status}", hint="see the Connect worker's log")
            case "TABLE_SCAN_COMPLETED":
                self._report(f"{table}: {int(data.get('total_rows_scanned', 0)):,} rows read")
            case "ABORTED":
                raise SnapshotFailed(f"the snapshot of {table} was stopped", hint="`driftless apply` takes it again")
        return bool(told["type"] == "COMPLETED")

    def _ask(self, table: str, signal: str, only: str) -> None:
        """Insert the signal, by which Debezium begins."""
        name = java_pattern(*split_name(table))
        data: dict[str, object] = {"data-collections": [name], "type": "incremental"}
        if only:
            data["additional-conditions"] = [{"data-collection": name, "filter": only}]
        # Each row is a signal, and has a key; what is told of the snapshot bears it.
        row = f"{signal}/{uuid.uuid4().hex[:8]}"
        self._source.signal(names.signal_table(self._pipeline), row, "execute-snapshot", json.dumps(data))
