"""Joined views: what the row store publishes is what Postgres says, for random schemas, views, and writers.

A third opinion is that of plain loops over the rows, which share no code with the product. `DRIFTLESS_TEST_SEED`
replays one case; `DRIFTLESS_VIEWS_CASES` says how many are tried.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

import jobs.views.store.sqlite
from driftless.config.views import ViewConfig
from driftless.table import Column, Table
from driftless.views.resolve import CapturedTables as Facts
from driftless.views.resolve import resolve
from driftless.views.sample import bare, select_one, shown
from driftless.views.shard import shard_of, split_tables
from driftless.views.sql import select
from driftless.views.tree import View
from jobs.views.store.sqlite import SqliteRows
from tests.conftest import fresh_database
from tests.jobs.views.store.views_cases import Case
from tests.jobs.views.store.views_maker import Maker
from tests.jobs.views.store.views_reader import Reader, as_rows
from tests.jobs.views.store.views_source import SLOT, Source
from tests.support.compare import parse, same
from tests.support.seeds import seeds

pytestmark = pytest.mark.server

CASES = int(os.environ.get("DRIFTLESS_VIEWS_CASES") or 16)


@pytest.fixture(scope="module")
def database(postgres: str) -> Iterator[tuple[str, psycopg.Connection]]:
    """With a slot that decodes it."""
    with fresh_database(postgres) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"alter database {name} set timezone = 'UTC'".encode())
        connection.execute("set timezone = 'UTC'")
        connection.execute("select pg_create_logical_replication_slot(%s, 'test_decoding')", (SLOT,))
        yield dsn, connection
        connection.execute("select pg_drop_replication_slot(%s)", (SLOT,))


def _column(name: str, type_: str) -> Column:
    return Column(name, type_.removesuffix("[]"), array=type_.endswith("[]"))


def resolved(case: Case) -> View:
    tables = {
        name: Table("public", spec.name, tuple(_column(c, t) for c, t in spec.columns.items()), tuple(spec.key))
        for name, spec in case.tables.items()
    }
    unique = {name: [tuple(spec.key), *map(tuple, spec.unique)] for name, spec in case.tables.items()}
    view, problems = resolve("any", ViewConfig.model_validate(case.view), Facts(tables, lambda name: unique[name]))
    assert problems == []
    assert view is not None
    again = View.from_json(json.loads(json.dumps(view.to_json())))
    assert (again, again.fingerprint) == (view, view.fingerprint)
    return view


def _samples(view: View, source: Source, meant: dict[str, Any]) -> None:
    """Root by root the same documents; and where lists are cut, what is shown of them."""
    assert same(source.documents(select_one(view, roots=None, cut=None)), meant)
    cut, one = source.documents(select_one(view, roots=None)), source.documents(select_one(view))
    assert {key: shown(view.root, document) for key, document in cut.items()} == {
        key: shown(view.root, document) for key, document in meant.items()
    }
    assert len(one) == min(1, len(meant))
    assert all(same(document, cut[key]) for key, document in one.items())
    names = [r.name for r in view.root.relations if not r.value and not r.aggregates and r.prefix is None]
    there = source.documents(select_one(bare(view), roots=None, cut=0))
    assert {key: [name for name in names if document[name] in (None, [])] for key, document in there.items()} == {
        key: [name for name in names if document[name] in (None, [])] for key, document in meant.items()
    }


def _in_shards(view: View, reader: Reader, folder: Path, rng: random.Random) -> None:
    """The same log over several stores: the same documents, each from one of them; what is split is in one alone."""
    view = replace(view, shards=rng.randint(2, 4))
    stores = [SqliteRows.create(folder / f"{shard}.db", view, shard) for shard in range(view.shards)]
    found: list[dict[str, str | None]] = [{} for _ in stores]
    ends = [*sorted(rng.sample(range(len(reader.log) + 1), min(3, len(reader.log)))), len(reader.log)]
    for start, end in zip([0, *ends], ends, strict=False):
        for store, documents in zip(stores, found, strict=True):
            middle = rng.randint(start, end)
            store.apply(as_rows(view, reader.log[start:middle]), {})
            store.apply(as_rows(view, reader.log[middle:end]), {})
            while done := store.assemble(100):
                documents.update(done.writes)
                store.published(done)
    for shard, documents in enumerate(found):
        assert {shard_of(key, view.shards) for key in documents} <= {shard}
    together = {key: parse(text) for documents in found for key, text in documents.items() if text is not None}
    assert together.keys() == reader.published.keys()
    assert all(same(document, reader.published[key]) for key, document in together.items())
    split, counts = split_tables(view), [store.counts() for store in stores]
    for table in view.tables:
        kept, all_rows = [count[table] for count in counts], len(reader.rows[table])
        assert sum(kept) <= all_rows if table in split else kept == [all_rows] * view.shards
    for store in stores:
        store.close()


@pytest.mark.parametrize("seed", seeds(__name__, CASES))
def test_documents_are_what_postgres_says(
    seed: int, database: tuple[str, psycopg.Connection], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No power fails here.
    monkeypatch.setattr(jobs.views.store.sqlite, "BEFORE_PUBLISHING", "NORMAL")
    rng = random.Random(seed)
    case = Maker(rng).case()
    print(f"DRIFTLESS_TEST_SEED={seed}\n{json.dumps(case.view, indent=1)}")
    view = resolved(case)
    statement = select(view)
    dsn, connection = database
    source = Source(connection, dsn, case, rng)
    reader = Reader(case, view, tmp_path / "rows.db", rng)
    try:
        for last in (False, False, True):
            source.write(min(15 * len(case.tables), 90))
            if last:
                source.rest()
            reader.feed(source.transactions())
            meant = source.documents(statement)
            _samples(view, source, meant)
            assert meant.keys() == reader.published.keys()
            for key, document in meant.items():
                assert same(reader.published[key], document), f"{key}\nis    {reader.published[key]}\nnot   {document}"
    finally:
        source.close()
    if not view.own_key:
        _in_shards(view, reader, tmp_path, rng)
    print(f"{len(reader.log)} changes, {len(reader.history)} cuts, {reader.writes} writes, {len(meant)} documents")
