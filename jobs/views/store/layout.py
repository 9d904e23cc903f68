"""A view's tables in SQLite: what is kept of each row, and the statement that puts documents together.

Of a row is kept what the view needs and no more: for each part of the document that shows the table, the finished
members of that part; and what is compared and sorted by, each with an index where rows are looked up by it. Two rows
that are alike in the columns of a part are alike to that part, so comparing them shows what must be written again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from driftless.table import Table
from driftless.views.compare import form, last_order
from driftless.views.shard import split_tables
from driftless.views.tree import Join, Node, View
from driftless.where.clause import compute, parse
from jobs.views.values import functions
from jobs.views.values.sqlite_values import SqliteWhere, equal_sql, literal, order_sql

_CHAIN = 50
_FIRST = 4
"""The parameters of a row: its key, version and whether it is a delete; then the columns' texts."""


@dataclass
class StoredTable:
    """One table. `columns`: what is kept -> its expression over a row's parameters; `indexed`: what is looked up by;
    `sorted`: the columns of further indexes, by which the first rows of a list are found without the others.

    `number`: the one column of the key where it is a whole number: then it is the row's `id` here. `root_key`: the text
    of the key of the one root that a row belongs to, where the view is split and this table with it. `derived`: it is
    made of another table's rows here, and none of the log's.
    """

    name: str
    reads: tuple[str, ...]
    number: str | None = None
    root_key: str | None = None
    derived: bool = False
    columns: dict[str, str] = field(default_factory=dict)
    indexed: list[str] = field(default_factory=list)
    sorted: list[str] = field(default_factory=list)

    def text(self, column: str) -> str:
        """The JSON text of a column, as a parameter of the row."""
        return f"?{_FIRST + self.reads.index(column)}"

    @property
    def given(self) -> str:
        """Holds always, and takes the last column of the row: SQLite refuses more values than a statement names."""
        last = f"?{_FIRST + len(self.reads) - 1}"
        return f"{last} IS {last}"

    @property
    def identity(self) -> str:
        """The column of the table by which a row is known."""
        return "key" if self.number is None else "id"

    def key(self, given: str) -> str:
        """The text of a row's key as `identity`."""
        return given if self.number is None else f"CAST({given} AS INTEGER)"

    def keep(self, expression: str, *, lookup: bool = False) -> str:
        """The name under which it is kept; the same for the same."""
        if self.number is not None and expression == equal_sql("int8", self.text(self.number)):
            return "id"
        name = next((name for name, known in self.columns.items() if known == expression), f"c{len(self.columns)}")
        self.columns[name] = expression
        if lookup and name not in self.indexed:
            self.indexed.append(name)
        return name


@dataclass(frozen=True)
class Hop:
    """A join with what is kept of it: rows of `upper` and `lower` belong together where the two are equal.

    `many_above`: whether any number of rows above can share one below. `shown`: what else of the lower one, where it
    lies between, shows in documents.
    """

    upper: StoredTable
    upper_column: str
    lower: StoredTable
    lower_column: str
    many_above: bool
    shown: list[str] = field(default_factory=list)


@dataclass
class LayoutNode:
    """A node. `hops`: from the part above down to this one. `members`: the kept column with its finished members.
    `order`: kept columns, each with whether the greatest comes first, and whether it is of the last table between; of
    that `between` is the kept column with the finished members that it shows. `array`: the kept column of the row above
    whose elements are looked up, from which the last hop is then. `parent`: of a path, the kept column by which the row
    above is found in the same table.

    `watched`: the kept columns whose change is one to this part, or to how it hangs together with the parts below.
    `of_numbers`: of a part that is one value over all rows, whether it is a number. `prefix`: what stands before the
    names of its members.
    """

    number: int
    node: Node
    kept: StoredTable
    members: str
    above: LayoutNode | None = None
    hops: list[Hop] = field(default_factory=list)
    order: list[tuple[str, bool, bool]] = field(default_factory=list)
    watched: list[str] = field(default_factory=list)
    of_numbers: bool = False
    prefix: str = ""
    between: str = ""
    array: str = ""
    parent: str = ""
    below: list[LayoutNode] = field(default_factory=list)

    @property
    def view(self) -> str:
        return f"part_{self.number}"


