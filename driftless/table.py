"""What is known of a captured table: recorded in the control topic, so that followers need no database."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

_PART = r'"(?:[^"]|"")+"|[^."]+'
_NAME = re.compile(f"(?:({_PART})[.])?({_PART})")


def join_name(schema: str, table: str) -> str:
    """`schema.table`, the one spelling of a table's name: a part that holds `.` or `"` is quoted as in SQL."""
    return ".".join(quoted_column(part) if set(part) & set('."') else part for part in (schema, table))


def is_computed(full_name: str) -> bool:
    """Whether it is of what a stream computes, which has no schema."""
    return full_name.startswith(".")


def split_name(name: str) -> tuple[str, str]:
    """(schema, table) of a name as it may stand in sync.yaml. What is not quoted is taken as it is, capitals too.

    Without a schema it is in `public`. Raises ValueError, with a text for the operator.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError('write schema.table, and a part that holds `.` or `"` as in SQL: public."a.b", public."a""b"')
    schema, table = (part and _unquoted(part) for part in found.groups())
    return schema or "public", table


def quoted_column(name: str) -> str:
    """An identifier as SQL has it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def quoted(full_name: str) -> str:
    """`public.Order lines` -> `"public"."Order lines"`."""
    return ".".join(map(quoted_column, split_name(full_name)))


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


@dataclass(frozen=True)
class Column:
    """`type`: the name in pg_type without modifiers (`int4`, `numeric`, an enum's own name). `array`: of that type.

    `kind`: `b` base type, `e` enum, otherwise pg_type.typtype; a domain is its base type. `toastable`: the value may be
    stored out of line. `length`: of a `bit`; -1 for a `numeric` with a negative scale. `own`: the type is not one of
    those that every Postgres has. `json_cast`: its maker says what it is as JSON. `domains`: the elements of the array
    are of a domain. `fields`: of a composite.
    """

    name: str
    type: str
    kind: str = "b"
    array: bool = False
    dimensions: int = 0
    toastable: bool = False
    generated: bool = False
    length: int = 0
    own: bool = False
    json_cast: bool = False
    domains: bool = False
    fields: tuple[Column, ...] = ()

    @property
    def called(self) -> str:
        """What to call it before an operator: `total is int4`."""
        return f"{self.name} is {self.type}{'[]' if self.array else ''}"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Column:
        return cls(**{**data, "fields": tuple(map(cls.from_json, data.get("fields", ())))})


@dataclass(frozen=True)
class Table:
    """A table's columns without the excluded ones, and its key's columns in key order.

    `key_index`: the name of the unique index that is its key, where it has no primary key. `replica_identity`: of a
    table that is `partitioned`, what its partitions have of it.
    """

    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    replica_identity: str = "d"
    key_index: str = ""
    partitioned: bool = False

    @property
    def full_name(self) -> str:
        return join_name(self.schema, self.name)

    @property
    def called(self) -> str:
        """What to call it before an operator: what a stream computes has no schema."""
        return self.full_name if self.schema else f"the stream {self.name}"

    @property
    def needs_full_identity(self) -> bool:
        """Whether an UPDATE may leave out a value that did not change: only FULL keeps it in the log."""
        return any(column.toastable for column in self.columns)

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def part(self, columns: Collection[str]) -> Table:
        """The same with no other columns than these."""
        return replace(self, columns=tuple(column for column in self.columns if column.name in columns))

    def to_json(self) -> dict[str, object]:
        """What followers need; the rest is the source's business alone."""
        fields = asdict(self)
        del fields["replica_identity"], fields["key_index"], fields["partitioned"]
        return fields

    @classmethod
    def from_json(cls, data: dict[str, object]) -> Table:
        columns = tuple(map(Column.from_json, data["columns"]))  # type: ignore[call-overload]
        fields = {**data, "columns": columns, "key": tuple(data["key"])}  # type: ignore[arg-type]
        return cls(**fields)  # type: ignore[arg-type]
