"""Wait until a position of the source is in Kafka, and until followers have applied it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from driftless import names
from driftless.control import Control, State
from driftless.errors import SourceError
from driftless.lsn import format_lsn, parse_lsn
from driftless.marker import Marker, parse_message
from driftless.request import ControlReader, is_running
from driftless.verify.subject import Target

MARKER_SECONDS = 60.0
"""How long the connector may take to bring a marker."""
_TOLD_SECONDS = 5.0
_ANEW = "its log has begun anew meanwhile; verify again once its new generation is live"
_RECENT = 200
"""Records of the message topic, from its end, among which a marker that was just written is."""


class Reached:
    """Looks at the control topic, where whoever runs a follower tells what it has applied."""

    def __init__(self, control: Control, seconds: float, report: Callable[[str], None]) -> None:
        """`seconds`: how long a follower may take to apply a position."""
        self._control = control
        self._seconds = seconds
        self._report = report

    def in_kafka(self, lsn: int) -> None:
        """Return when a marker has been read from Kafka: all that was committed before it has been written there."""
        topic = names.message_topic(self._control.pipeline)
        kafka = self._control.kafka
        offset = max(kafka.beginnings(topic, 1)[0], kafka.committed_ends(topic, 1)[0] - _RECENT)
        deadline = time.monotonic() + MARKER_SECONDS
        while True:
            for message in kafka.read_to_end(topic, begin=offset, isolation="read_committed"):
                offset = (message.offset() or 0) + 1
                told = parse_message(message.value() or b"{}", 0.0)
                if isinstance(told, Marker) and told.lsn >= lsn:
                    return
            if time.monotonic() > deadline:
                raise SourceError(
                    f"the connector has not brought the position {format_lsn(lsn)} to Kafka in {MARKER_SECONDS:.0f} s",
                    hint="`driftless status` shows how far it is, `driftless check` what stops it",
                )
            time.sleep(0.05)

    def by_followers(self, targets: Sequence[Target], lsn: int, overtaken: Callable[[State], bool]) -> None:
        """Return when all have applied a position; one that will not has `trouble` afterwards.

        `overtaken`: whether the log that they read has begun anew.
        """
        waiting = [target for target in targets if not target.trouble]
        deadline, look_at, told_at = time.monotonic() + self._seconds, 0.0, time.monotonic() + _TOLD_SECONDS
        with ControlReader(self._control) as reader:
            while True:
                waiting = [target for target in waiting if not _has(reader.state, target, lsn)]
                if not waiting:
                    return
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + 2.0
                    now = self._control.now()
                    for target in waiting:
                        target.trouble = _trouble(reader.state, target, now) or _ANEW * overtaken(reader.state)
                if time.monotonic() >= deadline:
                    for target in waiting:
                        target.trouble = target.trouble or (
                            f"it has not applied {format_lsn(lsn)} within {self._seconds:.0f} s; "
                            "give it more --timeout, or see `driftless status`"
                        )
                waiting = [target for target in waiting if not target.trouble]
                if waiting and time.monotonic() >= told_at:
                    told_at = time.monotonic() + _TOLD_SECONDS
                    self._report(", ".join(_lag(reader.state, target) for target in waiting))
                reader.poll(0.2)


def _fact(state: State, target: Target) -> dict[str, object]:
    return state.get(f"follower/{target.follower}/{target.generation}") or {}


def _has(state: State, target: Target, lsn: int) -> bool:
    applied = _fact(state, target).get("applied_lsn")
    return applied is not None and parse_lsn(str(applied)) >= lsn


def _trouble(state: State, target: Target, now: float) -> str:
    """Why it will not get there by itself."""
    name, fact = target.follower, _fact(state, target)
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
    lag = _fact(state, target).get("lag_records")
    return f"{target.follower}: waiting until it has applied the position" + (f", {lag:,} records to go" if lag else "")
