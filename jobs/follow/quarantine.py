"""The quarantined documents of one generation: what is held back, and when it is let go."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import pyarrow as pa

from driftless.control.quarantine import QuarantineLog
from driftless.errors import SinkError, SinkMisconfigured
from driftless.sink import Applied, Rejected, Sink
from jobs.follow.apply import SliceResult
from jobs.follow.progress import Progress

MOST = 1_000_000
"""Documents of one generation that are held back at the most: some 150 MB. Beyond, the mapping is wrong, not they."""

EVERYTHING = 20
"""Documents of a slice: where so many are refused, and none was ever taken, it is not the documents that are wrong."""


def stop_where_nothing_is_taken(progress: Progress, sink: Sink, applied: Applied) -> None:
    """Raise SinkMisconfigured where a store refuses every document of a generation from the first one on."""
    refused = applied.rejected
    if progress.built or len(refused) < EVERYTHING or applied.written + applied.stale:
        return
    if progress.counts.written + progress.counts.stale or sink.count(progress.generation):
        return
    raise SinkMisconfigured(
        f"none of the first {len(refused):,} documents can be written, so none is quarantined for it; "
        f"the last because: {refused[-1].reason}",
        hint="correct what the store is set to, or the follower in sync.yaml and `driftless apply`; then run again",
    )


class GenerationQuarantine:
    """Keys that the store refused, each with the newest version that it refused.

    A key is held from its refusal until a version at or above the refused one has passed, be it a delete; older
    versions that are given again change nothing. The topic is written before a checkpoint can pass the refusal.
    """

    def __init__(self, log: QuarantineLog, follower: str, generation: int) -> None:
        self._log = log
        self._follower = follower
        self._generation = generation
        self._held: dict[str, int] = {}
        self._keys: pa.StringArray | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def load(self) -> None:
        """Take up what is held from the topic."""
        self._held = {held.key: held.version for held in self._log.read(self._follower, self._generation)}
        self._keys = None

    @property
    def keys(self) -> pa.StringArray | None:
        """The held keys; None where there are none."""
        with self._lock:
            if self._keys is None and self._held:
                self._keys = pa.array(self._held, pa.string())
            return self._keys

    def note(self, outcome: SliceResult) -> None:
        """Hold what was refused, and let go what has passed. Durable when it returns."""
        if not outcome.applied.rejected and not outcome.passed:
            return
        with self._lock:
            self._note(outcome)

    def _note(self, outcome: SliceResult) -> None:
        refused = self._newest(outcome.applied.rejected)
        passed = {key for key, version in outcome.passed if version >= self._held.get(key, 0)} - refused.keys()
        if not refused and not passed:
            return
        if len(self._held) + sum(key not in self._held for key in refused) > MOST:
            reason = next(iter(refused.values()))[1]
            raise SinkError(
                f"the store refuses more than {MOST:,} documents, the last because: {reason}",
                hint="change the follower's mapping, then `driftless apply` builds a new generation",
            )
        self._log.write(self._follower, self._generation, refused, passed)
        self._held.update({key: version for key, (version, _) in refused.items()})
        self._forget(passed)

    def discard(self, keys: Iterable[str] | None) -> int:
        """Let documents go that were not written, all if none is named; how many."""
        with self._lock:
            gone = [key for key in (self._held if keys is None else keys) if key in self._held]
            self._log.write(self._follower, self._generation, {}, gone)
            self._forget(gone)
        return len(gone)

    def _newest(self, rejected: Sequence[Rejected]) -> dict[str, tuple[int, str]]:
        newest: dict[str, tuple[int, str]] = {}
        for r in rejected:
            if r.version >= max(newest.get(r.key, (0,))[0], self._held.get(r.key, 0)):
                newest[r.key] = (r.version, r.reason)
        return newest

    def _forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._held.pop(key, None)
        self._keys = None


def hold(quarantine: GenerationQuarantine, progress: Progress, sink: Sink, outcome: SliceResult) -> None:
    """Quarantine what was refused of a slice; durable when it returns. Raises as `stop_where_nothing_is_taken` does."""
    stop_where_nothing_is_taken(progress, sink, outcome.applied)
    quarantine.note(outcome)
