"""A witness of what readers see: counters that only rise at the source must never fall in a store."""

from __future__ import annotations

import threading
from collections import Counter
from types import TracebackType

import psycopg
import redis

from tests.support.compare import Store

COUNTERS = 5
_UNREADABLE = (OSError, AssertionError, redis.RedisError)
"""What a store that is away or starting answers with."""


class Monitor:
    """Counts up rows of the table `counters`, and reads them by key from every store while other things happen.

    `fell` holds what went back: where, and from what to what. `seen` is the highest value that each store has shown.
    """

    def __init__(self, dsn: str, stores: dict[str, Store]) -> None:
        self.fell: list[str] = []
        self.reads: Counter[str] = Counter()
        self.seen: dict[tuple[str, int], int] = {}
        self._dsn = dsn
        self._stop, self._quiet = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._count)]
        self._threads += [threading.Thread(target=self._watch, args=item) for item in stores.items()]

    @staticmethod
    def create(connection: psycopg.Connection) -> None:
        """Make the table and its rows."""
        connection.execute("create table counters (id int primary key, n bigint not null)")
        connection.execute("insert into counters select n, 0 from generate_series(1, %s) n", (COUNTERS,))

    def __enter__(self) -> Monitor:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.quiet()
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def quiet(self) -> None:
        """Count no further; go on watching."""
        self._quiet.set()
        self._threads[0].join(60)

    def forgive(self, store: str) -> None:
        """The store itself has lost what it held; what it shows from now on must rise again."""
        with self._lock:
            self.seen = {at: value for at, value in self.seen.items() if at[0] != store}

    def _count(self) -> None:
        while not self._quiet.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True, connect_timeout=10) as connection:
                    while not self._quiet.wait(0.02):
                        connection.execute("update counters set n = n + 1 where id = 1 + (random() * 1000)::int % 5")
            except psycopg.OperationalError:
                self._quiet.wait(0.2)

    def _watch(self, name: str, store: Store) -> None:
        while not self._stop.wait(0.02):
            for key in range(1, COUNTERS + 1):
                with self._lock:
                    before = self.seen.get((name, key), -1)
                try:
                    found = store.get(store.name((str(key),)))
                except _UNREADABLE:
                    continue
                if found is None:
                    continue
                self.reads[name] += 1
                value = int(found["n"])
                with self._lock:
                    # Somebody may have forgiven the store while it was read.
                    if value < before <= self.seen.get((name, key), -1):
                        self.fell.append(f"{name}: counter {key} fell from {before} to {value}")
                    self.seen[name, key] = value
