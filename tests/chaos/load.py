"""Writers that never give up: transactions that keep sums, counters that rise, rows that come and go."""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import suppress

import psycopg

from tests.chain.views.test_views import Writers

PAUSE = 0.08
"""Between two transactions of a writer: some 35 a second in all, which leaves the tests beside it their share."""
RETRIED = (psycopg.OperationalError, psycopg.errors.Error)
_STATEMENTS = (
    "update counters set n = n + 1 where id = 1 + (random() * 1000)::int % 5",
    "insert into customers (id, name) values ({n}, 'customer {n}') on conflict do nothing",
    "update customers set name = name || '.' where id = {n} % 50",
    "delete from customers where id = {n} - 20 and id % 3 = 0",
)


class Load:
    """Until `end`, whatever happens to the server meanwhile. `done` counts what was committed."""

    def __init__(self, dsn: str, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self._dsn = dsn
        self._ended = threading.Event()
        works = (self._orders, self._orders, self._rows)
        self._threads = [
            threading.Thread(target=self._go_on, args=(work, random.Random(seed + n)), daemon=True)
            for n, work in enumerate(works)
        ]
        for thread in self._threads:
            thread.start()

    def _go_on(self, work: object, rng: random.Random) -> None:
        while not self._ended.is_set():
            with suppress(*RETRIED), psycopg.connect(self._dsn, connect_timeout=5) as connection:
                work(connection, rng)  # type: ignore[operator]
            self._ended.wait(0.2)

    def _orders(self, connection: psycopg.Connection, rng: random.Random) -> None:
        while not self._ended.wait(PAUSE):
            Writers._change(connection, rng, rng.randrange(1, 201), rng.randrange(1, 6))
            connection.rollback() if rng.random() < 0.1 else connection.commit()
            self.done["orders"] += 1

    def _rows(self, connection: psycopg.Connection, rng: random.Random) -> None:
        while not self._ended.wait(PAUSE):
            connection.execute(rng.choice(_STATEMENTS).format(n=1000 + self.done["rows"]).encode())
            connection.commit()
            self.done["rows"] += 1

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(60)
