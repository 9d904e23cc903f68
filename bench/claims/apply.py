"""Applying a topic of changes, against the barest client of each store that writes the same documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import cast

import pyarrow as pa

from bench import raw
from bench.figures import Figure, Report, Scale, median
from bench.pipeline import Followers, Pipeline, Ran, Running, pipeline, until
from bench.rows import Change, Rows, final
from sinks.redis.sink import RedisSink
from stack import Stack

AIM = "at least 0.5"
_BULK_SIZES = (1_000, 5_000)
_CONNECTIONS = (1, 2)
_Batches = list[pa.RecordBatch]


def run(stack: Stack, scale: Scale, report: Report) -> list[Figure]:
    """For each kind of store: by a process that has just started, then by one that has run for a while."""
    return [figure for kind in ("opensearch", "redis") for figure in _of_kind(stack, kind, scale, report)]


def _of_kind(stack: Stack, kind: str, scale: Scale, report: Report) -> list[Figure]:
    """Ours and the reference in turn: whatever else the machine does meets both."""
    names = [f"{kind}-{n}" for n in range(scale.pairs)]
    followers: Followers = {name: (kind, {}) for name in (*names, f"{kind}-running", f"{kind}-raw")}
    with pipeline(stack, followers) as p:
        report(f"{kind}: putting {scale.rows:,} changes into the topic")
        changes = list(Rows().mixed(2 * scale.rows))
        first, second = changes[: scale.rows], changes[scale.rows :]
        p.put(first)
        p.mark()
        batches = raw.prepared(first, p.partitions)
        report(f"{kind}: {scale.rows / reference(p, kind, batches):,.0f}/s by the reference, to warm the store")
        ours, theirs = list[Ran](), list[float]()
        for name in names:
            ours.append(p.apply_all(name))
            report(f"{kind}: ours {_rates(scale.rows, ours[-1])}")
            _same(p, name, final(first))
            theirs.append(reference(p, kind, batches))
            report(f"{kind}: reference {scale.rows / theirs[-1]:,.0f}/s")
            _same(p, f"{kind}-raw", final(first))
        seconds = _while_running(p, f"{kind}-running", second)
        report(f"{kind}: ours {scale.rows / seconds:,.0f}/s by a process that runs already")
        _same(p, f"{kind}-running", final(changes))
        raw_seconds = reference(p, kind, raw.prepared(second, p.partitions, epoch=2), before=batches)
        report(f"{kind}: reference {scale.rows / raw_seconds:,.0f}/s")
        _same(p, f"{kind}-raw", final(changes))
    rate = scale.rows / seconds
    name = f"apply to {kind}, by a process that has applied as many before"
    return [
        *_figures(kind, scale.rows, ours, theirs),
        Figure(name, rate, "changes/s", scale.rows / raw_seconds, raw_seconds / seconds, AIM),
    ]


def _while_running(p: Pipeline, follower: str, changes: list[Change]) -> float:
    """Seconds that a process which has applied the topic takes for more of it, all of them there when it may begin.

    By its own reports in the control topic, whose times are the broker's.
    """
    with Running(p, follower) as running:
        p.wait_live(follower, running=running, seconds=600)
        p.command("pause", follower)
        p.put(changes)
        p.mark()
        total = sum(p.kafka.written_ends({p.topic(): p.partitions})[p.topic()].values())
        resumed = p.control.now()
        p.command("resume", follower)
        until("all of it to be applied", lambda: _reached(p, follower, resumed, total), 600, every=0.5)
        begin, end = (_reached(p, follower, resumed, records) for records in (0, total))
    assert begin is not None
    assert end is not None
    return end - begin


def _reached(p: Pipeline, follower: str, since: float, records: int) -> float | None:
    """When it first told, not being paused, that it had read so many records."""
    for message in p.kafka.read_to_end(p.control.topic):
        told = message.timestamp()[1] / 1000
        if message.key() == f"follower/{follower}/1".encode() and told > since:
            fact = json.loads(message.value() or b"{}")
            if fact["state"] != "paused" and fact["read_records"] >= records:
                return told
    return None


def _same(p: Pipeline, follower: str, wanted: dict[str, str]) -> None:
    found = p.documents(follower)
    assert found == wanted, f"{follower}: {len(found)} documents where {len(wanted)} are wanted, or others"
    p.drop(follower)


def reference(p: Pipeline, kind: str, batches: _Batches, *, before: _Batches | None = None) -> float:
    """The best of the bulk sizes, or of the numbers of connections. `before`: written first, and not timed."""
    if kind == "opensearch":
        return min(_bulk(p, batches, before, size) for size in _BULK_SIZES)
    return min(_pipelined(p, batches, before, connections) for connections in _CONNECTIONS)


def _bulk(p: Pipeline, batches: _Batches, before: _Batches | None, size: int) -> float:
    follower = "opensearch-raw"
    p.drop(follower)
    sink = p.sink(follower)
    sink.create(1)
    sink.close()

    def write(part: _Batches) -> float:
        return raw.bulk(p.endpoints.opensearch, f"{p.name}-{follower}-1-WRITES", raw.bodies(part, size))

    if before is not None:
        write(before)
    return write(batches)


def _pipelined(p: Pipeline, batches: _Batches, before: _Batches | None, connections: int) -> float:
    p.empty_redis()
    sink = cast(RedisSink, p.sink("redis-raw"))
    sink.create(1)
    try:
        if before is not None:
            raw.pipelined(sink, raw.calls(sink, before), connections=connections)
        return raw.pipelined(sink, raw.calls(sink, batches), connections=connections)
    finally:
        sink.close()


def _figures(kind: str, changes: int, ours: list[Ran], theirs: list[float]) -> list[Figure]:
    def figure(name: str, seconds: Callable[[Ran], float], aim: str = "") -> Figure:
        ratios = [raw / seconds(ran) for ran, raw in zip(ours, theirs, strict=True)]
        rate, reference = (changes / median(s) for s in (list(map(seconds, ours)), theirs))
        return Figure(f"apply to {kind}, {name}", rate, "changes/s", reference, median(ratios), aim)

    return [
        figure("by a fresh process, from the empty store to the last change", lambda ran: ran.applying, AIM),
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
