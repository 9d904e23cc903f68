"""Verdicts on histories that are made up: nothing that is right is called wrong, and each corruption is named.

A model writes transactions into a log of several partitions; a snapshot of the source is taken between two of them, and
each document of a follower is read at a moment of its own. `DRIFTLESS_TEST_SEED` replays one case.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from driftless.kafka.client import Offsets
from driftless.verify import judge
from driftless.verify.boundary import Place, narrow
from driftless.verify.judge import AHEAD, DIFFERENT, EXTRA, MISSING, STALE, KeyHistory, SuspectKeys, zones
from driftless.verify.spool import ABSENT, hash_documents, hashes
from driftless.version import MAX_OFFSET, make_version
from tests.support.seeds import seeds

PARTITIONS = 3
Log = list[tuple[str, int, str | None, int]]
"""(key, version, document, partition) of each record."""


def partition_of(key: str) -> int:
    return crc32(key.encode()) % PARTITIONS


@dataclass
class Model:
    """`ends`: LSN at which each transaction ended. `states`: what the source holds after each. `at`: the log's ends
    after each. `places`: what boundary.py sees of each record.
    """

    log: Log = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [100])
    states: list[dict[str, str]] = field(default_factory=lambda: [{}])
    at: list[Offsets] = field(default_factory=lambda: [dict.fromkeys(range(PARTITIONS), 0)])

    def commit(self, changes: Mapping[str, str | None], begun: int, end: int) -> None:
        """A transaction whose rows lie between two positions; other transactions may lie there too."""
        state, at = dict(self.states[-1]), dict(self.at[-1])
        for key, document in changes.items():
            p = partition_of(key)
            self.log.append((key, make_version(1, at[p]), document, p))
            self.places.append(Place(p, at[p], self.ends[-1], begun))
            at[p] += 1
            if document is None:
                state.pop(key, None)
            else:
                state[key] = document
        self.ends.append(end)
        self.states.append(state)
        self.at.append({p: offset + 1 for p, offset in at.items()})  # the mark that ends Kafka's own transaction

    def item(self, key: str, moment: int) -> tuple[str, int] | None:
        """What a follower that has applied so many transactions shows of a key."""
        newest = [r for r in self.log if r[0] == key and (r[1] & MAX_OFFSET) < self.at[moment][r[3]]]
        return (newest[-1][2], newest[-1][1]) if newest and newest[-1][2] is not None else None

    def records(self) -> dict[str, Any]:
        keys, versions, documents, partitions = (list(column) for column in zip(*self.log, strict=True))
        return {
            "hash": hashes(keys),
            "version": np.array(versions, np.int64),
            "canon": hash_documents(documents),
            "raw": hashes(documents),
            "partition": np.array(partitions, np.int32),
        }


def made(rng: random.Random) -> Model:
    model, lsn = Model(), 100
    keys = [f"k{n}" for n in range(12)]
    for n in range(rng.randrange(20, 60)):
        begun = lsn + rng.randrange(1, 5) - rng.choice([0, 0, 8])
        lsn += rng.randrange(5, 12)
        changed = rng.sample(keys, rng.randrange(4))  # none: of another application, of which the log tells nothing
        model.commit({k: None if rng.random() < 0.25 else f'{{"n": {n}, "k": "{k}"}}' for k in changed}, begun, lsn)
    return model


def columns(documents: Mapping[str, tuple[str, int]]) -> dict[str, Any]:
    texts = [text for text, _ in documents.values()]
    return {
        "hash": hashes(list(documents)),
        "version": np.array([version for _, version in documents.values()], np.int64),
        "raw": hashes(texts),
        "canon": np.full(len(texts), ABSENT, np.int64),
    }


@dataclass
class Looked:
    """What a verify that begins at a moment of the model has read."""

    model: Model
    lo: Offsets
    hi: Offsets
    source: dict[str, str]
    items: dict[str, tuple[str, int]]

    def judge(self) -> dict[str, dict[str, int]]:
        """Scope -> key -> problem."""
        records = self.model.records()
        log = KeyHistory(records, zones(records, self.lo, self.hi, MAX_OFFSET))
        names = dict.fromkeys([*self.source, *self.items, *(key for key, *_ in self.model.log)])
        source = {
            "hash": hashes(list(self.source)),
            "canon": hash_documents(self.source.values()),
        }
        ends = np.array([make_version(1, self.model.at[-1][p]) for p in range(PARTITIONS)], np.int64)
        found = {
            "log": judge.source_against_log(source, log),
            "follower": judge.items_against_log(columns(self.items), log, ends),
        }
        return {scope: _named(some, list(names)) for scope, some in found.items()}


def _named(found: SuspectKeys, names: list[str]) -> dict[str, int]:
    named = dict(zip(hashes(names).tolist(), names, strict=True))
    return {named[key]: problem for key, problem in zip(found.keys.tolist(), found.problems.tolist(), strict=True)}


def look(model: Model, rng: random.Random) -> Looked:
    """Begun after one transaction, taken after another, known to be in Kafka after a third; read until the last."""
    last = len(model.ends) - 1
    begun = rng.randrange(last + 1)
    taken = rng.randrange(begun, last + 1)
    arrived = rng.randrange(taken, last + 1)
    lo, hi, lsn = model.at[begun], model.at[arrived], rng.randrange(model.ends[taken], _next(model, taken))
    window = [r for r in model.places if lo[r.partition] <= r.offset < hi[r.partition]]
    ends = {r.prev_commit_lsn for r in window if r.prev_commit_lsn is not None}
    seen = sorted(ends | {model.ends[arrived]})  # the marker's is the last
    first, behind = narrow(window, seen, lsn, lo, hi)
    for p in range(PARTITIONS):
        assert lo[p] <= first[p] <= behind[p] <= hi[p]
        assert first[p] <= model.at[taken][p], "a record that the snapshot lacks was told to be in it"
        inside = [r.offset for r in model.places if r.partition == p and r.offset < model.at[taken][p]]
        assert behind[p] > max(inside, default=-1), "a record of the snapshot was told not to be in it"
    items = {key: model.item(key, rng.randrange(arrived, last + 1)) for key in {key for key, *_ in model.log}}
    shown = {key: item for key, item in items.items() if item is not None}
    return Looked(model, first, behind, dict(model.states[taken]), shown)


def _next(model: Model, taken: int) -> int:
    return model.ends[taken + 1] if taken + 1 < len(model.ends) else model.ends[taken] + 5


@pytest.mark.parametrize("seed", seeds("judge", 300))
def test_whatever_happens_meanwhile_what_is_right_is_not_called_wrong(seed: int) -> None:
    rng = random.Random(seed)
    assert look(made(rng), rng).judge() == {"log": {}, "follower": {}}, f"seed {seed}"


@pytest.mark.parametrize("seed", seeds("plant", 300))
def test_each_planted_corruption_of_a_follower_is_named(seed: int) -> None:
    rng = random.Random(seed)
    found = look(model := made(rng), rng)
    wanted: dict[str, int] = {"ghost": EXTRA}
    found.items["ghost"] = ('{"n": 1}', make_version(1, 1))
    rng_keys = rng.sample(sorted(found.items.keys() - {"ghost"}), min(4, len(found.items) - 1))
    for key, kind in zip(rng_keys, rng.sample(["flip", "drop", "type", "ahead"], 4), strict=False):
        text, version = found.items[key]
        gone = [v for k, v, d, _ in model.log if k == key and d is None]
        if kind == "drop" and not any(v & MAX_OFFSET >= found.lo[partition_of(key)] for v in gone):
            # Only what was there at the position, and was not deleted later, must be there.
            must = [v for k, v, d, _ in model.log if k == key and v & MAX_OFFSET < found.lo[partition_of(key)]]
            del found.items[key]
            wanted |= {key: MISSING} if must and must[-1] not in gone else {}
        elif kind == "flip":
            found.items[key] = (text.replace('"n": ', '"n": 9'), version)
            wanted[key] = _different(model, key)
        elif kind == "type":
            found.items[key] = (text.replace('"n": ', '"n": "').replace(", ", '", '), version)
            wanted[key] = _different(model, key)
        elif kind == "ahead":
            found.items[key] = (text, make_version(1, 10**9))
            wanted[key] = AHEAD
    assert found.judge() == {"log": {}, "follower": wanted}, f"seed {seed}"


def _different(model: Model, key: str) -> int:
    """What a document is called that is not as the log has it: too much, where the log's newest is a delete."""
    return DIFFERENT if [d for k, _, d, _ in model.log if k == key][-1] is not None else EXTRA


