"""How a worker says that there is something to report, and how an error is told."""

from __future__ import annotations

from typing import Protocol

from driftless.errors import SyncError


class Signal(Protocol):
    """What a worker sets when there is something to tell."""

    def set(self) -> None: ...


def told(error: SyncError) -> str:
    """An error with what to do about it."""
    return f"{error}; {error.hint}" if error.hint else str(error)
