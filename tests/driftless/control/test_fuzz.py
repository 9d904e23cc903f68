"""Random bytes, and records that are half right, at everything that parses what others may have written."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from typing import Any, cast

import pytest
from confluent_kafka import Message

from driftless.config.models import Config
from driftless.control.initial_snapshot import InitialSnapshot, next_initial_snapshot, notification
from driftless.control.lease import Holder
from driftless.control.quarantine import held_of, held_place
from driftless.control.request import is_running
from driftless.control.status import SourceStatus, settled, status
from driftless.control.strangers import warnings
from driftless.control.topic import absorb
from driftless.facts.builds import builds, standings
from driftless.facts.epochs import first_epoch, registered_log
from driftless.facts.generation import generations
from driftless.facts.shapes import is_shaped
from driftless.facts.state import Fact, State, history
from driftless.facts.trust import TRUST, Trust
from driftless.marker import Marker, Stranger, Truncation
from driftless.table import Column, Table
from jobs.follow.checkpoint import Checkpoint
from jobs.log.truncation import header_lsn
from jobs.supervise.frontier_feed import frontier_of
from jobs.views.cuts import transaction_end
from tests.support.seeds import seeds

CONFIG = Config.model_validate(
    {
        "name": "shop",
        "source": {"dsn": "postgresql://app@db/shop", "tables": {"public.items": {}}},
        "kafka": {"bootstrap": "kafka:9092"},
        "connect": {"url": "http://connect:8083"},
        "views": {"item": {"root": "public.items"}, "order": {"root": "public.items", "atomic": True}},
        "followers": {"item-cache": {"view": "item", "kind": "redis", "sink": {}, "access": []}},
    }
)
ROUNDS = 1_000
TABLE = Table("public", "items", (Column("id", "int4"), Column("name", "text", toastable=True)), ("id",))
LOG = first_epoch("shop.public.items", "Zk3", 2).begin({0: 7, 1: 9}, "TRUNCATE at 0/7", 7, 5.5)
SOURCE = {"lsn": 26231688, "txId": 750, "ts_us": 1795574729505714, "ts_ms": 1795574729505, "db": "shop"}
PRESENT, PAST = "5d1f", "77aa"
TRUSTS = [
    Trust("shop"),
    Trust("shop", plain=0).with_token(PRESENT, new=False),
    Trust("shop").with_token(PAST, new=False).with_token(PRESENT, new=False).settle(PRESENT, 26231689),
]
PREFIXES = [
    "driftless",
    "driftless.truncate.public.items",
    f"driftless:shop:{PRESENT}",
    f"driftless:shop:{PRESENT}:",
    f'driftless:shop:{PRESENT}:["public", "items"]',
    f"driftless:shop:{PAST}",
]
FACTS: dict[str, dict[str, Any]] = {
    "pipeline/identity": {"system_identifier": "74", "timeline": 1, "database": "shop", "history": 1},
    "pipeline/renewal": {"what": "the slot is gone", "history": False},
    TRUST: TRUSTS[2].to_json(),
    "reader/watched": {"since": "2026-01-01 00:00:00.000"},
    "reader/unwatched": {"since": "2026-01-01 00:00:00.000", "lsn": "0/7"},
    "lease/item-cache": {"held": True, "token": 3, "host": "a", "pid": 1, "started": 1.5},
    "follower/item-cache/1": {"state": "live", "live": True, "applied_lsn": "0/19", "marker_time": 1.5, "built": True,
                              "lag_records": 0, "documents": None, "quarantined": 0, "trouble": ""},
    "generation/item-cache/1": {"view": "item", "table": TABLE.to_json(), "kind": "redis", "fields": {"id": "id"},
                                "sink": {"key": "i:{id}"}, "where": None, "fingerprint": "ab", "epoch": 1, "build": 0,
                                "by_itself": True, "promoted_at": None, "retired_at": 2.5},
    "last/item-cache": {"number": 1},
    "paused/item-cache": {},
    "table/public.items": TABLE.to_json(),
    "storage/public.items": {"node": 16390, "columns": {"id": "750"}, "numbers": {"id": 1}, "labels": {}},
    "epochs/public.items": LOG.to_json(),
    "read/public.items": {"at": 1.5, "after": 2.5},
    "proven/item-cache": {"lsn": "0/19", "generation": 1},
    "build/order/1/0": {"state": "live", "frontier_lsn": "0/19", "marker": [25, 1.5], "ends": {"0": 3, "1": 4},
                        "lag_records": 0, "dirty": 0, "trouble": "", "trouble_since": 1.5, "still_seconds": 2.5},
    "strangers/messages": {"count": 1, "since": 1.5, "last": 2.5, "end": 7, "why": "has no token", "by": "ab"},
}  # fmt: skip
FACTS = json.loads(json.dumps(FACTS))  # where tuples are lists
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 1 << 63, 1 << 200, 0.5, -0.5, 1e308, "", "x", "0/7", "12", "\ud800", "\0", "é" * 300,
    [], [1], ["a", "b", "c"], {}, {"a": 1}, {"": {}}, {"0": -1}, [[[]]], {"number": "x"},
]  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    keys: list[Any] = list(range(len(value))) if isinstance(value, list) else list(value) if _is_map(value) else []
    for key in keys:
        yield value, key
        if isinstance(value[key], list | dict):
            yield from places(value[key])


def _is_map(value: Any) -> bool:
    return isinstance(value, dict)


def mutated(rng: random.Random, value: Any) -> Any:
    """A JSON value that is wrong in one or more places: something odd, something missing, something more."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        found = list(places(value))
        if not found:
            return copy.deepcopy(rng.choice(ODD))
        container, key = rng.choice(found)
        match rng.randrange(4):
            case 0 if isinstance(container, dict):
                del container[key]
            case 1 if isinstance(container, dict):
                container[rng.choice(["", "0", "x", "version", "live"])] = copy.deepcopy(rng.choice(ODD))
            case _:
                container[key] = copy.deepcopy(rng.choice(ODD))
    return value


