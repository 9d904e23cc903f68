"""What a topic holds, read with the plain client."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.machine import until


def make_events_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """A topic into which an application writes events, as `driftless check` wants it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # must live until the broker has answered
    new = NewTopic(topic, partitions, config={"message.timestamp.type": "LogAppendTime"})
    for made in admin.create_topics([new]).values():
        made.result()


def records(bootstrap: str, topic: str, *, committed: bool = False) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of every record, as the bytes that are there, to the end as it is now. `committed`: without those
    of transactions that were aborted.
    """
    found = []
    settings = {"bootstrap.servers": bootstrap, "group.id": "test", "enable.partition.eof": True}
    isolation = "read_committed" if committed else "read_uncommitted"
    consumer = Consumer({**settings, "isolation.level": isolation, "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, timeout=15).topics[topic].partitions

    def ends_now() -> dict[int, int] | None:
        try:
            return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=15)[1] for p in partitions}
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
            return None  # a broker that has just made the topic does not lead it yet

    # Of a topic that is written all the time the client never tells the end.
    ends = (until("the partitions to be led", ends_now, 15) if partitions else None) or {}
    left = {p for p, end in ends.items() if end}
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in left])
    while left:
        message = consumer.poll(15)
        assert message is not None, f"{topic} could not be read to its end within 15 s"
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            continue
        assert partition is not None
        assert offset is not None
        if error is None and offset < ends[partition]:
            found.append((message.key(), message.value()))
        if error is not None or offset + 1 >= ends[partition]:
            left.discard(partition)
    consumer.close()
    return found
