"""A watch on the source's catalogue beside a run: what DDL does is not in the log."""

from __future__ import annotations

import threading

from driftless.cli.base import control_of, say
from driftless.config import Config
from driftless.errors import SyncError

SECONDS = 10.0


class CatalogueWatch(threading.Thread):
    """Says once of each table that it is no longer as it was registered, and what to do. Followers need no database,
    so one that cannot be reached is no trouble here.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(name="catalogue", daemon=True)
        self._config = config
        self._ended = threading.Event()

    def stop(self) -> None:
        self._ended.set()

    def run(self) -> None:
        from connectors.catalogue import changes
        from connectors.postgres import Postgres

        said: set[tuple[str, str]] = set()
        control = control_of(self._config)
        while not self._ended.wait(SECONDS):
            try:
                with Postgres(self._config.source.dsn) as source:
                    found = set(changes(self._config, source, control.read()))
            except SyncError:
                continue
            for table, reason in sorted(found - said):
                say(f"{table} changed: {reason}; `driftless plan` shows what that means, `driftless apply` follows it")
            said = found
