"""Captured tables in the control topic: their columns, their epochs, and the snapshots that begin an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from connectors.debezium.connector import is_date
from connectors.debezium.snapshot import SnapshotFailed, Snapshots, Wanted
from connectors.failover.takeover import IDENTITY, register_timeline, takeover
from connectors.pipeline.kept_rows import KeptRows
from connectors.pipeline.objects import drop_trigger, triggers
from connectors.pipeline.plan_context import Action, PlanContext, bind
from connectors.pipeline.token import emit_marker
from connectors.postgres.catalogue import CatalogueFacts, look_up, table_facts, why_resnapshot
from driftless import names
from driftless.config.models import Config
from driftless.errors import ConfigError, SourceError
from driftless.facts.builds import newest_build
from driftless.facts.column_history import Facts, forget, known_since, since_now, since_the_start
from driftless.facts.epochs import (
    TopicLog,
    first_epoch,
    mismatch_reason,
    records_gone,
    registered_log,
    registered_tables,
)
from driftless.facts.generation import generations
from driftless.facts.state import State
from driftless.kafka.client import Kafka
from driftless.kafka.many_topics import describe, describe_made
from driftless.table import Table

KINDS = ("table", "storage", "carried")
"""The facts that are registered of a table beside its epochs."""


@dataclass
class Capture:
    """What is to be done for the captured tables. `facts`: before the connector changes; `snapshots`: once it runs.

    `epochs`: of each table, the epoch that its followers are to begin with when all of this is done.
    """

    facts: list[Action] = field(default_factory=list)
    snapshots: list[Action] = field(default_factory=list)
    epochs: dict[str, int] = field(default_factory=dict)


def plan_capture(
    config: Config, context: PlanContext, tables: dict[str, Table], state: State, *, renewed: bool
) -> Capture:
    """Compare every table with what is registered of it. `renewed`: all are going to be re-snapshotted in any case."""
    capture = Capture()
    found = look_up(context.source, config.name, tables.values())
    topics = _Topics(context.kafka, [log for name in tables if (log := registered_log(state, name)) is not None])
    register, register_anew = _registering(config, context, state), _registering(config, context, State({}))
    epochs = list[str]()
    captures = context.connect.config(names.connector(config.name)) is not None
    kept = KeptRows(config, context, state)
    capture.facts += kept.forgotten()
    capture.facts += _identity(config, context, state, renewed=renewed)
    for name, table in tables.items():
        log = registered_log(state, name)
        if renewed and log is not None:
            capture.epochs[name] = log.next_number
            more = {f"snapshot/{name}": None, **since_the_start(name, log.next_number, _columns(table))}
            more |= kept.fact(name, log.next_number)
            capture.facts.append(Action("register", f"columns of {name}", together=register_anew, part=(table, more)))
            continue
        taking = _Taking(config, context, table, log, state, found, topics, kept, captures=captures)
        if taking.why:
            taking.check()
            capture.epochs[name] = taking.epoch
            capture.snapshots.append(Action("snapshot", f"table {name}", taking.why, do=taking.take))
            continue
        capture.epochs[name] = 1 if log is None else log.newest.number
        facts = found.facts(table)
        lasts = _lasting(state.get(f"storage/{name}")) == _lasting(facts[f"storage/{name}"])
        if state.get(f"table/{name}") != facts[f"table/{name}"] or not lasts:
            verb = "register" if state.get(f"table/{name}") is None else "change"
            listed = ", ".join(c.name for c in table.columns)
            since = _since(context, table, capture.epochs[name], state)
            capture.facts.append(Action(verb, f"columns of {name}", listed, together=register, part=(table, since)))
        if log is None:
            epochs.append(name)
    begin = _beginning(config, context, kept)
    capture.facts += [Action("register", f"epoch 1 of {name}", together=begin, part=name) for name in epochs]
    return capture


def _identity(config: Config, context: PlanContext, state: State, *, renewed: bool) -> Iterator[Action]:
    """Which database it is, and which history of it; `renewed`: that is registered along with the new epochs."""
    if state.get(IDENTITY) is None:
        identity = {IDENTITY: context.source.identity()}
        yield Action("register", "source", do=bind(context.control.write, identity))
        return
    promoted = None if renewed else takeover(config, context.source, context.connect, state)
    if promoted is not None and not promoted.gap:
        what = f"{promoted}, and its log contains everything that was read"
        yield Action("register", "source", what, do=bind(register_timeline, context.control, state, promoted))


def _lasting(storage: Mapping[str, object] | None) -> dict[str, object]:
    """What is registered again when it has changed: where rows are kept does with every VACUUM FULL."""
    return {key: value for key, value in (storage or {}).items() if key not in ("node", "columns")}


def _columns(table: Table) -> list[str]:
    return [column.name for column in table.columns]


def _since(context: PlanContext, table: Table, epoch: int, state: State) -> Facts:
    """Since when every record has each column, if no row is re-snapshotted; see driftless/facts/column_history.py."""
    name, registered = table.full_name, state.get(f"table/{table.full_name}")
    if registered is None:
        return since_the_start(name, epoch, _columns(table))
    old = _columns(Table.from_json(registered))
    new = [column for column in _columns(table) if column not in old]
    known = {column: lsn for column, lsn in known_since(state, name, epoch).items() if column not in new}
    return since_now(name, epoch, known, new, context.source.lsn()) if new else {}


def _registering(config: Config, context: PlanContext, known: State) -> Callable[[Sequence[tuple[Table, Facts]]], None]:
    """What registers tables as they are by then: the publication may have been made just before.

    `known`: what the plan was made of. A table whose rows have changed since, as by a partition that was attached, is
    left as it was registered, so that the next plan has it re-snapshotted.
    """

    def register(parts: Sequence[tuple[Table, Facts]]) -> None:
        found = look_up(context.source, config.name, [table for table, _ in parts])
        facts = []
        for table, more in parts:
            if reason := why_resnapshot(context.source, found, table, _registered(known, table)):
                context.tell(f"{table.full_name} has changed meanwhile: {reason}; `driftless apply` follows it")
            else:
                facts.append({**found.facts(table), **more})
        context.write(facts)

    return register


def _beginning(config: Config, context: PlanContext, kept: KeptRows) -> Callable[[Sequence[str]], None]:
    """What registers the first epochs of tables, in topics that have just been made."""

    def begin(tables: Sequence[str]) -> None:
        topics = {name: names.table_topic(config.name, name) for name in tables}
        found = describe_made(context.kafka, topics.values())
        logs = ((name, found[topic]) for name, topic in topics.items())
        facts = (first_epoch(topic.name, topic.id, topic.partitions).fact(name) for name, topic in logs)
        context.write([*facts, *(kept.fact(name, 1) for name in tables)])

    return begin


def _registered(state: State, table: Table) -> Facts:
    """What is registered of a table beside its epochs."""
    return {key: state.get(key) for key in (f"{kind}/{table.full_name}" for kind in KINDS)}


class _Topics:
    """The topics of tables that are registered, as they are now."""

    def __init__(self, kafka: Kafka, logs: Sequence[TopicLog]) -> None:
        self._found = describe(kafka, (log.topic for log in logs))
        same = {log.topic: log.partitions for log in logs if not mismatch_reason(log, self._found.get(log.topic))}
        self._first = kafka.all_beginnings(same)

    def trouble(self, log: TopicLog) -> str:
        """Why a log cannot be read as it was registered; empty where it can."""
        if another := mismatch_reason(log, self._found.get(log.topic)):
            return f"its topic {another}"
        return records_gone(log, self._first[log.topic])


class _Taking:
    """The snapshot of one table, which may have been begun before: the control topic keeps it until it is complete."""

    def __init__(
        self,
        config: Config,
        context: PlanContext,
        table: Table,
        log: TopicLog | None,
        state: State,
        found: CatalogueFacts,
        topics: _Topics,
        kept: KeptRows,
        *,
        captures: bool,
    ) -> None:
        self._config = config
        self._context = context
        self._table = table
        self._log = log
        self._kept = kept
        self._key = f"snapshot/{table.full_name}"
        begun = state.get(self._key)
        self._begun = None if begun is None else Wanted.from_json(begun)
        self.epoch = 1 if log is None else log.next_number
        self.why = self._why(state, found, topics, captures=captures)
        """Why one is to be taken; empty where none is."""

    def _why(self, state: State, found: CatalogueFacts, topics: _Topics, *, captures: bool) -> str:
        if self._begun is not None:
            return self._begun.why
        if self._log is None:
            return "it is new in a pipeline that captures already" if captures else ""
        if said := topics.trouble(self._log) or self._kept.why_lacking(self._table.full_name):
            return said
        return why_resnapshot(self._context.source, found, self._table, _registered(state, self._table))

    def check(self) -> None:
        """Refuse what Debezium reads wrongly beside the stream: by way of the driver's own type a date loses its era,
        and ten days of 1582. The first snapshot of a pipeline reads them right.
        """
        dates = [column.name for column in self._table.columns if is_date(column)]
        early = self._context.source.early_dates(self._table.full_name, dates)
        if early:
            raise ConfigError(
                f"{self._table.full_name}: {', '.join(early)} holds dates before 1582-10-15, which a snapshot during "
                "the stream would read wrongly",
                hint="leave the column out with `exclude`, or capture the table in a new pipeline, from its start",
            )

    def take(self) -> None:
        """Have the table re-snapshotted, then register the epoch that begins with it."""
        table, context = self._table, self._context
        name = table.full_name
        snapshots = Snapshots(self._config.name, context.admin, context.kafka, context.connect, context.report)
        snapshot = self._begun
        if snapshot is not None and (
            snapshot.epoch != self.epoch
            or why_resnapshot(
                context.source, look_up(context.source, self._config.name, [table]), table, snapshot.facts
            )
        ):
            snapshot = None  # the rows that were read before would lack what changed since
        while True:
            if snapshot is None:
                facts = table_facts(context.source, self._config.name, table)
                snapshot = snapshots.begin(
                    name, self.epoch, emit_marker(context.source, self._config.name), self.why, facts
                )
                context.control.write({self._key: snapshot.to_json()})
            try:
                snapshots.take(name, snapshot.id)
            except SnapshotFailed:
                context.control.write({self._key: None})
                raise
            self.check()
            if not snapshots.truncated(name, snapshot.lsn):
                break
            context.report(f"{name} was truncated meanwhile: reading it once more")
            snapshot = None
        topic = context.kafka.topic(names.table_topic(self._config.name, name))
        if topic is None:
            raise SourceError(
                f"somebody deleted the topic of {name} after its snapshot was taken",
                hint="`driftless apply` makes it again, and reads the table into it",
            )
        log = self._log or TopicLog(topic.name, topic.id, topic.partitions)
        if topic.id != log.topic_id:
            log = log.with_topic(topic.id, topic.partitions)
        log = log.begin(snapshot.floors, self.why, snapshot.lsn, snapshots.last_reading())
        columns = _columns(Table.from_json(snapshot.facts[f"table/{name}"]))
        since = since_the_start(name, log.newest.number, columns)
        kept = self._kept.fact(name, log.newest.number)
        context.control.write({**snapshot.facts, **log.fact(name), **since, **kept, self._key: None})


def plan_removal(config: Config, context: PlanContext, state: State, existing: set[str]) -> list[Action]:
    """Forget the tables that were taken out of the configuration, once the connector has let go of them."""
    actions = []
    for name in sorted(registered_tables(state) - config.source.tables.keys()):
        following = sorted(_followers_of(name, state))
        following += [f"view {view}" for view in config.views if name in _tables_of(view, state)]
        if following:
            raise ConfigError(
                f"source.tables: {name} was taken out, but {', '.join(following)} still follows it",
                hint="put it back, `driftless remove` the follower, then take it out",
            )
        others = context.source.publications(name) - {names.publication(config.name)}
        for table, trigger in () if others else triggers(context.source, name):
            statement = drop_trigger(table, trigger)
            do = bind(context.admin.execute, statement)
            actions.append(Action("drop", f"trigger of {table}", sql=statement, do=do))
        topic = names.table_topic(config.name, name)
        if topic in existing:
            actions.append(Action("drop", f"topic {topic}", do=bind(context.kafka.delete, topic)))
        gone = dict.fromkeys(f"{kind}/{name}" for kind in (*KINDS, "epochs", "snapshot", "read", "kept"))
        log = registered_log(state, name)
        gone |= dict.fromkeys(forget(name, 1 if log is None else log.newest.number))
        actions.append(Action("forget", f"table {name}", do=bind(context.control.write, gone)))
    return actions


def _tables_of(view: str, state: State) -> set[str]:
    build = newest_build(state, view)
    return set(build.view.tables) if build else set()


def _followers_of(table: str, state: State) -> set[str]:
    followers = {key.rpartition("/")[0] for key in state.by_prefix("generation")}
    return {f for f in followers if any(g.table.full_name == table for g in generations(state, f).values())}
