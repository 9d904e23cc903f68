"""Mending a follower from its log: the store keeps what is newer, and what cannot be written over is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from driftless.errors import SinkError
from driftless.facts.epochs import first_epoch
from driftless.kafka.client import Kafka, Offsets
from driftless.sink import WRITES, Applied, Rejected, Sink
from driftless.verify.judge import AHEAD, DIFFERENT, EXTRA, MISSING
from driftless.verify.mend import mend
from driftless.verify.stages import LogSpool
from driftless.verify.steps import Step
from driftless.verify.subject import Subject, Target
from driftless.version import make_version

ROWS = [("a", 3, '{"n": 1}', 0), ("a", 7, '{"n": 2}', 0), ("b", 4, '{"n": 3}', 1), ("gone", 8, None, 0)]
"""(key, offset, document, partition) of each record."""
ENDS = {0: 10, 1: 6}


class Log:
    """A log's records, as jobs/log/history.py gives them."""

    def read(self, begin: Offsets, end: Offsets) -> Iterator[pa.Table]:
        rows = [r for r in ROWS if r[3] in end and begin[r[3]] <= r[1] < end[r[3]]]
        columns = {
            "key": [key for key, *_ in rows],
            "version": pa.array([make_version(1, offset) for _, offset, *_ in rows], pa.int64()),
            "document": pa.array([document for *_, document, _ in rows], pa.string()),
            "partition": pa.array([partition for *_, partition in rows], pa.int32()),
        }
        yield pa.table(columns)


class Brokers:
    def decided_ends(self, topic: str, partitions: int) -> Offsets:  # noqa: ARG002
        return dict(ENDS)


@dataclass
class Store:
    """Keeps the newest version of each key, as every sink does. `refuses`: a key that it cannot take."""

    held: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    refuses: str = ""

    def apply(self, generation: int, writes: pa.RecordBatch) -> Applied:  # noqa: ARG002
        assert writes.schema == WRITES
        done = Applied()
        for row in writes.to_pylist():
            key, version = row["key"], row["version"]
            if key == self.refuses:
                done += Applied(rejected=(Rejected(key, version, "too long"),))
            elif version <= self.held.get(key, (-1, ""))[0]:
                done += Applied(stale=1)
            else:
                self.held[key] = (version, row["document"])
                done += Applied(written=1)
        return done

    def scan_keys(self, keys: pa.StringArray) -> pa.StringArray:
        return keys


def mended(tmp_path: Path, store: Store, wrong: dict[str, int]) -> int:
    target = Target("cache", 1, cast(Sink, store), frozenset)
    subject = Subject("view", "table-log", "", first_epoch("topic", "id", 2), Log(), targets=[target])
    log = LogSpool(subject, cast(Kafka, cast(Any, Brokers())), tmp_path / "log", Step("log"))
    log.read_on()
    return mend(subject, target, wrong, log)


def test_each_key_gets_its_newest_record_at_the_last_version_before_the_end(tmp_path: Path) -> None:
    store = Store({"a": (make_version(1, 7), "flipped"), "ghost": (make_version(1, 2), "x"), "gone": (0, "x")})
    wrong = {"a": DIFFERENT, "b": MISSING, "ghost": EXTRA, "gone": EXTRA}
    assert mended(tmp_path, store, wrong) == 4
    assert store.held == {
        "a": (make_version(1, 9), '{"n": 2}'),
        "b": (make_version(1, 5), '{"n": 3}'),
        # In no partition, so below the ends of all.
        "ghost": (make_version(1, 5), None),
        "gone": (make_version(1, 9), None),
    }


def test_a_change_that_came_meanwhile_is_kept(tmp_path: Path) -> None:
    newer = (make_version(1, 10), "newer")
    store = Store({"a": newer})
    assert mended(tmp_path, store, {"a": DIFFERENT}) == 0
    assert store.held == {"a": newer}


def test_a_version_beyond_the_logs_end_is_left_alone(tmp_path: Path) -> None:
    planted = (make_version(1, 10**9), "planted")
    store = Store({"a": planted})
    assert mended(tmp_path, store, {"a": AHEAD}) == 0
    assert store.held == {"a": planted}


def test_a_store_that_refuses_is_told(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="too long"):
        mended(tmp_path, Store(refuses="a"), {"a": DIFFERENT})
