"""A checkpoint is written when it says something new; else it is asked for, so that a store that lost it shows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from driftless.marker import Marker
from driftless.sink import Sink
from jobs.follow.checkpoint import Checkpoint
from jobs.follow.checkpoint_writer import IDLE_SECONDS, SAVE_SECONDS, CheckpointWriter
from jobs.follow.progress import Progress
from tests.support.machine import until

FIRST = Checkpoint(1, "id", {0: 5}, Marker(10, 1.0), 1.0, built=True)


class Store:
    """Keeps one checkpoint by compare-and-set. `writes`: those that changed it."""

    def __init__(self) -> None:
        self.kept: str | None = None
        self.asked = 0
        self.writes: list[str] = []
        self.before_answer: Callable[[], object] = lambda: None

    def save(self, generation: int, text: str, *, expected: str | None) -> bool:  # noqa: ARG002
        self.asked += 1
        if self.kept != text:
            if self.kept != expected:
                return False
            self.kept = text
            self.writes.append(text)
            self.before_answer()
        return True

    def count(self, generation: int) -> int:  # noqa: ARG002
        return 5


def test_what_only_grew_older_is_written_now_and_then(clock: list[float]) -> None:
    store = Store()
    saving = CheckpointWriter(cast("Sink", store), Progress("item", "item", 1))

    def save(checkpoint: Checkpoint, seconds: float) -> bool:
        """Write it when so much time has passed, and not sooner."""
        clock[0] += seconds - 0.01
        assert not saving.due
        clock[0] += 0.01
        assert saving.due
        saving.begin(checkpoint)
        return saving.hear()

    assert saving.due
    saving.begin(FIRST)
    assert saving.hear()
    later = replace(FIRST, marker=Marker(11, 2.0), at_head=2.0)
    assert save(later, SAVE_SECONDS)
    clock[0] += SAVE_SECONDS
    assert not saving.due, "nothing but the time has changed"
    saving.heed()
    assert saving.due, "something has been applied"
    moved = replace(later, positions={0: 6})
    saving.begin(moved)
    assert saving.hear()
    latest = replace(moved, marker=Marker(12, 3.0))
    assert save(latest, SAVE_SECONDS)
    assert store.writes == [c.to_text() for c in (FIRST, later, moved, latest)]
    store.kept = None
    assert not save(latest, IDLE_SECONDS), "a store that lost it is noticed so much later"


def test_a_store_is_asked_whether_it_holds_what_it_was_given(clock: list[float]) -> None:
    store = Store()
    saving = CheckpointWriter(cast("Sink", store), Progress("item", "item", 1))
    saving.begin(FIRST)
    assert saving.hear()
    assert saving.is_held()
    clock[0] += SAVE_SECONDS
    saving.begin(replace(FIRST, positions={0: 6}))
    until("it to be written", lambda: saving.ended, 30)  # and nobody has heard of it yet
    assert saving.is_held()
    assert len(store.writes) == 2, "asking writes nothing"
    assert saving.hear()
    store.kept = FIRST.to_text()
    assert not saving.is_held(), "it has turned back"
    saving.found(store.kept)
    assert saving.is_held(), "it was taken up from there"
    store.kept = None
    assert not saving.is_held()


def test_what_is_being_written_and_what_was_there_before_are_both_held() -> None:
    """The answer of the store has not come yet, so nobody knows which of them it has."""
    store, go_on = Store(), threading.Event()
    saving = CheckpointWriter(cast("Sink", store), Progress("item", "item", 1))
    saving.begin(FIRST)
    assert saving.hear()
    second = replace(FIRST, positions={0: 6})
    store.before_answer = go_on.wait
    saving.begin(second)
    until("it to have arrived", lambda: store.kept == second.to_text(), 30)
    assert saving.is_held()
    store.kept = FIRST.to_text()
    assert saving.is_held()
    store.kept = None
    assert not saving.is_held()
    go_on.set()
    assert saving.hear()
