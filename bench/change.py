"""One change put into a topic, and the wait until a follower's readers have it."""

from __future__ import annotations

import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

import redis

from bench.pipeline import Pipeline
from bench.rows import Change, Rows

_MOST_SECONDS = 600


class Changer:
    """Changes rows 0 to `size` of a follower's table, one after another, and reads them as an application would."""

    def __init__(self, p: Pipeline, rows: Rows, follower: str, size: int) -> None:
        self._p = p
        self._rows = rows
        self._size = size
        self._made = 0
        self._table = p.config.table_of(follower) or ""
        self._producer = p.kafka.producer()
        self._place = f"{p.name}-{follower}"
        self._cache = redis.Redis.from_url(p.redis) if p.config.followers[follower].kind == "redis" else None
        address = urlsplit(p.endpoints.opensearch)
        self._http = HTTPConnection(str(address.hostname), address.port, timeout=30)

    def change(self) -> float:
        """Seconds from sending to reading."""
        self._made += 1
        change = self._rows.upsert(self._made * 7919 % self._size)
        wanted = str(change.document).encode()
        begun = time.perf_counter()
        self._producer.produce(self._p.topic(self._table), change.value, change.key, self._p.partition(change))
        self._producer.flush(30)
        while self._read(change) != wanted:
            assert time.perf_counter() - begun < _MOST_SECONDS, f"{self._place}: a change is never readable"
            time.sleep(0.002)
        return time.perf_counter() - begun

    def _read(self, change: Change) -> object:
        if self._cache is not None:
            return self._cache.get(f"{self._place}:{change.id}")
        self._http.request("GET", f"/{self._place}/_source/{change.id}")
        return self._http.getresponse().read()

    def close(self) -> None:
        self._http.close()
        if self._cache is not None:
            self._cache.close()
