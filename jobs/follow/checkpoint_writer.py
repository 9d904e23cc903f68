"""A generation's checkpoint, written into its store beside what is applied, with a count of its documents."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from driftless.sink import Sink
from jobs.follow.checkpoint import Checkpoint
from jobs.follow.progress import Progress
from jobs.threads.run_in_background import run_in_background

SAVE_SECONDS = 1.0
"""How often the checkpoint is written while something is applied: bounds what is repeated after a crash."""
IDLE_SECONDS = 30.0
"""How often it is written where nothing but the time has changed. Writing it every second was most of the work of a
search index that writes nothing else.
"""
COUNT_SECONDS = 5.0
"""How often documents are counted while they change: it costs a search index a refresh."""


class CheckpointWriter:
    """Compare-and-set, one after another. A search index takes a tenth of a second and more for one on a busy machine:
    nothing that is applied waits for it.
    """

    def __init__(self, sink: Sink, progress: Progress) -> None:
        self._sink = sink
        self._progress = progress
        self._saved: str | None = None
        self._writing: str | None = None
        self._holds: Checkpoint | None = None
        self._under_way: Future[bool] | None = None
        self._begun_at = self._save_at = 0.0
        self._count_at = 0.0
        self._count_now = False
        self._counted = 0

    def found(self, text: str | None) -> None:
        """What the store holds now."""
        self._saved, self._writing, self._holds = text, None, None

    def heed(self) -> None:
        """There is something new to save."""
        self._save_at = min(self._save_at, self._begun_at + SAVE_SECONDS)

    def hurry(self) -> None:
        """Save and count with the next question."""
        self._save_at, self._count_now = 0.0, True

    @property
    def due(self) -> bool:
        """Whether another one is to be begun."""
        return self._under_way is None and time.monotonic() >= self._save_at

    @property
    def ended(self) -> bool:
        """Whether one that was begun is to be heard."""
        return self._under_way is not None and self._under_way.done()

    def begin(self, checkpoint: Checkpoint) -> None:
        """Start to write it in the background."""
        now, before, self._holds = time.monotonic(), self._holds, replace(checkpoint, marker=None, at_head=0.0)
        self._begun_at, self._save_at = now, now + (IDLE_SECONDS if self._holds == before else SAVE_SECONDS)
        self._writing = checkpoint.to_text()
        self._under_way = run_in_background(partial(self._write, self._writing))

    def hear(self) -> bool:
        """Wait for the one under way, if there is one. False where the store has lost what it had acknowledged; raises
        what it met.
        """
        under_way, self._under_way = self._under_way, None
        return under_way is None or under_way.result()

    @property
    def known(self) -> list[str]:
        """What the store has, if it has lost nothing: while one is written, either that or the one before."""
        return [text for text in (self._saved, self._writing) if text is not None]

    def is_held(self) -> bool:
        """Ask the store whether it holds still what it had acknowledged. Does not wait for what is being written."""
        return any(self._sink.save(self._progress.generation, text, expected=text) for text in self.known)

    def _write(self, text: str) -> bool:
        progress = self._progress
        if not self._sink.save(progress.generation, text, expected=self._saved):
            return False
        self._saved = text
        count_now, self._count_now = self._count_now, False
        written = progress.counts.written
        due = written != self._counted and time.monotonic() >= self._count_at
        if progress.documents is None or count_now or due:
            before, progress.documents = progress.documents, self._sink.count(progress.generation)
            self._counted = written
            self._count_at = time.monotonic() + COUNT_SECONDS
            if progress.documents != before:
                progress.changed.set()
        return True
