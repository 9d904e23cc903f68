"""Memory of a follower's process whose store refuses all documents but one, against one whose store takes them."""

from __future__ import annotations

from bench.claims.memory import HEAP, Used, figures, said, used
from bench.figures import Figure, Report, Scale
from bench.pipeline import Followers, Running, pipeline
from bench.rows import SMALL, Change, Rows
from stack import Stack

AIM = "bounded"
_TITLE = {"taken": "text", "refused": "integer"}
"""What the index takes the title for, which is words."""
_TAKEN = Change(10**9, '{"id":1000000000,"title":"7","stock":1}', None)
"""But for one."""


def run(stack: Stack, scale: Scale, report: Report) -> list[Figure]:
    """Two fifths of `scale.rows`: 200,000 in a full run."""
    rows, measured = scale.rows * 2 // 5, dict[str, Used]()
    followers: Followers = {
        name: ("opensearch", {"mapping": {"properties": {"title": {"type": title}}}}) for name, title in _TITLE.items()
    }
    with pipeline(stack, followers, tables=[SMALL]) as p:
        report(f"putting {rows:,} rows into the topic")
        p.put([_TAKEN], SMALL.full_name)  # where none is taken a follower stops
        p.put(Rows(small=True).inserts(range(rows)), SMALL.full_name)
        p.mark()
        for name in _TITLE:
            with Running(p, name, "--memory", HEAP) as running:
                p.wait_live(name, running=running, seconds=1200)
                fact = p.control.read().get(f"follower/{name}/1") or {}
                refused = rows if name == "refused" else 0
                sink = p.sink(name, table=SMALL)
                found = (sink.count(1), fact["quarantined"])
                sink.close()
                assert found == (rows + 1 - refused, refused), f"{name}: {found} documents and quarantined ones"
                measured[name] = used(running)
            report(f"{name}: {said(measured[name])}")
    return figures(f"{rows:,} documents refused", measured["refused"], measured["taken"], AIM)
