"""Random schemas, views over them, and what the documents must be by plain loops over the rows.

Nothing of the product is used here: a mistake of the product's cannot hide in it too.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.jobs.views.store.views_values import COMPUTED, COMPUTING_WHERES, aggregate
from tests.support.compare import parse

AGGREGATES = ("count", "sum", "avg", "min", "max")

VALUES: dict[str, list[str]] = {
    "int2": ["0", "1", "2", "3", "4"],
    "int4": ["0", "1", "2", "3", "4"],
    "int8": ["0", "1", "2", "3", "4", "9223372036854775807"],
    "numeric": ["0", "1", "1.0", "2.00", "3", "-4.5", "100000000000000000000.10", "NaN", "Infinity", "-Infinity"],
    "text": ["a", "B", "ä", "z", "", "a b", "'\"\\", "é\n", "\U0001d11e", "\ufffd", "null", "Z", "ab"],
    "uuid": [f"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1{digit}" for digit in "01239f"],
    "bool": ["true", "false"],
    "date": ["2024-02-29", "2024-03-01", "infinity", "-infinity", "0044-03-15 BC", "10000-01-01", "1999-12-31"],
    "timestamptz": [
        "2024-02-29 10:00:00+00",
        "2024-02-29 10:00:00.12+00",
        "2024-02-29 10:00:00.1+01",
        "infinity",
        "-infinity",
        "0001-12-31 23:59:59 BC",
        "12024-02-29 10:00:00+00",
    ],
    "float8": ["0.1", "-0", "1e300", "-1e-7", "NaN", "Infinity", "2"],
    "jsonb": ['{"a": [1, 2.50], "b": null}', "[]", '"x"', "1.00"],
    "bytea": ["\\x00ff", "\\x"],
}
KEYS = ["int4", "int4", "int8", "text", "uuid", "numeric", "date"]
SORTED = ["int4", "numeric", "text", "uuid", "bool", "date", "timestamptz", "float8"]
_NUMBERS = ["int2", "int4", "int8", "numeric"]
_ODD = ["{}", "{} x", 'q"{}', "q'{}", "C{}", "sp\\{}"]


@dataclass
class Spec:
    """A table. `unique`: unique keys beside the primary one. `used`: columns by which relations go or are in order."""

    name: str
    key: list[str]
    columns: dict[str, str]
    unique: list[list[str]] = field(default_factory=list)
    used: list[str] = field(default_factory=list)

    @property
    def full_name(self) -> str:
        return f"public.{quoted(self.name) if chr(34) in self.name else self.name}"

    def statements(self) -> Iterator[str]:
        columns = ", ".join(f"{quoted(name)} {type_}" for name, type_ in self.columns.items())
        yield f"create table {quoted(self.name)} ({columns}, primary key ({', '.join(map(quoted, self.key))}))"
        for number, key in enumerate(self.unique):
            yield (
                f"create unique index {quoted(f'{self.name}_{number}')} "
                f"on {quoted(self.name)} ({', '.join(map(quoted, key))})"
            )


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


Row = Mapping[str, Any]
"""Column -> value as JSON, parsed."""


@dataclass
class Case:
    """Tables, and a view over them as it stands in sync.yaml. `conditions`: what each `where` of it means.

    `computed`: what each text that computes something gives; `aggregated`: the column of those that are one.
    """

    tables: dict[str, Spec]
    view: dict[str, Any]
    conditions: dict[str, Callable[[Row], bool]]
    computed: dict[str, Callable[[Row], Any]]
    aggregated: dict[str, str]

    def documents(self, rows: Mapping[str, Mapping[str, Row]]) -> dict[str, Any]:
        """Key's text -> document. `rows`: table -> key's text -> row."""
        root = self.view["root"]
        shown = {key: row for key, row in rows[root].items() if self._shows(self.view, row)}
        return {key: self._document(row, root, self.view, rows) for key, row in shown.items()}

    def _shows(self, part: dict[str, Any], row: Row) -> bool:
        return "where" not in part or self.conditions[part["where"]](row)

    def _document(self, row: Row, table: str, shown: dict[str, Any], rows: Mapping[str, Mapping[str, Row]]) -> Any:
        if "value" in shown:
            return row[shown["value"]]
        columns = shown.get("columns") or list(self.tables[table].columns)
        pairs = columns.items() if isinstance(columns, dict) else [(name, name) for name in columns]
        made = {name: row[column] for name, column in pairs}
        made |= {name: self.computed[text](row) for name, text in shown.get("computed", {}).items()}
        for name, below in shown.get("one", {}).items():
            key = _list(below.get("references", self.tables[below["table"]].key))
            found = [other for other in rows[below["table"]].values() if _meet(row, _list(below["by"]), other, key)]
            assert len(found) < 2, "the generator lets two rows have one unique key"
            found = [other for other in found if self._shows(below, other)]
            part = self._document(found[0], below["table"], below, rows) if found else None
            if "prefix" in below:
                part = part or self._nothing(below["table"], below)
                made |= {f"{below['prefix']}{member}": value for member, value in part.items()}
            else:
                made[name] = part
        for name, below in shown.get("many", {}).items():
            key = _list(below.get("references", self.tables[table].key))
            found = [other for other in self._rows_of(row, key, below, rows) if self._shows(below, other)]
            if function := next((name for name in AGGREGATES if name in below), None):
                of = self.computed.get(str(below[function]))
                type_ = self.tables[below["table"]].columns.get(self.aggregated.get(str(below[function]), ""), "text")
                values = [of(other) if of else 1 for other in found]
                made[name] = aggregate(function, values, functools.partial(_place, type_=type_))
                continue
            for written in reversed([*below.get("order_by", []), *self.tables[below["table"]].key]):
                column, descending = (written[:-5], True) if written.endswith(" desc") else (written, False)
                type_ = self.tables[below["table"]].columns[column]
                found.sort(key=_placed(column, type_), reverse=descending)
            listed = [self._document(other, below["table"], below, rows) for other in found]
            made[name] = (listed or [None])[0] if below.get("first") else listed[: below.get("limit")]
        return made

    def _nothing(self, table: str, shown: dict[str, Any]) -> dict[str, Any]:
        """What a row shows that is not there."""
        if "value" in shown:
            raise AssertionError("a value has no members")
        made = dict.fromkeys([*(shown.get("columns") or self.tables[table].columns), *shown.get("computed", {})])
        for name, below in shown.get("one", {}).items():
            inner = self._nothing(below["table"], below) if "prefix" in below else {}
            made |= {f"{below['prefix']}{member}": value for member, value in inner.items()} if inner else {name: None}
        for name, below in shown.get("many", {}).items():
            made[name] = Decimal(0) if "count" in below else None if {*AGGREGATES, "first"} & {*below} else []
        return made

    def _rows_of(
        self, row: Row, key: list[str], below: dict[str, Any], rows: Mapping[str, Mapping[str, Row]]
    ) -> Iterator[Row]:
        table = below["table"]
        if "through" not in below:
            yield from (other for other in rows[table].values() if _meet(row, key, other, _list(below["by"])))
            return
        for link in rows[below["through"]].values():
            if _meet(row, key, link, _list(below["by"])):
                to, own = _list(below["to"]), _list(below.get("to_references", self.tables[table].key))
                yield from (other for other in rows[table].values() if _meet(link, to, other, own))


def _list(columns: str | list[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else columns


def _meet(left: Row, left_columns: list[str], right: Row, right_columns: list[str]) -> bool:
    pairs = [(left[a], right[b]) for a, b in zip(left_columns, right_columns, strict=True)]
    return all(a is not None and b is not None and a == b for a, b in pairs)


def _placed(column: str, type_: str) -> Callable[[Row], tuple[Any, ...]]:
    return lambda row: _place(row[column], type_)


def _place(value: Any, type_: str) -> tuple[Any, ...]:
    """Where Postgres sorts a value."""
    if value is None:
        return (1,)
    if isinstance(value, str) and type_ in ("numeric", "float8"):
        return (0, {"-Infinity": -1, "Infinity": 1, "NaN": 2}[value], 0)
    if isinstance(value, Decimal):
        return (0, 0, value)
    if isinstance(value, str) and type_ in ("date", "timestamptz"):
        if value.endswith("infinity"):
            return (0, -1 if value.startswith("-") else 1, ())
        numbers = [int(part) for part in re.findall(r"\d+", value.split("+")[0].split(".")[0])]
        fraction = Decimal("0." + (re.findall(r"[.](\d+)", value) or ["0"])[0])
        return (0, 0, ((1 - numbers[0] if value.endswith("BC") else numbers[0]), *numbers[1:], fraction))
    return (0, 0, value.encode() if isinstance(value, str) else value)


WHERES: list[tuple[str, str, str, Callable[[Any], bool]]] = [
    ("int4", "n", "{} > 1", lambda n: n is not None and n > 1),
    ("int4", "n", "{} IN (1, 2, 3) OR {} IS NULL", lambda n: n is None or n in (1, 2, 3)),
    ("int4", "n", "{} < 2.5", lambda n: n is not None and n < Decimal("2.5")),
    ("text", "s", "NOT {} LIKE 'a%'", lambda s: s is not None and not s.startswith("a")),
    ("text", "s", "{} > 'Z'", lambda s: s is not None and s.encode() > b"Z"),
    ("numeric", "m", "{} >= 1.0", lambda m: m is not None and _place(m, "numeric") >= (0, 0, Decimal(1))),
    ("bool", "b", "{} IS NOT TRUE", lambda b: b is not True),
    ("timestamptz", "w", "{} <= '2024-02-29 10:00:00.1+00'", lambda w: _before(w)),
]


def _of(column: str, test: Callable[[Any], bool]) -> Callable[[Row], bool]:
    return lambda row: test(row[column])


def _before(moment: str | None) -> bool:
    limit = _place("2024-02-29T10:00:00.1+00:00", "timestamptz")
    return moment is not None and _place(moment, "timestamptz") <= limit


class Maker:
    """Makes one case. `plain`: in which nothing is computed."""

    def __init__(self, rng: random.Random, *, plain: bool = False) -> None:
        self._rng = rng
        self._plain = plain
        self._computed: dict[str, Callable[[Row], Any]] = {}
        self._aggregated: dict[str, str] = {}
        self._specs: dict[str, Spec] = {}
        self._nodes = 0
        self._most = rng.randint(1, 7)
        self._depth = rng.randint(1, 5)
        self._conditions: dict[str, Callable[[Row], bool]] = {}

    def case(self) -> Case:
        root = self._table()
        view: dict[str, Any] = {"root": root.full_name}
        self._below(root, view, 1)
        self._where(root, view)
        self._compute(view, root)
        self._columns(view, root)
        tables = {spec.full_name: spec for spec in self._specs.values()}
        return Case(tables, view, self._conditions, self._computed, self._aggregated)

    def _where(self, spec: Spec, part: dict[str, Any]) -> None:
        """Now and then a condition of what a part shows, by a column of its own."""
        if self._rng.random() < 0.4:
            type_, name, text, test = self._rng.choice(WHERES if self._plain else [*WHERES, *COMPUTING_WHERES])
            column = self._column(spec, f"{name}{len(self._conditions)}", type_)
            part["where"] = text.replace("{}", quoted(column))
            self._conditions[part["where"]] = _of(column, test)

    def _computes(self, spec: Spec, part: dict[str, Any]) -> None:
        """Now and then something is computed of what a part shows, by columns of its own."""
        while not self._plain and "value" not in part and self._rng.random() < 0.25:
            type_, name, text, test = self._rng.choice(COMPUTED)
            column = self._column(spec, f"{name}{len(self._computed)}c", type_)
            spec.used.append(column)
            text = text.replace("{}", quoted(column)) + " " * len(self._computed)
            self._computed[text] = _of(column, test)
            part.setdefault("computed", {})[f"computed {len(self._computed)}"] = text

    def _aggregates(self, spec: Spec, relation: dict[str, Any]) -> None:
        rng = self._rng
        function = rng.choice(["count", "sum", "avg", "min", "max", "max"])
        if function == "count":
            relation["count"] = True
            return
        types = ["int4", "numeric"] if function in ("sum", "avg") else sorted({*SORTED} - {"bool", "uuid"})
        column = self._column(spec, "a", rng.choice(types))
        spec.used.append(column)
        text = quoted(column) + " " * len(self._computed)
        self._computed[text] = _of(column, lambda value: value)
        self._aggregated[text] = column
        relation[function] = text

    def _table(self) -> Spec:
        rng = self._rng
        name = rng.choice(_ODD).format(f"t{len(self._specs)}").replace("\\", "_")
        types = [rng.choice(KEYS) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
        spec = Spec(name, [], {})
        for type_ in types:
            spec.key.append(self._column(spec, "id", type_))
        if rng.random() < 0.3:
            spec.unique.append([self._column(spec, "u", rng.choice(KEYS)) for _ in range(rng.choice([1, 1, 2]))])
        for _ in range(rng.randint(1, 3)):
            self._column(spec, "v", rng.choice(list(VALUES)))
        self._specs[name] = spec
        return spec

    def _column(self, spec: Spec, name: str, type_: str) -> str:
        made = self._rng.choice(_ODD).format(f"{name}{len(spec.columns)}")
        spec.columns[made] = type_
        return made

    def _fitting(self, spec: Spec, key_of: Spec, key: list[str]) -> list[str]:
        """Columns that can hold a key: of their own, mostly."""
        types = [key_of.columns[name] for name in key]
        types = [self._rng.choice(_NUMBERS) if type_ in _NUMBERS else type_ for type_ in types]
        old = [[name for name, has in spec.columns.items() if has == type_] for type_ in types]
        if all(old) and self._rng.random() < 0.2:
            chosen = [self._rng.choice(names) for names in old]
            if len(set(chosen)) == len(chosen):
                spec.used += chosen
                return chosen
        made = [self._column(spec, "f", type_) for type_ in types]
        spec.used += made
        return made

    def _below(self, spec: Spec, shown: dict[str, Any], depth: int) -> None:
        rng = self._rng
        for _ in range(rng.choice([1, 1, 2, 3]) if depth <= self._depth else 0):
            if self._nodes >= self._most:
                return
            self._nodes += 1
            name = rng.choice(["r{}", "Rel {}", 'r"{}', "r'{}", "ü{}"]).format(self._nodes)
            kind = rng.choice(["one", "one", "many", "many", "through"])
            other = rng.choice(list(self._specs.values())) if rng.random() < 0.35 else self._table()
            relation: dict[str, Any] = {"table": other.full_name}
            held_by, of = (spec, other) if kind == "one" else (other, spec)
            key = of.key
            if of.unique and rng.random() < 0.5:
                key = rng.choice(of.unique)
                relation["references"] = key
            elif rng.random() < 0.2:
                relation["references"] = list(key)
            if kind == "through":
                link = rng.choice(list(self._specs.values())) if rng.random() < 0.1 else self._table()
                to = other.key
                if other.unique and rng.random() < 0.5:
                    to = relation["to_references"] = rng.choice(other.unique)
                relation |= {"through": link.full_name, "to": _short(rng, self._fitting(link, other, to))}
                held_by = link
            relation["by"] = _short(rng, self._fitting(held_by, of, key))
            if kind != "one" and not self._plain and rng.random() < 0.4:
                self._aggregates(other, relation)
                self._where(other, relation)
                shown.setdefault("many", {})[name] = relation
                continue
            if kind != "one" and rng.random() < 0.7:
                column = self._column(other, "o", rng.choice(SORTED))
                other.used.append(column)
                relation["order_by"] = [column + rng.choice(["", " desc"])]
            self._where(other, relation)
            if kind != "one" and rng.random() < 0.3:
                relation |= rng.choice([{"limit": rng.randint(1, 3)}, {"first": True}])
            shown.setdefault("one" if kind == "one" else "many", {})[name] = relation
            if kind == "one" and not self._plain and rng.random() < 0.25:
                relation["prefix"] = f"p{self._nodes} {chr(34)}"
                self._below(other, relation, depth + 1)
            elif rng.random() < 0.2:
                relation["value"] = ""
            else:
                self._below(other, relation, depth + 1)

    def _compute(self, shown: dict[str, Any], spec: Spec) -> None:
        if not {*AGGREGATES} & {*shown}:
            self._computes(spec, shown)
        for relation in [*shown.get("one", {}).values(), *shown.get("many", {}).values()]:
            self._compute(relation, next(s for s in self._specs.values() if s.full_name == relation["table"]))

    def _columns(self, shown: dict[str, Any], spec: Spec) -> None:
        """What each part shows, once the tables have all their columns."""
        rng = self._rng
        if {*AGGREGATES} & {*shown}:
            return
        some = rng.sample(list(spec.columns), rng.randint(1, len(spec.columns)))
        how = rng.random()
        if "value" in shown:
            shown["value"] = some[0]
        elif how < 0.4:
            shown["columns"] = some
        elif how < 0.8:
            shown["columns"] = {f"{rng.choice(['c', 'C ', chr(34)])}{n}": name for n, name in enumerate(some)}
        for relation in [*shown.get("one", {}).values(), *shown.get("many", {}).values()]:
            self._columns(relation, next(s for s in self._specs.values() if s.full_name == relation["table"]))


def _short(rng: random.Random, columns: list[str]) -> str | list[str]:
    return columns[0] if len(columns) == 1 and rng.random() < 0.5 else columns


def row_of(texts: Mapping[str, str]) -> Row:
    return {name: parse(text) for name, text in texts.items()}
