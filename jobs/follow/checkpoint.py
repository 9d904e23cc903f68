"""What a store holds of a log, as it is kept in the store."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from driftless.kafka.client import Offsets
from driftless.marker import Marker


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
