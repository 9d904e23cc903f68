"""Nested views for `init` to propose: documents of several tables, along the foreign keys between them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.proposal.plurals import plural, singular
from cli.proposal.spelling import slug
from connectors.postgres.init import Proposal
from connectors.postgres.relations import ForeignKey, Owners
from connectors.postgres.worth import Worth, is_minor, only_joins, position_of, weigh
from driftless.config.views import ViewConfig
from driftless.table import Column, Table, quoted_column, split_name
from driftless.views.resolve import CapturedTables, resolve

Declared = dict[str, Any]
"""A view, or a relation of it, as it stands in sync.yaml."""
LEVELS = 2
"""Of relations below the root. Whoever wants more sees how it is written."""
LISTS = 8
"""Foreign keys to a table of which each may become a list. To more, as to users, all kinds of things lead."""
_DELETED, _MOMENTS = ("deleted_at", "deleted_on"), ("timestamptz", "timestamp", "date")
"""Names and types of columns by which applications mark a row as deleted, and keep it."""
_AFFIX = re.compile(r"(.+)_(?:id|uuid|key|fk|code)|(?:id|fk)_(.+)")


def nested_views(proposal: Proposal, fields: Mapping[str, Mapping[str, Column]], worth: Worth) -> list[Declared]:
    """Views that `check` accepts, those that somebody would choose first before all others.

    There is one for each table that refers to others and is referred to, as orders with their customer and their
    lines; and for other tables only where it shows a foreign key that none before it shows. `fields`: what a document
    of each table has, by its name in the document.
    """
    return list(_Nesting(proposal, fields).views(worth.order))


def nested_view(proposal: Proposal, fields: Mapping[str, Mapping[str, Column]], root: str) -> Declared:
    """The view of one table with all that belongs to its rows, whatever the table is."""
    return _Nesting(proposal, fields).view(root)[0]


def plain_view(_proposal: Proposal, fields: Mapping[str, Mapping[str, Column]], root: str) -> Declared:
    """The view of one table alone."""
    return {"root": root, **_columns(fields[root])}


def _columns(fields: Mapping[str, Column]) -> Declared:
    """Names of columns, where not every one can be a field's; and that rows which are marked as deleted are out."""
    plain = all(name == column.name for name, column in fields.items())
    shown: Declared = {} if plain else {"columns": {name: column.name for name, column in fields.items()}}
    where = not_deleted(fields)
    return shown | ({} if where is None else {"where": where})


def not_deleted(fields: Mapping[str, Column]) -> str | None:
    """The condition that leaves out rows that a column marks as deleted; None where there is no such column."""
    marks = (c.name for c in fields.values() if c.name in _DELETED and c.type in _MOMENTS and not c.array)
    return next((f"{name} IS NULL" for name in marks), None)


def tables_of(view: Declared) -> Iterator[str]:
    """The tables that a view reads: its root first."""
    yield str(view.get("root") or view["table"])
    if "through" in view:
        yield str(view["through"])
    for kind in ("one", "many"):
        for below in view.get(kind, {}).values():
            yield from tables_of(below)


def worth_of(proposal: Proposal) -> Worth:
    """Which of the tables somebody would follow first."""
    whole = {p.table.full_name: p.table for p in proposal.tables}
    keys = (key for key in proposal.foreign_keys if key.table != key.to)
    parts = {key.table for key in keys if _is_part(key, whole[key.table])}
    return weigh(whole.values(), proposal.foreign_keys, proposal.rows, parts)


@dataclass(frozen=True)
class _Way:
    """A relation from one table to another. `names`: what it may be called, the best first."""

    kind: str
    names: tuple[str, ...]
    relation: Declared
    shows: tuple[ForeignKey, ...]

    @property
    def table(self) -> str:
        return str(self.relation["table"])


