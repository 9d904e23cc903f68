"""A view as it is built: a tree of tables, with everything that the three ways of building it need.

It goes into the control topic, so that a view is built without the database and as it was when it was begun.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from driftless.config.views import AGGREGATES
from driftless.table import Column, Table
from driftless.views.compare import form, last_order
from driftless.where.clause import compute, parse


@dataclass(frozen=True)
class Join:
    """Rows of two tables that belong together: the columns of one equal those of the other, and none is null."""

    left: str
    left_columns: tuple[str, ...]
    right: str
    right_columns: tuple[str, ...]


@dataclass(frozen=True)
class Link:
    """A table between. `by`: its columns that equal those of the row above; `to`: those that equal the row below."""

    table: str
    by: tuple[str, ...]
    to: tuple[str, ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Link:
        return cls(data["table"], tuple(data["by"]), tuple(data["to"]))


@dataclass(frozen=True)
class Sort:
    """Nulls as in Postgres: last, or first where the greatest comes first. `between`: a column of the last table
    between, not of the row's own.
    """

    column: str
    descending: bool = False
    between: bool = False


@dataclass(frozen=True)
class Node:
    """One table's part of a document. `kind`: `root`, `one`, `many`, `first`, which is the first of many alone, or one
    of AGGREGATES: a value over all rows, `of` what is computed of each. `fields`: name in the document -> column.

    `above`, `own`: the columns of the row above and of this table (or, with `link`, of the key that the link holds)
    that are equal; `link` and `chain`: the tables between, from above. `between`: name in the document -> column of the
    last of them. `elements`: `above` is an array whose elements are compared. `parent`: the columns of this table that
    hold its own key, of a list of all rows from the topmost one down. `order`: of a `many`, and total: the key's
    columns are the last. `where`: of a relation, which of the table's rows it shows. `limit`: of a `many`, how many it
    shows. `value`: its one field is shown as it is. `computed`: name in the document -> what is computed of the row.
    `prefix`: of a `one` whose members are shown in the row above, what stands before their names.
    """

    name: str
    kind: str
    table: str
    fields: dict[str, str]
    above: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    link: Link | None = None
    order: tuple[Sort, ...] = ()
    relations: tuple[Node, ...] = ()
    where: str | None = None
    limit: int | None = None
    value: bool = False
    computed: dict[str, str] = field(default_factory=dict)
    prefix: str | None = None
    of: str = ""
    chain: tuple[Link, ...] = ()
    between: dict[str, str] = field(default_factory=dict)
    elements: bool = False
    parent: tuple[str, ...] = ()

    @property
    def links(self) -> tuple[Link, ...]:
        """The tables between, from above."""
        return () if self.link is None else (self.link, *self.chain)

    @property
    def missing(self) -> str:
        """What stands for it, as JSON, where it has no row."""
        return {"many": "[]", "count": "0"}.get(self.kind, "null")

    @property
    def aggregates(self) -> bool:
        return self.kind in AGGREGATES

    @property
    def members(self) -> dict[str, str]:
        """The names that it shows of a row, and what stands for each, as JSON, where there is no row."""
        found = dict.fromkeys((*self.between, *self.fields, *self.computed), "null")
        for below in self.relations:
            flat = {f"{below.prefix}{name}": missing for name, missing in below.members.items()}
            found |= {below.name: below.missing} if below.prefix is None else flat
        return found

    @property
    def most(self) -> int | None:
        """How many rows of it are shown where there can be several."""
        return 1 if self.kind == "first" else self.limit

    def holder(self, sort: Sort) -> str:
        """The table that has the column."""
        return self.links[-1].table if sort.between else self.table

    def joins(self, parent: Node) -> list[Join]:
        """From the row above down to this one, through all tables between."""
        table, columns = parent.table, self.above
        found = []
        for link in self.links:
            found.append(Join(table, columns, link.table, link.by))
            table, columns = link.table, link.to
        return [*found, Join(table, columns, self.table, self.own)]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Node:
        return cls(
            data["name"],
            data["kind"],
            data["table"],
            dict(data["fields"]),
            tuple(data["above"]),
            tuple(data["own"]),
            None if data["link"] is None else Link.from_json(data["link"]),
            tuple(Sort(**sort) for sort in data["order"]),
            tuple(map(cls.from_json, data["relations"])),
            data.get("where"),
            data.get("limit"),
            data.get("value", False),
            data.get("computed", {}),
            data.get("prefix"),
            data.get("of", ""),
            tuple(map(Link.from_json, data.get("chain", ()))),
            data.get("between", {}),
            data.get("elements", False),
            tuple(data.get("parent", ())),
        )


@dataclass(frozen=True)
class View:
    """`tables`: by full name, each with the columns that the view reads, in the order in which rows come. `own_key`: of
    the root, by which documents are found; empty where that is the primary key.
    """

    name: str
    root: Node
    tables: dict[str, Table]
    where: str | None = None
    shards: int = 1
    own_key: tuple[str, ...] = ()

    @property
    def stream(self) -> str:
        """The stream whose documents are its root; empty where that is a table of the source."""
        root = self.tables[self.root.table]
        return "" if root.schema else root.name

    def nodes(self) -> Iterator[tuple[Node, Node | None]]:
        """(node, the one above it), each after the one above."""
        waiting: list[tuple[Node, Node | None]] = [(self.root, None)]
        while waiting:
            node, parent = waiting.pop(0)
            yield node, parent
            waiting += [(below, node) for below in node.relations]

    def column(self, table: str, name: str) -> Column:
        found = self.tables[table].column(name)
        if found is None:
            raise ValueError(f"the view {self.name} does not read {name} of {table}")
        return found

    def forms(self, join: Join) -> tuple[str, ...]:
        """By what each pair of columns is compared, or the elements of an array with a column."""
        pairs = zip(join.left_columns, join.right_columns, strict=True)
        columns = ((replace(self.column(join.left, a), array=False), self.column(join.right, b)) for a, b in pairs)
        return tuple(form(left, right) for left, right in columns)

    @property
    def sorts_text(self) -> bool:
        """Whether a list is in the order of texts, which is that of their bytes."""
        sorted_by = ((node.holder(sort), sort.column) for node, _ in self.nodes() for sort in node.order)
        if any(last_order(self.column(*column)) in ("text", "bpchar") for column in sorted_by):
            return True
        for node, _ in self.nodes():
            table, texts = self.tables[node.table], [*node.computed.values(), *([node.of] if node.of else [])]
            if any(compute(text).orders_text(table) for text in texts):
                return True
            if node.kind in ("min", "max") and compute(node.of).typed(table).kind == "text":
                return True
        return False

    @cached_property
    def fingerprint(self) -> str:
        """Of everything that the documents rest on: another fingerprint is another generation."""
        types = {
            name: [table.key, [(c.name, c.type, c.kind, c.array, c.length) for c in table.columns]]
            for name, table in self.tables.items()
        }
        facts = [_told(asdict(self.root)), self.where, self.shards, types, *([self.own_key] if self.own_key else [])]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        tables = {name: table.to_json() for name, table in self.tables.items()}
        plain: dict[str, Any] = json.loads(
            json.dumps({**asdict(self), "root": _told(asdict(self.root)), "tables": tables})
        )
        if not self.own_key:  # as older versions have it
            del plain["own_key"]
        return plain

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> View:
        tables = {name: Table.from_json(table) for name, table in data["tables"].items()}
        own_key = tuple(data.get("own_key", ()))
        return cls(data["name"], Node.from_json(data["root"]), tables, data["where"], data["shards"], own_key)


_NEWER: dict[str, Any] = {"where": None, "limit": None, "value": False, "computed": {}, "prefix": None, "of": ""}
_NEWER |= {"chain": (), "between": {}, "elements": False, "parent": ()}
"""What older versions did not know of a node, and how it is where it is not used."""


def _told(node: dict[str, Any]) -> dict[str, Any]:
    """What is told of a node, and makes its fingerprint: of what older versions did not know only what is used."""
    told = {**node, "relations": [_told(below) for below in node["relations"]]}
    told["order"] = [{n: v for n, v in sort.items() if n != "between" or v} for sort in node["order"]]
    for name, unused in _NEWER.items():
        if told[name] == unused:
            del told[name]
    return told


def read_columns(root: Node, where: str | None, keys: Mapping[str, tuple[str, ...]]) -> dict[str, set[str]]:
    """Table -> the columns that a view reads: what it shows, compares, sorts and filters by, and the root's key."""
    used: dict[str, set[str]] = {root.table: {*keys[root.table], *(parse(where).columns if where else ())}}
    waiting: list[tuple[Node, Node | None]] = [(root, None)]
    while waiting:
        node, parent = waiting.pop()
        used.setdefault(node.table, set()).update(node.fields.values())
        for sort in node.order:
            used.setdefault(node.holder(sort), set()).add(sort.column)
        if node.between:
            used.setdefault(node.links[-1].table, set()).update(node.between.values())
        used[node.table].update(node.parent)
        used[node.table].update(parse(node.where).columns if node.where else ())
        used[node.table].update(*(compute(text).columns for text in (*node.computed.values(), node.of) if text))
        for join in node.joins(parent) if parent else ():
            used.setdefault(join.left, set()).update(join.left_columns)
            used.setdefault(join.right, set()).update(join.right_columns)
        waiting += [(below, node) for below in node.relations]
    for table, columns in used.items():
        columns.update(keys[table])  # without which a record's key cannot be read
    return used


def one_table(name: str, table: Table, fields: dict[str, str], where: str | None = None) -> View:
    """A view of one table alone. `fields`: name in the document -> column."""
    return View(name, Node("", "root", table.full_name, fields), {table.full_name: table}, where)
