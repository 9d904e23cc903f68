"""Makes random schemas, and views over them, with everything that a view may have."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tests.jobs.views.store.views_cases import (
    AGGREGATES,
    ARRAYS,
    VALUES,
    Case,
    Row,
    Spec,
    last_between,
    place_of,
    quoted,
)
from tests.jobs.views.store.views_values import COMPUTED, COMPUTING_WHERES

KEYS = ["int4", "int4", "int8", "text", "uuid", "numeric", "date"]
SORTED = ["int4", "numeric", "text", "uuid", "bool", "date", "timestamptz", "float8"]
_NUMBERS = ["int2", "int4", "int8", "numeric"]
_ODD = ["{}", "{} x", 'q"{}', "q'{}", "C{}", "sp\\{}"]

WHERES: list[tuple[str, str, str, Callable[[Any], bool]]] = [
    ("int4", "n", "{} > 1", lambda n: n is not None and n > 1),
    ("int4", "n", "{} IN (1, 2, 3) OR {} IS NULL", lambda n: n is None or n in (1, 2, 3)),
    ("int4", "n", "{} < 2.5", lambda n: n is not None and n < Decimal("2.5")),
    ("text", "s", "NOT {} LIKE 'a%'", lambda s: s is not None and not s.startswith("a")),
    ("text", "s", "{} > 'Z'", lambda s: s is not None and s.encode() > b"Z"),
    ("numeric", "m", "{} >= 1.0", lambda m: m is not None and place_of(m, "numeric") >= (0, 0, Decimal(1))),
    ("bool", "b", "{} IS NOT TRUE", lambda b: b is not True),
    ("timestamptz", "w", "{} <= '2024-02-29 10:00:00.1+00'", lambda w: _before(w)),
]


def _of(column: str, test: Callable[[Any], bool]) -> Callable[[Row], bool]:
    return lambda row: test(row[column])


def _before(moment: str | None) -> bool:
    limit = place_of("2024-02-29T10:00:00.1+00:00", "timestamptz")
    return moment is not None and place_of(moment, "timestamptz") <= limit


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
        if not self._plain and self._rng.random() < 0.3:
            types = [self._rng.choice(["int4", "int8", "text", "uuid"]) for _ in range(self._rng.choice([1, 1, 2]))]
            view["key"] = [self._column(root, "k", type_) for type_ in types]
            root.unique.append(view["key"])
            root.used += view["key"]
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
            if kind != "many" and not self._plain and rng.random() < 0.5:
                self._chain(spec, other, relation, one=kind == "one")
            if kind == "many" and not self._plain and rng.random() < 0.4 and self._in_place(spec, other, relation):
                self._below(other, relation, depth + 1)
                shown.setdefault("many", {})[name] = relation
                continue
            if kind != "one" and not self._plain and rng.random() < 0.4:
                self._aggregates(other, relation)
                self._where(other, relation)
                shown.setdefault("many", {})[name] = relation
                continue
            if kind != "one" and rng.random() < 0.7:
                column = self._column(other, "o", rng.choice(SORTED))
                other.used.append(column)
                relation["order_by"] = [column + rng.choice(["", " desc"])]
            if "through" in relation and kind != "one" and not self._plain and rng.random() < 0.5:
                last = next(s for s in self._specs.values() if s.full_name == last_between(relation))
                column = self._column(last, "o", rng.choice(SORTED))
                last.used.append(column)
                relation["order_by"] = [f"between.{column}{rng.choice(['', ' desc'])}"]
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

    def _in_place(self, spec: Spec, other: Spec, relation: dict[str, Any]) -> bool:
        """A list with an order of its own: of an array's elements, or a path."""
        if self._rng.random() < 0.5:
            for name in ("references", "by"):
                relation.pop(name, None)
            relation["by"] = _short(self._rng, self._fitting(spec, other, other.key))
            relation["ancestors"] = _short(self._rng, self._fitting(other, other, other.key))
            return True
        type_ = f"{other.columns[other.key[0]]}[]"
        if len(other.key) > 1 or type_ not in ARRAYS:
            return False
        for name in ("references", "by"):
            relation.pop(name, None)
        relation["ids"] = self._column(spec, "ids", type_)
        spec.used.append(relation["ids"])
        self._where(other, relation)
        if self._rng.random() < 0.3:
            relation["limit"] = self._rng.randint(1, 3)
        return True

    def _chain(self, spec: Spec, other: Spec, relation: dict[str, Any], *, one: bool) -> None:
        """In place of what there is, a way over one or two tables, of which either holds the key of the other."""
        rng, above = self._rng, spec
        for name in ("by", "to", "through", "references", "to_references"):
            relation.pop(name, None)
        steps: list[dict[str, Any]] = []
        for table in [*(self._table() for _ in range(rng.choice([1, 1, 2]))), other]:
            step: dict[str, Any] = {"table": table.full_name}
            if one or rng.random() < 0.5:
                step["to"] = _short(rng, self._fitting(above, table, table.key))
            else:
                step["by"] = _short(rng, self._fitting(table, above, above.key))
            steps.append(step)
            above = table
        relation |= {**steps.pop(), "through": steps}

    def _columns(self, shown: dict[str, Any], spec: Spec, *, many: bool = False) -> None:
        """What each part shows, once the tables have all their columns."""
        rng = self._rng
        if {*AGGREGATES} & {*shown}:
            return
        if "value" not in shown and "through" in shown and not self._plain and many and rng.random() < 0.7:
            last = next(s for s in self._specs.values() if s.full_name == last_between(shown))
            names = rng.sample(list(last.columns), rng.randint(1, len(last.columns)))
            shown["between"] = {f"b {n}": name for n, name in enumerate(names)}
        some = rng.sample(list(spec.columns), rng.randint(1, len(spec.columns)))
        how = rng.random()
        if "value" in shown:
            shown["value"] = some[0]
        elif how < 0.4:
            shown["columns"] = some
        elif how < 0.8:
            shown["columns"] = {f"{rng.choice(['c', 'C ', chr(34)])}{n}": name for n, name in enumerate(some)}
        for kind in ("one", "many"):
            for relation in shown.get(kind, {}).values():
                other = next(s for s in self._specs.values() if s.full_name == relation["table"])
                self._columns(relation, other, many=kind == "many")


def _short(rng: random.Random, columns: list[str]) -> str | list[str]:
    return columns[0] if len(columns) == 1 and rng.random() < 0.5 else columns
