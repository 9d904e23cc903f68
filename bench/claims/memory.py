"""Memory of a follower's process while it bootstraps: the same, however many rows there are."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from bench.figures import Figure, Report, Scale
from bench.pipeline import Followers, Running, pipeline
from bench.rows import SMALL, Rows
from bench.watch import Usage
from stack import Stack
from stack.machine.java import find_java

HEAP = "1g"
AIM = "0.8 to 1.2"
_MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Used:
    """`heap`: bytes that the JVM still uses after a full collection; None where there is only a JRE."""

    usage: Usage
    heap: int | None


def run(stack: Stack, scale: Scale, report: Report) -> list[Figure]:
    """Twice and ten times `scale.rows` small rows: 1 and 5 million in a full run."""
    sizes = scale.rows * 2, scale.rows * 10
    followers: Followers = {f"cache-{size}": ("redis", {"view": SMALL.name}) for size in sizes}
    measured: list[Used] = []
    with pipeline(stack, followers, tables=[SMALL]) as p:
        rows, there = Rows(small=True), 0
        for size in sizes:
            report(f"putting rows into the topic until there are {size:,}")
            p.put(rows.inserts(range(there, size)), SMALL.full_name)
            p.mark()
            there = size
            follower = f"cache-{size}"
            with Running(p, follower, "--memory", HEAP) as running:
                p.wait_live(follower, running=running, seconds=1200)
                sink = p.sink(follower, table=SMALL)
                found = sink.count(1)
                sink.close()
                assert found == size, f"{found} documents where {size} rows are"
                measured.append(used(running))
            report(f"{size:,} rows: {said(measured[-1])}")
            p.drop(follower)
    return figures(f"{sizes[1]:,} rows to {sizes[0]:,}", measured[1], measured[0], AIM)


def used(running: Running) -> Used:
    """What a process has used so far, and its heap after a collection."""
    return Used(running.watch.usage(), _heap_after_collection(running))


def _heap_after_collection(running: Running) -> int | None:
    jcmd = find_java().home / "bin" / "jcmd"
    if not jcmd.exists():
        return None

    def ask(what: str) -> str:
        pid = str(running.watch.usage().jvm)
        return subprocess.run([str(jcmd), pid, what], capture_output=True, text=True, check=True, timeout=60).stdout

    ask("GC.run")
    kilobytes = re.findall(r"generation +total \d+K, used (\d+)K", ask("GC.heap_info"))
    assert kilobytes, "the JVM does not say how much of its heap is used"
    return sum(map(int, kilobytes)) * 1024


def _parts(used: Used) -> dict[str, float]:
    peak = used.usage.peak
    names = {"jvm": f"JVM, -Xmx{HEAP}", "driver": "Python driver", "workers": "Python workers"}
    parts = {f"largest resident memory, {name}": peak[part] / _MEGABYTE for part, name in names.items()}
    parts["largest resident memory, all together"] = sum(peak.values()) / _MEGABYTE
    if used.heap is not None:
        parts["heap in use after a full collection"] = used.heap / _MEGABYTE
    return {name: size for name, size in parts.items() if size}


def figures(what: str, ours: Used, reference: Used, aim: str) -> list[Figure]:
    """Each part of the memory, ours to the reference."""
    small = _parts(reference)
    return [
        Figure(f"{name}, {what}", size, "MB", small[name], size / small[name], aim)
        for name, size in _parts(ours).items()
        if name in small
    ]


def said(used: Used) -> str:
    return ", ".join(f"{name} {size:,.0f} MB" for name, size in _parts(used).items())
