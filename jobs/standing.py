"""Where a generation of a follower stands: in memory for whoever reports, and in its store for whoever goes on."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Protocol

from driftless.errors import SyncError
from driftless.generation import label
from driftless.kafka import Offsets
from driftless.lsn import format_lsn
from driftless.marker import Marker
from driftless.registry import TopicLog
from jobs.apply import LogSource, SinkSpec
from jobs.movement import Movement
from jobs.seen import Seen


@dataclass(frozen=True)
class Job:
    """What to follow, into what. `retention`: seconds for which the log keeps deletes. `checked`: count when built;
    `countable`: that means anything, since no document expires.

    `history`: of the source, in which positions are claimed.
    """

    follower: str
    view: str
    generation: int
    log: TopicLog
    source: LogSource
    spec: SinkSpec
    retention: float
    checked: bool = False
    countable: bool = True
    history: int = 0


class Signal(Protocol):
    """What a worker sets when there is something to tell."""

    def set(self) -> None: ...


@dataclass(frozen=True)
class Holding:
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

    `trouble`: what its thread waits for. `switching`: what the promotion to it waits for, which has another thread.

    `holding` is replaced whole, with `put`. `live`: readers see it. `held_back`: why it is not promoted, though it is
    built and was to be. `held_up`: why the log does not go on. `stuck`: why readers, who see this one, are shown no
    further position before somebody does something. `token`: of the lease under which it is written.
    """

    name: str
    view: str
    generation: int
    state: str = "bootstrapping"
    holding: Holding = field(default_factory=Holding)
    ends: Offsets = field(default_factory=dict)
    seen: Seen = field(default_factory=Seen)
    token: int = 0
    promoting: bool = False
    documents: int | None = None
    written: int = 0
    stale: int = 0
    trouble: str = ""
    switching: str = ""
    held_back: str = ""
    held_up: str = ""
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
        return self.trouble or self.switching or self.held_up or self.held_back or self.stuck

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
            "held_back": self.held_back,
            "stuck": self.stuck,
            "token": self.token,
            "trouble": self._waits_for if self.error is None else told(self.error),
        }


@dataclass(frozen=True)
class Checkpoint:
    """What the store holds of the log: kept in the store itself, so that it is lost with the documents.

    `token`: of the lease it was written under; a higher one means that another runner has taken over.
    `at_head`: seconds since 1970 when it last stood at the log's end, or began at its floor. `leaders`: of the
    partitions, while they were read. `unvouched`: there were documents without a checkpoint, and all is read again.
    """

    token: int
    topic_id: str
    positions: Offsets
    marker: Marker | None
    at_head: float
    built: bool = False
    history: int = 0
    leaders: Offsets = field(default_factory=dict)
    unvouched: bool = False

    def to_text(self) -> str:
        marker = None if self.marker is None else [self.marker.lsn, self.marker.time]
        positions = {str(p): o for p, o in sorted(self.positions.items())}
        leaders = {str(p): leader for p, leader in sorted(self.leaders.items())}
        return json.dumps({**vars(self), "positions": positions, "marker": marker, "leaders": leaders})

    @classmethod
    def from_text(cls, text: str) -> Checkpoint | None:
        """None for a text that is none of ours: the store then has no checkpoint."""
        try:
            data: dict[str, Any] = json.loads(text)
            marker = None if data["marker"] is None else Marker(*data["marker"])
            positions = {int(p): offset for p, offset in data["positions"].items()}
            leaders = {int(p): leader for p, leader in data.get("leaders", {}).items()}
            found = cls(**{**data, "positions": positions, "marker": marker, "leaders": leaders})
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return None
        return found if found._holds() else None

    def _holds(self) -> bool:
        """Whether everything is of its type."""
        numbers = [self.token, self.history, *self.positions.values(), *self.leaders.values()]
        times = [self.at_head, *([] if self.marker is None else [self.marker.lsn, self.marker.time])]
        return (
            all(type(number) is int for number in numbers)
            and all(type(time) in (int, float) and isfinite(time) for time in times)
            and isinstance(self.topic_id, str)
            and isinstance(self.built, bool)
            and isinstance(self.unvouched, bool)
        )


def _beyond(offsets: Offsets, floor: Offsets) -> int:
    """Another thread may look between the writing of the two."""
    return sum(offset - floor.get(p, offset) for p, offset in offsets.items())


def told(error: SyncError) -> str:
    """An error with what to do about it."""
    return f"{error}; {error.hint}" if error.hint else str(error)


def lasting(seconds: float) -> str:
    """How long something took: in days, or in seconds where it is less than one."""
    return f"{seconds / 86400:.1f} days" if seconds >= 86400 else f"{seconds:.0f} s"