class Layout:
    """Everything that the store derives from a view. `roots`: what documents are known by: the root's table; or, where
    the view has a key of its own, a table of these keys, and `key` is what the root's rows have of it.
    """

    def __init__(self, view: View, shard: int = 0) -> None:
        self.view = view
        between = {link.table for node, _ in view.nodes() for link in node.links}
        self.tables = {
            name: StoredTable(f"t{number}", _names(table), None if name in between else _number(table))
            for number, (name, table) in enumerate(view.tables.items())
        }
        for name, columns in split_tables(view).items() if view.shards > 1 else ():
            self.tables[name].root_key = "?1" if name == view.root.table else _key(self.tables[name], columns)
        self.parts: list[LayoutNode] = []
        self.root = self._part(view.root, None)
        where = "1" if view.where is None else self._admitted(view.root.table, view.where)
        if view.shards > 1:
            # Where the root's table is copied, because it is in the documents of others too.
            where = f"({where}) AND df_shard(?1, {view.shards}) = {shard}"
        self.shown = self.root.kept.keep(f"coalesce({where}, 0)")
        self.root.watched.append(self.shown)
        self.roots, self.key = self.root.kept, ""
        if view.own_key:
            # Null where one of the columns is.
            self.key = self.root.kept.keep(f"CAST({_key(self.root.kept, view.own_key)} AS TEXT)", lookup=True)
            self.root.watched.append(self.key)
            self.roots = StoredTable("roots", (), derived=True)

    def _part(self, node: Node, above: LayoutNode | None) -> LayoutNode:
        kept = self.tables[node.table]
        prefix = "" if node.prefix is None or above is None else above.prefix + node.prefix
        part = LayoutNode(len(self.parts), node, kept, kept.keep(self._members(node, prefix)), above, prefix=prefix)
        self.parts.append(part)
        part.watched.append(part.members)
        if above is not None:
            joins = node.joins(above.node)
            for place, join in enumerate(joins):
                last = place == len(joins) - 1
                if node.elements:
                    part.hops += self._of_elements(part, join)
                else:
                    forms = self._forms(join, node)
                    part.hops.append(self._hop(join, forms, where=node.where if last else None))
            above.watched.append(part.array or part.hops[0].upper_column)
            part.watched.append(part.hops[-1].lower_column)
        if node.parent and above is not None:
            forms = self._forms(node.joins(above.node)[0], node)
            part.parent = kept.keep(_compared(kept, node.parent, forms), lookup=True)
            part.watched.append(part.parent)
        if node.between:
            table = self.tables[node.links[-1].table]
            texts = {name: table.text(column) for name, column in node.between.items()}
            part.between = table.keep(_joined(texts, prefix))
            part.hops[-2].shown.append(part.between)
        for sort in node.order:
            holder, column = self.tables[node.holder(sort)], self.view.column(node.holder(sort), sort.column)
            kind = last_order(column)
            assert kind is not None, "refused by driftless/views/resolve.py"
            name = holder.keep(order_sql(kind, column, holder.text(sort.column)))
            if node.links or name != part.hops[-1].lower_column:  # which is the same in the whole list
                part.order.append((name, sort.descending, sort.between))
            (part.hops[-2].shown if sort.between else part.watched).append(name)
        if node.kind in ("min", "max"):
            self._of_one_value(part)
        if node.most is not None and not node.links and (found_by := part.hops[-1].lower_column) != "id":
            kept.sorted.append(", ".join((found_by, *ordered(part, "", ""))))
        part.below = [self._part(below, part) for below in node.relations]
        return part

    def _of_one_value(self, part: LayoutNode) -> None:
        """A least or greatest value, which is found by what it is put in order by."""
        table, kept = self.view.tables[part.node.table], part.kept
        kind = compute(part.node.of).typed(table).kind
        part.of_numbers = kind in ("int8", "numeric")
        order = kept.keep(functions.order_sql(part.node.of, table, self._texts(table)))
        part.order = [(order, part.node.kind == "max", False)]
        part.watched.append(order)
        if not part.node.links and (found_by := part.hops[-1].lower_column) != "id":
            kept.sorted.append(f"{found_by}, {order}")

    def _members(self, node: Node, prefix: str) -> str:
        """What the part shows of a row that is not deleted: `"id":1,"status":"open"`, or one value."""
        table = self.view.tables[node.table]
        texts = self._texts(table)
        if node.kind == "count":
            return "1"
        if node.aggregates:
            plain = node.kind in ("sum", "avg") and node.of in texts and compute(node.of).columns == {node.of}
            return texts[node.of] if plain else functions.shown_sql(node.of, table, texts)
        shown = {name: texts[column] for name, column in node.fields.items()}
        shown |= {name: functions.shown_sql(text, table, texts) for name, text in node.computed.items()}
        return _value(*shown.values()) if node.value else _joined(shown, prefix)

    def _texts(self, table: Table) -> dict[str, str]:
        kept = self.tables[table.full_name]
        return {column.name: kept.text(column.name) for column in table.columns}

    def _admitted(self, table: str, where: str) -> str:
        """The condition over a row's parameters."""
        columns, condition = self.view.tables[table], parse(where)
        texts = self._texts(columns)
        if condition.computes:
            return functions.admitted_sql(where, columns, texts)
        return condition.sql(columns, SqliteWhere(texts))

    def _forms(self, join: Join, node: Node) -> tuple[str, ...]:
        """By what a join's columns are compared; of a path alike with those of the row above and of the parent."""
        forms = self.view.forms(join)
        if not node.parent:
            return forms
        others = self.view.forms(Join(node.table, node.parent, node.table, node.own))
        return tuple("numeric" if "numeric" in pair else pair[0] for pair in zip(forms, others, strict=True))

    def _of_elements(self, part: LayoutNode, join: Join) -> list[Hop]:
        """From the row above to the elements of its array, and from them to the rows."""
        upper, elements = self.tables[join.left], StoredTable(f"elements_{part.number}", (), derived=True)
        part.array = upper.keep(upper.text(join.left_columns[0]))
        below = self._hop(join, self.view.forms(join), where=part.node.where, above=elements)
        return [Hop(upper, "id", elements, "row", many_above=False), below]

    def _hop(self, join: Join, forms: Sequence[str], *, where: str | None, above: StoredTable | None = None) -> Hop:
        """`where`: which of the rows below may be found; by others nothing is looked up. `above`: has elements."""
        upper, lower = self.tables[join.left], self.tables[join.right]
        found = _compared(lower, join.right_columns, forms)
        if where is not None:
            found = f"iif({self._admitted(join.right, where)}, {found}, NULL)"
        if above is not None:
            return Hop(above, "k", lower, lower.keep(found, lookup=True), many_above=True)
        return Hop(
            upper,
            upper.keep(_compared(upper, join.left_columns, forms), lookup=True),
            lower,
            lower.keep(found, lookup=True),
            {*join.left_columns} != {*self.view.tables[join.left].key},
        )


