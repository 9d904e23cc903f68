"""A watch on the source beside a run: what DDL does is not in the log, nor what is missing from it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from cli.base import say
from driftless import names
from driftless.config.models import Config
from driftless.control.request import ControlReader
from driftless.errors import SourceError, SourceUnavailable, SyncError
from driftless.pipeline import control_of
from jobs.threads.background import Background

if TYPE_CHECKING:
    from connectors.failover.takeover import Takeover
    from connectors.pipeline.guard import Trouble
    from connectors.postgres.client import Postgres
    from driftless.facts.state import State

SECONDS = 2.0
CATALOGUE_SECONDS = 10.0


class SourceWatch(Background):
    """Ends a run where the log cannot be trusted any more, and says once of each table that it is no longer as it was
    registered. Followers need no database, so one that cannot be reached is no trouble here.
    """

    def __init__(self, config: Config, halt: Callable[[SyncError], None]) -> None:
        super().__init__("source", halt)
        self._config = config
        self._halt = halt
        self._control = control_of(config)
        self._reader: ControlReader | None = None
        self._source: Postgres | None = None
        self._promoted: Takeover | None = None
        """The promotion that this watch still has to tell Connect of."""
        self._said: set[tuple[str, str]] = set()
        self._seen: tuple[str, int, int] | None = None
        """The catalogue and the registered tables of the last look: hundreds of tables are not read again for none."""
        self._catalogue_at = time.monotonic() + CATALOGUE_SECONDS
        self._well_at = -math.inf
        self._ended = threading.Event()

    def stop(self) -> None:
        self._ended.set()

    def look(self, *, often: bool = False) -> None:
        """Raise SourceError where something is wrong now. It is kept in the control topic, whatever comes after it."""
        from connectors.debezium.connect import Connect
        from connectors.failover.takeover import follow
        from connectors.pipeline.guard import troubles, unmended_trouble
        from connectors.postgres.client import Postgres

        if self._reader is None:
            self._reader = ControlReader(self._control)
        self._reader.poll()
        state = self._reader.state
        found: list[Trouble] = []
        try:
            if self._source is None:
                self._source = Postgres(self._config.source.dsn)
            connect = Connect(self._config.connect)
            found = list(troubles(self._config, self._source, connect, state, often=often))
            if found:  # an `apply` may just be taking a table out
                self._reader.poll(1.0)
                state = self._reader.state
                found = list(troubles(self._config, self._source, connect, state, often=often))
            self._promoted = next((t.takeover for t in found if t.takeover is not None), self._promoted)
            if self._promoted is not None:
                follow(self._config, self._source, connect, self._control, state, self._promoted)
                say(f"{self._promoted}; its log contains everything that was read, so the connector resumes there")
                self._promoted = None
                return
            if not found:
                self._heed_reader(self._source, state)
            if time.monotonic() >= self._catalogue_at:
                self._catalogue_at = time.monotonic() + CATALOGUE_SECONDS
                self._tell_of_tables(self._source, state)
        except SyncError:
            self._forget_source()
            found = [trouble for trouble in (unmended_trouble(state),) if trouble]
        for trouble in found:
            if trouble.renewal and unmended_trouble(state) is None:
                self._control.write(trouble.fact())
            raise SourceError(trouble.what, hint=trouble.hint)

    def _heed_reader(self, source: Postgres, state: State) -> None:
        from connectors.postgres.slot_reader import slot_reader_facts

        now = time.monotonic()
        facts = slot_reader_facts(
            source, names.slot(self._config.name), state, watched=now - self._well_at < 3 * SECONDS
        )
        if facts:
            self._control.write(facts)
            state.merge(facts)
        self._well_at = now

    def _forget_source(self) -> None:
        if self._source is not None:
            self._source.close()
        self._source = None

    def _tell_of_tables(self, source: Postgres, state: State) -> None:
        from connectors.postgres.catalogue import CatalogueLook

        registered = [fact.offset for kind in ("table", "storage") for fact in state.by_prefix(kind).values()]
        seen = source.catalogue_mark(), len(registered), max(registered, default=0)
        if seen == self._seen:
            return
        look = CatalogueLook.of(self._config, source)
        found = set(look.changes(state))
        for table, reason in sorted(found - self._said):
            say(f"{table} changed: {reason}; `driftless plan` shows what that means, `driftless apply` follows it")
        if facts := look.new_partitions(state):
            self._control.write(facts)
            state.merge(facts)
        self._said, self._seen = found, seen

    def work(self) -> None:
        while not self._ended.wait(SECONDS):
            try:
                self.look(often=True)
            except SourceUnavailable:
                continue  # Kafka is away, which followers tell of
            except SyncError as exc:
                self._halt(exc)
                break
        self._forget_source()
        if self._reader is not None:
            self._reader.close()
