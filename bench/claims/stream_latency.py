"""From an event to readable in Redis: a group that is shown with every change, and windows that are final, each by a
process of its own; beside a row of a table, from its COMMIT, in the same process.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import psycopg
import redis

from bench.database import database
from bench.figures import Figure, Report, Scale, percentile
from bench.pipeline import Followers, Pipeline, Running, pipeline, until
from driftless import names
from driftless.config.models import KafkaConfig
from driftless.kafka.client import Kafka
from stack import Stack

SIZE, LATENESS = 2, 1
"""Of a final window, and how long it waits for late events, in seconds."""
_FOLLOWERS: Followers = {
    "rows": ("redis", {"view": "items"}),
    "changes": ("redis", {"view": "total", "key": "{page}:{began}"}),
    "final": ("redis", {"view": "windows", "key": "{page}:{began}"}),
}
_SQL = "SELECT unix_millis(window.start) AS began, page, count(*) AS n FROM clicks GROUP BY window(at, '{}'), page"
_STREAMS = {
    "total": {"sql": _SQL.format("36500 days"), "key": ["page", "began"], "emit": "changes"},
    "windows": {"sql": _SQL.format(f"{SIZE} seconds"), "key": ["page", "began"]},
}
_PAUSE = 0.37
"""Between changes: never at the same moment of what happens every second."""


def run(stack: Stack, scale: Scale, report: Report) -> list[Figure]:
    """A change at a time; a quarter as many final windows."""
    with database(stack) as dsn, _topic(stack) as topic:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("create table items (id int primary key, n int)")
            connection.execute("insert into items values (1, 0)")
        events = {
            "clicks": {
                "topic": topic,
                "columns": {"page": "text", "at": "timestamptz"},
                "time": {"event": "at"},
                "lateness": f"{LATENESS}s",
            }
        }
        followers = {
            name: (kind, {**fields, "key": f"{topic}:{name}:{fields.get('key', '{id}')}"})
            for name, (kind, fields) in _FOLLOWERS.items()
        }
        views = {"items": {"root": "public.items"}}
        over = {"events": events, "streams": _STREAMS}
        with pipeline(stack, followers, dsn=dsn, captured=["public.items"], views=views, over=over) as p:
            p.command("apply")
            clicks = _Clicks(p, topic, dsn)
            report(f"{scale.changes} changes of a group and of a row, one at a time")
            with Running(p, "total", "changes", "rows") as running:
                p.wait_live("changes", "rows", running=running)
                for _ in range(max(2, scale.warm_up // 10)):
                    clicks.change()
                    clicks.row()
                changes, rows = zip(*((clicks.change(), clicks.row()) for _ in range(scale.changes)), strict=True)
            windows = max(2, scale.changes // 4)
            report(f"{windows} windows of {SIZE} s that are final")
            with Running(p, "windows", "final") as running:
                p.wait_live("final", running=running)
                readable = clicks.windows(windows)
            closable = {end: end + LATENESS for end in readable}
            ticked = _ticks(p, closable)
    figures = []
    for what, ours, aim in (
        ("event to readable, a group with every change", changes, "1 s"),
        ("a final window's tick to readable", _taking(ticked, readable), "2 s"),
        (f"the same, from when it was over for its lateness of {LATENESS} s", _taking(closable, readable), ""),
    ):
        for at in (50, 95):
            mine, row = percentile(ours, at) * 1000, percentile(rows, at) * 1000
            figures.append(Figure(f"{what}, p{at}; a row, COMMIT to readable", mine, "ms", row, mine / row, aim))
    return figures


@contextmanager
def _topic(stack: Stack) -> Iterator[str]:
    endpoints = stack.endpoints()
    assert endpoints is not None
    kafka, name = Kafka(KafkaConfig(bootstrap=endpoints.kafka)), f"bench-events-{uuid.uuid4().hex[:6]}"
    kafka.create(name, 2, {"message.timestamp.type": "LogAppendTime"})
    until(f"the topic {name}", partial(kafka.topic, name))
    yield name
    kafka.delete(name)


def _taking(begun: Mapping[float, float], readable: Mapping[float, float]) -> list[float]:
    return [moment - begun[end] for end, moment in readable.items()]


def _ticks(p: Pipeline, over: Mapping[float, float]) -> dict[float, float]:
    """When the tick was written that closed the window of each end, by the clock of the broker."""
    topic = names.ticks_topic(p.name, "windows", 1)
    ticks = [
        (int(message.value() or b"0") / 1000, message.timestamp()[1] / 1000) for message in p.kafka.read_to_end(topic)
    ]
    return {end: min(at for moment, at in ticks if moment > since) for end, since in over.items()}


class _Clicks:
    """Writes events and rows, and watches for what becomes of them. Every answer is in seconds."""

    def __init__(self, p: Pipeline, topic: str, dsn: str) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._cache = redis.Redis.from_url(p.redis)
        self._producer = p.kafka.producer()
        self._topic = topic
        self._made = 0

    def change(self) -> float:
        self._made += 1
        """The one window of this century begins in 1970."""
        wanted = {"began": 0, "page": "page", "n": self._made}
        return self._taken("changes:page:0", partial(self._write, "page"), wanted)

    def row(self) -> float:
        update = partial(self._connection.execute, "update items set n = %s where id = 1", (self._made,))
        return self._taken("rows:1", update, {"id": 1, "n": self._made})

    def windows(self, count: int) -> dict[float, float]:
        """The end of each, and when it was readable; with an event every fifth of a second."""
        seen: dict[bytes, float] = {}
        found: dict[float, float] = {}
        next_at = time.time()
        while len(seen) <= count:
            if time.time() >= next_at:
                next_at += 0.2
                self._write("window")
            for key in self._cache.scan_iter(f"{self._topic}:final:window:*", count=1000):
                if key not in seen:
                    began = json.loads(self._cache.get(key) or b"{}")["began"] / 1000
                    found[began + SIZE] = seen[key] = time.time()
            time.sleep(0.01)
        del found[min(found)]  # it may have been over when the run began
        return found

    def _write(self, page: str) -> None:
        event = {"page": page, "at": round(time.time() * 1000)}
        self._producer.produce(self._topic, json.dumps(event).encode())
        self._producer.flush(30)

    def _taken(self, key: str, change: Callable[[], object], wanted: dict[str, object]) -> float:
        time.sleep(_PAUSE)
        begun = time.perf_counter()
        change()
        until(f"{key} to be {wanted}", lambda: self._holds(key, wanted), every=0.002)
        return time.perf_counter() - begun

    def _holds(self, key: str, wanted: dict[str, object]) -> bool:
        return bool(json.loads(self._cache.get(f"{self._topic}:{key}") or b"{}") == wanted)
