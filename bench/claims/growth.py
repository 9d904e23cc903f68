"""What one change costs as the table grows: the same."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

from bench.change import Changer
from bench.figures import Figure, Report, Scale, median
from bench.pipeline import Followers, Running, pipeline
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
    changer: Changer
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
            changer = all_running.enter_context(closing(Changer(p, rows, f"search-{size}", size)))
            measured.append(_Size(size, running, changer))
        report(f"{scale.warm_up} changes on each to warm up, then {5 * scale.changes} in turns of {_ROUND}")
        for follower in measured:
            for _ in range(scale.warm_up):
                follower.changer.change()
        for first in range(0, 5 * scale.changes, _ROUND):
            turn = range(first, min(first + _ROUND, 5 * scale.changes))
            for follower in measured:
                before = follower.running.watch.usage().seconds
                follower.seconds += [follower.changer.change() for _ in turn]
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
