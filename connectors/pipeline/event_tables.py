"""Events that are rows of a table: which columns they have, by the catalogue, and how their log holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from driftless.config.models import Config
from driftless.config.streams import EventsConfig
from driftless.facts.event_source import CapturedEvents
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
    found = {column.name: kind for column in table.columns if (kind := event_type_of(column)) is not None}
    return events.model_copy(update={"columns": found})


def table_faults(config: Config, tables: Mapping[str, Table | None]) -> Iterator[tuple[Location, str]]:
    """What is wrong with events of tables that are there: the place in the file, and what to do. `config`: with their
    columns.
    """
    for name, events in config.events.items():
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


def _no_moment(table: Table, events: EventsConfig, column: str) -> str:
    """Why a column cannot be a time of events; empty where it can."""
    if table.column(column) is None:
        return f"{table.full_name} has no column `{column}`{did_you_mean(column, events.columns)}"
    kind = events.columns.get(column)
    return "" if kind == MOMENT else f"`{column}` of {table.full_name} is no `{MOMENT}`"


def captured_events(events: EventsConfig, table: Table, epoch: int) -> CapturedEvents:
    """How the log of the table holds events, from an epoch on. `events`: with its columns."""
    declared = [column for column in table.columns if column.name in events.columns]
    payload = "" if all(table.column(name) is not None for name in events.columns) else PAYLOAD
    if payload and payload not in events.columns:
        declared += [column for column in table.columns if column.name == payload]
    return CapturedEvents(table.full_name, tuple(declared), payload, epoch)
