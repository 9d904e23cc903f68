"""How each Postgres type travels: what Debezium writes, and the form in which `to_jsonb` shows it.

This is the whole list. A column of a type that is not here is refused (the column, not its table). docs/types.md is
made of it: `make docs`.
"""

from __future__ import annotations

from dataclasses import dataclass

from driftless.table import Column


@dataclass(frozen=True)
class TypeRule:
    """`log`: the JSON type in the log, as Spark names it. `form`: the conversion, implemented in
    jobs/decode/values.py.

    `says`: where a document differs from `to_jsonb`; empty where it does not. `sql`: what is the same in Postgres.
    `typed`: Spark's type of the value where it is not shown in a document but computed with; a string holds what the
    document shows.
    """

    log: str
    form: str
    says: str = ""
    sql: str = "to_jsonb({})"
    typed: str = "string"


DECIMAL = "decimal(38,18)"
"""Of numerics that are computed with: their precision is not recorded, and none of Spark's types holds all of them."""
_TEXT = TypeRule("string", "same")
_HEX = TypeRule("string", "hex")
_ZONED_HEX = TypeRule("string", "zoned hex")
_COMPOSITE = TypeRule("string", "composite")

RULES: dict[str, TypeRule] = {
    "int2": TypeRule("bigint", "same", typed="smallint"),
    "int4": TypeRule("bigint", "same", typed="int"),
    "int8": TypeRule("bigint", "same", typed="bigint"),
    "bool": TypeRule("boolean", "same", typed="boolean"),
    "text": _TEXT,
    "varchar": _TEXT,
    "bpchar": _TEXT,
    "char": _TEXT,
    "name": _TEXT,
    "citext": _TEXT,
    "uuid": _TEXT,
    "inet": _TEXT,
    "cidr": _TEXT,
    "macaddr": _TEXT,
    "macaddr8": _TEXT,
    "xml": _TEXT,
    "ltree": _TEXT,
    "isbn": _TEXT,
    "tsvector": _TEXT,
    "int4range": _TEXT,
    "int8range": _TEXT,
    "numrange": _TEXT,
    "daterange": _TEXT,
    "tsrange": _TEXT,
    "tstzrange": TypeRule("string", "zoned text"),
    "numeric": TypeRule("string", "numeric", typed=DECIMAL),
    "float4": TypeRule("string", "float", typed="float"),
    "float8": TypeRule("string", "float", typed="double"),
    "money": TypeRule(
        "string",
        "number",
        "the amount as a number, without currency and grouping",
        "to_jsonb({}::numeric)",
        typed=DECIMAL,
    ),
    "timestamp": TypeRule("bigint", "timestamp", typed="timestamp_ntz"),
    "timestamptz": TypeRule("string", "timestamptz", typed="timestamp"),
    "date": TypeRule("bigint", "date", typed="date"),
    "time": TypeRule("bigint", "time"),
    "timetz": TypeRule("string", "timetz", "the same moment of the day in UTC", "to_jsonb({} at time zone 'UTC')"),
    "interval": TypeRule("string", "interval"),
    "json": TypeRule("string", "plain json", "where an object has a key twice, its numbers keep 38 digits"),
    "jsonb": TypeRule("string", "json"),
    "hstore": TypeRule("string", "json"),
    "bytea": TypeRule("string", "bytea", typed="binary"),
    "bit": TypeRule("string", "bits"),
    "point": TypeRule("struct<x: string, y: string>", "point"),
    "line": TypeRule("struct<a: string, b: string, c: string>", "line"),
    "circle": TypeRule("struct<center: struct<x: string, y: string>, radius: string>", "circle"),
    "oid": TypeRule("bigint", "digits", typed="bigint"),
    "aclitem": _HEX,
    "cid": _HEX,
    "jsonpath": _HEX,
    "pg_lsn": _HEX,
    "pg_snapshot": _HEX,
    "tid": _HEX,
    "tsquery": _HEX,
    "txid_snapshot": _HEX,
    "xid": _HEX,
    "xid8": _HEX,
    "datemultirange": _HEX,
    "int4multirange": _HEX,
    "int8multirange": _HEX,
    "nummultirange": _HEX,
    "tsmultirange": _HEX,
    "tstzmultirange": _ZONED_HEX,
}

_WKB = "which the log carries as a shape of its own, not as Postgres writes it"
_CATALOGUE = "which only the server's own catalogues hold"
_NAMES = "a name that depends on who reads it, for a number that means nothing outside of the database"
_VECTOR = "which Debezium takes for an array and loses"
_OTHERWISE = "which Debezium turns into a structure of its own"

REFUSED: dict[str, str] = {
    "box": _WKB,
    "lseg": _WKB,
    "path": _WKB,
    "polygon": _WKB,
    "varbit": "whose leading zeros the log loses",
    "refcursor": "which Debezium would open",
    "int2vector": _VECTOR,
    "oidvector": _VECTOR,
    "geometry": _OTHERWISE,
    "geography": _OTHERWISE,
    "vector": _OTHERWISE,
    "halfvec": _OTHERWISE,
    "sparsevec": _OTHERWISE,
    **dict.fromkeys(("gtsvector", "pg_node_tree", "pg_ndistinct", "pg_dependencies", "pg_mcv_list"), _CATALOGUE),
    **dict.fromkeys(("pg_brin_bloom_summary", "pg_brin_minmax_multi_summary"), _CATALOGUE),
    **dict.fromkeys(("regclass", "regcollation", "regconfig", "regdatabase", "regdictionary", "regnamespace"), _NAMES),
    **dict.fromkeys(("regoper", "regoperator", "regproc", "regprocedure", "regrole", "regtype"), _NAMES),
}
"""Why a column of such a type is left out, as the end of "has the type box, ..."."""

