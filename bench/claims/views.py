"""Views of several tables, and PGSync beside them: the same database, documents and search server."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from bench.database import database
from bench.figures import Figure, Report, Scale, percentile
from bench.meanwhile import meanwhile
from bench.orders import ORDERS, TABLES, VIEW, WITH_VALUES, documents, fill, update_one_by_one
from bench.pgsync import PGSync
from bench.pipeline import Pipeline, Running, pipeline, until
from bench.searched import Index
from bench.shop import LOAD, Shop
from bench.watch import server_cpu
from driftless import names
from driftless.lsn import parse_lsn
from driftless.table import Column, Table
from stack import Stack

FOLLOWER = "orders"
# What PGSync lets OpenSearch guess, with the same refresh.
_SEARCH = {"mapping": {"dynamic": True}, "settings": {"refresh_interval": "1s"}}
_FAN_OUTS = 5
_LOST = 30.0
"""Seconds that a change counts for which nobody can read by then."""
_ROUNDS = 2
"""Of both, before anything is measured. The search server's CPU for the same documents is 31, 21, 13, 11, 8 and 8 s,
one time after another, and Kafka's and Connect's for a build is halved in three.
"""
_CALM = 0.25
"""Of a core: Kafka and Connect together take less than that when they, and their compilers, have nothing to do."""

PARENTS = Table("public", "parents", (Column("id", "int4"),), ("id",))
_CHILDREN = """
create table parents (id int primary key);
create table children (id int primary key, parent_id int, amount numeric(10, 2));
insert into parents values (1), (2);
"""
_OF = {"table": "public.children", "by": "parent_id"}
_PARENT = {"root": "public.parents", "many": {"children": {**_OF, "count": True}, "total": {**_OF, "sum": "amount"}}}


@dataclass
class Taken:
    """Seconds. `published` and `backlogs`: until documents are in the view's topic; PGSync has none. `start`: of Spark,
    before that; PGSync's is within its figures. `again`: both of the first build once more, by the same process.
    `values`: until the first build WITH_VALUES is applied, by a process that has just started.
    """

    first: float = 0.0
    published: float = 0.0
    start: float = 0.0
    again: tuple[float, float] = (0.0, 0.0)
    backlogs: dict[str, float] = field(default_factory=dict)
    alone: list[float] = field(default_factory=list)
    loaded: list[float] = field(default_factory=list)
    fan_outs: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    churn: float = 0.0
    wrong: int = 0
    values: float = 0.0


def run(stack: Stack, scale: Scale, report: Report) -> list[Figure]:
    """Two fifths of `scale.rows` orders: 200,000 in a full run, with 600,000 lines; a quarter of them as backlogs."""
    orders = scale.rows * 2 // 5
    backlog = orders // 4
    with database(stack) as dsn:
        report(f"{orders:,} orders with {3 * orders:,} lines")
        fill(dsn, orders)
        report(f"both {_ROUNDS} times unmeasured: servers that have just started take up to four times the CPU")
        for _ in range(_ROUNDS):
            with _shop(stack, dsn) as p:
                _first_build(stack, p, orders)
            with _peer(stack, dsn) as (peer, _):
                peer.sync()
        ours = _ours(stack, dsn, orders, scale, report)
        theirs = _theirs(stack, dsn, orders, scale, report)
    rate = "documents/s"

    def fast(name: str, mine: float, other: float, count: int, aim: str) -> Figure:
        return Figure(name, count / mine, rate, count / other, other / mine, aim)

    def short(name: str, mine: float, other: float, unit: str, aim: str) -> Figure:
        scaled = 1000 if unit == "ms" else 1
        return Figure(name, mine * scaled, unit, other * scaled, mine / other, aim)

    found = []
    for name, (published, applied) in (
        (f"first build of {orders:,} orders", (ours.published, ours.first)),
        (f"build of {orders:,} orders by the same process again", ours.again),
    ):
        found.append(fast(f"{name}, to the view's topic", published, theirs.first, orders, "12,000"))
        found.append(fast(f"{name}, to OpenSearch", applied, theirs.first, orders, "8,000"))
    name = f"first build of {orders:,} orders, to OpenSearch, with Spark's start"
    found.insert(2, fast(name, ours.start + ours.first, theirs.first, orders, ""))
    name = f"first build of {orders:,} orders with two sums and a filtered relation, to OpenSearch"
    found.append(fast(name, ours.values, theirs.first, orders, "3x"))
    for table in ours.backlogs:
        name = f"{backlog:,} waiting updates of {table}, published"
        found.append(fast(name, ours.backlogs[table], theirs.backlogs[table], backlog, "8,000"))
    for how, mine, other in (("one at a time", ours.alone, theirs.alone), (f"at {LOAD}/s", ours.loaded, theirs.loaded)):
        for percent in (50, 95):
            name = f"commit to readable by key, {how}, p{percent}"
            aim = "250 ms" if percent == 50 else ""
            found.append(short(name, percentile(mine, percent), percentile(other, percent), "ms", aim))
    many = orders // 20
    name = f"a product in {many:,} orders, until all can be read, the slowest of {_FAN_OUTS}"
    found.append(short(name, max(ours.fan_outs), max(theirs.fan_outs), "s", "3 s"))
    name = f"another order meanwhile, p99 of {len(ours.others)}"
    found.append(short(name, percentile(ours.others, 99), percentile(theirs.others, 99), "s", "1.5 s"))
    seconds = _churn_seconds(scale)
    found.append(short(f"behind after {seconds:g} s of 4 writers", ours.churn, theirs.churn, "s", "2 s"))
    found += _large_parent(stack, scale, report)
    report(f"wrong documents at the end: {ours.wrong} of ours, {theirs.wrong} of PGSync's")
    return found


def _ours(stack: Stack, dsn: str, orders: int, scale: Scale, report: Report) -> Taken:
    taken = Taken()
    with _shop(stack, dsn) as p:
        report("driftless: a snapshot, and the first build by a process that has just started")
        taken.start, taken.published, taken.first = _first_build(stack, p, orders)
        for table in ("orders", "order_lines"):
            report(f"driftless: {orders // 4:,} waiting updates of {table}")
            update_one_by_one(dsn, table, orders // 4, -7)
            lsn = _settled(p)
            since = time.time()
            with Running(p) as running:
                _, taken.backlogs[table], _ = _built(p, running, lsn, orders // 4, since)
        with Running(p) as running:
            _wait(p, running, lsn)
            with closing(Shop(dsn, p.endpoints.opensearch, f"{p.name}-{FOLLOWER}", orders, turn=1)) as shop:
                _by_readers(shop, taken, scale, lambda line: report(f"driftless: {line}"))
            _wait(p, running, _settled(p))
            report("driftless: the view is changed, and built again by the same process")
            since = time.time()
            p.change_view("order", {**VIEW, "where": "id > 0"})
            p.command("apply")
            taken.again = _built(p, running, _settled(p), orders, since, number=2)[1:]
        taken.wrong = _wrong(dsn, p.endpoints.opensearch, f"{p.name}-{FOLLOWER}")
        assert not taken.wrong, f"{taken.wrong} documents are not as the database has them"
    report("driftless: a first build with two sums and a filtered relation")
    with _shop(stack, dsn, WITH_VALUES) as p:
        _, _, taken.values = _first_build(stack, p, orders)
    return taken


def _children(reader: Index, parent: int) -> int:
    return int((reader.get(parent) or {})["children"])


def _large_parent(stack: Stack, scale: Scale, report: Report) -> list[Figure]:
    """How long a new child takes to be in the count and the sum of a parent with many, and of one with ten."""
    many, times = 2 * scale.rows, dict[int, list[float]]()
    with database(stack) as dsn:
        report(f"a parent with {many:,} children, and one with ten")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(_CHILDREN)
            numbers = "generate_series(1, %s) n"
            connection.execute(f"insert into children select n, 1 + (n <= 10)::int, n / 100.0 from {numbers}", (many,))
            with pipeline(
                stack,
                {FOLLOWER: ("opensearch", {"view": "order", **_SEARCH})},
                dsn=dsn,
                tables=(PARENTS,),
                captured=("public.parents", "public.children"),
                views={"order": _PARENT},
            ) as p:
                p.command("apply")
                lsn = _settled(p, ("public.parents", "public.children"))
                index = f"{p.name}-{FOLLOWER}"
                with Running(p) as running, closing(Index(p.endpoints.opensearch, index)) as reader:
                    _wait(p, running, lsn)
                    for number in range(2 * (scale.warm_up // 10 + scale.changes)):
                        parent = 1 + number % 2
                        had = _children(reader, parent)
                        begun = time.perf_counter()
                        key = many + 1 + number
                        connection.execute("insert into children values (%s, %s, 0.01)", (key, parent))
                        while _children(reader, parent) == had and time.perf_counter() < begun + _LOST:
                            time.sleep(0.002)
                        if number >= 2 * (scale.warm_up // 10):
                            times.setdefault(parent, []).append(time.perf_counter() - begun)
    found = []
    for percent, aim in ((50, "250 ms"), (95, "")):
        large, small = (1000 * percentile(times[parent], percent) for parent in (1, 2))
        name = f"a new child in the count and sum of {many:,}, by key (reference: of ten), p{percent}"
        found.append(Figure(name, large, "ms", small, large / small, aim))
    return found


def _theirs(stack: Stack, dsn: str, orders: int, scale: Scale, report: Report) -> Taken:
    endpoints, taken = stack.endpoints(), Taken()
    assert endpoints is not None
    with _peer(stack, dsn) as (peer, index):
        report("PGSync: its first sync")
        taken.first = taken.published = peer.sync()
        for table in ("orders", "order_lines"):
            report(f"PGSync: {orders // 4:,} waiting updates of {table}")
            update_one_by_one(dsn, table, orders // 4, -8)
            taken.backlogs[table] = peer.sync()
        with peer.following(), closing(Shop(dsn, endpoints.opensearch, index, orders, turn=2)) as shop:
            _by_readers(shop, taken, scale, lambda line: report(f"PGSync: {line}"))
            time.sleep(10)
        taken.wrong = _wrong(dsn, endpoints.opensearch, index)
    return taken


@contextmanager
def _peer(stack: Stack, dsn: str) -> Iterator[tuple[PGSync, str]]:
    """PGSync, set up, with the name of its index; gone at the end."""
    endpoints, index = stack.endpoints(), f"bench-pgsync-{time.time_ns()}"
    assert endpoints is not None
    with tempfile.TemporaryDirectory(prefix="driftless-pgsync-") as folder:
        peer = PGSync(endpoints, dsn, index, Path(folder))
        peer.install()
        peer.bootstrap()
        try:
            yield peer, index
        finally:
            peer.tear_down()
            Index(endpoints.opensearch, index).delete()


def _shop(stack: Stack, dsn: str, view: Mapping[str, Any] = VIEW) -> AbstractContextManager[Pipeline]:
    """A pipeline with the view and its follower."""
    followers = {FOLLOWER: ("opensearch", {"view": "order", **_SEARCH})}
    return pipeline(stack, followers, dsn=dsn, tables=(ORDERS,), captured=TABLES, views={"order": dict(view)})


def _first_build(stack: Stack, p: Pipeline, orders: int) -> tuple[float, float, float]:
    """Seconds of Spark's start, and then as `_built` has them."""
    p.command("apply")
    lsn = _settled(p)
    _calm(stack)
    since = time.time()
    with Running(p) as running:
        begin, published, applied = _built(p, running, lsn, orders, since)
    return begin - since, published, applied


