"""A table of which each event has the row as it was then, as a build of a stream keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from driftless.config.streams import LookupConfig
from driftless.streams.event_types import event_type_of
from driftless.table import Table


@dataclass(frozen=True)
class Lookup:
    """`events`: the name of those that get the row. `name`: of the struct that they get. `table`: as schema.table.
    `by`: the columns of events that have the values of `key`, its primary key. `columns`: those that the struct has.
    """

    events: str
    name: str
    table: str
    by: tuple[str, ...]
    key: tuple[str, ...]
    columns: tuple[str, ...]

    @classmethod
    def of(cls, events: str, name: str, declared: LookupConfig, table: Table) -> Lookup:
        """As it is declared for a table that the source has."""
        columns = tuple(column_types(table)) if declared.columns is None else declared.columns
        return cls(events, name, table.full_name, declared.by, table.key, columns)

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Lookup:
        names = (tuple(data[field]) for field in ("by", "key", "columns"))
        return cls(str(data["events"]), str(data["name"]), str(data["table"]), *names)


def column_types(table: Table) -> dict[str, str]:
    """By column of a table, the type that an event's column has which holds it; without those that none holds."""
    return {column.name: kind for column in table.columns if (kind := event_type_of(column)) is not None}
