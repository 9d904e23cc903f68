"""From the declaration of a view and the facts of its tables to its tree, with every mistake that these can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from driftless.config.view_fields import direction
from driftless.config.views import ManyConfig, OneConfig, Relation, ViewConfig, relations
from driftless.suggest import did_you_mean
from driftless.table import Column, Table
from driftless.types import refusal
from driftless.views.compare import equality, last_order, order
from driftless.views.tree import Link, Node, Sort, View, read_columns
from driftless.where.clause import compute
from driftless.where.literals import ORDERED, kind_of
from driftless.where.typed import TypedTerm

_TAKEN = "{} has a column of this name: list `columns`, or call one otherwise"
Place = tuple[int | str, ...]
Columns = tuple[str, ...]
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
    used[root.table].update(view.key or ())
    tables = {name: source.tables[name].part(columns) for name, columns in used.items()}
    return View(name, root, tables, view.where, view.shards, view.key or ()), []


@dataclass(frozen=True)
class _Step:
    """From one table to the next. `named`, `key`: the fields that have `to` and `references`."""

    table: Table | None
    at: Place
    by: tuple[str, ...] | None = None
    to: tuple[str, ...] | None = None
    references: tuple[str, ...] | None = None
    key: str = "references"
    named: str = "to"


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
        self._own_key(view.key, table)
        node = Node("", "root", table.full_name, fields, computed=view.computed)
        node = replace(node, relations=self._relations(view, table, node, self._at))
        return None if self._lost else node

    def _own_key(self, key: Columns | None, table: Table) -> None:
        place = (*self._at, "key")
        if key is not None and not table.schema:
            self._say(place, "a stream has its own key")
            return
        if key is None:
            return
        if not any(set(unique) <= set(key) for unique in self._source.unique(table.full_name)):
            self._key(table, key, self._at, "key")  # which says so
            return
        for name in self._columns(table, key, place):
            column = table.column(name)
            if column is not None and kind_of(column) not in ("int8", "text", "uuid"):
                self._say(place, f"{column.called}: a key is of whole numbers, text or uuid")

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
        for name in () if table.schema or refusals else sorted(computation.columns):
            # A document's text of others need not be that which Postgres would write.
            column = table.column(name)
            if column is not None and kind_of(column) not in ("int8", "numeric", "text", "bool"):
                refusals.append(f"{column.called}, which cannot be computed with in a stream's documents")
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
        node = self._way(node, relation, above, table, at)
        if many is not None and many.between is not None and node.links:
            node = replace(node, between=self._between(many, node, at))
        order_by = (
            ()
            if many is None or node.aggregates or node.elements or node.parent
            else self._order(many, table, node, at)
        )
        return replace(node, order=order_by, relations=self._relations(relation, table, node, at))

    def _aggregate(self, node: Node, aggregate: tuple[str, str], table: Table, at: Place) -> Node:
        function, text = aggregate
        term = self._fits(table, text, (*at, function)) if text else None
        if term is not None and function in ("sum", "avg") and term.kind not in ("int8", "numeric"):
            self._say((*at, function), f"this is {term.kind}: exact sums are those of whole numbers and numeric")
        elif term is not None and function in ("min", "max") and term.kind not in ORDERED | {"float4"}:
            self._say((*at, function), f"this is {term.kind}, which has no order in the log")
        return replace(node, kind=function, of=text)

    def _way(self, node: Node, relation: Relation, above: Table, table: Table, at: Place) -> Node:
        """How the rows below are found: the columns that are equal from one table to the next."""
        one = isinstance(relation, OneConfig)
        steps: list[_Step] = []
        references, of_to = relation.references, relation.to_references
        if isinstance(relation, ManyConfig) and relation.ids is not None:
            return self._elements(node, relation.ids, relation, above, table, at)
        if isinstance(relation, ManyConfig) and relation.ancestors is not None:
            return self._ancestors(node, relation.ancestors, relation, above, table, at)
        if relation.through is None:
            by, to = (None, relation.by) if one else (relation.by, None)
            steps.append(_Step(table, at, by, to, references, named="by"))
        elif isinstance(relation.through, str):
            steps.append(_Step(self._table(relation.through), at, relation.by, references=references))
            steps.append(_Step(table, at, to=relation.to, references=of_to, key="to_references"))
        else:
            for number, on_way in enumerate(relation.through):
                place = (*at, "through", number)
                between = self._table(on_way.table)
                steps.append(_Step(between, place, on_way.by, on_way.to, on_way.references))
            if relation.to is not None:
                steps.append(_Step(table, at, to=relation.to, references=of_to, key="to_references"))
            else:
                steps.append(_Step(table, at, relation.by, references=references))
        pairs, tables = [], list[Table]()
        for step in steps:
            if step.table is None:
                return node
            pairs.append(self._step(step, step.table, above, alone=one))
            above = step.table
            tables.append(above)
        links = [
            Link(between.full_name, own, below)
            for between, (_, own), (below, _) in zip(tables, pairs, pairs[1:], strict=False)
        ]
        link, chain = (links[0], tuple(links[1:])) if links else (None, ())
        return replace(node, above=pairs[0][0], own=pairs[-1][1], link=link, chain=chain)

    def _elements(self, node: Node, ids: str, relation: Relation, above: Table, table: Table, at: Place) -> Node:
        place, key = (*at, "ids"), self._key(table, relation.references, at)
        column = self._column(above, ids, place)
        if column is None or not key:
            return node
        if not column.array:
            self._say(place, f"{column.called}, and the list is that of an array's elements: write `by`")
        elif not above.schema:
            self._say(place, "a stream's documents have no arrays that can be followed")
        elif kind_of(replace(column, array=False)) not in ("int8", "text", "uuid"):
            self._say(place, f"{column.called}, whose elements cannot be told from their texts in the log")
        else:
            alone = replace(above, columns=(replace(column, array=False, domains=False),))
            self._fit(alone, (ids,), table, key, place)
            if len(key) == 1 and (of := table.column(key[0])) and kind_of(of) == "numeric":
                self._say(place, f"{column.called} and {of.called}: only columns of one kind can be compared")
        return replace(node, above=(ids,), own=key, elements=True)

    def _ancestors(
        self, node: Node, parent: Columns, relation: Relation, above: Table, table: Table, at: Place
    ) -> Node:
        held, key = self._columns(above, relation.by or (), (*at, "by")), self._key(table, relation.references, at)
        own = self._columns(table, parent, (*at, "ancestors"))
        self._fit(above, held, table, key, (*at, "by"))
        self._fit(table, own, table, key, (*at, "ancestors"))
        return replace(node, above=held, own=key, parent=own)

    def _step(self, step: _Step, table: Table, above: Table, *, alone: bool) -> tuple[Columns, Columns]:
        """The columns of the row above and those of the step's table. `alone`: where it may lead to one row at most."""
        if step.to is not None:
            place = (*step.at, step.named)
            held, key = self._columns(above, step.to, place), self._key(table, step.references, step.at, step.key)
            self._fit(above, held, table, key, place)
            return held, key
        place = (*step.at, "by")
        held, key = self._columns(table, step.by or (), place), self._key(above, step.references, step.at, step.key)
        self._fit(table, held, above, key, place)
        if alone and held and not any(set(unique) <= set(held) for unique in self._source.unique(table.full_name)):
            several = "so there can be several: use `many` with `first`"
            self._say(place, f"({', '.join(held)}) is no unique key of {table.called}, {several}")
        return key, held

    def _between(self, relation: ManyConfig, node: Node, at: Place) -> dict[str, str]:
        table = self._source.tables[node.links[-1].table]
        columns = relation.between or ()
        found = dict(columns) if isinstance(columns, dict) else {name: name for name in columns}
        for number, (name, column) in enumerate(found.items()):
            self._column(table, column, (*at, "between", name if isinstance(columns, dict) else number))
            if name in node.fields:
                self._say((*at, "between"), f"{name} is a column of {node.table} too: give each a name of its own")
        return found

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
                self._say(at, f"{which.called}: values of that type can be equal though their texts differ")
            elif class_ != equality(right):
                self._say(at, f"{left.called} and {right.called}: only columns of one kind can be compared")

    def _order(self, relation: ManyConfig, table: Table, node: Node, at: Place) -> tuple[Sort, ...]:
        sorts = []
        last = self._source.tables[node.links[-1].table] if node.links else None
        for number, written in enumerate(relation.order_by):
            place = (*at, "order_by", number)
            name, descending = (written, False) if table.column(written) else direction(written)
            between = last is not None and name.startswith("between.") and table.column(name) is None
            holder = last if between and last is not None else table
            name = name.removeprefix("between.") if between else name
            if last is not None and table.column(name) is None and not between and last.column(name) is not None:
                self._say(place, f"{name} is a column of {last.called}: write `between.{written}`")
                continue
            column = self._column(holder, name, place)
            if column is not None and order(column) is None:
                self._say(place, f"{column.called}, whose order in Postgres cannot be told from the log")
            sorts.append(Sort(name, descending, between))
        sorts += self._by_key(table, sorts, at)
        if last is not None and node.between:
            sorts += self._by_key(last, sorts, at, between=True)
        return tuple(sorts)

    def _by_key(self, table: Table, given: Sequence[Sort], at: Place, *, between: bool = False) -> list[Sort]:
        """What comes last, so that the order is whole."""
        names = {sort.column for sort in given if sort.between == between}
        for name in table.key:
            column = table.column(name)
            if column is not None and last_order(column) is None:
                self._say(at, f"{table.called} is keyed by {column.called}, by which no list can be put in order")
        return [Sort(name, between=between) for name in table.key if name not in names]
