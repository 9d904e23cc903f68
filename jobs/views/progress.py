"""Where a build stands: in memory for whoever reports, and in the control topic for followers on whatever machine."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from driftless.errors import SyncError
from driftless.facts.builds import Build, progress_key
from driftless.lsn import format_lsn
from driftless.marker import Marker
from jobs.log.frontier import Frontier
from jobs.supervise.movement import Movement
from jobs.supervise.report import Signal, told
from jobs.views.store.contract import Partition


@dataclass
class BuildProgress:
    """Where a shard of a build stands; written by its thread, read by whoever reports. `error` ends it."""

    build: Build
    shard: int = 0
    state: str = "bootstrapping"
    positions: dict[Partition, int] = field(default_factory=dict)
    ends: dict[Partition, int] = field(default_factory=dict)
    floor: dict[Partition, int] = field(default_factory=dict)
    frontier: Frontier | None = None
    dirty: int = 0
    published: int = 0
    store_bytes: int = 0
    quarantined: int = 0
    last_error: str = ""
    error: SyncError | None = None
    changed: Signal = field(default_factory=threading.Event)
    movement: Movement = field(default_factory=Movement)

    @property
    def key(self) -> str:
        """Of the fact that says where it stands."""
        return progress_key(self.build.view.name, self.build.number, self.shard)

    @property
    def follower(self) -> str:
        """What to call it before an operator."""
        shard = f", shard {self.shard}" if self.build.view.shards > 1 else ""
        build = f"build {self.build.number}" if self.build.number > 1 else ""
        more = f" ({(build + shard).removeprefix(', ')})" if build or shard else ""
        return f"view {self.build.view.name}{more}"

    @property
    def marker(self) -> Marker | None:
        return None if self.frontier is None else self.frontier.marker

    @property
    def lsn(self) -> int:
        """The position of the source that it claims; 0 for none."""
        return 0 if self.frontier is None else self.frontier.marker.lsn

    @property
    def done(self) -> int:
        return sum(position - self.floor[place] for place, position in self.positions.items())

    @property
    def total(self) -> int:
        return sum(end - self.floor[place] for place, end in self.ends.items())

    @property
    def lag(self) -> int:
        """Offsets still to read."""
        return max(0, self.total - self.done)

    def to_json(self) -> dict[str, object]:
        log, frontier = self.build.log, self.frontier
        assert log is not None
        return {
            "state": self.state if self.error is None else "failed",
            "frontier_lsn": format_lsn(frontier.marker.lsn) if frontier else None,
            "marker": [frontier.marker.lsn, frontier.marker.time] if frontier else None,
            "ends": {str(p): o for p, o in frontier.ends[log.topic].items()} if frontier else None,
            "lag_records": self.lag,
            "dirty": self.dirty,
            "quarantined": self.quarantined,
            "published": self.published,
            "store_bytes": self.store_bytes,
            "still_seconds": self.movement.still_seconds(self.state, self.done, self.lsn, self.published),
            "trouble": self.last_error if self.error is None else told(self.error),
            "error": None if self.error is None else told(self.error),
        }