_UNKNOWN_ARRAY = "and Debezium loses arrays of types that it does not know"
_NO_ARRAY = "and Debezium leaves such arrays out"

REFUSED_ARRAYS: dict[str, str] = {
    "time": "of which the log keeps milliseconds alone",
    "enum": "and the log loses every such array that holds a null",
    "domain": "and Debezium loses arrays of domains",
    "composite": _UNKNOWN_ARRAY,
    **dict.fromkeys(("bit", "line", "circle"), "and Debezium loses such arrays"),
    **dict.fromkeys(("name", "money", "interval", "xml", "point"), _NO_ARRAY),
    **{name: _UNKNOWN_ARRAY for name, rule in RULES.items() if rule in (_HEX, _ZONED_HEX)},
    **dict.fromkeys(("isbn", "tsvector"), _UNKNOWN_ARRAY),
}
"""Elements that Debezium 3.7 changes or loses, though it carries them rightly on their own."""

NULLED_ARRAYS = frozenset(
    {
        *("int2", "int4", "int8", "float4", "float8", "bool", "oid"),
        *("date", "timestamp", "timestamptz", "bytea", "citext", "hstore"),
    }
)
"""Elements for which Debezium 3.7 writes null where an array has several dimensions, whatever it was declared with. For
others it writes the name of a Java class, or it stops."""

_EXTENSIONS = frozenset({"citext", "hstore", "isbn", "ltree"})
"""Types of extensions that Debezium knows by name. All others travel as their text."""

_PART_FORMS = {
    **dict.fromkeys(("int2", "int4", "int8"), "number"),
    **dict.fromkeys(("numeric", "float4", "float8"), "special number"),
    **dict.fromkeys(("json", "jsonb"), "json"),
    **{name: name for name in ("bool", "timestamp", "timestamptz")},
    **dict.fromkeys(("tstzrange", "tstzmultirange"), "zoned text"),
}


_NOT_IN_PARTS = {"money", "box", "int2vector", "oidvector", *REFUSED} - {
    "lseg",
    "path",
    "polygon",
    "varbit",
    "refcursor",
}


def rule_of(column: Column) -> TypeRule | None:
    """The rule of a column's type, or of its elements' type; None where there is none for it."""
    match column.kind:
        case "e":
            return _TEXT
        case "c":
            return _COMPOSITE
        case "r" | "m" if column.own:
            return _ZONED_HEX
    if column.own and column.type not in _EXTENSIONS:
        return None if column.type in REFUSED or column.json_cast else _HEX
    if column.type == "bit" and column.length == 1:
        return TypeRule("boolean", "one bit")
    if column.type == "numeric" and column.length < 0:
        return TypeRule("string", "whole numeric", typed=DECIMAL)
    return RULES.get(column.type)


def refusal(column: Column) -> str | None:
    """Why a column cannot be followed, in words for the operator; None where it can."""
    if column.generated:
        return "is generated, and the log does not carry generated columns"
    if column.dimensions > 1:
        return "is an array of several dimensions, which the log does not carry whole"
    reason = _refused_array(column) if column.array else None
    if reason is not None:
        return f"is an array of {column.type}, {reason}"
    if column.kind == "c":
        return _refused_part(column)
    rule = rule_of(column)
    if rule is not None:
        return None
    if column.kind == "b" and column.type in REFUSED:
        return f"has the type {column.type}, {REFUSED[column.type]}"
    if column.json_cast:
        return f"has the type {column.type}, whose JSON is made by a function in the database"
    return f"has the type {column.type}, which cannot be carried without loss yet"


def _refused_array(column: Column) -> str | None:
    if column.domains:
        return REFUSED_ARRAYS["domain"]
    if column.kind in "ec":
        return REFUSED_ARRAYS["enum" if column.kind == "e" else "composite"]
    rule = rule_of(column)
    return _UNKNOWN_ARRAY if column.own and rule in (_HEX, _ZONED_HEX) else REFUSED_ARRAYS.get(column.type)


def _refused_part(column: Column) -> str | None:
    """A composite travels as its text, so each part must be one whose text is enough."""
    for part in column.fields:
        inner = _refused_part(part) if part.kind == "c" else None
        if inner is not None:
            return inner
        if text_form(part) is None:
            kind = f"{part.type}{'[]' if part.array else ''}"
            return f"has the type {column.type}, whose {part.name} ({kind}) cannot be read from a composite's text"
    return None


def text_form(column: Column) -> str | None:
    """How Postgres' text of a value becomes JSON, inside of a composite; None where it is not enough.

    Unlike a column, a part may be an array of anything, since Debezium has no part in it.
    """
    if column.kind == "c":
        return "composite"
    if column.dimensions > 1 or column.json_cast or (column.kind == "b" and column.type in _NOT_IN_PARTS):
        return None
    if column.kind != "b" and column.own:
        return "zoned text" if column.kind in "rm" else "text"
    return "text" if column.own else _PART_FORMS.get(column.type, "text")


def sql_of(column: Column, value: str) -> str:
    """The SQL that gives as JSON what a document shows of a column, where `value` is the column in a statement."""
    rule = rule_of(column)
    if rule is None:
        raise ValueError(f"no rule for the type {column.type} of the column {column.name}")
    if not column.array or rule.sql == "to_jsonb({})":
        return rule.sql.format(value)
    elements = f"select jsonb_agg({rule.sql.format('x')} order by n) from unnest({value}) with ordinality as u(x, n)"
    return f"case when {value} is not null then coalesce(({elements}), '[]') end"
