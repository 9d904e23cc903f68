"""Who reads the slot: what is kept of it, and what `status` says where nobody watched when that began."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

import sinks
from connectors.postgres.client import Postgres
from connectors.postgres.slot_reader import slot_reader_facts
from driftless.config.load import load
from driftless.config.models import Config
from driftless.control.status import SourceStatus, status
from driftless.facts.state import UNWATCHED, WATCHED, Fact, State

SYNC = """
name: shop
source: {dsn: postgresql://localhost/shop, tables: {public.items: {}}}
kafka: {bootstrap: b:1}
connect: {url: http://b:1}
views: {items: {root: public.items}}
followers:
  search: {view: items, opensearch: {url: http://s:1, index: items}}
  cache: {view: items, redis: {url: redis://c:1, key: "item:{id}"}}
"""
MORNING, NOON = "2026-01-01 08:00:00.000000", "2026-01-01 12:00:00.000000"


@dataclass
class Source:
    """A server whose slot is read since then."""

    since: str | None = MORNING

    def read_since(self, slot: str) -> str | None:
        assert slot == "driftless_shop"
        return self.since

    def lsn(self) -> int:
        return 0x500


def heeded(state: State, since: str | None, *, watched: bool) -> dict[str, dict[str, object] | None]:
    facts = slot_reader_facts(cast("Postgres", Source(since)), "driftless_shop", state, watched=watched)
    state.merge(facts)
    return facts


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "sync.yaml"
    path.write_text(SYNC)
    return load(path, {kind: sinks.config_model(kind) for kind in sinks.kinds()})


def unwatched(config: Config, state: State) -> Any:
    return status(config, state, SourceStatus(), 0.0)["source"]["unwatched_lsn"]


def test_only_a_reader_that_came_while_nobody_watched_is_told_of(config: Config) -> None:
    state = State({})
    assert heeded(state, MORNING, watched=False) == {WATCHED: {"since": MORNING}}, "the first one is whom `apply` made"
    assert heeded(state, MORNING, watched=False) == {}
    assert heeded(state, None, watched=False) == {}, "nobody reads: it can still be seen whether it was moved"
    assert heeded(state, NOON, watched=True) == {WATCHED: {"since": NOON}}
    assert unwatched(config, state) is None
    evening = NOON.replace("12", "18")
    assert heeded(state, evening, watched=False) == {
        WATCHED: {"since": evening},
        UNWATCHED: {"since": evening, "lsn": "0/500"},
    }
    assert heeded(state, evening, watched=True) == {}
    assert unwatched(config, state) == "0/500"


def test_it_is_told_until_every_follower_is_proven_beyond(config: Config) -> None:
    state = State({UNWATCHED: Fact({"since": NOON, "lsn": "0/500"}, 1.0, 0)})
    for name in ("search", "cache"):
        state.set(f"generation/{name}/1", {})
    for search, cache, said in (("0/500", "0/4FF", "0/500"), ("0/500", None, "0/500"), ("0/500", "1/0", None)):
        for name, lsn in (("search", search), ("cache", cache)):
            state.set(f"proven/{name}", None if lsn is None else {"lsn": lsn, "generation": 1})
        assert unwatched(config, state) == said
