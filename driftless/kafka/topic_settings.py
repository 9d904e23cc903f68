"""Settings that every log must have: the tables' topics, and those of views."""

from __future__ import annotations

from driftless.config.models import milliseconds

MAX_MESSAGE_BYTES = 16 << 20
"""What every topic takes, and every producer of ours may write: the limit of a batch, so of one record too."""
DOCUMENT_BYTES = MAX_MESSAGE_BYTES - 4096
"""What a document of a view may have with its key: the rest is for headers, and for what a batch and its compression
put around a record."""
COMMON = {"max.message.bytes": str(MAX_MESSAGE_BYTES)}


def log_settings(retention: float) -> dict[str, str]:
    """Of a compacted topic that is a table. `retention`: milliseconds for which it keeps deletes."""
    return {
        **COMMON,
        "cleanup.policy": "compact",
        "delete.retention.ms": str(round(retention)),
        # The newest segment is never compacted; a day bounds how long an old version stays readable.
        "segment.ms": str(milliseconds("1d")),
        # A view of several tables reads up to a moment between two transactions; no later record may have replaced one
        # that belongs to it by then.
        "min.compaction.lag.ms": str(milliseconds("10m")),
        "max.compaction.lag.ms": str(milliseconds("1d")),
        "min.cleanable.dirty.ratio": "0.3",
    }
