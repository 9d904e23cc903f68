"""Where the logs of all tables end, and how old their newest records are."""

from __future__ import annotations

from driftless.facts.epochs import registered_log
from driftless.facts.state import State
from driftless.kafka.client import Kafka
from driftless.kafka.many_topics import newest_times
from driftless.metrics.figures import LogTails


def log_tails(kafka: Kafka, state: State, now: float) -> LogTails:
    """`now`: the broker's time. Raises SourceUnavailable where the brokers do not answer."""
    logs = {table: log for table in state.by_prefix("epochs") if (log := registered_log(state, table)) is not None}
    topics = {log.topic: log.partitions for log in logs.values()}
    begins, ends = kafka.all_beginnings(topics), kafka.written_ends(topics)
    newest = newest_times(kafka, topics)
    records = {table: sum(ends[log.topic].values()) - sum(begins[log.topic].values()) for table, log in logs.items()}
    ages = {table: max(0.0, now - newest[log.topic]) for table, log in logs.items() if log.topic in newest}
    return LogTails(records, ages)
