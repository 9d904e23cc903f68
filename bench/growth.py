"""What one change costs as the table grows: the same."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from urllib.parse import urlsplit

from bench.figures import Figure, Report, Scale, median
from bench.pipeline import Followers, Pipeline, Running, pipeline
from bench.rows import TABLE, Rows
from stack import Stack

AIM = "the same"
_ROUND = 50
"""Changes in a row on one size: short, so that the machine's other work meets all sizes alike."""


@dataclass
class _Size:
    """One follower on a table of its own size, in a process of its own."""

    rows: int
    running: Running
    seconds: list[float] = field(default_factory=list)
    cpu: float = 0.0


def run(stack: Stack, scale: Scale, report: Report) -> list[Figure]:
    """A fifth, two and four fifths of `scale.rows`: 100, 200 and 400 thousand in a full run."""
    sizes = [scale.rows * fifths // 5 for fifths in (1, 2, 4)]
    tables = [replace(TABLE, name=f"product_{size}") for size in sizes]
    followers: Followers = {f"search-{size}": ("opensearch", {"view": f"product_{size}"}) for size in sizes}
    with pipeline(stack, followers, tables=tables) as p, ExitStack() as all_running:
        rows = Rows()
        report(f"putting {' and '.join(f'{size:,}' for size in sizes)} rows into a topic each")
        for size in sizes:
            p.put(rows.inserts(range(size)), f"public.product_{size}")
        p.mark()
        measured: list[_Size] = []
        for size in sizes:  # one after another: each has the machine to itself
            running = all_running.enter_context(Running(p, f"search-{size}"))
            p.wait_live(f"search-{size}", running=running, seconds=600)
            measured.append(_Size(size, running))
        changer = _Changer(p, rows)
        report(f"{scale.warm_up} changes on each to warm up, then {5 * scale.changes} in turns of {_ROUND}")
        for follower in measured:
            for _ in range(scale.warm_up):
                changer.change(follower.rows)
        for first in range(0, 5 * scale.changes, _ROUND):
            turn = range(first, min(first + _ROUND, 5 * scale.changes))
            for follower in measured:
                before = follower.running.watch.usage().seconds
                follower.seconds += [changer.change(follower.rows) for _ in turn]
                follower.cpu += follower.running.watch.usage().seconds - before
    return [figure for follower in measured[1:] for figure in _figures(follower, measured[0])]


def _figures(ours: _Size, reference: _Size) -> list[Figure]:
    what = f"{ours.rows:,} rows to {reference.rows:,}"
    cpu, small_cpu = (size.cpu / len(size.seconds) * 1000 for size in (ours, reference))
    wait, small_wait = (median(size.seconds) * 1000 for size in (ours, reference))
    return [
        Figure(f"CPU time of a change, JVM and Python, {what}", cpu, "ms", small_cpu, cpu / small_cpu, AIM),
        Figure(f"from the topic to readable, p50, {what}", wait, "ms", small_wait, wait / small_wait, AIM),
    ]


class _Changer:
    """Puts a change into a topic and waits until it can be read from OpenSearch."""

    def __init__(self, p: Pipeline, rows: Rows) -> None:
        self._p = p
        self._rows = rows
        self._made = 0
        self._producer = p.kafka.producer()
        address = urlsplit(p.endpoints.opensearch)
        self._http = HTTPConnection(str(address.hostname), address.port, timeout=30)

    def change(self, size: int) -> float:
        """Seconds from sending to reading."""
        self._made += 1
        change = self._rows.upsert(self._made * 7919 % size)
        topic, path = self._p.topic(f"public.product_{size}"), f"/{self._p.name}-search-{size}/_source/{change.id}"
        wanted = str(change.document).encode()
        begun = time.perf_counter()
        self._producer.produce(topic, change.value, change.key, self._p.partition(change))
        self._producer.flush(30)
        while True:
            self._http.request("GET", path)
            if self._http.getresponse().read() == wanted:
                return time.perf_counter() - begun
            assert time.perf_counter() - begun < 60, "after 60 s a change is still not readable"
            time.sleep(0.002)
