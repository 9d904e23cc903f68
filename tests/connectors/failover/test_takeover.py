"""Whether a promoted standby's log goes on from what was read, by what it, Connect and the control topic say."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from connectors.debezium.connect import Connect, StoredPosition
from connectors.failover.history import fork_of
from connectors.failover.takeover import takeover
from connectors.pipeline.guard import FOLLOWS, RESNAPSHOT, Trouble, troubles
from connectors.postgres.client import Postgres
from connectors.postgres.server import Slot
from driftless.config.models import Config
from driftless.errors import SourceError, SourceUnavailable
from driftless.facts.state import RENEWAL, State
from driftless.lsn import format_lsn
from tests.connectors.pipeline.test_guard import IDENTITY, config, state

__all__ = ["config"]  # a fixture

PROMOTED = {**IDENTITY, "timeline": 3}
SLOT = Slot("driftless_shop", 900, None, 0, "reserved", failover=True)


@dataclass
class Standby:
    """That was promoted, and left timeline 1 at `forked`."""

    forked: int | None = 1000
    found: Slot | None = SLOT
    identities: dict[str, object] = field(default_factory=lambda: dict(PROMOTED))
    transactions: dict[int, str] = field(default_factory=lambda: {77: "committed", 78: "aborted"})
    refused: bool = False

    def identity(self) -> dict[str, object]:
        return self.identities

    def walsender(self, command: str) -> list[tuple[str, bytes]]:
        assert command == "TIMELINE_HISTORY 3"
        if self.refused:
            raise SourceError("permission denied")
        forks = {2: 5000} if self.forked is None else {1: self.forked, 2: 5000}
        return [("3.history", "".join(f"{n}\t{format_lsn(at)}\twhy\n" for n, at in forks.items()).encode())]

    def rows(self, _: str, number: int) -> list[tuple[str]]:
        return [(said,)] if (said := self.transactions.get(number)) else []

    def slot(self, name: str) -> Slot | None:
        assert name == "driftless_shop"
        return self.found


@dataclass
class Worker:
    """Connect, which has read up to there."""

    at: StoredPosition | None = field(default_factory=lambda: StoredPosition(950, 77, snapshot=False))
    away: bool = False

    def stored(self, name: str) -> StoredPosition | None:
        assert name == "driftless-shop"
        if self.away:
            raise SourceUnavailable("Kafka Connect cannot be reached")
        return self.at


def gap(config: Config, source: Standby, connect: Worker, known: State) -> str:
    found = takeover(config, cast("Postgres", source), cast("Connect", connect), known)
    assert found is not None
    assert (found.before, found.timeline) == (1, 3)
    return found.gap


def at(lsn: int, transaction: int | None = 77, *, snapshot: bool = False) -> Worker:
    return Worker(StoredPosition(lsn, transaction, snapshot=snapshot))


@pytest.mark.parametrize("connect", [Worker(), at(1000), at(900), at(950, None)])
def test_a_log_that_goes_on_from_what_was_read(config: Config, connect: Worker) -> None:
    assert gap(config, Standby(), connect, state()) == ""


@pytest.mark.parametrize(
    ("source", "connect", "known", "said"),
    [
        (Standby(), at(1001), state(), "the log was read up to 0/3E9, and the promoted standby had it up to 0/3E8"),
        (
            Standby(),
            Worker(),
            state(**{"follower/b/1": {"applied_lsn": "0/400"}}),
            "the log was read up to 0/400, and the promoted standby had it up to 0/3E8",
        ),
        (Standby(), at(950, 78), state(), "the last transaction that was read, 78, has not committed there"),
        (Standby(), at(950, 79), state(), "the last transaction that was read, 79, has not committed there"),
        (Standby(), Worker(None), state(), "Connect keeps no position in the log yet"),
        (Standby(), at(950, snapshot=True), state(), "Connect keeps no position in the log yet"),
        (Standby(forked=None), Worker(), state(), "timeline 3 did not branch off timeline 1"),
        (Standby(refused=True), Worker(), state(), "the history of timeline 3 cannot be read: permission denied"),
        (Standby(found=None), Worker(), state(), "the slot driftless_shop is not there"),
        (Standby(found=replace(SLOT, wal_status="lost")), Worker(), state(), "the slot driftless_shop is lost there"),
        (
            Standby(found=replace(SLOT, confirmed=951)),
            Worker(),
            state(),
            "the slot driftless_shop begins at 0/3B7, and the log was read up to 0/3B6",
        ),
    ],
)
def test_what_is_not_proved_is_a_gap(config: Config, source: Standby, connect: Worker, known: State, said: str) -> None:
    assert said in gap(config, source, connect, known)
    (trouble,) = found(config, source, connect, known)
    assert (trouble.history, trouble.takeover, trouble.hint) == (True, None, RESNAPSHOT)
    assert trouble.what.startswith("this is not the database that the pipeline was made for: timeline was 1, is 3; ")
    assert said in trouble.what


def found(config: Config, source: Standby, connect: Worker, known: State) -> list[Trouble]:
    return list(troubles(config, cast("Postgres", source), cast("Connect", connect), known))


def test_while_connect_does_not_answer_nothing_is_said_of_a_gap(config: Config) -> None:
    with pytest.raises(SourceUnavailable):
        found(config, Standby(), Worker(away=True), state())


def test_another_server_or_the_same_one_is_no_takeover(config: Config) -> None:
    for identity in (IDENTITY, {**PROMOTED, "system_identifier": "8"}, {**PROMOTED, "database": "other"}):
        source: Any = Standby(identities=dict(identity))
        assert takeover(config, source, cast("Connect", Worker()), state()) is None


def test_a_promotion_is_no_reason_to_read_anew_and_hides_none(config: Config) -> None:
    (trouble,) = found(config, Standby(), Worker(), state())
    assert (trouble.renewal, trouble.history, trouble.hint) == (False, False, FOLLOWS)
    assert str(trouble.takeover) == "a standby was promoted: the source is on timeline 3 now, and was on 1"
    unmended = state(**{RENEWAL: {"what": "the slot was lost", "history": False}})
    assert [t.renewal for t in found(config, Standby(), Worker(), unmended)] == [False, True]


def test_a_server_that_another_has_taken_the_place_of_is_no_reason_to_read_anew(config: Config) -> None:
    source = Standby(identities=dict(PROMOTED))
    known = state(**{"pipeline/identity": {**IDENTITY, "timeline": 4, "history": 0}})
    source.forked = None
    (trouble,) = found(config, source, Worker(), known)
    assert (trouble.renewal, trouble.history, trouble.takeover) == (False, True, None)
    assert "on timeline 3, and the log was read on timeline 4: another server has taken its place" in trouble.what


def test_where_a_timeline_was_left_is_in_the_history_of_what_came_of_it() -> None:
    history = "1\t0/3000148\tno recovery target specified\n\n2\t1/5A\tbefore 2026-01-01 # x\n"
    assert [fork_of(history, n) for n in (1, 2, 3)] == [0x3000148, (1 << 32) + 0x5A, None]
    assert fork_of("# 1\t0/1\n", 1) is None