class _Nesting:
    def __init__(self, proposal: Proposal, fields: Mapping[str, Mapping[str, Column]]) -> None:
        self._fields = fields
        self._unique = proposal.unique
        self._utf8 = proposal.encoding == "UTF8"
        self._whole = {p.table.full_name: p.table for p in proposal.tables}
        self._source = CapturedTables(
            {n: p.captured for n, p in zip(self._whole, proposal.tables, strict=True)}, self._keys
        )
        keys = [k for k in proposal.foreign_keys if len(set(k.columns)) == len(k.columns) and self._fits(self._one(k))]
        self._out = {name: list[ForeignKey]() for name in self._whole}
        self._in = {name: list[ForeignKey]() for name in self._whole}
        self._minor = {name for name, table in self._whole.items() if is_minor(table)}
        for foreign in keys:
            self._out[foreign.table].append(foreign)
            # A log or an example of a row is no part of it.
            if foreign.to != foreign.table and foreign.table not in self._minor:
                self._in[foreign.to].append(foreign)

        self._owned = {name: list[_Way]() for name in self._whole}
        for each in proposal.owners:
            for name, kind in self._kinds(each):
                way = self._owned_by(each, kind)
                if self._fits((name, way)):
                    self._owned[name].append(way)

    def _kinds(self, owners: Owners) -> Iterator[tuple[str, str]]:
        """(table, what says it) of each kind that a table is called like: of posts, `Post` or `blog.Post`."""
        for kind in owners.kinds:
            word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", re.split(r"[\\:./]+", kind)[-1])
            called = plural(slug(word.lower()))
            yield from ((name, kind) for name in self._whole if plural(_plain(name)) == called and name != owners.table)

    @staticmethod
    def _owned_by(owners: Owners, kind: str) -> _Way:
        literal = "'" + kind.replace("'", "''") + "'"
        column = owners.kind if re.fullmatch(r"[a-z_][a-z0-9_]*", owners.kind) else quoted_column(owners.kind)
        relation = {"table": owners.table, "by": owners.key, "where": f"{column} = {literal}"}
        name = plural(_plain(owners.table))
        return _Way("many", (name, f"{name}_by_{owners.key.removesuffix('_id')}"), relation, ())

    def _keys(self, table: str) -> Sequence[tuple[str, ...]]:
        return self._unique.get(table, ())

    # -- which ------------------------------------------------------------------------------------------------------

    def views(self, order: Sequence[str]) -> Iterator[Declared]:
        """`order`: of the tables, those first that are of more worth."""
        seen: set[ForeignKey] = set()
        for name in sorted(order, key=self._rank):
            if self._is_between(name) or name in self._minor:
                continue
            view, shows = self.view(name)
            if self._rank(name) == 0 or not shows <= seen or self._owned[name]:
                seen |= shows
                yield view

    def view(self, name: str) -> tuple[Declared, set[ForeignKey]]:
        """The view of a table, and the foreign keys that it shows."""
        shows: set[ForeignKey] = set()
        return {"root": name, **self._part(self._ways(name), (name,), shows)}, shows

    def _rank(self, name: str) -> int:
        """From what is a document of its own to what is rather shown as a part of another."""
        refers = [key for key in self._out[name] if key.to != name]
        if refers and self._in[name]:
            return 0
        if refers and not any(_is_part(key, self._whole[name]) for key in refers):
            return 1
        return 3 if refers else 2

    def _is_between(self, name: str) -> bool:
        """Whether it only joins two tables, many to many."""
        keys = self._out[name]
        return not self._in[name] and only_joins(self._whole[name], keys)

    # -- what is in it ----------------------------------------------------------------------------------------------

    def _part(self, ways: Iterable[_Way], path: tuple[str, ...], shows: set[ForeignKey]) -> Declared:
        """The columns and relations of the last table of a path, on which no table is twice but one at its end."""
        fields = self._fields[path[-1]]
        made: dict[str, dict[str, object]] = _columns(fields)
        taken = set(fields)
        for way in ways:
            name = _free(way.names, taken)
            taken.add(name)
            shows.update(way.shows)
            inner = (*path, way.table)
            ends = len(path) == LEVELS or way.table in path
            below = (further for further in self._referred(way.table) if further.table not in inner)
            part = self._part(() if ends else below, inner, shows)
            where = " AND ".join(str(each["where"]) for each in (way.relation, part) if "where" in each)
            made.setdefault(way.kind, {})[name] = {**way.relation, **part, **({"where": where} if where else {})}
        return dict(made)

    def _ways(self, root: str) -> Iterator[_Way]:
        yield from self._referred(root)
        keys = self._in[root]
        if len(keys) > LISTS:
            keys = [key for key in keys if _is_part(key, self._whole[key.table])]
        if len(keys) > LISTS:
            keys = [key for key in keys if _short(key) != _plain(key.table)]
        ways = [way for way in map(self._referring, keys) if self._fits((root, way))]
        yield from sorted(ways, key=lambda way: way.kind == "many")
        yield from self._owned[root]

    def _referred(self, table: str) -> Iterator[_Way]:
        """The rows that a row refers to."""
        for key in self._out[table]:
            yield self._one(key)[1]

    def _one(self, key: ForeignKey) -> tuple[str, _Way]:
        stem, single = _stem(key), len(_telling(key)) == 1
        names = (stem, f"{stem}_row") if single else (singular(_plain(key.to)), stem)
        relation = {"table": key.to, **self._by(key.columns, key.referenced, key.to)}
        return key.table, _Way("one", names, relation, (key,))

    def _referring(self, key: ForeignKey) -> _Way:
        """The rows that refer to a row by this key, or those behind them where they only join."""
        if self._is_between(key.table):
            (other,) = (other for other in self._out[key.table] if other != key)
            return self._through(key, other)
        several = [other.to for other in self._out[key.table]].count(key.to) > 1
        alone = any(set(unique) == set(key.columns) for unique in self._keys(key.table))
        counted = singular if alone else plural
        short, plain = counted(_short(key)), counted(_plain(key.table))
        names = (_by_stem(plain, key),) if several else (short, plain)
        if alone:
            return _Way("one", names, {"table": key.table, **self._by(key.referenced, key.columns, key.table)}, (key,))
        return _Way("many", names, {"table": key.table, **self._by(key.columns, key.referenced, key.to)}, (key,))

    def _through(self, key: ForeignKey, other: ForeignKey) -> _Way:
        short = plural(_short(key))
        names = (plural(_plain(other.to)), short, _by_stem(short, key))
        relation = {
            "table": other.to,
            "through": key.table,
            **self._by(key.columns, key.referenced, key.to),
            **_to(self._by(other.columns, other.referenced, other.to)),
        }
        if (place := position_of(self._whole[key.table], (key, other))) is not None:
            relation["order_by"] = [f"between.{place}"]
        return _Way("many", names[1:] if key.to == other.to else names, relation, (key, other))

    def _by(self, held: Sequence[str], key: Sequence[str], of: str) -> Declared:
        """`by`, in the order of the primary key where it is that, else with `references`."""
        holders = dict(zip(key, held, strict=True))
        primary = self._whole[of].key
        if set(key) == set(primary):
            return {"by": _listed([holders[column] for column in primary])}
        return {"by": _listed(held), "references": _listed(key)}

    def _fits(self, step: tuple[str, _Way]) -> bool:
        """Whether `check` takes this relation: its columns are in the log, can be compared, and can be put in order."""
        table, way = step
        view = ViewConfig.model_validate({"root": table, way.kind: {"": way.relation}})
        tree, problems = resolve("", view, self._source)
        return tree is not None and not problems and (self._utf8 or not tree.sorts_text)