def _by_readers(shop: Shop, taken: Taken, scale: Scale, say: Callable[[str], None]) -> None:
    say(f"{scale.changes} changes one at a time, and as many with {LOAD} others a second")
    shop.changes(min(scale.warm_up, 50))
    taken.alone = shop.changes(scale.changes)
    with meanwhile(shop.load):
        taken.loaded = shop.changes(scale.changes)
    say("a product in many orders")
    shop.fan_out()
    for _ in range(_FAN_OUTS):
        seconds, others = shop.fan_out_beside()
        taken.fan_outs.append(seconds)
        taken.others += others
    say(f"{_churn_seconds(scale):g} s of mixed changes")
    taken.churn = shop.churn(_churn_seconds(scale))


def _calm(stack: Stack) -> None:
    """Return when the servers that took the snapshot rest; after a minute in any case."""

    def cpu() -> float:
        return sum(server_cpu(stack, name) for name in ("kafka", "connect"))

    for _ in range(15):
        before = cpu()
        time.sleep(4)
        if cpu() - before < 4 * _CALM:
            return


def _churn_seconds(scale: Scale) -> float:
    return max(2.0, min(80.0, scale.rows * 80 / 500_000))


def _settled(p: Pipeline, tables: Sequence[str] = TABLES) -> int:
    """Return when nothing more comes into the tables' topics, with a position that lies behind all of it."""
    with psycopg.connect(p.config.source.dsn, autocommit=True) as connection:
        row = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    topics = {names.table_topic(p.name, table): p.partitions for table in tables}

    def written() -> int:
        return sum(sum(ends.values()) for ends in p.kafka.written_ends(topics).values())

    until("the tables' topics", lambda: len(p.kafka.topics() & topics.keys()) == len(topics), every=0.5)
    before = -1
    while before != (before := written()):
        time.sleep(4)
    return parse_lsn(row[0])


