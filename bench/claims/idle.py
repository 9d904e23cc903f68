"""What a process costs that has nothing to do: 30 followers and 5 views over 500 tables, beside one of one follower."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import psutil
import psycopg
import redis

from bench.database import database
from bench.figures import Figure, Report, Scale, percentile
from bench.pipeline import Followers, Pipeline, Running, pipeline, until
from bench.watch import server_cpu
from stack import Stack

CORES_AIM, WAKE_AIM = "below 0.1", "as soon"
SERVE_AIM, SERVE_MB = "below 0.01 cores", 80.0
SERVE_SECONDS = 65.0
"""How long it is measured at the least: it asks the source every half minute, and that has to be part of it."""
FOLLOWERS, JOINED = 30, 5
"""Followers, and how many of them follow a view of several tables."""
ROWS = 100
"""Of each table."""
SETTLE_SECONDS = 10.0
"""How long a process that has just become live is left alone: a JVM compiles what it has begun with."""
AT = 50, 95
_ALONE = FOLLOWERS - 1
"""Of one table, in Redis: what is changed, and what the process of one follower follows."""
_MAPPING = {"dynamic": False, "properties": {"id": {"type": "integer"}}}


@dataclass(frozen=True)
class _Idle:
    """`cores`: CPU seconds a second. `wake`: seconds from COMMIT until readable, of each change."""

    cores: float
    parts: dict[str, float]
    connect: float
    wake: list[float]


def run(stack: Stack, scale: Scale, report: Report) -> list[Figure]:
    """A thousandth of `scale.rows` tables, 500 in a full run; idle for a third of a second for each change."""
    tables = max(FOLLOWERS + JOINED, scale.rows // 1_000)
    seconds = max(5.0, scale.changes / 3)
    with database(stack) as dsn:
        _fill(dsn, tables)
        with pipeline(stack, _followers(), dsn=dsn, captured=_names(tables), views=_views()) as p:
            report(f"`driftless apply` of {tables} tables")
            p.command("apply", seconds=900)
            measured = []
            for named in ([], [f"f{_ALONE}"]):
                followers = named or list(_followers())
                report(f"{len(followers)} followers in a process, idle for {seconds:.0f} s")
                with Running(p, *named) as running:
                    p.wait_live(*followers, running=running, seconds=900)
                    measured.append(_measure(stack, p, dsn, running, seconds, scale.changes // 10))
                    if not named:
                        report(f"`driftless serve` beside it, without requests, for {seconds:.0f} s")
                        served = _served(p, seconds)
                report(", ".join(f"{part} {cores:.3f}" for part, cores in measured[-1].parts.items()) + " of a core")
    return [*_figures(*measured), *_serve_figures(served, measured[0], tables)]


def _measure(stack: Stack, p: Pipeline, dsn: str, running: Running, seconds: float, changes: int) -> _Idle:
    time.sleep(min(SETTLE_SECONDS, seconds))
    before, connect, begun = running.watch.usage(), server_cpu(stack, "connect"), time.monotonic()
    time.sleep(seconds)
    after, took = running.watch.usage(), time.monotonic() - begun
    parts = {part: (after.cpu[part] - before.cpu[part]) / took for part in after.cpu}
    connect = (server_cpu(stack, "connect") - connect) / took
    return _Idle(sum(parts.values()), parts, connect, _wakes(p, dsn, max(2, changes)))


@dataclass(frozen=True)
class _Served:
    """`megabytes`: resident."""

    cores: float
    megabytes: float


def _served(p: Pipeline, seconds: float) -> _Served:
    with Running(p, "--port", "0", command="serve") as serving:
        until("serve to start", lambda: "serving" in serving.log.read_text(errors="replace"))
        time.sleep(SETTLE_SECONDS)
        process = psutil.Process(serving.process.pid)
        before, begun = sum(process.cpu_times()[:2]), time.monotonic()
        time.sleep(max(SERVE_SECONDS, seconds))
        took = sum(process.cpu_times()[:2]) - before
        return _Served(took / (time.monotonic() - begun), process.memory_info().rss / 1e6)


def _serve_figures(served: _Served, run: _Idle, tables: int) -> list[Figure]:
    what = f"serve without requests, beside {FOLLOWERS} followers over {tables} tables"
    return [
        Figure(f"{what}, to their run", served.cores, "cores", run.cores, served.cores / run.cores, SERVE_AIM),
        Figure(f"{what}, to its aim", served.megabytes, "MB", SERVE_MB, served.megabytes / SERVE_MB, "below 1"),
    ]


def _wakes(p: Pipeline, dsn: str, changes: int) -> list[float]:
    """One change at a time, each after a pause in which everything has come to rest."""
    found: list[float] = []
    key = f"{p.name}-f{_ALONE}:1"
    with psycopg.connect(dsn, autocommit=True) as connection, redis.Redis.from_url(p.redis) as cache:
        for change in range(changes):
            time.sleep(1.37)  # never at the same moment of what happens every second
            value, begun = f"change {change}", time.perf_counter()
            connection.execute(f"update t{_ALONE} set v = %s where id = 1", (value,))
            until(f"{value} to be readable", partial(_holds, cache, key, value.encode()), every=0.002)
            found.append(time.perf_counter() - begun)
    return found


def _holds(cache: redis.Redis, key: str, value: bytes) -> bool:
    return value in (cache.get(key) or b"")


def _names(tables: int) -> list[str]:
    return [f"public.t{n}" for n in range(tables)]


def _views() -> dict[str, Any]:
    """Of several tables first: each with the table of the same number as its root."""
    joined: dict[str, Any] = {
        f"joined_{n}": {"root": f"public.t{n}", "many": {"others": {"table": f"public.t{FOLLOWERS + n}", "by": "t_id"}}}
        for n in range(JOINED)
    }
    return joined | {f"plain_{n}": {"root": f"public.t{n}"} for n in range(JOINED, FOLLOWERS)}


def _followers() -> Followers:
    kinds = [("opensearch", {"mapping": _MAPPING}), ("redis", {})]
    return {
        f"f{n}": (kind, {"view": view, **fields})
        for n, view in enumerate(_views())
        for kind, fields in [kinds[n % len(kinds)]]
    }


def _fill(dsn: str, tables: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for n in range(tables):
            connection.execute(f"create table t{n} (id int primary key, t_id int, v text)")
            connection.execute(f"insert into t{n} select i, i, 'row ' || i from generate_series(1, {ROWS}) i")


def _figures(ours: _Idle, alone: _Idle) -> list[Figure]:
    what = f"{FOLLOWERS} followers and {JOINED} views to 1 follower"

    def cores(name: str, mine: float, other: float, aim: str = "") -> Figure:
        return Figure(name, mine, "cores", other, mine / other, aim)

    return [
        cores(f"idle, {what}", ours.cores, alone.cores, CORES_AIM),
        cores("idle, to Kafka Connect meanwhile", ours.cores, ours.connect),
        *(_wake(f"a change of one table, {what}, p{at}", ours.wake, alone.wake, at) for at in AT),
    ]


def _wake(name: str, mine: Sequence[float], other: Sequence[float], at: int) -> Figure:
    ours, alone = percentile(mine, at) * 1000, percentile(other, at) * 1000
    return Figure(name, ours, "ms", alone, ours / alone, WAKE_AIM)
