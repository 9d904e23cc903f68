"""From the declaration of a view and the facts of its tables to its tree, with every mistake that these can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from driftless.config.views import ManyConfig, OneConfig, Relation, ViewConfig, direction, relations
from driftless.suggest import did_you_mean
from driftless.table import Column, Table
from driftless.types import refusal
from driftless.views.compare import equality, last_order, order
from driftless.views.tree import Link, Node, Sort, View, read_columns
from driftless.where.clause import compute
from driftless.where.literals import ORDERED
from driftless.where.typed import TypedTerm

_TAKEN = "{} has a column of this name: list `columns`, or call one otherwise"
Place = tuple[int | str, ...]
Problem = tuple[Place, str]
"""Where in sync.yaml, and what."""


@dataclass(frozen=True)
class CapturedTables:
    """What is known of the captured tables. `unique`: the unique keys of a table, its primary key among them.

    `gone`: (table, column) that there was before -> the end of what is said of it. Asked where a column is missing.
    """

    tables: Mapping[str, Table]
    unique: Callable[[str], Iterable[tuple[str, ...]]]
    excluded: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gone: Callable[[], Mapping[tuple[str, str], str]] = dict

    @cached_property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """The primary key of each table."""
        return {table.full_name: table.key for table in self.tables.values()}


def resolve(name: str, view: ViewConfig, source: CapturedTables) -> tuple[View | None, list[Problem]]:
    """The tree, or None; and all that is wrong with the relations and what every part shows.

    A table that the source does not have makes no tree, and no mistake: that is told where the table is captured.
    """
    found = _Resolved(source, ("views", name))
    root = found.root(view)
    if root is None or found.problems:
        return None, found.problems
    used = read_columns(root, view.where, source.keys)
    tables = {name: source.tables[name].part(columns) for name, columns in used.items()}
    return View(name, root, tables, view.where, view.shards), []


class _Resolved:
    def __init__(self, source: CapturedTables, at: Place) -> None:
        self._source = source
        self._at = at
        self._lost = False
        self.problems: list[Problem] = []

    def root(self, view: ViewConfig) -> Node | None:
        table = self._table(view.root_table)
        if table is None:
            return None
        fields = self._fields(view, table, self._at)
        self._computed(view, table, fields, self._at)
        node = Node("", "root", table.full_name, fields, computed=view.computed)
        node = replace(node, relations=self._relations(view, table, node, self._at))
        return None if self._lost else node

    def _say(self, at: Place, what: str) -> None:
        self.problems.append((at, what))

    def _table(self, name: str) -> Table | None:
        table = self._source.tables.get(name)
        self._lost = self._lost or table is None
        return table

    # -- what is shown ------------------------------------------------------------------------------------------

    def _fields(self, shown: ViewConfig | Relation, table: Table, at: Place) -> dict[str, str]:
        fields = shown.fields(tuple(column.name for column in table.columns if refusal(column) is None))
        if not fields and not shown.computed and not (isinstance(shown, ManyConfig) and shown.aggregate):
            self._say(at, "no column is left to show")
        alone = getattr(shown, "value", None) is not None
        for number, (name, column) in enumerate(fields.items()):
            place = name if isinstance(shown.columns, dict) else number
            self._column(table, column, (*at, "value") if alone else (*at, "columns", place))
        return fields

    def _computed(self, shown: ViewConfig | Relation, table: Table, fields: Mapping[str, str], at: Place) -> None:
        for name, text in shown.computed.items():
            if shown.columns is None and name in fields:
                self._say((*at, "computed", name), _TAKEN.format(table.called))
            self._fits(table, text, (*at, "computed", name))

    def _fits(self, table: Table, text: str, at: Place) -> TypedTerm | None:
        """What is computed, where the table has all that it takes."""
        computation = compute(text)
        excluded = self._source.excluded.get(table.full_name, ())
        gone = self._source.gone() if any(table.column(name) is None for name in computation.columns) else {}
        refusals = computation.refusals(table, excluded=excluded, gone=gone)
        for problem in refusals:
            self._say(at, problem)
        return None if refusals else computation.typed(table)

    def _relations(self, above: ViewConfig | Relation, table: Table, node: Node, at: Place) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for kind, name, relation in relations(above):
            place = (*at, kind, name)
            if above.columns is None and name in node.fields:
                self._say(place, _TAKEN.format(table.called))
            below = self._table(relation.table)
            if below is None:
                continue
            found = self._relation(kind, name, relation, table, below, place)
            known = replace(node, relations=tuple(nodes)).members
            flat = [f"{found.prefix}{member}" for member in found.members if found.prefix is not None]
            if twice := [member for member in flat if member in known]:
                self._say((*place, "prefix"), f"the row above has a {twice[0]} too: give another prefix")
            nodes.append(found)
        return tuple(nodes)

    def _relation(self, kind: str, name: str, relation: Relation, above: Table, table: Table, at: Place) -> Node:
        fields = self._fields(relation, table, at)
        many = relation if isinstance(relation, ManyConfig) else None
        kind = "first" if many is not None and many.first else kind
        limit, value = None if many is None else many.limit, relation.value is not None
        node = Node(name, kind, table.full_name, fields, where=relation.where, limit=limit, value=value)
        self._computed(relation, table, fields, at)
        node = replace(node, computed=relation.computed)
        if many is not None and many.aggregate is not None:
            node = self._aggregate(node, many.aggregate, table, at)
        if isinstance(relation, OneConfig):
            node = replace(node, prefix=relation.prefix)
            held = self._columns(above, relation.by, (*at, "by"))
            key = self._key(table, relation.references, at)
            self._fit(above, held, table, key, (*at, "by"))
            node = replace(node, above=held, own=key)
        elif relation.through is None:
            held = self._columns(table, relation.by, (*at, "by"))
            key = self._key(above, relation.references, at)
            self._fit(table, held, above, key, (*at, "by"))
            node = replace(node, above=key, own=held)
        elif (between := self._table(relation.through)) is not None:
            node = self._through(node, relation, above, table, between, at)
        order_by = () if many is None or node.aggregates else self._order(many, table, at)
        return replace(node, order=order_by, relations=self._relations(relation, table, node, at))

    def _aggregate(self, node: Node, aggregate: tuple[str, str], table: Table, at: Place) -> Node:
        function, text = aggregate
        term = self._fits(table, text, (*at, function)) if text else None
        if term is not None and function in ("sum", "avg") and term.kind not in ("int8", "numeric"):
            self._say((*at, function), f"this is {term.kind}: exact sums are those of whole numbers and numeric")
        elif term is not None and function in ("min", "max") and term.kind not in ORDERED | {"float4"}:
            self._say((*at, function), f"this is {term.kind}, which has no order in the log")
        return replace(node, kind=function, of=text)

    def _through(self, node: Node, relation: ManyConfig, above: Table, table: Table, between: Table, at: Place) -> Node:
        by = self._columns(between, relation.by, (*at, "by"))
        to = self._columns(between, relation.to or (), (*at, "to"))
        key = self._key(above, relation.references, at)
        self._fit(between, by, above, key, (*at, "by"))
        own = self._key(table, relation.to_references, at, "to_references")
        self._fit(between, to, table, own, (*at, "to"))
        return replace(node, above=key, own=own, link=Link(between.full_name, by, to))

    # -- columns ------------------------------------------------------------------------------------------------

    def _column(self, table: Table, name: str, at: Place) -> Column | None:
        """The column, where the log has it."""
        column = table.column(name)
        if column is None:
            if name in self._source.excluded.get(table.full_name, ()):
                self._say(at, f"{name} is excluded under source.tables, so the log does not have it")
            else:
                known = self._source.gone().get((table.full_name, name))
                known = known or did_you_mean(name, [other.name for other in table.columns])
                self._say(at, f"{table.called} has no column {name}{known}")
        elif (reason := refusal(column)) is not None:
            self._say(at, f"{name} {reason}")
            return None
        return column

    def _columns(self, table: Table, names: tuple[str, ...], at: Place) -> tuple[str, ...]:
        """The same names, or none where one of them is missing: then there is nothing to compare."""
        places = [at] if len(names) == 1 else [(*at, number) for number in range(len(names))]
        found = [self._column(table, name, place) for name, place in zip(names, places, strict=True)]
        return names if all(found) else ()

    def _key(
        self, table: Table, references: tuple[str, ...] | None, at: Place, field: str = "references"
    ) -> tuple[str, ...]:
        if references is None:
            return table.key
        key = self._columns(table, references, (*at, field))
        unique = list(self._source.unique(table.full_name))
        if key and not any(sorted(key) == sorted(other) for other in unique):
            known = ", ".join(f"({', '.join(other)})" for other in unique)
            what = f"({', '.join(key)}) is no unique key of {table.called}, which has {known}"
            self._say((*at, field), what)
            return ()
        return key

    def _fit(self, holder: Table, held: tuple[str, ...], of: Table, key: tuple[str, ...], at: Place) -> None:
        """Whether the columns can hold that key: as many, and each of a type that is compared with the key's."""
        if not held or not key:
            return
        if len(held) != len(key):
            listed, count = ", ".join(key), f"{len(held)} column{'s' if len(held) > 1 else ''}"
            self._say(at, f"the key of {of.called} is ({listed}): this names {count}, not {len(key)}")
            return
        for name, other in zip(held, key, strict=True):
            left, right = holder.column(name), of.column(other)
            if left is None or right is None:
                continue
            if (class_ := equality(left)) is None or equality(right) is None:
                which = left if class_ is None else right
                self._say(at, f"{_called(which)}: values of that type can be equal though their texts differ")
            elif class_ != equality(right):
                self._say(at, f"{_called(left)} and {_called(right)}: only columns of one kind can be compared")

    def _order(self, relation: ManyConfig, table: Table, at: Place) -> tuple[Sort, ...]:
        sorts = []
        for number, written in enumerate(relation.order_by):
            place = (*at, "order_by", number)
            name, descending = (written, False) if table.column(written) else direction(written)
            column = self._column(table, name, place)
            if column is not None and order(column) is None:
                self._say(place, f"{_called(column)}, whose order in Postgres cannot be told from the log")
            sorts.append(Sort(name, descending))
        given = {sort.column for sort in sorts}
        for name in table.key:
            column = table.column(name)
            if column is not None and last_order(column) is None:
                self._say(at, f"{table.called} is keyed by {_called(column)}, by which no list can be put in order")
        return (*sorts, *(Sort(name) for name in table.key if name not in given))


def _called(column: Column) -> str:
    return f"{column.name} is {column.type}{'[]' if column.array else ''}"
