"""What is done to a shop whose orders are followed, and how long its readers wait: the same for whoever follows it."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg

from bench.meanwhile import meanwhile
from bench.orders import SHARE, mixed
from bench.searched import Index, pages

WRITERS = 4
WRITES = 25
"""Transactions a second of each writer."""
LOAD = 100
_POLL_SECONDS = 0.002
_MANY_SECONDS = 0.02
_MEASURED = 1_000_000
"""Measured changes set an order's total to a number from here on, times the turn, which none has otherwise."""
_LOST_SECONDS = 30.0
"""What a change counts for that nobody can read by then."""
_MOST_SECONDS = 600.0
"""The same of a large fan-out, and of a queue."""


class Shop:
    """Changes rows, and reads the documents that show them."""

    def __init__(self, dsn: str, url: str, index: str, orders: int, turn: int) -> None:
        """`turn`: another one for each who follows the same database, or what it waits for would be there already."""
        self._dsn = dsn
        self._url = url
        self._index = index
        self._orders = orders
        self._made = self._first = turn * _MEASURED
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._read = Index(url, index)

    def close(self) -> None:
        self._connection.close()
        self._read.close()

    def change(self, reader: Index | None = None, connection: psycopg.Connection | None = None) -> float:
        """Change an order that has not product 1. Seconds from sending its commit to reading it, or _LOST_SECONDS."""
        self._made += 1
        order, total = self._made * 7919 % self._orders // SHARE * SHARE + 1, self._made
        begun = time.perf_counter()
        (connection or self._connection).execute("update orders set total = %s where id = %s", (total, order))
        while (found := (reader or self._read).get(order)) is None or float(found["total"]) != total:
            if time.perf_counter() - begun > _LOST_SECONDS:
                return _LOST_SECONDS
            time.sleep(_POLL_SECONDS)
        return time.perf_counter() - begun

    def changes(self, count: int) -> list[float]:
        """So many, fewer where they are so slow that it would take minutes."""
        taken = list[float]()
        while len(taken) < count and sum(taken) < 4 * _LOST_SECONDS:
            taken.append(self.change())
        return taken

    def fan_out(self) -> float:
        """Change product 1. Seconds until every document that has it shows that."""
        self._made += 1
        title, begun = f"hot {self._made}", time.perf_counter()
        self._connection.execute("update products set title = %s where id = 1", (title,))
        for page in pages(range(SHARE, self._orders + 1, SHARE)):
            # Its last one first: whoever asks for hundreds again and again takes the search server a whole core.
            for waiting in (page[-1:], page):
                while waiting := self._without(title, waiting):
                    if time.perf_counter() - begun > _MOST_SECONDS:
                        return _MOST_SECONDS
                    time.sleep(_MANY_SECONDS)
        return time.perf_counter() - begun

    def _without(self, title: str, keys: list[int]) -> list[int]:
        """The orders whose documents do not show that title yet."""
        found = self._read.several(keys, only="lines.product.title")
        return [key for key, shown in found.items() if not shown or not _has(shown, title)]

    def fan_out_beside(self) -> tuple[float, list[float]]:
        """The same, and how long changes of other orders took meanwhile."""
        taken = list[float]()

        def others(ended: threading.Event) -> None:
            with closing(Index(self._url, self._index)) as reader, psycopg.connect(self._dsn, autocommit=True) as own:
                while not ended.is_set():
                    taken.append(self.change(reader, own))

        with meanwhile(others):
            seconds = self.fan_out()
        return seconds, taken

    def churn(self, seconds: float) -> float:
        """Mixed changes by several writers for so long. Seconds from the last one until all of them can be read: each
        writer ends with a change of an order of its own.
        """
        deadline = time.monotonic() + seconds

        def write(number: int) -> None:
            rng = random.Random(number)
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                due = time.monotonic()
                while due < deadline:
                    mixed(connection, rng, self._orders)
                    due += 1 / WRITES
                    time.sleep(max(0.0, due - time.monotonic()))
                connection.execute("update orders set total = %s where id = %s", (self._first, number))

        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(write, range(1, WRITERS + 1)))
        begun = time.perf_counter()
        for number in range(1, WRITERS + 1):
            while (found := self._read.get(number)) is None or float(found["total"]) != self._first:
                if time.perf_counter() - begun > _MOST_SECONDS:
                    return _MOST_SECONDS
                time.sleep(_POLL_SECONDS)
        return time.perf_counter() - begun

    def load(self, ended: threading.Event) -> None:
        """Changes of other orders at an even pace."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            due, made = time.perf_counter(), 0
            while not ended.wait(max(0.0, due - time.perf_counter())):
                order = 2 + made * 11 % (self._orders // SHARE) * SHARE
                connection.execute("update orders set status = %s where id = %s", (f"load {made}", order))
                made += 1
                due += 1 / LOAD


def _has(shown: dict[str, object], title: str) -> bool:
    lines = shown.get("lines")
    return isinstance(lines, list) and any(line["product"]["title"] == title for line in lines)