@pytest.mark.parametrize("seed", seeds("stale", 100))
def test_a_document_made_stale_is_named(seed: int) -> None:
    rng = random.Random(seed)
    found = look(model := made(rng), rng)
    for key in list(found.items):
        before = [r for r in model.log if r[0] == key and (r[1] & MAX_OFFSET) < found.lo[r[3]]]
        older = [r for r in before[:-1] if r[2] is not None]
        if older:
            found.items[key] = (str(older[-1][2]), older[-1][1])
            assert found.judge()["follower"] == {key: STALE}, f"seed {seed}"
            return


@pytest.mark.parametrize("seed", seeds("log", 200))
def test_each_planted_corruption_of_the_log_is_named(seed: int) -> None:
    """Planted before the verify begins, and applied by the follower: so the log is wrong, and not the follower."""
    rng = random.Random(seed)
    model = made(rng)
    kept = model.states[-1]
    key = rng.choice(sorted(kept))
    planted = rng.choice([None, '{"n": 12345}'])
    model.commit({key: planted, "ghost": '{"n": 1}'}, 10**6, 10**6 + 1)
    model.states[-1] = dict(kept)
    last = len(model.ends) - 1
    items = {k: item for k in {k for k, *_ in model.log} if (item := model.item(k, last)) is not None}
    found = Looked(model, model.at[last], model.at[last], dict(kept), items)
    wanted = {key: MISSING if planted is None else DIFFERENT, "ghost": EXTRA}
    assert found.judge() == {"log": wanted, "follower": {}}, f"seed {seed}"


