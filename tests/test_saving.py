"""A checkpoint is written when it says something new; else it is asked for, so that a store that lost it shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from driftless.marker import Marker
from driftless.sink import Sink
from jobs.follow.checkpoint import Checkpoint
from jobs.follow.checkpoint_writer import IDLE_SECONDS, CheckpointWriter
from jobs.follow.progress import Progress

FIRST = Checkpoint(1, "id", {0: 5}, Marker(10, 1.0), 1.0, built=True)


class Store:
    """Keeps one checkpoint by compare-and-set. `writes`: those that changed it."""

    def __init__(self) -> None:
        self.kept: str | None = None
        self.asked = 0
        self.writes: list[str] = []

    def save(self, generation: int, text: str, *, expected: str | None) -> bool:  # noqa: ARG002
        self.asked += 1
        if self.kept != text:
            if self.kept != expected:
                return False
            self.kept = text
            self.writes.append(text)
        return True

    def count(self, generation: int) -> int:  # noqa: ARG002
        return 5


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("jobs.follow.checkpoint_writer.time.monotonic", lambda: now[0])
    return now


def test_what_only_grew_older_is_written_now_and_then(clock: list[float]) -> None:
    store = Store()
    saving = CheckpointWriter(cast("Sink", store), Progress("item", "item", 1))

    def save(checkpoint: Checkpoint, **more: Any) -> bool:
        clock[0] += 1.0
        assert saving.due
        saving.begin(checkpoint, **more)
        return saving.hear()

    assert save(FIRST, whole=False)
    later = replace(FIRST, marker=Marker(11, 2.0), at_head=2.0)
    assert save(later, whole=False)
    assert (store.asked, store.writes) == (2, [FIRST.to_text()])
    moved = replace(later, positions={0: 6})
    assert save(moved, whole=False)
    assert store.writes == [FIRST.to_text(), moved.to_text()]
    later = replace(moved, marker=Marker(12, 3.0))
    assert save(later, whole=True), "before it stops"
    assert store.kept == later.to_text()
    latest = replace(later, at_head=9.0)
    clock[0] += IDLE_SECONDS
    assert save(latest, whole=False)
    assert store.kept == latest.to_text()
    store.kept = None
    assert not save(latest, whole=False), "a store that lost it is noticed within a second all the same"
