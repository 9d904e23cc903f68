"""Where a build of a stream stands: in memory for whoever reports, and in the control topic for everybody."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from driftless.errors import SyncError
from driftless.facts.streams import StreamBuild, stream_progress_key
from driftless.lsn import format_lsn
from driftless.marker import Marker
from jobs.log.frontier import Frontier
from jobs.streams.late.left_out import LeftOut
from jobs.streams.rows.reasons import COUNTED
from jobs.supervise.movement import Movement
from jobs.supervise.report import Signal, told

Partition = tuple[str, int]


@dataclass
class StreamProgress:
    """Written by the stream's thread, read by whoever reports. `error` ends it.

    `closed_ms`: the documents of all windows that end at or before this moment are in the log. `left_out`: events that
    were left out, and why. `corrected`: documents that late ones have corrected. `dropped`: events that Spark left out,
    which is none or a fault of a clock. `skipped`: events that were left unread.
    """

    build: StreamBuild
    state: str = "bootstrapping"
    positions: dict[Partition, int] = field(default_factory=dict)
    ends: dict[Partition, int] = field(default_factory=dict)
    floor: dict[Partition, int] = field(default_factory=dict)
    frontier: Frontier | None = None
    published: int = 0
    closed_ms: int = 0
    left_out: LeftOut = field(default_factory=lambda: LeftOut({}))
    corrected: int = 0
    dropped: int = 0
    skipped: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    last_error: str = ""
    error: SyncError | None = None
    changed: Signal = field(default_factory=threading.Event)
    movement: Movement = field(default_factory=Movement)

    @property
    def key(self) -> str:
        """Of the fact that says where it stands."""
        return stream_progress_key(self.build.stream, self.build.number)

    @property
    def follower(self) -> str:
        """What to call it before an operator."""
        more = f" (build {self.build.number})" if self.build.number > 1 else ""
        return f"stream {self.build.stream}{more}"

    @property
    def marker(self) -> Marker | None:
        return None if self.frontier is None else self.frontier.marker

    @property
    def lsn(self) -> int:
        """The position of the source that it claims; 0 for none."""
        return 0 if self.frontier is None else self.frontier.marker.lsn

    @property
    def done(self) -> int:
        return sum(position - self.floor.get(place, 0) for place, position in self.positions.items())

    @property
    def total(self) -> int:
        return sum(end - self.floor.get(place, 0) for place, end in self.ends.items())

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
            "closed_to": self.closed_ms / 1000 if self.closed_ms > 0 else None,
            **{name: getattr(self.left_out, name) for name in COUNTED},
            "corrected": self.corrected,
            "dropped": self.dropped,
            "skipped": self.skipped,
            "state_rows": self.state_rows,
            "state_bytes": self.state_bytes,
            "published": self.published,
            "still_seconds": self.movement.still_seconds(self.state, self.done, self.closed_ms, self.lsn),
            "trouble": self.last_error if self.error is None else told(self.error),
            "error": None if self.error is None else told(self.error),
        }
