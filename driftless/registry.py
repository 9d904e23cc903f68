"""The registry of epochs: which epoch a record of a topic belongs to, and from where the log may be read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from driftless.control import State
from driftless.errors import SourceError
from driftless.kafka import Kafka, Offsets
from driftless.version import make_version


@dataclass(frozen=True)
class Epoch:
    """`floors`: the first offset of each partition that belongs to it. `lsn`: the source's position at its begin."""

    number: int
    floors: Offsets
    why: str
    lsn: int = 0


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
    def floor(self) -> Offsets:
        """Where every reader starts: rows deleted before it may have no tombstone in the log."""
        return self.newest.floors

    def upto(self, epoch: int) -> TopicLog:
        """The log as it was before any later epoch. Raises SourceError where that epoch is not registered yet."""
        known = tuple(e for e in self.epochs if e.number <= epoch)
        if not known or known[-1].number != epoch:
            raise SourceError(
                f"{self.topic} has no epoch {epoch} yet: its snapshot is not complete",
                hint="`driftless apply` goes on with it",
            )
        return replace(self, epochs=known)

    @property
    def next_number(self) -> int:
        """The number of the epoch that would begin now."""
        return self.newest.number + 1 if self.epochs else 1

    def begin(self, floors: Offsets, why: str, lsn: int) -> TopicLog:
        """The log with one more epoch."""
        return replace(self, epochs=(*self.epochs, Epoch(self.next_number, floors, why, lsn)))

    def fact(self, table: str) -> dict[str, dict[str, object] | None]:
        """What to write into the control topic to register it as the log of a table."""
        return {f"epochs/{table}": self.to_json()}

    def epoch_of(self, partition: int, offset: int) -> int:
        """The epoch of a record. An epoch belongs to the record, not to the moment it is read."""
        for epoch in reversed(self.epochs):
            if offset >= epoch.floors[partition]:
                return epoch.number
        raise ValueError(f"{self.topic}/{partition}/{offset} is below the floor of the first epoch")

    def version(self, partition: int, offset: int) -> int:
        return make_version(self.epoch_of(partition, offset), offset)

    def to_json(self) -> dict[str, object]:
        epochs = [
            {"number": e.number, "floors": {str(p): o for p, o in e.floors.items()}, "why": e.why, "lsn": e.lsn}
            for e in self.epochs
        ]
        return {"topic": self.topic, "topic_id": self.topic_id, "partitions": self.partitions, "epochs": epochs}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TopicLog:
        epochs = tuple(
            Epoch(e["number"], {int(p): o for p, o in e["floors"].items()}, e["why"], e.get("lsn", 0))
            for e in data["epochs"]
        )
        return cls(data["topic"], data["topic_id"], data["partitions"], epochs)


def first_epoch(topic: str, topic_id: str, partitions: int) -> TopicLog:
    """The registration of a topic that has just been made."""
    return TopicLog(topic, topic_id, partitions).begin(dict.fromkeys(range(partitions), 0), "first snapshot", 0)


def registered_log(state: State, table: str) -> TopicLog | None:
    """The log of a table; None where it is not captured, or its first snapshot is not complete."""
    fact = state.get(f"epochs/{table}")
    return None if fact is None else TopicLog.from_json(fact)


def has_epoch(state: State, table: str, number: int) -> bool:
    """Whether an epoch of a table is registered: while its snapshot is being taken, it is not yet."""
    log = registered_log(state, table)
    return log is not None and number <= log.newest.number


def same_topic(kafka: Kafka, log: TopicLog) -> None:
    """Raise SourceError unless the topic is the very one that was registered, with as many partitions."""
    found = kafka.topic(log.topic)
    if found is None or found.id != log.topic_id:
        what = "is gone" if found is None else "was deleted and made again"
        raise SourceError(
            f"the topic {log.topic} {what} since it was registered: offsets in it mean nothing to the followers",
            hint="remove the pipeline's connector, slot and topics, then `driftless apply` takes a new snapshot",
        )
    if found.partitions != log.partitions:
        raise SourceError(
            f"the topic {log.topic} has {found.partitions} partitions, {log.partitions} are registered",
            hint="a new topic and a new snapshot are needed",
        )
