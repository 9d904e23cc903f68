"""The registry of epochs: which epoch a record of a topic belongs to, and from where the log may be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, NotRequired, TypedDict

from driftless.config.duration import milliseconds
from driftless.config.models import Config
from driftless.errors import LogReplaced, SourceError
from driftless.facts.state import State
from driftless.kafka.client import Kafka, Offsets, Topic
from driftless.kafka.topic_settings import MAX_MESSAGE_BYTES
from driftless.version import make_version

MENDED = "`driftless apply` mends it"
TRUNCATED = "TRUNCATE at "
"""How the reason of an epoch begins that no snapshot began."""
APPLY = "run `driftless apply`: it re-snapshots the tables; then restart `driftless run`"


@dataclass(frozen=True)
class Epoch:
    """`floors`: the first offset of each partition that belongs to it. `lsn`: the source's position at its begin.

    `read`: when Debezium had last read all tables by then, as it told (see driftless/control/initial_snapshot.py); 0
    for never since the pipeline was made. `topic_id`: of the topic that its offsets are of.
    """

    number: int
    floors: Offsets
    why: str
    lsn: int = 0
    read: float = 0.0
    topic_id: str = ""


@dataclass(frozen=True)
class TopicLog:
    """A table's topic as registered: its identity, its partition count, which never changes, and its epochs."""

    topic: str
    topic_id: str
    partitions: int
    epochs: tuple[Epoch, ...] = ()

    @property
    def newest(self) -> Epoch:
        return self.epochs[-1]

    @property
    def newest_snapshot(self) -> Epoch:
        """The newest epoch that began with a snapshot, not with a TRUNCATE."""
        return next((e for e in reversed(self.epochs) if not e.why.startswith(TRUNCATED)), self.epochs[0])

    @property
    def floor(self) -> Offsets:
        """Where every reader starts: rows deleted before it may have no tombstone in the log."""
        return self.newest.floors

    def until_epoch(self, epoch: int) -> TopicLog:
        """The log as it was before any later epoch. Raises SourceError where that epoch is not registered yet."""
        known = tuple(e for e in self.epochs if e.number <= epoch)
        topic_id = (known[-1].topic_id if known else "") or self.topic_id
        known = tuple(e for e in known if (e.topic_id or self.topic_id) == topic_id)
        if not known or known[-1].number != epoch:
            raise SourceError(
                f"{self.topic} has no epoch {epoch} yet: its snapshot is not complete",
                hint="`driftless apply` resumes it",
            )
        return replace(self, topic_id=topic_id, epochs=known)

    @property
    def next_number(self) -> int:
        """The number of the epoch that would begin now."""
        return self.newest.number + 1 if self.epochs else 1

    def begin(self, floors: Offsets, why: str, lsn: int, read: float = 0.0) -> TopicLog:
        """The log with one more epoch."""
        read = max(read, self.newest.read if self.epochs else 0.0)
        epoch = Epoch(self.next_number, floors, why, lsn, read, self.topic_id)
        return replace(self, epochs=(*self.clamped_to(floors).epochs, epoch))

    def clamped_to(self, ends: Offsets) -> TopicLog:
        """The same log where a broker has lost what lay behind `ends`: what comes there now is of no older epoch."""
        epochs = [
            replace(e, floors={p: min(floor, ends[p]) for p, floor in e.floors.items()})
            if (e.topic_id or self.topic_id) == self.topic_id
            else e
            for e in self.epochs
        ]
        return replace(self, epochs=tuple(epochs))

    def with_topic(self, topic_id: str, partitions: int) -> TopicLog:
        """The same table's log in a topic that was recreated: epochs go on, offsets begin at 0."""
        older = tuple(replace(e, topic_id=e.topic_id or self.topic_id) for e in self.epochs)
        return replace(self, topic_id=topic_id, partitions=partitions, epochs=older)

    def fact(self, table: str) -> dict[str, dict[str, object] | None]:
        """What to write into the control topic to register it as the log of a table."""
        return {f"epochs/{table}": self.to_json()}

    @property
    def ends(self) -> list[tuple[int, Offsets]]:
        """Each epoch but the newest with the offsets that it ends at, oldest first.

        A record is of the first epoch whose end it lies before, else of the newest: an epoch belongs to the record, not
        to the moment it is read.
        """
        return [(epoch.number, after.floors) for epoch, after in pairwise(self.epochs)]

    def epoch_of(self, partition: int, offset: int) -> int:
        """The epoch of a record."""
        return next((number for number, ends in self.ends if offset < ends[partition]), self.newest.number)

    def version(self, partition: int, offset: int) -> int:
        return make_version(self.epoch_of(partition, offset), offset)

    def to_json(self) -> dict[str, object]:
        epochs = [
            {
                "number": e.number,
                "floors": {str(p): o for p, o in e.floors.items()},
                "why": e.why,
                "lsn": e.lsn,
                "read": e.read,
                "topic_id": e.topic_id,
            }
            for e in self.epochs
        ]
        return {"topic": self.topic, "topic_id": self.topic_id, "partitions": self.partitions, "epochs": epochs}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TopicLog:
        epochs = tuple(
            Epoch(**{**e, "floors": {int(p): offset for p, offset in e["floors"].items()}}) for e in data["epochs"]
        )
        return cls(data["topic"], data["topic_id"], data["partitions"], epochs)


