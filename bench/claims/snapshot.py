"""Debezium's first snapshot of a table with the settings that `driftless apply` gives it, against its own defaults."""

from __future__ import annotations

import time

import psycopg

from bench.database import database, fill
from bench.figures import Figure, Report, Scale, median
from bench.pipeline import Pipeline, pipeline, until
from connectors.debezium.connect import Connect
from driftless import names
from driftless.config.models import ConnectConfig
from stack import Stack

_TUNED = (
    "snapshot.fetch.size",
    "max.batch.size",
    "max.queue.size",
    "max.queue.size.in.bytes",
    "poll.interval.ms",
    "producer.override.linger.ms",
    "producer.override.compression.type",
    "producer.override.buffer.memory",
    "exactly.once.support",
    "transaction.boundary",
)
_OTHERS = ("signal.", "notification.", "heartbeat.", "read.only", "incremental.")
"""What only serves the stream, under names that belong to the first connector."""


def run(stack: Stack, scale: Scale, report: Report) -> list[Figure]:
    """`scale.rows` rows of about 300 bytes, read by each in turn."""
    ours, theirs = list[float](), list[float]()
    with database(stack) as dsn:
        report(f"a table of {scale.rows:,} rows")
        fill(dsn, scale.rows)
        for _ in range(scale.pairs):
            with pipeline(stack, {"cache": ("redis", {})}, dsn=dsn) as p:
                p.command("apply")
                ours.append(_taken(p, p.topic(), scale.rows))
                report(f"as `apply` sets it up: {scale.rows / ours[-1]:,.0f} rows/s")
                theirs.append(_by_default(p, scale.rows))
                report(f"with Debezium's defaults: {scale.rows / theirs[-1]:,.0f} rows/s")
    rate, reference = scale.rows / median(ours), scale.rows / median(theirs)
    ratio = median([their / our for our, their in zip(ours, theirs, strict=True)])
    return [Figure("Debezium's first snapshot, before and after tuning", rate, "rows/s", reference, ratio)]


def _by_default(p: Pipeline, rows: int) -> float:
    """The same connector with nothing tuned, into a topic and by a slot of its own."""
    connect, prefix = Connect(ConnectConfig(url=p.endpoints.connect)), f"{p.name}-plain"
    mine, slot = names.connector(p.name), f"{names.slot(p.name)}_plain"
    settings = connect.config(mine)
    assert settings is not None
    connect.delete(mine)  # only one of them is to work
    settings = {key: value for key, value in settings.items() if key not in _TUNED and not key.startswith(_OTHERS)}
    settings |= {"name": f"{mine}-plain", "topic.prefix": prefix, "slot.name": slot}
    topic = p.topic().replace(p.name, prefix, 1)
    p.kafka.create(topic, p.partitions, {"cleanup.policy": "compact"})
    connect.put(settings["name"], settings)
    try:
        return _taken(p, topic, rows)
    finally:
        connect.delete(settings["name"])
        with psycopg.connect(p.config.source.dsn, autocommit=True) as connection:
            drop = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s"
            until("its slot to be free", lambda: connection.execute(f"{drop} and not active", (slot,)).fetchone())
        p.kafka.delete(topic)


def _taken(p: Pipeline, topic: str, rows: int) -> float:
    """Seconds from the first record of a topic to its last, by their own times."""
    until("the snapshot", lambda: _written(p, topic) >= rows, 1200, every=0.5)
    before = 0
    while before < (before := _written(p, topic)):  # what ends transactions is counted too
        time.sleep(2)
    records = p.kafka.read_to_end(topic, partitions=p.partitions, isolation="read_committed")
    times = [message.timestamp()[1] for message in records]
    assert len(times) == rows, f"{topic} has {len(times)} records where there are {rows} rows"
    return max(0.001, (max(times) - min(times)) / 1000)


def _written(p: Pipeline, topic: str) -> int:
    """Records of a topic, more by those that end a transaction; none while the topic is not there."""
    return sum(p.kafka.written_ends({topic: p.partitions})[topic].values())
