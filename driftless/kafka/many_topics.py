"""Topics by the hundred: what a plan asks and does of all of them goes in a few requests."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec, ResourceType

from driftless.errors import SourceError, SourceUnavailable
from driftless.kafka.client import TIMEOUT, Kafka, Topic

AT_ONCE = 100
"""Topics in one request: a controller makes so many with 4 partitions each in 1 s, well within `TIMEOUT`."""

MADE_SECONDS = 120.0


def describe(kafka: Kafka, names: Iterable[str]) -> dict[str, Topic]:
    """The topics of these names that exist, as they are now."""
    found: dict[str, Topic] = {}
    for some in _portions(names):
        with kafka.asking() as admin:
            for name, future in admin.describe_topics(TopicCollection(some), request_timeout=TIMEOUT).items():
                try:
                    told = future.result()
                except KafkaException as exc:
                    if exc.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
                else:
                    found[name] = Topic(name, str(told.topic_id), len(told.partitions))
    return found


def describe_made(kafka: Kafka, names: Iterable[str], seconds: float = MADE_SECONDS) -> dict[str, Topic]:
    """The same of topics that have just been made, all of them. Raises SourceError for one that does not come.

    A broker tells of them one after another: it makes the folders of some hundreds first, which takes it seconds.
    """
    found: dict[str, Topic] = {}
    deadline, left = time.monotonic() + seconds, list(names)
    while left:
        found |= describe(kafka, left)
        left = [name for name in left if name not in found]
        if left and time.monotonic() > deadline:
            raise SourceError(
                f"the topic {left[0]} is not there {seconds:.0f} s after it was made",
                hint="something deletes it, or the brokers are overloaded; `driftless apply` resumes",
            )
        if left:
            time.sleep(0.2)
    return found


def newest_times(kafka: Kafka, topics: Mapping[str, int]) -> dict[str, float]:
    """When the newest record of each topic was written, in seconds since 1970; without those that have none. `topics`:
    with how many partitions.
    """
    found: dict[str, float] = {}
    spec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(topic, p): spec for topic, count in topics.items() for p in range(count)}
    if not wanted:
        return found
    with kafka.asking() as admin:
        for place, future in admin.list_offsets(wanted, request_timeout=TIMEOUT).items():
            told = future.result()
            if told.offset >= 0:
                found[place.topic] = max(found.get(place.topic, 0.0), told.timestamp / 1000)
    return found


def settings_in_force(kafka: Kafka, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Every setting of each of these topics, all of which exist."""
    found: dict[str, dict[str, str]] = {}
    for some in _portions(names):
        with kafka.asking() as admin:
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in some]
            for resource, future in admin.describe_configs(resources, request_timeout=TIMEOUT).items():
                found[resource.name] = {key: str(entry.value) for key, entry in future.result().items()}
    return found


_REFUSED = {
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REQUEST,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
"""Answers of brokers that stay the same until somebody changes what was asked, or the brokers' rules."""


def refusals(kafka: Kafka, replication: int, topics: Mapping[str, tuple[int, Mapping[str, str]]]) -> dict[str, str]:
    """Why the brokers would not make these topics, of each that they would not: their own words. Makes none."""
    found: dict[str, str] = {}
    for some in _portions(topics):
        with kafka.asking() as admin:
            wanted = _new_topics(some, replication, topics)
            for name, future in admin.create_topics(wanted, request_timeout=TIMEOUT, validate_only=True).items():
                try:
                    future.result()
                except KafkaException as exc:
                    if exc.args[0].code() not in _REFUSED:
                        raise
                    found[name] = str(exc.args[0].str())
    return found


def create_topics(kafka: Kafka, replication: int, topics: Mapping[str, tuple[int, Mapping[str, str]]]) -> None:
    """Create topics: name -> (partitions, settings). One that exists already is left as it is.

    Returns when the brokers serve them all: until a broker has made their folders, it does not lead them.
    """
    made: dict[str, int] = {}
    for some in _portions(topics):
        with kafka.asking() as admin:
            wanted = _new_topics(some, replication, topics)
            for name, future in admin.create_topics(wanted, operation_timeout=TIMEOUT).items():
                try:
                    future.result()
                except KafkaException as exc:
                    if exc.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
                else:
                    made[name] = topics[name][0]
    _await_leaders(kafka, made)


def _new_topics(
    some: Iterable[str], replication: int, topics: Mapping[str, tuple[int, Mapping[str, str]]]
) -> list[NewTopic]:
    return [NewTopic(name, topics[name][0], replication, config=dict(topics[name][1])) for name in some]


def _await_leaders(kafka: Kafka, made: Mapping[str, int]) -> None:
    """The newest is asked for first, which costs least: a broker makes them in their order."""
    deadline = time.monotonic() + MADE_SECONDS
    for asked in ({name: made[name] for name in list(made)[-1:]}, made):
        while asked:
            try:
                kafka.written_ends(asked)
            except SourceUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                break


def _portions(names: Iterable[str]) -> Iterator[list[str]]:
    left = iter(names)
    while some := list(islice(left, AT_ONCE)):
        yield some
