"""`driftless verify` of a search index and a cache while rows change, beside reading the same documents alone."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from threading import Event

import psycopg

from bench.claims.latency import LOAD, Chain, Load
from bench.database import database, fill
from bench.figures import Figure, Report, Scale, percentile
from bench.meanwhile import meanwhile
from bench.pipeline import COMMAND, Followers, Pipeline, Running, pipeline
from bench.watch import Usage, Watch, server_cpu
from stack import Stack

_FOLLOWERS: Followers = {"search": ("opensearch", {}), "cache": ("redis", {})}
_MEGABYTE = 1 << 20
_AIM = "20,000 documents/s"


def run(stack: Stack, scale: Scale, report: Report) -> list[Figure]:
    """Twice `scale.rows` documents in each store: 1,000,000 in a full run."""
    size = 2 * scale.rows
    with database(stack) as dsn, pipeline(stack, _FOLLOWERS, dsn=dsn) as p:
        report(f"the chain over a table of {size:,} rows")
        fill(dsn, size)
        p.command("apply")
        with Running(p) as running, Chain(p, dsn, size) as chain:
            p.wait_live(*_FOLLOWERS, running=running, seconds=1200)
            applied = running.watch.usage().seconds
            for _ in range(scale.warm_up):
                chain.change()
            before = [chain.change() for _ in range(scale.changes)]
            report("reading every document once: from the source, and from each store")
            reading, source_alone = _timed(stack, lambda: _read(p, dsn, size))
            report(f"{size / reading:,.0f}/s; `driftless verify` of both")
            during = []

            def change(ended: Event) -> None:
                while not ended.wait(0.2):
                    during.append(chain.change())

            with meanwhile(change):
                (usage, said), (taken, source) = _verified(p, stack)
            beside = running.watch.usage()
            report(f"{size / taken:,.0f}/s; {len(during)} changes were made meanwhile; then `--continuous`")
            watching, following = _continuous(p, dsn, size, running, scale)
    for follower in said:
        assert follower["in_sync"], follower
        assert follower["source_documents"] == follower["follower_documents"] == size, follower
    figures = [
        Figure("verify a search index and a cache, each document of both", size / taken, "documents/s", size / reading,
               reading / taken, _AIM),
        Figure("CPU of the source meanwhile; of reading it once", source, "s", source_alone, source / source_alone),
        Figure("CPU of verify, JVM and Python, for a million rows; of applying them to both stores",
               usage.seconds * 1e6 / size, "s", applied * 1e6 / size, usage.seconds / applied),
    ]  # fmt: skip
    figures.append(
        Figure(f"CPU of verify --continuous for a million records applied at {LOAD}/s; of applying them",
               watching, "s", following, watching / following)
    )  # fmt: skip
    for part, aim in (("driver", "500 MB"), ("jvm", "")):
        memory, ours = usage.peak[part] / _MEGABYTE, beside.peak[part] / _MEGABYTE
        figures.append(
            Figure(f"largest resident memory of verify, {part}; of the run", memory, "MB", ours, memory / ours, aim)
        )
    for store in ("search", "cache"):
        for percent in (50, 95, 100):
            mine, alone = (percentile([getattr(t, store) for t in some], percent) for some in (during, before))
            name = f"commit to readable by key, {store}, during verify, p{percent}; before it"
            figures.append(Figure(name, mine, "ms", alone, mine / alone, "pause under 1 s" if percent == 100 else ""))
    return figures


def _read(p: Pipeline, dsn: str, size: int) -> None:
    with psycopg.connect(dsn) as connection, connection.cursor(name="all") as cursor:
        cursor.itersize = 10_000
        assert sum(1 for _ in cursor.execute("select id::text, to_jsonb(t)::text from product t")) == size
    for follower in _FOLLOWERS:
        assert len(p.documents(follower)) == size


def _verified(p: Pipeline, stack: Stack) -> tuple[tuple[Usage, list[dict[str, object]]], tuple[float, float]]:
    """What it used and said; seconds, and the source's CPU seconds."""
    found: list[tuple[Usage, list[dict[str, object]]]] = []

    def verify() -> None:
        arguments = [str(COMMAND), "verify", "--json", "--timeout", "1200"]
        with subprocess.Popen(arguments, cwd=p.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            watch = Watch(process.pid)
            watch.start()
            out, _ = process.communicate(timeout=1800)
        assert process.returncode == 0, f"verify ended with {process.returncode}: {out.decode()}"
        found.append((watch.stop(), json.loads(out)["followers"]))

    times = _timed(stack, verify)
    return found[0], times


def _continuous(p: Pipeline, dsn: str, size: int, running: Running, scale: Scale) -> tuple[float, float]:
    """CPU seconds for a million changes of a verify that has started, and of the run."""
    seconds, load = max(4.0, scale.rows * 90 / 500_000), Load(dsn, size)
    with Running(p, "--continuous", "--every", "1", command="verify") as verifying, meanwhile(load.run):

        def now() -> tuple[int, float, float]:
            return load.made, verifying.watch.usage().seconds, running.watch.usage().seconds

        time.sleep(seconds / 2)  # of which it takes some to start
        begun = now()
        time.sleep(seconds)
        made, watching, following = now()
        assert verifying.process.poll() is None, "verify has ended"
    changes = (made - begun[0]) / 1e6
    return (watching - begun[1]) / changes, (following - begun[2]) / changes


def _timed(stack: Stack, do: Callable[[], None]) -> tuple[float, float]:
    begun, cpu = time.monotonic(), server_cpu(stack, "postgres")
    do()
    return time.monotonic() - begun, server_cpu(stack, "postgres") - cpu
