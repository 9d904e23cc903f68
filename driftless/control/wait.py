"""Read your own writes: wait until followers have applied a source position."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from driftless.control.request import ControlReader, is_running
from driftless.control.topic import Control
from driftless.errors import SourceError
from driftless.facts.state import State
from driftless.kafka.client import TIMEOUT
from driftless.lsn import format_lsn, parse_lsn

START_SECONDS = 30.0
"""How long a run may take from its start to its leases on a machine that is busy."""
NOBODY = "nobody runs it"
LOOK_SECONDS, LOOK_AGAIN_SECONDS = 1.0, 3.0
"""After so long it is asked whether those that are late get on at all, and again after so long."""


class Positions:
    """How far followers are, kept up while it is asked. Not to be shared between threads."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._reader = ControlReader(control)
        self.hopeless: dict[str, str] = {}
        """Of the last `wait`: who will not get there by itself, and why."""

    def wait(
        self,
        followers: Sequence[str],
        lsn: int,
        timeout: float,
        emit_marker: Callable[[], int],
        *,
        start: float = START_SECONDS,
        report: Callable[[str], None] = lambda _: None,
    ) -> list[str]:
        """Return [] once every commit at or before `lsn` can be read from these followers, else who is late.

        Writes a marker itself, so that an idle source does not make anybody wait for the next heartbeat. Returns
        before the time is up where one of them will not get there by itself, which `hopeless` then says. `start`: for
        so many seconds a run may be starting, so a follower that nobody runs is waited for, and reported.
        """
        deadline = time.monotonic() + timeout
        self.hopeless = {}

        def late(state: State) -> list[str]:
            return [name for name in followers if not _has(state, name, lsn)]

        self._reader.poll()
        if late(self._reader.state) and emit_marker() < lsn:
            raise SourceError(
                f"the source has not reached the position {format_lsn(lsn)} itself",
                hint="take the position from the database of source.dsn, with `select pg_current_wal_lsn()`",
            )
        begun, look_at, told = time.monotonic(), LOOK_SECONDS, False
        while late(self._reader.state) and (left := deadline - time.monotonic()) > 0:
            self._reader.follow(lambda state: not late(state), min(left, look_at))
            look_at = LOOK_AGAIN_SECONDS
            if self._look(late(self._reader.state), lsn):
                if all(why.startswith(NOBODY) for why in self.hopeless.values()) and time.monotonic() < begun + start:
                    if not told:
                        report(f"{', '.join(self.hopeless)}: {NOBODY}; waiting up to {start:g} s for a run to start")
                    told = True
                    continue
                break
        return late(self._reader.state)

    def _look(self, late: Sequence[str], lsn: int) -> bool:
        """Whether one of these will not get there by itself, after all that has been told by now is known."""
        if not late:
            return False
        now = self._control.now()
        deadline = time.monotonic() + TIMEOUT
        while self._reader.state.now < now and time.monotonic() < deadline:
            self._reader.poll(0.2)
        state = self._reader.state
        self.hopeless = {name: why for name in late if (why := _why_never(state, name, now) or stuck(state, name, lsn))}
        return bool(self.hopeless)

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> Positions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _why_never(state: State, follower: str, now: float) -> str:
    """Why a follower does not get on by itself; empty where it may."""
    if not state.by_prefix(f"generation/{follower}"):
        return "it was never applied; run `driftless apply`"
    if state.get(f"paused/{follower}") is not None:
        return f"it is paused; run `driftless resume {follower}`"
    facts = [fact.value for fact in state.by_prefix(f"follower/{follower}").values()]
    if not is_running(state, follower, now):
        failed = [str(fact["trouble"]) for fact in facts if fact.get("state") == "failed" and fact.get("trouble")]
        return f"{NOBODY}; run `driftless run {follower}`" + "".join(f" (it ended: {why})" for why in failed[:1])
    return has_failed(state, follower)


def has_failed(state: State, follower: str) -> str:
    """Why a follower that somebody runs gets nowhere; empty where a generation is built that may take its place.

    A run that has just taken the lease has told nothing yet: what stands there is what the run before ended with.
    """
    token = (state.get(f"lease/{follower}") or {}).get("token")
    facts = {int(n): fact.value for n, fact in state.by_prefix(f"follower/{follower}").items()}
    number = max(map(int, state.by_prefix(f"generation/{follower}")))
    newest = facts.get(number, {})
    if newest.get("token", token) != token or newest.get("state") in (None, "bootstrapping"):
        return ""
    begun = state.get(f"generation/{follower}/{number}") or {}
    if newest.get("state") != "failed" and begun.get("by_itself", True) and not newest.get("held_back"):
        return ""  # it is built, and readers are being switched to it
    seen = [fact for fact in facts.values() if fact.get("live")] or [*facts.values()]
    if all(fact.get("state") == "failed" and fact.get("token", token) == token for fact in seen):
        return f"it has failed: {seen[0].get('trouble') or 'see `driftless status`'}"
    return ""


def stuck(state: State, follower: str, lsn: int) -> str:
    """Why readers of a follower are not shown a position before somebody does something; empty where that is not known.

    What an earlier run has told is not taken for what holds now. The generation that is held back must have applied
    the position itself: what was committed before it may be what lets it go.
    """
    lease = state.get(f"lease/{follower}") or {}
    facts = {int(n): fact.value for n, fact in state.by_prefix(f"follower/{follower}").items()}
    current = [fact for fact in facts.values() if lease.get("held") and fact.get("token") == lease.get("token")]
    said = next((str(fact["stuck"]) for fact in current if fact.get("stuck")), "")
    newest = facts[max(facts)] if facts else {}
    return said if newest.get("state") == "failed" or _applied(newest) >= lsn else ""


def _applied(fact: Mapping[str, object]) -> int:
    said = fact.get("applied_lsn")
    return -1 if said is None else parse_lsn(str(said))


def _has(state: State, follower: str, lsn: int) -> bool:
    """Whether the generation that readers see has applied the position."""
    facts = [fact.value for fact in state.by_prefix(f"follower/{follower}").values()]
    return any(fact["live"] and _applied(fact) >= lsn for fact in facts)
