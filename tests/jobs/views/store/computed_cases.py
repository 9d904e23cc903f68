"""Random values and conditions that compute something, as an operator might write them, with rows to try them on."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from driftless.table import Column, Table
from driftless.where.clause import compute
from driftless.where.literals import Literal

COLUMNS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "i": ("integer", "number", ("0", "1", "-1", "7", "-13", "46", "1000")),
    "j": ("bigint", "number", ("0", "3", "-2", "12", "100")),
    "n": ("numeric", "number", ("0", "0.00", "1.50", "-1.5", "33.333", "1e20", "0.000001", "-9999.9", "NaN")),
    "m": ("numeric", "number", ("0.0", "10000", "9999.99", "-3", "0.25", "7e-20", "Infinity", "-Infinity")),
    "money": ("numeric(10,2)", "number", ("0", "19.9", "-0.05", "100000")),
    "t": ('text collate "C"', "text", ("", "a", "Ab", "äÖ", "x y", "'", '"\\', "\U0001d11e", " a ", "a%")),
    "v": ('varchar(9) collate "C"', "text", ("", "A", "b", "é", "null", "0")),
    "b": ("boolean", "bool", ("true", "false")),
    "u": ("uuid", "uuid", ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000")),
    "d": ("date", "date", ("2024-02-29", "1999-12-31", "infinity", "0044-03-15 BC")),
    "s": ("timestamptz", "timestamptz", ("2024-02-29 10:00:00.120+01", "infinity", "1969-12-31 23:59:59+00")),
    "w": ("timestamp", "timestamp", ("2024-02-29 10:00:00.12", "-infinity", "1969-12-31 23:59:59")),
    "k": ("time", "time", ("10:00:00", "23:59:59.5", "24:00:00")),
    "f": ("double precision", "float8", ("0", "-0", "0.1", "-2.5", "NaN", "Infinity")),
    "r": ("real", "float4", ("0.1", "2", "-Infinity")),
    "p": (
        "jsonb",
        "jsonb",
        ('{"a": {"b": [1, "x", 2.50, null, {"c": "e\\n"}]}, "t": "y", "z": null}', "[1.00, [2]]", '"q"', "5", "{}"),
    ),
    "q": ("jsonb", "jsonb", ('{"a": "A", "b": true}', '["a", "b"]', "null", '{"a": {"a": {"e": 1e3}}}')),
    "is_": ("integer[]", "numbers", ("{}", "{1,2}", "{0,NULL}", "{NULL}", "{-1,7}")),
    "ts": ('text[] collate "C"', "texts", ("{}", "{a,Ab}", '{"",NULL}', '{"x y","\'"}')),
    "bs": ("boolean[]", "bools", ("{t}", "{f,NULL}", "{}")),
    "ds": ("date[]", "dates", ("{2024-02-29}", "{infinity,NULL}", "{}")),
}
_TYPES = {"integer": "int4", "bigint": "int8", "boolean": "bool", "double precision": "float8", "real": "float4"}


def _column(name: str, declared: str) -> Column:
    plain = declared.split(" collate")[0].split("(")[0]
    return Column(name, _TYPES.get(plain.removesuffix("[]"), plain.removesuffix("[]")), array=plain.endswith("[]"))


TABLE = Table(
    "public",
    "computed",
    (Column("id", "int8"), *(_column(name, declared) for name, (declared, _, _) in COLUMNS.items())),
    ("id",),
)


@dataclass
class Values:
    """`used`: which functions and operators were made."""

    rng: random.Random
    used: set[str] = field(default_factory=set)

    def value(self, kind: str = "", depth: int = 3) -> str:
        """Of a kind; of any, if none is given."""
        rng = self.rng
        kind = kind or rng.choice(["number", "number", "text", "text", "bool", "jsonb", "date", "uuid", "float8"])
        if depth == 0 or rng.random() < 0.25:
            return self._leaf(kind)
        if kind in ("date", "uuid", "float8", "timestamptz", "time"):
            way = rng.choice(["coalesce", "nullif"])  # of literals alone it would be text
            return f"{way}({self._column(kind)}, {rng.choice([self._literal(kind), self.value(kind, depth - 1)])})"
        ways = {
            "number": ["+", "-", "*", "/", "%", "negate", "length"],
            "text": ["||", "lower", "upper", "->>", "replace"],
        }
        common = ["coalesce", "nullif", "case", "case of"]
        way = rng.choice([*ways.get(kind, []), *common] if kind != "jsonb" else ["->", "->", *common[:1]])
        self.used.add(way)
        deeper = depth - 1
        match way:
            case "+" | "-" | "*":
                return f"({self.value(kind, deeper)} {way} {self.value(kind, deeper)})"
            case "/" | "%":
                divisor = rng.choice([f"nullif({self.value(kind, deeper)}, 0)", "7", "0.30", "-2"])
                return f"({self.value(kind, deeper)} {way} {divisor})"
            case "negate":
                return f"(- {self.value(kind, deeper)})"
            case "length":
                return f"length({self.value('text', deeper)})"
            case "||":
                other = rng.choice(["text", "text", "number", "uuid"])
                return f"({self.value('text', deeper)} || {self.value(other, deeper)})"
            case "lower" | "upper":
                return f"{way}({self.value('text', deeper)})"
            case "replace":
                return f"replace({self.value('text', deeper)}, {self._leaf('text')}, {self._leaf('text')})"
            case "->" | "->>":
                step = rng.choice(["'a'", "'b'", "'t'", "'z'", "0", "1", "-1", "'e'", "3", "4"])
                return f"({self.value('jsonb', deeper)} {way} {step})"
            case "coalesce":
                return f"coalesce({self.value(kind, deeper)}, {self.value(kind, deeper)})"
            case "nullif":
                return f"nullif({self.value(kind, deeper)}, {self.value(kind, deeper)})"
            case "case":
                last = f" else {self.value(kind, deeper)}" if rng.random() < 0.6 else ""
                return f"case when {self.condition(deeper)} then {self._column(kind)}{last} end"
        when = f"{self._column('number')} when {self._literal('number')}"
        return f"case {when} then {self._column(kind)} else {self.value(kind, deeper)} end"

    def condition(self, depth: int = 3) -> str:
        rng = self.rng
        kind = rng.choice(["number", "number", "text", "text", "bool", "date", "uuid", "timestamptz", "time"])
        value = self.value(kind, depth - 1) if depth > 0 else self._column(kind)
        if isinstance(compute(value).term, Literal):
            value = self._column(kind)  # two literals are not compared
        if kind not in ("number", "text", "bool", "date", "uuid"):
            value = f"coalesce({value}, {self._column(kind)})"
        match rng.randrange(8):
            case 0:
                return f"{value} is {rng.choice(['', 'not '])}null"
            case 1:
                return f"({self.condition(0)} {rng.choice(['and', 'or'])} not ({self.condition(0)}))"
            case 2 if kind == "text":
                return f"{value} like {rng.choice(['%a%', '_', 'A%', '%'])!r}"
            case 3 | 4 if kind in ("number", "text", "bool", "date"):
                self.used.add("any")
                array = {"number": "is_", "text": "ts", "bool": "bs", "date": "ds"}[kind]
                single = self._column("whole") if kind == "number" else value
                return f"{single} = any({array})"
            case 5 if kind != "bool":
                return f"{value} in ({self._literal(kind)}, {self._literal(kind)})"
        operator = rng.choice(["=", "<>"] if kind == "bool" else ["=", "<>", "<", "<=", ">", ">="])
        other = self._literal(kind) if rng.random() < 0.5 else self._column(kind)
        if kind == "number" and other in COLUMNS:
            other = f"({other} + 0)"  # columns of two kinds of numbers are not compared as they are
        return f"({value} {operator} {other})"

    def _leaf(self, kind: str) -> str:
        literal = kind in ("number", "text", "bool") and self.rng.random() < 0.3
        return self._literal(kind) if literal else self._column(kind)

    def _column(self, kind: str) -> str:
        names = [name for name, (_, of, _) in COLUMNS.items() if of == kind] if kind != "whole" else ["i", "j"]
        return self.rng.choice(names)

    def _literal(self, kind: str) -> str:
        if kind in ("number", "whole"):
            return self.rng.choice(["0", "1", "-3", "2.50", "0.0", "10"])
        if kind == "float8":
            return self.rng.choice(["0", "0.1", "-2.5"])
        if kind == "bool":
            return self.rng.choice(["true", "false"])
        some = {"timestamptz": ["2024-02-29 09:00:00.12+00"], "time": ["10:00:00", "23:59:59.500"]}
        pool = some.get(kind) or [v for _, of, values in COLUMNS.values() if of == kind for v in values]
        # Alone, a literal has the collation of the database, which may know more letters.
        pool = [value for value in pool if not value.endswith("BC") and value.isascii()]
        return "'" + self.rng.choice(pool).replace("'", "''") + "'"
