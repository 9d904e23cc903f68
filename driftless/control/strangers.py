"""Records that are not ours, where ours are read: each is skipped, counted, and reported by `status`."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driftless.control.topic import Control
from driftless.errors import SyncError
from driftless.facts.state import State

_log = logging.getLogger(__name__)
KIND = "strangers"
"""Of the facts that say how many there were, by where they were found."""
SECONDS = 10.0
"""How often a count that rises is written: each takes a moment, and whoever writes strange records may write many."""


@dataclass
class Tally:
    """How many strange records a topic of one partition held, each counted once however often it is read.

    `since`, `last`: seconds since 1970. `end`: what lies before this offset is counted. `by`: what records are judged
    by; where that has changed, all are counted again. For one thread.
    """

    where: str
    count: int = 0
    since: float = 0.0
    last: float = 0.0
    end: int = 0
    why: str = ""
    by: str = ""

    def __post_init__(self) -> None:
        self._written = self.count
        self._due = 0.0

    @classmethod
    def of(cls, where: str, state: State, by: str) -> Tally:
        """As it was left by whoever counted before."""
        fact: Mapping[str, Any] = state.get(f"{KIND}/{where}") or {"by": by}
        if fact["by"] == by:
            return cls(where, **fact)
        tally = cls(where, by=by)
        tally._written = -1
        return tally

    def add(self, offset: int, time: float, why: str) -> None:
        """One more, where it is one more."""
        if offset >= self.end:
            self.since = self.since or time
            self.count, self.last, self.end, self.why = self.count + 1, time, offset + 1, why

    def write(self, control: Control) -> None:
        """Put a count that has risen into the control topic, now and then."""
        now = time.monotonic()
        if self.count == self._written or now < self._due:
            return
        self._due = now + SECONDS
        try:
            control.write({f"{KIND}/{self.where}": self.to_json()})
        except SyncError as exc:
            _log.info("%s: strange records cannot be reported: %s", self.where, exc)
        else:
            self._written = self.count

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in ("count", "since", "last", "end", "why", "by")}


_WHAT = {
    "control": (
        "the control topic holds records that driftless cannot have written",
        "find who writes there, and let nobody but driftless",
    ),
    "messages": (
        "somebody writes messages into the source's log that claim to be driftless's, and are not",
        "find who calls pg_logical_emit_message, and take that right from everybody: docs/operating.md says how",
    ),
}


def warnings(state: State) -> list[str]:
    """What `status` says of them. They change nothing for followers."""
    said = []
    for where, fact in state.by_prefix(KIND).items():
        tally = fact.value
        if not tally["count"]:
            continue
        what, hint = _WHAT.get(where, (f"{where} holds records that are not ours", "find who writes them"))
        first, last = (_moment(float(str(tally[name]))) for name in ("since", "last"))
        often = f"{tally['count']:,} since {first}, the last at {last}, which {tally['why']}"
        said.append(f"{what}: {often}; they are skipped; {hint}")
    return said


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))
