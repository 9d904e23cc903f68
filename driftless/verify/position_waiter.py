"""Wait until a position of the source is in Kafka, and until followers have applied it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from confluent_kafka import TopicPartition

from driftless import names
from driftless.control.request import ControlReader, is_running
from driftless.control.topic import Control
from driftless.errors import SourceError
from driftless.facts.state import State
from driftless.facts.trust import Trust
from driftless.kafka.client import TIMEOUT
from driftless.kafka.errors import unreadable
from driftless.lsn import format_lsn, parse_lsn
from driftless.marker import Marker
from driftless.verify.subject import Target

MARKER_SECONDS = 60.0
"""How long the connector may take to bring a marker."""
_TOLD_SECONDS = 5.0
_RECREATED = "its log was recreated meanwhile; verify again once its new generation is live"


class PositionWaiter:
    """Looks at the control topic, where whoever runs a follower tells what it has applied, and at the markers.

    Both are read on from one look to the next, so that a look costs little. For one thread.
    """

    def __init__(self, control: Control, seconds: float, report: Callable[[str], None]) -> None:
        """`seconds`: how long a follower may take to apply a position."""
        self._control = control
        self._seconds = seconds
        self._report = report
        self._reader = ControlReader(control)
        self._topic = names.message_topic(control.pipeline)
        self._markers = control.kafka.consumer()
        first = control.kafka.committed_ends(self._topic, 1)[0]  # what is waited for is written later
        self._markers.assign([TopicPartition(self._topic, 0, first)])
        self._newest = 0

    def __enter__(self) -> PositionWaiter:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._markers.close()

    def in_kafka(self, lsn: int) -> None:
        """Return when a marker has been read from Kafka: all that was committed before it has been written there."""
        deadline = time.monotonic() + MARKER_SECONDS
        while self._newest < lsn:
            message = self._markers.poll(0.5)
            if message is not None:
                error = message.error()
                if error is not None and not error.retriable():
                    raise unreadable(self._topic, error)
                trust = Trust.of(self._control.pipeline, self._reader.state)
                told = None if error is not None else trust.parse(message.key(), message.value(), 0.0)
                if isinstance(told, Marker):
                    self._newest = max(self._newest, told.lsn)
            elif time.monotonic() > deadline:
                raise SourceError(
                    f"the connector has not brought the position {format_lsn(lsn)} to Kafka in {MARKER_SECONDS:.0f} s",
                    hint="`driftless status` shows how far it is, `driftless check` what stops it",
                )

    def by_followers(self, targets: Sequence[Target], lsn: int, superseded: Callable[[State], bool]) -> None:
        """Return when all have applied a position; one that will not has `trouble` afterwards.

        `superseded`: whether the log that they read has a new epoch.
        """
        waiting = [target for target in targets if not target.trouble]
        begun = time.monotonic()
        # Who runs has told of the position within a moment: only then is it asked who does not run.
        look_at, told_at = begun + 1.0, begun + _TOLD_SECONDS
        while True:
            state = self._reader.state
            waiting = [target for target in waiting if not target.trouble and not _has(state, target, lsn)]
            if not waiting:
                return
            now = time.monotonic()
            if now >= look_at:
                look_at = now + 2.0
                clock = self._catch_up()
                state = self._reader.state
                for target in waiting:
                    if not _has(state, target, lsn):
                        why = why_it_stands(state, target.follower, target.generation, clock)
                        target.trouble = why or _RECREATED * superseded(state)
            if now >= begun + self._seconds:
                late = f"it has not applied {format_lsn(lsn)} within {self._seconds:.0f} s"
                for target in waiting:
                    target.trouble = target.trouble or f"{late}; give it more --timeout, or see `driftless status`"
            if now >= told_at:
                told_at = now + _TOLD_SECONDS
                self._report(", ".join(_lag(state, target) for target in waiting))
            self._reader.poll(0.2)

    def _catch_up(self) -> float:
        """Take in what has been told by now, so that nobody is taken for gone; the broker's time."""
        now, deadline = self._control.now(), time.monotonic() + TIMEOUT
        while self._reader.state.now < now and time.monotonic() < deadline:
            self._reader.poll(0.2)
        return now


def _fact(state: State, follower: str, generation: int) -> dict[str, object]:
    return state.get(f"follower/{follower}/{generation}") or {}


def _has(state: State, target: Target, lsn: int) -> bool:
    applied = _fact(state, target.follower, target.generation).get("applied_lsn")
    return applied is not None and parse_lsn(str(applied)) >= lsn


def why_it_stands(state: State, name: str, generation: int, now: float) -> str:
    """Why a follower will not apply a position by itself; empty where it may. `now`: the broker's time."""
    fact = _fact(state, name, generation)
    if state.get(f"paused/{name}") is not None:
        return f"it is paused, so it stands where it is; `driftless resume {name}` first"
    if not is_running(state, name, now):
        return f"nobody runs it, so it stands where it is; `driftless run {name}` first"
    if fact.get("state") == "failed":
        return f"it has stopped: {fact.get('trouble') or 'see `driftless status`'}"
    if fact and not fact.get("built"):
        return "it is not built yet; `driftless status` shows how far it is"
    return ""


def _lag(state: State, target: Target) -> str:
    lag = _fact(state, target.follower, target.generation).get("lag_records")
    return f"{target.follower}: waiting until it has applied the position" + (f", {lag:,} records to go" if lag else "")
