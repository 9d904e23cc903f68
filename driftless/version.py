"""Versions: one non-negative integer for (epoch, offset).

What it looks like is said here, and which epoch a record is of by `TopicLog.ends` (driftless/facts/epochs.py).
jobs/decode says both again for many records at once, in Spark SQL and over arrays; a test holds the three together.

Why not an LSN or a timestamp: for one key the LSNs of its changes can go back in commit order, and the rows of a
snapshot all carry one LSN. The offset in the key's partition is the order in which the one Debezium task wrote.
"""

from __future__ import annotations

EPOCH_BITS = 15
OFFSET_BITS = 48
MAX_EPOCH = (1 << EPOCH_BITS) - 1
MAX_OFFSET = (1 << OFFSET_BITS) - 1


def make_version(epoch: int, offset: int) -> int:
    """Pack into a signed 64-bit integer that orders by epoch, then offset. Raises ValueError on overflow."""
    if not 1 <= epoch <= MAX_EPOCH:
        raise ValueError(f"epoch {epoch} is not in 1..{MAX_EPOCH}")
    if not 0 <= offset <= MAX_OFFSET:
        raise ValueError(f"offset {offset} is not in 0..{MAX_OFFSET}")
    return epoch << OFFSET_BITS | offset


def split_version(version: int) -> tuple[int, int]:
    """The (epoch, offset) that `make_version` packed."""
    return version >> OFFSET_BITS, version & MAX_OFFSET
