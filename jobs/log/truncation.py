"""A TRUNCATE as a new epoch: its floors lie between the last record before it and the first one after it."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, Message, TopicPartition

from driftless.errors import SourceUnavailable
from driftless.facts.epochs import TRUNCATED, TopicLog
from driftless.kafka.client import Kafka
from driftless.kafka.errors import unreadable
from driftless.lsn import format_lsn
from driftless.marker import Truncation

ANSWER_SECONDS = 5.0
DECIDED_SECONDS = 0.5
"""How long a transaction in Kafka is waited for at a time: the runner has leases to renew."""
CLOCKS = 60.0
"""How much earlier than the truncation's own record is read, in seconds: clocks of two Connect workers may differ."""


def truncated(kafka: Kafka, log: TopicLog, truncation: Truncation) -> TopicLog:
    """The log with the epoch that a truncation begins. Whoever computes it, the result is the same.

    TRUNCATE locks everybody else out of the table until it is committed. So what of the table was written before it
    has a lower LSN than the trigger's message; what was written later has its LSN, which is that of the message's end,
    or a higher one. Raises SourceUnavailable where a transaction is still open in Kafka.
    """
    ends = kafka.decided_ends(log.topic, log.partitions, DECIDED_SECONDS)
    floors = dict(ends)
    begin = kafka.offsets_at(log.topic, log.partitions, truncation.time - CLOCKS)
    left = {p for p, end in ends.items() if begin[p] < end}
    consumer = kafka.consumer(**{"enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(log.topic, p, max(begin[p], log.floor[p])) for p in left])
        while left:
            message = consumer.poll(ANSWER_SECONDS)
            if message is None:
                raise SourceUnavailable(
                    f"Kafka did not answer within {ANSWER_SECONDS:.0f} s while {log.topic} was read"
                )
            error, partition, offset = message.error(), message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise unreadable(log.topic, error)
                left.discard(partition)
            elif partition in left and _lsn(message) >= truncation.lsn:
                floors[partition] = min(offset, floors[partition])
                left.discard(partition)
                consumer.incremental_unassign([TopicPartition(log.topic, partition)])
    finally:
        consumer.close()
    return log.begin(floors, f"{TRUNCATED}{format_lsn(truncation.lsn)}", truncation.lsn)


def _lsn(message: Message) -> int:
    """The position of a record's change. A tombstone may have none; the row it deletes has."""
    return header_lsn(dict(message.headers() or []))


def header_lsn(headers: Mapping[str, bytes | str | None]) -> int:
    """The position that a record's headers name; 0 where they name none that Debezium could have written."""
    value = headers.get("lsn") or b""
    return int(value) if value.isdigit() and len(value) < 20 else 0
