"""Which of a database's tables can be followed, and why the others cannot: one list for `check` and for `init`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from driftless import names
from driftless.table import Table, join_name, quoted, quoted_column
from driftless.types import refusal

_KINDS = {
    "v": "is a view: follow the tables that it is made of",
    "m": "is a materialized view, which the log does not carry: follow the tables that it is made of",
    "f": "is a foreign table: its rows are in another database, whose log is not read here",
}
_PERSISTENCE = {
    "u": "is unlogged, so its changes are not in the log: `alter table ... set logged`",
    "t": "is a temporary table of one session",
}
_NEVER_CAPTURED = "spatial_ref_sys"
"""Debezium 3.7 takes a table of this name for a system table, in whatever schema and capitals, and leaves it out."""


@dataclass(frozen=True)
class Relation:
    """A table or what looks like one. `kind`, `persistence`: as in pg_class. `extension`: the one that it belongs to.

    `hides_rows`: row-level security holds for our role. `unreadable`: columns on which it lacks SELECT. `rows`: as the
    catalogue estimates them; 0 where nobody has counted yet.
    """

    schema: str
    name: str
    kind: str
    persistence: str
    extension: str | None
    is_partition: bool
    has_children: bool
    hides_rows: bool
    usable_schema: bool
    unreadable: list[str]
    rows: int = 0

    @property
    def full_name(self) -> str:
        return join_name(self.schema, self.name)

    @property
    def plain_name(self) -> str:
        """The name by which Debezium tells tables apart."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class ForeignKey:
    """Columns of `table` that hold a key of `to`: each of `columns` what stands in its place in `referenced`."""

    table: str
    columns: tuple[str, ...]
    to: str
    referenced: tuple[str, ...]


def relation_obstacles(relation: Relation) -> Iterator[str]:
    """Why it cannot be followed, each as the rest of a sentence that begins with its name."""
    if relation.kind not in "rp":
        yield _KINDS[relation.kind]
        return
    if relation.persistence != "p":
        yield _PERSISTENCE[relation.persistence]
    if relation.kind == "p" and relation.is_partition:
        yield "is a partition of another table, and has partitions itself: capture the table that has them all"
    if relation.has_children and relation.kind != "p":
        yield (
            "has tables that inherit from it: a snapshot would read their rows, and their changes would not follow; "
            "follow those tables instead"
        )
    if relation.name.lower() == _NEVER_CAPTURED:
        yield "is left out by Debezium, which takes it for a table of PostGIS"
    if any(_is_garbled(part) for part in (relation.schema, relation.name)):
        yield "has a name that Debezium does not read back as it is: blank, `\"` at an end, or two ' or ` in a row"
    if relation.hides_rows:
        yield "has row-level security, which hides rows from the role: `alter role ... bypassrls`"


def right_obstacles(relation: Relation, exclude: tuple[str, ...]) -> Iterator[str]:
    """Why the role cannot read it."""
    if not relation.usable_schema:
        yield f"may not be read by the role: `grant usage on schema {relation.schema} to ...`"
    unreadable = [column for column in relation.unreadable if column not in exclude]
    if unreadable:
        yield f"may not be read by the role ({', '.join(unreadable)}): `grant select on {relation.full_name} to ...`"


def table_obstacles(table: Table) -> Iterator[str]:
    """Why a table cannot be followed whose columns are all given, the excluded ones too."""
    if not table.key:
        yield (
            "has no primary key, nor a unique index without nulls: "
            f"`alter table {table.full_name} add primary key (...)`"
        )
    for column in table.columns:
        reason = refusal(column)
        if reason is not None and column.name in table.key:
            yield f"cannot be keyed by its column {column.name}, which {reason}"
    seen: dict[str, str] = {}
    for column in table.columns:
        other = seen.setdefault(column.name.lower(), column.name)
        if other != column.name:
            yield f"has columns that differ only in capitals, which Debezium refuses: {other}, {column.name}"


