"""What the version before left behind, read by today's readers.

`recorded/state.json` is of commit 94d5a66, the last before the code moved into named packages: a pipeline of a flat and
a joined view, with a second epoch, a second generation and a document in quarantine. Its name was then replaced by
`shop`, and the fingerprints are those that the same commit makes for that name.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import sinks
from driftless.config.load import load
from driftless.config.models import Config
from driftless.control.lease import Holder
from driftless.control.quarantine import held_of, held_place
from driftless.facts.builds import Build, FollowedView, newest_build
from driftless.facts.epochs import FollowedTable, TopicLog, registered_log
from driftless.facts.followed_log import FollowedLog
from driftless.facts.generation import Generation, define, generations, newest
from driftless.facts.shapes import parse
from driftless.facts.state import Fact, State, history
from driftless.facts.trust import Trust
from driftless.table import Table
from driftless.version import split_version
from jobs.follow.checkpoint import Checkpoint
from jobs.runner import unapplied
from jobs.views.store.sqlite import SqliteRows
from tests.support.files import ROOT

RECORDED: dict[str, Any] = json.loads((ROOT / "tests" / "recorded" / "state.json").read_text())
FACTS: dict[str, dict[str, Any]] = RECORDED["facts"]
STATE = State({key: Fact(fact, 1.0, number) for number, (key, fact) in enumerate(FACTS.items())})
AGAIN: dict[str, Callable[[dict[str, Any]], object]] = {
    "generation": lambda fact: Generation.from_json(1, fact).to_json(),
    "view": lambda fact: Build.from_json(1, fact).to_json(),
    "epochs": lambda fact: TopicLog.from_json(fact).to_json(),
    "table": lambda fact: Table.from_json(fact).to_json(),
    "pipeline/trust": lambda fact: Trust.from_json("shop", fact).to_json(),
}
"""What is read of a fact, as it would be written."""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    path = tmp_path_factory.mktemp("recorded") / "sync.yaml"
    secrets = {
        "SOURCE_DSN": "postgresql://db/shop",
        "SEARCH_URL": "http://search:9200",
        "CACHE_URL": "redis://cache:6379",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in secrets.items():
            patch.setenv(name, value)
        path.write_text(json.dumps(RECORDED["sync"]))
        return load(path, {kind: sinks.config_model(kind) for kind in sinks.kinds()})


@pytest.mark.parametrize("key", FACTS)
def test_a_fact_is_read_as_it_was_written(key: str) -> None:
    assert parse(key.encode(), json.dumps(FACTS[key]).encode()) == (key, FACTS[key])
    kind = key if key in AGAIN else key.partition("/")[0]
    if kind in AGAIN:
        assert json.loads(json.dumps(AGAIN[kind](FACTS[key]))) == FACTS[key]
    if kind == "lease":
        holder = vars(Holder.of(STATE.facts[key]))
        assert holder == {name: FACTS[key][name] for name in holder}


def test_nothing_would_be_built_again(config: Config) -> None:
    """What sync.yaml asks for now has the fingerprints of then, from the same places of the same logs."""
    assert list(unapplied(config, list(config.followers), STATE)) == []
    logs: dict[str, FollowedLog] = {
        "item": FollowedTable("public.items", 2),
        "order": FollowedView("order", 1).known(STATE),
    }
    for name, follower in config.followers.items():
        table = Table.from_json(FACTS[f"table/{config.table_of(name)}"])
        begun = newest(STATE, name)
        assert begun is not None
        wanted = define(config, name, table, log=logs[follower.view])
        assert (wanted.fingerprint, wanted.followed) == (begun.fingerprint, begun.followed)
        assert wanted.same_definition(begun)
        assert begun.followed.is_registered(STATE)
        assert not begun.followed.is_superseded(STATE)


def test_epochs_and_generations_are_those_that_there_were() -> None:
    items, orders = registered_log(STATE, "public.items"), registered_log(STATE, "public.orders")
    assert items is not None
    assert orders is not None
    assert [(e.number, e.why.partition(" at ")[0]) for e in items.epochs] == [(1, "first snapshot"), (2, "TRUNCATE")]
    assert (items.topic, items.partitions, orders.newest.number) == (f"{RECORDED['sync']['name']}.public.items", 2, 1)
    assert items.newest.lsn > items.epochs[0].lsn == 0
    found = {name: generations(STATE, name) for name in ("item-search", "item-cache", "order-search", "order-cache")}
    live = {name: [n for n, g in known.items() if g.promoted_at and not g.retired_at] for name, known in found.items()}
    assert live["item-cache"] == [2]
    assert live["order-cache"] == [2]
    assert live["order-search"] == [1]
    assert FollowedTable("public.items", 1).is_superseded(STATE)
    assert history(STATE) == 0
    (progress,) = FollowedView("order", 1).progress(STATE)
    assert progress["state"] == "stopped"


def test_the_quarantine_and_the_checkpoints_are_read() -> None:
    (key, value), *_ = RECORDED["quarantine"]
    place = held_place(key.encode())
    assert place is not None
    held = held_of(place, value.encode())
    assert held is not None
    assert (held.follower, held.key, split_version(held.version)[0]) == ("item-search", "2", 2)
    texts = [fact["checkpoint"] for fact in RECORDED["checkpoints"]["redis"].values()]
    texts += [fact["checkpoint"] for fact in RECORDED["checkpoints"]["opensearch"].values()]
    for text in texts:
        checkpoint = Checkpoint.from_text(text)
        assert checkpoint is not None
        assert json.loads(checkpoint.to_text()) == json.loads(text)
        assert checkpoint.built
    assert len(texts) >= len(generations(STATE, "order-cache")) + 3


def test_the_row_store_is_opened_and_holds_what_was_published(tmp_path: Path) -> None:
    path = tmp_path / "order-1.0.rows"
    with closing(sqlite3.connect(path)) as file:
        file.executescript("PRAGMA journal_mode = WAL;" + "\n".join(RECORDED["rows"]["sql"]))
        known = file.execute("SELECT count(*) FROM published WHERE hash IS NOT NULL").fetchone()[0]
    assert known == sum(document is not None for document in dict(RECORDED["view"]).values()) == 5
    build = newest_build(STATE, "order")
    assert build is not None
    store = SqliteRows(path, build.view, 0)
    try:
        assert store.audit(0, 100) == ([], None)
        assert store.dirty() == 0
    finally:
        store.close()