def _names(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns)


def _number(table: Table) -> str | None:
    column = table.column(table.key[0]) if len(table.key) == 1 else None
    return column.name if column is not None and form(column, column) == "int8" else None


def _key(kept: StoredTable, columns: Sequence[str]) -> str:
    """The text of a key, of the columns that hold it."""
    texts = [kept.text(column) for column in columns]
    return f"({texts[0]} ->> '$')" if len(texts) == 1 else "'[' || " + " || ',' || ".join(texts) + " || ']'"


def _value(text: str) -> str:
    return f"coalesce({text}, 'null')"


def _joined(shown: dict[str, str], prefix: str) -> str:
    """`"id":1,"status":"open"` of names and texts; empty where there are none."""
    pieces = [
        f"{literal(('' if not number else ',') + named(prefix + name))} || {_value(text)}"
        for number, (name, text) in enumerate(shown.items())
    ]
    # SQLite counts how deep an expression is, and a long chain is deep.
    some = [" || ".join(pieces[start : start + _CHAIN]) for start in range(0, len(pieces), _CHAIN)]
    return "''" if not some else some[0] if len(some) == 1 else " || ".join(f"({chain})" for chain in some)


def named(name: str) -> str:
    """Its name before a member."""
    return json.dumps(name, ensure_ascii=False) + ":"


def _compared(kept: StoredTable, columns: Sequence[str], forms: Sequence[str]) -> str:
    """Null where one of the columns is null. Of several columns, so that no two lists of values meet in one text."""
    values = [equal_sql(form, kept.text(column)) for column, form in zip(columns, forms, strict=True)]
    if len(values) == 1:
        return values[0]
    return " || ".join([*(f"length({value}) || ':' || {value}" for value in values[:-1]), values[-1]])


def ordered(part: LayoutNode, alias: str, between: str) -> Iterator[str]:
    """What a list is put in order by. Of its first rows alone so that an index has that order: SQLite takes none for
    nulls that are the greatest.
    """
    for name, descending, of_between in part.order:
        column, direction = f"{between if of_between else alias}{name}", " DESC" if descending else ""
        if part.node.most is None:
            yield f"{column}{direction} NULLS {'FIRST' if descending else 'LAST'}"
        else:
            yield f"({column} IS NULL){direction}"
            yield f"{column}{direction}"


def rows_sql(part: LayoutNode, source: str) -> str:
    """The rows `b` of a part's table that belong to a row `r` of the one above, with those between: `l0` and so on."""
    # The plus takes the type from an `id`: beside a typed operand no index of an untyped column is used.
    first, above = part.hops[0], f"+r.{part.hops[0].upper_column}"
    aliases = [*(f"l{number}" for number in range(len(part.hops) - 1)), "b"]
    names = [*(hop.lower.name for hop in part.hops[:-1]), source]
    found = f"FROM {names[0]} {aliases[0]}"
    for number, hop in enumerate(part.hops[1:], 1):
        # CROSS JOIN: in this order.
        on = f"{aliases[number]}.{hop.lower_column} = {aliases[number - 1]}.{hop.upper_column}"
        found += f" CROSS JOIN {names[number]} {aliases[number]} ON {on}"
    return f"{found} WHERE {aliases[0]}.{first.lower_column} = {above}"
