"""Every figure that there is, with its meaning: the one list behind /metrics, the alerts, the dashboard and the docs.

Names follow Prometheus' conventions: base units, and `_total` for counters, which only rise during a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Type = Literal["gauge", "counter", "histogram"]
STATES = ("bootstrapping", "live", "rebuilding", "promoting", "paused", "stopped", "failed")
PIPELINE = "pipeline"
"""The label of every figure."""


@dataclass(frozen=True)
class Metric:
    """`name`: as it is scraped. `meaning`: a sentence. `labels`: beside `pipeline`, in the order of a sample's."""

    name: str
    type: Type
    meaning: str
    labels: tuple[str, ...] = ()


def _gauge(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"driftless_{name}", "gauge", meaning, labels)


def _counter(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"driftless_{name}_total", "counter", meaning, labels)


BUILD = _gauge("build_info", "Always 1. The label has the version that answers.", "version")
KAFKA_UP = _gauge("kafka_up", "1 where the control topic can be read, else 0.")
PROBLEM = _gauge(
    "problem", "1 for each thing that is wrong, as `driftless status` says it; none where all is well.", "kind", "who"
)

SOURCE_UP = _gauge("source_up", "1 where the source answers, else 0.")
SOURCE_POSITION = _gauge("source_position_bytes", "The source's position: its LSN as a number.")
SLOT_RETAINED = _gauge("slot_retained_bytes", "Write-ahead log that Postgres keeps for the replication slot.")
SLOT_LEFT = _gauge(
    "slot_left_bytes",
    "What may be written before Postgres gives the slot up, by max_slot_wal_keep_size; none where that is not set.",
)
SLOT_SECONDS = _gauge(
    "slot_left_seconds",
    "When that will be at the rate of the last ten minutes; none while the slot gains, or where it is not set.",
)
SLOT_LOST = _gauge("slot_lost", "1 where Postgres has given the slot up, else 0.")
CONNECTOR_UP = _gauge("connector_up", "1 where Connect says that the connector runs, else 0.")

TABLE_RECORDS = _gauge("table_log_records", "Offsets from the beginning of a table's log to its end.", "table")
TABLE_AGE = _gauge("table_log_age_seconds", "Since the newest record of a table's log was written.", "table")
TABLE_EPOCH = _gauge("table_epoch", "How often a table's log was begun: it rises with each re-snapshot.", "table")
TABLE_CHANGED = _gauge("table_changed", "1 where a table is no longer as it was registered, else 0.", "table")

VIEW_STATE = _gauge("view_state", "1 for the state of a view, 0 for all others.", "view", "state")
VIEW_BUILD = _gauge("view_build", "The number of a view's newest build.", "view")
VIEW_POSITION = _gauge("view_position_bytes", "Every commit at or before it is published: an LSN.", "view")
VIEW_LAG_SECONDS = _gauge("view_lag_seconds", "The age of that position, by the source's clock.", "view")
VIEW_LAG = _gauge("view_lag_records", "Records of its tables that a view has not read.", "view")
VIEW_WAITING = _gauge("view_waiting_documents", "Documents that wait to be published.", "view")
VIEW_QUARANTINED = _gauge("view_quarantined_documents", "Documents that are too large to publish.", "view")
VIEW_PUBLISHED = _counter("view_published_documents", "Documents published since the run began.", "view", "shard")
VIEW_STORE = _gauge("view_store_bytes", "What a view's row store takes of the disk.", "view", "shard")

STREAM_STATE = _gauge("stream_state", "1 for the state of a stream, 0 for all others.", "stream", "state")
STREAM_BUILD = _gauge("stream_build", "The number of a stream's newest build.", "stream")
STREAM_POSITION = _gauge("stream_position_bytes", "Every commit at or before it is published: an LSN.", "stream")
STREAM_LAG_SECONDS = _gauge("stream_lag_seconds", "The age of that position, by the source's clock.", "stream")
STREAM_LAG = _gauge("stream_lag_records", "Events that a stream has not read.", "stream")
STREAM_CLOSED = _gauge(
    "stream_closed_timestamp_seconds", "All windows that end at or before this moment are published.", "stream"
)
STREAM_EVENTS = _counter(
    "stream_left_out_events", "Events that a build has left out, by why: docs/streams.md.", "stream", "why"
)
STREAM_CORRECTED = _counter("stream_corrected_documents", "Final documents that late events corrected.", "stream")
STREAM_PUBLISHED = _counter("stream_published_documents", "Documents published since the run began.", "stream")
STREAM_ROWS = _gauge("stream_state_rows", "Groups, and rows of joins, that a stream keeps open.", "stream")
STREAM_BYTES = _gauge("stream_state_bytes", "What Spark keeps for them, in memory and on disk.", "stream")

FOLLOWER_STATE = _gauge("follower_state", "1 for the state of a follower, 0 for all others.", "follower", "state")
FOLLOWER_GENERATION = _gauge("follower_generation", "The generation that readers see.", "follower")
FOLLOWER_GENERATIONS = _gauge("follower_generations", "How many generations are kept.", "follower")
FOLLOWER_EPOCH = _gauge("follower_epoch", "The epoch of the table's log that readers' generation follows.", "follower")
FOLLOWER_POSITION = _gauge("follower_position_bytes", "Every commit at or before it can be read: an LSN.", "follower")
FOLLOWER_LAG_SECONDS = _gauge("follower_lag_seconds", "The age of that position, by the source's clock.", "follower")
FOLLOWER_LAG = _gauge("follower_lag_records", "Records of its log that a follower has not applied.", "follower")
FOLLOWER_DOCUMENTS = _gauge("follower_documents", "Documents that readers see, as last counted.", "follower")
FOLLOWER_QUARANTINED = _gauge("follower_quarantined_documents", "Documents that the store refused.", "follower")
FOLLOWER_PROVEN = _gauge(
    "follower_proven",
    "1 where the last `verify` found it in sync, 0 where it did not; none before.",
    "follower",
)
FOLLOWER_PROOF_AGE = _gauge("follower_proof_age_seconds", "Since the last `verify` of a follower ended.", "follower")

_G = ("follower", "generation")
WRITTEN = _counter("follower_written_documents", "Writes that the store took since the run began.", *_G)
STALE = _counter("follower_stale_documents", "Writes that the store skipped: it had that version or a newer one.", *_G)
REFUSED = _counter("follower_refused_documents", "Writes that the store refused for good, by reason.", *_G, "reason")
RETRIES = _counter("follower_retries", "How often a request was given again, or a server waited for.", *_G)
RECORDS = _counter("follower_read_records", "Records of the log that were read and applied.", *_G)
SLICES = _counter("follower_slices", "Slices of the log that were applied.", *_G)
SLICE_SECONDS = _counter("follower_slice_seconds", "What they took, from reading to the store's answer.", *_G)
SLICE_BYTES = _counter("follower_slice_bytes", "What the store was given, as JSON with keys and versions.", *_G)
READABLE = Metric(
    "driftless_follower_readable_seconds",
    "histogram",
    "From a change's commit in the source until the store has answered for it, by the log's own times.",
    _G,
)

LEASE_HELD = _gauge("lease_held", "1 where somebody runs it, else 0.", "kind", "name")
LEASE_TOKEN = _gauge("lease_token", "Rises by one with each new holder of the lease.", "kind", "name")
LEASE_AGE = _gauge("lease_age_seconds", "Since the lease was renewed.", "kind", "name")

CATALOGUE: tuple[Metric, ...] = tuple(value for value in vars().copy().values() if isinstance(value, Metric))
"""In the order of this file."""
