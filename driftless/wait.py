"""Read your own writes: wait until followers have applied a source position."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from driftless.control import Control, State
from driftless.errors import SourceError
from driftless.lsn import parse_lsn
from driftless.request import ControlReader


class Positions:
    """How far followers are, kept up while it is asked. Not to be shared between threads."""

    def __init__(self, control: Control) -> None:
        self._reader = ControlReader(control)

    def wait(self, followers: Sequence[str], lsn: int, timeout: float, emit_marker: Callable[[], int]) -> list[str]:
        """Return [] once every commit at or before `lsn` can be read from these followers, else who is late.

        Writes a marker itself, so that an idle source does not make anybody wait for the next heartbeat.
        """
        deadline = time.monotonic() + timeout

        def late(state: State) -> list[str]:
            return [name for name in followers if not _has(state, name, lsn)]

        self._reader.poll()
        if late(self._reader.state) and emit_marker() < lsn:
            raise SourceError(f"the source has not reached the position {lsn:#x} itself")
        self._reader.follow(lambda state: not late(state), deadline - time.monotonic())
        return late(self._reader.state)

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> Positions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _has(state: State, follower: str, lsn: int) -> bool:
    """Whether the generation that readers see has applied the position."""
    facts = [fact.value for fact in state.under(f"follower/{follower}").values()]
    return any(
        fact["live"] and fact["applied_lsn"] is not None and parse_lsn(str(fact["applied_lsn"])) >= lsn
        for fact in facts
    )
