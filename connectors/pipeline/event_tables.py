"""Events that are rows of a table: which columns they have, by the catalogue, and how their log holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from driftless.config.models import Config
from driftless.config.streams import EventsConfig, LookupConfig
from driftless.facts.event_source import CapturedEvents, EventSource
from driftless.facts.lookups import Lookup, column_types
from driftless.streams.event_types import MOMENT, event_type_of
from driftless.suggest import did_you_mean
from driftless.table import Table

PAYLOAD = "payload"
"""The column of an outbox that has one JSON object."""

Location = tuple[int | str, ...]


def with_columns(config: Config, tables: Mapping[str, Table | None]) -> Config:
    """The same, with the columns that events of tables have in the database."""
    events = {name: _with_columns(each, tables) for name, each in config.events.items()}
    return config.with_events(events)


def _with_columns(events: EventsConfig, tables: Mapping[str, Table | None]) -> EventsConfig:
    table = None if events.table is None else tables.get(events.table)
    if table is None:
        return events
    return events.model_copy(update={"columns": column_types(table)})


def table_faults(config: Config, tables: Mapping[str, Table | None]) -> Iterator[tuple[Location, str]]:
    """What is wrong with events of tables that are there: the place in the file, and what to do. `config`: with their
    columns.
    """
    for name, events in config.events.items():
        for row, lookup in events.lookups.items():
            if (other := tables.get(lookup.table)) is not None:
                place = ("events", name, "with", row)
                yield from (((*place, field), what) for field, what in _of_lookup(events, lookup, other))
        table = tables.get(events.captured or "")
        if table is None:
            continue
        if events.table is not None:
            for field in ("event", "sent"):
                column = getattr(events.time, field)
                if column is not None and (why := _no_moment(table, events, column)):
                    yield ("events", name, "time", field), why
        else:
            found = table.column(PAYLOAD)
            in_payload = [column for column in events.columns if table.column(column) is None]
            if in_payload and (found is None or event_type_of(found) != "text"):
                yield (
                    ("events", name, "outbox"),
                    f"{table.full_name} has no column `{PAYLOAD}` of JSON, from which `{in_payload[0]}` would be read",
                )


def _of_lookup(events: EventsConfig, lookup: LookupConfig, table: Table) -> Iterator[tuple[str, str]]:
    """What is wrong with a table of which events have rows: the field, and what to do."""
    types = column_types(table)
    if len(lookup.by) != len(table.key):
        key = ", ".join(table.key)
        yield "by", f"the primary key of {table.full_name} is ({key}): name the columns of events that hold it whole"
    for name in table.key:
        if name not in types:
            yield "table", f"`{name}`, of its primary key, has a type that events cannot have"
    for name in lookup.columns or ():
        if table.column(name) is None:
            yield "columns", f"{table.full_name} has no column `{name}`{did_you_mean(name, types)}"
        elif name not in types:
            yield "columns", f"`{name}` of {table.full_name} has a type that events cannot have"
    for name in lookup.by if events.table is not None else ():
        if name not in events.columns:
            yield "by", f"{events.table} has no column `{name}`{did_you_mean(name, events.columns)}"
    if lookup.table == events.captured:
        yield "table", "the events themselves are its rows: this version cannot do that"


def _no_moment(table: Table, events: EventsConfig, column: str) -> str:
    """Why a column cannot be a time of events; empty where it can."""
    if table.column(column) is None:
        return f"{table.full_name} has no column `{column}`{did_you_mean(column, events.columns)}"
    kind = events.columns.get(column)
    return "" if kind == MOMENT else f"`{column}` of {table.full_name} is no `{MOMENT}`"


def captured_versions(lookups: Sequence[Lookup], table: Table, topic: str, epoch: int) -> EventSource:
    """How a build reads the versions of a table's rows."""
    names = {*table.key, *(name for lookup in lookups for name in lookup.columns)}
    columns = tuple(column for column in table.columns if column.name in names)
    types = {name: kind for name, kind in column_types(table).items() if name in names}
    return EventSource.of_versions(topic, types, CapturedEvents(table.full_name, columns, "", epoch))


def captured_events(events: EventsConfig, table: Table, epoch: int) -> CapturedEvents:
    """How the log of the table holds events, from an epoch on. `events`: with its columns."""
    declared = [column for column in table.columns if column.name in events.columns]
    payload = "" if all(table.column(name) is not None for name in events.columns) else PAYLOAD
    if payload and payload not in events.columns:
        declared += [column for column in table.columns if column.name == payload]
    return CapturedEvents(table.full_name, tuple(declared), payload, epoch)
