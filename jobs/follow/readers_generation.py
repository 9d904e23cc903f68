"""Which generation of a follower readers see: one value for all threads of the follower."""

from __future__ import annotations

import threading

from driftless.sink import Sink


class ReadersGeneration:
    """What the store says, replaced whole: nobody sees two generations live, or none, between two of its states.

    One thread at a time switches readers. `claims` is held while a position is claimed, and while it is decided which
    positions may be.
    """

    def __init__(self) -> None:
        self.claims = threading.Lock()
        self._lock = threading.Lock()
        self._switches = threading.Lock()
        self._number: int | None = None
        self._changes = 0

    @property
    def number(self) -> int | None:
        """The generation that readers see; None where there is none, or nobody has asked."""
        return self._number

    def ask(self, sink: Sink) -> int | None:
        """Look at the store. What it said before a switch began, or ended, is not taken for what it says now."""
        while True:
            before = self._changes
            number = sink.promoted()
            with self._lock:
                if before == self._changes:
                    self._number = number
                    return number

    def switch(self, sink: Sink, number: int, *, only_first: bool = False) -> bool:
        """Show readers that generation; whether it was done. `only_first`: where they see none.

        After an error they may see another one than before: the store is asked.
        """
        with self._switches:
            if only_first and self.ask(sink) is not None:
                return False
            self._change()
            try:
                sink.promote(number)
            except BaseException:
                self._change()
                raise
            with self._lock:
                self._changes += 1
                self._number = number
            return True

    def _change(self) -> None:
        with self._lock:
            self._changes += 1
