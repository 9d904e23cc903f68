"""Waiting for the connector to run, and who holds it up: its slot waits for every transaction that has written."""

from __future__ import annotations

import time
from collections.abc import Callable

from connectors.debezium.connect import Connect
from connectors.postgres.blockers import slot_blockers
from connectors.postgres.client import Postgres
from driftless.errors import SourceError

START_SECONDS = 120.0
"""How long `apply` waits for it."""
_LOOK_SECONDS, _TOLD_SECONDS = 2.0, 20.0


def await_running(connect: Connect, source: Postgres, connector: str, slot: str, tell: Callable[[str], None]) -> None:
    """Wait until the connector runs. Raises SourceError where it fails or is late, and names who held up its slot."""
    held, looked, told = "", time.monotonic(), 0.0

    def look() -> None:
        nonlocal held, looked, told
        now = time.monotonic()
        if now < looked + _LOOK_SECONDS:
            return
        before, held, looked = held, slot_blockers(source.rows, slot), now
        if held and (not before or now >= told + _TOLD_SECONDS):
            told = now
            tell(f"waiting for the replication slot {slot}: {held}")

    try:
        connect.wait_running(connector, START_SECONDS, look)
    except SourceError as exc:
        if not held:
            raise
        hint = "end that transaction; then `driftless apply` goes on from here"
        raise SourceError(f"{exc}, since its replication slot is not made yet: {held}", hint=hint) from None