def spoiled(rng: random.Random, text: bytes) -> bytes:
    """Bytes that are wrong in some places, cut off, or anything."""
    match rng.randrange(5):
        case 0:
            return rng.randbytes(rng.randrange(60))
        case 1:
            return text[: rng.randrange(len(text) + 1)]
        case 2:
            return b"[" * rng.choice((3, 2_000, 200_000)) + text
        case 3:
            return rng.choice([b"", b"null", b"[]", b"{}", b"0", b'"x"', b"NaN", b"-Infinity", b"1e999", b"\xff"])
        case _:
            found = bytearray(text)
            for _ in range(rng.randrange(1, 6)):
                found[rng.randrange(len(found))] = rng.randrange(256)
            return bytes(found)


def tried(rng: random.Random, value: Any) -> bytes:
    """A record that is right, half right, or nonsense."""
    kind = rng.randrange(8)
    if kind < 5:
        value = mutated(rng, value)
    text = json.dumps(value).encode()
    return text if kind < 6 else spoiled(rng, text)


class Record:
    """As the client of Kafka gives one."""

    def __init__(self, key: bytes | None, value: bytes | None) -> None:
        self._given = key, value

    def key(self) -> bytes | None:
        return self._given[0]

    def value(self) -> bytes | None:
        return self._given[1]

    def timestamp(self) -> tuple[int, int]:
        return 2, 5_000

    def offset(self) -> int:
        return 3


@pytest.fixture(params=seeds("fuzz", 2))
def rng(request: pytest.FixtureRequest) -> random.Random:
    print(f"DRIFTLESS_TEST_SEED={request.param}")
    return random.Random(request.param)


def test_messages_of_the_log_are_ours_or_skipped(rng: random.Random) -> None:
    """None that no token vouches for is believed, whatever it is."""
    for _ in range(ROUNDS):
        key, value = {"prefix": rng.choice(PREFIXES)}, {"op": "m", "ts_ms": 1, "source": SOURCE}
        raw = (json.dumps(key).encode(), json.dumps(value).encode())
        strange = (tried(rng, key), raw[1]) if rng.random() < 0.5 else (raw[0], tried(rng, value))
        for trust in TRUSTS:
            told = trust.parse(*strange, 1.0)
            assert told is None or isinstance(told, Marker | Truncation | Stranger)
            if trust.tokens and isinstance(told, Marker | Truncation):
                prefix = json.loads(strange[0])["prefix"]
                present = prefix.startswith(f"driftless:shop:{PRESENT}")
                assert present or trust is TRUSTS[2], (trust, strange)
                assert present or told.lsn < 26231689
            if isinstance(told, Stranger):
                assert "0123" not in told.why


def test_what_each_message_of_ours_says() -> None:
    """So that the test above cannot hold because nothing is believed."""
    value = json.dumps({"op": "m", "source": SOURCE}).encode()
    lsn, at = SOURCE["lsn"], 1795574729.505714
    marker, truncation = Marker(lsn, at), Truncation("public.items", lsn, 1.0)  # type: ignore[arg-type]
    wanted = [
        [marker, truncation, marker, marker, truncation, marker],
        [Stranger("has no token")] * 2 + [marker, marker, truncation, Stranger("has a wrong token")],
        [marker, truncation, marker, marker, truncation, marker],
    ]
    for trust, answers in zip(TRUSTS, wanted, strict=True):
        keys = [json.dumps({"prefix": prefix}).encode() for prefix in PREFIXES]
        found = [trust.parse(key, value, 1.0) for key in keys]
        assert found == answers
        markers = [
            (prefix, told.awaited) for prefix, told in zip(PREFIXES, found, strict=True) if isinstance(told, Marker)
        ]
        assert [prefix for prefix, awaited in markers if not awaited] == [
            prefix for prefix, _ in markers if prefix.startswith("driftless:") and not prefix.endswith(":")
        ], "a heartbeat of a pipeline with a token is awaited by nobody"
    later = value.replace(b"26231688", b"26231689")
    old = [json.dumps({"prefix": prefix}).encode() for prefix in (PREFIXES[0], PREFIXES[1], PREFIXES[5])]
    assert [type(TRUSTS[2].parse(key, later, 1.0)) for key in old] == [Stranger] * 3
    outside = value.replace(b"750", b"null")
    for prefix in PREFIXES:
        assert Trust("shop").parse(json.dumps({"prefix": prefix}).encode(), outside, 1.0) == Stranger(
            "is of no transaction"
        )
    for prefix in ("driftless:shop2:x", "driftless:sho", "driftlessly", "app", "driftless:"):
        assert Trust("shop").parse(json.dumps({"prefix": prefix}).encode(), value, 1.0) is None
    moved = TRUSTS[2].in_another_history()
    assert (moved.plain, list(moved.tokens.values())) == (0, [inf])


