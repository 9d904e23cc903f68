"""Where a generation of a follower stands, in memory, for whoever reports."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

from driftless.errors import SyncError
from driftless.facts.counts import WorkCounts
from driftless.facts.generation import label
from driftless.kafka.client import Offsets
from driftless.lsn import format_lsn
from driftless.marker import Marker
from jobs.follow.apply import OffsetRange, SliceResult
from jobs.follow.readers_generation import ReadersGeneration
from jobs.supervise.movement import Movement
from jobs.supervise.report import Signal, told


@dataclass(frozen=True)
class AppliedState:
    """What a generation holds of the log, at one moment. Whoever decides by several of these reads them as one value.

    `known`: the store has been asked. `built`: it has once held all that the log had, and a count agreed.
    """

    floor: Offsets = field(default_factory=dict)
    positions: Offsets = field(default_factory=dict)
    marker: Marker | None = None
    built: bool = False
    quarantined: int = 0
    known: bool = False


@dataclass
class Progress:
    """Where a generation stands; written by its thread, read by whoever reports. `error` ends it.

    `last_error`: what its thread waits for. `switching`: what the promotion to it waits for, which has another thread.

    `holding` is replaced whole, with `put`. `live`: readers see it. `promotion_blocked_by`: why it is not promoted,
    though it is built and was to be. `blocked_by`: why the log does not go on. `stuck`: why readers, who see this
    one, are shown no further position before somebody does something. `token`: of the lease under which it is
    written.
    """

    name: str
    view: str
    generation: int
    state: str = "bootstrapping"
    holding: AppliedState = field(default_factory=AppliedState)
    ends: Offsets = field(default_factory=dict)
    seen: ReadersGeneration = field(default_factory=ReadersGeneration)
    token: int = 0
    promoting: bool = False
    documents: int | None = None
    counts: WorkCounts = field(default_factory=WorkCounts)
    last_error: str = ""
    switching: str = ""
    promotion_blocked_by: str = ""
    blocked_by: str = ""
    stuck: str = ""
    error: SyncError | None = None
    changed: Signal = field(default_factory=threading.Event)
    movement: Movement = field(default_factory=Movement)

    def __post_init__(self) -> None:
        self._putting = threading.Lock()

    def put(self, **changes: Any) -> None:
        """Change some of what it holds, in one step. Any thread may."""
        with self._putting:
            self.holding = replace(self.holding, **changes)

    def took(self, part: OffsetRange, outcome: SliceResult, seconds: float) -> None:
        """Count a slice that was applied. What is applied again was readable long ago."""
        counts, applied = self.counts, outcome.applied
        counts.written += applied.written
        counts.stale += applied.stale
        counts.retries += applied.retries
        counts.refuse(refused.reason for refused in applied.rejected)
        counts.slices += 1
        counts.records += part.offsets
        counts.slice_seconds += seconds
        counts.slice_bytes += outcome.bytes
        if self.built and part.begin == self.positions:
            counts.readable.observe(outcome.ages)

    @property
    def floor(self) -> Offsets:
        return self.holding.floor

    @property
    def positions(self) -> Offsets:
        return self.holding.positions

    @property
    def marker(self) -> Marker | None:
        return self.holding.marker

    @property
    def built(self) -> bool:
        return self.holding.built

    @property
    def quarantined(self) -> int:
        return self.holding.quarantined

    @property
    def live(self) -> bool:
        return self.seen.number == self.generation

    @property
    def key(self) -> str:
        """Of the fact that says where it stands."""
        return f"follower/{self.name}/{self.generation}"

    @property
    def follower(self) -> str:
        """What to call it before an operator."""
        return label(self.name, self.generation)

    @property
    def lsn(self) -> int:
        """The position of the source that it claims; 0 for none."""
        marker = self.marker
        return 0 if marker is None else marker.lsn

    @property
    def done(self) -> int:
        holding = self.holding
        return _beyond(holding.positions, holding.floor)

    @property
    def total(self) -> int:
        return _beyond(self.ends, self.floor)

    @property
    def lag(self) -> int:
        """Offsets still to read: records, and the few that end transactions."""
        return max(0, self.total - self.done)

    @property
    def _waits_for(self) -> str:
        return self.last_error or self.switching or self.blocked_by or self.promotion_blocked_by or self.stuck

    def to_json(self) -> dict[str, object]:
        holding = self.holding
        return {
            "view": self.view,
            "state": "failed" if self.error is not None else "promoting" if self.promoting else self.state,
            "live": self.live,
            "built": holding.built,
            "applied_lsn": None if holding.marker is None else format_lsn(holding.marker.lsn),
            "marker_time": None if holding.marker is None else holding.marker.time,
            "read_records": self.done,
            "still_seconds": self.movement.still_seconds(self.state, self.promoting, self.done, self.lsn),
            "lag_records": self.lag,
            "documents": self.documents,
            "quarantined": holding.quarantined,
            "held_back": self.promotion_blocked_by,
            "stuck": self.stuck,
            "token": self.token,
            "counts": self.counts.to_json(),
            "trouble": self._waits_for if self.error is None else told(self.error),
        }


def _beyond(offsets: Offsets, floor: Offsets) -> int:
    """Another thread may look between the writing of the two."""
    return sum(offset - floor.get(p, offset) for p, offset in offsets.items())


def lasting(seconds: float) -> str:
    """How long something took: in days, or in seconds where it is less than one."""
    return f"{seconds / 86400:.1f} days" if seconds >= 86400 else f"{seconds:.0f} s"