def test_a_follower_that_shows_nothing_lacks_everything() -> None:
    model = made(random.Random(1))
    last = model.at[-1]
    state = model.states[-1]
    found = Looked(model, last, last, dict(state), {})
    assert found.judge() == {"log": {}, "follower": dict.fromkeys(state, MISSING)}


def test_a_log_that_lost_everything_is_told() -> None:
    records = {name: np.empty(0, np.int64) for name in ("hash", "version", "canon", "raw")}
    records["partition"] = np.empty(0, np.int32)
    log = KeyHistory(records, zones(records, {0: 5}, {0: 5}, MAX_OFFSET))
    source = {"hash": hashes(["a"]), "canon": hash_documents(["1"])}
    assert judge.source_against_log(source, log).problems.tolist() == [MISSING]
    ends = np.array([make_version(1, 5)], np.int64)
    assert judge.items_against_log(columns({"a": ("1", make_version(1, 2))}), log, ends).problems.tolist() == [EXTRA]


@pytest.mark.parametrize(
    ("prev_commit_lsns", "lsns", "lsn", "expected"),
    [
        # Ends of transactions: 10, 20, 30, and 40 by the marker.
        ([0, 10, 20, 30], [5, 15, 25, 35], 25, (2, 2)),  # the row at 25 is of a transaction that ends at 30
        ([0, 10, 20, 30], [5, 15, 22, 35], 25, (2, 3)),  # written before 25, and surely not committed: not told yet
        ([0, 10, 20, 30], [5, 15, 22, 35], 30, (3, 3)),  # its end is the position
        ([0, 10, 20, 30], [5, 15, 25, 35], 9, (0, 1)),
        ([0, 10, 20, 30], [9, 15, 25, 35], 9, (0, 0)),
        ([0, 10, 20, 30], [5, 15, 25, 35], 40, (4, 4)),
        ([0, None, 20, 30], [5, 5, 25, 35], 30, (3, 3)),  # what is of no transaction lies between two of them
    ],
)
def test_a_position_lies_between_two_records(
    prev_commit_lsns: list[int | None], lsns: list[int], lsn: int, expected: tuple[int, int]
) -> None:
    records = [
        Place(0, n, prev_commit_lsn, at)
        for n, (prev_commit_lsn, at) in enumerate(zip(prev_commit_lsns, lsns, strict=True))
    ]
    first, last = narrow(records, [0, 10, 20, 30, 40], lsn, {0: 0}, {0: 4})
    assert (first[0], last[0]) == expected
