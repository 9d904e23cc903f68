"""What tells that changes are missing, decided from what the source, Connect and the brokers say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from connectors.debezium.connect import Connect
from connectors.pipeline import guard
from connectors.pipeline.guard import RESNAPSHOT, Trouble, troubles, unmended_trouble, unread
from connectors.postgres.client import Postgres
from connectors.postgres.server import Slot, Storage
from driftless.config.load import load
from driftless.config.models import Config
from driftless.errors import LogLost, LogReplaced, SourceError, SourceUnavailable
from driftless.facts.epochs import APPLY, TopicLog, first_epoch
from driftless.facts.state import Fact, State
from driftless.kafka.client import Kafka, Offsets, Topic
from jobs.brokers import identity_check as ground
from jobs.brokers import open_transactions as hanging
from jobs.brokers import shared_answers
from jobs.brokers.identity_check import LogIdentityCheck
from jobs.brokers.open_transactions import OpenTransactionMonitor
from jobs.brokers.shared_answers import TopicFacts
from tests.jobs.log.test_readings import Record, notice
from tests.support.clock import Clock

IDENTITY = {"system_identifier": "7", "timeline": 1, "database": "shop"}


@dataclass
class Source:
    """What a source says."""

    now: int = 1000
    found: Slot | None = field(default_factory=lambda: Slot("driftless_shop", 900, 7, 0, "reserved"))
    identities: dict[str, object] = field(default_factory=lambda: dict(IDENTITY))
    tables: dict[str, str] = field(default_factory=lambda: {"public.items": "1"})
    inherited: dict[str, list[str]] = field(default_factory=dict)

    def identity(self) -> dict[str, object]:
        return self.identities

    def slot(self, name: str) -> Slot | None:
        assert name == "driftless_shop"
        return self.found

    def lsn(self) -> int:
        return self.now

    def parents(self) -> dict[str, list[str]]:
        return self.inherited

    def carried(self, publication: str) -> dict[str, str]:
        assert publication == "driftless_shop"
        return self.tables


@dataclass
class Stored:
    """What Connect says; `asked` counts."""

    stored: int | None = 950
    captures: bool = True
    away: bool = False
    asked: int = 0

    def position(self, name: str) -> tuple[int | None, bool]:
        assert name == "driftless-shop"
        self.asked += 1
        if self.away:
            raise SourceUnavailable("Kafka Connect cannot be reached")
        return self.stored, self.captures


def state(**more: Mapping[str, Any]) -> State:
    """Of a pipeline that was applied, and whose follower has reached the position 0/384 (900)."""
    facts: dict[str, Any] = {
        "pipeline/identity": {**IDENTITY, "history": 0},
        "epochs/public.items": {},
        "carried/public.items": {"by": "1"},
        "follower/a/1": {"applied_lsn": "0/384"},
        "follower/b/1": {"applied_lsn": None},
        **more,
    }
    return State({key: Fact(value, 0.0, 0) for key, value in facts.items() if value is not None})


@pytest.fixture
def config(tmp_path: Any) -> Config:
    (tmp_path / "sync.yaml").write_text(
        "name: shop\nsource: {dsn: 'postgresql://a@b/shop', tables: {public.items: {}}}\n"
        "kafka: {bootstrap: 'b:1'}\nconnect: {url: 'http://b:1'}\nviews: {}\nfollowers: {}\n"
    )
    return load(tmp_path / "sync.yaml", {})


def found(config: Config, source: Source, connect: Stored, known: State, *, often: bool = False) -> list[Trouble]:
    return list(troubles(config, cast("Postgres", source), cast("Connect", connect), known, often=often))


def test_an_honest_source_is_in_order(config: Config) -> None:
    for connect in (Stored(), Stored(900), Stored(None), Stored(away=True)):
        assert found(config, Source(), connect, state()) == []


def test_before_a_pipeline_is_applied_there_is_nothing_to_rest_on(config: Config) -> None:
    assert found(config, Source(found=None), Stored(), State({})) == []


def test_a_table_that_others_inherit_from_is_told_with_what_to_do(config: Config) -> None:
    assert found(config, Source(inherited={"public.others": ["o1"]}), Stored(), state()) == []
    (trouble,) = found(config, Source(inherited={"public.items": ["chunk_1", "chunk_2"]}), Stored(), state())
    assert trouble.what.startswith("public.items has tables that inherit from it, chunk_1 and 1 more")
    assert "alter table chunk_1 no inherit public.items" in trouble.hint
    assert not trouble.renewal


SLOT = Slot("driftless_shop", 900, None, 0, "reserved")


@pytest.mark.parametrize(
    ("source", "connect", "message"),
    [
        (Source(found=None), Stored(), "the slot driftless_shop is gone: changes since 0/3B6 may be missing"),
        (Source(found=None), Stored(away=True), "the slot driftless_shop is gone: changes since 0/384 may be missing"),
        (
            Source(found=replace(SLOT, wal_status="lost", invalidated="wal_removed")),
            Stored(),
            "the slot driftless_shop is lost: the log that it needs has been removed (wal_removed)",
        ),
        (
            Source(found=replace(SLOT, confirmed=960)),
            Stored(),
            "the slot driftless_shop was moved to 0/3C0 by something else, and Connect has read up to 0/3B6: "
            "what lies between is missing",
        ),
    ],
    ids=["gone", "gone and Connect is away", "lost", "moved"],
)
def test_a_slot_that_is_not_ours_any_more(config: Config, source: Source, connect: Stored, message: str) -> None:
    assert found(config, source, connect, state()) == [Trouble(message, APPLY)]


@dataclass
class Told:
    """Stands for Kafka: what Debezium has told of its readings."""

    types: tuple[str, ...]

    def read_to_end(self, topic: str, **_: object) -> list[Record]:
        assert topic == "shop.notifications"
        return [notice(type_, at) for at, type_ in enumerate(self.types)]


@pytest.mark.parametrize(
    ("types", "active", "said"),
    [
        (("STARTED", "IN_PROGRESS"), False, False),
        (("STARTED", "COMPLETED", "STARTED"), False, False),
        (("STARTED", "COMPLETED"), False, True),
        ((), False, True),
        (("STARTED", "COMPLETED"), True, False),
    ],
    ids=["the first reading goes on", "another one goes on", "it has ended", "it is long forgotten", "somebody reads"],
)
def test_a_slot_that_nobody_reads(
    monkeypatch: pytest.MonkeyPatch, types: tuple[str, ...], active: bool, said: bool
) -> None:
    monkeypatch.setattr(guard, "UNREAD_SECONDS", 0.0)
    source = Source(found=replace(SLOT, reader=7 if active else None))
    told = unread("shop", cast("Postgres", source), cast("Kafka", Told(types)))
    assert told.startswith("nobody reads the slot driftless_shop") if said else told == ""


def test_a_slot_is_not_missed_where_nothing_was_ever_read(config: Config) -> None:
    fresh = state(**{"follower/a/1": {"applied_lsn": None}})
    assert found(config, Source(found=None), Stored(None), fresh) == []
    assert found(config, Source(found=None), Stored(None, captures=False), state()) == []


@pytest.mark.parametrize("connect", [Stored(1001), Stored(away=True)])
def test_a_server_whose_log_ends_before_what_was_read(config: Config, connect: Stored) -> None:
    source = Source(now=1000 if connect.stored == 1001 else 899)
    (trouble,) = found(config, source, connect, state())
    assert (trouble.history, trouble.hint) == (True, RESNAPSHOT)
    assert "the server was restored from an older state" in trouble.what


@pytest.mark.parametrize(("key", "value"), [("system_identifier", "8"), ("database", "other")])
def test_another_server_or_history(config: Config, key: str, value: object) -> None:
    (trouble,) = found(config, Source(identities={**IDENTITY, key: value}), Stored(), state())
    assert trouble.history
    assert trouble.what.endswith(f": {key} was {IDENTITY[key]}, is {value}")


def test_a_table_whose_entry_in_the_publication_is_gone_or_another(config: Config) -> None:
    (gone,) = found(config, Source(tables={}), Stored(), state())
    assert (gone.renewal, gone.what.partition(",")[0]) == (
        False,
        "public.items: it is not in the publication any more",
    )
    (another,) = found(config, Source(tables={"public.items": "2"}), Stored(), state())
    assert "its entry in the publication is another one" in another.what
    unknown = state(**{"carried/public.items": None})  # type: ignore[arg-type]
    assert found(config, Source(tables={"public.items": "2"}), Stored(), unknown) == [], "of an older version"


def test_a_table_that_apply_takes_out_is_no_trouble_to_a_run_that_was_started_with_it(config: Config) -> None:
    """Put back, it is: its entry in the publication is another one then."""
    leaving = state(**{"carried/public.items": {"by": "1", "leaving": True}})
    for carried, said in (({"public.items": "1"}, ""), ({}, ""), ({"public.items": "2"}, "is another one")):
        wrong = found(config, Source(tables=carried), Stored(), leaving)
        assert [said in str(trouble) for trouble in wrong] == [True] * bool(said)


def test_what_was_found_stays_though_nothing_shows_it_any_more(config: Config) -> None:
    trouble = Trouble("the slot driftless_shop was moved")
    fact = trouble.fact()["pipeline/renewal"]
    assert fact is not None
    known = state(**{"pipeline/renewal": fact})
    assert unmended_trouble(known) == trouble
    assert found(config, Source(), Stored(), known) == [trouble]


def test_connect_is_spared_while_the_slot_is_in_use(config: Config) -> None:
    connect = Stored()
    assert found(config, Source(), connect, state(), often=True) == []
    assert connect.asked == 0
    assert found(config, Source(found=SLOT), connect, state(), often=True) == []
    assert connect.asked == 1


def test_what_was_done_to_a_table_shows_in_how_it_is_stored() -> None:
    before = Storage(1, {"a": "10", "g": "10"}, {"a": 1, "g": 2}, {"g": ["low", "high"]}, "5 10")
    assert before.changed(before) == ""
    assert replace(before, node=2).changed(before) == "", "VACUUM FULL, or a TRUNCATE that was told"
    assert replace(before, trigger="5 11").changed(before) == "", "the trigger was off, and nothing else happened"
    emptied = replace(before, node=2, trigger="5 11").changed(before)
    assert emptied == "it may have been truncated while the trigger that tells of that was off"
    rewritten = replace(before, node=2, columns={"a": "11", "g": "10"})
    assert rewritten.changed(before) == "it was rewritten by ALTER TABLE"
    again = replace(before, numbers={"a": 3, "g": 2})
    assert again.changed(before) == "a was dropped, or renamed, and made again under its name"
    assert replace(before, labels={"g": ["low", "high", "top"]}).changed(before) == ""
    renamed = replace(before, labels={"g": ["lowest", "high"]})
    assert renamed.changed(before) == "values of the enum g were renamed"
    assert renamed.changed(Storage(1, {"a": "10"})) == "", "what an older version registered says less"


# -- the ground under a reader --------------------------------------------------------------------------------------


@dataclass
class Brokers:
    """What brokers say of the topic `t` with one partition."""

    there: Topic | None = field(default_factory=lambda: Topic("t", "a", 1))
    policy: str = "compact"
    leader: int = 4
    ends: Offsets = field(default_factory=lambda: {0: 10})
    written: Offsets = field(default_factory=lambda: {0: 10})
    is_cut: bool = False
    asked: list[object] = field(default_factory=list)

    def topic(self, name: str) -> Topic | None:
        assert name == "t"
        return self.there

    def described(self, names: Iterable[str]) -> dict[str, Topic | None]:
        return {name: self.topic(name) for name in names}

    def topic_settings(self, name: str) -> dict[str, str]:
        return {"cleanup.policy": self.policy} if name == "t" else {}

    def leaders(self, topics: Mapping[str, int]) -> dict[str, Offsets]:
        return {topic: {0: self.leader} for topic in topics}

    def truncated(self, places: Mapping[tuple[str, int], tuple[int, int]]) -> list[tuple[str, int]]:
        self.asked.append(dict(places))
        return sorted(places) if self.is_cut else []

    def all_committed_ends(self, topics: Mapping[str, int]) -> dict[str, Offsets]:
        assert topics == {"t": 1}
        return {"t": self.ends}

    def written_ends(self, topics: Mapping[str, int]) -> dict[str, Offsets]:
        return dict.fromkeys(topics, self.written)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(100.0)
    monkeypatch.setattr(ground, "time", clock)
    monkeypatch.setattr(hanging, "time", clock)
    monkeypatch.setattr(shared_answers, "time", clock)
    return clock


LOG: TopicLog = first_epoch("t", "a", 1)


def stand(brokers: Brokers) -> LogIdentityCheck:
    kafka = cast("Kafka", brokers)
    return LogIdentityCheck(kafka, TopicFacts(kafka), [LOG])


@pytest.mark.parametrize(
    ("brokers", "message"),
    [
        (Brokers(there=Topic("t", "b", 1)), "the topic t was recreated"),
        (Brokers(there=Topic("t", "a", 2)), "the topic t has 2 partitions, and 1 were registered"),
        (Brokers(policy="compact,delete"), "the topic t has cleanup.policy=compact,delete: it forgets rows"),
    ],
)
def test_another_topic_stops_its_readers(brokers: Brokers, message: str, clock: Clock) -> None:
    assert clock.now
    with pytest.raises(SourceError, match=message):
        stand(brokers).check()


def test_a_topic_that_was_made_anew_since_the_last_look_is_told_by_the_next(clock: Clock) -> None:
    """It ends before what was read of the one before: that is no log that was cut off."""
    assert clock.now
    brokers = Brokers()
    standing_on = stand(brokers)
    standing_on.check()
    with pytest.raises(LogLost, match="t/0 ends at 3, before what was read: the broker lost records"):
        standing_on.raise_truncated(("t", 0), 3, "what was read")
    brokers.there = Topic("t", "b", 1)
    standing_on.check()
    with pytest.raises(LogReplaced, match="the topic t was recreated"):
        standing_on.raise_truncated(("t", 0), 3, "what was read")


def test_a_topic_is_gone_only_when_it_stays_so(clock: Clock) -> None:
    brokers = Brokers(there=None)
    standing_on = stand(brokers)
    for _ in range(2):
        with pytest.raises(SourceUnavailable):
            standing_on.check()
        clock.now += 4
    clock.now += 4
    with pytest.raises(SourceError, match="is gone since it was registered") as raised:
        standing_on.check()
    assert not isinstance(raised.value, SourceUnavailable)


def test_a_log_is_looked_at_for_a_cut_when_its_leader_has_changed(clock: Clock) -> None:
    brokers = Brokers()
    standing_on = stand(brokers)
    standing_on.check(lambda: {("t", 0): 7})
    assert (standing_on.leaders, brokers.asked) == ({("t", 0): 4}, [])
    clock.now += ground.SECONDS
    brokers.leader = 5
    standing_on.check(lambda: {("t", 0): 9})
    assert (standing_on.leaders, brokers.asked) == ({("t", 0): 5}, [{("t", 0): (9, 4)}])
    clock.now += ground.SECONDS
    brokers.leader, brokers.is_cut = 6, True
    with pytest.raises(LogLost, match="t/0 was cut off before 12, up to which it has been read"):
        standing_on.check(lambda: {("t", 0): 12})
    assert standing_on.leaders == {("t", 0): 5}, "the next start must find it as well"


def test_a_transaction_that_stays_open_is_told_and_its_end_too(clock: Clock) -> None:
    brokers = Brokers(written={0: 12})
    watch = OpenTransactionMonitor(cast("Kafka", brokers), {"t": 1})
    said = watch.blocked_by("")
    assert said == ""
    for _ in range(5):
        clock.now += hanging.OPEN_SECONDS / 4
        said = watch.blocked_by(said)
    assert said.startswith("a transaction of Kafka has been open on t/0 for 25 s")
    brokers.ends = {0: 12}
    clock.now += hanging.OPEN_SECONDS / 4
    assert watch.blocked_by(said) == ""


def test_transactions_that_follow_each_other_hold_nothing_up(clock: Clock) -> None:
    brokers = Brokers()
    watch, said = OpenTransactionMonitor(cast("Kafka", brokers), {"t": 1}), ""
    for n in range(20):
        brokers.ends, brokers.written = {0: n}, {0: n + 3}
        clock.now += hanging.OPEN_SECONDS / 4
        said = watch.blocked_by(said)
        assert said == ""
