"""Random schemas, views over them, and what the documents must be by plain loops over the rows.

Nothing of the product is used here: a mistake of the product's cannot hide in it too.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.jobs.views.store.views_values import aggregate
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
ARRAYS: dict[str, list[str]] = {
    "int4[]": ["{}", "{1,2}", "{3,0,3}", "{NULL,4}", "{1}"],
    "int8[]": ["{}", "{0,1,2,3,4}", "{9223372036854775807,1}", "{2,NULL,2}"],
    "text[]": ["{}", "{a,B,ä}", '{z,NULL,""}', "{a,a}", "{null}"],
    "uuid[]": [f"{{{VALUES['uuid'][0]},{VALUES['uuid'][1]}}}", f"{{{VALUES['uuid'][2]}}}", "{}"],
}


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
        if own := self.view.get("key"):
            shown = {_text_of(row, own): row for row in shown.values() if all(row[name] is not None for name in own)}
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
            found = [other for other, _ in self._rows_of(row, table, below, rows, one=True)]
            assert len(found) < 2, "the generator lets two rows have one unique key"
            found = [other for other in found if self._shows(below, other)]
            part = self._document(found[0], below["table"], below, rows) if found else None
            if "prefix" in below:
                part = part or self._nothing(below["table"], below)
                made |= {f"{below['prefix']}{member}": value for member, value in part.items()}
            else:
                made[name] = part
        for name, below in shown.get("many", {}).items():
            if "ids" in below or "ancestors" in below:
                others = self._elements(row, below, rows) if "ids" in below else self._path(row, below, rows)
                shown_ = [self._document(other, below["table"], below, rows) for other in others]
                made[name] = shown_[: below.get("limit")]
                continue
            ways = [way for way in self._rows_of(row, table, below, rows) if self._shows(below, way[0])]
            found = [other for other, _ in ways]
            if function := next((name for name in AGGREGATES if name in below), None):
                of = self.computed.get(str(below[function]))
                type_ = self.tables[below["table"]].columns.get(self.aggregated.get(str(below[function]), ""), "text")
                values = [of(other) if of else 1 for other in found]
                made[name] = aggregate(function, values, functools.partial(place_of, type_=type_))
                continue
            last = [f"between.{column}" for column in self._last_key(below)] if "between" in below else []
            for written in reversed([*below.get("order_by", []), *self.tables[below["table"]].key, *last]):
                column, descending = (written[:-5], True) if written.endswith(" desc") else (written, False)
                between, holder = column.startswith("between."), below["table"]
                if between:
                    column, holder = column.removeprefix("between."), last_between(below)
                place = _placed(column, self.tables[holder].columns[column])
                ways.sort(key=functools.partial(_way_place, place, between=between), reverse=descending)
            listed = [
                {member: link[column] for member, column in below.get("between", {}).items()}
                | self._document(other, below["table"], below, rows)
                if "between" in below
                else self._document(other, below["table"], below, rows)
                for other, link in ways
            ]
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

    def _elements(self, row: Row, below: dict[str, Any], rows: Mapping[str, Mapping[str, Row]]) -> list[Row]:
        (key,) = _list(below.get("references", self.tables[below["table"]].key))
        there = {other[key]: other for other in rows[below["table"]].values() if self._shows(below, other)}
        return [there[element] for element in row[below["ids"]] or [] if element is not None and element in there]

    def _path(self, row: Row, below: dict[str, Any], rows: Mapping[str, Mapping[str, Row]]) -> list[Row]:
        key, all_rows = _list(below.get("references", self.tables[below["table"]].key)), rows[below["table"]].values()
        found: list[Row] = []
        by = _list(below["by"])
        while True:
            above = [other for other in all_rows if _meet(row, by, other, key)]
            if not above or above[0] in found:
                return found[::-1]
            found += above
            row, by = above[0], _list(below["ancestors"])

    def _rows_of(
        self,
        row: Row,
        table: str,
        below: dict[str, Any],
        rows: Mapping[str, Mapping[str, Row]],
        *,
        one: bool = False,
    ) -> list[tuple[Row, Row]]:
        """Each row with the last one between, or with the one above where there is none between."""
        own = below.get("to_references", self.tables[below["table"]].key)
        of = below.get("references")
        steps: list[tuple[str, Any, Any, Any]]
        match below.get("through"):
            case None:
                steps = [(below["table"], None, below["by"], of) if one else (below["table"], below["by"], None, of)]
            case str() as link:
                steps = [(link, below["by"], None, of), (below["table"], None, below["to"], own)]
            case through:
                steps = [(s["table"], s.get("by"), s.get("to"), s.get("references")) for s in through]
                steps.append((below["table"], below.get("by"), below.get("to"), own if "to" in below else of))
        ways = [(row, row)]
        for name, by, to, references in steps:
            holder = table if by is not None else name
            key = _list(references or self.tables[holder].key)
            left, right = (key, _list(by)) if by is not None else (_list(to), key)
            ways = [
                (other, way[0]) for way in ways for other in rows[name].values() if _meet(way[0], left, other, right)
            ]
            table = name
        return ways

    def _last_key(self, below: dict[str, Any]) -> list[str]:
        return self.tables[last_between(below)].key


def last_between(below: dict[str, Any]) -> str:
    """The last table between."""
    through = below["through"]
    return str(through if isinstance(through, str) else through[-1]["table"])


def _text_of(row: Row, columns: list[str]) -> str:
    values = [row[name] for name in columns]
    texts = [json.dumps(v, ensure_ascii=False) if isinstance(v, str) else str(v) for v in values]
    return "[" + ",".join(texts) + "]" if len(texts) > 1 else str(values[0])


def _list(columns: str | list[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else columns


def _meet(left: Row, left_columns: list[str], right: Row, right_columns: list[str]) -> bool:
    pairs = [(left[a], right[b]) for a, b in zip(left_columns, right_columns, strict=True)]
    return all(a is not None and b is not None and a == b for a, b in pairs)


def _way_place(place: Callable[[Row], Any], way: tuple[Row, Row], *, between: bool) -> Any:
    return place(way[1] if between else way[0])


def _placed(column: str, type_: str) -> Callable[[Row], tuple[Any, ...]]:
    return lambda row: place_of(row[column], type_)


def place_of(value: Any, type_: str) -> tuple[Any, ...]:
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


def row_of(texts: Mapping[str, str]) -> Row:
    return {name: parse(text) for name, text in texts.items()}