def first_epoch(topic: str, topic_id: str, partitions: int) -> TopicLog:
    """The registration of a topic that has just been made."""
    return TopicLog(topic, topic_id, partitions).begin(dict.fromkeys(range(partitions), 0), "first snapshot", 0)


def registered_log(state: State, table: str) -> TopicLog | None:
    """The log of a table; None where it is not captured, or its first snapshot is not complete."""
    fact = state.get(f"epochs/{table}")
    return None if fact is None else TopicLog.from_json(fact)


def registered_tables(state: State) -> set[str]:
    """The tables that have a log, or a snapshot on its way to one."""
    return {*state.by_prefix("epochs"), *state.by_prefix("snapshot")}


class LogName(TypedDict):
    """How the fact of a generation names the log that it follows. `build`: of its view, 0 for the table's own log.
    `stream`: the build of its stream, where it follows one.
    """

    epoch: int
    build: int
    stream: NotRequired[int]


@dataclass(frozen=True)
class FollowedTable:
    """The log of a table, from the floor of an epoch on: a `FollowedLog`."""

    ours: ClassVar[bool] = False
    renewal: ClassVar[str] = "its table is re-snapshotted"
    table: str
    epoch: int = 1
    fingerprint: str = ""

    def to_json(self) -> LogName:
        return {"epoch": self.epoch, "build": 0}

    def known(self, state: State) -> FollowedTable:
        del state
        return self

    def is_registered(self, state: State) -> bool:
        log = registered_log(state, self.table)
        return log is not None and self.epoch <= log.newest.number

    def is_superseded(self, state: State) -> bool:
        log = registered_log(state, self.table)
        return log is not None and self.epoch < log.newest.number

    def newest(self, state: State) -> FollowedTable:
        log = registered_log(state, self.table)
        return self if log is None else replace(self, epoch=log.newest.number)

    def why_newest(self, state: State) -> str:
        log = registered_log(state, self.table)
        return f"{self.table}: {log.newest.why}" if log else ""

    def build(self, state: State) -> None:
        del state

    def topic(self, state: State) -> TopicLog:
        log = registered_log(state, self.table)
        if log is None:
            raise SourceError(f"the table {self.table} is not captured any more", hint="run `driftless plan`")
        return log.until_epoch(self.epoch)

    def retention_seconds(self, config: Config, state: State) -> float:
        del state
        captured = config.source.tables.get(self.table)
        return milliseconds(captured.retention if captured else "7d") / 1000

    def progress(self, state: State) -> list[dict[str, Any]]:
        del state
        return []


def same_topic(kafka: Kafka, log: TopicLog) -> None:
    """Raise LogReplaced unless the topic is the very one that was registered, with as many partitions."""
    if reason := another_topic(kafka, log):
        raise topic_replaced(log, reason)


def topic_replaced(log: TopicLog, reason: str) -> LogReplaced:
    return LogReplaced(f"the topic {log.topic} {reason}; saved offsets are no longer valid", hint=APPLY)


def another_topic(kafka: Kafka, log: TopicLog) -> str:
    """Why a topic is not the one that was registered; empty where it is."""
    return mismatch_reason(log, kafka.topic(log.topic))


def mismatch_reason(log: TopicLog, found: Topic | None) -> str:
    """Why the topic that is there, if any, is not the one that was registered; empty where it is."""
    if found is None:
        return "is gone since it was registered"
    if found.id != log.topic_id:
        return "was recreated"
    if found.partitions != log.partitions:
        return f"has {found.partitions} partitions, and {log.partitions} were registered"
    return ""


def records_gone(log: TopicLog, first: Offsets) -> str:
    """Why a log cannot be read from its floor any more; empty where it can. `first`: the offsets that it begins at."""
    lost = [p for p, offset in first.items() if offset > log.floor[p]]
    return f"records are gone from partition {lost[0]} of its topic" if lost else ""


def keeps_all(kafka: Kafka, log: TopicLog) -> None:
    """Raise SourceError unless the topic keeps the newest record of every key for ever."""
    keeps_newest(log, kafka.topic_settings(log.topic))


def keeps_newest(log: TopicLog, settings: Mapping[str, str]) -> None:
    """The same by the settings of its topic."""
    policy = settings.get("cleanup.policy")
    if policy != "compact":
        raise SourceError(f"the topic {log.topic} has cleanup.policy={policy}: it forgets rows", hint=MENDED)


def takes_large_records(log: TopicLog, settings: Mapping[str, str]) -> None:
    """Raise SourceError unless the topic takes every record that driftless and the connector may write."""
    limit = int(settings.get("max.message.bytes", MAX_MESSAGE_BYTES))
    if limit < MAX_MESSAGE_BYTES:
        what = f"the topic {log.topic} has max.message.bytes={limit}: a larger record would stop who writes it"
        raise SourceError(what, hint=MENDED)
