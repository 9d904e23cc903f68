"""A standby was promoted: prove that its log contains what was read, and resume there.

No table is re-snapshotted where all of this holds:

- It is the same database of the same server (`pg_control_system`), and its history file says where its timeline
  branched off the one that was read.
- Connect's position, which Kafka keeps in one transaction with the records, is not past that: `fence` keeps Debezium
  from the new server until then.
- The last transaction that was read has committed there. Postgres sends transactions in the order of their commits, so
  all before it have, too; and of one that the standby had a part of alone, rows may have been read.
- The slot is there, and begins no later than Connect's position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connectors.debezium.connect import Connect
from connectors.debezium.source_address import source_address
from connectors.failover.fence import SETTING, fence
from connectors.failover.history import fork_of, timeline_history, transaction_status
from connectors.postgres.client import Postgres
from driftless import names
from driftless.config.models import Config
from driftless.control.topic import Control
from driftless.errors import SourceError, SourceUnavailable
from driftless.facts.state import State
from driftless.lsn import format_lsn, parse_lsn

IDENTITY = "pipeline/identity"


@dataclass(frozen=True)
class Takeover:
    """The source's timeline `before`, and `timeline` now, which branched off at `fork`.

    `gap`: why changes may be missing, or be there that the source does not have; empty where it is proved that not.
    """

    before: int
    timeline: int
    fork: int | None
    gap: str

    def __str__(self) -> str:
        return f"a standby was promoted: the source is on timeline {self.timeline} now, and was on {self.before}"


def same_database(known: Mapping[str, object], found: Mapping[str, object]) -> bool:
    """Whether two identities are of one database of one server, on whatever timeline."""
    return all(known.get(key) == found[key] for key in ("system_identifier", "database"))


def takeover(config: Config, source: Postgres, connect: Connect, state: State) -> Takeover | None:
    """What came of the server that was read; None where it is the same one, or another server altogether.

    Raises SourceUnavailable where the server or Connect does not answer: nothing is known then.
    """
    known, found = state.get(IDENTITY), source.identity()
    if known is None or not same_database(known, found) or known.get("timeline") == found["timeline"]:
        return None
    before, timeline = int(str(known["timeline"])), int(str(found["timeline"]))
    if timeline < before:  # it does not know the other one's history
        return Takeover(before, timeline, None, f"timeline {timeline} is older")
    try:
        fork = fork_of(timeline_history(source, timeline), before)
    except SourceUnavailable:
        raise
    except SourceError as exc:
        return Takeover(before, timeline, None, f"the history of timeline {timeline} cannot be read: {exc}")
    if fork is None:
        return Takeover(before, timeline, None, f"timeline {timeline} did not branch off timeline {before}")
    return Takeover(before, timeline, fork, _gap(config, source, connect, furthest_claim(state), fork))


def furthest_claim(state: State) -> int:
    """The furthest position that a follower says it has reached; 0 where none has."""
    claims = [fact.value.get("applied_lsn") for key, fact in state.facts.items() if key.startswith("follower/")]
    return max((parse_lsn(str(lsn)) for lsn in claims if lsn is not None), default=0)


def _gap(config: Config, source: Postgres, connect: Connect, claimed: int, fork: int) -> str:
    stored = connect.stored(names.connector(config.name))
    if stored is None or stored.snapshot:
        return "Connect keeps no position in the log yet"
    if (read := max(stored.lsn, claimed)) > fork:
        return f"the log was read up to {format_lsn(read)}, and the promoted standby had it up to {format_lsn(fork)}"
    if stored.transaction is not None and transaction_status(source, stored.transaction) != "committed":
        return f"the last transaction that was read, {stored.transaction}, has not committed there"
    name = names.slot(config.name)
    slot = source.slot(name)
    if slot is None:
        return f"the slot {name} is not there: it was not synchronized to that standby"
    if slot.wal_status == "lost":
        return f"the slot {name} is lost there ({slot.invalidated})"
    if slot.confirmed is None or slot.confirmed > stored.lsn:
        there = "nowhere" if slot.confirmed is None else f"at {format_lsn(slot.confirmed)}"
        return f"the slot {name} begins {there}, and the log was read up to {format_lsn(stored.lsn)}"
    return ""


def register_timeline(control: Control, state: State, found: Takeover) -> None:
    """From now on the new timeline is the pipeline's. First, so that nobody takes what is read there for a gap."""
    control.write({IDENTITY: {**(state.get(IDENTITY) or {}), "timeline": found.timeline}})


def follow(config: Config, source: Postgres, connect: Connect, control: Control, state: State, found: Takeover) -> None:
    """Register the new timeline, and let the connector read from the new server. A second call changes nothing."""
    register_timeline(control, state, found)
    name = names.connector(config.name)
    actual = connect.config(name)
    if actual is None:
        return
    address = source_address(source.parameters, config.connect)
    wanted = actual | address | {SETTING: fence(source.server().version, found.timeline)[SETTING]}
    if wanted != actual:
        connect.put(name, wanted)