def meetings(tables: Mapping[str, Table], relations: Mapping[str, Relation]) -> Iterator[tuple[str, str]]:
    """(captured table, why not) where Debezium takes two tables for one."""
    captured = {f"{table.schema}.{table.name}": name for name, table in tables.items()}
    for name, relation in relations.items():
        other = captured.get(relation.plain_name)
        if other is not None and other != name and relation.kind in "rp":
            yield other, f"cannot be told from {name} by Debezium, which joins schema and name by a dot"


def column_meetings(tables: Mapping[str, Table], exclude: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """(captured table, why not) where Debezium would leave out another table's column together with an excluded one."""
    excluded = {
        f"{tables[name].schema}.{tables[name].name}.{column}": (name, column)
        for name, columns in exclude.items()
        for column in columns
    }
    for name, table in tables.items():
        for column in table.columns:
            other = excluded.get(f"{table.schema}.{table.name}.{column.name}")
            if other is not None and other[0] != name:
                yield other[0], f"cannot exclude {other[1]}: Debezium would leave out {column.name} of {name} with it"


def topic_meetings(pipeline: str, tables: Iterable[str], existing: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """(captured table, why not) where two topics would be one.

    Debezium puts `_` for what no topic's name may hold; Kafka refuses names that differ in `.` and `_` alone.
    """
    taken = {_metric(topic): f"the topic {topic}" for topic in existing}
    mine: dict[str, str] = {}
    for name in sorted(tables):
        topic = names.table_topic(pipeline, name)
        other = mine.setdefault(_metric(topic), name)
        stranger = taken.get(_metric(topic))
        if other != name:
            yield name, f"would share the topic {topic} with {other}: capture it in another pipeline"
        elif stranger is not None and stranger != f"the topic {topic}":
            yield name, f"would have the topic {topic}, which Kafka does not allow together with {stranger}"


def view_meetings(pipeline: str, tables: Iterable[str], views: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(captured table, why not) where its topic would be one that a build of a view may have."""
    builds = {view: _metric(names.view_topic(pipeline, view, 0)).removesuffix("0") for view in views}
    for name in sorted(tables):
        topic = _metric(names.table_topic(pipeline, name))
        for view, start in builds.items():
            if topic.startswith(start) and topic.removeprefix(start).isdecimal():
                yield name, f"would share a topic with the view {view}: give the view another name"


def _metric(topic: str) -> str:
    """The name under which Kafka counts a topic."""
    return topic.replace(".", "_")


def _is_garbled(part: str) -> bool:
    return not part.strip() or part[0] == '"' or part[-1] == '"' or "''" in part or "``" in part


@dataclass(frozen=True)
class Owners:
    """Two columns that name the owner of a row, by its kind and its key: as `commentable_type` and `commentable_id`.

    `kinds`: values of the first that are there, of the first thousand rows.
    """

    table: str
    kind: str
    key: str
    kinds: tuple[str, ...]


_FIRST_ROWS = 1000
_MOST_KINDS = 20
"""More of them are no kinds of tables."""


def owner_columns(table: Table) -> Iterator[tuple[str, str]]:
    """Pairs of columns `x_type` and `x_id`, as Rails, Laravel and others have them."""
    for column in table.columns:
        stem = column.name.removesuffix("_type")
        key = table.column(f"{stem}_id") if stem != column.name else None
        if key is not None and column.type in ("text", "varchar") and not (column.array or key.array):
            yield column.name, key.name


def kinds_query(table: Table, kind: str) -> str:
    first = f"select {quoted_column(kind)} as kind from {quoted(table.full_name)} limit {_FIRST_ROWS}"
    return f"select distinct kind from ({first}) looked_at where kind is not null order by kind limit {_MOST_KINDS + 1}"


def owners(table: Table, kind: str, key: str, kinds: Sequence[str]) -> Owners | None:
    return Owners(table.full_name, kind, key, tuple(kinds)) if 0 < len(kinds) <= _MOST_KINDS else None
