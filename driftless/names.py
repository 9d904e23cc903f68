"""Every name that is made for a pipeline, in one place."""

from __future__ import annotations

import hashlib

from driftless.table import join_name, split_name


def slot(pipeline: str) -> str:
    """The replication slot, and the publication: Postgres allows only lower case, digits and `_`."""
    return "driftless_" + pipeline.replace("-", "_")


publication = slot


def table_topic(pipeline: str, table: str) -> str:
    """As Debezium names it: what no topic's name may hold becomes `_`, for each UTF-16 unit of it.

    Two tables may meet in one topic; `driftless check` refuses that.
    """
    return "".join(_in_topic(char) for char in ".".join((pipeline, *split_name(table))))


def _in_topic(char: str) -> str:
    return char if char.isascii() and (char.isalnum() or char in "._-") else "_" * (1 + (ord(char) > 0xFFFF))


def message_topic(pipeline: str) -> str:
    """Where Debezium puts logical messages: the markers."""
    return f"{pipeline}.message"


def transaction_topic(pipeline: str) -> str:
    """Where Debezium tells of the beginning and the end of each transaction."""
    return f"{pipeline}.transaction"


def view_topic(pipeline: str, view: str, build: int) -> str:
    """The log of a view of several tables, one for each build of it."""
    return f"{pipeline}.view.{view}.{build}"


def view_lease(view: str, shard: int = 0) -> str:
    """What the lease of a view, or of a shard of it, is called, so that a follower may have the view's name."""
    return f"view {view}/{shard}" if shard else f"view {view}"


def stream_topic(pipeline: str, stream: str, build: int) -> str:
    """The log of a stream, one for each build of it."""
    return f"{pipeline}.stream.{stream}.{build}"


def ticks_topic(pipeline: str, stream: str, build: int) -> str:
    """Where a build is told up to which moment all events are there: its windows close by that alone."""
    return f"{stream_topic(pipeline, stream, build)}.ticks"


def batches_topic(pipeline: str, stream: str, build: int) -> str:
    """Where a build keeps what it has published of which events, in one transaction with the documents."""
    return f"{stream_topic(pipeline, stream, build)}.batches"


def late_topic(pipeline: str, stream: str, build: int) -> str:
    """Where a build says which events it left out, and why."""
    return f"{stream_topic(pipeline, stream, build)}.late"


def stream_topics(pipeline: str, stream: str, build: int) -> tuple[str, ...]:
    """All that a build has."""
    return tuple(name(pipeline, stream, build) for name in (stream_topic, ticks_topic, batches_topic, late_topic))


def stream_lease(stream: str) -> str:
    """What the lease of a stream is called, so that a follower may have the stream's name."""
    return f"stream {stream}"


HEARTBEAT_PREFIX = "__debezium-heartbeat"
"""Debezium's own, where sync.yaml gives no other."""


def heartbeat_topic(pipeline: str, prefix: str = HEARTBEAT_PREFIX) -> str:
    return f"{prefix}.{pipeline}"


def control_topic(pipeline: str) -> str:
    return f"{pipeline}.control"


def quarantine_topic(pipeline: str) -> str:
    return f"{pipeline}.quarantine"


def connector(pipeline: str) -> str:
    return f"driftless-{pipeline}"


def lease_id(pipeline: str, follower: str) -> str:
    """The transactional id by which the brokers fence an older runner of a follower."""
    return f"driftless.{pipeline}.{follower}"


def signal_table(pipeline: str) -> str:
    """The table of the source by which Debezium is asked for a snapshot."""
    return join_name(SCHEMA, slot(pipeline).replace("driftless", "signals", 1))


def notification_topic(pipeline: str) -> str:
    """Where Debezium tells how far such a snapshot is."""
    return f"{pipeline}.notifications"


def unavailable(pipeline: str) -> str:
    """What stands in the log for a value that Postgres did not give. No application writes this text by chance."""
    return f"__driftless_unavailable_{hashlib.sha256(pipeline.encode()).hexdigest()[:16]}"


def message_prefix(pipeline: str) -> str:
    """What the prefix of a pipeline's logical messages begins with. Its token follows, and for a TRUNCATE `:` and the
    table, so that compaction keeps the newest of each.
    """
    return f"{MARKER_PREFIX}:{pipeline}:"


MARKER_PREFIX = "driftless"
"""The prefix of markers without a token, as older versions wrote them; of every other message, the beginning."""
TRUNCATE_PREFIX = "driftless.truncate."
"""What the prefix of a TRUNCATE's message without a token begins with; the table's name follows."""
TRUNCATE_TRIGGER = "driftless_truncate"
PARTITION_TRIGGER = "driftless_partition"
"""Of partitions, and of the table that has them: tells of a TRUNCATE of one of them alone."""
SCHEMA = "driftless"
"""Where in the source everything is that driftless makes there, but for triggers."""
TRUNCATED_PARTITIONS = f"{SCHEMA}.truncated_partitions"
"""The table of the source that has each TRUNCATE of a partition alone."""
TOKENS = f"{SCHEMA}.tokens"
"""The table of the source that holds each pipeline's token."""
