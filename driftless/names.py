"""Every name that is made for a pipeline, in one place."""

from __future__ import annotations


def slot(pipeline: str) -> str:
    """The replication slot, and the publication: Postgres allows only lower case, digits and `_`."""
    return "driftless_" + pipeline.replace("-", "_")


publication = slot


def table_topic(pipeline: str, table: str) -> str:
    return f"{pipeline}.{table}"


def message_topic(pipeline: str) -> str:
    """Where Debezium puts logical messages: the markers."""
    return f"{pipeline}.message"


def heartbeat_topic(pipeline: str) -> str:
    return f"__debezium-heartbeat.{pipeline}"


def control_topic(pipeline: str) -> str:
    return f"{pipeline}.control"


def quarantine_topic(pipeline: str) -> str:
    return f"{pipeline}.quarantine"


def connector(pipeline: str) -> str:
    return f"driftless-{pipeline}"


def lease_id(pipeline: str, follower: str) -> str:
    """The transactional id by which the brokers fence an older runner of a follower."""
    return f"driftless.{pipeline}.{follower}"


MARKER_PREFIX = "driftless"
"""The prefix of the logical messages that are markers."""