def _to(held: Declared) -> Declared:
    """`by` and `references` of a row below, as a table between has them."""
    names = {"by": "to", "references": "to_references"}
    return {names[name]: columns for name, columns in held.items()}


def _listed(columns: Sequence[str]) -> str | list[str]:
    return columns[0] if len(columns) == 1 else list(columns)


def _plain(table: str) -> str:
    return slug(split_name(table)[1])


def _is_part(key: ForeignKey, table: Table) -> bool:
    """Whether its rows belong to those that they refer to, by their key or by their name."""
    return set(key.columns) <= set(table.key) or _short(key) != _plain(key.table)


def _short(key: ForeignKey) -> str:
    """`order_lines` by `order_id` -> `lines`."""
    name = _plain(key.table)
    return name.removeprefix(f"{_stem(key)}_") or name


def _by_stem(name: str, key: ForeignKey) -> str:
    return f"{name}_by_{_stem(key)}" if _stem(key) else name


def _stem(key: ForeignKey) -> str:
    """What the columns call the row that they refer to: `customer_id` -> `customer`. Empty where they say nothing."""
    stems = [slug(column, fallback="row") for column in _telling(key)]
    return "_".join((found[1] or found[2]) if (found := _AFFIX.fullmatch(stem)) else stem for stem in stems)


def _telling(key: ForeignKey) -> list[str]:
    """Columns that are not called as what they hold: of (tenant, customer_id) for (tenant, id), the second."""
    pairs = zip(key.columns, key.referenced, strict=True)
    return [held for held, of in pairs if held != of] if len(key.columns) > 1 else [key.columns[0]]


def _free(names: Sequence[str], taken: set[str]) -> str:
    """The first that is not taken, or it with a number."""
    number, found = 1, next((name for name in names if name and name not in taken), "")
    while not found:
        number += 1
        found = f"{names[0]}_{number}" if f"{names[0]}_{number}" not in taken else ""
    return found
