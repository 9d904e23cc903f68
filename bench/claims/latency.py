"""From commit to readable: the whole chain, beside a consumer of the topic, which sees what Debezium and Kafka take."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from types import TracebackType
from urllib.parse import urlsplit

import orjson
import psycopg
import redis
from confluent_kafka import TopicPartition

from bench.database import database, fill
from bench.figures import Figure, Report, Scale, percentile
from bench.meanwhile import meanwhile
from bench.pipeline import Followers, Pipeline, Running, pipeline
from driftless import Waiter
from stack import Stack

LOAD = 200
"""Changes a second of other rows, for the loaded half."""
AIMS = {50: 120, 95: 250}
_FOLLOWERS: Followers = {
    # Written down, since a server that nobody searches would otherwise stop refreshing.
    "search": ("opensearch", {"settings": {"refresh_interval": "1s"}}),
    "cache": ("redis", {}),
}
_POLL_SECONDS = 0.002
_MEASURED = 1_000_000
"""Measured changes set a row's stock to a number from here on, which none has otherwise."""


@dataclass(frozen=True)
class Taken:
    """Milliseconds since the moment before COMMIT was sent: until in the log, and until readable in each store."""

    log: float
    search: float
    cache: float


def run(stack: Stack, scale: Scale, report: Report) -> list[Figure]:
    """One change at a time, then the same while others are made; then until a search finds it."""
    rows = max(100, scale.rows // 50)
    with database(stack) as dsn, pipeline(stack, _FOLLOWERS, dsn=dsn) as p:
        fill(dsn, rows)
        report(f"the chain over a table of {rows:,} rows: `driftless apply`, then both followers")
        p.command("apply")
        with Running(p) as running, Chain(p, dsn, rows) as chain:
            p.wait_live(*_FOLLOWERS, running=running)
            report(f"{scale.warm_up} changes to warm up, then {scale.changes} one at a time")
            for _ in range(scale.warm_up):
                chain.change()
            alone = [chain.change() for _ in range(scale.changes)]
            report(f"the same with {LOAD} other changes a second")
            load = Load(dsn, rows)
            with meanwhile(load.run):
                loaded = [chain.change() for _ in range(scale.changes)]
            assert load.made, "the load made no change"
            found = [chain.search() for _ in range(max(1, scale.changes // 5))]
            report("the same by an application that waits for its commits")
            with Waiter(p.folder / "sync.yaml") as waiter:
                waited = [chain.wait(waiter) for _ in range(max(4, scale.changes // 5))][3:]
    figures = []
    for how, taken in (("one at a time", alone), (f"with {LOAD} other changes/s", loaded)):
        for store in ("search", "cache"):
            name = f"commit to readable by key, {'OpenSearch' if store == 'search' else 'Redis'}, {how}"
            figures += _figures(name, [getattr(t, store) for t in taken], [t.log for t in taken], aims=True)
    name = "commit to found by a search, refresh each second"
    figures += _figures(name, [t.search for t in found], [t.log for t in found], aims=False)
    both = [max(t.search, t.cache) for t in alone]
    for percent in AIMS:
        mine, readable = percentile(waited, percent), percentile(both, percent)
        name = f"commit until `Waiter.wait` returns, p{percent}; until readable in both"
        figures.append(Figure(name, mine, "ms", readable, mine / readable, "500 ms later"))
    return figures


def _figures(name: str, ours: Sequence[float], log: Sequence[float], *, aims: bool) -> list[Figure]:
    return [
        Figure(
            f"{name}, p{percent}",
            mine := percentile(ours, percent),
            "ms",
            theirs := percentile(log, percent),
            mine / theirs,
            f"{aim} ms" if aims else "",
        )
        for percent, aim in AIMS.items()
    ]


class Chain:
    """Changes a row and watches for it everywhere."""

    def __init__(self, p: Pipeline, dsn: str, rows: int) -> None:
        self._connection = psycopg.connect(dsn)
        self._rows = rows
        self._made = 0
        self._cache = redis.Redis.from_url(p.redis)
        self._key = f"{p.name}-cache"
        self._index = f"/{p.name}-search"
        address = urlsplit(p.endpoints.opensearch)
        self._http = HTTPConnection(str(address.hostname), address.port, timeout=30)
        self._consumer = p.kafka.consumer(**{"fetch.wait.max.ms": 10})
        ends = p.kafka.written_ends({p.topic(): p.partitions})[p.topic()]
        self._consumer.assign([TopicPartition(p.topic(), partition, end) for partition, end in ends.items()])
        self._seen: dict[int, float] = {}
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Chain:
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._ended.set()
        self._reader.join(10)
        self._consumer.close()
        self._connection.close()
        self._http.close()
        self._cache.close()

    def _read(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None and (value := message.value()):
                stock = orjson.loads(value)["stock"]
                if stock >= _MEASURED:
                    self._seen[stock] = time.perf_counter()

    def change(self) -> Taken:
        """Commit a change, and wait until it can be read by key from both stores."""
        begun, key, stock = self._commit()
        wanted = f'"stock":{stock},'.encode()
        cache = search = None
        while cache is None or search is None:
            self._in_time(begun, "to be readable by key")
            if cache is None and wanted in (self._cache.get(f"{self._key}:{key}") or b""):
                cache = time.perf_counter() - begun
            if search is None and wanted in self._get(f"{self._index}/_source/{key}"):
                search = time.perf_counter() - begun
            time.sleep(_POLL_SECONDS)
        return self._taken(begun, stock, search, cache)

    def search(self) -> Taken:
        """Commit a change, and wait until a search finds it."""
        begun, _, stock = self._commit()
        while b'"_id"' not in self._get(f"{self._index}/_search?q=stock:{stock}&_source=false"):
            self._in_time(begun, "to be found")
            time.sleep(_POLL_SECONDS)
        return self._taken(begun, stock, time.perf_counter() - begun, 0.0)

    def wait(self, waiter: Waiter) -> float:
        """Commit a change, and wait as applications do until all followers have it. Milliseconds."""
        begun, key, stock = self._commit()
        assert waiter.wait(), "the followers have not applied a change in time"
        taken = (time.perf_counter() - begun) * 1000
        assert f'"stock":{stock},'.encode() in (self._cache.get(f"{self._key}:{key}") or b"")
        return taken

    def _commit(self) -> tuple[float, int, int]:
        self._made += 1
        # Keys from all over the table, and no two in a row of one partition.
        key, stock = self._made * 7 % self._rows, _MEASURED + self._made
        self._connection.execute("update product set stock = %s where id = %s", (stock, key))
        begun = time.perf_counter()
        self._connection.commit()
        return begun, key, stock

    def _get(self, path: str) -> bytes:
        self._http.request("GET", path)
        return self._http.getresponse().read()

    def _taken(self, begun: float, stock: int, search: float, cache: float) -> Taken:
        while stock not in self._seen:
            self._in_time(begun, "to be read from the topic")
            time.sleep(_POLL_SECONDS)
        return Taken((self._seen[stock] - begun) * 1000, search * 1000, cache * 1000)

    @staticmethod
    def _in_time(begun: float, what: str) -> None:
        assert time.perf_counter() - begun < 60, f"after 60 s a change is still waited for {what}"


class Load:
    """Small transactions on the table, at an even pace. `made`: how many."""

    def __init__(self, dsn: str, rows: int) -> None:
        self._dsn = dsn
        self._rows = rows
        self.made = 0

    def run(self, ended: threading.Event) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            due = time.perf_counter()
            while not ended.wait(max(0.0, due - time.perf_counter())):
                change = (f"load {self.made}", self.made * 11 % self._rows)
                connection.execute("update product set title = %s where id = %s", change)
                self.made += 1
                due += 1 / LOAD
