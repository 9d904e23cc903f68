"""Settings that every log must have: the tables' topics, and those of views."""

from __future__ import annotations

from driftless.config.duration import milliseconds

MAX_MESSAGE_BYTES = 16 << 20
"""What every topic takes, and every producer of ours may write: the limit of a batch, so of one record too."""
DOCUMENT_BYTES = MAX_MESSAGE_BYTES - 4096
"""What a document of a view may have with its key: the rest is for headers, and for what a batch and its compression
put around a record."""
COMMON = {"max.message.bytes": str(MAX_MESSAGE_BYTES)}


def ticks_settings() -> dict[str, str]:
    """Of the ticks of a stream: the newest one is all that counts."""
    return {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime", "segment.ms": "600000"}


def batches_settings() -> dict[str, str]:
    """Of what a stream has published, and of what it left out: the newest record of a key holds. One may have the
    offsets of many partitions.
    """
    return {**COMMON, "cleanup.policy": "compact", "segment.ms": "600000", "min.cleanable.dirty.ratio": "0.1"}


FOREVER = (1 << 63) - 1
"""In milliseconds, as Kafka has it."""
COMPACTION_LAG, MOST_COMPACTION_LAG = "min.compaction.lag.ms", "max.compaction.lag.ms"


def history_settings(history: float | None) -> dict[str, str]:
    """Of a table's topic whose every row is wanted. `history`: milliseconds for which they are; None for ever."""
    lag = str(FOREVER if history is None else round(history))
    return {COMPACTION_LAG: lag, MOST_COMPACTION_LAG: lag}


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
        COMPACTION_LAG: str(milliseconds("10m")),
        MOST_COMPACTION_LAG: str(milliseconds("1d")),
        "min.cleanable.dirty.ratio": "0.3",
    }