def everything(state: State) -> None:
    """All that is made of the control topic's facts, wherever it is read."""
    for name in ("item-cache", "x", "é"):
        generations(state, name)
        is_running(state, name, 5.0)
    for table in state.by_prefix("epochs"):
        log = registered_log(state, table)
        assert log is not None
        assert isinstance(log.newest.number, int)
        log.to_json()
    for view in ("order", "item"):
        for number in builds(state, view):
            frontier_of(standings(state, view, number), "topic")
    for fact in state.by_prefix("lease").values():
        Holder.of(fact)
    for table, fact in state.by_prefix("table").items():
        assert Table.from_json(fact.value).full_name, table
    history(state)
    settled(state, 5.0)
    warnings(state)
    status(CONFIG, state, SourceStatus(), 5.0)
    Trust.of("shop", state).believes("x", 5)
    assert state.now >= 0


def test_records_of_the_control_topic_are_facts_or_skipped(rng: random.Random) -> None:
    """A record that cannot be ours changes no fact, and all that is made of facts can be made of what is left."""
    facts: dict[str, Fact] = {}
    for key, value in FACTS.items():
        assert is_shaped(key, value), key
        absorb(facts, cast("Message", Record(key.encode(), json.dumps(value).encode())))
    assert {key: fact.value for key, fact in facts.items()} == FACTS
    everything(State(facts))
    strange = 0
    for _ in range(ROUNDS):
        key, right = rng.choice(list(FACTS.items()))
        name: bytes | None = key.encode()
        if rng.random() < 0.2:
            name = rng.choice([None, b"", spoiled(rng, key.encode()), f"{key}/more".encode(), f"{key}x".encode()])
        before = dict(facts)
        absorb(facts, cast("Message", Record(name, tried(rng, right))))
        if "strangers/control" in facts and facts["strangers/control"] != before.pop("strangers/control", None):
            strange += 1
            assert {key: fact for key, fact in facts.items() if key != "strangers/control"} == before
        everything(State(facts))
        if rng.random() < 0.3:  # as it was, so that the records of other kinds meet a good state
            facts = {key: replace(fact) for key, fact in before.items()}
            for wanted, fact in FACTS.items():
                absorb(facts, cast("Message", Record(wanted.encode(), json.dumps(fact).encode())))
    assert strange > ROUNDS / 4


@pytest.mark.parametrize(
    ("parse", "right", "allowed"),
    [
        (
            lambda raw: next_initial_snapshot(InitialSnapshot(1.0), raw),
            {"aggregate_type": "Initial Snapshot", "type": "STARTED", "timestamp": 1795574729505},
            (InitialSnapshot, type(None)),
        ),
        (
            notification,
            {"id": "public.items/ab/cd", "aggregate_type": "Incremental Snapshot", "type": "IN_PROGRESS",
             "timestamp": 1795574729505, "additional_data": {"chunk_index": "1"}},
            (dict,),
        ),
        (transaction_end, {"status": "END", "id": "750:26231688", "ts_ms": 1795574729505}, (Marker, type(None))),
        (held_place, ["item-cache", 1, "42"], (tuple, type(None))),
        (
            lambda raw: held_of(("item-cache", 1, "42"), raw),
            {"version": 5, "reason": "mapper_parsing_exception", "time": 1.5},
            (object,),
        ),
        (
            lambda raw: Checkpoint.from_text(raw.decode(errors="replace")),
            json.loads(Checkpoint(1, "Zk3", {0: 7}, Marker(5, 1.5), 1.5, True, 0, {0: 2}).to_text()),
            (Checkpoint, type(None)),
        ),
        (lambda raw: header_lsn({"lsn": raw}), 26231688, (int,)),
    ],
)  # fmt: skip
def test_whatever_is_read_is_ours_or_nothing(
    rng: random.Random, parse: Callable[[bytes], Any], right: Any, allowed: tuple[type, ...]
) -> None:
    assert isinstance(parse(json.dumps(right).encode()), allowed)
    for _ in range(ROUNDS):
        raw = tried(rng, right)
        assert isinstance(parse(raw), allowed), raw
