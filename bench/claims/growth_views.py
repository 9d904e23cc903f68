"""What one change of a view of several tables costs as the tables grow, and the disk that its rows take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import psycopg

from bench.database import database
from bench.figures import Figure, Report, Scale, median
from bench.orders import ORDERS, SCHEMA, SHARE, TABLES, VIEW
from bench.pipeline import Followers, Pipeline, Running, pipeline, until
from bench.searched import Index
from driftless import names
from stack import Stack

_FOLLOWERS: Followers = {"orders": ("opensearch", {"view": "order", "mapping": {"dynamic": False, "properties": {}}})}
_LINES = 3
_MEASURED = 1_000_000


@dataclass(frozen=True)
class _Size:
    """One size: seconds of each change, CPU seconds of one, bytes on disk of all rows."""

    rows: int
    seconds: list[float]
    cpu: float
    disk: int


def run(stack: Stack, scale: Scale, report: Report) -> list[Figure]:
    """Twice and ten times `scale.rows` rows of all tables together: 1 and 5 million in a full run."""
    small, large = (_measured(stack, scale, size, report) for size in (2 * scale.rows, 10 * scale.rows))
    what = f"{large.rows:,} rows to {small.rows:,}"
    wait, wait_small = median(large.seconds) * 1000, median(small.seconds) * 1000
    disk, disk_small = large.disk / large.rows, small.disk / small.rows
    aim = "0.8 to 1.2"
    return [
        Figure(f"CPU time of a change of a view, JVM and Python, {what}", large.cpu * 1000, "ms", small.cpu * 1000,
               large.cpu / small.cpu, aim),
        Figure(f"from the topic to readable, p50, {what}", wait, "ms", wait_small, wait / wait_small, aim),
        Figure(f"disk of the view's rows, {what}", disk, "bytes/row", disk_small, disk / disk_small, "the same"),
    ]  # fmt: skip


def _measured(stack: Stack, scale: Scale, size: int, report: Report) -> _Size:
    orders = size // (_LINES + 1)
    with database(stack) as dsn, pipeline(
        stack, _FOLLOWERS, dsn=dsn, tables=(ORDERS,), captured=TABLES, views={"order": VIEW}
    ) as p:  # fmt: skip
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(SCHEMA.encode())
        p.command("apply")
        topics = {p.topic(table) for table in TABLES}
        until("the tables' topics", lambda: p.kafka.topics() >= topics, every=0.5)
        report(f"putting {size:,} rows into the topics")
        for table in TABLES:
            p.put_rows(table, _rows(table, orders))
        with Running(p) as running, closing(Index(p.endpoints.opensearch, f"{p.name}-orders")) as index:
            p.wait_live("orders", running=running, seconds=1800)
            count = max(4, scale.changes)
            for number in range(scale.warm_up // 3):
                _change(p, index, orders, number)
            cpu = running.watch.usage().seconds
            seconds = [_change(p, index, orders, scale.warm_up + number) for number in range(count)]
            cpu = (running.watch.usage().seconds - cpu) / count
        disk = sum(file.stat().st_size for file in p.rows.iterdir())
        report(
            f"{size:,} rows: {median(seconds) * 1000:.0f} ms, {cpu * 1000:.0f} of CPU, {disk / size:.0f} bytes a row"
        )
    return _Size(size, seconds, cpu, disk)


def _rows(table: str, orders: int) -> Iterator[tuple[str, str]]:
    """Keys and values, as the connector writes them."""
    shared = max(2, orders // SHARE)
    if table == "public.customers":
        return ((f'{{"id":{i}}}', f'{{"id":{i},"name":"customer {i}","tier":"gold"}}') for i in range(1, shared + 1))
    if table == "public.products":
        return ((f'{{"id":{i}}}', f'{{"id":{i},"title":"product {i}","price":"{i}.50"}}') for i in range(1, shared + 1))
    if table == "public.orders":
        return ((f'{{"id":{i}}}', _order(i, i % shared + 1, i)) for i in range(1, orders + 1))
    return (
        (
            f'{{"order_id":{o},"line":{n}}}',
            f'{{"order_id":{o},"line":{n},"product_id":{(o * 3 + n) % shared + 1},"qty":{n},"unit_price":"{o}.00"}}',
        )
        for o in range(1, orders + 1)
        for n in range(1, _LINES + 1)
    )


def _order(number: int, customer: int, total: int) -> str:
    return f'{{"id":{number},"customer_id":{customer},"status":"open","total":"{total}.00"}}'


def _change(p: Pipeline, index: Index, orders: int, number: int) -> float:
    """Seconds from the topic to readable of an order's new total; a marker ends its transaction."""
    order, total = number * 7919 % orders + 1, _MEASURED + number
    p.put_rows("public.orders", [(f'{{"id":{order}}}', _order(order, 1, total))])  # half a second, to open a producer
    begun = time.perf_counter()
    with psycopg.connect(p.config.source.dsn, autocommit=True) as connection:
        connection.execute("select pg_logical_emit_message(true, %s, '0')", (f"{names.MARKER_PREFIX}-bench",))
    while (found := index.get(order)) is None or float(found["total"]) != total:
        assert time.perf_counter() - begun < 60, f"order {order} is never readable with its new total"
        time.sleep(0.002)
    return time.perf_counter() - begun
