"""What an error of Kafka's means to us, and what to do about it."""

from __future__ import annotations

from confluent_kafka import KafkaError

from driftless.errors import SourceError, SourceUnavailable

_REFUSED = "if Kafka denies a right, give it to the user of kafka.security; else the broker's log says more"
_STALE_LEADERS = {
    KafkaError._NOENT,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
}
"""What brokers answer, after one of them restarted, to a client that knows the leaders of before."""


def unreadable(topic: str, error: KafkaError) -> SourceError:
    """The error that stands for one that a consumer of a topic has met."""
    return SourceError(f"reading {topic}: {error.str()}", hint=_REFUSED)


def not_taken(topic: str, what: str, seconds: float) -> SourceError:
    """The error that stands for records which a producer could not hand over in time."""
    hint = "see whether the brokers run and have room on their disks; then try again"
    return SourceError(f"{topic}: Kafka did not take {what} within {seconds:.0f} s", hint=hint)


def is_fencing(error: KafkaError) -> bool:
    """Whether the brokers refuse a producer because another one has taken its transactional id."""
    return error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def kafka_error(error: KafkaError, bootstrap: str) -> SourceError:
    """The error that says what to do about a client's error."""
    unreachable = {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        # What a broker that restarts answers for a while; the client does not call these retriable.
        *_STALE_LEADERS,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
    if error.retriable() or error.code() in unreachable:
        hint = "is the broker running, and is kafka.bootstrap right? `driftless up` starts a local one"
        return SourceUnavailable(f"Kafka at {bootstrap} cannot be reached: {error.str()}", hint=hint)
    return SourceError(f"Kafka at {bootstrap}: {error.str()}", hint=_REFUSED)
