"""Applying a topic of changes, against the barest client of each store that writes the same documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pyarrow as pa

from bench import raw
from bench.figures import Figure, Report, Scale, median
from bench.pipeline import Followers, Pipeline, Ran, pipeline
from bench.rows import Rows, final
from sinks.redis import RedisSink
from stack import Stack

AIM = "at least 0.5"
_BULK_SIZES = (1_000, 5_000)


def run(stack: Stack, scale: Scale, report: Report) -> list[Figure]:
    """Pairs of runs, ours and the reference in turn: whatever else the machine does meets both."""
    numbers = range(scale.pairs)
    followers: Followers = {f"{kind}-{n}": (kind, {}) for kind in ("opensearch", "redis") for n in (*numbers, "raw")}
    with pipeline(stack, followers) as p:
        report(f"putting {scale.rows:,} changes into the topic")
        changes = list(Rows().mixed(scale.rows))
        p.put(changes)
        p.mark()
        wanted = final(changes)
        batches = raw.prepared(changes, p.partitions)
        writes = sum(batch.num_rows for batch in batches)
        del changes
        figures = []
        for kind, reference in (("opensearch", _bulk), ("redis", _pipelined)):
            ours, theirs = [], []
            for n in numbers:
                ran = p.apply_all(f"{kind}-{n}")
                _same(p, f"{kind}-{n}", wanted)
                report(f"{kind}: ours {_rates(scale.rows, ran)}")
                ours.append(ran)
                theirs.append(reference(p, batches))
                _same(p, f"{kind}-raw", wanted)
                p.drop(f"{kind}-raw")
                report(f"{kind}: reference {writes / theirs[-1]:,.0f}/s")
            figures += _figures(kind, scale.rows, ours, theirs)
        return figures


def _same(p: Pipeline, follower: str, wanted: dict[str, str]) -> None:
    found = p.documents(follower)
    assert found == wanted, f"{follower}: {len(found)} documents where {len(wanted)} are wanted, or others"
    if not follower.endswith("raw"):
        p.drop(follower)


def _bulk(p: Pipeline, batches: list[pa.RecordBatch]) -> float:
    """The best of the sizes of a request, over two connections."""
    follower, best = "opensearch-raw", float("inf")
    for size in _BULK_SIZES:
        p.drop(follower)
        sink = p.sink(follower)
        sink.create(1)
        sink.close()
        seconds = raw.bulk(p.endpoints.opensearch, f"{p.name}-{follower}-1-WRITES", raw.bodies(batches, size))
        best = min(best, seconds)
    return best


def _pipelined(p: Pipeline, batches: list[pa.RecordBatch]) -> float:
    """The better of one and two connections."""
    best = float("inf")
    for connections in (1, 2):
        p.empty_redis()
        sink = cast(RedisSink, p.sink("redis-raw"))
        sink.create(1)
        best = min(best, raw.pipelined(sink, raw.calls(sink, batches), connections=connections))
        sink.close()
    return best


def _figures(kind: str, changes: int, ours: list[Ran], theirs: list[float]) -> list[Figure]:
    def figure(name: str, seconds: Callable[[Ran], float], aim: str = "") -> Figure:
        ratios = [raw / seconds(ran) for ran, raw in zip(ours, theirs, strict=True)]
        rate, reference = (changes / median(s) for s in (list(map(seconds, ours)), theirs))
        return Figure(f"apply to {kind}, {name}", rate, "changes/s", reference, median(ratios), aim)

    return [
        figure("from the empty store to the last change", lambda ran: ran.applying, AIM),
        figure("the same with Spark's start and end", lambda ran: ran.whole),
        figure("the same after the first slice", lambda ran: ran.settled[0] * changes / (ran.settled[1] or changes)),
    ]


def _rates(changes: int, ran: Ran) -> str:
    cpu = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in ran.usage.cpu.items())
    settled = ran.settled[1] / ran.settled[0]
    return (
        f"{changes / ran.applying:,.0f}/s ({changes / ran.whole:,.0f}/s with the start, "
        f"{settled:,.0f}/s after the first slice); CPU: {cpu}"
    )
