"""What a pipeline's log rests on, looked at again and again: the server, its history, the slot, the publication.

Where one of these is not what it was, changes may be missing from the log, and no record says so. Whoever follows then
stops, and `driftless apply` re-snapshots the tables.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from connectors.debezium.connect import Connect
from connectors.failover.standbys import absent_standbys
from connectors.failover.takeover import Takeover, furthest_claim, same_database, takeover
from connectors.postgres.catalogue import not_carried
from connectors.postgres.client import Postgres
from connectors.postgres.server import Slot
from driftless import names
from driftless.config.models import Config
from driftless.control.initial_snapshot import newest_initial_snapshot
from driftless.errors import SourceError, SourceUnavailable
from driftless.facts.builds import newest_build
from driftless.facts.epochs import (
    APPLY,
    keeps_newest,
    mismatch_reason,
    registered_log,
    takes_large_records,
    topic_replaced,
)
from driftless.facts.state import RENEWAL, State
from driftless.kafka.client import Kafka
from driftless.kafka.many_topics import describe, settings_in_force
from driftless.lsn import format_lsn

STARTS = "`driftless apply` starts it again"
REMADE = "`driftless apply` makes it again"
RESNAPSHOT = "if source.dsn leads where it should, run `driftless apply --anew`: it re-snapshots all tables from there"
OTHER = "choose another `name` in sync.yaml, or correct source.dsn if this is meant to be that pipeline"
FOLLOWS = "`driftless run` and `driftless apply` resume there, and re-snapshot no table"
OUTDATED = (
    "correct source.dsn to name the server that took over; if this is the right server, run `driftless apply --anew`, "
    "which re-snapshots all tables from it"
)
UNREAD_SECONDS = 3.0
"""A slot may be free for a moment, as while Debezium connects again."""


@dataclass(frozen=True)
class Trouble:
    """Why the log can no longer be trusted. `renewal`: all tables must be re-snapshotted, not some alone.

    `history`: the source is another server, or its log was written twice over. `takeover`: all is well once it is
    followed.
    """

    what: str
    hint: str = APPLY
    renewal: bool = True
    history: bool = False
    takeover: Takeover | None = None

    def __str__(self) -> str:
        return f"{self.what}; {self.hint}"

    def fact(self) -> dict[str, dict[str, object] | None]:
        """What to write into the control topic."""
        return {RENEWAL: {"what": self.what, "history": self.history}}


def connector_trouble(pipeline: str, told: tuple[str, str], source: Postgres, kafka: Kafka) -> Trouble | None:
    """Why nothing brings changes into the log, though all else may be well; None where something does. `told`: the
    state of the connector and its cause, as Connect says.
    """
    state, cause = told
    if state == "FAILED":
        return Trouble(f"the connector has failed: {cause}", STARTS, renewal=False)
    if state == "MISSING":
        return Trouble(f"the connector {names.connector(pipeline)} is gone", REMADE, renewal=False)
    if state in ("STOPPED", "PAUSED"):
        return Trouble(f"the connector is {state}", "`driftless apply` resumes it", renewal=False)
    if state != "RUNNING":
        return Trouble(f"the connector is {state}", "if this stays, start the Connect worker again", renewal=False)
    if absent := absent_standbys(source):
        what = f"Postgres sends no change before the standby behind the slot {absent[0]} has it, and nobody reads that"
        hint = f"start that standby, or take {absent[0]} out of the server's setting synchronized_standby_slots"
        return Trouble(what, hint, renewal=False)
    if said := unread(pipeline, source, kafka):
        return Trouble(said, "if this stays, start the Connect worker again", renewal=False)
    return None


def unread(pipeline: str, source: Postgres, kafka: Kafka) -> str:
    """Said of a slot that nobody reads, though Connect says that the connector runs; empty where somebody does.

    While Debezium reads all tables it does not read the slot, for as long as that takes.
    A worker that was asleep while another had its work, and gets it back, takes its dead task for one that runs. Its
    answers then are of no use, and nothing but another start of the worker helps (seen with Connect 4.3).
    """
    name = names.slot(pipeline)
    for pause in (UNREAD_SECONDS, 0.0):
        slot = source.slot(name)
        if slot is None or slot.active:
            return ""
        time.sleep(pause)
    reading = newest_initial_snapshot(kafka, pipeline)
    if reading is not None and reading.ended is None:
        return ""
    return (
        f"nobody reads the slot {name}, though Connect says that the connector runs: it is trying again, or its worker "
        "has lost it"
    )


def unmended_trouble(state: State) -> Trouble | None:
    """What somebody has found before, and nobody has mended."""
    fact = state.get(RENEWAL)
    if fact is None:
        return None
    history = bool(fact["history"])
    return Trouble(str(fact["what"]), RESNAPSHOT if history else APPLY, history=history)


def troubles(
    config: Config, source: Postgres, connect: Connect, state: State, *, often: bool = False
) -> Iterator[Trouble]:
    """Everything that is wrong now. Nothing before the pipeline was applied.

    What was told is read before what is there: so an honest source is never found behind. `often`: spare Connect, which
    reads all positions that it has ever stored for each answer, while the slot is in use and so cannot be moved.
    """
    if state.get("pipeline/identity") is None:
        return
    found, before = _history(config, source, connect, state), unmended_trouble(state)
    if found is not None:
        yield found
    if before is not None and (found is None or found.takeover is not None):
        yield before
    if found is not None or before is not None:
        return
    slot = source.slot(names.slot(config.name))
    ask = not often or slot is None or not slot.active
    read = _read(config, connect if ask else None, state)
    if read.position > source.lsn():
        yield Trouble(
            f"the source's log ends at {format_lsn(source.lsn())}, and it has been read up to "
            f"{format_lsn(read.position)}: the server was restored from an older state",
            RESNAPSHOT,
            history=True,
        )
        return
    yield from _slot(names.slot(config.name), slot, read)
    yield from _publication(config, source, state)
    yield from inherited(config, source)


@dataclass(frozen=True)
class _Read:
    """`stored`: what Connect keeps as the position to go on from; None where it keeps none, or cannot be asked.

    `position`: the furthest that anything was read. `captures`: there is a connector.
    """

    stored: int | None
    position: int
    captures: bool


def _read(config: Config, connect: Connect | None, state: State) -> _Read:
    furthest = furthest_claim(state)
    if connect is None:
        return _Read(None, furthest, captures=True)
    try:
        stored, captures = connect.position(names.connector(config.name))
    except SourceUnavailable:
        return _Read(None, furthest, captures=True)
    return _Read(stored, max(furthest, stored or 0), captures)


def _history(config: Config, source: Postgres, connect: Connect, state: State) -> Trouble | None:
    known, found = state.get("pipeline/identity") or {}, source.identity()
    changed = ", ".join(
        f"{key} was {known.get(key)}, is {value}" for key, value in found.items() if known.get(key) != value
    )
    if not changed:
        return None
    if not same_database(known, found) and not source.carried(names.publication(config.name)):
        # Neither a backup nor a standby: those have all that `apply` made in the source.
        what = f"another pipeline has the name `{config.name}` in this Kafka, and it is of another database: {changed}"
        # Not to be kept in the control topic, which is that pipeline's.
        return Trouble(what, OTHER, renewal=False, history=True)
    what = f"this is not the database that the pipeline was made for: {changed}"
    if (promoted := takeover(config, source, connect, state)) is not None:
        if promoted.timeline < promoted.before:
            what = (
                f"source.dsn leads to a server on timeline {promoted.timeline}, and the log was read on timeline "
                f"{promoted.before}: another server has taken its place"
            )
            # Not to be kept in the control topic: the other one may be back at once.
            return Trouble(what, OUTDATED, renewal=False, history=True)
        if not promoted.gap:
            return Trouble(str(promoted), FOLLOWS, renewal=False, takeover=promoted)
        what = f"{what}; {promoted.gap}"
    return Trouble(what, RESNAPSHOT, history=True)


def _slot(name: str, slot: Slot | None, read: _Read) -> Iterator[Trouble]:
    if slot is None and read.captures and read.position:
        yield Trouble(f"the slot {name} is gone: changes since {format_lsn(read.position)} may be missing")
    elif slot is not None and slot.wal_status == "lost":
        yield Trouble(f"the slot {name} is lost: the log that it needs has been removed ({slot.invalidated})")
    elif slot is not None and read.stored and slot.confirmed is not None and slot.confirmed > read.stored:
        yield Trouble(
            f"the slot {name} was moved to {format_lsn(slot.confirmed)} by something else, and Connect has read up to "
            f"{format_lsn(read.stored)}: what lies between is missing"
        )


def _publication(config: Config, source: Postgres, state: State) -> Iterator[Trouble]:
    publication = names.publication(config.name)
    carried = source.carried(publication)
    for name in config.source.tables:
        if state.get(f"epochs/{name}") is None:
            continue
        if reason := not_carried(state.get(f"carried/{name}"), carried.get(name)):
            yield Trouble(f"{name}: {reason}", renewal=False)


def inherited(config: Config, source: Postgres) -> Iterator[Trouble]:
    """Tables that others inherit from, also since a moment ago: rows of those are in no log."""
    parents = source.parents()
    for name in config.source.tables:
        if children := parents.get(name):
            more = f" and {len(children) - 1:,} more" if len(children) > 1 else ""
            hint = (
                f"detach them (`alter table {children[0]} no inherit {name}`) or drop them, then restart "
                "`driftless run`; or follow those tables instead"
            )
            yield Trouble(
                f"{name} has tables that inherit from it, {children[0]}{more}: their rows are read with it, and are in "
                "no log",
                hint,
                renewal=False,
            )


def topic_troubles(config: Config, kafka: Kafka, state: State) -> Iterator[Trouble]:
    """Topics that are not what was registered. They stop those alone who read them."""
    existing = kafka.topics()
    for topic in (names.message_topic, names.transaction_topic, names.notification_topic):
        if (name := topic(config.name)) not in existing:
            yield Trouble(f"the topic {name} is gone: no position can be told", REMADE, renewal=False)
    logs = [registered_log(state, name) for name in config.source.tables]
    logs += [build.log for name in config.views if (build := newest_build(state, name)) is not None]
    known = [log for log in logs if log is not None]
    topics = describe(kafka, (log.topic for log in known))
    settings = settings_in_force(kafka, topics)
    for log in known:
        try:
            if reason := mismatch_reason(log, topics.get(log.topic)):
                raise topic_replaced(log, reason)
            keeps_newest(log, settings[log.topic])
            takes_large_records(log, settings[log.topic])
        except SourceUnavailable:
            raise
        except SourceError as exc:
            yield Trouble(str(exc), exc.hint, renewal=False)
