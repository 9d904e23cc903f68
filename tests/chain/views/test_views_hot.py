"""A row in a hundred thousand documents; and the sums of TPC-B in every version of a document, through kills."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import psycopg
import pytest

from jobs.views.pace import AHEAD, PATIENCE, SLICE
from stack import Stack, stack_home
from tests.chain.conftest import MakePipeline
from tests.chain.support.broken import asleep, length
from tests.support.compare import View
from tests.support.machine import until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.soak, pytest.mark.speed, pytest.mark.server, pytest.mark.timeout(900)]

PLACES, APART = 100_000, 100
"""Places of the first region, which is in all of their documents; and of the second."""
BRANCHES, TELLERS, ACCOUNTS, WRITERS = 4, 10, 50, 4


@pytest.fixture(scope="module")
def places(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute("create table regions (id int primary key, name text)")
    source.execute("create table places (id int primary key, region_id int, name text)")
    source.execute("insert into regions values (1, 'first'), (2, 'apart')")
    source.execute("insert into places select i, 1, 'place' from generate_series(1, %s) i", (PLACES,))
    source.execute("insert into places select -i, 2, 'place' from generate_series(1, %s) i", (APART,))
    pipeline = make_pipeline(tables={"public.regions": {}, "public.places": {"partitions": 1}})
    pipeline.sync["views"]["place"] = {
        "root": "public.places",
        "columns": ["id", "name"],
        "one": {"region": {"table": "public.regions", "by": "region_id", "columns": ["name"]}},
    }
    region = "(select jsonb_build_object('name', r.name) from regions r where r.id = t.region_id)"
    shown = View("place", "public.places", fields={n: n for n in ("id", "name", "region")}, instead={"region": region})
    pipeline.follow("place-cache", shown, {"redis": {}})
    pipeline.apply()
    pipeline.run()
    pipeline.assert_in_step()
    return pipeline


def test_a_row_in_many_documents_holds_up_no_other_and_is_not_begun_again(
    places: Pipeline, source: psycopg.Connection
) -> None:
    already = len(places.published("place"))
    cache = places.stores["place-cache"]
    source.execute("update regions set name = 'second' where id = 1")
    for number in range(1, 4):
        source.execute("update places set name = 'meanwhile' where id = %s", (-number,))
        shown = partial(cache.get, cache.name((-number,)))
        until("the small change", lambda shown=shown: shown()["name"] == "meanwhile", 5)  # type: ignore[misc]
        source.execute("update regions set name = 'third' where id = 1 and name = 'second'")
    places.assert_in_step()

    versions = places.published("place")[already:]
    names = [(key, document["region"]["name"]) for key, document in versions if document["region"]["name"] != "apart"]
    second = {key for key, name in names if name == "second"}
    third = [key for key, name in names if name == "third"]
    assert 0 < len(second) < PLACES
    assert len(names) == len(second) + PLACES  # each once for what it shows
    assert len(set(third)) == len(third) == PLACES
    # Those that had not been written yet go first, but for one slice: what has waited keeps its place.
    assert not second.intersection(third[: PLACES - len(second) - SLICE])
    order = [key for key, _ in versions]
    assert max(order.index(str(-number)) for number in range(1, 4)) < len(order) - PLACES // 10


def test_no_more_of_a_row_in_many_documents_is_published_than_its_follower_applies(
    places: Pipeline, source: psycopg.Connection, stack: Stack
) -> None:
    before, begun = length(places, "view.place.1"), time.monotonic()
    with asleep(stack.running()["redis"]):
        source.execute("update regions set name = 'fourth' where id = 1")
        more = AHEAD + 10 * SLICE
        until("slices that nobody has applied", lambda: length(places, "view.place.1") >= before + more)
        published, passed = length(places, "view.place.1") - before, time.monotonic() - begun
    marks = 1.1  # records that end transactions have offsets, too
    assert published <= marks * (AHEAD + SLICE * (2 + passed / PATIENCE)), f"after {passed:.1f} s"
    places.assert_in_step()


BRANCH = View(
    "branch",
    "public.branches",
    key=("bid",),
    fields={name: name for name in ("bid", "balance", "tellers", "accounts", "history")},
    instead={
        "tellers": "(select coalesce(jsonb_agg(jsonb_build_object('tid', x.tid, 'balance', x.balance) order by x.tid),"
        " '[]') from tellers x where x.bid = t.bid)",
        "accounts": "(select coalesce(jsonb_agg(jsonb_build_object('aid', x.aid, 'balance', x.balance) order by x.aid),"
        " '[]') from accounts x where x.bid = t.bid)",
        "history": "(select coalesce(jsonb_agg(jsonb_build_object('delta', x.delta) order by x.hid), '[]') "
        "from history x where x.bid = t.bid)",
    },
)


class Bank:
    """The transaction of TPC-B, as pgbench has it, by several writers until `end`.

    Slowly: every version of a document shows the whole history of its branch.
    """

    def __init__(self, dsn: str, seed: int) -> None:
        self._dsn = dsn
        self._ended = threading.Event()
        self.error: Exception | None = None
        self._threads = [threading.Thread(target=self._work, args=(random.Random(seed + n),)) for n in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if self.error is not None:
            raise self.error

    def _work(self, rng: random.Random) -> None:
        try:
            with psycopg.connect(self._dsn) as connection:
                while not self._ended.wait(0.15):
                    self._transact(connection, rng)
                    connection.rollback() if rng.random() < 0.1 else connection.commit()
        except Exception as exc:  # noqa: BLE001
            self.error = exc

    @staticmethod
    def _transact(connection: psycopg.Connection, rng: random.Random) -> None:
        branch, delta = rng.randrange(BRANCHES), rng.randrange(-5000, 5001)
        account, teller = branch * ACCOUNTS + rng.randrange(ACCOUNTS), branch * TELLERS + rng.randrange(TELLERS)
        for table, key, number in (
            ("accounts", "aid", account),
            ("tellers", "tid", teller),
            ("branches", "bid", branch),
        ):
            connection.execute(f"update {table} set balance = balance + %s where {key} = %s".encode(), (delta, number))
        connection.execute("insert into history (bid, delta) values (%s, %s)", (branch, delta))


@pytest.fixture
def bank(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute("create table branches (bid int primary key, balance int not null default 0)")
    source.execute("create table tellers (tid int primary key, bid int, balance int not null default 0)")
    source.execute("create table accounts (aid int primary key, bid int, balance int not null default 0)")
    source.execute("create table history (hid int generated always as identity primary key, bid int, delta int)")
    source.execute("insert into branches select i from generate_series(0, %s) i", (BRANCHES - 1,))
    for table, number in (("tellers", TELLERS), ("accounts", ACCOUNTS)):
        statement = f"insert into {table} select i, i / %s from generate_series(0, %s) i"
        source.execute(statement.encode(), (number, number * BRANCHES - 1))
    tables: dict[str, dict[str, Any]] = {f"public.{name}": {} for name in ("tellers", "accounts", "history")}
    pipeline = make_pipeline(tables={**tables, "public.branches": {"partitions": 1}})

    def many(table: str, columns: list[str]) -> dict[str, Any]:
        return {"table": f"public.{table}", "by": "bid", "columns": columns}

    pipeline.sync["views"]["branch"] = {
        "root": "public.branches",
        "many": {
            "tellers": many("tellers", ["tid", "balance"]),
            "accounts": many("accounts", ["aid", "balance"]),
            "history": many("history", ["delta"]),
        },
    }
    pipeline.follow("branch-cache", BRANCH, {"redis": {}})
    pipeline.apply()
    return pipeline


def uneven(document: dict[str, Any]) -> bool:
    """Whether the sums differ that every transaction keeps equal."""
    sums = {sum((row["balance"] for row in document[name]), Decimal(0)) for name in ("tellers", "accounts")}
    return sums | {sum((row["delta"] for row in document["history"]), Decimal(0))} != {document["balance"]}


def test_every_version_of_a_document_keeps_the_sums_of_tpc_b(bank: Pipeline) -> None:
    """While runners are killed, and the rows are lost."""
    seen: Callable[[], int] = lambda: len(bank.records("view.branch.1"))  # noqa: E731
    writers = Bank(bank.dsn, seed=11)
    try:
        for how in ("killed", "lost", "killed"):
            job, before = bank.run(), seen()
            until("some hundred versions", lambda before=before: seen() > before + 150, 120)  # type: ignore[misc]
            job.kill()
            if how == "lost":
                for file in (stack_home() / "rows" / bank.name).iterdir():
                    file.unlink()
        bank.run()
    finally:
        writers.end()
    bank.assert_in_step()
    versions = [document for _, document in bank.published("branch")]
    assert len(versions) > 450
    assert [document for document in versions if uneven(document)] == []
    assert uneven({**versions[-1], "balance": versions[-1]["balance"] + 1})