def _built(
    p: Pipeline, running: Running, lsn: int, count: int, since: float, number: int = 1
) -> tuple[float, float, float]:
    """When a process takes the build up that was begun after `since`; seconds from then until so many documents are in
    its topic, and until the follower has them. By the broker's clock.
    """
    _wait(p, running, lsn, number)
    facts = [
        (m.timestamp()[1] / 1000, (m.key() or b"").decode(), json.loads(m.value() or b"{}"))
        for m in p.kafka.read_to_end(p.control.topic)
    ]
    begin = min(at for at, key, _ in facts if at >= since and key == f"build/order/{number}/0")
    applied = min(at for at, key, fact in facts if at >= since and key == _fact(number) and _has_applied(fact, lsn))
    topic = names.view_topic(p.name, "order", number)
    found = p.kafka.read_to_end(topic, partitions=p.partitions, isolation="read_committed")
    times = [at for at in (m.timestamp()[1] / 1000 for m in found) if at >= since]
    assert len(times) >= count, f"{len(times)} documents were published where {count} have changed"
    return begin, max(times) - begin, applied - begin


def _fact(number: int) -> str:
    """Of the follower's generation that reads the build of that number."""
    return f"follower/{FOLLOWER}/{number}"


def _wait(p: Pipeline, running: Running, lsn: int, number: int = 1) -> None:
    """Return when the follower has all that was committed before."""

    def there() -> bool:
        running.check()
        fact = p.control.read().get(_fact(number))
        return fact is not None and _has_applied(fact, lsn)

    until(f"the follower of the view, {running.log}", there, 1200, every=0.5)


def _has_applied(fact: Mapping[str, Any], lsn: int) -> bool:
    return bool(fact["built"] and fact["applied_lsn"] and parse_lsn(fact["applied_lsn"]) >= lsn)


def _wrong(dsn: str, url: str, index: str) -> int:
    """Documents that are not as the database has them, are missing, or should not be there. PGSync adds `_meta`."""
    wanted = documents(dsn)
    with closing(Index(url, index)) as reader:
        found = {key: {name: value for name, value in shown.items() if name != "_meta"} for key, shown in reader.all()}
    return sum(found.get(key) != wanted.get(key) for key in found.keys() | wanted.keys())
