"""Wait until windows of streams are closed: until then, what readers see of a window is not there, or not all of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

from driftless.control.request import ControlReader, is_running
from driftless.control.topic import Control
from driftless.control.wait import START_SECONDS
from driftless.facts.state import State
from driftless.facts.streams import newest_stream_number, stream_progress_key
from driftless.names import stream_lease

LOOK_SECONDS = 1.0


def closed_late(
    control: Control, streams: Sequence[str], moment: datetime, timeout: float, *, start: float = START_SECONDS
) -> tuple[list[str], dict[str, str]]:
    """The streams whose windows up to a moment are not all published when the time is up; of some, why they will not
    be. Returns as soon as none is late, or no late one will get there by itself.

    `start`: for so many seconds a run may be starting.
    """
    begun = time.monotonic()
    deadline = begun + timeout
    with ControlReader(control) as reader:

        def late(state: State) -> list[str]:
            return [name for name in streams if _closed_to(state, name) < moment.timestamp()]

        while (names := late(reader.state)) and (left := deadline - time.monotonic()) > 0:
            reader.follow(lambda state: not late(state), min(left, LOOK_SECONDS))
            names = late(reader.state)
            now = control.now() if names else 0.0
            why = {name: said for name in names if (said := _why_never(reader.state, name, now))}
            idle = all(said.startswith(_NOBODY) for said in why.values())
            if why and len(why) == len(names) and not (idle and time.monotonic() < begun + start):
                return names, why
        return names, {}


_NOBODY = "nobody computes it"


def _closed_to(state: State, stream: str) -> float:
    fact = state.get(stream_progress_key(stream, newest_stream_number(state, stream))) or {}
    closed = fact.get("closed_to")
    return float(str(closed)) if closed is not None else 0.0


def _why_never(state: State, stream: str, now: float) -> str:
    number = newest_stream_number(state, stream)
    if not number:
        return "it was never applied; run `driftless apply`"
    fact = state.get(stream_progress_key(stream, number)) or {}
    if not is_running(state, stream_lease(stream), now):
        return f"{_NOBODY}; run `driftless run {stream}`"
    return f"it has failed: {fact.get('trouble')}" if fact.get("state") == "failed" else ""
