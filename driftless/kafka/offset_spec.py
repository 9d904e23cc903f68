"""What stands for the places of a partition that are asked for, and asking the admin client for them."""

from __future__ import annotations

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

EARLIEST, LATEST = -2, -1
"""The ends of a partition where a time is asked for: see ListOffsets in Kafka's protocol."""
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


def admin_offsets(
    admin: AdminClient, wanted: list[TopicPartition], isolation: str, seconds: float
) -> list[TopicPartition]:
    """The brokers' answer on each partition, with the number of its leader: the offset at the time, in milliseconds, or
    at the end that stands in `wanted` as its offset. Raises KafkaException.
    """
    level = IsolationLevel.READ_COMMITTED if isolation == COMMITTED else IsolationLevel.READ_UNCOMMITTED
    specs = {place: OffsetSpec.for_timestamp(place.offset) for place in wanted}
    answers = []
    for place, future in admin.list_offsets(specs, isolation_level=level, request_timeout=seconds).items():
        found = future.result()
        epoch = -1 if found.leader_epoch is None else found.leader_epoch
        answers.append(TopicPartition(place.topic, place.partition, found.offset, leader_epoch=epoch))
    return answers
