"""The demo, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from bench.demo import compare, shop
from bench.demo.leftovers import remove_leftovers
from bench.demo.look import SEARCH, Stores, around
from bench.demo.place import (
    CACHE_KEY,
    COUNTED,
    FIRST,
    LATER,
    ORDER_INDEX,
    PIPELINE,
    SEARCH_INDEX,
    STREAMS,
    VIEW,
    Place,
    Runner,
)
from bench.demo.screen import Meter, Screen, clock, columns
from bench.demo.shop import Size
from bench.demo.writer import CHANGES_A_SECOND, FAVOURITE, Writer
from driftless import names
from driftless.config.models import KafkaConfig
from driftless.errors import SourceError
from driftless.kafka.client import Kafka
from stack import Stack
from stack.machine.home import file_lock

_LOOK_SECONDS = 2.0
_BOOTSTRAP_SECONDS = 3.0
_FRESH_SECONDS, _FRESH_PATIENCE_SECONDS = 5.0, 60.0
_PATIENCE_SECONDS = 900.0
"""For the snapshot and for each bootstrap; at full size they take less than one minute on two idle cores."""


class Demo:
    """One telling of the story. Whatever happens, the processes that it started end with it; the stack stays up."""

    def __init__(self, stack: Stack, size: Size, seconds: float, folder: Path, screen: Screen) -> None:
        self._stack = stack
        self._size = size
        self._seconds = seconds
        self._folder = folder
        self._screen = screen
        self._runners: list[Runner] = []
        self._serving: Runner | None = None

    def tell(self) -> bool:
        """Whether every document was right in the end."""
        lock = self._stack.home / "locks" / f"{self._stack.name}.demo.lock"
        with file_lock(lock, lambda: self._screen.say("waiting for another demo on this stack to end")):
            place = self._start()
            self._make_shop(place)
            writer = Writer(place.dsn, self._size)
            try:
                return self._follow_along(place, writer)
            finally:
                writer.stop()
                self._end_runners()

    def _follow_along(self, place: Place, writer: Writer) -> bool:
        self._capture(place, writer)
        with Stores(place) as stores:
            self._follow(place, writer)
            self._watch(place, writer, stores)
            self._add_follower(place, writer)
        self._settle(place, writer)
        same = self.compare_followers(place)
        self._screen.step("Look around")
        self._screen.say(around(place, self._stack.name))
        return same

    # -- the steps ----------------------------------------------------------------------------------------------

    def _start(self) -> Place:
        self._screen.step("Start Postgres, Kafka, Connect with Debezium, OpenSearch and Redis")
        endpoints = self._stack.up(self._screen.say)
        address = endpoints.postgres.rpartition("@")[2].partition("/")[0]
        listed = {**vars(endpoints), "postgres": address}
        self._screen.say("\n".join(columns([[name, where] for name, where in listed.items()])))
        return Place(self._folder, endpoints)

    def _make_shop(self, place: Place) -> None:
        size = self._size
        self._screen.step(
            f"Make a shop: {size.customers:,} customers, {size.products:,} products, {size.orders:,} orders with "
            f"{size.order_lines:,} lines"
        )
        place.end_strays()
        removed = remove_leftovers(place.endpoints)
        if removed:
            self._screen.say(f"removed what an earlier demo left: {', '.join(removed)}")
        shop.make_database(place.endpoints.postgres)
        with psycopg.connect(place.dsn, autocommit=True) as connection, self._screen.board() as board:
            meters = self._meters()
            done = dict.fromkeys(meters, 0)

            def tell(table: str, number: int) -> None:
                done[table] = number
                board.show(self._progress(meters, done), last=done == size.tables)

            shop.fill(connection, size, tell)

    def _capture(self, place: Place, writer: Writer) -> None:
        self._screen.step("Capture it: Debezium reads a snapshot, then every change")
        place.write_sync(later=False)
        for command in ("check", "apply"):
            self._screen.say(f"$ driftless {command} -f {place.sync}", "bold")
            self._screen.quote(place.command(command))
        writer.start()
        self._screen.say(f"a writer begins: {CHANGES_A_SECOND} changes a second, from now on to the end")
        kafka = Kafka(KafkaConfig(bootstrap=place.endpoints.kafka))
        marks = names.message_topic(PIPELINE)
        topics = {names.table_topic(PIPELINE, f"public.{table}"): table for table in shop.TABLES}
        partitions = {topic: found.partitions for topic in topics if (found := kafka.topic(topic)) is not None}
        meters = self._meters()
        with self._screen.board() as board:
            for _ in self._until("the end of the snapshot", 0.5, writer):
                ends = kafka.written_ends({**partitions, marks: 1})
                # The first marker is read from the log when the snapshot is complete.
                over = bool(ends[marks][0])
                records = {table: sum(ends[topic].values()) for topic, table in topics.items()}
                board.show(["rows that are in the log:", *self._progress(meters, records)], last=over)
                if over:
                    return

    def _follow(self, place: Place, writer: Writer) -> None:
        self._screen.step("Follow it into a search index and a cache, and count sales as they happen")
        self._run(place, *FIRST, *STREAMS, *COUNTED)
        self._screen.say(f"$ driftless serve -f {place.sync}", "bold")
        self._serve(place)
        self._until_live(place, writer, *FIRST, *COUNTED)

    def _watch(self, place: Place, writer: Writer, stores: Stores) -> None:
        self._screen.step(f"Watch for {self._seconds:.0f} seconds while the writer goes on")
        end = time.monotonic() + self._seconds
        with self._screen.board(every=0) as board:
            for _ in self._until("", _LOOK_SECONDS, writer):
                over = time.monotonic() >= end
                board.show(
                    [*_standing(place.status()), "", *_written(writer), "", *_seen(writer, stores), ""], last=over
                )
                if over:
                    return

    def _add_follower(self, place: Place, writer: Writer) -> None:
        self._screen.step("Add an index of orders with customer and lines: from the log alone, while the others go on")
        place.write_sync(later=True)
        self._screen.say(f"$ driftless apply -f {place.sync}", "bold")
        self._screen.quote(place.command("apply"))
        self._run(place, VIEW, LATER)
        self._serve(place)
        self._until_live(place, writer, *FIRST, *COUNTED, LATER)

    def _settle(self, place: Place, writer: Writer) -> None:
        self._screen.step("Stop the writer, and wait until all of its changes have been applied")
        writer.stop()
        writer.check()
        for line in _written(writer):
            self._screen.say(line)
        with psycopg.connect(place.dsn, autocommit=True) as connection:
            row = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        self._screen.say(f"$ driftless wait --lsn {row[0]} -f {place.sync}", "bold")
        begun = time.monotonic()
        place.command("wait", "--lsn", row[0], "--timeout", "120")
        self._screen.say(f"all followers have applied it, after {time.monotonic() - begun:.1f} s")
        self._screen.say(f"$ driftless verify {' '.join(STREAMS)} -f {place.sync}", "bold")
        self._screen.quote(place.command("verify", *STREAMS))

    def compare_followers(self, place: Place) -> bool:
        """Whether every document of every follower is what the database has."""
        self._screen.step("Compare every document with the database")
        for runner in self._runners:
            runner.ask_to_stop()
        servers = place.endpoints
        reads: dict[str, tuple[str, LiteralString, Callable[[], Iterator[tuple[str, Any]]]]] = {
            FIRST[0]: ("products", compare.ROW, lambda: compare.index_documents(servers.opensearch, SEARCH_INDEX)),
            FIRST[1]: ("products", compare.ROW, lambda: compare.cache_documents(servers.redis, CACHE_KEY)),
            LATER: ("orders", compare.ORDER, lambda: compare.index_documents(servers.opensearch, ORDER_INDEX)),
        }
        same = True
        with psycopg.connect(place.dsn, autocommit=True) as connection:
            for follower, (table, statement, documents) in reads.items():
                found = compare.compare(compare.rows(connection, table, statement), documents())
                self._screen.say(f"{follower:<15} {found}", "green" if found.same else "bold red")
                for what in ("missing", "extra", "different"):
                    if keys := getattr(found, what):
                        self._screen.say(f"  {what}: {', '.join(keys[:5])}{', ...' if len(keys) > 5 else ''}")
                same = same and found.same
        verdict = "no drift" if same else "DRIFT: this must not happen, please report it"
        self._screen.say(f"{verdict} ({clock(self._screen.seconds)} since the beginning)", "bold")
        return same

    # -- parts of them ------------------------------------------------------------------------------------------

    def _run(self, place: Place, *names: str) -> None:
        self._screen.say(f"$ driftless run {' '.join(names)} -f {place.sync}", "bold")
        self._runners.append(place.run(*names))

    def _serve(self, place: Place) -> None:
        """Start it; again where it was started with another sync.yaml."""
        if self._serving is not None:
            self._serving.stop()
            self._runners.remove(self._serving)
        self._serving, url = place.serve()
        self._runners.append(self._serving)
        self._screen.say(f"watch all of it in a browser, until the demo ends: {url}", "green")

    def _meters(self) -> dict[str, Meter]:
        return {table: Meter(table, rows) for table, rows in self._size.tables.items()}

    def _progress(self, meters: dict[str, Meter], done: dict[str, int]) -> list[str]:
        # What the writer adds meanwhile does not count.
        return [meters[name].line(min(n, meters[name].total), bar=self._screen.watched) for name, n in done.items()]

    def _until_live(self, place: Place, writer: Writer, *followers: str) -> None:
        """Return when these have the whole log, and are as fresh as they can be."""
        meters: dict[str, Meter] = {}
        # What follows a stream is told of how far it has come every few seconds, unless somebody waits for it.
        fresh = [name for name in followers if name not in COUNTED]
        deadline = None
        with self._screen.board(every=10.0) as board:
            for _ in self._until(f"{', '.join(followers)} to be live", _BOOTSTRAP_SECONDS, writer):
                facts = place.status()
                behind = {name: facts[name]["lag_records"] for name in followers}
                bulk = [name for name in followers if facts[name]["state"] == "bootstrapping" and behind[name]]
                for name in bulk:
                    meters.setdefault(name, Meter(name, behind[name]))
                done = {name: max(0, meters[name].total - behind[name]) for name in bulk}
                if all(facts[name]["state"] == "live" for name in followers):
                    deadline = deadline or time.monotonic() + _FRESH_PATIENCE_SECONDS
                over = deadline is not None and (
                    time.monotonic() > deadline or all(facts[n]["lag_seconds"] < _FRESH_SECONDS for n in fresh)
                )
                board.show([*_standing(facts), *self._progress(meters, done)], last=over)
                if over:
                    return

    def _until(self, what: str, pause: float, writer: Writer) -> Iterator[None]:
        """Again and again, `pause` seconds apart, as long as writer and runners go on."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            begun = time.monotonic()
            if begun > deadline:
                raise SourceError(f"gave up waiting for {what} after {_PATIENCE_SECONDS:.0f} s")
            writer.check()
            for runner in self._runners:
                runner.check()
            yield
            time.sleep(max(0.0, begun + pause - time.monotonic()))

    def _end_runners(self) -> None:
        if any(runner.running for runner in self._runners):
            self._screen.say("ending the runs")
        for runner in self._runners:
            runner.ask_to_stop()
        for runner in self._runners:
            runner.stop()


def _written(writer: Writer) -> list[str]:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(writer.done.items(), reverse=True))
    return [f"the writer has made {writer.done.total():,} changes: {kinds}"]


def _seen(writer: Writer, stores: Stores) -> list[str]:
    """A search and a look-up; the writer is told what was found, so that it changes."""
    hits = stores.search()
    writer.watched = [hit.product for hit in hits]
    rows = [[f'search "{SEARCH}"', "price"], *([f"  {hit.title}", f"{hit.price}"] for hit in hits)]
    return [*columns(rows, right=(1,)), "", *stores.product(FAVOURITE), "", *stores.sales(FAVOURITE)]


def _standing(facts: dict[str, dict[str, Any]]) -> list[str]:
    rows = [["follower", "state", "behind", "to read", "documents"]]
    for name, follower in facts.items():
        seconds, records, documents = (follower[key] for key in ("lag_seconds", "lag_records", "documents"))
        # It takes its lease when Spark is about to start.
        state = "starting" if follower["state"] == "stopped" else follower["state"]
        counts = ["-" if number is None else f"{number:,}" for number in (records, documents)]
        rows.append([name, state, "-" if seconds is None else f"{seconds:.1f} s", *counts])
    return columns(rows, right=(2, 3, 4))
