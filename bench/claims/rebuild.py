"""Rebuilding a follower from the log, while the generation that readers see stays fresh."""

from __future__ import annotations

import json
from contextlib import closing
from threading import Event

from bench import raw
from bench.change import Changer
from bench.claims.apply import reference
from bench.figures import Figure, Report, Scale, percentile
from bench.meanwhile import meanwhile
from bench.pipeline import Followers, Pipeline, Running, pipeline
from bench.rows import Change, Rows
from stack import Stack


def run(stack: Stack, scale: Scale, report: Report) -> list[Figure]:
    """Twice `scale.rows` documents: 1,000,000 in a full run. Each kind of store alone."""
    return [figure for kind in ("opensearch", "redis") for figure in _of_kind(stack, kind, scale, report)]


def _of_kind(stack: Stack, kind: str, scale: Scale, report: Report) -> list[Figure]:
    size = 2 * scale.rows
    followers: Followers = {kind: (kind, {}), f"{kind}-raw": (kind, {})}
    with pipeline(stack, followers) as p:
        report(f"{kind}: putting {size:,} rows into the topic")
        rows = Rows()
        changes: list[Change] = list(rows.inserts(range(size)))
        p.put(changes)
        p.mark()
        with Running(p, kind) as running, closing(Changer(p, rows, kind, size)) as changer:
            p.wait_live(kind, running=running, seconds=1200)
            for _ in range(scale.warm_up):
                changer.change()
            before = [changer.change() for _ in range(scale.changes)]
            report(f"{kind}: `driftless rebuild`")
            during = list[float]()

            def change(ended: Event) -> None:
                while not ended.wait(0.2):
                    during.append(changer.change())

            with meanwhile(change):
                p.command("rebuild", kind, seconds=1200)
            taken = _taken(p, kind)
            report(f"{kind}: {size / taken:,.0f} documents/s; {len(during)} changes were made meanwhile")
        found = p.documents(kind, generation=2)
        assert len(found) == size, f"{kind}: {len(found)} documents where {size} are wanted"
        found.clear()
        for generation in (1, 2):
            p.drop(kind, generation=generation)
        seconds = reference(p, kind, raw.prepared(changes, p.partitions))
        report(f"{kind}: reference {size / seconds:,.0f}/s")
    name = f"rebuild {size:,} documents in {kind}, from the command to the switch"
    figures = [Figure(name, size / taken, "documents/s", size / seconds, seconds / taken)]
    for percent in (50, 95, 100):
        ours, alone = (percentile(values, percent) * 1000 for values in (during, before))
        name = f"from the topic to readable in {kind} during the rebuild, p{percent}; before it"
        figures.append(Figure(name, ours, "ms", alone, ours / alone))
    return figures


def _taken(p: Pipeline, follower: str) -> float:
    """From when the generation was begun until readers saw it, by the control topic, whose times are the broker's."""
    told = [
        (message.timestamp()[1] / 1000, json.loads(message.value() or b"{}"))
        for message in p.kafka.read_to_end(p.control.topic)
        if message.key() == f"generation/{follower}/2".encode()
    ]
    return next(at for at, fact in told if fact.get("promoted_at") is not None) - told[0][0]
